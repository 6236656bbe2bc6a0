"""Live objects of every Python target, read in its memory: queues that threads are in, locks they wait for, and what engines declare.

One JSON a process and sample, kind "live-json" (every list may be empty, absent numbers are null, ids are kernel thread ids):

    {"at_ns", "python": "3.11", "ms": time taken,
     "values": [{"name", "expr", "type", "value": number | text | true | null, "torn"}],
     "queues": [{"address", "kind", "place", "depth", "maxsize", "unfinished", "putting", "getting", "takers"?, "givers"?: [tid]}],
     "locks":  [{"address", "kind", "place", "owner": tid, "owner_known", "count", "waiters": [tid], "inside": [tid]}],
     "waits":  [{"tid", "address", "kind", "place", "flag"?, "target"?: tid}],    events, conditions, futures, joins
     "notes":  ["pool.py: changed after the process started", …]}

Nothing is paused. Frames come from py-spy, which only copies memory; a thread that ran meanwhile is looked at twice before it
is called the holder of a lock. Values are numbers, flags and names: never a text of any length, an item of a queue, or source.
"""

from __future__ import annotations

import json
import re
import time
from functools import cached_property
from typing import Any

from collectors import _pyspy
from collectors._contract import Emitter, Request, Target, Try, absence, nothing_to_do
from collectors._cpython import BadExpression, Bounds, Found, NotFound, PeekError, Process, Root, Unreadable, attach, evaluate
from collectors._cpython._roots import parse_dump
from collectors._livequeues import Queues
from collectors._locks import Locks, read
from collectors._resolve import Names
from collectors._sources import Sources
from collectors._threads import Thread, at_futex, dump, runs, started_ns, threads_of, tids
from collectors._waits import wait_of

TIMEOUT_S = 2.0
"""Of one py-spy: 15 to 80 ms as a rule, but one that pauses nothing has to retry on a process that runs hard."""
READ_S = 1.5
PARSE_S = 3.0
"""Of processor time for parsing source, in all: each function is parsed once for all processes and samples."""
BOUNDS = Bounds(depth=1, items=4, objects=8, text=100, nbytes=1 << 20, seconds=0.2)
"""Of one declared value: it is one number or flag, and whatever else it turns out to be is not shown."""
FAR_S = 1e9
"""A deadline of `sys.maxsize` is none."""
URGENCY = {"worker": 0, "core": 1, "coordinator": 2, "api": 3}
_NAME = re.compile(r"[A-Za-z_][A-Za-z_.]{0,79}|-?\d{1,12}(\.\d{1,9})?")
"""A text that may leave: the name of a class or a state, a number as the environment holds it. No id, no word of a user."""


class Look:
    """One process at one moment; second looks at its threads where a claim hangs on them."""

    def __init__(self, process: Process, program: str, timeout_s: float) -> None:
        self.process, self.program, self.timeout_s = process, program, timeout_s
        self.before = {tid: runs(process.pid, tid) for tid in tids(process.pid)}
        self.at_ns = time.time_ns()
        raw = dump(program, process.pid, timeout_s)
        self.verdict: _pyspy.Verdict = ("OK", "", "") if isinstance(raw, list) else raw
        self.raw = raw if isinstance(raw, list) else []
        self.threads = threads_of(process, self.raw)
        self.futexes = {t.tid: futex for t in self.threads if (futex := at_futex(process.pid, t.tid)) is not None}

    @cached_property
    def second(self) -> list[Any]:
        """Another dump, made when it is asked for."""
        raw = dump(self.program, self.process.pid, self.timeout_s)
        return raw if isinstance(raw, list) else []

    @cached_property
    def later(self) -> dict[int, Thread]:
        return {thread.ident: thread for thread in threads_of(self.process, self.second)}

    def futex(self, tid: int) -> int | None:
        return at_futex(self.process.pid, tid)

    def slept(self, thread: Thread) -> bool:
        """Whether the thread has not run at all since before its stack was read."""
        now = runs(self.process.pid, thread.tid)
        return bool(now) and now == self.before.get(thread.tid)

    def stood(self, thread: Thread, depth: int) -> bool:
        if self.slept(thread):
            return True
        later, outer = self.later.get(thread.ident), len(thread.path) - depth
        return later is not None and later.path[-outer:] == thread.path[-outer:]


def photograph(target: Target, process: Process, request: Request, program: str, sources: Sources) -> tuple[dict[str, Any], _pyspy.Verdict]:
    """Read one process. Returns the evidence, as far as it came, and the verdict on it."""
    began = time.monotonic()
    found: dict[str, Any] = {"at_ns": time.time_ns(), "python": ".".join(map(str, process.version)), "ms": 0.0}
    found |= {"values": [], "queues": [], "locks": [], "waits": [], "notes": []}
    look = Look(process, program, float(request.options.get("timeout_s", TIMEOUT_S)))
    found["at_ns"], verdict = look.at_ns, look.verdict
    names = Names(process, sources, started_ns(target.pid), time.monotonic() + READ_S)
    locks = Locks(names, look.futexes)
    try:
        # locks first: they are what another second would make untrue
        inner = {thread.inner: thread.tid for thread in look.threads}
        found["waits"] = [wait for thread in look.threads if (wait := wait_of(locks, thread, inner))]
        found["locks"] = read(locks, look.threads, {wait["tid"] for wait in found["waits"]}, look)
        found["queues"] = Queues(locks, look.threads).read()
        found["values"] = values(look, target, list(request.options.get("live") or ()))
    except PeekError as error:
        verdict = "PARTIAL", str(error), error.cure
    found["notes"] = [f"{file}: {why}" for file, why in names.notes.items()]
    found["ms"] = round((time.monotonic() - began) * 1000, 1)
    return found, verdict


def values(look: Look, target: Target, live: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the engine declares for a process of this role. Several expressions of one name: of versions; the first that is there."""
    found: dict[str, dict[str, Any]] = {}
    held = parse_dump(look.process, look.raw)
    for one in live:
        name, expr = str(one.get("name", "")), str(one.get("expr", ""))
        if name in found or one.get("role") not in (None, target.role) or one.get("engine") not in (None, target.engine):
            continue
        try:
            got = passing(look, expr, held) if one.get("passing") else evaluate(look.process, expr, held, BOUNDS)
        except (NotFound, BadExpression, Unreadable):
            continue
        value = harmless(got.value)
        if one.get("clock") and isinstance(value, (int, float)):
            seconds = time.monotonic() - value if one["clock"] == "age" else value - time.monotonic()
            value = round(seconds, 3) if abs(seconds) < FAR_S else None
        found[name] = {"name": name, "expr": expr, "type": got.type, "value": value, "torn": got.torn}
    return list(found.values())


def passing(look: Look, expr: str, held: list[Root]) -> Found:
    """A value that lives no longer than a wait: when a thread goes on, its memory soon holds another object of the same kind.

    True for a thread that slept all along, or when what is read before and after a second dump is the same. Raises NotFound else.
    """
    asleep = {thread.ident for thread in look.threads if look.slept(thread)}
    try:
        got = evaluate(look.process, expr, [root for root in held if root.thread_ident in asleep], BOUNDS)
        if all(look.slept(thread) for thread in look.threads if thread.ident in asleep):
            return got
    except NotFound:
        pass  # its thread ran
    first, second = (evaluate(look.process, expr, roots, BOUNDS) for roots in (held, parse_dump(look.process, look.second)))
    if (first.address, first.value) != (second.address, second.value):
        raise NotFound(f"{expr}: it changed meanwhile")
    return second


def harmless(value: object) -> Any:
    """A number, a flag or a name; of anything else only that it is there."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, dict) and isinstance(environ := value.get("environ"), dict):  # one of os.environ comes with its name
        value = next(iter(environ.values()), None)
    return value if isinstance(value, str) and _NAME.fullmatch(value) else "…"


def one(target: Target, sample: int, request: Request, emit: Emitter, program: str, sources: Sources, attempt: Try) -> None:
    gone = absence(target)
    if gone:
        attempt.end(*gone)
        return
    try:
        process = attach(target.pid)
    except PeekError as error:
        attempt.end(error.outcome, str(error), error.cure)
        return
    try:
        found, verdict = photograph(target, process, request, program, sources)
    finally:
        process.close()
    attempt.end(*verdict)
    if verdict[0] in ("OK", "PARTIAL"):
        about: dict[str, Any] = {"pid": target.pid, "sample": sample, "at_ns": found["at_ns"], "source": f"/proc/{target.pid}/mem"}
        name = f"objects/pid-{target.pid}.{sample}.json"
        attempt.evidence.append(emit.evidence(name, "live-json", json.dumps(found, ensure_ascii=True), **about))


def collect(request: Request, emit: Emitter) -> None:
    """Options: `live` declared values [{"name", "expr", "role", "engine"}], `timeout_s` of one py-spy, `py_spy` path of the program."""
    targets = sorted(request.targets, key=lambda t: (URGENCY.get(t.role, 4), t.rank if t.rank is not None else 1 << 30))
    program = None if request.sysroot else _pyspy.find(str(request.options.get("py_spy", "")))
    sources = Sources(PARSE_S)
    if not targets:
        nothing_to_do(emit, "objects")
        return
    for sample in request.sampling():
        for target in targets:
            with emit.attempt(target.name, pid=target.pid, sample=sample) as attempt:
                if request.sysroot:
                    attempt.end("ABSENT", "no live processes in a recorded tree")
                elif program is None:
                    attempt.end(*_pyspy.NOT_FOUND)
                else:
                    one(target, sample, request, emit, program, sources, attempt)
