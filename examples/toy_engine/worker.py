"""A rank: takes steps from the ring, computes, meets the other ranks, answers."""

from __future__ import annotations

import math
import os
import queue
import signal
import threading
import time
from argparse import Namespace
from typing import Any

from .common import logger, when_closed
from .faults import Faults
from .ring import Group, Ring

OUTPUT_RANK = 0
"""The only rank whose answer the core waits for."""
OFFLOAD_CAPACITY = 16


class Offload:
    """Writes finished cache blocks away behind the step, from a bounded queue."""

    def __init__(self) -> None:
        self.pending: queue.Queue[list[int]] = queue.Queue(maxsize=OFFLOAD_CAPACITY)
        self.device_ready = threading.Event()
        self.device_ready.set()
        threading.Thread(target=self.write_loop, name="offload-writer", daemon=True).start()

    def write_loop(self) -> None:
        while True:
            self.pending.get()
            self.device_ready.wait()

    def submit(self, blocks: list[int], mode: str) -> None:
        if mode in ("queue-full", "queue-blocked"):
            self.device_ready.clear()
        else:
            self.device_ready.set()
        if mode == "queue-blocked":
            self.pending.put(blocks)
        else:
            self.pending.put_nowait(blocks)


class Worker:
    def __init__(self, args: Namespace) -> None:
        self.rank, self.world, self.step_time = args.rank, args.world_size, args.step_time
        self.log = logger(f"rank{self.rank}")
        self.requests = Ring(f"{args.shm}req", self.world)
        self.responses = Ring(f"{args.shm}res{self.rank}", 1)
        self.group = Group(f"{args.shm}grp", self.rank, self.world)
        self.offload = Offload()
        self.faults = Faults(args.control, self.rank)
        self.table_lock, self.block_lock = threading.Lock(), threading.Lock()

    def run(self) -> int:
        self.log.info("rank %d of world size %d is ready, pid %d", self.rank, self.world, os.getpid())
        self.responses.enqueue({"status": "ready"})
        self.busy_loop()
        return 0

    def busy_loop(self) -> None:
        while True:
            message = self.requests.dequeue(self.rank)
            self.faults.busy_at = time.monotonic()
            if message["method"] == "shutdown":
                return
            try:
                answer = {"status": "ok", "step": message["step"], "tokens": self.execute_step(message["requests"])}
            except Exception as error:
                self.log.exception("worker hit an exception in step %d", message["step"])
                answer = {"status": "failed", "step": message["step"], "error": str(error)}
            self.faults.busy_at = time.monotonic()
            if self.rank == OUTPUT_RANK:
                self.responses.enqueue(answer)

    def execute_step(self, requests: list[dict[str, Any]]) -> list[int]:
        """One token for each request of the batch."""
        mode, seconds = self.faults.asked()
        if mode == "exception":
            raise RuntimeError("index 512 is out of bounds for dimension 0 with size 512")
        if mode == "deadlock":
            self.exchange_blocks()
        if mode == "slow":
            time.sleep(seconds)
        partial = self.forward(requests)
        total = self.group.all_reduce(partial)
        self.offload.submit([request["position"] for request in requests], mode)
        return [int(total * 1000 + request["position"]) % 512 for request in requests]

    def forward(self, requests: list[dict[str, Any]]) -> float:
        """Half of a step's time computing, half waiting, as on a device."""
        until = time.monotonic() + self.step_time / 2
        value = float(sum(request["position"] for request in requests))
        while time.monotonic() < until:
            value = math.sin(value) + self.rank
        time.sleep(self.step_time / 2)
        return value

    def exchange_blocks(self) -> None:
        """Blocks before table here, table before blocks there: each side waits for the other's lock for ever."""
        theirs = threading.Event()

        def evict() -> None:
            with self.table_lock:
                theirs.set()
                with self.block_lock:
                    pass

        with self.block_lock:
            threading.Thread(target=evict, name="block-evictor", daemon=True).start()
            theirs.wait()
            with self.table_lock:
                pass


def run(args: Namespace) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C goes to everybody; the core decides
    when_closed(int(args.fds), lambda: os._exit(0), "parent-watch")
    return Worker(args).run()
