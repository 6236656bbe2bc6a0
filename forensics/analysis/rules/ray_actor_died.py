"""A Ray actor ended. Ray names its address and pid, and guesses the same three reasons every time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from forensics.analysis.lives import line_number
from forensics.analysis.rules._advice import TOGETHER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import EvidenceRef, Finding, FindingRole, LogHit, LogSpan, Role, Severity

EARLIER_S = 600
"""What broke within this time before an actor's death may be why it died."""
BLOCK_LINES = 12
"""Of the exception of an actor's death, with all that it names."""
MOST = 8
"""Actors of one engine that are told one by one."""


def evaluate(view: View) -> Iterator[Finding]:
    said = [h for h in view.feeding("ray-actor-died") if not h.fields.get("exit_type", "").startswith("INTENDED")]
    deaths = [h for h in said if h.signature in ("ray-actor-died", "ray-actor-death-reason")]
    # of what runs no actor's method, or of one that nobody asked again, only its raylet speaks
    deaths = deaths or [h for h in said if h.signature == "ray-worker-died"]
    if not deaths:
        return
    named = [h for h in deaths if h.fields.get("actor_pid") or h.fields.get("worker_pid")] or deaths[:1]
    actors: dict[tuple[str, str], LogHit] = {}
    for hit in named:
        ip, pid = hit.fields.get("actor_ip") or hit.fields.get("ip", ""), hit.fields.get("actor_pid") or hit.fields.get("worker_pid", "")
        actors.setdefault((ip, pid), hit)
    agreeing = [h.ref for h in said if h not in named][:3]
    # several at once on several nodes: each raylet tells of its own, and which of them was first is not known
    times = sorted(h.at.earliest_ns for h in actors.values() if h.at)
    tied = len({ip for ip, _ in actors}) > 1 and len(times) > 1 and times[1] - times[0] < SECOND
    for i, ((ip, pid), hit) in enumerate(list(actors.items())[:MOST]):
        yield _finding(view, hit, ip, pid, agreeing, first=i == 0 and not tied)
    if not _raylet_read(view):
        quote = "no raylet log is among the inputs"
        yield view.finding(
            "evidence-missing:raylet-log",
            grade(observed=True),
            title="Nobody saw what the actor's raylet said of its end (no raylet log was read)",
            because=[EvidenceRef(source="coverage", locator="raylet-log", quote=quote), next(iter(actors.values())).ref],
            nodes=list(dict.fromkeys(ip for ip, _ in actors if ip)),
            would_settle=["the exit status of the actor's process, and whether Ray's memory monitor ended it"],
            next_steps=[
                "collect /tmp/ray/session_latest/logs (raylet.out, gcs_server.out, the worker's .err) of that node, and its kernel log"
            ],
        )


def _finding(view: View, hit: LogHit, ip: str, pid: str, agreeing: list[EvidenceRef], first: bool) -> Finding:
    place = " ".join(([f"pid {pid}"] if pid else []) + ([f"on {ip}"] if ip else []))
    went = {"node": " with its node", "owner": " with the process that owned it"}.get(hit.fields.get("went_with", ""), "")
    end = f"{went}: its node was {hit.fields['node_end'].strip()}" if hit.fields.get("node_end") else went
    what = f"actor ({hit.fields.get('actor_class', 'class not told')}{', ' + place if place else ''})"
    if hit.signature == "ray-worker-died":
        what = f"worker process{f' ({place})' if place else ''}"
    mine = [w for w in view.workers if pid and w.pid == int(pid) and w.role is Role.WORKER]
    stopped = view.stopped_ns is not None and hit.at is not None and hit.at.earliest_ns >= view.stopped_ns
    stopped = stopped or _killed(view, hit)
    before = [] if stopped else _earlier(view, hit)
    role = FindingRole.TEARDOWN if stopped else FindingRole.ROOT if first and not before else FindingRole.CASCADE
    finding = view.finding(
        "ray-actor-died",
        grade(observed=True),
        title=f"A Ray {what} ended{end}",
        because=[hit.ref, *agreeing],
        severity=Severity.INFO if stopped else Severity.CRITICAL,
        role=role,
        nodes=[ip] if ip else [],
        ranks=[r for r in (view.rank_of(w.info.node, w.pid) for w in mine) if r is not None] if len(mine) == 1 else [],
        since=hit.at,
        does_not_show="what ended it: Ray prints the same guesses (OOM killer, ray stop, a crash) for every death",
        would_settle=["the raylet's log and the worker's own output on that node", "the kernel log of that node"],
    )
    if not ip and not mine:
        finding = msgspec.structs.replace(finding, nodes=())  # the log is the driver's; the actor may have run anywhere
    return msgspec.structs.replace(finding, pids=(int(pid),)) if pid else finding


def _killed(view: View, hit: LogHit) -> bool:
    """Whether the exception says below itself that a program ended this actor on purpose."""
    said = [h for h in view.hits_of("ray-actor-killed") if (h.node, h.ref.source) == (hit.node, hit.ref.source)]
    return any(0 <= line_number(h.ref) - line_number(hit.ref) <= BLOCK_LINES for h in said)


def _earlier(view: View, hit: LogHit) -> list[LogHit]:
    """What broke before, or in the same second: the actor's end is no root beside it."""
    if hit.at is None:
        return [h for h in _grave(view) if view.before(h, hit)]
    since, until = hit.at.earliest_ns - EARLIER_S * SECOND, hit.at.latest_ns
    return [h for h in _grave(view) if h.at and since <= h.at.earliest_ns <= until]


def _grave(view: View) -> list[LogHit]:
    events = view.events("exception", "worker-death", "timeout", "hang")
    return [h for h in view.hits if (h.role == "root" or h in events) and h.feeds != "ray-actor-died"]


def _raylet_read(view: View) -> bool:
    named = any("raylet" in s.ref.source.rsplit("/", 1)[-1] for s in view.case.of(LogSpan))
    return named or any(h.signature.startswith("ray-raylet-") for h in view.case.of(LogHit))


TEXTS = {
    "ray-actor-died": Text(
        says="A Ray actor of the engine ended. Ray's own explanation is a list of guesses.",
        establishes="Ray's line with the actor's address and pid.",
        next_steps=("read raylet.out and the worker's own files on the node that the line names",),
        over_nodes=(TOGETHER,),
    ),
    "evidence-missing:raylet-log": Text(
        says="The raylet's log of the node where an actor died is not among the inputs: how it died stays open.",
        establishes="The node that Ray names, and no log of it.",
        next_steps=("take /tmp/ray/session_latest/logs of that node: raylet.out, worker-*, python-core-worker-*",),
    ),
}

RULE = Rule(
    name="ray_actor_died",
    texts=TEXTS,
    about="A Ray actor of the engine ended, at the address and with the pid that Ray names.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="Actors that were killed on purpose (ray.kill, an intended exit), and those that end with their engine.",
    references=("ray python/ray/exceptions.py ActorDiedError",),
)
