"""Other JSON lines that name a time, a level and a message: etcd, proxies, operators' own."""

from __future__ import annotations

from typing import Any

from forensics.analysis.logs._format import LEVELS, Format, Peeled, number, stamped, word

_TIMES = ("ts", "time", "timestamp", "@timestamp", "asctime")
_LEVELS = ("level", "levelname", "severity", "lvl")
_MESSAGES = ("message", "msg", "textPayload", "event")


def _decode(record: dict[str, Any], out: Peeled) -> str | None:
    time = next((record[k] for k in _TIMES if k in record), None)
    message = next((record[k] for k in _MESSAGES if isinstance(record.get(k), str)), None)
    if not isinstance(message, str) or isinstance(time, bool) or not isinstance(time, (str, int, float)):
        return None
    level = next((LEVELS[word(record[k])] for k in _LEVELS if word(record.get(k)) in LEVELS), "")
    if isinstance(time, str):
        stamped(FORMAT, out, time[:64], "epoch" if time.replace(".", "", 1).isdecimal() else "iso")
    else:
        stamped(FORMAT, out, f"{time:.9f}" if isinstance(time, float) else str(time), "epoch")
    out.level = level or out.level
    out.at = word(record.get("caller")) or out.at
    pid = number(record.get("pid"))
    out.pid = out.pid if pid is None else pid
    return message


FORMAT = Format(
    name="json-lines",
    wrapper=False,
    starts="",
    stamp="iso",
    decode=_decode,
    goes_on=True,
    order=90,
    samples=(
        '{"level": "warn", "ts": "2026-10-08T13:03:48Z", "caller": "etcdserver/util.go:170", "msg": "apply request took too long"}',
        '{"time": "2026-10-08T13:03:16.027Z", "level": "INFO", "message": "started processing request"}',
        '{"ts": 1791464596.027, "level": "error", "msg": "seconds as a number"}',
    ),
    negatives=('{"a": 1}', '{"ts": "2026-10-08T13:03:48Z"}', '{"msg": "no time"}', "[1, 2]", '{"ts": true, "msg": "x"}'),
)
