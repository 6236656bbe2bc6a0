"""The journal's own export: `journalctl -o json`."""

from __future__ import annotations

from typing import Any

from forensics.analysis.logs._format import PRIORITY, Format, Peeled, number, stamped, word
from forensics.analysis.logs.formats.syslog import of_program


def _decode(record: dict[str, Any], out: Peeled) -> str | None:
    if not ("MESSAGE" in record and ("__REALTIME_TIMESTAMP" in record or "_SOURCE_REALTIME_TIMESTAMP" in record or "_HOSTNAME" in record)):
        return None
    message = record["MESSAGE"]
    if isinstance(message, list):  # what is not printable is stored as numbers
        message = bytes(b for b in message if isinstance(b, int) and 0 <= b < 256).decode("utf-8", "replace")
    if not isinstance(message, str):
        message = ""  # the journal drops what is too large, and says null
    if time := word(record.get("_SOURCE_REALTIME_TIMESTAMP")) or word(record.get("__REALTIME_TIMESTAMP")):
        stamped(FORMAT, out, time, "epoch")
    out.host = out.host or word(record.get("_HOSTNAME"))
    out.process = word(record.get("SYSLOG_IDENTIFIER")) or word(record.get("_COMM")) or out.process
    pid = number(record.get("_PID", record.get("SYSLOG_PID")))
    out.pid = out.pid if pid is None else pid
    if record.get("_TRANSPORT") == "kernel":
        out.process = "kernel"
    of_program(out, None)
    if "CONTAINER_ID" in record:
        out.process, out.pid = "", None  # those of the runtime that passed it on
    priority = number(record.get("PRIORITY"))
    out.level = PRIORITY[priority] if priority is not None and priority < 8 else out.level
    return message


FORMAT = Format(
    name="journald-json",
    wrapper=True,
    starts="",
    stamp="epoch",
    decode=_decode,
    order=10,
    samples=(
        '{"__REALTIME_TIMESTAMP":"1788256800123456","_HOSTNAME":"node0","SYSLOG_IDENTIFIER":"vllm","_PID":"812","PRIORITY":"6",'
        '"MESSAGE":"INFO 09-01 10:00:00 [core.py:1] x"}',
        '{"__REALTIME_TIMESTAMP":"1788256800123456","_HOSTNAME":"node0","_TRANSPORT":"kernel","MESSAGE":[78,86,82,77]}',
    ),
    negatives=('{"MESSAGE":"alone"}', '{"__REALTIME_TIMESTAMP":"1"}'),
)
