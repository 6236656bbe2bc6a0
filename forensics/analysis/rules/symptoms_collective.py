"""What ranks print when another one stays away or is gone. It tells when that began, never who began it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from forensics.analysis.rules._advice import NO_LONGER_LIMIT, NOT_THE_REPORTER
from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._positions import rank_of
from forensics.analysis.rules._raised import worker_exceptions
from forensics.analysis.rules._victims import lost_peer
from forensics.analysis.times import SECOND, duration, iso
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, LogHit, Severity, TimeRange

VICTIM = "which rank failed: a rank that reports a timeout waits for another one, and the first to report is not the first to break"
GONE = frozenset({"12", "13"})
"""Completion statuses that say: the peer does not answer (libibverbs, enum ibv_wc_status)."""
FLUSHED = frozenset({"5"})
"""What follows every other status."""
COMPLETION = {
    "1": "a length that does not fit",
    "2": "a fault of the local queue pair",
    "4": "this side's memory may not be accessed",
    "5": "flushed after an earlier error",
    "9": "the peer found the request invalid",
    "10": "the peer's memory may not be accessed",
    "11": "the peer could not carry it out",
}
RAY_LIMITS_S = (10.0, 300.0)
"""Ray's own default, and what vLLM asks for since 0.8: it does not arrive where Ray was imported before."""


def evaluate(view: View) -> Iterator[Finding]:
    for name, title, unknown in SAID:
        hits = [h for h in view.feeding(name) if h.role == "cascade"]
        if name == "symptom-peer-loss":
            lost = [h for h, _ in worker_exceptions(view) if lost_peer(h.fields.get("exc_type", ""), h.fields.get("exc_message", ""))]
            hits = sorted([*lost, *hits], key=lambda h: h.at.earliest_ns if h.at else 0)
        if hits:
            yield _finding(view, name, hits, title(hits, view), unknown)


def _finding(view: View, name: str, hits: list[LogHit], title: str, unknown: str) -> Finding:
    began = [t for h in hits if (t := _began(view, h))]
    ends = [h.at for h in hits if h.at]
    since = min(began, key=lambda t: t.earliest_ns, default=None)
    after = _over(view)
    late = since is not None and after is not None and since.earliest_ns > after
    ranks = sorted({r for h in hits if (r := _global_rank(view, h)) is not None})
    return view.finding(
        name,
        Grade.ESTABLISHED,
        title=title,
        because=[h.ref for h in hits[:6]],
        severity=Severity.INFO if late else Severity.WARNING,
        role=FindingRole.TEARDOWN if late else FindingRole.CASCADE,
        nodes=dict.fromkeys(h.node for h in hits),
        ranks=ranks,
        since=since,
        until=max(ends, key=lambda t: t.latest_ns, default=None),
        does_not_show=unknown,
    )


def _began(view: View, hit: LogHit) -> TimeRange | None:
    if hit.signature != "ray-channel-timeout" or hit.at is None:
        return hit.began
    said = _ray_limit(view)
    least, most = (round(s * SECOND) for s in ((said, said) if said else RAY_LIMITS_S))
    return TimeRange(earliest_ns=hit.at.earliest_ns - most, latest_ns=hit.at.latest_ns - least, basis="inferred")


def _ray_limit(view: View) -> float | None:
    """The limit that the log tells, unless the time that went by since then says that another one was in force."""
    said = view.hits_of("vllm-cgraph-timeout")
    limit = float(said[-1].fields["seconds"]) if said else None
    began = said[-1].at if said else None
    ends = [h.at for h in view.hits_of("ray-channel-timeout") if h.at]
    if limit and began and any(0 <= e.latest_ns - began.earliest_ns < limit * SECOND for e in ends):
        return None
    return limit


def _over(view: View) -> int | None:
    """When the engine had ended or was asked to: what breaks later breaks because of that."""
    ends = [h.at.latest_ns for h in view.events("fatal", "death-told") if h.at]
    return min((*ends, *([view.stopped_ns] if view.stopped_ns is not None else [])), default=None)


def _global_rank(view: View, hit: LogHit) -> int | None:
    known = view.rank_of(hit.node, hit.pid)
    return known if known is not None else rank_of(hit)


def _who(hits: list[LogHit]) -> str:
    ranks = sorted({r for h in hits if (r := rank_of(h)) is not None})
    shown = ", ".join(map(str, ranks[:16])) + (", …" if len(ranks) > 16 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}" if ranks else hits[0].process or "a process"


def _watchdog(hits: list[LogHit], view: View) -> str:
    first = hits[0]
    limit = f" after {duration(first.limit_s)}" if first.limit_s else ""
    works = sorted({f"{h.fields.get('op', '?')} number {h.fields.get('seq', '?')}" for h in hits})
    more = f" and {len(works) - 1} other(s)" if len(works) > 1 else ""
    since = f", which began at {iso(first.began.earliest_ns)}" if first.began else ""
    return f"The watchdog of {_who(hits)} gave up on {works[0]}{more}{limit}{since}"


def _heartbeat(hits: list[LogHit], view: View) -> str:
    limit = next((h.limit_s for h in hits if h.limit_s), None)
    ended = "its process was ended" if view.hits_of("torch-heartbeat-terminates") else "its process was to be ended"
    return f"The watchdog thread of {_who(hits)} made no progress{f' for {duration(limit)}' if limit else ''} and {ended}"


def _ray(hits: list[LogHit], view: View) -> str:
    limit = _ray_limit(view)
    known = duration(limit) if limit else "not known: vLLM asks for 5 min, Ray's own default is 10 s"
    return f"A channel of Ray's compiled graph had nothing to {hits[0].fields.get('way') or 'read'} until its limit ran out ({known})"


def _remote(hits: list[LogHit], view: View) -> str:
    peer = next((f" ({h.fields['peer']})" for h in hits if h.fields.get("peer")), "")
    told = [h.fields["status"] for h in hits if h.fields.get("status")]
    status = next((s for s in told if s not in FLUSHED), told[0] if told else "")
    if status and status not in GONE:
        says = COMPLETION.get(status, "an error")
        return f"NCCL of {_who(hits)} got a failed completion from a remote peer{peer}: status {status}, {says}"
    return f"NCCL of {_who(hits)} lost a remote peer{peer}{f', completion status {status}' if status else ''}"


def _error(hits: list[LogHit], view: View) -> str:
    return f"NCCL of {_who(hits)} failed: {hits[0].fields.get('error', '')[:120]}"


def _peer(hits: list[LogHit], view: View) -> str:
    first = hits[0]
    said = " ".join(t for t in (first.fields.get("exc_type", ""), first.fields.get("exc_message", "")) if t) or first.text
    process = view.process(first.node, first.pid)
    return f"{view.name(process) if process else _who(hits[:1]).capitalize()} lost a peer: {said[:100]}"


SAID: tuple[tuple[str, Callable[[list[LogHit], View], str], str], ...] = (
    ("nccl-watchdog-timeout", _watchdog, f"{VICTIM}; look for the rank that is silent, or that has entered fewer collectives"),
    ("heartbeat-monitor-abort", _heartbeat, "whether this rank is the first: its watchdog hung in a call of CUDA or NCCL, or for the GIL"),
    ("symptom-ray-channel-timeout", _ray, "which actor did not answer, and why"),
    ("symptom-nccl-remote-error", _remote, "which peer went first, and why: a failing link and a process that ends look alike from here"),
    ("symptom-nccl-error", _error, "the cause: it stands in the lines that NCCL or CUDA printed just before"),
    ("symptom-peer-loss", _peer, "which peer went first, and why"),
)

TEXTS = {
    "nccl-watchdog-timeout": Text(
        says="torch's watchdog gave up on a collective. The rank that it names waits for another one.",
        establishes="Its line. The collective began that much earlier.",
        next_steps=(NOT_THE_REPORTER, NO_LONGER_LIMIT),
    ),
    "heartbeat-monitor-abort": Text(
        says=(
            "torch's monitor saw its watchdog thread make no progress and ended the process: a call of CUDA or NCCL hung, or the GIL "
            "was held."
        ),
        establishes="Its line.",
        next_steps=("look for a thread that held the GIL inside a call of CUDA or NCCL", NOT_THE_REPORTER),
    ),
    "symptom-ray-channel-timeout": Text(
        says="A channel of Ray's compiled graph had nothing to read or write until its limit.",
        establishes="Its line.",
        next_steps=("look for the actor that did not answer", NO_LONGER_LIMIT),
    ),
    "symptom-nccl-remote-error": Text(
        says="NCCL lost a remote peer. A failing link and a process that ends look alike from here.",
        establishes="Its line, with the completion status where it is told.",
        next_steps=("look at the peer's node: did its process end first, or its port?",),
    ),
    "symptom-nccl-error": Text(
        says="NCCL failed, and says what of: the cause stands in the lines that NCCL or CUDA printed just before.",
        establishes="Its line.",
        next_steps=("read the lines just before; run once with NCCL_DEBUG=INFO if there are none",),
    ),
    "symptom-peer-loss": Text(
        says="A connection to another rank broke: closed by peer, broken pipe, nothing to receive. The peer went first.",
        establishes="Its line.",
        next_steps=("look for the rank that ended or closed first: every other one prints this",),
    ),
}

RULE = Rule(
    name="symptoms_collective",
    texts=TEXTS,
    about="A rank waited for another one until a limit ran out, or lost its connection to it.",
    requires=("log",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="None for the lines themselves; as a cause they are always wrong. Lines of a plain shutdown are left out.",
    references=("torch ProcessGroupNCCL and TCPStore", "gloo transport/tcp", "NCCL transports", "ray experimental/channel"),
)
