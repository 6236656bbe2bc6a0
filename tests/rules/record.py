"""Record the bundles in recorded/ again: real toy engines, each broken in its way, as `forensics capture` photographs them.

    sudo python tests/rules/record.py [NAME…]

Needs Linux and root. Everything runs in namespaces of its own (processes, names, mounts, network), so that a bundle shows an engine on
a node called toybox and nothing of the machine on which it was recorded; what does so all the same is refused.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).parent / "recorded"
INSIDE = "FORENSICS_RECORDING"
NODE = "toybox"
WINDOW_S = "6"
NEVER = ("syslog", "sys_admin")
"""What the tool is denied in every recording: the kernel's log is that of the machine, not of the engine."""
BLIND = ("sys_ptrace", "dac_override", "dac_read_search", "perfmon")
"""What a tool that was started without privileges lacks: memory, stacks and open files of others."""


def main(names: list[str]) -> None:
    if INSIDE not in os.environ:
        shut_away(names)
    sys.path.insert(0, str(REPOSITORY))
    for name in names or SCENES:
        with tempfile.TemporaryDirectory(prefix="engine-", dir="/srv") as folder:
            packed = SCENES[name](Path(folder))
            refuse_names(packed)
            target = RECORDED / f"{name}.tar.gz"
            # each file is packed by itself against cuts; here nothing is cut, and as one stream it takes a quarter
            target.write_bytes(gzip.compress(gzip.decompress(packed.read_bytes()), 9, mtime=0))
            print(f"{name}: {target.stat().st_size / 1024:.0f} KiB")


def shut_away(names: list[str]) -> None:
    """This program again, where nothing of the machine is seen; does not return."""
    machine = os.uname().nodename
    setup = (
        f"hostname {NODE} && ip link set lo up && mount --bind /dev/null /proc/cmdline && mount -t tmpfs tmpfs /opt && mount -t tmpfs tmpfs /srv && mkdir /opt/python /opt/forensics && echo 00000000-0000-4000-8000-000000000000 > /srv/boot && mount --bind /srv/boot /proc/sys/kernel/random/boot_id"
        f" && mount --bind '{sys.base_prefix}' /opt/python && mount --bind '{REPOSITORY}' /opt/forensics"
        f" && cd /srv && exec /opt/forensics/{Path(sys.executable).relative_to(REPOSITORY)} /opt/forensics/tests/rules/record.py "
        + " ".join(names)
    )
    spaces = ["unshare", "--pid", "--fork", "--mount-proc", "--uts", "--mount", "--net", "--cgroup"]
    group = Path("/proc/self/cgroup").read_text().split()[-1].rpartition(":")[2].strip("/").split("/")[0]
    secret = [name for name in (machine, str(REPOSITORY), sys.base_prefix, group) if len(name) > 3]  # "vm" is in every bundle
    clean = {"PATH": "/opt/python/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TZ": "UTC", INSIDE: "\n".join(secret)}
    os.execvpe("unshare", [*spaces, "sh", "-c", setup], clean)


def refuse_names(packed: Path) -> None:
    """Raises SystemExit where the bundle tells on which machine, and from which folder, it was recorded."""
    names = [re.escape(name) for name in os.environ[INSIDE].encode().split(b"\n")]
    with tarfile.open(packed) as bundle:
        for member in bundle:
            content = file.read() if (file := bundle.extractfile(member)) else b""
            for name in names:
                if found := re.search(name, content):
                    raise SystemExit(f"{packed.name}: {member.name} names {found[0].decode()}")


def engine(folder: Path, *options: str):  # type: ignore[no-untyped-def]
    from tests.test_toy_engine import TOY, Engine

    return contextlib.closing(Engine(folder / "engine.log", "--ranks", "2", *options, command=("/opt/python/bin/python3", str(TOY))))


def capture(folder: Path, *what: str, blind: bool = False) -> Path:
    command = [
        sys.executable,
        "-m",
        "forensics",
        "capture",
        "--quiet",
        "--out",
        str(folder),
        "--incident",
        "recorded",
        "--window",
        WINDOW_S,
    ]
    lacking = ["setpriv", f"--bounding-set={','.join('-' + c for c in (*NEVER, *(BLIND if blind else ())))}"]
    environment = {k: v for k, v in os.environ.items() if k != INSIDE}
    done = subprocess.run([*lacking, *command, *what], capture_output=True, text=True, check=False, env=environment, cwd="/opt/forensics")
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    return Path(done.stdout.split()[-1])


PATCHES = """
[[patch]]
name = "forward-without-copy"
module = "toy_engine.worker"
function = "Worker.forward"
contains = "def forward(self"
"""
REPLACES = """
import sys, threading, time

def forward(self, step):
    return original(self, step)

def replace():
    global original
    while not hasattr(sys.modules.get("toy_engine.worker"), "Worker"):
        time.sleep(0.01)
    worker = sys.modules["toy_engine.worker"].Worker
    original, worker.forward = worker.forward, forward

if "worker" in sys.argv or any("--role" in a for a in sys.orig_argv):
    threading.Thread(target=replace, name="plugin", daemon=True).start()
"""
"""A plugin as it is loaded into an engine: it replaces a function, which no file of the engine shows."""


def running(
    fault: str = "",
    rank: int = 1,
    seconds: float = 0.0,
    load: bool = True,
    blind: bool = False,
    patches: bool = False,
    plugin: bool = False,
) -> Callable[[Path], Path]:
    """An engine that lives: it is photographed when its fault has had its effect."""

    def record(folder: Path) -> Path:
        from tests.test_toy_engine import eventually, loaded, state

        os.environ.pop("PYTHONPATH", None)
        if plugin:
            (folder / "sitecustomize.py").write_text(REPLACES)
            os.environ["PYTHONPATH"] = str(folder)
        named = []
        if patches:
            (folder / "patches.toml").write_text(PATCHES)
            named = ["--patches", str(folder / "patches.toml")]
        with engine(folder, "--rpc-timeout", "120") as toy:
            os.environ.pop("PYTHONPATH", None)
            if load:
                loaded(toy)
            if fault:
                toy.fault(fault, rank, seconds)
                settled = (
                    (lambda: state(toy.rank(rank)) == "T") if fault == "idle-then-stop" else toy.moving if fault == "slow" else toy.frozen
                )
                eventually(settled, fault)
            return capture(folder, "--pid", str(toy.process.pid), *named, blind=blind)

    return record


def watched(fault: str, rank: int, first: str = "") -> Callable[[Path], Path]:
    """An engine that ends while it is watched: after the first look its fault comes, or ("") somebody stops it."""

    def record(folder: Path) -> Path:
        from tests.test_toy_engine import eventually, loaded

        with engine(folder, "--rpc-timeout", "120") as toy, ThreadPoolExecutor(1) as aside:
            loaded(toy)
            if first:
                toy.fault(first, rank)
                eventually(toy.frozen, first)
            bundle = aside.submit(capture, folder, "--pid", str(toy.process.pid))
            eventually(lambda: list(folder.glob(f"*/process/pid-{toy.rank(rank)}.1.json")), "the first look")
            if first and fault == "kill":  # a stopped process reads no control file
                os.kill(toy.rank(rank), signal.SIGKILL)
            elif fault:
                toy.fault(fault, rank)
            else:
                toy.process.terminate()
            return bundle.result()

    return record


SCENES: dict[str, Callable[[Path], Path]] = {
    "serving": running(),
    "serving-unprivileged": running(blind=True),
    "patch-live": running(patches=True),
    "patch-unreadable": running(patches=True, blind=True),
    "function-replaced": running(patches=True, plugin=True),
    "idle": running(load=False),
    "slow": running("slow", seconds=2.0),
    "rank-stopped": running("stop"),
    "rank-stopped-unprivileged": running("stop", blind=True),
    "rank-stopped-while-idle": running("idle-then-stop", load=False),
    "exception-swallowed": running("exception"),
    "lock-deadlock": running("deadlock"),
    "queue-blocked": running("queue-blocked"),
    "worker-killed": watched("kill", 1, first="stop"),
    "exception-fatal": watched("exception", 0),
    "queue-full": watched("queue-full", 0),
    "told-to-stop": watched("", 1),
}

if __name__ == "__main__":
    main(sys.argv[1:])
