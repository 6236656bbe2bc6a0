"""Whatever stands around the lines of a log, the same incident is told."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from forensics.analysis import analyze

START = datetime(2026, 9, 1, 9, 0)
RAISED = [
    "WorkerProc hit an exception.",
    "Traceback (most recent call last):",
    '  File "/opt/site-packages/acme/offload.py", line 40, in put',
    "    self.queue.put_nowait(block)",
    '  File "/usr/lib/python3.12/queue.py", line 136, in put',
    "    raise Full",
    "queue.Full",
]
TOLD = [
    "EngineCore encountered a fatal error.",
    *RAISED[1:2],
    '  File "/opt/vllm/v1/engine/core.py", line 9, in step',
    "    x()",
    "RuntimeError: Worker failed with error ''",
]


def lines():
    def at(seconds):
        return f"{START + timedelta(seconds=seconds):%m-%d %H:%M:%S}"

    yield (
        0,
        f"(EngineCore pid=70) INFO {at(0)} [core.py:112] Initializing a V1 LLM engine (v0.25.1) with config: model='/m', tensor_parallel_size=2",
    )
    yield 90, "(APIServer pid=1) INFO:     Application startup complete."
    for i in range(9):
        said = "Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 80.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%"
        yield 100 + i * 10, f"(APIServer pid=1) INFO {at(100 + i * 10)} [loggers.py:310] Engine 000: {said}, Prefix cache hit rate: 0.0%"
    for text in RAISED:
        yield 190, f"(Worker_TP1 pid=72) ERROR {at(190)} [multiproc_executor.py:9] {text}"
    for text in TOLD:
        yield 191, f"(EngineCore pid=70) ERROR {at(191)} [core.py:99] {text}"


def stamp(seconds, form):
    return f"{START + timedelta(seconds=seconds, milliseconds=200):{form}}"


AROUND = {
    "nothing": lambda s, text: text,
    "docker": lambda s, text: json.dumps({"log": text + "\n", "stream": "stdout", "time": stamp(s, "%Y-%m-%dT%H:%M:%S.%f") + "Z"}),
    "cri": lambda s, text: stamp(s, "%Y-%m-%dT%H:%M:%S.%f") + "Z stdout F " + text,
    "cri of another zone": lambda s, text: stamp(s + 7200, "%Y-%m-%dT%H:%M:%S.%f") + "+02:00 stdout F " + text,
    "kubectl and pod": lambda s, text: "[pod/vllm-0/engine] " + stamp(s, "%Y-%m-%dT%H:%M:%S.%f") + "Z " + text,
    "compose": lambda s, text: "vllm-1  | " + text,
    "stern": lambda s, text: "vllm-0 engine " + text,
    "srun": lambda s, text: " 0: " + text,
    "syslog": lambda s, text: stamp(s, "%b %d %H:%M:%S") + " node0 vllm[7]: " + text,
    "journal": lambda s, text: json.dumps(
        {
            "__REALTIME_TIMESTAMP": str(int((START - datetime(1970, 1, 1)).total_seconds() + s) * 10**6),
            "_HOSTNAME": "node0",
            "MESSAGE": text,
        }
    ),
    "ray": lambda s, text: "\x1b[36m(Engine(Inner) pid=5, ip=192.0.2.1)\x1b[0m " + text,
    "shipper in another zone": lambda s, text: stamp(s + 28800, "%Y-%m-%d %H:%M:%S.%f ") + text,
    "carriage returns": lambda s, text: text + "\r",
    "terminal": lambda s, text: "\u2502 " + text.ljust(180) + " \u2502",
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_the_same_is_told(tmp_path, around):
    (tmp_path / "node0.log").write_text("\n".join(around(s, text) for s, text in lines()) + "\n")
    (tmp_path / "notes.txt").write_text("written on 2026-09-02\n")
    report = analyze([tmp_path])
    found = {f.id: f for f in report.findings}
    assert {"bounded-queue-overflow", "engine-died"} <= set(found)
    assert 1 in found["bounded-queue-overflow"].ranks
    raised = (START + timedelta(seconds=190) - datetime(1970, 1, 1)).total_seconds()
    assert abs(found["bounded-queue-overflow"].since.earliest_ns / 1e9 - raised) < 1.5
