"""A name for a cause that is the same whenever the same thing happens again.

Version 1 is made of three parts:
- the root: the id of the finding that broke first, and the kind of engine;
- the mechanism: the names of code that the finding's title gives (exceptions, functions, files, libraries, an Xid), sorted, each
  digit run as "#". Titles are sentences for people and may be worded anew; the names in them are what the evidence said;
- the versions of the engine, torch and NCCL, as far as they were read.
Ranks, pids, nodes, times, addresses, counts and line numbers are in none of them. Where no root is named there is no fingerprint:
two incidents of which nobody knows the cause are not the same one. Whoever changes what goes in raises VERSION.
"""

from __future__ import annotations

import hashlib
import itertools
import re

import msgspec

from forensics.model import EngineReport, Finding, Report

VERSION = 1
DIGITS = 12
"""Of the hash, in hexadecimal: 48 bits, for some thousand incidents at the most."""
BESIDE = ("torch", "nccl")
"""Components that matter beside the engine's own."""
BROKEN = ("dead", "stalled", "degraded")

_XID = re.compile(r"\bXid \d+")
_WORD = re.compile(r"(?<![\w./-])[A-Za-z_][\w]*(?:(?:\.|::)\w+)*")
_CODE_FILE = re.compile(r"\.(?:py|so|cpp|cc|cu|c|h|go|rs)\b")
_NUMBERS = re.compile(r"\d+")
_MOST_NUMBERS = 1
"""A name with more digit runs is an id or a device, not a name of code."""


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """`cause` leaves the versions out: the same cause under another version has the same one."""

    fingerprint: str
    cause: str
    names: tuple[str, ...] = ()
    versions: dict[str, str] = {}


def is_incident(report: Report) -> bool:
    """Whether anything broke: a healthy engine, one that starts and one that was stopped in order are no incidents."""
    return report.verdict.state in BROKEN or report.root.finding is not None


def fingerprint(report: Report) -> Fingerprint | None:
    """Of the report's root; None where none is named."""
    root = told_root(report)
    if root is None:
        return None
    engine = told_engine(report)
    kind = engine.kind if engine else ""
    names, found = mechanism(root, report), versions(engine)
    cause = _hash(kind, root.id, *names)
    return Fingerprint(
        fingerprint=_hash(cause, *(f"{name}={version}" for name, version in sorted(found.items()))),
        cause=cause,
        names=names,
        versions=found,
    )


def told_root(report: Report) -> Finding | None:
    """The finding that the report's root names."""
    named = [f for f in report.findings if f.id == report.root.finding]
    rank, node = report.root.rank, report.root.node
    exact = [f for f in named if (rank is None or rank in f.ranks) and (node is None or node in f.nodes)]
    return next(iter((*exact, *named)), None)


def told_engine(report: Report) -> EngineReport | None:
    """The engine that the verdict is about."""
    return next((e for e in report.engines if e.root == report.root and e.verdict == report.verdict), None)


def mechanism(root: Finding, report: Report) -> tuple[str, ...]:
    """Names of code in the title of a finding, sorted."""
    title = root.title
    for node in sorted({*root.nodes, *(n for e in report.engines for n in e.nodes)}, key=len, reverse=True):
        title = title.replace(node, " ") if node else title
    words = [*_XID.findall(title), *(_NUMBERS.sub("#", w) for w in _WORD.findall(title) if _of_code(w))]
    return tuple(sorted(set(words)))


def _of_code(word: str) -> bool:
    if len(_NUMBERS.findall(word)) > _MOST_NUMBERS:
        return False
    camel = any(a.islower() and b.isupper() for a, b in itertools.pairwise(word))
    upper_after_dot = any(part[:1].isupper() for part in word.split(".")[1:])
    return "_" in word or "::" in word or camel or upper_after_dot or bool(_CODE_FILE.search(word))


def versions(engine: EngineReport | None) -> dict[str, str]:
    """Component to version, of the engine itself, torch and NCCL. Where processes run different ones: all of them."""
    if engine is None:
        return {}
    found: dict[str, set[str]] = {}
    for build in engine.builds:
        if build.version and build.component in (engine.kind, *BESIDE):
            found.setdefault(build.component, set()).add(build.version)
    if engine.version and engine.kind not in found:
        found[engine.kind] = {engine.version}
    return {name: "+".join(sorted(each)) for name, each in sorted(found.items())}


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join((f"forensics-fingerprint/{VERSION}", *parts)).encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]
