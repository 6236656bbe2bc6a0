"""Ray's memory monitor killed workers: its own line says so. Its guess of three reasons for a dead actor does not."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import grave, part
from forensics.analysis.rules._ray import of_lost_actors
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, Severity


def evaluate(view: View) -> Iterator[Finding]:
    told = [*view.feeding("ray-oom-kill"), *of_lost_actors(view, "ray-oom-kill")]
    killed = [h for h in told if h.role == "root"]
    if not killed:
        return
    first = next((h for h in killed if h.at), killed[0])
    # the summary is printed once a minute: the kill lies up to that long before
    summary = all(h.signature == "ray-oom-killed" for h in killed)
    role = part(view, first.at)
    if role is FindingRole.TEARDOWN and summary:
        role = FindingRole.ROOT
    place = next((h.fields["ip"] for h in told if h.fields.get("ip")), "")
    where = f" on {place}" if place else ""
    workers = any("Worker" in h.text and ("RayWorker" in h.text or "Engine" in h.text) for h in told)
    yield view.finding(
        "ray-oom-kill",
        Grade.ESTABLISHED,
        title=f"Ray's memory monitor killed {first.fields.get('count', 'a')} worker(s){where}: the node ran low on memory",
        because=[h.ref for h in (*killed[:4], *(h for h in told if h.role != "root"))],
        severity=Severity.CRITICAL if grave(role) else Severity.WARNING,
        role=role,
        nodes=[place] if place else list(dict.fromkeys(h.node for h in killed)),  # the head tells it of any node
        since=first.at,
        does_not_show="" if workers else "whether the workers that were killed are those of the engine",
    )


TEXTS = {
    "ray-oom-kill": Text(
        says="Ray's own memory monitor, not the kernel, killed workers.",
        establishes="The monitor's line.",
        next_steps=(
            "see what else runs on that node; the monitor's threshold is RAY_memory_usage_threshold",
            "RAY_memory_monitor_refresh_ms=0 turns the monitor off: read real memory use first; with memory shared by CPU "
            "and GPU it misfires",
        ),
    ),
}

RULE = Rule(
    name="ray_oom",
    texts=TEXTS,
    about="Ray's own memory monitor killed workers of this cluster.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="'There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer' stands at each dead actor.",
    references=("ray src/ray/raylet/node_manager.cc",),
)
