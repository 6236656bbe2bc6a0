"""Logs wherever they go: small, large, growing, rotated, deleted, binary, shared, in containers, or nowhere."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trees
from conftest import Collected, Started, needs_root, parse_lines

from collectors import _sinks, _slices, rpclogs
from collectors._contract import Emitter, Request

Collect = Callable[..., Collected]
Start = Callable[..., Started]

FATAL_LINE = b"(EngineCore pid=7) ERROR 09-01 10:02:00 [core.py:1512] EngineCore encountered a fatal error.\n"
CONTAINER = "0123456789abcdef" * 4
# the handshake goes through a pipe of its own, because stdout is the log
WRITER = """
import os, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
ready = os.dup(1)
os.dup2(log, 1); os.dup2(log, 2)
print("INFO started", flush=True)
os.write(ready, b"ready\\n")
sys.stdin.read()
"""


def lines(count: int, first: int = 0) -> bytes:
    return b"".join(b"INFO line %08d of a log that goes on and on\n" % i for i in range(first, first + count))


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same decisions at a thousandth of the size."""
    for name, size in {"HEAD_BYTES": 1000, "TAIL_BYTES": 4000, "WINDOW_BYTES": 2000, "ROTATED_BYTES": 1000}.items():
        monkeypatch.setattr(rpclogs, name, size)


def here(*logs: str | Path, **request: Any) -> Collected:
    out = io.StringIO()
    raw = {"options": {"logs": [str(log) for log in logs]}, **request}
    rpclogs.collect(Request(raw), Emitter("rpclogs", out, max_bytes=raw.get("max_bytes", 64 << 20)))
    return parse_lines(out.getvalue().encode())


def check_slices(found: Collected, whole: bytes, name: str = "server.log") -> dict[int, bytes]:
    """Every slice is a run of whole lines of the file (the last one may be cut where the file ended then), and none overlaps another."""
    parts = {int(key.split(".")[-2]): content for key, content in found.content.items() if key.startswith(f"rpclogs/{name}.")}
    places = []
    for k, content in parts.items():
        start = whole.find(content)
        assert start == 0 or whole[start - 1 : start] == b"\n"
        assert start >= 0 and (content.endswith(b"\n") or k == max(parts))
        places.append((start, start + len(content)))
    places.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(places))
    return parts


def test_a_small_log_is_taken_whole(collect: Collect, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(lines(100))
    found = collect("rpclogs", {"options": {"logs": [str(log)]}})
    (attempt,) = found.attempts
    assert (attempt["target"], attempt["outcome"], attempt["evidence"]) == (str(log), "OK", ["rpclogs/server.log.1.log"])
    assert found.content["rpclogs/server.log.1.log"] == lines(100)
    head = found.heads["rpclogs/server.log.1.log"]
    assert (head["kind"], head["source"], head["truncated"]) == ("log", str(log), False)


def test_a_large_log_with_its_fatal_line_early(collect: Collect, tmp_path: Path) -> None:
    """At full size: 12 MB, and the engine's end lies 2 MB from the start, behind it the chatter of a front end that lived on."""
    log = tmp_path / "server.log"
    whole = lines(45_000) + FATAL_LINE + lines(220_000, 45_000)
    log.write_bytes(whole)
    found = collect("rpclogs", {"options": {"logs": [str(log)]}})
    parts = check_slices(found, whole)
    assert sorted(parts) == [1, 2, 3] and len(whole) > 11_000_000
    assert whole.startswith(parts[1]) and whole.endswith(parts[3]) and FATAL_LINE in parts[2]
    assert 4_000_000 < len(parts[3]) <= rpclogs.TAIL_BYTES and 200_000 < len(parts[2]) <= rpclogs.WINDOW_BYTES
    # most of the window lies before the line: what led to it
    assert parts[2].find(FATAL_LINE) > len(parts[2]) // 2
    assert all(head["truncated"] for head in found.heads.values())
    (attempt,) = found.attempts
    assert attempt["outcome"] == "PARTIAL" and str(len(whole)) in attempt["reason"]
    # most telling first, in case this is the last thing we deliver
    assert attempt["evidence"] == [f"rpclogs/server.log.{k}.log" for k in (3, 1, 2)]


@pytest.mark.parametrize("before", range(1940, 2001, 7))
def test_words_across_a_block_boundary_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bounds: None, before: int) -> None:
    monkeypatch.setattr(_slices, "BLOCK_BYTES", 64)
    log = tmp_path / "server.log"
    whole = lines(before // 20) + b"x" * (before % 20) + b"\n" + FATAL_LINE + lines(200)
    log.write_bytes(whole)
    parts = check_slices(here(log), whole)
    assert FATAL_LINE in parts[2]


def test_the_newest_of_several_fatal_lines_and_none_when_the_tail_has_one(tmp_path: Path, small_bounds: None) -> None:
    log = tmp_path / "server.log"
    first, second = FATAL_LINE.replace(b"pid=7", b"pid=1"), FATAL_LINE.replace(b"pid=7", b"pid=2")
    whole = lines(100) + first + lines(100) + second + lines(200)
    log.write_bytes(whole)
    parts = check_slices(here(log), whole)
    assert second in parts[2] and first not in parts[2]
    whole += FATAL_LINE
    log.write_bytes(whole)
    assert sorted(check_slices(here(log), whole)) == [1, 3]


def test_a_traceback_is_the_last_resort(tmp_path: Path, small_bounds: None) -> None:
    log = tmp_path / "server.log"
    traceback = b"Traceback (most recent call last):\n"
    whole = lines(100) + traceback + lines(300)
    log.write_bytes(whole)
    assert traceback in check_slices(here(log), whole)[2]
    # a bad request's traceback, newer than the engine's own words, does not hide them
    whole = lines(100) + FATAL_LINE + lines(100) + traceback + lines(300)
    log.write_bytes(whole)
    assert FATAL_LINE in check_slices(here(log), whole)[2]


def test_a_window_beside_head_or_tail_does_not_overlap_them(tmp_path: Path, small_bounds: None) -> None:
    log = tmp_path / "server.log"
    for before in (22, 23, 24, 30):
        for after in (80, 88, 89, 95):
            whole = lines(before) + FATAL_LINE + lines(after, before)
            log.write_bytes(whole)
            assert any(FATAL_LINE in part for part in check_slices(here(log), whole).values())


def test_the_search_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bounds: None) -> None:
    log = tmp_path / "server.log"
    whole = FATAL_LINE + lines(1000)
    log.write_bytes(lines(50) + whole)
    monkeypatch.setattr(_slices, "SEARCH_BYTES", 10_000)
    assert 2 not in check_slices(here(log), lines(50) + whole)
    monkeypatch.setattr(_slices, "SEARCH_BYTES", 1 << 20)
    monkeypatch.setattr(rpclogs, "SEARCH_S", -1.0)
    assert 2 not in check_slices(here(log), lines(50) + whole)


def test_one_endless_line_and_binary_garbage(tmp_path: Path, small_bounds: None) -> None:
    log = tmp_path / "server.log"
    for whole in (b"x" * 20_000, bytes(range(256)) * 100, b"\n" * 20_000, b"\xff\xfe" * 10_000 + b"\n"):
        log.write_bytes(whole)
        found = here(log)
        assert [a["outcome"] for a in found.attempts] == ["PARTIAL"]
        assert whole.startswith(found.content["rpclogs/server.log.1.log"]) and whole.endswith(found.content["rpclogs/server.log.3.log"])
        assert sum(map(len, found.content.values())) <= 8000


def test_a_log_that_grows_while_it_is_read(tmp_path: Path, small_bounds: None) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(lines(1000))
    asked = threading.Semaphore(0)

    def grow() -> None:
        with log.open("ab", buffering=0) as f:
            for round_ in range(20):
                asked.acquire()
                for i in range(50):  # one line a write, so that a reader can come in between
                    f.write(lines(1, 1000 + round_ * 50 + i))

    writer = threading.Thread(target=grow, daemon=True)
    writer.start()
    for _ in range(20):
        asked.release()
        found = here(log)
        assert [a["outcome"] for a in found.attempts] == ["PARTIAL"] and max(map(len, found.content.values())) <= 4000
        check_slices(found, log.read_bytes())
    writer.join()


def test_an_unfinished_last_line_is_kept(tmp_path: Path, small_bounds: None) -> None:
    """The last words of a process that died while it wrote, or of one that is writing now: a write shows page by page."""
    log = tmp_path / "server.log"
    whole = lines(1000) + FATAL_LINE[:-20]
    log.write_bytes(whole)
    assert check_slices(here(log), whole)[3].endswith(FATAL_LINE[:-20])


def test_a_log_that_is_cut_short_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bounds: None) -> None:
    """copytruncate, between our look at its size and our reads."""
    log = tmp_path / "server.log"
    log.write_bytes(lines(1000))
    fd = os.open(log, os.O_RDONLY)
    os.truncate(log, 2000)
    try:
        parts = dict(_slices.slices(fd, len(lines(1000)), 1000, 2000, 4000, search_s=5))
    finally:
        os.close(fd)
    assert parts[1] and set(parts) <= {1, 2, 3}


@pytest.mark.parametrize("packed", [False, True])
def test_the_newest_rotated_sibling(tmp_path: Path, small_bounds: None, packed: bool) -> None:
    (tmp_path / "server.log").write_bytes(b"fresh\n")
    name = "server.log.1.gz" if packed else "server.log.1"
    (tmp_path / name).write_bytes(gzip.compress(lines(500)) if packed else lines(500))
    (tmp_path / "server.log.2").write_bytes(b"older\n")
    os.utime(tmp_path / "server.log.2", (1, 1))
    for other in ("server.log.bak", "server.logical", "other.log.1"):
        (tmp_path / other).write_bytes(b"none of ours\n")
    found = here(tmp_path / "server.log")
    assert sorted(found.content) == sorted(["rpclogs/server.log.1.log", f"rpclogs/{name}.3.log"])
    tail = found.content[f"rpclogs/{name}.3.log"]
    assert lines(500).endswith(tail) and tail.startswith(b"INFO line") and 900 < len(tail) <= 1000
    assert found.heads[f"rpclogs/{name}.3.log"]["source"] == str(tmp_path / name)
    (attempt,) = found.attempts
    assert attempt["evidence"] == ["rpclogs/server.log.1.log", f"rpclogs/{name}.3.log"]


def test_right_after_a_rotation_the_sibling_is_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_bytes(b"")
    (tmp_path / "server.log-20260901.gz").write_bytes(gzip.compress(lines(10)))
    found = here(tmp_path / "server.log")
    assert found.content["rpclogs/server.log-20260901.gz.1.log"] == lines(10)
    assert found.attempts[0]["outcome"] == "PARTIAL"


def test_a_broken_gzip_gives_what_it_can_and_a_bomb_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(os.urandom(50_000).hex().encode())
    (tmp_path / "a.gz").write_bytes(packed[: len(packed) // 2])
    data, cut = _slices.last_bytes(str(tmp_path / "a.gz"), 1 << 20)
    assert cut and 10_000 < len(data) < 100_000
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"\0" * (64 << 20)))
    monkeypatch.setattr(_slices, "UNZIP_S", 0.0)
    data, cut = _slices.last_bytes(str(tmp_path / "b.gz"), 1000)
    assert cut and len(data) <= 1001
    (tmp_path / "server.log").write_bytes(b"x\n")
    (tmp_path / "server.log.1.gz").write_bytes(b"no gzip at all")
    assert sorted(here(tmp_path / "server.log").content) == ["rpclogs/server.log.1.log"]


def test_two_ranks_share_one_log(collect: Collect, start: Start, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    one, two = start(WRITER, log), start(WRITER, log)
    request = {"targets": [{"pid": one.pid, "log_files": [str(log)]}, {"pid": two.pid}]}
    found = collect("rpclogs", request)
    assert found.content == {"rpclogs/server.log.1.log": b"INFO started\nINFO started\n"}
    for target in (one, two):
        attempt = found.one(target.pid)
        assert (attempt["outcome"], attempt["evidence"]) == ("OK", ["rpclogs/server.log.1.log"])
    assert found.heads["rpclogs/server.log.1.log"]["pid"] == one.pid


def test_a_log_that_was_deleted_but_is_still_open(collect: Collect, start: Start, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    target = start(WRITER, log)
    log.unlink()
    for request in ({"pid": target.pid}, {"pid": target.pid, "log_files": [f"/proc/{target.pid}/fd/1"]}):
        found = collect("rpclogs", {"targets": [request]})
        assert found.content == {"rpclogs/server.log.1.log": b"INFO started\n"}
        assert found.heads["rpclogs/server.log.1.log"]["source"] == f"{log} (deleted)"
        assert found.one(target.pid)["outcome"] == "OK"


def test_the_log_of_a_process_that_is_gone_is_still_read(collect: Collect, start: Start, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(FATAL_LINE)
    target = start("print('ready', flush=True); input()")
    target.process.kill()
    target.process.wait()
    found = collect("rpclogs", {"targets": [{"pid": target.pid, "log_files": [str(log)]}]})
    assert found.one(target.pid)["outcome"] == "OK" and FATAL_LINE in found.content["rpclogs/server.log.1.log"]


def test_stdout_and_stderr_in_two_files(collect: Collect, start: Start, tmp_path: Path) -> None:
    code = WRITER.replace("os.dup2(log, 2)", "os.dup2(os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT), 2)")
    target = start(code, tmp_path / "a.log", tmp_path / "b.log")
    found = collect("rpclogs", {"targets": [{"pid": target.pid}]})
    assert sorted(found.content) == ["rpclogs/a.log.1.log"] and found.one(target.pid)["outcome"] == "OK"
    (tmp_path / "b.log").write_bytes(b"late\n")
    assert sorted(collect("rpclogs", {"targets": [{"pid": target.pid}]}).content) == ["rpclogs/a.log.1.log", "rpclogs/b.log.1.log"]


def test_logs_of_one_name_keep_apart(tmp_path: Path) -> None:
    for folder in ("node0", "node1"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rank.log").write_text(folder)
    found = here(tmp_path / "node0/rank.log", tmp_path / "node1/rank.log")
    assert found.content == {"rpclogs/rank.log.1.log": b"node0", "rpclogs/rank.log-2.1.log": b"node1"}


def test_a_hostile_file_name_gives_a_tame_one(tmp_path: Path) -> None:
    log = tmp_path / "..;$(x)\n\x1b[31m.log"
    log.write_bytes(b"x\n")
    (name,) = here(log).content
    assert name.startswith("rpclogs/") and ".." not in name and name.isprintable() and name.count("/") == 1


def test_neither_a_fifo_nor_a_device_is_opened(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.log"
    os.mkfifo(fifo)
    opened = threading.Event()

    def write() -> None:
        os.close(os.open(fifo, os.O_WRONLY))  # returns when somebody reads
        opened.set()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    wait_until(lambda: Path(f"/proc/self/task/{writer.native_id}/stat").read_text().rpartition(")")[2].split()[0] == "S")
    found = here(fifo, "/dev/zero", tmp_path, tmp_path / "missing.log")
    assert [a["outcome"] for a in found.attempts] == ["ABSENT"] * 4
    assert "not a regular file (p" in found.attempts[0]["reason"] and not found.content
    assert not opened.is_set()
    fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert opened.wait(20)  # so it had been waiting for a reader all the time
    os.close(fd)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_output_that_nobody_keeps(collect: Collect, start: Start) -> None:
    code = "import os, sys; r = os.dup(1); n = os.open('/dev/null', 1); os.dup2(n, 1); os.dup2(n, 2); os.write(r, b'ready\\n'); sys.stdin.read()"
    silent = start(code)
    attempt = collect("rpclogs", {"targets": [{"pid": silent.pid}]}).one(silent.pid)
    assert (attempt["outcome"], attempt["evidence"]) == ("ABSENT", []) and "/dev/null" in attempt["reason"] and attempt["cure"]


def test_a_pipe_names_its_reader(collect: Collect, start: Start) -> None:
    reader = start("import os; print('ready', flush=True); os.read(0, 1)")
    assert reader.process.stdin
    code = "import os, sys; os.dup2(int(sys.argv[1]), 2); r = os.dup(1); os.dup2(2, 1); os.write(r, b'ready\\n'); sys.stdin.read()"
    writer = start(code, reader.process.stdin.fileno(), pass_fds=(reader.process.stdin.fileno(),))
    attempt = collect("rpclogs", {"targets": [{"pid": writer.pid}]}).one(writer.pid)
    assert attempt["outcome"] == "ABSENT" and f"(pid {reader.pid}) reads" in attempt["reason"]


def test_a_terminal_is_said(collect: Collect, start: Start) -> None:
    main, terminal = os.openpty()
    try:
        name = os.ttyname(terminal)
        code = (
            "import os, sys; t = int(sys.argv[1]); r = os.dup(1); os.dup2(t, 1); os.dup2(t, 2); os.write(r, b'ready\\n'); sys.stdin.read()"
        )
        target = start(code, terminal, pass_fds=(terminal,))
        attempt = collect("rpclogs", {"targets": [{"pid": target.pid}]}).one(target.pid)
    finally:
        os.close(main)
        os.close(terminal)
    assert attempt["outcome"] == "ABSENT" and name in attempt["reason"] and "scrollback" in attempt["cure"]


@needs_root
def test_a_log_that_we_may_not_read_and_a_process_that_we_may_not_look_into(collect: Collect, start: Start, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"secret\n")
    log.chmod(0o600)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and not folder.stat().st_mode & stat.S_IXOTH and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    target = start(WRITER, tmp_path / "other.log")
    found = collect("rpclogs", {"targets": [{"pid": target.pid}], "options": {"logs": [str(log)]}}, as_nobody=True)
    assert [a["outcome"] for a in found.attempts] == ["DENIED", "DENIED"] and not found.content
    assert "CAP_SYS_PTRACE" in found.attempts[0]["cure"] and "root" in found.attempts[1]["cure"]


def test_many_logs_share_the_byte_bound_and_each_keeps_its_newest_lines(tmp_path: Path) -> None:
    logs = [tmp_path / f"rank{i}.log" for i in range(8)]
    for log in logs:
        log.write_bytes(lines(4000) + f"the end of {log.name}\n".encode())
    found = here(*logs, max_bytes=200_000)
    assert sum(map(len, found.content.values())) <= 200_000
    for log in logs:
        assert found.content[f"rpclogs/{log.name}.3.log"].endswith(f"the end of {log.name}\n".encode())


CGROUPS = {
    "docker": f"0::/system.slice/docker-{CONTAINER}.scope\n",
    "cgroup v1": f"12:memory:/docker/{CONTAINER}\n11:cpu:/docker/{CONTAINER}\n",
    "kubernetes": f"0::/kubepods.slice/kubepods-burstable-pod1a2b3c4d_0000_4000_8000_00000000000a.slice/cri-containerd-{CONTAINER}.scope\n",
}
KEPT = {
    "docker": (
        f"/var/lib/docker/containers/{CONTAINER}/{CONTAINER}-json.log",
        '{"log":"hello\\n","stream":"stdout","time":"2026-09-01T10:00:00Z"}\n',
    ),
    "podman": (f"/var/lib/containers/storage/overlay-containers/{CONTAINER}/userdata/ctr.log", "2026-09-01T10:00:00Z stdout F hello\n"),
    "pods": ("/var/log/pods/ns_engine-0_1a2b3c4d-0000-4000-8000-00000000000a/engine/0.log", "2026-09-01T10:00:00Z stdout F hello\n"),
}


@pytest.mark.parametrize(("cgroup", "kept"), [("docker", "docker"), ("cgroup v1", "docker"), ("docker", "podman"), ("kubernetes", "pods")])
def test_what_a_container_runtime_keeps(collect: Collect, tmp_path: Path, cgroup: str, kept: str) -> None:
    path, text = KEPT[kept]
    trees.process(tmp_path, 4243, stdout="pipe:[777]", cgroup=CGROUPS[cgroup])
    trees.write(tmp_path, {path: text})
    found = collect("rpclogs", {"sysroot": str(tmp_path), "targets": [{"pid": 4243}]})
    ((name, content),) = found.content.items()
    assert content == text.encode() and found.heads[name]["source"] == path
    assert found.one(4243)["outcome"] == "OK"


def test_the_kubelets_links_are_followed_inside_the_tree(collect: Collect, tmp_path: Path) -> None:
    path, text = KEPT["pods"]
    trees.process(tmp_path, 4243, stdout="pipe:[777]", cgroup=f"0::/cri-containerd-{CONTAINER}.scope\n")
    trees.write(tmp_path, {path: text, f"{path}.20260901-095959": "older\n", "/var/log/containers/other-1.log": "no\n"})
    (tmp_path / f"var/log/containers/engine-0_ns_engine-{CONTAINER}.log").symlink_to(path)
    found = collect("rpclogs", {"sysroot": str(tmp_path), "targets": [{"pid": 4243}]})
    assert sorted(found.content.values()) == [text.encode(), b"older\n"]


def test_a_container_seen_from_inside_is_told_by_its_mounts(collect: Collect, tmp_path: Path) -> None:
    trees.process(tmp_path, 4243, stdout="pipe:[777]")
    trees.write(
        tmp_path, {"/proc/4243/mountinfo": f"1 2 8:1 /var/lib/docker/containers/{CONTAINER}/hosts /etc/hosts rw - ext4 /dev/sda1 rw\n"}
    )
    attempt = collect("rpclogs", {"sysroot": str(tmp_path), "targets": [{"pid": 4243}]}).one(4243)
    assert attempt["outcome"] == "ABSENT" and "runtime" in attempt["reason"] and "docker logs" in attempt["cure"]


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A stand-in for journalctl, which has nothing to say where systemd does not run."""

    def install(script: str) -> None:
        tool = tmp_path / "bin" / "journalctl"
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)

    return install


def test_a_service_that_writes_into_the_journal(journal: Callable[[str], None], tmp_path: Path) -> None:
    """The socket and its unit come from a recorded tree; journalctl is a stand-in that prints how it was called."""
    trees.process(tmp_path, 4243, stdout="socket:[888]", cgroup="0::/system.slice/vllm.service\n")
    (sink,) = _sinks.supervised(4243, "socket:[888]", str(tmp_path))
    assert sink.name == "vllm.service" and not sink.journal  # a recorded tree asks no journal of this machine
    journal('echo "2026-09-01T10:00:00+0000 node1 vllm[4243]: $*"')
    log = rpclogs.Log(sink._replace(journal=("_SYSTEMD_UNIT=vllm.service", "+", "_PID=4243")), 4243)
    out = io.StringIO()
    reader = rpclogs.Reader(Request(), Emitter("rpclogs", out))
    reader.logs["x"] = log
    assert reader.read(log)[0] == "OK"
    found = parse_lines(out.getvalue().encode())
    said = found.content["rpclogs/journal-vllm.service.1.log"].decode()
    assert "-n 5000" in said and "_SYSTEMD_UNIT=vllm.service + _PID=4243" in said and "--no-pager" in said


def test_a_live_socket_leads_to_the_journal_and_silence_there_is_said(
    start: Start, journal: Callable[[str], None], collect: Collect, tmp_path: Path
) -> None:
    journal("echo '-- No entries --'")
    code = """
import os, socket, sys
ours, theirs = socket.socketpair()
ready = os.dup(1)
os.dup2(ours.fileno(), 1); os.dup2(ours.fileno(), 2)
os.write(ready, b"ready\\n")
sys.stdin.read()
"""
    target = start(code)
    attempt = collect("rpclogs", {"targets": [{"pid": target.pid}]}).one(target.pid)
    assert attempt["outcome"] == "ABSENT" and "socket:[" in attempt["reason"] and "journal" in attempt["reason"]
    journal("exec sleep 60")  # ended by the collector's own bound of two seconds
    attempt = collect("rpclogs", {"targets": [{"pid": target.pid}]}).one(target.pid)
    assert attempt["outcome"] == "TIMEOUT"


def test_no_target_and_no_log() -> None:
    assert [a["outcome"] for a in here().attempts] == ["SKIPPED"]
