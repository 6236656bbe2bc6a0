"""Run the real commands on a real engine and judge what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from real_server import Server, process_state, process_title

FORENSICS = (sys.executable, "-m", "forensics")
CAPTURE_S = 150.0
ANALYZE_S = 120.0
DONE = (0, 3)
"""Exit codes of a capture that has its bundle: complete, or incomplete and saying so."""

# facts about the host or the configuration: true or not whatever the engine does
CIRCUMSTANCES = {"execution-mode", "load-at-onset", "backlog-before-onset", "startup-completed", "host-stable", "time-limit-raised"}
CIRCUMSTANCES |= {
    "cpu-saturated",
    "cpu-pressure",
    "thermal-high",
    "thermal-throttled",
    "log-clock-offset",
    "clock-unsynchronised",
    "power-capped",
    "version-skew",
    "no-crash-found",
}
# several scenarios share one server: a standstill of an earlier one that was undone
CIRCUMSTANCES |= {"transient-stall-recovered"}
# what any stall looks like, from inside and outside
CONSEQUENCES = {"engine-stalled", "engine-alive-not-progressing", "health-endpoint-misleading", "busy-spin"}
CONSEQUENCES |= {"symptom-shm-broadcast-wait", "symptom-rpc-timeout"}
STRONG = ("established", "supported")


@dataclass
class Seen:
    """A bundle and what the analysis made of it."""

    bundle: Path
    report: dict[str, Any]
    capture_s: float
    analyze_s: float
    capture_exit: int

    @property
    def engine(self) -> dict[str, Any]:
        engines = self.report["engines"]
        assert len(engines) == 1, [engine["id"] for engine in engines]
        return dict(engines[0])

    @property
    def ranks(self) -> list[int]:
        """The ranks of which something was seen."""
        expected = self.report["coverage"]["expected"]
        return sorted({each["rank"] for each in expected if each["seen"] and each["rank"] is not None})

    @property
    def root(self) -> dict[str, Any]:
        return dict(self.report["root"])

    @property
    def state(self) -> str:
        return str(self.report["verdict"]["state"])

    def covered(self, ranks: str) -> bool:
        """Whether the report says that it saw all of the engine, in these words."""
        coverage = self.report["coverage"]
        return bool(coverage["complete"]) and ranks in coverage["sentence"]

    def grades(self, finding: str) -> list[str]:
        return [each["grade"] for each in self.report["findings"] if each["id"] == finding]

    def grade(self, finding: str) -> str:
        """The strongest grade with which it is claimed, "" when it is not."""
        order = ("established", "supported", "possible", "refuted", "not assessable")
        return min(self.grades(finding), key=order.index, default="")


def run(*arguments: str, within: float, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "140"}
    return subprocess.run([*FORENSICS, *arguments], capture_output=True, text=True, timeout=within, cwd=cwd, env=env, check=False)


def look(server: Server, *, name: str) -> Seen:
    """Capture the server (with the other nodes of its engine) with the real command, check that nothing was disturbed, analyse."""
    nodes = (server, *server.others)
    before = {pid: process_state(pid) for each in nodes for pid in each.processes()}
    targets = [f"--pid={each.pid}" for each in nodes]
    began = time.monotonic()
    done = run("capture", "--out", str(server.folder / "bundles"), "--incident", name, *targets, within=CAPTURE_S)
    capture_s = time.monotonic() - began
    assert done.returncode in DONE, (done.returncode, done.stdout[-2000:], done.stderr[-4000:])
    bundle = Path(done.stdout.strip().splitlines()[-1])
    assert bundle.exists(), done.stdout
    for pid, was in before.items():
        now = process_state(pid)
        assert (now in ("T", "t")) <= (was == "T"), f"{process_title(pid)} was {was} and is left {now}"
    seen = analyze(bundle, capture_s, done.returncode)
    for found in seen.report["findings"]:
        if found["id"] == "execution-mode" and found["grade"] in STRONG:
            assert f"scheduling is {'on' if server.asynchronous else 'off'}" in found["title"], found
    return seen


def analyze(path: Path, capture_s: float = 0.0, capture_exit: int = 0) -> Seen:
    began = time.monotonic()
    done = run("analyze", str(path), "--format", "json", within=ANALYZE_S)
    assert done.returncode in DONE, (done.returncode, done.stdout[-2000:], done.stderr[-4000:])
    seen = Seen(path, json.loads(done.stdout), capture_s, time.monotonic() - began, capture_exit)
    say(seen)
    return seen


def say(seen: Seen) -> None:
    """One paragraph for the log of the test run."""
    root = seen.root
    print(f"\n--- {seen.bundle.name}: captured in {seen.capture_s:.1f} s (exit {seen.capture_exit}), analysed in {seen.analyze_s:.1f} s")
    print(f"    {seen.state}: {seen.report['verdict']['sentence']}")
    print(f"    {seen.report['coverage']['sentence']}")
    print(f"    root {root['finding']} ({root['grade']}) rank {root['rank']} pid {root['pid']}")
    for finding in seen.report["findings"]:
        print(f"    {finding['grade']:14} {finding['role']:9} {finding['id']} ranks {finding['ranks']}")


def assert_root(seen: Seen, finding: str, rank: int | None, grade: str = "established", pid: int | None = None) -> None:
    root = seen.root
    assert (root["finding"], root["rank"], root["grade"]) == (finding, rank, grade), root
    if pid is not None:
        assert root["pid"] == pid, root
    claims = [each for each in seen.report["findings"] if each["id"] == finding]
    assert claims and all(each["because"] for each in claims)


def assert_nothing_broke(seen: Seen) -> None:
    root = seen.root
    assert (root["finding"], root["rank"], root["grade"]) == (None, None, None), root
    assert seen.state == "healthy", seen.report["verdict"]


def assert_no_wrong_established(seen: Seen, allowed: Iterable[str]) -> None:
    """The worst defect this product can have: every established claim must be one that we know to be true here."""
    right = {*allowed, *CIRCUMSTANCES}
    wrong = [
        (each["id"], each["ranks"], each["title"])
        for each in seen.report["findings"]
        if each["grade"] == "established" and each["id"] not in right and not each["id"].startswith("evidence-missing:")
    ]
    assert not wrong, wrong


def assert_installed_as_packaged(seen: Seen) -> None:
    """Every rank runs one build of vLLM and of torch, both as their package brought them."""
    builds = seen.engine["builds"]
    for component in ("vllm", "torch"):
        mine = [build for build in builds if build["component"] == component]
        assert len(mine) == 1 and mine[0]["version"] and mine[0]["ranks"] == seen.ranks, (component, mine)
        assert mine[0]["via"] == "metadata", mine
    said = {each["rule"]: (each["status"], each["reason"]) for each in seen.report["rules"]}
    print(f"    builds {[(b['component'], b['version'], b['build_id']) for b in builds]}; {said['installed_code']}, {said['version_skew']}")
    assert said["version_skew"][0] == "CLEAR" and said["installed_code"][0] in ("CLEAR", "INCONCLUSIVE"), said
    assert not seen.grades("installed-code-modified") and not seen.grades("version-skew")
