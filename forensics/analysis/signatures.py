"""Log signatures: one TOML file each in forensics/signatures, with its own examples. Data, not code."""

from __future__ import annotations

import functools
import re
import sys
from importlib import resources
from typing import Any

import msgspec

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

ROLES = ("root", "cascade", "teardown", "confirmation", "context")


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
    block: bool = False
    """A traceback follows: read it into exc_type, exc_message, at."""
    examples: tuple[str, ...]
    counter_examples: tuple[str, ...] = ()
    false_positives: str = ""

    @property
    def regex(self) -> re.Pattern[str]:
        return _compiled(self.pattern)


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def load_signature(text: str) -> Signature:
    """Parse one TOML text. Raises msgspec.ValidationError, tomllib.TOMLDecodeError or re.error when it is not a signature."""
    raw: dict[str, Any] = tomllib.loads(text)
    signature = msgspec.convert(raw, Signature)
    if signature.role not in ROLES:
        raise msgspec.ValidationError(f"role must be one of {ROLES}")
    re.compile(signature.pattern)
    return signature


@functools.lru_cache(maxsize=1)
def signatures() -> tuple[Signature, ...]:
    """All signatures that ship with the tool, in the order of their ids."""
    folder = resources.files("forensics") / "signatures"
    found = [load_signature(f.read_text("utf-8")) for f in folder.iterdir() if f.name.endswith(".toml")]
    return tuple(sorted(found, key=lambda s: s.id))
