"""A process as the node shows it (raw), and as its engine understands it (role and rank)."""

from __future__ import annotations

import enum

from forensics.model.records import RankId, Record


class ProcessInfo(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What /proc says about one process, uninterpreted. From a bare log or a `ps` listing most fields are empty."""

    pid: int
    ppid: int | None = None
    node: str = ""
    comm: str = ""
    argv: tuple[str, ...] = ()
    """The command line; of a retitled process, the title with its padding stripped."""
    title: str = ""
    """argv joined, or the name that a log prefix gives."""
    exe: str = ""
    cwd: str = ""
    uid: int | None = None
    session: int | None = None
    """Session id. It survives the death of the parent, so it still joins orphaned workers to their engine."""
    state: str = ""
    """The kernel's letter: R S D T t Z X I."""
    start_ticks: int | None = None
    started_ns: int | None = None
    ns_pids: tuple[int, ...] = ()
    """NSpid: the pid as seen from each nested namespace, outermost first."""
    pid_namespace: str = ""
    cgroup: str = ""
    env: dict[str, str] = {}
    """Allow-listed names only. Empty where setproctitle overwrote the area."""
    stdout: str = ""
    stderr: str = ""
    """Link targets of descriptors 1 and 2: a file, "pipe:[…]", "/dev/null", a terminal, a socket."""
    listening_ports: tuple[int, ...] = ()
    log_files: tuple[str, ...] = ()
    """Regular files behind stdout/stderr, as paths that this node can open (through /proc/PID/root in a container)."""
    packages: dict[str, str] = {}
    """Distribution name to version, read from the site-packages that this process itself imports from: vllm, torch, …"""
    asked: bool = False
    """The operator named this pid: it counts as an engine of its own even where nothing recognises it."""


class Role(str, enum.Enum):
    """What a process does in its engine."""

    LAUNCHER = "launcher"
    API = "api"
    CORE = "core"
    COORDINATOR = "coordinator"
    WORKER = "worker"
    HELPER = "helper"


class EngineProcess(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A process with its place in an engine."""

    info: ProcessInfo
    role: Role
    rank: RankId | None = None
    label: str = ""
    """Short name for people: "worker TP1", "core DP0"."""

    @property
    def pid(self) -> int:
        return self.info.pid


class EngineInstance(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The processes on the seen nodes that serve together, and what is known of their configuration."""

    id: str
    """e0, e1, …: stable within one report."""
    kind: str
    """vllm | torchrun | python | …: the name of a forensics.engines profile."""
    processes: tuple[EngineProcess, ...] = ()
    nodes: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    log_files: tuple[str, ...] = ()
    version: str = ""
    world_size: int | None = None
    """World of one replica. With data parallelism there are `dp_size` such worlds."""
    dp_size: int = 1
    heard: tuple[tuple[str, int], ...] = ()
    """(node, rank) of the ranks that speak in its logs, where logs are all that is known of it: it then has no processes."""
    execute_timeout_s: float | None = None
    """The RPC limit in force, where it could be read."""

    @property
    def workers(self) -> tuple[EngineProcess, ...]:
        return tuple(p for p in self.processes if p.role is Role.WORKER)
