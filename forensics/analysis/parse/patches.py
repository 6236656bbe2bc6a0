"""The operator's patches.toml, and what the patches collector read for it in each process."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.model import PatchReading

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib


def operator_patches(text: str) -> list[dict[str, Any]]:
    """The [[patch]] tables of a patches.toml (see design.md). Raises ValueError with what is wrong."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"not TOML: {error}") from None
    tables = raw.get("patch", [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) and isinstance(t.get("name"), str) for t in tables):
        raise ValueError("every [[patch]] needs a name")
    return tables


class _Function(msgspec.Struct):
    source_sha256: str | None = None


class _Reading(msgspec.Struct):
    patch: str
    pid: int | None = None
    path: str | None = None
    exists: bool | None = None
    mtime_ns: int | None = None
    ctime_ns: int | None = None
    process_started_ns: int | None = None
    image_started_ns: int | None = None
    sha256: str | None = None
    contains: bool | None = None
    function: _Function | None = None
    error: str | None = None


def parse(inp: Input, sink: Sink) -> None:
    for r in msgspec.json.decode(bytes(inp.data), type=list[_Reading]):
        changed = max((t for t in (r.mtime_ns, r.ctime_ns) if t is not None), default=None)
        found = "absent" if r.exists is False else f"contains={r.contains} sha256={(r.sha256 or '')[:12]}"
        sink.add(
            PatchReading(
                node=inp.node,
                at=inp.at,
                ref=inp.ref(f"{r.patch} {r.path or ''}", r.error or found),
                pid=inp.pid if inp.pid is not None else r.pid,
                patch=r.patch,
                path=r.path or "",
                exists=r.exists,
                changed_ns=changed,
                image_started_ns=r.image_started_ns or r.process_started_ns,
                sha256=r.sha256 or "",
                contains=r.contains,
                function_sha256=(r.function.source_sha256 or "") if r.function else "",
                error=r.error or "",
            )
        )


PARSER = Parser("patch-witness", ("patch-witness",), lambda name, head: False, parse)
