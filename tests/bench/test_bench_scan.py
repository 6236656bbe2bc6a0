"""How fast large logs are read, against ripgrep with the same literals: same run, same file, warm cache, the best of several turns.

The size is FORENSICS_BENCH_LOG_MB megabytes (2000 by default): 30 % lines of counters, 5 % lines that signatures know.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_bench import FORENSICS, result

from forensics.analysis.buffers import FileBuffer
from forensics.analysis.parse import Input, log
from forensics.analysis.parse._lines import Reader
from forensics.analysis.scan import engine_of_search, scan
from forensics.analysis.times import Calendar

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

MEGABYTES = int(os.environ.get("FORENSICS_BENCH_LOG_MB", "2000"))
BLOCK_LINES = 100_000
CAL = Calendar(reference_ns=1_788_256_800_000_000_000)


def block(rng: random.Random, second: int) -> bytes:
    """BLOCK_LINES lines of a serving vLLM, a hundred a second."""
    lines = []
    for n in range(BLOCK_LINES):
        s = second + n // 100
        at = f"09-{1 + s // 86400 % 28:02d} {s // 3600 % 24:02d}:{s // 60 % 60:02d}:{s % 60:02d}"
        kind, rank = rng.random(), rng.randrange(8)
        peer = f"192.0.2.{rng.randrange(1, 255)}:{rng.randrange(1024, 65000)}"
        if kind < 0.30:
            lines.append(
                f"(APIServer pid=42) INFO {at} [loggers.py:259] Engine 000: Avg prompt throughput: {rng.random() * 1000 + 1:.1f} tokens/s, "
                f"Avg generation throughput: {rng.random() * 900 + 1:.1f} tokens/s, Running: {rng.randrange(1, 200)} reqs, "
                f"Waiting: {rng.randrange(40)} reqs, GPU KV cache usage: {rng.random() * 100:.1f}%, Prefix cache hit rate: 41.2%"
            )
        elif kind < 0.31:
            lines.append(
                f"(EngineCore_DP0 pid=43) INFO {at} [shm_broadcast.py:495] No available shared memory broadcast block found in 60 seconds. "
                "This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation)."
            )
        elif kind < 0.32:
            lines.append(f"(Worker_TP{rank} pid={50 + rank}) ERROR {at} [multiproc_executor.py:822] WorkerProc hit an exception.")
        elif kind < 0.33:
            lines.append(
                f'(APIServer pid=42) INFO:     {peer} - "GET /health HTTP/1.1" {rng.choice(("200 OK", "503 Service Unavailable"))}'
            )
        elif kind < 0.34:
            lines.append(f"(EngineCore_DP0 pid=43) ERROR {at} [core.py:710] TimeoutError: RPC call to execute_model timed out.")
        elif kind < 0.35:
            lines.append(
                f"(Worker_TP{rank} pid={50 + rank}) INFO {at} [multiproc_executor.py:587] Parent process exited, terminating worker"
            )
        elif kind < 0.70:
            lines.append(f'(APIServer pid=42) INFO:     {peer} - "POST /v1/chat/completions HTTP/1.1" 200 OK')
        else:
            lines.append(
                f"(APIServer pid=42) INFO {at} [logger.py:41] Received request chatcmpl-{rng.getrandbits(128):032x}: params: "
                f"SamplingParams(n=1, temperature=0.7, top_p=1.0, max_tokens={rng.randrange(4096)}), lora_request: None."
            )
    return "\n".join(lines).encode() + b"\n"


def write(path: Path, megabytes: int) -> None:
    """The blocks that were made repeat: what a scan costs does not depend on lines being new to the whole file."""
    rng = random.Random(1)
    blocks = [block(rng, n * BLOCK_LINES // 100) for n in range(min(10, megabytes // 15 + 1))]
    left = megabytes * 1_000_000
    with path.open("wb") as out:
        for n in range(10**9):
            piece = blocks[n % len(blocks)][:left]
            out.write(piece)
            left -= len(piece)
            if left <= 0:
                return


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("large")
    if shutil.disk_usage(folder).free < 3 * MEGABYTES * 1_000_000:
        pytest.skip("no room for the log")
    path = folder / "node0.log"
    write(path, MEGABYTES)
    path.read_bytes() if MEGABYTES < 100 else subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
    yield path
    path.unlink()


def scanned(path: Path) -> tuple[float, int]:
    """(seconds, lines that were found) of what `analyze` does with the log first: every hit, with the numbers of lines."""
    data = FileBuffer(os.open(path, os.O_RDONLY))
    reader = Reader(Input(name="node0.log", node="node0", data=data, calendar=CAL))
    began = time.monotonic()
    found = scan(data, log.plan_for(()), reader.who)
    numbers = [found.number(data, c.start) for c in found.candidates]
    seconds = time.monotonic() - began
    assert numbers == sorted(numbers) and found.lines > MEGABYTES * 1000
    return seconds, sum(c.lines for c in found.candidates)


def grepped(path: Path, literals: Path) -> tuple[float, int]:
    """The same of ripgrep, counting, which is the fastest that it can do."""
    began = time.monotonic()
    done = subprocess.run(["rg", "-n", "-c", "-F", "-f", literals, path], stdout=subprocess.PIPE, check=True)
    return time.monotonic() - began, int(done.stdout)


def rss_kb(pid: int) -> int:
    """Of a process and all its children, as far as they still live."""
    total = 0
    try:
        text = Path(f"/proc/{pid}/status").read_text()
        total = next((int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")), 0)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return total
    return total + sum(rss_kb(int(child)) for child in children)


def analyzed(path: Path, out: Path) -> tuple[float, float]:
    """(seconds, peak memory of all its processes in MB) of the whole command."""
    peak = 0
    began = time.monotonic()
    with out.open("wb") as report:
        process = subprocess.Popen([*FORENSICS, "analyze", str(path), "--format", "json"], stdout=report)
        ended = threading.Event()

        def watch() -> None:
            nonlocal peak
            while not ended.wait(0.02):
                peak = max(peak, rss_kb(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        process.wait(1500)
        seconds = time.monotonic() - began
        ended.set()
        watcher.join()
    assert process.returncode in (0, 3)
    assert json.loads(out.read_bytes())["schema"] == "forensics.report/1"
    return seconds, peak / 1024


def test_scan_and_analysis_of_a_large_log(large: Path, tmp_path: Path) -> None:
    literals = tmp_path / "literals"
    literals.write_bytes(b"\n".join(log.plan_for(()).literals) + b"\n")
    size = large.stat().st_size
    scans, greps, whole = [], [], []
    for _ in range(3):
        scans.append(scanned(large))
        if shutil.which("rg"):
            greps.append(grepped(large, literals))
        whole.append(analyzed(large, tmp_path / "report.json"))
    seconds, hits = min(scans)
    rate = size / seconds / 1e9
    print(f"\nbench: searched by {engine_of_search()} in {len(os.sched_getaffinity(0))} processes: {hits} hits used or counted")
    if greps:
        theirs = min(greps)[0]
        result(
            "scan / ripgrep -c with the same literals", seconds / theirs, 2.0, limit=10.0, details=f"{size / theirs / 1e9:.2f} GB/s ripgrep"
        )
    result("seconds for a gigabyte scanned", 1 / rate, 1.0, "s", details=f"{rate:.2f} GB/s")
    result("analyze / scan", min(whole)[0] / seconds, 3.0, limit=12.0, details=f"{min(whole)[0]:.1f} s")
    result("peak memory of all processes", max(m for _, m in whole), 500.0, "MB", limit=1500.0)


if __name__ == "__main__":  # write a log for trials by hand: python test_bench_scan.py PATH MEGABYTES
    write(Path(sys.argv[1]), int(sys.argv[2]))
