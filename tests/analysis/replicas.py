"""Two data-parallel replicas behind one front, of which one holds work."""

from __future__ import annotations

from pathlib import Path

import msgspec

from forensics.model import ProcessInfo
from tests.analysis.scene import API, CORE, CORE_IDLES, CORE_WAITS, IN_COLLECTIVE, IN_STEP, T0, WORKER, WORKER_IDLES, Scene


class Replicas(Scene):
    """Core and worker r serve replica r."""

    busy = 0
    moves = True
    unseen: tuple[int, ...] = ()

    def table(self) -> bytes:
        serve = ("python3", "vllm", "serve", "/m", "--data-parallel-size", "2")
        rows = [
            ProcessInfo(
                pid=API, ppid=1, node=self.node, title=" ".join(serve), argv=serve, state="S", start_ticks=10, listening_ports=(8000,)
            )
        ]
        for r in (0, 1):
            rows.append(
                ProcessInfo(
                    pid=CORE + r,
                    ppid=API,
                    node=self.node,
                    title=f"VLLM::EngineCore_DP{r}",
                    argv=(f"VLLM::EngineCore_DP{r}",),
                    state="S",
                    start_ticks=11,
                )
            )
            title = "VLLM::Worker"
            if r not in self.unseen:
                rows.append(
                    ProcessInfo(pid=WORKER + r, ppid=CORE + r, node=self.node, title=title, argv=(title,), state="S", start_ticks=12)
                )
        return msgspec.json.encode(rows)


def two_replicas(folder: Path, *, busy: int, moves: bool, unseen: tuple[int, ...] = (), clients: int = 4) -> Path:
    """busy -1: neither holds work. Of the workers of `unseen` replicas nothing is known, not even that they exist."""
    s = Replicas(folder, ranks=2, served=False)
    s.lines = []
    for r in (0, 1):
        # what a dense model's workers say of themselves, whichever replica they serve
        place = "rank 0 in world size 1 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0, EP rank N/A"
        if r not in unseen:
            s.log(-110, "Worker", WORKER + r, "INFO", place)
    s._add("rpclogs", "rpclogs/server.log", "log", "\n".join(s.lines) + "\n", pid=API, at=T0)
    s.clients = clients
    s.unseen = unseen
    times = [T0, T0 + 2 * 10**9, T0 + 15 * 10**9]
    s._add("discovery", "discovery/processes.json", "process-table", s.table().decode(), at=T0)
    for sample, at in enumerate(times, 1):
        for r in (0, 1):
            s.stacks[CORE + r, "MainThread"] = [CORE_WAITS if r == busy else CORE_IDLES] * 3
            work = [IN_STEP, IN_COLLECTIVE, IN_STEP] if moves else [IN_STEP] * 3
            s.stacks[WORKER + r, "MainThread"] = work if r == busy else [WORKER_IDLES] * 3
            for pid in (CORE + r, *(() if r in unseen else (WORKER + r,))):
                s._stack(pid, sample, at)
                s._process(pid, sample, at)
        text = "# TYPE vllm:num_requests_running gauge\n"
        for r in (0, 1):
            steps = 100 + (sample * 20 if (r == busy) is moves and (r == busy or not moves) else 0)
            running = 4 if r == busy or not moves else 0
            text += f'vllm:num_requests_running{{engine="{r}"}} {running}\nvllm:iteration_tokens_total_count{{engine="{r}"}} {steps}\n'
            text += f'vllm:generation_tokens_total{{engine="{r}"}} {steps * 4}\n'
        s._add(
            "queues",
            f"queues/metrics-8000.{sample}.prom",
            "prometheus",
            text,
            pid=API,
            sample=sample,
            at=at,
            target="http://127.0.0.1:8000/metrics",
        )
        s._sockets(sample, at)
    s.writer.seal(node=s.node, started_ns=T0 - 10**9, ended_ns=times[-1] + 10**9, utc_offset_s=0)
    return s.writer.path
