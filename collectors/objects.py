"""Live objects of every Python target, read in its memory: queues that threads are in, locks they wait for, and what engines declare.

One JSON a process and sample, kind "live-json" (every list may be empty, absent numbers are null, ids are kernel thread ids):

    {"at_ns", "python": "3.11", "ms": time taken,
     "values": [{"name", "expr", "type", "value": number | text | true | null, "torn"}],
     "queues": [{"address", "kind", "place", "depth", "maxsize", "unfinished", "putting", "getting", "takers"?, "givers"?: [tid]}],
     "locks":  [{"address", "kind", "place", "owner": tid, "owner_known", "count", "waiters": [tid], "inside": [tid]}],
     "waits":  [{"tid", "address", "kind", "place", "flag"?, "target"?: tid}],    events, conditions, futures, joins
     "notes":  ["pool.py: changed after the process started", …]}

`inside`: the thread whose frame keeps the `__exit__` of this lock, read twice while it was taken; of a re-entrant lock also, as the
ident of an `owner` that has ended is given to another thread. `owner_known`: an owner was read, and is one of the threads.

Nothing is paused. Lines and local variables come from py-spy, which only copies memory.
Values are numbers, flags and names: never a text of any length, an item of a queue, or source.
"""

from __future__ import annotations

import json
import time
from typing import Any

from collectors import _pyspy
from collectors._contract import Emitter, Request, Target, Try, absence, nothing_to_do
from collectors._cpython import PeekError, Process, attach
from collectors._cpython._threads import ids_on_this_node
from collectors._livequeues import Queues
from collectors._locks import Locks, read
from collectors._moment import Moment
from collectors._resolve import Names
from collectors._sources import Sources
from collectors._threads import started_ns
from collectors._values import declared, read_values
from collectors._waits import wait_of

TIMEOUT_S = 2.0
"""Of one py-spy: 15 to 80 ms as a rule, but one that pauses nothing has to retry on a process that runs hard."""
READ_S = 3.0
PARSE_S = 3.0
"""Of processor time for parsing source, in all: each function is parsed once for all processes and samples."""


def photograph(target: Target, process: Process, request: Request, program: str, sources: Sources) -> tuple[dict[str, Any], _pyspy.Verdict]:
    """Read one process. Returns the evidence, as far as it came, and the verdict on it."""
    began = time.monotonic()
    found: dict[str, Any] = {"at_ns": time.time_ns(), "python": ".".join(map(str, process.version)), "ms": 0.0}
    found |= {"values": [], "queues": [], "locks": [], "waits": [], "notes": []}
    look = Moment(process, program, float(request.options.get("timeout_s", TIMEOUT_S)))
    found["at_ns"], verdict = look.at_ns, look.verdict
    notes: dict[str, str] = {}
    try:
        names = Names(process, sources, started_ns(target.pid), time.monotonic() + READ_S, look.threads)
        notes, locks = names.notes, Locks(names, look.futexes)
        # locks first: they are what another second would make untrue
        if not request.options.get("only_values_of"):
            here = ids_on_this_node(process)
            for thread in look.threads:
                if wait := wait_of(locks, thread, here):
                    found["waits"].append(wait)
            read(locks, look.threads, {wait["tid"] for wait in found["waits"]}, look, found["locks"])
            Queues(locks, look.threads).read(found["queues"])
        read_values(look, declared(request.options.get("live"), target.role, target.engine), names.until, found["values"])
    except PeekError as error:
        verdict = "PARTIAL", str(error), error.cure
    except FileNotFoundError:
        verdict = _pyspy.GONE
    found["notes"] = [f"{file}: {why}" for file, why in notes.items()]
    if process.version >= (3, 14):
        found["notes"].append("from Python 3.14 on a thread that waits for a lock sleeps at a word of its own: which lock is not told")
    found["ms"] = round((time.monotonic() - began) * 1000, 1)
    return found, verdict


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
    """Options: `live` declared values [{"name", "expr", "role", "engine"}], `timeout_s` of one py-spy, `py_spy` path of the program;
    `only_values_of` a role: of its processes the declared values and nothing else, which is little beside a healthy engine."""
    only = request.options.get("only_values_of")
    targets = [t for t in request.in_order() if not only or t.role == only]
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
