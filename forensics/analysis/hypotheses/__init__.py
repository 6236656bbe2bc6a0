"""Suspicions and their ledgers. Adding one is one file here that defines SUSPICION; it is found by its presence.

The verdict follows from the entries:
  supported       an entry for it decides, and none of the same part and node decides against it
  possible        something speaks for it, but does not decide, or is contradicted
  refuted         on every node of the engine an entry decides against it, and no part of it was left unread there
  not assessable  all else; the sentence still says for which nodes and parts it is refuted
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable, Sequence

from forensics.analysis.hypotheses._contract import Ask, Suspicion, Told
from forensics.analysis.view import View
from forensics.model import Coverage, Finding, Grade, Hypothesis, LedgerEntry, NodeAnswer, TimeRange

_MOST_SAID = 4
"""Entries named in the sentence for one node."""
_MOST_NODES = 4


class UnknownHypothesis(ValueError):
    """No such hypothesis. The message names those that there are."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown hypothesis {name!r}: expected one of {', '.join(names())}")


@functools.lru_cache(maxsize=1)
def suspicions() -> tuple[Suspicion, ...]:
    """Every hypothesis of this folder: those that are always answered first, each by name."""
    modules = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    found = [importlib.import_module(f"{__name__}.{name}").SUSPICION for name in modules]
    return tuple(sorted(found, key=lambda s: (not s.always, s.name)))


def names() -> list[str]:
    """How each is asked for: "memory", "patch:NAME"."""
    return [f"{s.name}:{s.takes}" if s.takes else s.name for s in suspicions()]


def check(asked: Iterable[str]) -> None:
    """Raise UnknownHypothesis for the first name that there is not."""
    for text in asked:
        name, colon, argument = text.partition(":")
        if not any(
            s.name == name and bool(colon and argument.strip()) is bool(s.takes) and bool(colon) is bool(s.takes) for s in suspicions()
        ):
            raise UnknownHypothesis(text)


def answers(
    view: View,
    findings: Sequence[Finding],
    seen: Coverage,
    asked: Sequence[str],
    *,
    onset: TimeRange | None,
    troubled: bool,
    root: str = "",
) -> list[Hypothesis]:
    """The ledgers of one engine: those that are always answered, and those that were asked for."""
    ended = ended_ns(view) if troubled else None
    wanted = dict.fromkeys((*(s.name for s in suspicions() if s.always), *asked))
    out = []
    for text in wanted:
        name, _, argument = text.partition(":")
        suspicion = next(s for s in suspicions() if s.name == name)
        ask = Ask(view, findings, onset, troubled, root, argument, ended, seen)
        out.append(_answer(suspicion, ask, seen, text, text in asked))
    return out


def ended_ns(view: View) -> int | None:
    """When the first part of an engine had ended, as its log or the kernel tells; None while all of it lives."""
    ends = [h.at.earliest_ns for h in view.events("fatal", "worker-death", "death-told", "start-failed") if h.at]
    gone = [s.at.earliest_ns for p in view.engine.processes if view.ended(p) and (s := view.state_of(p)) and s.at]
    return min((*ends, *gone), default=None)


def _answer(suspicion: Suspicion, ask: Ask, seen: Coverage, name: str, asked: bool) -> Hypothesis:
    try:
        told = list(suspicion.evaluate(ask))
    except Exception as error:  # as with a rule that breaks: the report goes on, and says so
        told = [("unread", LedgerEntry(text=f"this question could not be asked (our defect): {type(error).__name__}: {error}"))]
    settled = {(e.node, e.part) for side, e in told if side == "for" and e.decides}
    told = [(side, e) for side, e in told if side != "unread" or (e.node, e.part) not in settled]
    where = ask.view.nodes if suspicion.of_nodes else ("",)
    lost = [n for n in seen.expected_nodes if n not in seen.seen_nodes]
    nodes = [_node(n, [t for t in told if t[1].node in ("", n)]) for n in where]
    unseen = [f"node {n}" for n in lost if n not in where] if suspicion.of_nodes else []
    unseen += [f"{seen.unseen_node_count} node(s) of this engine"] if suspicion.of_nodes and seen.unseen_node_count else []
    said = {n.verdict for n in nodes}
    if Grade.SUPPORTED in said:
        verdict = Grade.SUPPORTED
    elif Grade.POSSIBLE in said:
        verdict = Grade.POSSIBLE
    elif said == {Grade.REFUTED} and not unseen:
        verdict = Grade.REFUTED
    else:
        verdict = Grade.NOT_ASSESSABLE
    sentence = _sentence(nodes, unseen, told)
    if verdict in (Grade.SUPPORTED, Grade.POSSIBLE) and ask.root and ask.root not in {e.finding for side, e in told if side == "for"}:
        sentence += f" First to break was another: {ask.root}."
    return Hypothesis(
        name=name,
        claim=suspicion.claim.format(argument=ask.argument),
        verdict=verdict,
        sentence=sentence,
        engine=ask.view.engine.id,
        asked=asked,
        supporting=tuple(e for side, e in told if side == "for"),
        against=tuple(e for side, e in told if side == "against"),
        unread=(*(e for side, e in told if side == "unread"), *(LedgerEntry(text=f"{u} was not looked at") for u in unseen)),
        nodes=tuple(nodes),
        does_not_show=suspicion.does_not_show if verdict in (Grade.SUPPORTED, Grade.POSSIBLE) else "",
    )


def _node(node: str, told: Sequence[Told]) -> NodeAnswer:
    supporting = [e for side, e in told if side == "for"]
    against = [e for side, e in told if side == "against"]
    refuting = {e.part for e in against if e.decides}
    firm = [e for e in supporting if e.decides and e.part not in refuting]
    if firm:
        return NodeAnswer(node=node, verdict=Grade.SUPPORTED, said=_texts(firm))
    if supporting:
        return NodeAnswer(node=node, verdict=Grade.POSSIBLE, said=_texts(supporting))
    said = _texts(sorted(against, key=lambda e: not e.decides))
    if refuting and not any(side == "unread" for side, _ in told):
        return NodeAnswer(node=node, verdict=Grade.REFUTED, said=said)
    return NodeAnswer(node=node, verdict=Grade.NOT_ASSESSABLE, said=said)


def _texts(entries: Iterable[LedgerEntry]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(e.text.rstrip(".") for e in entries))[:_MOST_SAID]


def _sentence(nodes: Sequence[NodeAnswer], unseen: Sequence[str], told: Sequence[Told]) -> str:
    """What the verdict of each node rests on and what was not looked at there, nodes of like words together."""
    alike: dict[tuple[Grade, str], list[str]] = {}
    for n in nodes:
        blind = dict.fromkeys(e.text for side, e in told if side == "unread" and e.node in ("", n.node))
        words = "; ".join((*n.said, *([f"not looked at: {', '.join(blind)}"] if blind else [])))
        alike.setdefault((n.verdict, words or "nothing was read that speaks to it"), []).append(n.node)
    parts = []
    for grade in (Grade.SUPPORTED, Grade.POSSIBLE, Grade.REFUTED, Grade.NOT_ASSESSABLE):
        mine = [(words, where) for (g, words), where in alike.items() if g is grade]
        for words, where in mine[:_MOST_NODES]:
            names = ", ".join(where) if len(where) <= _MOST_NODES else f"{len(where)} nodes"
            whose = f"{grade.value.capitalize()} for {names}: " if len(alike) > 1 or (unseen and where != [""]) else ""
            parts.append(whose + words)
        if more := sum(len(where) for _, where in mine[_MOST_NODES:]):
            parts.append(f"{grade.value.capitalize()} for {more} more nodes")
    return ". ".join((*parts, *(f"{u} not looked at" for u in unseen))) + "."


__all__ = ["Ask", "Suspicion", "UnknownHypothesis", "answers", "check", "names", "suspicions"]
