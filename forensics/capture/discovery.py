"""Which processes on this node are an engine, read from /proc."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from forensics.capture import _procfs as procfs
from forensics.capture._patience import each
from forensics.engines import ENV_ALLOW, PROFILES, identify, vllm
from forensics.engines._argv import is_python
from forensics.model import EngineInstance, ProcessInfo, Role

PATIENCE_S = 1.0
"""How long one process may keep us waiting. On a saturated host a whole scan of hundreds takes less."""

LOOKED_FOR = {
    "vllm": "vLLM: processes titled PREFIX::EngineCore, ::Worker…, ::APIServer…, and `vllm serve` or vllm.entrypoints command lines",
    "torchrun": "torch.distributed: torchrun and its ranks (RANK and WORLD_SIZE in the environment)",
    "python": "Python process trees that listen on a TCP port or whose processes carry a rank (--rank N, RANK, …_TPn)",
}


@dataclass(frozen=True)
class Discovery:
    """What was found on this node, and what was looked for and could not be read."""

    processes: tuple[ProcessInfo, ...] = ()
    """Members of the engines; written into the bundle as the process table."""
    engines: tuple[EngineInstance, ...] = ()
    looked_for: list[str] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)
    node: str = ""

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(info.pid for info in self.processes)


def node_name(sysroot: str = "") -> str:
    """Host name, of a recorded tree the recorded one. Only the part before the first dot: what logs and people say."""
    name = ""
    if sysroot:
        try:
            name = procfs.read(f"{sysroot}/proc/sys/kernel/hostname", 256).decode("utf-8", "replace").strip()
        except OSError:
            name = ""
    return (name or platform.node() or "node").partition(".")[0]


def discover(sysroot: str = "", engine: str = "auto", pids: Sequence[int] = ()) -> Discovery:
    """Find the engines of this node.

    `engine` restricts the kinds ("auto" asks all). `pids` restricts to the engines that these processes belong to;
    one that nothing recognises is taken as an engine by itself. Never finds the process that asks, or its parents.
    Raises OSError when there is no /proc to read.
    """
    kinds = () if engine == "auto" else (engine,)
    places = procfs.Places(sysroot)
    every = procfs.pids(sysroot)
    seen, stuck = each(every, lambda pid: procfs.glance(pid, places), PATIENCE_S)
    denied = [
        f"pid {pid}: /proc/{pid}/cmdline does not answer (its memory map is locked: is it in uninterruptible sleep?)" for pid in stuck
    ]
    for pid in stuck:  # stat needs no lock
        try:
            seen[pid] = procfs.stat_of(pid, sysroot)
        except OSError:
            continue
    bystanders = _ourselves(seen) if not sysroot else set()
    chosen = _candidates(seen, bystanders, pids)
    node, boot_ns = node_name(sysroot), procfs.boot_time_ns(sysroot)
    told, late = each(chosen, lambda pid: procfs.describe(seen[pid], places, ENV_ALLOW, node, boot_ns), PATIENCE_S)
    denied += [f"pid {pid}: /proc/{pid} does not answer" for pid in late if pid not in stuck]
    table = [told.get(pid) or _sparse(seen[pid], node) for pid in chosen]
    table = [msgspec.structs.replace(info, asked=True) if info.pid in pids else info for info in table]
    table = _with_piped_logs(table, seen, places)
    engines = identify(table, kinds)
    if pids:
        engines = [one for one in engines if any(process.pid in pids for process in one.processes)]
    if engines and not sysroot:
        table = _with_packages(table, engines, places)
        wanted = {process.pid for one in engines for process in one.processes}
        engines = identify([info for info in table if info.pid in wanted], kinds)
    wanted = {process.pid for one in engines for process in one.processes}
    python = sum(1 for info in table if is_python(info))
    looked_for = [text for kind, text in LOOKED_FOR.items() if not kinds or kind in kinds]
    looked_for.append(f"among {len(every)} processes on {node}, {python} of them Python")
    return Discovery(
        processes=tuple(info for info in table if info.pid in wanted),
        engines=tuple(engines),
        looked_for=looked_for,
        denied=[*denied, *dict.fromkeys(places.denied)],
        node=node,
    )


def known_kinds() -> tuple[str, ...]:
    return ("auto", *(profile.name for profile in PROFILES if not profile.by_logs_only))


def _ourselves(seen: dict[int, procfs.Glance]) -> set[int]:
    """This process and its parents. A parent that is plainly an engine stays: a watchdog may run inside one."""
    ours = {os.getpid()}
    current = seen.get(os.getpid())
    for _ in range(len(seen)):
        current = seen.get(current.ppid) if current else None
        if current is None:
            break
        alone = _sparse(current, "")
        if not vllm.place(alone, {current.pid: alone}):
            ours.add(current.pid)
    return ours


def _candidates(seen: dict[int, procfs.Glance], bystanders: set[int], pids: Iterable[int]) -> list[int]:
    """Python processes, engine titles, and everything that those started."""
    found = {
        pid
        for pid, one in seen.items()
        if not one.kernel and pid not in bystanders and ("::" in one.title[:64] or "::" in one.comm or _pythonic(one))
    }
    found |= {pid for pid in pids if pid in seen}
    children: dict[int, list[int]] = {}
    for pid, one in seen.items():
        children.setdefault(one.ppid, []).append(pid)
    queue = list(found)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in found and child not in bystanders:
                found.add(child)
                queue.append(child)
    return sorted(found)


def _pythonic(one: procfs.Glance) -> bool:
    return is_python(_sparse(one, ""))


def _sparse(one: procfs.Glance, node: str) -> ProcessInfo:
    return ProcessInfo(
        pid=one.pid,
        ppid=one.ppid,
        node=node,
        comm=one.comm,
        argv=one.argv,
        title=one.title or one.comm,
        exe=one.exe,
        session=one.session,
        state=one.state,
        start_ticks=one.start_ticks,
    )


def _with_piped_logs(table: list[ProcessInfo], seen: dict[int, procfs.Glance], places: procfs.Places) -> list[ProcessInfo]:
    """`serve | tee log`: the file lies behind the process at the other end of the pipe, usually in the same session."""
    pipes = {pipe for info in table for pipe in (info.stdout, info.stderr) if pipe.startswith("pipe:")}
    if not pipes:
        return table
    sessions = {info.session for info in table}
    readers = [pid for pid, one in seen.items() if one.session in sessions and not one.kernel]
    found, _ = each(pipes, lambda pipe: procfs.piped_logs(pipe, readers, places), PATIENCE_S)
    behind = [(info, [path for pipe in (info.stdout, info.stderr) for path in found.get(pipe, ())]) for info in table]
    return [
        msgspec.structs.replace(info, log_files=tuple(dict.fromkeys([*paths, *info.log_files]))) if paths else info
        for info, paths in behind
    ]


def _with_packages(table: list[ProcessInfo], engines: Sequence[EngineInstance], places: procfs.Places) -> list[ProcessInfo]:
    """Versions, read once for each interpreter of an engine: its processes import from one place."""
    asked: dict[tuple[str, str], ProcessInfo] = {}
    for one in engines:
        for process in one.processes:
            if process.role is not Role.HELPER:
                asked.setdefault((one.id, process.info.exe), process.info)
    found, _ = each([info.pid for info in asked.values()], lambda pid: procfs.packages(_by_pid(table, pid), places), PATIENCE_S)
    return [msgspec.structs.replace(info, packages=found[info.pid]) if found.get(info.pid) else info for info in table]


def _by_pid(table: list[ProcessInfo], pid: int) -> ProcessInfo:
    return next(info for info in table if info.pid == pid)


def stopped(pids: Iterable[int], sysroot: str = "") -> set[int]:
    """Which of these processes are in state T or t now."""
    found = set()
    for pid in pids:
        try:
            if procfs.stat_of(pid, sysroot).state in ("T", "t"):
                found.add(pid)
        except OSError:
            continue
    return found


def replace(found: Discovery, **changes: object) -> Discovery:
    """A copy with some fields changed."""
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]
