from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import Collected, Started

Collect = Callable[..., Collected]
Start = Callable[..., Started]

SERVER = (Path(__file__).parent / "answering_server.py").read_text()


def serve(start: Start, *names: str) -> tuple[Started, dict[str, int]]:
    server = start(SERVER, "127.0.0.1", *names)
    return server, json.loads(server.first)


def probes(found: Collected, port: int) -> dict[str, dict[str, Any]]:
    """{"connect" | "health" | "version": the evidence}"""
    stem = f"health/{port}-"
    return {name[len(stem) : -5]: found.json(name) for name in found.content if name.startswith(stem)}


def outcomes(found: Collected) -> list[str]:
    return [attempt["outcome"] for attempt in found.attempts]


def test_three_probes_with_latencies(collect: Collect, start: Start) -> None:
    server, ports = serve(start, "good")
    port = ports["good"]
    found = collect("health", {"targets": [{"pid": server.pid, "ports": [port]}], "samples": 2})
    seen = probes(found, port)
    assert list(seen) == ["connect", "health", "version"]
    assert {name: probe["status"] for name, probe in seen.items()} == {"connect": None, "health": 200, "version": 200}
    assert {name: probe["error"] for name, probe in seen.items()} == dict.fromkeys(seen, "")
    assert all(probe["latency_s"] > 0 for probe in seen.values())
    assert seen["connect"]["url"] == f"tcp://127.0.0.1:{port}"
    assert seen["version"]["body"] == '{"version": "9"}'
    assert outcomes(found) == ["OK", "OK", "OK"]
    assert {head["kind"] for head in found.heads.values()} == {"http"}
    assert {head["pid"] for head in found.heads.values()} == {server.pid}


def test_stopped_server_is_alive_and_not_ready(collect: Collect, start: Start) -> None:
    server, ports = serve(start, "good")
    server.stop()
    found = collect("health", {"targets": [{"pid": server.pid, "ports": [ports["good"]]}], "options": {"timeout_s": 0.5}})
    seen = probes(found, ports["good"])
    assert (seen["connect"]["status"], seen["connect"]["error"]) == (None, "")
    assert (seen["health"]["status"], seen["health"]["error"]) == (None, "TimeoutError: timed out")
    assert outcomes(found) == ["OK", "TIMEOUT", "TIMEOUT"]
    assert server.state == "T"


def test_dead_engine_behind_a_live_server(collect: Collect, start: Start) -> None:
    server, ports = serve(start, "dead")
    found = collect("health", {"targets": [{"pid": server.pid, "ports": [ports["dead"]]}], "options": {"version_paths": []}})
    assert probes(found, ports["dead"])["health"]["status"] == 503
    assert [(a["outcome"], a["reason"]) for a in found.attempts] == [("OK", ""), ("PARTIAL", "HTTP 503")]


def test_nobody_listens(collect: Collect, start: Start) -> None:
    server, _ = serve(start, "good")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        found = collect("health", {"targets": [{"pid": server.pid, "ports": [port]}]})
    assert outcomes(found) == ["EMPTY"] * 3
    assert {probe["error"] for probe in probes(found, port).values()} == {"ConnectionRefusedError: Connection refused"}


def test_floods_and_words_that_are_not_http(collect: Collect, start: Start) -> None:
    server, ports = serve(start, "garbage")
    flooding, more = serve(start, "flood")
    targets = [{"pid": server.pid, "ports": [ports["garbage"]]}, {"pid": flooding.pid, "ports": [more["flood"]]}]
    found = collect("health", {"targets": targets, "options": {"version_paths": [], "timeout_s": 1}})
    garbage = probes(found, ports["garbage"])["health"]
    assert (garbage["status"], garbage["error"]) == (None, "not HTTP")
    assert garbage["body"].endswith("P not http")
    flood = probes(found, more["flood"])["health"]
    assert (flood["status"], len(flood["body"])) == (200, 64 * 1024)
    assert outcomes(found) == ["OK", "UNSUPPORTED", "OK", "PARTIAL"]


def test_process_that_is_gone(collect: Collect, start: Start) -> None:
    server, ports = serve(start, "good")
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(10)
    found = collect("health", {"targets": [{"pid": server.pid, "ports": [ports["good"]]}]})
    assert outcomes(found) == ["ABSENT"] * 3
    assert not found.content


def test_nothing_to_ask(collect: Collect, start: Start) -> None:
    server, ports = serve(start, "good")
    assert outcomes(collect("health")) == ["SKIPPED"]
    assert outcomes(collect("health", {"targets": [{"pid": server.pid}]})) == ["ABSENT"]
    recorded = {"targets": [{"pid": server.pid, "ports": [ports["good"]]}], "sysroot": "/nonexistent"}
    assert {a["reason"] for a in collect("health", recorded).attempts} == {"no live processes in a recorded tree"}
