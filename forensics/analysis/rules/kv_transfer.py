"""Blocks of a prompt that went from one engine to another, and did not arrive: what either side says of it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._transfers import healthy_around, own_role, total
from forensics.analysis.times import SECOND, duration
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, LogHit, Severity, TimeRange

CERTAIN = {
    "vllm-nixl-kv-expired": Grade.ESTABLISHED,
    "vllm-mooncake-kv-expired": Grade.ESTABLISHED,
    "sglang-kv-bootstrap-timeout": Grade.ESTABLISHED,
    "sglang-kv-prefill-lost": Grade.SUPPORTED,  # heartbeats went unanswered: one side's word
    "nixl-remote-disconnect": Grade.SUPPORTED,
    "vllm-mooncake-bootstrap-unreachable": Grade.SUPPORTED,
    "sglang-kv-send-failed": Grade.ESTABLISHED,
    "vllm-mooncake-send-failed": Grade.ESTABLISHED,
    "vllm-mooncake-sender-died": Grade.ESTABLISHED,
    "sglang-kv-transfer-thread-died": Grade.ESTABLISHED,
    "sglang-kv-prefill-transfer-failed": Grade.ESTABLISHED,
    "sglang-kv-transfer-worker-error": Grade.ESTABLISHED,
    "sglang-kv-prefill-reported-failure": Grade.SUPPORTED,
    "vllm-mooncake-pull-failed": Grade.SUPPORTED,
    "sglang-kv-wait-timeout": Grade.ESTABLISHED,
    "sglang-kv-nixl-wait-timeout": Grade.ESTABLISHED,
    "vllm-nixl-push-timeout": Grade.ESTABLISHED,
    "vllm-mooncake-producer-not-ready": Grade.ESTABLISHED,
}
"""What one line alone settles of its finding; lines that are not listed speak of it and no more."""
WORDS = {
    "kv-transfer-not-retrieved": "{n} prompt(s) were computed and nobody fetched their blocks{limit}",
    "kv-transfer-peer-gone": "The other side of a KV transfer was lost ({n} line(s)){peer}",
    "kv-sender-failed": "The sending side of a KV transfer failed ({n} line(s)){peer}",
    "kv-receiver-waits-forever": "{n} request(s) waited for KV blocks that did not come{limit}",
}
OPEN = {
    "kv-transfer-not-retrieved": "why: the decode side died, or cannot reach the address, or the client gave up",
    "kv-transfer-peer-gone": "whether the peer ended: a link that went down looks the same from here",
    "kv-sender-failed": "whether the sender or its transport is at fault",
    "kv-receiver-waits-forever": "whether the other side failed, or never got the request",
}


def evaluate(view: View) -> Iterator[Finding]:
    aborted = {h.fields.get("request", "") for h in view.hits_of("vllm-request-aborted", "vllm-request-client-gone")} - {""}
    for id in WORDS:
        hits = [h for h in view.feeding(id) if not _given_up(h, aborted)]
        telling = [h for h in hits if h.role == "root"]
        if telling:
            yield _finding(view, id, telling, [h for h in hits if h not in telling])
        elif lost := [h for h in hits if h.role == "context" and h.fields.get("reason") and ASKED not in h.fields["reason"]]:
            yield _mentioned(view, id, lost)


ASKED = "Aborted by"
"""A client or a router ended the request itself."""


def _mentioned(view: View, id: str, hits: list[LogHit]) -> Finding:
    """Requests that failed for want of their blocks, where no line says which side broke."""
    return view.finding(
        id,
        Grade.POSSIBLE,
        title=f"{total(hits)} line(s) say that a request did not get its KV blocks: {hits[0].fields['reason'][:160]}",
        because=[h.ref for h in hits[:6]],
        severity=Severity.WARNING,
        role=FindingRole.CONTEXT,
        nodes=dict.fromkeys(h.node for h in hits),
        since=hits[0].at,
        does_not_show="which side broke: another rank, or the engine that should have sent them",
        would_settle=["the connector's lines of both sides and of all ranks"],
    )


def _given_up(hit: LogHit, aborted: set[str]) -> bool:
    """Whether the client of this request had gone: nobody fetches what nobody wants."""
    request = hit.fields.get("request", "")
    return bool(request) and any(request.startswith(a) or a.startswith(request) for a in aborted)


def _finding(view: View, id: str, hits: list[LogHit], others: list[LogHit]) -> Finding:
    dated = [h for h in hits if h.at]
    first = min(dated, key=lambda h: h.began.earliest_ns if h.began else 0) if dated else hits[0]
    last = max(dated, key=lambda h: h.at.latest_ns if h.at else 0) if dated else hits[0]
    certain = max((CERTAIN.get(h.signature, Grade.POSSIBLE) for h in hits), key=lambda g: g.strength)
    if certain is Grade.POSSIBLE and len({h.signature for h in (*hits, *others)}) > 1:
        certain = Grade.SUPPORTED
    role = own_role(view, hits)
    if role is FindingRole.ROOT and healthy_around(view, first, last):
        role = FindingRole.CONTEXT
    limits = [h.limit_s for h in hits if h.limit_s]
    peers = dict.fromkeys(h.fields[k] for h in hits for k in ("address", "peer") if h.fields.get(k))
    title = WORDS[id].format(
        n=total(hits), limit=f" within {duration(min(limits))}" if limits else "", peer=f": {', '.join(list(peers)[:3])}" if peers else ""
    )
    return view.finding(
        id,
        certain,
        title=title,
        because=[h.ref for h in (first, *hits[:3], *others[:2], last)],
        severity=Severity.CRITICAL if role is FindingRole.ROOT else Severity.WARNING,
        role=role,
        nodes=dict.fromkeys(h.node for h in hits),
        since=first.began,
        until=_over(view, last),
        does_not_show=OPEN[id],
        would_settle=["the connector's lines of both sides", "the log and the kernel's log of the other side"],
    )


def _over(view: View, last: LogHit) -> TimeRange | None:
    """When it was over: the engine moved, without another such line, for a while after the last one."""
    if last.at is None:
        return None
    quiet = last.at.latest_ns + 30 * SECOND
    after = [i for i in view.progress.log if i.moved and i.since_ns is not None and i.since_ns > quiet]
    return last.at if len(after) > 2 else None


TEXTS = {
    "kv-transfer-not-retrieved": Text(
        says="A prefill engine's blocks were not fetched by anybody before their time was over.",
        establishes="The connector's own expiry line.",
        lower="In traffic that moves it is context: clients that gave up leave such blocks.",
        next_steps=("look at the other engine of the pair: the side that complains is seldom the one that failed",),
    ),
    "kv-transfer-peer-gone": Text(
        says="The other side of a KV transfer was lost.",
        establishes="The connector's own error that names the peer or the connection.",
        next_steps=("look at the other engine of the pair: the side that complains is seldom the one that failed",),
    ),
    "kv-sender-failed": Text(
        says="The sending side of a KV transfer failed.",
        establishes="The connector's error line on the sending engine.",
        lower="Supported: only the receiver says so.",
        next_steps=("look at the other engine of the pair: the side that complains is seldom the one that failed",),
    ),
    "kv-receiver-waits-forever": Text(
        says="A receiver waits for blocks that nobody sends, and its request is parked.",
        establishes="The receiver's wait, together with the sender's failure or absence.",
        lower="Supported: only one side was seen.",
        next_steps=(
            "look at the other engine of the pair: the side that complains is seldom the one that failed",
            "bound the wait, so that a lost sender fails the request and not the engine",
        ),
    ),
}

RULE = Rule(
    name="kv_transfer",
    texts=TEXTS,
    about="A connector says that KV blocks were not fetched, could not be sent, did not come, or that its peer was lost.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="Requests whose clients gave up leave blocks that nobody fetches: in traffic that moves they are told as context.",
    references=("vllm kv_connector/v1/{nixl,mooncake}", "sglang srt/disaggregation"),
)
