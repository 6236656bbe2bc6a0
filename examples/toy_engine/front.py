"""The front: HTTP on one side, the core on the other. It knows of the workers only what the core tells it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from . import faults
from .common import kill, logger, spawn

EXIT_GRACE_S = 2.0
"""How long the front goes on answering after its core has died."""
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and")

METRICS = (
    ("generation_tokens_total", "counter", "generated", "Tokens generated."),
    ("prompt_tokens_total", "counter", "prompts", "Prompt tokens computed."),
    ("request_success_total", "counter", "finished", "Requests answered to the end."),
    ("num_requests_running", "gauge", "running", "Requests in the batch."),
    ("num_requests_waiting", "gauge", "waiting", "Requests that wait for a place in the batch."),
)


class Front:
    def __init__(self, args: Namespace) -> None:
        self.log = logger("front")
        self.args = args
        self.stats: dict[str, int] = dict.fromkeys(("steps", "generated", "prompts", "finished", "running", "waiting"), 0)
        self.streams: dict[str, queue.Queue[dict[str, Any] | None]] = {}
        self.ids = (f"cmpl-{n}" for n in itertools.count())
        self.ready = threading.Event()
        self.errored = False
        self.worker_pids: list[int] = []
        self.shm = ""
        ours, theirs = socket.socketpair()
        self.channel = ours
        self._send_lock = threading.Lock()
        self._alive, watch = os.pipe()[::-1]  # the core sees it close when we are gone
        self.core = spawn("core", args, (theirs.fileno(), watch), ranks=args.ranks)
        theirs.close()
        os.close(watch)
        threading.Thread(target=self.receive, name="core-output", daemon=True).start()

    def send(self, **message: Any) -> None:
        with self._send_lock, contextlib.suppress(OSError):
            self.channel.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> None:
        with self.channel.makefile("rb") as lines, contextlib.suppress(ConnectionError):
            for line in lines:
                message = json.loads(line)
                if message["type"] == "token":
                    stream = self.streams.get(message["id"])
                    if stream is not None:
                        stream.put(message)
                elif message["type"] == "stats":
                    self.stats = message
                elif message["type"] == "ready":
                    self.worker_pids, self.shm = message["pids"], message["shm"]
                    self.ready.set()
        self.errored = True
        self.ready.set()
        for stream in list(self.streams.values()):
            stream.put(None)

    def close(self) -> None:
        """End the core, and whatever a dead or stopped core has left behind."""
        self.core.terminate()
        try:
            self.core.wait(EXIT_GRACE_S)
        except subprocess.TimeoutExpired:  # stopped, or stuck in a system call
            self.core.kill()
            self.core.wait()
        for pid in self.worker_pids:
            kill(pid, self.args.control)
        for name in Path("/dev/shm").glob(f"{self.shm}*") if self.shm else ():
            name.unlink(missing_ok=True)

    def metrics(self) -> str:
        stats, lines = self.stats, []
        for name, kind, key, text in METRICS:
            lines += [f"# HELP toy_{name} {text}", f"# TYPE toy_{name} {kind}", f'toy_{name}{{engine="0"}} {float(stats[key])}']
        lines += ["# HELP toy_iteration_tokens_total Tokens per step.", "# TYPE toy_iteration_tokens_total histogram"]
        lines += [f'toy_iteration_tokens_total_sum{{engine="0"}} {float(stats["generated"] + stats["prompts"])}']
        lines += [f'toy_iteration_tokens_total_bucket{{engine="0",le="+Inf"}} {float(stats["steps"])}']
        lines += [f'toy_iteration_tokens_total_count{{engine="0"}} {float(stats["steps"])}']
        return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    front: Front

    def log_message(self, format: str, *args: Any) -> None:
        self.front.log.info('%s - "%s"', self.address_string(), format % args)

    def reply(self, status: int, body: str, kind: str = "application/json") -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/health":
            self.reply(503 if self.front.errored else 200, "")
        elif self.path == "/metrics":
            self.reply(200, self.front.metrics(), "text/plain; version=0.0.4")
        elif self.path == "/v1/models":
            self.reply(200, json.dumps({"object": "list", "data": [{"id": "toy", "object": "model"}]}))
        else:
            self.reply(404, "{}")

    def do_POST(self) -> None:
        try:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            if self.path == "/fault":
                self.fault(body)
            elif self.path == "/v1/completions":
                self.complete(body)
            else:
                self.reply(404, "{}")
        except (ValueError, TypeError, AttributeError) as error:
            self.reply(400, json.dumps({"error": str(error)}))

    def fault(self, body: dict[str, Any]) -> None:
        mode, rank = body.get("mode", ""), int(body.get("rank", 0))
        if (mode and mode not in faults.MODES) or not 0 <= rank < self.front.args.ranks:
            raise ValueError(f"mode is one of {', '.join(faults.MODES)} (or empty), rank is below {self.front.args.ranks}")
        faults.write(self.front.args.control, mode, rank, float(body.get("seconds", 1.0)))
        self.reply(200, json.dumps({"mode": mode, "rank": rank}))

    def complete(self, body: dict[str, Any]) -> None:
        front = self.front
        tokens, streaming = int(body.get("max_tokens", 16)), bool(body.get("stream", False))
        if front.errored or tokens < 1:
            self.reply(503 if front.errored else 400, json.dumps({"error": "engine is dead" if front.errored else "max_tokens"}))
            return
        request = next(front.ids)
        stream = front.streams[request] = queue.Queue()
        front.send(type="request", id=request, prompt_tokens=max(1, len(str(body.get("prompt", "")).split())), max_tokens=tokens)
        try:
            if streaming:
                self.stream(request, stream)
            else:
                messages = list(iter_stream(stream))
                text = " ".join(WORDS[m["token"] % len(WORDS)] for m in messages if m)
                self.reply(200 if messages[-1] else 500, json.dumps({"id": request, "choices": [{"index": 0, "text": text}]}))
        except OSError:  # the client is gone
            front.send(type="abort", id=request)
        finally:
            del front.streams[request]

    def stream(self, request: str, stream: queue.Queue[dict[str, Any] | None]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for message in iter_stream(stream):
            if message is None:
                event: dict[str, Any] = {"error": {"message": "engine core died", "code": 500}}
            else:
                event = {"id": request, "choices": [{"index": 0, "text": WORDS[message["token"] % len(WORDS)] + " "}]}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")


def iter_stream(stream: queue.Queue[dict[str, Any] | None]) -> Any:
    """Messages of one request up to its last, or to None when the engine died."""
    while True:
        message = stream.get()
        yield message
        if message is None or message["done"]:
            return


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def run(args: Namespace) -> int:
    home = tempfile.mkdtemp(prefix="engine-")
    args.control = args.control or f"{home}/control"
    front = Front(args)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        while not front.ready.wait(0.1) and not stop.is_set():
            pass
        if front.errored or stop.is_set():
            return 1
        Handler.front = front
        server = Server((args.host, args.port), Handler)
        threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
        host, port = server.server_address[:2]
        front.log.info("serving on http://%s:%d with %d ranks, pid %d", host, port, args.ranks, os.getpid())
        print(f"ready port={port}", flush=True)
        while not front.errored and not stop.wait(0.1):
            pass
        if front.errored and not stop.is_set():
            front.log.error("engine core exited unexpectedly (exit code: %s), shutting down", front.core.wait())
            time.sleep(EXIT_GRACE_S)
            return 1
        front.log.info("shutting down")
        return 0
    finally:
        front.close()
        shutil.rmtree(home, ignore_errors=True)
        sys.stdout.flush()
