from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Collected, Started, needs_root

from collectors import _http

Collect = Callable[..., Collected]
Start = Callable[..., Started]

SERVER = (Path(__file__).parent / "answering_server.py").read_text()


def serve(start: Start, *names: str, host: str = "127.0.0.1") -> tuple[Started, dict[str, int]]:
    server = start(SERVER, host, *names)
    return server, json.loads(server.first)


def request(server: Started, ports: list[int], **options: Any) -> dict[str, Any]:
    return {"targets": [{"pid": server.pid, "ports": ports}], "samples": 1, "options": {"timeout_s": 20, **options}}


def of_url(found: Collected, url: str, sample: int = 1) -> dict[str, Any]:
    (attempt,) = [a for a in found.attempts if a["target"] == url and a["sample"] == sample]
    return attempt


def rows(photo: dict[str, Any], table: str = "tcp") -> list[list[str]]:
    """[local port, remote address, remote port, state, inode] of every row of every photographed namespace."""
    texts = [text for path, text in photo["files"].items() if path.endswith(f"/net/{table}")]
    cells = [line.split() for text in texts for line in text.splitlines()[1:]]
    return [
        [str(int(c[1].split(":")[1], 16)), _http.decode_address(c[2].split(":")[0]), str(int(c[2].split(":")[1], 16)), c[3], c[9]]
        for c in cells
    ]


def test_metrics_and_load_in_two_samples(collect: Collect, start: Start) -> None:
    server, ports = serve(start, "good")
    port = ports["good"]
    found = collect("queues", {**request(server, [port]), "samples": 2, "interval_s": 0.05})
    for sample in (1, 2):
        url = f"http://127.0.0.1:{port}/metrics"
        attempt = of_url(found, url, sample)
        assert (attempt["outcome"], attempt["pid"]) == ("OK", server.pid)
        name = f"queues/metrics-{port}.{sample}.prom"
        assert attempt["evidence"] == [name]
        assert found.content[name] == b"engine_steps_total 7\n"
        assert (found.heads[name]["kind"], found.heads[name]["source"], found.heads[name]["pid"]) == ("prometheus", url, server.pid)
        load = found.json(f"queues/load-{port}.{sample}.json")
        assert (load["status"], load["body"], load["error"]) == (200, '{"server_load": 3}', "")
        assert load["headers"] == {"content-length": "18"}
        assert load["latency_s"] > 0


ANSWERS = {
    "lingering": ("OK", "", b"engine_steps_total 7\n"),
    "chunked": ("OK", "", b"engine_steps_total 7\n"),
    "mounted": ("OK", "", b"engine_steps_total 7\n"),
    "short": ("PARTIAL", "cut", b"engine_steps_total 7\n"),
    "missing": ("ABSENT", "HTTP 404", None),
    "closed": ("DENIED", "HTTP 401", None),
    "broken": ("PARTIAL", "HTTP 500", None),
    "silent": ("UNSUPPORTED", "closed without an answer", None),
    "garbage": ("UNSUPPORTED", "not HTTP", b"\x15\x03\x03\x00\x02\x02\x50 not http"),
    "mute": ("TIMEOUT", "no answer within 5.0 s", None),
    "deaf": ("TIMEOUT", "no answer within 5.0 s", None),
}


def test_every_way_to_answer(collect: Collect, start: Start) -> None:
    server, ports = serve(start, *ANSWERS)
    found = collect("queues", request(server, list(ports.values()), load_paths=[], timeout_s=5))
    for name, (outcome, words, body) in ANSWERS.items():
        attempt = (
            of_url(found, f"http://127.0.0.1:{ports[name]}/metrics")
            if name != "mounted"
            else of_url(found, f"http://127.0.0.1:{ports[name]}/metrics/")
        )
        assert (name, attempt["outcome"]) == (name, outcome)
        assert words in attempt["reason"], name
        assert found.content.get(f"queues/metrics-{ports[name]}.1.prom") == body, name


def test_flood_is_cut_at_its_bytes_and_a_drip_feed_at_its_time(collect: Collect, start: Start) -> None:
    for behaviour, timeout_s in (("flood", 30), ("drip", 0.5)):
        server, ports = serve(start, behaviour)
        found = collect("queues", request(server, [ports[behaviour]], load_paths=[], timeout_s=timeout_s))
        name = f"queues/metrics-{ports[behaviour]}.1.prom"
        assert of_url(found, f"http://127.0.0.1:{ports[behaviour]}/metrics")["outcome"] == "PARTIAL"
        assert found.heads[name]["truncated"] is True
        if behaviour == "flood":
            assert len(found.content[name]) == _http.BODY_LIMIT_BYTES
        else:
            assert found.content[name].startswith(b"engine_steps_total 7\n")


def test_refused_is_an_answer(collect: Collect, start: Start) -> None:
    server, _ = serve(start, "good")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        found = collect("queues", request(server, [port]))
    assert of_url(found, f"http://127.0.0.1:{port}/metrics")["outcome"] == "EMPTY"


def test_port_that_two_processes_share_is_asked_once(collect: Collect, start: Start) -> None:
    server, ports = serve(start, "good")
    targets = [{"pid": server.pid, "ports": [ports["good"]]}, {"pid": os.getpid(), "ports": [ports["good"]]}]
    found = collect("queues", {"targets": targets, "samples": 1})
    assert of_url(found, f"http://127.0.0.1:{ports['good']}/metrics")["pid"] == server.pid


def test_clients_show_and_our_own_probes_can_be_told_from_them(collect: Collect, start: Start) -> None:
    server, ports = serve(start, "mute", "deaf")
    mute, deaf = ports["mute"], ports["deaf"]
    with socket.create_connection(("127.0.0.1", mute)) as client, socket.create_connection(("127.0.0.1", deaf)) as waiting:
        found = collect("queues", {**request(server, [mute, deaf], timeout_s=0.5), "samples": 2, "interval_s": 0})
        theirs = {str(client.getsockname()[1]), str(waiting.getsockname()[1])}
    first, second = found.json("queues/sockets.1.json"), found.json("queues/sockets.2.json")
    for photo in (first, second):
        established = [row for row in rows(photo) if row[0] in (str(mute), str(deaf)) and row[3] == "01"]
        assert {row[2] for row in established} == theirs
        inodes = {link[8:-1] for path, link in photo["links"].items() if path.startswith(f"/proc/{server.pid}/fd/")}
        assert {row[4] for row in established if row[0] == str(mute)} <= inodes  # accepted: the server holds it
        assert {row[4] for row in established if row[0] == str(deaf)} == {"0"}  # in the backlog: nobody holds it
        assert photo["links"][f"/proc/{server.pid}/ns/net"] == os.readlink("/proc/self/ns/net")
        assert {f"/proc/{server.pid}/net/tcp6", f"/proc/{server.pid}/net/unix"} <= set(photo["files"])
        assert all(link.startswith(("socket:", "net:")) for link in photo["links"].values())
    ours = [row for row in rows(second) if row[0] == str(deaf) and row[1] == _http.PROBE_SOURCE]
    assert len(ours) == 2  # of the first sample: /metrics and /load, closed by us, never accepted
    assert {row[3] for row in ours} == {"08"}
    assert not [row for row in rows(first) if row[0] in (str(mute), str(deaf)) and row[1] == _http.PROBE_SOURCE]
    assert of_url(found, f"pid {server.pid}")["outcome"] == "OK"


def test_targets_that_are_gone_or_reused(collect: Collect, start: Start) -> None:
    server, ports = serve(start, "good")
    reused = {"pid": server.pid, "start_ticks": server.start_ticks + 1, "ports": [ports["good"]]}
    found = collect("queues", {"targets": [reused], "samples": 1})
    assert {a["outcome"] for a in found.attempts} == {"ABSENT"}
    assert len(found.attempts) == 3  # sockets, metrics, load
    assert not found.content


def test_only_where_the_target_listens(collect: Collect, start: Start) -> None:
    server, ports = serve(start, "good", host="127.0.0.9")
    port = ports["good"]
    assert of_url(collect("queues", request(server, [port])), f"http://127.0.0.9:{port}/metrics")["outcome"] == "OK"
    found = collect("queues", request(server, [port], host="192.0.2.1"))
    attempt = of_url(found, f"http://127.0.0.1:{port}/metrics")
    assert attempt["outcome"] == "UNSUPPORTED"
    assert "neither loopback nor" in attempt["reason"]


def test_only_on_ipv6(collect: Collect, start: Start) -> None:
    try:
        server, ports = serve(start, "good", host="::1")
    except AssertionError:
        pytest.skip("no IPv6 loopback here")
    found = collect("queues", request(server, [ports["good"]]))
    assert of_url(found, f"http://[::1]:{ports['good']}/metrics")["outcome"] == "OK"


IN_A_NAMESPACE = """
import ctypes, fcntl, os, socket, struct, sys
if ctypes.CDLL(None).unshare(0x40000000) != 0: print("refused", flush=True); sys.exit()
with socket.socket() as link: fcntl.ioctl(link, 0x8914, struct.pack("16sH14x", b"lo", 0x49))  # SIOCSIFFLAGS: up
"""


@needs_root
def test_network_namespace_of_a_container(collect: Collect, start: Start) -> None:
    inside = start(IN_A_NAMESPACE + SERVER, "127.0.0.1", "good")
    if inside.first == "refused":
        pytest.skip("no right to make a network namespace here")
    port = json.loads(inside.first)["good"]
    outside, _ = serve(start, "good")
    targets = [{"pid": inside.pid, "ports": [port]}, {"pid": outside.pid, "ports": [port]}]
    found = collect("queues", {"targets": targets, "samples": 1, "options": {"load_paths": []}})
    asked = {a["pid"]: a["outcome"] for a in found.attempts if a["target"].startswith("http")}
    assert asked == {inside.pid: "OK", outside.pid: "EMPTY"}  # the same address and port, two places
    photo = found.json("queues/sockets.1.json")
    assert f"/proc/{inside.pid}/net/tcp" in photo["files"]
    assert f"/proc/{outside.pid}/net/tcp" in photo["files"]


@needs_root
def test_without_permission(collect: Collect, start: Start) -> None:
    server, ports = serve(start, "good")
    found = collect("queues", request(server, [ports["good"]]), as_nobody=True)
    attempt = next(a for a in found.attempts if a["target"] == f"pid {server.pid}")
    assert attempt["outcome"] == "PARTIAL"
    assert f"/proc/{server.pid}/fd" in attempt["reason"]
    assert attempt["cure"]
    assert of_url(found, f"http://127.0.0.1:{ports['good']}/metrics")["outcome"] == "OK"


def test_recorded_tree(collect: Collect, tmp_path: Path) -> None:
    proc = tmp_path / "proc/42"
    (proc / "net").mkdir(parents=True)
    (proc / "fd").mkdir()
    (proc / "ns").mkdir()
    (proc / "stat").write_text("42 (engine) S 1" + " 0" * 48)
    (proc / "net/tcp").write_text("header\n")
    (proc / "fd/3").symlink_to("socket:[77]")
    (proc / "fd/4").symlink_to("/var/log/engine.log")
    (proc / "ns/net").symlink_to("net:[1]")
    found = collect("queues", {"targets": [{"pid": 42, "ports": [1]}], "sysroot": str(tmp_path), "samples": 1})
    photo = found.json("queues/sockets.1.json")
    assert photo["links"] == {"/proc/42/ns/net": "net:[1]", "/proc/42/fd/3": "socket:[77]"}
    assert photo["files"] == {"/proc/42/net/tcp": "header\n"}
    assert [(a["target"], a["outcome"]) for a in found.attempts] == [
        ("pid 42", "OK"),
        ("http://127.0.0.1:1/metrics", "ABSENT"),
        ("http://127.0.0.1:1/load", "ABSENT"),
    ]


def test_addresses_of_the_kernel() -> None:
    assert _http.decode_address("0100007F") == "127.0.0.1"
    assert _http.decode_address("00000000000000000000000001000000") == "::1"
