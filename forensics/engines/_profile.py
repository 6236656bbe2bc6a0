"""What an engine is, as data: how its processes are recognised, where its progress is counted, what its frames mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from forensics.model import ProcessInfo, RankId, Role


@dataclass(frozen=True)
class Placed:
    """A profile's claim on one process."""

    role: Role
    rank: RankId | None = None
    label: str = ""


Table = Mapping[int, ProcessInfo]


@dataclass(frozen=True)
class Stated:
    """What one source (a start-up line, a command line, a live object) says about an engine's shape. None or "" where it says nothing."""

    world: int | None = None
    """World of one replica."""
    tp: int | None = None
    dp: int | None = None
    nodes: int | None = None
    node_rank: int | None = None
    """Which of the engine's nodes it is that says so."""
    together: str = ""
    """Equal on all nodes of one engine, "" where it has one node."""


@dataclass(frozen=True)
class ProgressNames:
    """Metric names (exact, or ending in the given text) that count progress. First match wins."""

    steps: tuple[str, ...] = ()
    generation_tokens: tuple[str, ...] = ()
    prompt_tokens: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv_usage: tuple[str, ...] = ()
    step_seconds: tuple[str, ...] = ()
    """A histogram of the time between tokens: `_sum` / `_count` is its mean."""
    replica_label: str = ""
    """The label that tells data-parallel replicas apart."""


@dataclass(frozen=True)
class FramePattern:
    """Ranked recogniser of a position in a stack.

    `regex` is searched in the stack written innermost first, one "Qual.name (file)" a line, cut to `within` lines.
    """

    state: str
    """What the thread is doing; one of STATES in forensics.analysis.waits."""
    regex: str
    within: int = 8
    target: str = ""
    """What is waited for, in words for people: "the answer of the output rank"."""
    native: bool = False
    """Searched in native and Python frames together ("ncclGroupEnd (libnccl.so.2)"), where a stack has them; else in Python alone."""


@dataclass(frozen=True)
class LiveExpr:
    """A value to read in the memory of a running process: a count, a flag, a name; never a text or an item of a user."""

    name: str
    """What the value is called from then on: "running_requests". Several expressions of one name are those of several versions."""
    expr: str
    """See `forensics peek`: it begins with the name of a class that some frame holds, or of a module."""
    role: Role
    """Which processes have it."""
    clock: str = ""
    """"age" | "left": the value is a moment of time.monotonic(), told as the seconds since then or until then."""
    passing: bool = False
    """The object lives no longer than a wait: told only of a thread that stands."""


@dataclass(frozen=True)
class WatchedFunction:
    """A function that decides whether an engine moves: a capture says when what runs under its name comes from another file.

    Name those that carry no decorator: what a decorator makes of a function lies in another file as a rule, and proves nothing.
    """

    module: str
    function: str
    """"Class.method"."""
    role: Role
    """Which processes run it."""


@dataclass(frozen=True)
class EngineProfile:
    """One engine. Adding an engine is one file that builds one of these."""

    name: str
    place: Callable[[ProcessInfo, Table], Placed | None]
    """Claim a process of this engine (pure; sees the whole process table), or None."""
    by_logs_only: bool = False
    """It claims no process: only a folder of logs can be all about it."""
    packages: tuple[str, ...] = ()
    """Import packages that the engine's own code lies in: the first gives its version."""
    version: Callable[[ProcessInfo], str] | None = None
    together: Callable[[ProcessInfo], str] | None = None
    """A text that is equal for all parts of one engine that spans several nodes (rendezvous address, world); "" if one node."""
    listens: Callable[[ProcessInfo], int | None] | None = None
    """The port that the command line of a front end asks for."""
    world: Callable[[ProcessInfo], int | None] | None = None
    """The world of one replica that the command line of a front end states: it is known even when every worker is dead."""
    dp_size: Callable[[ProcessInfo], int | None] | None = None
    """The number of data-parallel replicas that the command line states."""
    stated: Callable[[dict[str, str]], Stated] | None = None
    """The fields of a start-up line (event "start" or "core-start") to what they say of the engine's shape."""
    commanded: Callable[[ProcessInfo], Stated | None] | None = None
    """What a process's command line, or the environment that its launcher set, says of the engine's shape; None where it says nothing."""
    running: Callable[[Mapping[str, str]], Stated | None] | None = None
    """The values of `live`, as JSON by name, of one process to what they say of the engine's shape."""
    rank_at: Callable[[str, int | None], RankId | None] | None = None
    """The place in a log prefix ("DP0 TP1") and the tensor-parallel size, where known, to a rank."""
    failures_end_it: bool = False
    """A worker's own line of an exception ends the engine: every rank reports its failure. In vLLM only the output rank does."""
    health_paths: tuple[str, ...] = ("/health",)
    metrics_paths: tuple[str, ...] = ("/metrics",)
    load_paths: tuple[str, ...] = ()
    progress: ProgressNames = field(default_factory=ProgressNames)
    frames: tuple[FramePattern, ...] = ()
    live: tuple[LiveExpr, ...] = ()
    """What is worth reading in its processes' memory."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of the live values those that are settings: what each is called where it is set ("execute_timeout_s" is an environment name)."""
    setting_names: Mapping[str, str] = field(default_factory=dict)
    """Other spellings of settings ("tp") to the one under which they are told."""
    functions: tuple[WatchedFunction, ...] = ()
    """The few functions whose running code every capture looks at."""
    delivery_threads: tuple[str, ...] = ()
    """Names of the threads that carry a worker's results to the core, one after the other: what fails waits behind what is not done."""
    execute_timeout_env: str = ""
    execute_timeout_default_s: float | None = None
    env_allow: tuple[str, ...] = ()
    """Environment names of this engine that are safe and useful to record."""
    output_rank: Callable[[int, int], int] | None = None
    """(world size, tp size) to the rank whose answer the core waits for."""
