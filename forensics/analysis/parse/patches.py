"""The operator's patches.toml, and what the patches collector read for it in each process."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.model import CodePlace, ConstantReading, FunctionReading, PatchReading

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


ENTRIES_MAX = 1000
"""Functions or constants of one process. An honest file holds dozens."""


VALUES_MAX, VALUE_CHARS = 32, 100
"""Different values of one constant: a number, a flag or a name each."""


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


class _Place(msgspec.Struct):
    file: str = ""
    name: str = ""
    line: int = 0
    sha256: str = ""
    why: str = ""
    own_file: bool | None = None


class _Definition(msgspec.Struct):
    line: int = 0
    decorated: bool = False
    code_sha256: str | None = None


class _Disk(msgspec.Struct):
    path: str = ""
    changed_ns: int | None = None
    defined: list[_Definition] = []
    rebound: list[int] = []
    compiled: bool = False
    error: str = ""


class _Code(msgspec.Struct):
    module: str
    function: str
    status: str = ""
    inherited_from: str = ""
    module_file: str = ""
    chain: list[_Place] = []
    disk: _Disk | None = None
    error: str = ""


class _Value(msgspec.Struct):
    value: str | float | int | bool | None = None
    equal: bool | None = None
    count: int = 1


class _Constant(msgspec.Struct):
    patch: str
    object: str = ""
    status: str = ""
    readings: list[_Value] = []
    searched: bool = False
    error: str = ""


class _Live(msgspec.Struct):
    python: str = ""
    ours: str = ""
    process_started_ns: int | None = None
    image_started_ns: int | None = None
    code: list[_Code] = []
    constants: list[_Constant] = []


def parse_live(inp: Input, sink: Sink) -> None:
    live = msgspec.json.decode(bytes(inp.data), type=_Live)
    started_ns = live.image_started_ns or live.process_started_ns
    for f in live.code[:ENTRIES_MAX]:
        disk = f.disk or _Disk()
        outer = f.chain[0] if f.chain else None
        quote = f"{outer.file}:{outer.line} {outer.name} code_sha256={outer.sha256 or outer.why}" if outer else f.error or f.status
        sink.add(
            FunctionReading(
                node=inp.node,
                at=inp.at,
                ref=inp.ref(f"{f.module}.{f.function}", quote),
                pid=inp.pid,
                module=f.module,
                function=f.function,
                status=f.status,
                module_file=f.module_file,
                inherited_from=f.inherited_from,
                chain=tuple(CodePlace(file=p.file, line=p.line, name=p.name, sha256=p.sha256, own_file=p.own_file) for p in f.chain),
                definitions=tuple(
                    CodePlace(file=disk.path, line=d.line, sha256=d.code_sha256 or "", decorated=d.decorated) for d in disk.defined
                ),
                rebound=tuple(disk.rebound),
                asked=f.disk is not None,
                compiled=disk.compiled,
                python=live.python,
                same_python=bool(live.python) and live.python == live.ours,
                changed_ns=disk.changed_ns,
                image_started_ns=started_ns,
                error=f.error or disk.error or next((p.why for p in f.chain if p.why), ""),
            )
        )
    for c in live.constants[:ENTRIES_MAX]:
        values = [json.dumps(v.value, allow_nan=False)[:VALUE_CHARS] for v in c.readings[:VALUES_MAX]]
        said = ", ".join(f"{text} ({v.count} x)" for text, v in zip(values, c.readings, strict=False))
        sink.add(
            ConstantReading(
                node=inp.node,
                at=inp.at,
                ref=inp.ref(f"{c.patch} {c.object}", said or c.error or c.status),
                pid=inp.pid,
                patch=c.patch,
                object=c.object,
                status=c.status,
                values=tuple(values),
                equal=tuple(v.equal is True for v in c.readings[:VALUES_MAX]),
                asked=any(v.equal is not None for v in c.readings),
                counts=tuple(v.count for v in c.readings[:VALUES_MAX]),
                searched=c.searched,
                error=c.error,
            )
        )


PARSER = Parser("patch-witness", ("patch-witness",), lambda name, head: False, parse)
LIVE_PARSER = Parser("patch-live", ("patch-live",), lambda name, head: False, parse_live)
