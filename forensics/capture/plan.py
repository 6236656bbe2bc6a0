"""What to collect, in which order, within which bounds, and when to look once more. Pure: decisions over snapshots, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from forensics.capture.discovery import Discovery
from forensics.engines import ENV_ALLOW, ProgressReading, profile, read_progress
from forensics.engines.progress import replica_moved
from forensics.model import PROBE_SOURCE, EngineInstance, Role

PROFILES = ("minimal", "standard", "full")
INTERVAL_S = 2.0
"""Between the two samples. A healthy step takes 10 to 100 ms; what has not moved in 2 s is worth a longer look."""
CONFIRM_AT_S = 6.0
NATIVE_S = 12.0
"""Bound of the native readers in one look, over all processes: workers come first."""
SETTLE_S = 1.5
"""The slow collectors wait for the first sample of the volatile ones, but no longer than this."""
URGENT = ("stacks", "queues", "process", "cpu", "health")
"""Changes from second to second: all at once, at t0, and never niced."""
SAMPLED = ("stacks", "queues", "process", "cpu")
DEEPER = ("rings", "objects")
"""Read without a pause. Beside a healthy engine only the little that tells its mode is read of its objects: the rest costs as much
processor time as the stacks, and tells of waits."""
LATER = (*DEEPER, "memory", "clock", "gpu", "thermal", "patches", "kernel", "rpclogs", "cores", "builds")
"""Most volatile first; run while the samplers sleep."""
NICED = ("kernel", "rpclogs", "cores", "builds")
HOLDING = ("stacks",)
"""A stack reader holds its target, and while it waits for a processor it holds it longer: it goes before everything else, the
other collectors of ours as well."""
NICE, PROMPT = 10, -10
"""-10 is about ten times the share of a spinner, for less than a second of processor time."""
MIB = 1024 * 1024


@dataclass(frozen=True)
class Step:
    """One child to run."""

    collector: str
    deadline_s: float
    samples: int = 1
    first_sample: int = 1
    interval_s: float = INTERVAL_S
    nice: int = 0
    """Relative to the priority of the capture itself; below 0 only where that is permitted."""
    max_bytes: int = 64 * MIB
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def last_sample(self) -> int:
        return self.first_sample + self.samples - 1


@dataclass(frozen=True)
class Plan:
    urgent: tuple[Step, ...]
    """Started together at t0."""
    deeper: tuple[Step, ...]
    """Further looks take these as well: what is worth its processor time only where something stands still."""
    later: tuple[Step, ...]
    """Started one after the other as slots get free."""
    rounds: tuple[tuple[int, float], ...]
    """(sample number, seconds after t0) of further looks, taken only while an engine stands still with work in hand."""
    slots: int = 2
    """How many of the later steps may run at the same time."""


def make_plan(found: Discovery, depth: str = "standard", deadline_s: float = 60.0, window_s: float = 15.0, **inputs: Any) -> Plan:
    """Plan a capture. `inputs`: `patches` (tables of patches.toml), `logs` (further log files), `cpus` (of this machine)."""
    options = _options(found, depth, inputs)
    targets = sum(1 for engine in found.engines for _ in engine.processes)
    deadlines = {
        # a target that hangs costs two timeouts of py-spy, and two targets are read at a time
        "stacks": INTERVAL_S + 12 + 4.0 * targets,
        "queues": INTERVAL_S + 8,
        "process": INTERVAL_S + 8,
        "cpu": INTERVAL_S + 8,
        "health": 10.0,
        "rings": 10.0,
        "objects": 6 + 2.0 * targets,
        "memory": 10.0,
        "clock": 10.0,
        "thermal": 10.0,
        "gpu": 15.0,
        "patches": 20.0,
        "kernel": 20.0,
        "cores": 25.0,
        "rpclogs": 40.0,
        "builds": 40.0,
    }
    log_bytes = {"minimal": 16 * MIB, "standard": 64 * MIB, "full": 256 * MIB}[depth]

    # hashing ends by itself, long before its child would be ended: what it has compared by then is told
    options["builds"] = {**options.get("builds", {}), "hash_s": min(deadlines["builds"], deadline_s) / 2}

    def step(name: str) -> Step:
        return Step(
            collector=name,
            deadline_s=min(deadlines[name], deadline_s),
            samples=2 if name in SAMPLED else 1,
            nice=NICE if name in NICED else PROMPT if name in HOLDING else 0,
            max_bytes=log_bytes if name == "rpclogs" else 64 * MIB,
            options=options.get(name, {}),
        )

    later = {"minimal": ("memory", "clock", "rpclogs"), "standard": LATER, "full": LATER}[depth]
    urgent: tuple[str, ...] = URGENT
    if not found.processes:  # the engine is gone: its logs and the machine are what is left
        urgent, window_s = (), 0.0
    return Plan(
        urgent=tuple(step(name) for name in urgent),
        deeper=tuple(step(name) for name in DEEPER),
        later=tuple(_of_a_healthy_engine(step(name)) for name in later if name != "objects" or _cores(found)),
        rounds=_rounds(window_s, deadline_s) if depth != "minimal" else (),
        slots=max(2, min(4, int(inputs.get("cpus") or 2))),
    )


def _rounds(window_s: float, deadline_s: float) -> tuple[tuple[int, float], ...]:
    last = min(window_s, deadline_s - 8)  # a look takes seconds on a saturated host, and packing comes after it
    moments = [at for at in (CONFIRM_AT_S, last) if INTERVAL_S < at <= last]
    return tuple((3 + index, at) for index, at in enumerate(dict.fromkeys(moments)))


def again(first: Plan, sample: int, stuck: Sequence[int] = ()) -> tuple[Step, ...]:
    """The steps of one further look: everything volatile, once. Health as well: what it says *while* nothing moves is the point.

    `stuck`: processes of engines whose counters stand still. Native frames cost their target a pause of half a second: theirs alone
    are read, never those of an engine that may be well.
    """
    native = {"native": list(stuck), "native_budget_s": NATIVE_S} if stuck else {}
    steps = (*first.urgent, *first.deeper)
    return tuple(
        _changed(
            step,
            samples=1,
            first_sample=sample,
            deadline_s=max(8.0, step.deadline_s - INTERVAL_S) + (2 * NATIVE_S if native and step.collector == "stacks" else 0.0),
            options={**step.options, **native} if step.collector == "stacks" else step.options,
        )
        for step in steps
    )


def _of_a_healthy_engine(step: Step) -> Step:
    return _changed(step, options={**step.options, "only_values_of": Role.CORE.value}) if step.collector == "objects" else step


def _changed(step: Step, **changes: Any) -> Step:
    return Step(**{**{name: getattr(step, name) for name in step.__dataclass_fields__}, **changes})


def _options(found: Discovery, depth: str, inputs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    kinds = [profile(kind) for kind in dict.fromkeys(engine.kind for engine in found.engines)]

    def union(name: str) -> list[str]:
        return list(dict.fromkeys(path for kind in kinds for path in getattr(kind, name)))

    options: dict[str, dict[str, Any]] = {
        "cores": {"patience_s": 8.0},
        "process": {"env_allow": list(ENV_ALLOW)},
        "patches": {"patches": list(inputs.get("patches") or ()), "functions": _functions(found)},
        "rpclogs": {"logs": [str(path) for path in inputs.get("logs") or ()], "depth": depth},
    }
    if kinds:
        options["queues"] = {"metrics_paths": union("metrics_paths"), "load_paths": union("load_paths")}
        options["health"] = {"health_paths": union("health_paths")}
        options["objects"] = {"live": _live(found)}
        options["builds"] = {"packages": {e.id: list(own) for e in found.engines if (own := profile(e.kind).packages)}}
    if depth == "full":
        options["builds"] = {**options.get("builds", {}), "everything": True, "hash_bytes": 2048 * MIB}
    return options


def _cores(found: Discovery) -> bool:
    """Whether an engine that declares live values has its core on this node: there its mode is read."""
    return any(process.role is Role.CORE for engine in found.engines if profile(engine.kind).live for process in engine.processes)


def _live(found: Discovery) -> list[dict[str, Any]]:
    """What each engine's own file declares worth reading in its processes' memory."""
    return [
        {"name": one.name, "expr": one.expr, "role": one.role.value, "clock": one.clock, "passing": one.passing, "engine": engine.id}
        for engine in found.engines
        for one in profile(engine.kind).live
    ]


def _functions(found: Discovery) -> list[dict[str, Any]]:
    """Whose running code is looked at, whether or not patches are stated: a monkeypatch shows in no file."""
    return [
        {"module": one.module, "function": one.function, "role": one.role.value, "engine": engine.id}
        for engine in found.engines
        for one in profile(engine.kind).functions
    ]


def request(step: Step, found: Discovery, sysroot: str = "") -> dict[str, Any]:
    """The JSON request for a step's child: see collectors._contract.Request."""
    return {
        "targets": targets(found),
        "sysroot": sysroot,
        "samples": step.samples,
        "first_sample": step.first_sample,
        "interval_s": step.interval_s,
        "max_bytes": step.max_bytes,
        "options": dict(step.options),
    }


def targets(found: Discovery) -> list[dict[str, Any]]:
    """Every process of every engine; only front ends carry ports, so that one endpoint is asked once."""
    return [
        {
            "pid": process.pid,
            "start_ticks": process.info.start_ticks,
            "title": process.info.title,
            "role": process.role.value,
            "rank": process.rank.rank if process.rank else None,
            "engine": engine.id,
            "ports": list(engine.ports) if process.role in (Role.API, Role.LAUNCHER) else [],
            "log_files": list(process.info.log_files),
        }
        for engine in found.engines
        for process in engine.processes
    ]


# Whether to look again


@dataclass
class Look:
    """What the queues evidence of one sample says, for each engine."""

    progress: dict[str, list[ProgressReading]] = field(default_factory=dict)
    clients: dict[str, int] = field(default_factory=dict)
    """Established connections on the engine's ports that are not our own probes."""


class _FileSet(msgspec.Struct):
    files: dict[str, str] = {}


def look(engines: Sequence[EngineInstance], expositions: Sequence[tuple[int | None, str]], filesets: Sequence[bytes]) -> Look:
    """Read one sample: `expositions` are (pid that served it, text), `filesets` the socket tables as the collector sent them."""
    seen = Look()
    for engine in engines:
        pids = {process.pid for process in engine.processes}
        for pid, text in expositions:
            if pid in pids:
                seen.progress.setdefault(engine.id, []).extend(read_progress(text, profile(engine.kind).progress))
    ports = {port: engine.id for engine in engines for port in engine.ports}
    for raw in filesets:
        try:
            files = msgspec.json.decode(raw, type=_FileSet).files
        except msgspec.MsgspecError:
            continue
        for path, text in files.items():
            if path.endswith(("/net/tcp", "/net/tcp6")):
                for port in _established(text):
                    if port in ports:
                        seen.clients[ports[port]] = seen.clients.get(ports[port], 0) + 1
    return seen


def _established(table: str) -> list[int]:
    """Local ports of the established connections of a /proc/net/tcp table, without those of our own probes."""
    ours = "".join(f"{int(part):02X}" for part in reversed(PROBE_SOURCE.split(".")))  # our own probes are nobody's clients
    found = []
    for line in table.splitlines()[1:]:
        words = line.split(None, 4)
        # an IPv4 client of an IPv6 socket is shown mapped: its address is the tail
        if len(words) > 3 and words[3] == "01" and words[2].partition(":")[0][-8:] != ours:
            found.append(int(words[1].rpartition(":")[2], 16))
    return found


@dataclass(frozen=True)
class Standing:
    """Why an engine is looked at again."""

    why: str
    replicas: tuple[str, ...] = ()
    """Which of its data-parallel replicas stand, by the label of their metrics; () for the whole engine."""
    counted: bool = True
    """It says itself that it holds work, and its counters stood still. Otherwise it may be well, and nothing that disturbs is done."""


def standing(engines: Sequence[EngineInstance], looks: Sequence[Look]) -> dict[str, Standing]:
    """Engines that stand still while work may be in hand; the others need no further look.

    Gauges freeze in a stall, and requests that arrived since are invisible in them. So "nothing running" is believed only
    when nobody is connected either, and an engine that offers no counters at all is looked at again.
    """
    found: dict[str, Standing] = {}
    for engine in engines:
        before = next((one.progress[engine.id] for one in looks if one.progress.get(engine.id)), None)
        after = looks[-1].progress.get(engine.id) if looks else None
        if before is None:
            found[engine.id] = Standing("it offers no progress counters", counted=False)
            continue
        if not after:
            found[engine.id] = Standing("its metrics stopped answering", counted=False)
            continue
        earlier = {reading.replica: reading for reading in before}
        still = [
            reading for reading in after if reading.replica not in earlier or replica_moved(earlier[reading.replica], reading) is not True
        ]
        if any(reading.held for reading in still):
            stuck = tuple(reading.replica for reading in still if reading.held)
            found[engine.id] = Standing("requests are running or waiting and no counter moved", stuck if engine.dp_size > 1 else ())
        elif still and looks[-1].clients.get(engine.id):
            found[engine.id] = Standing("clients are connected and no counter moved", counted=False)
    return found


def stuck(engines: Sequence[EngineInstance], still: Mapping[str, Standing]) -> list[int]:
    """Processes of the replicas that say themselves that they hold work and do not move."""
    pids = []
    for engine in engines:
        seen = still.get(engine.id)
        if seen is not None and seen.counted:
            pids += [
                process.pid
                for process in engine.processes
                if not seen.replicas or (process.rank is not None and str(process.rank.dp) in seen.replicas)
            ]
    return pids
