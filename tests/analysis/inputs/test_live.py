"""The tools of this machine, asked now: their real output is recognised and read. What is not installed is skipped."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import pytest

from forensics.analysis import parse
from forensics.model import (
    BootTime,
    ConfigValue,
    CpuSample,
    FileSystemUse,
    HostCpu,
    KernelSpan,
    LinkState,
    MappedLibrary,
    MemorySample,
    ProcessState,
    QueueDepth,
    ShmSegment,
    ThreadStack,
)
from tests.analysis.inputs.test_machine import of, read

PLAIN = {"LC_ALL": "C", "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TERM": "dumb", "COLUMNS": "200"}


def ask(*command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=PLAIN, timeout=60, check=False)
    if done.returncode and not done.stdout:
        pytest.skip(f"{command[0]} said: {done.stderr.strip()[:100]}")
    return done.stdout


def proc(name: str) -> str:
    try:
        with open(f"/proc/{name}") as file:
            return file.read()
    except OSError as error:
        pytest.skip(str(error))


def parser_of(text: str, name: str = "x.txt") -> str:
    found = parse.find("", name, text[:8192])
    return found.name if found else ""


@pytest.mark.parametrize(
    "command",
    [
        ("ps", "aux"),
        ("ps", "auxf"),
        ("ps", "-ef"),
        ("ps", "-eo", "pid,ppid,stat,wchan:32,nlwp,rss,pcpu,lstart,cmd"),
        ("ps", "-eo", "pid,user,comm"),
        ("ps", "axo", "user,pid,ppid,s,args"),
        ("ps", "-eLo", "pid,tid,stat,comm"),
        ("ps", "-eLf"),
    ],
    ids=" ".join,
)
def test_ps(command):
    text = ask(*command)
    assert parser_of(text) == "ps"
    mine = [p for p in of(read(text), ProcessState) if p.pid == os.getpid()]
    assert len(mine) == 1
    if "comm" not in " ".join(command):
        assert "py" in mine[0].title
    if "ppid" in " ".join(command) or "f" in command[1]:
        assert mine[0].ppid in (os.getppid(), None)


def test_top():
    text = ask("top", "-b", "-n", "1")
    assert parser_of(text) == "top"
    sink = read(text)
    assert of(sink, HostCpu)[0].idle_fraction is not None and of(sink, HostCpu)[0].load1 is not None
    assert os.getpid() in {p.pid for p in of(sink, ProcessState)} and of(sink, CpuSample)
    threads = read(ask("top", "-H", "-b", "-n", "1"))
    assert of(threads, ProcessState) == [] and of(threads, CpuSample)


@pytest.mark.parametrize("options", [("-h",), ("-k",), ("-B1",), ("-P", "-T", "-h"), ("-m",), ()], ids=str)
def test_df(options):
    text = ask("df", *options)
    assert parser_of(text) == "df"
    found = {f.mount: f for f in of(read(text), FileSystemUse)}
    real = os.statvfs("/dev/shm") if "/dev/shm" in found else None
    if real is None:
        pytest.skip("no /dev/shm here")
    assert found["/dev/shm"].total_bytes == pytest.approx(real.f_blocks * real.f_frsize, rel=0.1)


@pytest.mark.parametrize("options", ["-l", "-la", "-lh", "-lan", "-ls"])
@pytest.mark.parametrize("style", ["", "--full-time", "--time-style=long-iso"])
def test_ls(options, style, tmp_path):
    (tmp_path / "psm_0a1b2c3d").write_bytes(b"x" * 4096)
    text = ask("ls", options, *([style] if style else []), str(tmp_path))
    assert parser_of(text) == "shm"
    (segment,) = of(read(text), ShmSegment)
    assert (segment.name, segment.size_bytes) == ("psm_0a1b2c3d", 4096) and segment.changed is not None


def test_ls_of_dev_shm():
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no /dev/shm here")
    text = ask("ls", "-la", "/dev/shm")
    assert parser_of(text, "gpu-a.devshm.txt") == "shm"


@pytest.mark.parametrize(
    "command", [("ss", "-tnp"), ("ss", "-lntp"), ("ss", "-tanp"), ("netstat", "-tnlp"), ("netstat", "-tanp")], ids=" ".join
)
def test_sockets(command):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            text = ask(*command)
    assert parser_of(text) == "ss"
    queues = of(read(text), QueueDepth)
    if "l" in command[1] or "a" in command[1]:
        backlog = [q for q in queues if q.kind == "accept-backlog" and q.queue == f"port {port}"]
        assert [q.depth for q in backlog] == [1], "one connection that nobody has accepted"


def test_meminfo_and_free():
    assert of(read(proc("meminfo")), MemorySample)[0].available_bytes
    text = ask("free", "-h")
    assert parser_of(text) == "meminfo" and of(read(text), MemorySample)[0].total_bytes


def test_proc_files_of_this_process():
    me = os.getpid()
    assert parser_of(proc("self/limits")) == "limits"
    assert any(c.name == "limit of open files" for c in of(read(proc("self/limits")), ConfigValue))
    assert parser_of(proc("self/maps")) == "maps"
    assert any("libc" in m.path for m in of(read(proc("self/maps")), MappedLibrary))
    assert of(read(proc("self/status")), ProcessState)[0].pid == me
    assert of(read(proc("self/stat")), CpuSample)[0].tid == me
    assert parser_of(proc("self/environ"), "environ") in ("environ", "")
    assert of(read(proc("stat")), BootTime)


def test_uptime():
    assert parser_of(ask("uptime")) == "uptime"
    assert of(read(ask("uptime", "-s"), "uptime.txt"), BootTime)


@pytest.mark.parametrize("options", [(), ("-T",), ("-x",), ("--time-format", "iso"), ("-J",), ("-e",)], ids=str)
def test_dmesg(options):
    text = ask("dmesg", *options)
    if len(text) < 200:
        pytest.skip("the kernel log is empty or closed to us")
    assert parser_of(text, "gpu-a.dmesg.txt") == "kernel"
    (span,) = of(read(text, "gpu-a.dmesg.txt"), KernelSpan)
    assert span.lines > 5 and (span.at is not None or span.since_boot_ns is not None or "-e" in options)


def test_journal():
    text = ask("journalctl", "-k", "-n", "50", "--no-pager")
    if " kernel: " not in text:
        pytest.skip("no kernel lines in the journal")
    assert parser_of(text) == "kernel"


def test_ip_link():
    text = ask("ip", "link")
    assert parser_of(text) == "links" and "lo" in {x.device for x in of(read(text), LinkState)}


def test_env():
    text = ask("env")
    assert parser_of(text, "env.txt") == "environ"
    assert {c.name for c in of(read(text, "env.txt"), ConfigValue)} >= {"PATH"}


def test_gdb():
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed")
    code = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            text = ask("gdb", "-p", str(child.pid), "-batch", "-ex", "thread apply all bt")
        finally:
            child.kill()
    if "#0" not in text:
        pytest.skip("gdb may not attach here")
    assert parser_of(text) == "gdb"
    stacks = of(read(text), ThreadStack)
    assert len(stacks) == 2 and {t.pid for t in stacks} == {child.pid}
    assert all(t.mixed for t in stacks)
