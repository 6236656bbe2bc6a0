"""Docker's json-file driver, and what log shippers make of it."""

from __future__ import annotations

from typing import Any

from forensics.analysis.logs._format import Format, Peeled, stamped, word


def _decode(record: dict[str, Any], out: Peeled) -> str | None:
    text = record.get("log")
    if not isinstance(text, str) or not ("stream" in record or "time" in record or "kubernetes" in record):
        return None
    out.stream = word(record.get("stream"), 8)
    if time := word(record.get("time"), 64):
        stamped(FORMAT, out, time)
    pod = record.get("kubernetes")
    if isinstance(pod, dict):
        out.host = out.host or word(pod.get("pod_name")) or word(pod.get("host"))
    # the driver stores a line longer than 16 KiB in pieces: only the last ends with a newline
    out.partial = not text.endswith("\n") and bool(text)
    return text


FORMAT = Format(
    name="docker-json",
    wrapper=True,
    starts="",
    stamp="iso",
    decode=_decode,
    order=10,
    samples=(
        '{"log":"(APIServer pid=1) INFO:     Application startup complete.\\n","stream":"stdout","time":"2026-09-01T10:00:00.123456789Z"}',
        '{"log":"x\\n","kubernetes":{"pod_name":"vllm-0","host":"node0"}}',
    ),
    negatives=('{"log": 5, "stream": "stdout"}', '{"log":"x"}', '{"logs":"x","stream":"stdout"}'),
)
