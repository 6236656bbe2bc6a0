"""From a folder to the finding: the rule log_clock_offset."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from forensics.analysis import analyze
from forensics.model import Grade

START = datetime(2026, 9, 1, 9, 0, tzinfo=timezone.utc)


def at(seconds, hours=0):
    return START + timedelta(seconds=seconds, hours=hours)


def log(outer_hours=0, inner_hours=0, lag=0.4, outer="plain", lines=12):
    out = []
    for i in range(lines):
        t = i * 10
        inner = f"(EngineCore pid=77) INFO {at(t, inner_hours):%m-%d %H:%M:%S} [core.py:{i}] step {i}"
        if i == lines - 1:
            inner = f"(EngineCore pid=77) ERROR {at(t, inner_hours):%m-%d %H:%M:%S} [core.py:99] EngineCore encountered a fatal error."
        passed = at(t + (lag(i) if callable(lag) else lag), outer_hours)
        if outer == "docker":
            out.append(json.dumps({"log": inner + "\n", "stream": "stdout", "time": f"{passed:%Y-%m-%dT%H:%M:%S.%f}Z"}))
        elif outer == "kubectl":
            out.append(f"{passed:%Y-%m-%dT%H:%M:%S.%f}Z {inner}")
        else:
            out.append(f"{passed:%Y-%m-%d %H:%M:%S.%f} {inner}")
    return "\n".join(out) + "\n"


def found(tmp_path, text):
    (tmp_path / "node0.log").write_text(text)
    report = analyze([tmp_path])
    return report, [f for f in report.findings if f.id == "log-clock-offset"]


@pytest.mark.parametrize("outer", ["plain", "kubectl", "docker"])
def test_a_zone_apart_is_said_and_events_are_dated_by_one_clock(tmp_path, outer):
    report, (finding,) = found(
        tmp_path, log(outer=outer, outer_hours=5.5 if outer == "plain" else 0, inner_hours=0 if outer == "plain" else 9)
    )
    assert finding.grade is Grade.ESTABLISHED
    assert ("5 h 30 min ahead" if outer == "plain" else "9 h 0 min behind") in finding.title
    (died,) = [f for f in report.findings if f.id == "engine-died"]
    assert abs(died.since.earliest_ns / 1e9 - at(110.4).timestamp()) < 1


@pytest.mark.parametrize("lag", [0.4, lambda i: 110 - 10 * i + 1], ids=["at once", "from a buffer"])
def test_clocks_that_agree_are_not_mentioned(tmp_path, lag):
    assert not found(tmp_path, log(outer="kubectl", lag=lag))[1]


def test_too_few_lines_prove_nothing(tmp_path):
    assert not found(tmp_path, log(outer_hours=8, lines=2))[1]


def test_a_zone_that_one_log_of_a_node_names_holds_for_its_kernel_log(tmp_path):
    lines = [
        f"{at(i * 10, 8):%Y-%m-%dT%H:%M:%S}+08:00 stdout F (EngineCore pid=77) INFO {at(i * 10, 8):%m-%d %H:%M:%S} [core.py:1] step"
        for i in range(9)
    ]
    (tmp_path / "node0.log").write_text("\n".join(lines) + "\n")
    (tmp_path / "node0.kernel.log").write_text(
        f"{at(30, 8):%b %d %H:%M:%S} node0 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    )
    (tmp_path / "node1.kernel.log").write_text(
        f"{at(30):%b %d %H:%M:%S} node1 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    )
    report = analyze([tmp_path])
    since = [f.since.earliest_ns / 1e9 for f in report.findings if f.id == "gpu-off-bus"]
    assert since
    assert all(abs(s - at(30).timestamp()) < 2 for s in since)
    assert not [f for f in report.findings if f.id == "log-clock-offset"]


@pytest.mark.parametrize("apart", [False, True], ids=["in one journal", "in a file of its own"])
def test_the_journal_of_a_machine_in_another_zone_than_its_containers(tmp_path, apart):
    lines = [f"{at(i * 10, 2):%b %d %H:%M:%S} node0 vllm[77]: INFO {at(i * 10):%m-%d %H:%M:%S} [core.py:1] step" for i in range(9)]
    xid = f"{at(30, 2):%b %d %H:%M:%S} node0 kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus."
    lines.append(
        f"{at(95, 2):%b %d %H:%M:%S} node0 vllm[77]: ERROR {at(95):%m-%d %H:%M:%S} [core.py:9] EngineCore encountered a fatal error."
    )
    if apart:
        (tmp_path / "node0.kernel.log").write_text(xid + "\n")
    else:
        lines.insert(4, xid)
    (tmp_path / "node0.log").write_text("\n".join(lines) + "\n")
    (tmp_path / "notes.txt").write_text("written on 2026-09-02\n")
    report = analyze([tmp_path])
    since = {f.id: f.since.earliest_ns / 1e9 for f in report.findings if f.since}
    assert abs(since["gpu-off-bus"] - at(30).timestamp()) < 2
    assert abs(since["engine-died"] - at(95).timestamp()) < 2
    assert "log-clock-offset" in {f.id for f in report.findings}
