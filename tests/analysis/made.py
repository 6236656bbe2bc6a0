"""Incidents as folders of files that somebody mailed, made by the builders of the other tests: what properties of the whole are asked of."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path

from forensics.analysis import analyze
from forensics.model import Report
from tests.analysis.collectives import lines as torch
from tests.analysis.engines import folder as engines
from tests.analysis.layers.folder import Node, kernel
from tests.analysis.mechanisms import logs as mechanisms

Files = dict[str, str]
MAILED_NS = int(datetime(2026, 10, 1, tzinfo=timezone.utc).timestamp()) * 10**9
"""When every file was written last: it tells the year of lines that carry none."""
REMAP = "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 3, subpartition 0."
BUS = ["17", "3b", "b3", "cb"]


def text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def killed_for_memory() -> Files:
    node = Node()
    node.stats(70, 900)
    node.worker_died(906, 2)
    kill = "Out of memory: Killed process 503 (VLLM::Worker_TP) total-vm:412334560kB, anon-rss:201334112kB, file-rss:91232kB, shmem-rss:0kB, UID:0"
    quiet = [(at * 60.0, f"audit: backlog limit {at}") for at in range(15)]
    return {"n1.log": node.text, "n1.kernel.log": kernel("n1", *quiet, (905, kill))}


def off_the_bus() -> Files:
    node = Node()
    node.stats(70, 600)
    node.stall(600)
    fault = "NVRM: Xid (PCI:0000:b3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    places = "".join(f"rank {r} local_rank {r} pid {501 + r} pci 0000:{b}:00.0\n" for r, b in enumerate(BUS))
    return {"n1.log": node.text, "n1.kernel.log": kernel("n1", (10, "audit: start"), (602, fault)), "rank-map.txt": places}


def full_queue() -> Files:
    node = Node(ranks=2)
    node.stats(70, 300)
    trace = [
        "WorkerProc hit an exception.",
        "Traceback (most recent call last):",
        '  File "/opt/site-packages/acme/offload.py", line 40, in put',
        "    self.queue.put_nowait(block)",
        '  File "/usr/lib/python3.12/queue.py", line 136, in put',
        "    raise Full",
        "queue.Full",
    ]
    for line in trace:
        node.say(305, "Worker_TP1", 502, "ERROR", line, "multiproc_executor.py:9")
    node.fatal(306)
    for line in (
        "Traceback (most recent call last):",
        '  File "/opt/vllm/core.py", line 9, in step',
        "RuntimeError: Worker failed with error ''",
    ):
        node.say(306, "EngineCore", 500, "ERROR", line, "core.py:99")
    return {"n1.log": node.text}


def behind_in_a_collective() -> Files:
    def node(first: int) -> list[str]:
        ranks = (first, first + 1)
        lines = torch.start("11:00:00", 4) if first == 0 else []
        lines += [torch.place(f"Worker_TP{r}", 70 + r, "11:00:05", r, 4, r - first) for r in ranks]
        if first == 0:
            lines += torch.ready("11:02:00")
            lines += [torch.serving(f"11:{m:02d}:{s:02d}") for m in range(50, 60) for s in range(0, 60, 10)]
            lines += [torch.serving("12:00:00")]
        for r in ranks:
            behind = r == 3
            lines.append(torch.dump_signal(r, "12:10:02", 0, 40, 40) if behind else torch.gave_up(r, "12:10:00"))
            lines += [] if behind else [torch.status(r, "12:10:00")]
        return lines

    return {"node0.log": text(node(0)), "node1.log": text(node(2))}


def larger_than_the_cache() -> Files:
    log = mechanisms.Log()
    log.core_says(-701, "GPU KV cache size: 65,536 tokens", "INFO")
    log.flow(-200, 0)
    ask = "Received request chatcmpl-huge: params: SamplingParams(n=1, max_tokens=64), prompt_token_ids_len: 90500, lora_request: None."
    log.line(2, "APIServer", 7, ask)
    for i in range(12):
        log.stats(10 + 10 * i, 0.0, 0, 1 + i // 3, 0.0)
    return {"node0.log": text(log.lines)}


def passed_by() -> Files:
    ring = "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging"
    log = mechanisms.Log().flow(-100, 1).stats(10, 0.0, 4, 0, 12.0).core_says(65, ring, "INFO").flow(100, 300)
    return {"node0.log": text(log.lines)}


def watchdog() -> Files:
    lines = [*engines.started(), *(engines.decode(t) for t in range(-200, 1, 10))]
    lines.append(engines.sglang(300, "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", "TP0"))
    lines.append(engines.sglang(305, engines.DIED))
    return {"node0.log": text(lines)}


def peers_that_did_not_come() -> Files:
    lines = [torch.place(f"Worker_TP{r}", 100 + r, "12:00:00", r, 8, r) for r in range(4)]
    lines.append(torch.vllm("Worker_TP0", 100, "12:10:01", "WorkerProc failed to start.", "ERROR", "multiproc_executor.py:944"))
    said = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 4/8 clients joined."
    lines.append(torch.vllm("Worker_TP0", 100, "12:10:01", said, "ERROR", "multiproc_executor.py:944"))
    return {"node0.log": text(lines)}


def outside_the_collective() -> Files:
    def stack(process: str, pid: int, *frames: str) -> str:
        listed = "".join(f"    {frame}\n" for frame in frames)
        return f'Process {pid}: VLLM::{process}\nPython v3.12.3 (/usr/bin/python3.12)\n\nThread {pid} (active): "MainThread"\n{listed}'

    loop = ("execute_model (vllm/v1/worker/gpu_worker.py:500)", "worker_busy_loop (vllm/v1/executor/multiproc_executor.py:700)")
    apart = stack("Worker_TP1", 502, "wait (acme/cache.py:77)", *loop)
    inside = stack("Worker_TP0", 501, "all_reduce (torch/distributed/distributed_c10d.py:2810)", *loop)
    node = Node(ranks=2)
    node.stats(70, 600)
    node.stall(600)
    samples = {f"n1.rank{r}.pyspy.{i}.txt": s for r, s in enumerate((inside, apart)) for i in (1, 2)}
    return {"n1.log": node.text, **samples}


def healthy() -> Files:
    log = mechanisms.Log().flow(-600, 300)
    log.lines.insert(5, '(APIServer pid=7) INFO:     192.0.2.4:51000 - "GET /health HTTP/1.1" 200 OK')
    return {"node0.log": text(log.lines), "node0.kernel.log": kernel("node0", *((at * 3600.0, f"audit: {at}") for at in range(24 * 86)))}


def healthy_sglang() -> Files:
    return {"node0.log": text([*engines.started(), *(engines.decode(t) for t in range(-400, 600, 10))])}


MAKERS: Mapping[str, Callable[[], Files]] = {
    made.__name__: made
    for made in (
        killed_for_memory,
        off_the_bus,
        full_queue,
        behind_in_a_collective,
        larger_than_the_cache,
        passed_by,
        watchdog,
        peers_that_did_not_come,
        outside_the_collective,
        healthy,
        healthy_sglang,
    )
}


def told(folder: Path, files: Mapping[str, str | bytes], mailed_ns: int = MAILED_NS) -> Report:
    """Analyse a folder of these files. No rule may break on them."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        os.utime(folder / name, ns=(mailed_ns, mailed_ns))
    report = analyze([folder])
    broken = [(r.rule, r.reason) for r in report.rules if r.status.value == "ERRORED"]
    assert not broken, broken
    return report


def grades(report: Report) -> dict[str, int]:
    """The strongest grade of each finding."""
    found: dict[str, int] = {}
    for f in report.findings:
        found[f.id] = max(found.get(f.id, -1), f.grade.strength)
    return found
