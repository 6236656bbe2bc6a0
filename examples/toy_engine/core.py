"""The core: batches requests, has the workers compute a step, hands the tokens back. The only one that talks to both sides."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from argparse import Namespace
from typing import Any

from .common import kill, logger, spawn, when_closed
from .ring import Group, Ring
from .worker import OUTPUT_RANK

MAX_BATCH = 8
STATS_S = 5.0
READY_TIMEOUT_S = 60.0


class Executor:
    """The workers, as one thing that computes steps."""

    def __init__(self, args: Namespace, log: Any) -> None:
        self.args, self.log = args, log
        self.prefix = f"psm_{os.getpid():x}{os.urandom(2).hex()}_"
        self.requests = Ring(f"{self.prefix}req", args.ranks, create=True)
        self.responses = [Ring(f"{self.prefix}res{rank}", 1, create=True) for rank in range(args.ranks)]
        self.group = Group(f"{self.prefix}grp", 0, args.ranks, create=True)
        self.failed = ""
        self.closing = False
        # held open by this process alone: the workers see it close when we are gone
        self._alive, watch = os.pipe()[::-1]
        self.workers = [spawn("worker", args, (watch,), rank=r, world_size=args.ranks, shm=self.prefix) for r in range(args.ranks)]
        os.close(watch)
        for rank, worker in enumerate(self.workers):
            threading.Thread(target=self.monitor_worker, args=(rank, worker), name=f"worker-monitor-{rank}", daemon=True).start()
        for rank in range(args.ranks):
            self.get_response(rank, READY_TIMEOUT_S, "start")

    def monitor_worker(self, rank: int, worker: subprocess.Popen[bytes]) -> None:
        code = worker.wait()
        if not self.closing:
            self.log.error("worker rank %d (pid %d) died unexpectedly (exit code: %s), shutting down executor", rank, worker.pid, code)
            self.failed = f"worker rank {rank} died"

    def collective_rpc(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Ask every rank, wait for the output rank. Raises TimeoutError after the limit, RuntimeError when it failed."""
        self.requests.enqueue({"method": method, **arguments})
        return self.get_response(OUTPUT_RANK, self.args.rpc_timeout, method)

    def get_response(self, rank: int, timeout: float, method: str) -> dict[str, Any]:
        try:
            answer = self.responses[rank].dequeue(0, timeout, lambda: bool(self.failed))
        except TimeoutError:
            raise TimeoutError(f"RPC call to {method} timed out.") from None
        if answer["status"] == "failed":
            raise RuntimeError(f"worker failed with error '{answer['error']}'")
        return answer

    def close(self) -> None:
        self.closing = True
        for worker in self.workers:
            kill(worker.pid, self.args.control)
            worker.wait()
        for part in (self.requests, *self.responses, self.group):
            with contextlib.suppress(OSError):
                part.memory.unlink()


class Core:
    def __init__(self, args: Namespace) -> None:
        self.log = logger("core")
        self.channel = socket.socket(fileno=int(args.fds.split(",")[0]))
        self.input: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.waiting: list[dict[str, Any]] = []
        self.running: list[dict[str, Any]] = []
        self.steps = self.generated = self.prompts = self.finished = 0
        self.executor = Executor(args, self.log)

    def send(self, **message: Any) -> None:
        self.channel.sendall(json.dumps(message).encode() + b"\n")

    def process_input_socket(self) -> None:
        """Requests arrive at any time; those that come during a step (or a stall) wait here, seen by nobody."""
        with self.channel.makefile("rb") as lines:
            for line in lines:
                self.input.put(json.loads(line))
        self.input.put(None)

    def run(self) -> None:
        threading.Thread(target=self.process_input_socket, name="input-socket", daemon=True).start()
        pids = [worker.pid for worker in self.executor.workers]
        self.send(type="ready", pids=pids, shm=self.executor.prefix)
        threading.Thread(target=self.log_stats, name="stats", daemon=True).start()
        while self.process_input_queue():
            self.step()

    def process_input_queue(self) -> bool:
        """Take what has arrived, waiting for it only when there is nothing else to do. False when the front is gone."""
        while not (self.waiting or self.running) or not self.input.empty():
            request = self.input.get() if not (self.waiting or self.running) else self.input.get_nowait()
            if request is None:
                return False
            if request["type"] == "abort":
                self.waiting = [r for r in self.waiting if r["id"] != request["id"]]
                self.running = [r for r in self.running if r["id"] != request["id"]]
                self.send_stats()
            else:
                self.waiting.append({**request, "position": request["prompt_tokens"], "made": 0})
        return True

    def step(self) -> None:
        while self.waiting and len(self.running) < MAX_BATCH:
            self.running.append(self.waiting.pop(0))
        batch = [{"id": r["id"], "position": r["position"]} for r in self.running]
        answer = self.executor.collective_rpc("step", step=self.steps, requests=batch)
        self.steps += 1
        for request, token in zip(list(self.running), answer["tokens"], strict=True):
            self.prompts += request["prompt_tokens"] if not request["made"] else 0
            request["position"] += 1
            request["made"] += 1
            self.generated += 1
            done = request["made"] >= request["max_tokens"]
            if done:
                self.running.remove(request)
                self.finished += 1
            self.send(type="token", id=request["id"], token=token, done=done)
        self.send_stats()

    def send_stats(self) -> None:
        counts = {"steps": self.steps, "generated": self.generated, "prompts": self.prompts, "finished": self.finished}
        self.send(type="stats", **counts, running=len(self.running), waiting=len(self.waiting))

    def log_stats(self) -> None:
        before, quiet = self.generated, True
        while True:
            time.sleep(STATS_S)
            rate = (self.generated - before) / STATS_S
            before = self.generated
            if rate or not quiet:
                self.log.info("Running: %d reqs, Waiting: %d reqs, generation: %.1f tokens/s", len(self.running), len(self.waiting), rate)
            quiet = not rate


def run(args: Namespace) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    core = Core(args)

    def end(*_: object) -> None:
        core.executor.close()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    when_closed(int(args.fds.split(",")[1]), end, "parent-watch")
    try:
        core.run()
    except Exception:
        core.log.exception("core encountered a fatal error")
        core.executor.close()
        return 1
    core.executor.close()
    return 0
