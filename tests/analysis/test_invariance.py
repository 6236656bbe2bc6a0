"""What changes nothing of an incident changes nothing of what is told: names, order, wrappers, line ends, packing, neighbours, pids, hosts, dates."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from forensics.model import Report
from tests.analysis.layers.folder import kernel
from tests.analysis.made import MAILED_NS, MAKERS, Files, grades, told

Changed = Mapping[str, str | bytes]
DAYS = 100
_PLAIN = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")
_DATED = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)([T ])(\d\d):(\d\d):(\d\d)")
_GLOG = re.compile(r"(\[[EWI])(\d{1,2})(\d\d) ")
_JOURNAL = re.compile(r"^([A-Z][a-z]{2} \d\d) (\d\d:\d\d:\d\d) ", re.M)
PIDS = re.compile(r"(?<=pid=)\d+|(?<=pid )\d+|(?<=Process )\d+|(?<=process )\d+|(?<=Thread )\d+")


def logs(files: Files) -> list[str]:
    return [name for name in files if name.endswith(".log") and "kernel" not in name]


def when(line: str, last: datetime) -> datetime:
    if m := _DATED.search(line[:120]):
        return datetime(*(int(m[i]) for i in (1, 2, 3, 5, 6, 7)))
    if m := _PLAIN.search(line[:120]):
        return datetime(2026, *map(int, m.groups()))
    if m := re.search(r"\[[EWI](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)", line[:60]):
        return datetime(2026, *map(int, m.groups()))
    return last


def wrapped(around: Callable[[datetime, str], str]) -> Callable[[Files], Changed]:
    def change(files: Files) -> Changed:
        out = dict(files)
        for name in logs(files):
            lines = files[name].splitlines()
            at = next(w for line in lines if (w := when(line, datetime.min)) > datetime.min)
            made = []
            for line in lines:
                at = when(line, at)
                made.append(around(at + timedelta(milliseconds=137), line))
            out[name] = "\n".join(made) + "\n"
        return out

    return change


def iso(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


def coloured(_: datetime, line: str) -> str:
    return re.sub(r"^(\([^)]*\) )?(INFO|WARNING|ERROR) ", lambda m: f"\x1b[0;36m{m[1] or ''}\x1b[0m\x1b[32m{m[2]}\x1b[0m ", line)


def rotated(files: Files) -> Changed:
    out = dict(files)
    for name in logs(files):
        lines = files[name].splitlines(keepends=True)
        third = max(1, len(lines) // 3)
        out |= {f"{name}.2": "".join(lines[:third]), f"{name}.1": "".join(lines[third : 2 * third]), name: "".join(lines[2 * third :])}
    return {name: content for name, content in out.items() if content}


def other_pids(files: Files) -> Changed:
    return {name: PIDS.sub(lambda m: str(int(m[0]) + 40_000), content) for name, content in files.items()}


def other_hosts(files: Files) -> Changed:
    def renamed(text: str) -> str:
        return re.sub(r"\b(?:node|n)(\d)\b", r"gpu-host-4\1", text)

    return {renamed(name): renamed(content) for name, content in files.items()}


def a_healthy_engine_beside(files: Files) -> Changed:
    return files | {"quiet7.log": MAKERS["healthy_sglang"]()["node0.log"]}


def a_strange_kernel_beside(files: Files) -> Changed:
    return files | {"quiet7.kernel.log": kernel("quiet7", *((at * 60.0, f"audit: {at}") for at in range(60)))}


def much_before(files: Files) -> Changed:
    """5,000 healthy stats lines between the start and what follows, where an engine of vLLM's got ready."""
    out = dict(files)
    for name in logs(files):
        lines = files[name].splitlines()
        ready = next((i + 1 for i, line in enumerate(lines) if "Application startup complete" in line and "pid=" in line), None)
        if ready is None:
            continue
        first = next(w for line in lines[ready:] if (w := when(line, datetime.min)) > datetime.min)

        def earlier(m: re.Match[str]) -> str:
            return (datetime(2026, *map(int, m.groups())) - timedelta(seconds=51_000)).strftime("%m-%d %H:%M:%S")

        pid = re.search(r"pid=(\d+)", lines[ready - 1])
        assert pid
        flow = [
            f"(APIServer pid={pid[1]}) INFO {first - timedelta(seconds=10 * (5000 - i)):%m-%d %H:%M:%S} [loggers.py:310] Engine 000: "
            "Avg prompt throughput: 300.0 tokens/s, Avg generation throughput: 300.0 tokens/s, Running: 8 reqs, Waiting: 0 reqs, "
            "GPU KV cache usage: 20.0%, Prefix cache hit rate: 0.0%"
            for i in range(5000)
        ]
        out[name] = "\n".join([*(_PLAIN.sub(earlier, line) for line in lines[:ready]), *flow, *lines[ready:]]) + "\n"
    return out


def later(text: str) -> str:
    by = timedelta(days=DAYS)
    text = _DATED.sub(lambda m: (datetime(*(int(m[i]) for i in (1, 2, 3, 5, 6, 7))) + by).strftime(f"%Y-%m-%d{m[4]}%H:%M:%S"), text)
    text = re.sub(rf"(?<![\d-]){_PLAIN.pattern}", lambda m: (datetime(2026, *map(int, m.groups())) + by).strftime("%m-%d %H:%M:%S"), text)
    text = _GLOG.sub(lambda m: m[1] + (datetime(2026, int(m[2]), int(m[3])) + by).strftime("%-m%d "), text)
    return _JOURNAL.sub(lambda m: (datetime.strptime(f"2026 {m[1]}", "%Y %b %d") + by).strftime("%b %d ") + m[2] + " ", text)


CHANGES: dict[str, Callable[[Files], Changed]] = {
    "carriage returns": lambda files: {n: c.replace("\n", "\r\n") for n, c in files.items()},
    "packed": lambda files: {
        f"{n}.gz" if n in logs(files) else n: gzip.compress(c.encode()) if n in logs(files) else c for n, c in files.items()
    },
    "other order": lambda files: dict(reversed(files.items())),
    "other names": lambda files: {n.replace(".kernel.log", ".dmesg.log").replace(".pyspy.", ".py-spy."): c for n, c in files.items()},
    "kubectl": wrapped(lambda at, line: f"{iso(at)} {line}"),
    "compose": wrapped(lambda _, line: f"vllm-1  | {line}"),
    "cri": wrapped(lambda at, line: f"{iso(at)} stderr F {line}"),
    "docker": wrapped(lambda at, line: json.dumps({"log": line + "\n", "stream": "stderr", "time": iso(at)})),
    "colours": wrapped(coloured),
    "rotated": rotated,
    "other pids": other_pids,
    "other hosts": other_hosts,
    "a healthy engine beside": a_healthy_engine_beside,
    "a strange kernel beside": a_strange_kernel_beside,
    "much before": much_before,
    "later": lambda files: {name: later(content) for name, content in files.items()},
}
NEIGHBOURS = ("a healthy engine beside", "much before")
"""Changes that add a machine or a time that was not looked at as closely: claims about the whole may be weaker by it."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Callable[[str], Report]:
    kept: dict[str, Report] = {}

    def report(incident: str) -> Report:
        if incident not in kept:
            kept[incident] = told(tmp_path_factory.mktemp("whole") / "case", MAKERS[incident]())
        return kept[incident]

    return report


def onset(report: Report) -> float | None:
    return report.first_event.at.earliest_ns / 1e9 if report.first_event else None


@pytest.mark.parametrize("incident", MAKERS)
@pytest.mark.parametrize("change", CHANGES)
def test_the_same_is_told(tmp_path: Path, whole: Callable[[str], Report], incident: str, change: str) -> None:
    before = whole(incident)
    shift = DAYS * 86400 if change == "later" else 0
    after = told(tmp_path / "case", CHANGES[change](MAKERS[incident]()), MAILED_NS + shift * 10**9)
    assert after.verdict.state == before.verdict.state
    # a map of ranks that names no machine may be of either of two
    unplaced = incident == "off_the_bus" and change == "a healthy engine beside"
    assert (after.root.finding, after.root.rank) == (before.root.finding, None if unplaced else before.root.rank)
    node = before.root.node
    assert after.root.node == (re.sub(r"^(?:node|n)(\d)$", r"gpu-host-4\1", node) if node and change == "other hosts" else node)
    had, has = grades(before), grades(after)
    lost = {f for f, grade in had.items() if grade == 3 and has.get(f, -1) < 3 and not f.startswith("evidence-missing:")}
    assert not lost - ({"load-at-onset", "startup-completed"} if change in NEIGHBOURS else set())
    if before.root.finding or before.verdict.state != "healthy":
        first, then = onset(before), onset(after)
        assert (first is None) == (then is None)
        assert first is None or then is None or abs(then - first - shift) <= 2
