"""Python's logging as JSON (python-json-logger), which vLLM and others offer."""

from __future__ import annotations

from typing import Any

from forensics.analysis.logs._format import LEVELS, Format, Peeled, number, source_line, stamped, word
from forensics.analysis.logs.formats.python_basic import engine_of


def _decode(record: dict[str, Any], out: Peeled) -> str | None:
    message = record.get("message", record.get("msg"))
    level = LEVELS.get(word(record.get("levelname", record.get("level"))))
    time = word(record.get("asctime"))
    if not isinstance(message, str) or level is None or not time or "job_id" in record or "worker_id" in record:
        return None
    out.level = level
    stamped(FORMAT, out, time)
    out.process = word(record.get("processName")) or out.process
    out.pid = number(record.get("process")) if number(record.get("process")) is not None else out.pid
    out.engine = engine_of(word(record.get("name"))) or out.engine
    out.at = source_line(record, "filename" if word(record.get("filename")) else "fileinfo", "lineno")
    trace = record.get("exc_info")
    return f"{message}\n{trace}" if isinstance(trace, str) else message


FORMAT = Format(
    name="python-json",
    wrapper=False,
    starts="",
    stamp="iso",
    decode=_decode,
    order=40,
    samples=(
        '{"asctime": "2026-09-01 10:00:00,123", "levelname": "ERROR", "name": "vllm.v1.engine.core", "processName": "EngineCore",'
        ' "process": 77, "message": "EngineCore encountered a fatal error."}',
    ),
    negatives=(
        '{"message": "no time", "levelname": "INFO"}',
        '{"asctime": "2026-09-01 10:00:00", "levelname": "INFO", "message": 5}',
        "{broken",
    ),
)
