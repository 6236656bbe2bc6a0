"""Timeouts that every hang produces. They say when it began, never who began it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import NO_LONGER_LIMIT
from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.stall import may_be_short
from forensics.analysis.times import SECOND, duration, iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, LogHit, Severity, TimeRange


def evaluate(view: View) -> Iterator[Finding]:
    if hits := [h for h in view.events("timeout") if h.at] or view.events("timeout"):
        first = hits[0]
        limit = view.engine.execute_timeout_s
        began = view.stall.since if view.stall and view.stall.until else None
        usual = first.limit_s or view.profile.execute_timeout_default_s or 0
        old = " or, before 0.9, 40 s" if may_be_short(view, first) else ""
        limit_text = f"limit {limit:g} s" if limit and not first.limit_s else f"limit not recorded (the default is {usual:g} s{old})"
        yield view.finding(
            "symptom-rpc-timeout",
            Grade.ESTABLISHED,
            title=f"The core gave up waiting for {first.fields.get('method', 'a call')}{_at(first)} ({limit_text})",
            because=[h.ref for h in hits[:3]],
            severity=Severity.WARNING,
            role=FindingRole.CASCADE,
            since=began or first.at,
            until=first.at,
            does_not_show="which rank did not answer: the core waits for the output rank, whoever holds that one up",
        )
    told = [h for h in view.events("wait") if h.feeds == "symptom-shm-broadcast-wait"]
    if waits := [h for h in told if h.at] or told:
        first = waits[0]
        seconds = int(first.fields["seconds"])
        # while weights are loaded and kernels compiled, ranks wait for each other for minutes
        at_start = view.starting or all(any(view.before(h, r) for r in view.events("ready")) for h in waits)
        began_ns = first.at.earliest_ns - seconds * SECOND if first.at else None
        yield view.finding(
            "symptom-shm-broadcast-wait",
            Grade.ESTABLISHED,
            title=f"{_who(waits)} waited at a broadcast ring: {len(waits)} line(s), one for every {duration(seconds)}"
            + (f", from {iso(began_ns)}" if began_ns is not None else ""),
            because=[h.ref for h in waits[:4]],
            severity=Severity.INFO if at_start else Severity.WARNING,
            role=FindingRole.CONTEXT if at_start else FindingRole.CASCADE,
            since=TimeRange(earliest_ns=began_ns, latest_ns=began_ns + SECOND - 1, basis="inferred") if began_ns is not None else None,
            until=waits[-1].at,
            does_not_show="which side is at fault: readers and writers of a ring print the same line, and so does a long compilation",
        )


def _who(waits: list[LogHit]) -> str:
    names = list(dict.fromkeys(h.process for h in waits if h.process))
    return names[0] if len(names) == 1 else f"{len(names)} processes ({', '.join(names[:4])})" if names else "A process"


def _at(hit: LogHit) -> str:
    return f" at {iso(hit.at.earliest_ns)}" if hit.at else ""


TEXTS = {
    "symptom-rpc-timeout": Text(
        says=(
            "A call of the core to its workers got no answer until its limit. The trouble began that much earlier. The line never names "
            "who did not answer."
        ),
        establishes="Its line.",
        next_steps=(NO_LONGER_LIMIT, "look at what each rank did at line time minus limit"),
    ),
    "symptom-shm-broadcast-wait": Text(
        says="A reader or writer of a ring has waited for its interval, once or repeatedly. Ordinary while starting or compiling.",
        establishes="Its line.",
        next_steps=("in serving this is the moment to capture: the engine's own limit ends everything minutes later",),
    ),
}

RULE = Rule(
    name="symptoms",
    texts=TEXTS,
    about="A wait inside the engine reached its limit.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="None for the line itself; as a cause it is always wrong.",
    references=("vllm v1/executor/multiproc_executor.py", "vllm distributed/device_communicators/shm_broadcast.py"),
)
