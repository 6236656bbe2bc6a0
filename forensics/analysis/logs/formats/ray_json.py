"""Ray's structured logging: python-json-logger with the ids of job, worker and node."""

from __future__ import annotations

from typing import Any

from forensics.analysis.logs._format import LEVELS, Format, Peeled, number, source_line, stamped, word


def _decode(record: dict[str, Any], out: Peeled) -> str | None:
    message, level = record.get("message"), LEVELS.get(word(record.get("levelname")))
    if not isinstance(message, str) or level is None or not ("job_id" in record or "worker_id" in record):
        return None
    out.level = level
    if time := word(record.get("asctime")):
        stamped(FORMAT, out, time)
    out.engine = "ray"
    out.process = word(record.get("actor_name")) or word(record.get("task_name")) or out.process
    pid = number(record.get("process"))
    out.pid = out.pid if pid is None else pid
    out.at = source_line(record, "filename", "lineno")
    return message


FORMAT = Format(
    name="ray-json",
    wrapper=False,
    starts="",
    stamp="iso",
    decode=_decode,
    order=30,
    samples=(
        '{"asctime":"2026-11-30 12:00:00,123","levelname":"INFO","message":"hello","filename":"a.py","lineno":1,'
        '"job_id":"01000000","worker_id":"ab","node_id":"cd"}',
    ),
    negatives=('{"asctime":"2026-11-30 12:00:00,123","levelname":"INFO","message":"plain"}', '{"job_id":"1"}'),
)
