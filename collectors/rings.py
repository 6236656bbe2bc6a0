"""Shared-memory rings of vLLM and load snapshots of SGLang: what has been sent, and who has not taken it out yet.

Reading needs no answer of anybody: the segments are opened through a holder's descriptor and read with `pread`, flags and a few
hundred bytes of each slot. A set of flags proves nothing by itself (a busy ring has unread slots at any moment), so every sample is
several looks, half a second apart; what stays the same in all of them stands still.
"""

from __future__ import annotations

import json
import os
import time

from collectors._contract import PTRACE_CURE, Emitter, Request, Target, nothing_to_do, os_error_outcome
from collectors._loads import LoadSnapshot
from collectors._rings import Ring
from collectors._segments import SEGMENTS_MAX, Segment, Segments, Told

LOOKS, LOOK_INTERVAL_S = 3, 0.5
"""One sample lasts a second: two of them fit the two seconds between samples, and a single later one is still three looks."""
LOOKS_MAX = 50


class Watched:
    """A segment under observation during one sample."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.started_ns = time.time_ns()
        self.size = 0
        self.pid: int = segment.holders[0]["pid"]
        self.told: Told = ("OK", "", "")
        self.reader: Ring | LoadSnapshot | None = None
        self.name = segment.name
        self._fd = -1

    def open(self) -> None:
        try:
            self._fd, self.size, self.pid = self.segment.open()
            self.reader = (Ring if self.segment.name.startswith("psm_") else LoadSnapshot)(self._fd, self.size)
        except ValueError as error:
            self.told = ("UNSUPPORTED", str(error), "")
        except OSError as error:
            outcome, reason, cure = os_error_outcome(error)
            self.told = (outcome, reason, PTRACE_CURE if outcome == "DENIED" else cure)
        if self.reader is None:
            self.close()

    def look(self) -> None:
        if self.reader is None or self.told[0] != "OK":
            return
        try:
            self.reader.look()
        except ValueError as error:
            self.told = ("PARTIAL" if self.reader.looks else "UNSUPPORTED", str(error), "")
        except OSError as error:
            self.told = os_error_outcome(error)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self.reader is not None and self.reader.looks and self.told[0] == "OK":
            self.told = self.reader.outcome()

    def json(self) -> str:
        segment, reader = self.segment, self.reader
        major, minor = os.major(segment.identity[0]), os.minor(segment.identity[0])
        head = {"segment": segment.name, "path": segment.path, "deleted": segment.deleted, "size": self.size}
        head |= {"device": f"{major}:{minor}", "inode": segment.identity[1], "holders": segment.holders}
        return json.dumps({**head, **(reader.facts() if reader else {})})


def photograph(request: Request, emit: Emitter, sample: int) -> None:
    """Find, open, look several times, deliver: one file and one attempt a segment, one attempt a target."""
    looks = min(LOOKS_MAX, max(1, int(request.options.get("looks", LOOKS))))
    interval_s = float(request.options.get("look_interval_s", LOOK_INTERVAL_S))
    segments = Segments(request.sysroot)
    listed: list[tuple[Target, int, Told, list[Segment]]] = []
    for target in request.targets:
        started_ns = time.time_ns()
        listed.append((target, started_ns, *segments.look_at(target)))
    watched = {segment.identity: Watched(segment) for segment in segments.found.values()}
    taken: set[str] = set()
    for one in watched.values():
        one.open()
        if one.name in taken:  # the same name in two containers
            one.name += f"-{one.segment.identity[1]}"
        taken.add(one.name)
    if any(one.reader for one in watched.values()):
        began = time.monotonic()
        for i in range(looks):
            time.sleep(max(0.0, began + i * interval_s - time.monotonic()))
            for one in watched.values():
                one.look()
    names: dict[tuple[int, int], str] = {}
    for identity, one in watched.items():
        one.close()
        if one.reader is not None and one.reader.looks:
            about = {"pid": one.pid, "sample": sample, "source": one.segment.path, "at_ns": one.reader.looks[0]["at_ns"]}
            names[identity] = emit.evidence(f"rings/{one.name}.{sample}.json", one.reader.kind, one.json(), **about)
        with emit.attempt(f"segment {one.name}", pid=one.pid, sample=sample, started_ns=one.started_ns) as attempt:
            attempt.end(*one.told)
            attempt.evidence += [names[identity]] if identity in names else []
    if segments.left_out:
        with emit.attempt("further segments", sample=sample) as attempt:
            attempt.end("PARTIAL", f"{len(segments.left_out)} more were found and not looked at: {SEGMENTS_MAX} are the most")
    for target, started_ns, told, mine in listed:
        with emit.attempt(target.name, pid=target.pid, sample=sample, started_ns=started_ns) as attempt:
            attempt.end(*_joined(told, [watched[s.identity] for s in mine]))
            attempt.evidence += [names[s.identity] for s in mine if s.identity in names]


def _joined(told: Told, mine: list[Watched]) -> Told:
    """What is said of a target: how its segments were listed, then how they could be read."""
    wrong = [one for one in mine if one.told[0] != "OK"]
    if told[0] != "OK" or not wrong:
        return told
    reason = "; ".join(f"{one.name}: {one.told[1]}" for one in wrong[:3])
    return (wrong[0].told[0] if len(wrong) == len(mine) else "PARTIAL"), reason, wrong[0].told[2]


def collect(request: Request, emit: Emitter) -> None:
    """Options: `looks` in each sample, `look_interval_s` from the start of one to the start of the next."""
    if not request.targets:
        nothing_to_do(emit, "rings")
        return
    for sample in request.sampling():
        photograph(request, emit, sample)
