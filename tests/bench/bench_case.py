"""A hundred megabytes to analyse: as a folder of bare files, and as the sealed bundle that holds the same."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from forensics.bundle import BundleWriter, NullRedactor

CASE_BYTES = 100 * 1024 * 1024
RANKS, THREADS, FRAMES = 8, 100, 20
BEGAN_S = 1_790_000_000


def large_case(folder: Path) -> Path:
    """What a long-lived engine of eight ranks leaves: mostly logs, many stacks, some metrics."""
    folder.mkdir()
    written = sum(log(folder / f"node1-rank{rank}.log", rank) for rank in range(RANKS))
    sample = 0
    while written < CASE_BYTES * 95 // 100:
        sample += 1
        for rank in range(RANKS):
            written += (folder / f"node1.pid{4000 + rank}.pyspy.{sample}.json").write_text(json.dumps(stacks(4000 + rank)))
    scrape = 0
    while written < CASE_BYTES:
        scrape += 1
        written += (folder / f"node1.metrics.{scrape}.txt").write_text(metrics(scrape))
    return folder


def sealed(folder: Path, parent: Path) -> Path:
    """The bundle that a capture would have left of `large_case`; path of its archive."""
    at_ns = (BEGAN_S + 4_000_000) * 10**9
    with BundleWriter(parent, "bundle", redactor=NullRedactor()) as bundle:
        for path in sorted(folder.iterdir()):
            data = path.read_bytes()
            match path.name.split("."):
                case [name, "log"]:
                    bundle.add(f"rpclogs/{name}.1.log", "log", data, collector="rpclogs", at_ns=at_ns)
                case [_, pid, "pyspy", n, _]:
                    name, pid_ = f"stacks/pid-{pid[3:]}.{n}.json", int(pid[3:])
                    bundle.add(name, "pyspy-json", data, collector="stacks", at_ns=at_ns + int(n) * 10**9, sample=int(n), pid=pid_)
                case [_, "metrics", n, _]:
                    bundle.add(
                        f"queues/metrics-8000.{n}.prom", "prometheus", data, collector="queues", at_ns=at_ns + int(n) * 10**9, sample=int(n)
                    )
        bundle.seal(node="node1", started_ns=at_ns, ended_ns=at_ns + 10**10, utc_offset_s=0, profile="standard")
        return bundle.pack()


def log(path: Path, rank: int) -> int:
    """A rank's share of 70 MB, four lines a second. Returns its size."""
    chance = random.Random(rank)
    written = line = 0
    with path.open("w") as out:
        while written < CASE_BYTES * 7 // 10 // RANKS:
            stamp = time.strftime("%m-%d %H:%M:%S", time.gmtime(BEGAN_S + line // 4))
            text = f"step {line} finished in {chance.random() * 30:.3f} ms with {chance.randrange(64)} requests"
            written += out.write(
                f"(Worker_TP{rank} pid={4000 + rank}) INFO {stamp} [gpu_model_runner.py:{chance.randrange(4000)}] {text}\n"
            )
            line += 1
    return written


def stacks(pid: int) -> list[dict[str, object]]:
    frames = [
        {"name": f"Layer{n}.forward", "filename": f"model/layer{n}.py", "short_filename": f"layer{n}.py", "line": n} for n in range(FRAMES)
    ]
    return [
        {"pid": pid, "thread_id": n, "thread_name": f"t{n}", "os_thread_id": pid + n, "active": n == 0, "owns_gil": False, "frames": frames}
        for n in range(THREADS)
    ]


def metrics(scrape: int) -> str:
    lines = ["# TYPE vllm:iteration_tokens_total histogram", f'vllm:iteration_tokens_total_count{{engine="0"}} {scrape}']
    lines += ["# TYPE vllm:num_requests_running gauge", 'vllm:num_requests_running{engine="0"} 8', "# TYPE vllm:request_seconds histogram"]
    lines += [f'vllm:request_seconds_bucket{{engine="0",le="{n}"}} {n * scrape}' for n in range(10_000)]
    return "\n".join(lines) + "\n"
