"""Log signatures: one TOML file each in forensics/signatures, with its own examples. Data, not code."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

FIELD_TYPES: dict[str, re.Pattern[str]] = {
    "int": re.compile(r"[+-]?\d{1,18}"),
    "float": re.compile(r"[+-]?\d{1,18}(?:\.\d*)?(?:[eE][+-]?\d{1,3})?"),
    "seconds": re.compile(r"\d{1,12}(?:\.\d*)?"),
    "milliseconds": re.compile(r"\d{1,15}(?:\.\d*)?"),
    "bytes": re.compile(r"\d{1,18}"),
    "hex": re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}"),
    "pci": re.compile(r"(?:PCI:)?(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"),
    "address": re.compile(r"\S{1,256}"),
    "text": re.compile(r".*", re.S),
}
_PLAIN = re.compile(r"(?:\\[^\w\s]|[^\\.^$*+?{}\[\]|()])+(?![*+?{])")
ROLES = ("root", "cascade", "teardown", "confirmation", "context")
AFTER_BYTES = 2048
"""How far below a line its block of values may lie."""
EVENTS: dict[str, str] = {
    "start": "the first line of a start: a front reads its arguments, a launcher begins",
    "core-start": "a later line of the same start: the core is put together",
    "ready": "the engine answers from here on",
    "stats": "how far it has come: becomes a ProgressSample",
    "step": "the same, printed with a step: the line itself is movement",
    "place": "a process names its rank and world",
    "wait": "a process has waited as long as its limit, and goes on waiting",
    "timeout": "an execution call got no answer until its limit ran out",
    "hang": "the engine's own hang detector saw no step for as long as its limit",
    "stacks": "stacks that the engine took of its own processes stand below",
    "held": "what was held when a step failed",
    "exception": "a worker raised",
    "told": "the core was told of a worker's failure",
    "worker-death": "a parent found a worker ended",
    "start-failed": "a worker (role root) or the engine failed before it was ready",
    "fatal": "the engine's own end",
    "death-told": "a front that lost its core",
    "stop": "somebody asked the engine to stop",
}
"""What a line is in the life of an engine, whichever engine prints it: the life, the stall and most rules ask for these, not for ids."""


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known line (or the head of a block)."""

    id: str
    feeds: str
    """The finding that it speaks to."""
    engine: str
    """vllm, torch, python, kernel, … or "any"."""
    role: str
    source: str
    """Which released version prints it, where; or the report that it was seen in."""
    literal: str
    """Must stand in the line; the scanner looks for it before it tries the pattern."""
    pattern: str
    """Python regular expression, searched in the message after the prefix; named groups become fields."""
    fields: dict[str, str] = {}
    """Named group to its type, one of FIELD_TYPES (not listed: text). A line in which a field is no such thing is no hit."""
    limit: str = ""
    """The field that holds the limit which ran out ("seconds"), or the limit itself in seconds ("60"): the line is that much late."""
    event: str = ""
    """What the line is in its engine's life, one of EVENTS; "" for the others."""
    telling: str = ""
    """Of a stats line: an expression (of hyperscan and Python alike) for those that count in a log with too many of them to be read all."""
    block: bool = False
    """A traceback follows: read it into exc_type, exc_message, at."""
    after: tuple[str, ...] = ()
    """Patterns for the lines below it (AFTER_BYTES at most), for blocks of "name: value": named groups of the first match become fields."""
    examples: tuple[str, ...]
    counter_examples: tuple[str, ...] = ()
    false_positives: str = ""

    @property
    def regex(self) -> re.Pattern[str]:
        return _compiled(self.pattern)

    def read(self, m: re.Match[str]) -> dict[str, str] | None:
        """The fields of a match; None where one of them is not of its type: a damaged line, or another one that looks alike."""
        found = {name: text for name, text in m.groupdict().items() if text is not None}
        if any(name in found and not FIELD_TYPES[kind].fullmatch(found[name]) for name, kind in self.fields.items()):
            return None
        return found

    def read_after(self, text: str) -> dict[str, str]:
        """Fields that stand in the lines below a match, or on the rest of its own."""
        return {n: v for pattern in self.after if (m := _compiled(pattern).search(text)) for n, v in m.groupdict().items() if v}

    def limit_s(self, fields: dict[str, str]) -> float | None:
        """The limit that had run out when the line was written, in seconds."""
        if not self.limit:
            return None
        text = fields.get(self.limit, "" if self.limit in self.fields else self.limit)
        try:
            return float(text) / (1000 if self.fields.get(self.limit) == "milliseconds" else 1)
        except ValueError:
            return None


def beginning(expression: str) -> str:
    """The plain text that every match of an expression begins with."""
    m = _PLAIN.match(expression)
    return re.sub(r"\\(.)", r"\1", m[0]) if m else ""


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def load_signature(text: str) -> Signature:
    """Parse one TOML text. Raises msgspec.ValidationError, tomllib.TOMLDecodeError or re.error when it is not a signature."""
    signature = _converted(text)
    if signature.role not in ROLES:
        raise msgspec.ValidationError(f"role must be one of {ROLES}")
    if signature.event and signature.event not in EVENTS:
        raise msgspec.ValidationError(f"event must be one of {tuple(EVENTS)}")
    if signature.telling and not beginning(signature.telling):
        raise msgspec.ValidationError("telling must begin with plain text: that is what is looked for")
    groups = {name for pattern in (signature.pattern, *signature.after) for name in re.compile(pattern).groupindex}
    if unknown := [f"{name}: {kind}" for name, kind in signature.fields.items() if name not in groups or kind not in FIELD_TYPES]:
        raise msgspec.ValidationError(f"fields that no group has, or of no known type: {', '.join(unknown)}")
    return signature


def _converted(text: str) -> Signature:
    raw: dict[str, Any] = tomllib.loads(text)
    return msgspec.convert(raw, Signature)


def load_folder(folder: Path) -> tuple[list[Signature], list[str]]:
    """All *.toml of a folder, in the order of their names. Returns (signatures, one line for each file that is none)."""
    found: list[Signature] = []
    broken: list[str] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            signature = load_signature(path.read_text("utf-8"))
        except (OSError, ValueError, re.error, msgspec.MsgspecError) as error:
            broken.append(f"{path}: {_one_line(error)}")
            continue
        if any(signature.id == s.id for s in found):
            broken.append(f"{path}: a second signature called {signature.id}")
        else:
            found.append(signature)
    return found, broken


def _one_line(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split())


@functools.lru_cache(maxsize=1)
def shipped() -> tuple[Signature, ...]:
    """All signatures that ship with the tool, in the order of their ids.

    Not checked again (the tests do): to compile every pattern takes longer than to read the files, and few are ever needed.
    """
    folder = resources.files("forensics") / "signatures"
    found = [_converted(f.read_text("utf-8")) for f in folder.iterdir() if f.name.endswith(".toml")]
    return tuple(sorted(found, key=lambda s: s.id))


@dataclass(frozen=True)
class InForce:
    """What one analysis knows: the signatures that ship, and an operator's own before them."""

    known: tuple[Signature, ...]
    own: tuple[str, ...] = ()
    """Ids from an operator's folders…"""
    replaced: tuple[str, ...] = ()
    """…and those among them that stand in the place of a shipped one."""
    broken: tuple[str, ...] = ()
    """Files in those folders that are no signatures, each with why."""

    def words(self) -> str:
        """For the report: whose signatures were used beside the shipped ones."""
        instead = f", in the place of shipped ones: {', '.join(self.replaced)}" if self.replaced else ""
        return f"{len(self.own)} of the operator's own ({', '.join(self.own[:10])}{', …' if len(self.own) > 10 else ''}){instead}"


_in_force: list[InForce] = []


def signatures() -> tuple[Signature, ...]:
    """All signatures in force; the same tuple until they change."""
    return in_force().known


def in_force() -> InForce:
    """The signatures in force, and where they come from."""
    if not _in_force:
        _in_force.append(InForce(shipped()))
    return _in_force[-1]


def home_folder(kind: str = "signatures") -> Path | None:
    """The operator's standing folder of a kind, $XDG_CONFIG_HOME/forensics/KIND (~/.config by default); None where there is none."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        folder = (Path(base) if Path(base).is_absolute() else Path.home() / ".config") / "forensics" / kind
        return folder if folder.is_dir() else None
    except (OSError, RuntimeError):  # no home, or none that may be looked into
        return None


@contextlib.contextmanager
def using(folders: Sequence[Path]) -> Iterator[InForce]:
    """Within it an operator's signatures are in force too. One with a shipped id replaces that one; a later folder wins over an earlier."""
    own: dict[str, Signature] = {}
    broken: list[str] = []
    for folder in folders:
        found, bad = load_folder(folder)
        own |= {s.id: s for s in found}
        broken += bad
    replaced = tuple(s.id for s in shipped() if s.id in own)
    known = (*own.values(), *(s for s in shipped() if s.id not in own)) if own else shipped()
    _in_force.append(InForce(known, tuple(own), replaced, tuple(broken)))
    try:
        yield _in_force[-1]
    finally:
        _in_force.pop()
