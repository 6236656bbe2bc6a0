"""A small real bundle, for everybody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forensics.bundle import BundleWriter
from forensics.model import Attempt, Outcome

HEAD = {"node": "node7", "boot_id": "b-1", "incident": "INC-7", "started_ns": 5, "utc_offset_s": 7200}
ORDER = ["stacks", "queues", "process", "kernel", "rpclogs"]


def fill(writer: BundleWriter, logs: int = 6) -> None:
    """Evidence of several collectors, written in another order than that of their volatility."""
    writer.add("discovery/processes.json", "process-table", json.dumps([{"pid": 7, "title": "VLLM::EngineCore"}]), collector="discovery")
    for number in range(logs):
        text = "".join(f"(Worker_TP{number} pid={number}) INFO 01-02 03:04:05 [x.py:{i}] step {i * 7919 % 10007}\n" for i in range(400))
        writer.add(f"rpclogs/node-{number}.log", "log", text, collector="rpclogs", pid=number, source=f"/var/log/{number}.log")
    for sample in (1, 2):
        stack = json.dumps([{"pid": 7, "thread_id": sample, "frames": [{"name": f"f{i}", "line": i} for i in range(200)]}])
        writer.add(
            f"stacks/pid-7.{sample}.json", "pyspy-json", stack, collector="stacks", pid=7, sample=sample, at_ns=1_700_000_000_000_000_000
        )
    writer.add("kernel/dmesg.txt", "kernel-log", "[1.0] quiet\n", collector="kernel", truncated=True)
    writer.attempt(Attempt(collector="stacks", target="pid 7", outcome=Outcome.OK, evidence=("stacks/pid-7.1.json",)))
    writer.attempt(Attempt(collector="gpu", target="node", outcome=Outcome.ABSENT, reason="no NVML"))


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A sealed bundle directory; `<it>.tar.gz` lies beside it."""
    with BundleWriter(tmp_path, "node7-20260102T030405Z", head=HEAD) as writer:
        fill(writer)
        writer.seal(ended_ns=9, profile="standard", trigger="operator", reason="a test")
        writer.pack(ORDER, keep=True)
        return writer.path


@pytest.fixture
def packed(sealed: Path) -> Path:
    return sealed.with_name(sealed.name + ".tar.gz")
