"""The clock of what passed a log on and the clock of the process that wrote it stand apart, on many lines and by the same amount."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.logs.clocks import QUARTER_S, ZONE_SLACK_S
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import duration
from forensics.analysis.view import View
from forensics.model import Finding, LogSpan, Severity


def evaluate(view: View) -> Iterator[Finding]:
    apart: dict[int, list[LogSpan]] = {}
    for span in view.on_nodes(LogSpan):
        if span.clock_offset_s is not None:
            # files that one shipper wrote differ by fractions of a second
            apart.setdefault(round(span.clock_offset_s / 60), []).append(span)
    for spans in apart.values():
        offset = spans[0].clock_offset_s or 0.0
        zone = round(offset / QUARTER_S) * QUARTER_S
        is_zone = zone != 0 and abs(offset - zone) <= ZONE_SLACK_S
        amount = duration(abs(zone if is_zone else offset))
        how = "ahead of" if offset > 0 else "behind"
        used = f"in the zone of its processes ({amount} apart)" if is_zone else "as it stands"
        yield view.finding(
            "log-clock-offset",
            grade(observed=True),
            title=f"{_named(spans)}: the prefix is {amount} {how} the clock of the processes; lines are dated by the prefix, {used}",
            because=[s.ref for s in spans[:6]],
            severity=Severity.INFO if is_zone else Severity.WARNING,
            nodes=dict.fromkeys(s.node for s in spans),
            does_not_show="which of the two clocks agrees with other nodes' logs"
            + (", where neither names its zone: a log that is in the other zone lies that far off" if is_zone else ""),
            would_settle=["the zone of each node (`date`, /etc/localtime) and its offset from a time server when the logs were written"],
        )


def _named(spans: list[LogSpan]) -> str:
    files = list(dict.fromkeys(s.ref.source for s in spans))
    return ", ".join(files[:3]) + (f" and {len(files) - 3} more files" if len(files) > 3 else "")


TEXTS = {
    "log-clock-offset": Text(
        says=(
            "The clock of the wrapper of a log and the clock inside its lines differ, mostly by a time zone. One of them dates every "
            "line; the report says which."
        ),
        establishes="Both clocks in the same lines, with a difference that is constant.",
        next_steps=("set one zone (UTC) for runtime and program before the next incident",),
    ),
}

RULE = Rule(
    name="log_clock_offset",
    texts=TEXTS,
    about="The clock of whoever wrapped the lines of a log and the clock inside them differ.",
    requires=("log",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="A pipe that always holds lines back by the same time, which no runtime does.",
    references=("Kubernetes CRI log format", "Docker json-file"),
)
