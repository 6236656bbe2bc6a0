"""How fast the tool is, as ratios measured in one run. Goals are printed; only a gross regression fails.

The machine may be busy with other things, so everything that is compared is measured in turn, several times, and the best
of each is taken: noise only ever adds.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_case import large_case, sealed

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

HERE = Path(__file__).resolve().parent
FORENSICS = (sys.executable, "-m", "forensics")
PY_SPY = str(Path(sys.executable).parent / "py-spy")
PROCESSES, THREADS, FRAMES = 8, 100, 20
VOLATILE = ("stacks", "queues", "process", "cpu")


def result(what: str, value: float, goal: float, unit: str = "x", limit: float | None = None, details: str = "") -> None:
    """Print one measurement; `limit` is where it has become a gross regression."""
    met = "met" if value <= goal else "NOT MET"
    print(f"\nbench: {what}: {value:.2f} {unit} (goal {goal:g} {unit}: {met}){'; ' + details if details else ''}")
    if limit is not None:
        assert value <= limit, f"{what}: {value:.2f} {unit}, a gross regression (limit {limit:g})"


class Targets:
    """The processes of bench_target.py."""

    def __init__(self) -> None:
        command = [sys.executable, str(HERE / "bench_target.py"), str(PROCESSES), str(THREADS), str(FRAMES)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ranks = [int(word) for word in self._line()[1:]]
        assert len(self.ranks) == PROCESSES

    def _line(self) -> list[str]:
        assert self.process.stdout
        return self.process.stdout.readline().split()

    def gaps(self) -> tuple[float, float]:
        """The longest time for which a rank was kept from running since the last call, in seconds: the median over the ranks.

        Without, and with, what it waited for a processor.
        """
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        words = [float(word) for word in self._line()[1:]]
        return statistics.median(words[::2]), statistics.median(words[1::2])

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    targets = Targets()
    yield targets
    targets.close()


def timed(*command: str) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
    return time.monotonic() - began


def dumps(ranks: list[int]) -> float:
    """Seconds that sequential `py-spy dump --json` of all ranks take."""
    return sum(timed(PY_SPY, "dump", "--json", "--pid", str(pid)) for pid in ranks)


def capture(out: Path, pid: int, *options: str) -> tuple[float, float, Path]:
    """Run the real command: (its seconds, the epoch second of its start, the bundle)."""
    began, epoch = time.monotonic(), time.time()
    command = [*FORENSICS, "capture", "--pid", str(pid), "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode in (0, 3), done.stderr
    return time.monotonic() - began, epoch, Path(done.stdout.strip().splitlines()[-1])


def attempts(bundle: Path) -> list[dict[str, Any]]:
    with tarfile.open(bundle) as tar:
        (member,) = [m for m in tar.getmembers() if m.name.rpartition("/")[2] == "attempts.jsonl"]
        file = tar.extractfile(member)
        assert file
        return [json.loads(line) for line in file.read().splitlines()]


def sampling_window(tried: list[dict[str, Any]]) -> float:
    """From the start of the first sample to the start of the last: the time that the capture lets pass on purpose."""
    starts: dict[int, int] = {}
    for attempt in tried:
        if attempt["collector"] in VOLATILE and attempt.get("sample"):
            starts[attempt["sample"]] = min(starts.get(attempt["sample"], attempt["started_ns"]), attempt["started_ns"])
    assert len(starts) >= 2, "two samples at least"
    return (max(starts.values()) - min(starts.values())) / 1e9


def test_capture_against_sequential_dumps(targets: Targets, tmp_path: Path) -> None:
    dumped, captured, windows = [], [], []
    for round_ in range(3):
        dumped.append(dumps(targets.ranks))
        # no further looks: this target offers no counters, and a capture would watch it stand still
        seconds, _, bundle = capture(tmp_path / str(round_), targets.process.pid, "--window", "0")
        tried = attempts(bundle)
        stacks = [a for a in tried if a["collector"] == "stacks" and a["outcome"] == "OK"]
        assert len(stacks) >= 2 * PROCESSES, "every rank twice"
        windows.append(sampling_window(tried))
        captured.append(seconds - windows[-1])
    details = f"capture {min(captured):.2f} s beside a window of {statistics.median(windows):.2f} s, eight dumps {min(dumped):.2f} s"
    result("whole capture without its sampling window / eight py-spy dumps", min(captured) / min(dumped), 2.0, limit=4.0, details=details)


def test_added_pause(targets: Targets, tmp_path: Path) -> None:
    """The longest single pause of a process. A capture looks twice, so it is set beside the longer of two dumps: the longer of two is
    longer than one by the noise of the machine alone."""
    quiet, dump, whole = [], [], []
    for round_ in range(5):
        targets.gaps()
        time.sleep(1.0)
        quiet.append(targets.gaps())
        for _ in range(2):
            dumps(targets.ranks)
        dump.append(targets.gaps())
        capture(tmp_path / str(round_), targets.process.pid, "--window", "0")
        whole.append(targets.gaps())
    named = zip(("a capture", "py-spy dumps", "nothing"), map(min, (whole, dump, quiet)), strict=True)
    details = ", ".join(f"{what} {pause * 1e3:.1f} ms ({raw * 1e3:.0f} with waiting for a processor)" for what, (pause, raw) in named)
    result("added pause of a process / that of a py-spy dump", min(whole)[0] / min(dump)[0], 1.0, limit=5.0, details=details)


def test_start_up() -> None:
    ours, theirs = [], []
    for _ in range(7):
        theirs.append(timed(sys.executable, "-c", "import typer"))
        ours.append(timed(*FORENSICS, "--help"))
    details = f"{min(ours) * 1e3:.0f} ms and {min(theirs) * 1e3:.0f} ms"
    result("forensics --help / import typer", min(ours) / min(theirs), 3.0, limit=6.0, details=details)


@pytest.mark.parametrize("form", ["sealed", "bare files"])
def test_large_case(tmp_path: Path, form: str) -> None:
    folder = large_case(tmp_path / "case")
    began = time.monotonic()
    assert sum(len(path.read_bytes().splitlines()) for path in folder.iterdir())
    reading = time.monotonic() - began
    case = sealed(folder, tmp_path) if form == "sealed" else folder
    began = time.monotonic()
    with (tmp_path / "report.json").open("wb") as out:
        process = subprocess.Popen([*FORENSICS, "analyze", str(case), "--format", "json"], stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
    seconds, peak_mb = time.monotonic() - began, usage.ru_maxrss / 1024
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 3)
    assert json.loads((tmp_path / "report.json").read_bytes())["schema"] == "forensics.report/1"
    result(f"a bundle of 100 MB ({form}) is analysed in", seconds, 10.0, "s", details=f"{seconds / reading:.0f} x reading its lines")
    assert seconds / reading < 400, "a gross regression"
    result("peak memory", peak_mb, 500.0, "MB", limit=1500.0)


def volatile_complete(bundle: Path, epoch: float) -> float:
    """Seconds from the start of the command until the first sample of everything volatile was there."""
    ends = [a["ended_ns"] for a in attempts(bundle) if a["collector"] in VOLATILE and a.get("sample", 1) == 1]
    return max(ends) / 1e9 - epoch


def test_saturated_host(targets: Targets, tmp_path: Path) -> None:
    seconds, epoch, bundle = capture(tmp_path / "quiet", targets.process.pid, "--window", "0")
    quiet = volatile_complete(bundle, epoch)
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * (os.cpu_count() or 2))]
    try:
        loaded = []
        for round_ in range(2):
            seconds, epoch, bundle = capture(tmp_path / str(round_), targets.process.pid, "--window", "0")
            loaded.append(volatile_complete(bundle, epoch))
    finally:
        for spinner in spinners:
            with contextlib.suppress(OSError):
                spinner.kill()
            spinner.wait()
    details = f"{min(loaded) / quiet:.1f} x as long as without the {len(spinners)} spinners; the last capture took {seconds:.1f} s"
    result("first volatile sample of eight processes complete on a saturated host after", min(loaded), 5.0, "s", details=details)
    assert min(loaded) / quiet < 25, "a gross regression"
