"""manifest.json: what a sealed bundle says of itself, written strictly and read with suspicion."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from forensics.model import Attempt, Evidence, Record

SCHEMA = "forensics.bundle/1"
MANIFEST_LIMIT_BYTES = 64 * 1024 * 1024
"""A full capture of a large node needs about 1 MB. What is larger was not written by us."""
MAX_RECORDS = 100_000
INT_LIMIT = 2**63

T = TypeVar("T", bound=msgspec.Struct)


class Manifest(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Who was photographed, when, why, with what result. Times are ns since the epoch."""

    schema: str = SCHEMA
    tool: str = ""
    node: str = ""
    boot_id: str = ""
    incident: str = ""
    trigger: str = ""
    reason: str = ""
    profile: str = ""
    started_ns: int = 0
    ended_ns: int = 0
    utc_offset_s: int | None = None
    timezone: str = ""
    attempts: tuple[Attempt, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    redactions: dict[str, int] = {}
    """Kind of secret to the number of places where one was replaced."""
    engines: msgspec.Raw = msgspec.Raw(b"[]")
    """For people who read the file. Analysis works from the process table and never from this."""


class Decoded(msgspec.Struct):
    """A manifest as far as it could be read, and a sentence for everything that could not."""

    manifest: Manifest | None
    losses: list[str]


def decode_manifest(raw: bytes) -> Decoded:
    """Decode a manifest from hostile bytes. Never raises: whatever does not decode becomes a loss.

    Unknown fields are ignored (a newer tool wrote them). A record that does not decode is lost alone, not its neighbours.
    """
    losses: list[str] = []
    if len(raw) > MANIFEST_LIMIT_BYTES:
        return Decoded(None, [f"manifest.json is larger than {MANIFEST_LIMIT_BYTES >> 20} MiB and was not read"])
    fields = _decode(raw, dict[str, msgspec.Raw], "manifest.json", losses)
    if fields is None:
        return Decoded(None, losses)
    values: dict[str, Any] = {}
    for name, kind in _SCALARS.items():
        if name in fields:
            value = _decode(bytes(fields[name]), kind, f"manifest.json: field {name}", losses)
            if value is not None and _bounded(value):
                values[name] = value
    for name, record in (("attempts", Attempt), ("evidence", Evidence)):
        values[name] = _records(fields.get(name), record, name, losses)
    if "engines" in fields:
        values["engines"] = fields["engines"].copy()
    if not str(values.get("schema", "")).startswith("forensics.bundle/"):
        losses.append("manifest.json does not say that it is a forensics bundle; it was read as one all the same")
    elif values["schema"] != SCHEMA:
        losses.append(f"manifest.json has schema {values['schema'][:40]}, this version knows {SCHEMA}: newer fields were ignored")
    return Decoded(Manifest(**values), losses)


_SCALARS: dict[str, Any] = {
    **dict.fromkeys(("schema", "tool", "node", "boot_id", "incident", "trigger", "reason", "profile", "timezone"), str),
    **dict.fromkeys(("started_ns", "ended_ns"), int),
    "utc_offset_s": int | None,
    "redactions": dict[str, int],
}


def _records(raw: msgspec.Raw | None, record: type[T], name: str, losses: list[str]) -> tuple[T, ...]:
    if raw is None:
        return ()
    lines = _decode(bytes(raw), list[msgspec.Raw], f"manifest.json: field {name}", losses) or []
    if len(lines) > MAX_RECORDS:
        losses.append(f"manifest.json: {len(lines)} {name}, the first {MAX_RECORDS} were read")
    return tuple(found for line in lines[:MAX_RECORDS] if (found := decode_record(bytes(line), record, name, losses)) is not None)


def decode_record(raw: bytes, record: type[T], name: str, losses: list[str]) -> T | None:
    """One Attempt or Evidence from hostile JSON, or None with a loss."""
    found: T | None = _decode(raw, record, f"a record of {name}", losses)
    if found is not None and not all(_bounded(value) for value in msgspec.structs.astuple(found)):
        losses.append(f"a record of {name} holds a number beyond 64 bits and was dropped")
        return None
    return found


def _bounded(value: object) -> bool:
    return not isinstance(value, int) or -INT_LIMIT < value < INT_LIMIT


def _decode(raw: bytes, kind: Any, what: str, losses: list[str]) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    # msgspec: malformed or mistyped (NaN and Infinity are malformed to it), not UTF-8, nested deeper than the stack
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError, MemoryError) as error:
        losses.append(f"{what} cannot be read ({type(error).__name__}: {str(error)[:120]})")
        return None
