"""Dynamo's JSON lines, which are tracing's."""

from __future__ import annotations

from typing import Any

from forensics.analysis.logs._format import LEVELS, Format, Peeled, source_line, stamped, word


def _decode(record: dict[str, Any], out: Peeled) -> str | None:
    level, target = LEVELS.get(word(record.get("level"))), word(record.get("target"))
    time = word(record.get("time")) or word(record.get("timestamp"))
    fields = record.get("fields")
    message = record.get("message", fields.get("message") if isinstance(fields, dict) else None)
    if level is None or not target or not time or not isinstance(message, str):
        return None
    out.level = level
    stamped(FORMAT, out, time)
    head = target.replace("::", ".").partition(".")[0]
    out.engine = (
        "dynamo" if head.startswith("dynamo") else "tgi" if head.startswith("text_generation") else head if head == "vllm" else out.engine
    )
    out.at = source_line(record, "file", "line")
    return message


FORMAT = Format(
    name="dynamo-json",
    wrapper=False,
    starts="",
    stamp="iso",
    decode=_decode,
    order=30,
    samples=(
        '{"time":"2026-11-30T12:00:00.123Z","level":"WARN","file":"lib/runtime/src/lease.rs","line":12,'
        '"target":"dynamo_runtime::transports::etcd::lease","message":"keep alive task failed"}',
    ),
    negatives=('{"time":"2026-11-30T12:00:00.123Z","level":"INFO","message":"no target"}', '{"target":"dynamo_runtime"}'),
)
