"""Where the output of a process goes: a file, a container runtime's file, the journal, or nowhere that can be read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

from collectors._contract import read_bounded, resolve_in_root

CONTAINER = re.compile(r"([0-9a-f]{64})")
POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
UNIT = re.compile(r"/([^/]+\.service)(?:/|$)", re.MULTILINE)


class Sink(NamedTuple):
    """One place that output goes to: a file (`open` is how we reach it), a match in the journal, or neither.

    `lost` says where it went when there is no file and nothing in the journal, `cure` what would help then.
    """

    name: str
    open: str = ""
    journal: tuple[str, ...] = ()
    lost: str = ""
    cure: str = ""


def sinks(pid: int, sysroot: str) -> list[Sink]:
    """Where descriptors 1 and 2 of a live process lead. Raises OSError when that may not be read."""
    proc = f"{sysroot}/proc/{pid}"
    found: dict[str, Sink] = {}
    for fd in (1, 2):
        try:
            link = os.readlink(f"{proc}/fd/{fd}")
        except FileNotFoundError:  # closed
            continue
        if link in found:
            continue
        # of a live process through its descriptor: that works for deleted files and across mount namespaces
        where = resolve_in_root(sysroot, link) if sysroot else f"{proc}/fd/{fd}"
        try:
            regular = link.startswith("/") and stat.S_ISREG(os.stat(where).st_mode)
        except OSError:
            regular = False
        if regular:
            found[link] = Sink(link, where)
        elif link == "/dev/null":
            found[link] = Sink(link, lost="thrown away into /dev/null", cure="start the engine with its output into a file")
        else:
            found |= {sink.name: sink for sink in supervised(pid, link, sysroot)}
    kept = [sink for sink in found.values() if sink.open or sink.journal]
    return kept or list(found.values()) or [Sink("closed", lost="stdout and stderr are closed")]


def supervised(pid: int, link: str, sysroot: str) -> Iterator[Sink]:
    """Follow a pipe, socket or terminal to whoever keeps what is written into it."""
    try:
        cgroup = read_bounded(f"{sysroot}/proc/{pid}/cgroup", 65536)[0].decode("utf-8", "replace")
        if not CONTAINER.search(cgroup):  # seen from inside, a cgroup namespace hides the id; the bind mounts tell
            mounts = read_bounded(f"{sysroot}/proc/{pid}/mountinfo")[0].decode("utf-8", "replace")
            cgroup += "".join(re.findall(r"/containers/[0-9a-f]{64}/", mounts)[:1])
    except OSError:
        cgroup = ""
    container, unit = CONTAINER.search(cgroup), UNIT.search(cgroup)
    kept = list(container_logs(container[1], cgroup, sysroot)) if container else []
    yield from (Sink(path, resolve_in_root(sysroot, path)) for path in kept)
    if kept:
        return
    journal: tuple[str, ...] = ()
    if container:
        name, lost, cure = f"container {container[1][:12]}", "goes to the container's runtime", "docker logs, or look from the host"
        journal = (f"CONTAINER_ID_FULL={container[1]}",)
    elif link.startswith("socket:"):
        name = unit[1] if unit else f"pid {pid}"
        lost, cure = f"goes into {link}, and the journal shows nothing of {name}", "run as root, or join the group systemd-journal"
        journal = (f"_SYSTEMD_UNIT={unit[1]}", "+", f"_PID={pid}") if unit else (f"_PID={pid}",)
    elif link.startswith("/dev/"):
        name, lost, cure = link, f"goes to the terminal {link}", "save its scrollback (tmux capture-pane -pS -)"
    else:
        name, lost, cure = link, f"goes into {link}, {reader_of(link, sysroot)}", "start the engine with its output into a file"
    # of a recorded tree, journalctl would tell about this machine
    yield Sink(name, journal=() if sysroot else journal, lost=lost, cure=cure)


def container_logs(container: str, cgroup: str, sysroot: str) -> Iterator[str]:
    """Files of docker (json-file), podman (k8s-file) and Kubernetes (CRI) for one container, where they exist here."""
    own = (
        f"/var/lib/docker/containers/{container}/{container}-json.log",
        f"/var/lib/containers/storage/overlay-containers/{container}/userdata/ctr.log",
    )
    kubelet = [f"/var/log/containers/{name}" for name in names_in(sysroot, "/var/log/containers") if name.endswith(f"-{container}.log")]
    paths = [path for path in (*own, *kubelet) if os.path.isfile(resolve_in_root(sysroot, path))]
    pod = POD.search(cgroup)
    if pod and not paths:  # which of the pod's containers is not told: the newest log of each
        for name in names_in(sysroot, "/var/log/pods"):
            if name.endswith(pod[1].replace("_", "-")):
                for folder in (f"/var/log/pods/{name}/{inner}" for inner in names_in(sysroot, f"/var/log/pods/{name}")):
                    logs = [f"{folder}/{log}" for log in names_in(sysroot, folder) if log.endswith(".log")]
                    paths += sorted(logs, key=lambda path: os.stat(resolve_in_root(sysroot, path)).st_mtime)[-1:]
    yield from paths


def names_in(sysroot: str, folder: str) -> list[str]:
    try:
        return sorted(os.listdir(resolve_in_root(sysroot, folder)))
    except OSError:
        return []


def reader_of(pipe: str, sysroot: str) -> str:
    """Who has the pipe as its input, for people."""
    for name in filter(str.isdigit, names_in(sysroot, "/proc")):
        try:
            if os.readlink(f"{sysroot}/proc/{name}/fd/0") == pipe:
                comm, _ = read_bounded(f"{sysroot}/proc/{name}/comm", 64)
                return f"which {comm.decode('utf-8', 'replace').strip()} (pid {name}) reads"
        except OSError:
            continue
    return "whose reader is not visible here"
