"""A captured engine of any number of ranks, built record by record in the form in which the collectors deliver it.

Everything defaults to a healthy engine that serves; a test changes what its incident changed.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec

from forensics.bundle import BundleWriter
from forensics.model import Attempt, Origin, Outcome, ProcessInfo, ProcessKey

NODE = "alpha7"
T0 = 1_788_256_800_000_000_000  # 2026-09-01T10:00:00Z
API, CORE, WORKER = 5100, 5200, 5300
CORE_WAITS = [
    "MessageQueue.dequeue (vllm/distributed/device_communicators/shm_broadcast.py)",
    "MultiprocExecutor.collective_rpc.<locals>.get_response (vllm/v1/executor/multiproc_executor.py)",
    "EngineCore.step (vllm/v1/engine/core.py)",
]
CORE_IDLES = ["Queue.get (queue.py)", "EngineCoreProc._process_input_queue (vllm/v1/engine/core.py)"]
WORKER_IDLES = [
    "SpinCondition.wait (shm_broadcast.py)",
    "MessageQueue.dequeue (shm_broadcast.py)",
    "WorkerProc.worker_busy_loop (multiproc_executor.py)",
]
IN_COLLECTIVE = [
    "OpOverloadPacket.__call__ (torch/_ops.py)",
    "GroupCoordinator.all_reduce (vllm/distributed/parallel_state.py)",
    "Worker.execute_model (vllm/v1/worker/gpu_worker.py)",
    "WorkerProc.worker_busy_loop (multiproc_executor.py)",
]
IN_STEP = [
    "Attention.forward (vllm/attention/layer.py)",
    "Worker.execute_model (vllm/v1/worker/gpu_worker.py)",
    "WorkerProc.worker_busy_loop (multiproc_executor.py)",
]


class Scene:
    """Builds one bundle directory. Call `bundle()` last."""

    def __init__(self, folder: Path, ranks: int = 2, node: str = NODE, served: bool = True) -> None:
        self.node = node
        self.ranks = ranks
        self.span_s = 15.0
        self.writer = BundleWriter(folder, f"{node}-{time.monotonic_ns()}")
        self.lines: list[str] = []
        self.states: dict[tuple[int, int], str] = {}
        self.wchans: dict[int, str] = {}
        self.stacks: dict[tuple[int, str], list[list[str]]] = {}
        self.cpu: dict[tuple[int, int], list[float]] = {}
        self.others: dict[int, list[tuple[int, str, list[list[str]]]]] = {}
        """pid to further threads (tid, name, frames in each sample): of one name, or of ids that matter."""
        self.unread: set[int] = set()
        """Processes whose stacks could not be read."""
        self.objects_in = {1, 2, 3}
        """Samples in which `objects` was read; in the others the look found nothing."""
        self.gil: dict[int, str] = {}
        """pid to the name of the thread that owns its GIL in every sample."""
        self.objects: dict[int, dict[str, list[dict[str, Any]]]] = {}
        """pid to what was read in its memory, the same in every sample: "values", "queues", "locks", "waits"."""
        self.ring: list[list[str]] = []
        """Flags of the broadcast ring's slots ("100": written, read by neither of two readers), one list a look."""
        self.metrics: list[dict[str, float]] = [self._metrics(100), self._metrics(160), self._metrics(190)]
        self.clients = 4
        self.denied: dict[str, str] = {}
        self.health: int | None = 200
        self.meminfo = "MemTotal: 100000000 kB\nMemFree: 5000000 kB\nMemAvailable: 60000000 kB\n"
        self.kernel = "[    1.000000] Linux version 6.1\n[    2.000000] eth0: Link up\n"
        self.extra: list[tuple[str, str, str, int | None]] = []
        if served:
            self.log(-120, "APIServer", API, "INFO", f"non-default args: {{'model_tag': '/m', 'tensor_parallel_size': {ranks}}}")
            for rank in range(ranks):
                place = f"rank {rank} in world size {ranks} is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank {rank}, EP rank N/A"
                self.log(-110, "Worker", WORKER + rank, "INFO", place)
            self.log(-100, "EngineCore", CORE, "INFO", "init engine (profile, create kv cache, warmup model) took 9.20 s")
            self.lines.append(f"(APIServer pid={API}) INFO:     Application startup complete.")

    @staticmethod
    def _metrics(steps: float, running: float = 4, waiting: float = 0, tokens_per_step: float = 4) -> dict[str, float]:
        return {"steps": steps, "tokens": steps * tokens_per_step, "running": running, "waiting": waiting}

    def log(self, at_s: float, process: str, pid: int, level: str, message: str, source: str = "x.py:1") -> None:
        stamp = time.strftime("%m-%d %H:%M:%S", time.gmtime(T0 / 1e9 + at_s))
        self.lines.append(f"({process} pid={pid}) {level} {stamp} [{source}] {message}")

    def traceback(self, at_s: float, process: str, pid: int, head: str, error: str, code: str = "self.q.put_nowait(x)") -> None:
        body = [head, "Traceback (most recent call last):", '  File "/opt/app/connector.py", line 40, in offload', f"    {code}", error]
        for text in body:
            self.log(at_s, process, pid, "ERROR", text)

    def everywhere(self, pid: int, frames: list[str], thread: str = "MainThread", samples: int = 3) -> None:
        self.stacks[pid, thread] = [frames] * samples

    def still(self, running: float = 4, waiting: float = 0) -> None:
        self.metrics = [self._metrics(100, running, waiting)] * 3

    def idle(self) -> None:
        """Nothing outstanding anywhere."""
        self.still(0, 0)
        self.clients = 0
        self.everywhere(CORE, CORE_IDLES)
        for rank in range(self.ranks):
            self.everywhere(WORKER + rank, WORKER_IDLES)

    def hang(self, outside: int, frames: list[str]) -> None:
        """One rank stands at `frames`, the others wait for it in a collective, the core waits for an answer."""
        self.still()
        self.everywhere(CORE, CORE_WAITS)
        for rank in range(self.ranks):
            self.everywhere(WORKER + rank, frames if rank == outside else IN_COLLECTIVE)

    # ---- writing

    def bundle(self) -> Path:
        times = [T0, T0 + int(2e9), T0 + int(self.span_s * 1e9)]
        pids = [API, CORE, *(WORKER + r for r in range(self.ranks))]
        table = [
            ProcessInfo(
                pid=API,
                ppid=1,
                node=self.node,
                comm="vllm",
                title=f"python3 vllm serve /m --tensor-parallel-size {self.ranks}",
                argv=("python3", "vllm", "serve", "/m", "--tensor-parallel-size", str(self.ranks)),
                state="S",
                start_ticks=10,
                listening_ports=(8000,),
            ),
            ProcessInfo(
                pid=CORE, ppid=API, node=self.node, title="VLLM::EngineCore", argv=("VLLM::EngineCore",), state="S", start_ticks=11
            ),
            *(
                ProcessInfo(pid=WORKER + r, ppid=CORE, node=self.node, title=title, argv=(title,), state="S", start_ticks=12)
                for r in range(self.ranks)
                for title in [f"VLLM::Worker_TP{r}" if self.ranks > 1 else "VLLM::Worker"]
            ),
        ]
        self._add("discovery", "discovery/processes.json", "process-table", msgspec.json.encode(table).decode(), at=T0)
        for sample, at in enumerate(times, 1):
            for pid in pids:
                self._stack(pid, sample, at)
                self._process(pid, sample, at)
            self._metrics_text(sample, at)
            for pid, read in self.objects.items():
                live = {"at_ns": at, "python": "3.11", "values": [], "queues": [], "locks": [], "waits": [], "notes": []}
                live |= read if sample in self.objects_in else {}
                self._add("objects", f"objects/pid-{pid}.{sample}.json", "live-json", json.dumps(live), pid=pid, sample=sample, at=at)
        self._ring()
        if self.health is not None:
            probe = {"url": "http://127.0.0.1:8000/health", "status": self.health, "latency_s": 0.004, "error": "", "body": ""}
            self._add("health", "health/8000-health.json", "http", json.dumps(probe), pid=API, at=T0 + int(1e9))
        self._fileset("memory", "memory/host.json", {"/proc/meminfo": self.meminfo}, T0)
        self._add("kernel", "kernel/dmesg.txt", "kernel-log", self.kernel, at=T0)
        if self.lines:
            self._add("rpclogs", "rpclogs/server.log", "log", "\n".join(self.lines) + "\n", pid=API, at=T0)
        for collector, name, kind_and_text, pid in self.extra:
            kind, _, text = kind_and_text.partition("|")
            self._add(collector, name, kind, text, pid=pid, at=T0)
        self.writer.seal(node=self.node, started_ns=T0 - int(1e9), ended_ns=times[-1] + int(1e9), utc_offset_s=0, profile="standard")
        return self.writer.path

    def _stack(self, pid: int, sample: int, at: int) -> None:
        default = {API: ["Runner.run (asyncio/runners.py)"], CORE: CORE_WAITS}.get(pid, IN_STEP if sample % 2 else IN_COLLECTIVE)
        mine = {t: s for (p, t), s in self.stacks.items() if p == pid} or {"MainThread": [default] * 3}
        if pid in self.unread:
            self._attempt("stacks", pid, sample, Outcome.DENIED, "not permitted", at)
            return
        threads = []
        placed = [(pid if name == "MainThread" else pid + 1000, name, samples) for name, samples in mine.items()]
        for tid, name, samples in (*placed, *self.others.get(pid, [])):
            if sample > len(samples):
                continue
            frames = [
                {
                    "name": f.split(" (")[0],
                    "filename": "/x/" + f.split(" (")[1][:-1],
                    "short_filename": f.split(" (")[1][:-1],
                    "line": 10,
                    "module": "/usr/lib/" + f.split(" (")[1][:-1] if ".so" in f else None,
                }
                for f in samples[sample - 1]
            ]
            active = "all_reduce" in "".join(samples[sample - 1])
            threads.append(
                {
                    "pid": pid,
                    "thread_id": tid,
                    "thread_name": name,
                    "os_thread_id": tid,
                    "active": active,
                    "owns_gil": self.gil.get(pid) == name,
                    "frames": frames,
                }
            )
        self._add("stacks", f"stacks/pid-{pid}.{sample}.json", "pyspy-json", json.dumps(threads), pid=pid, sample=sample, at=at)

    def _process(self, pid: int, sample: int, at: int) -> None:
        state = self.states.get((pid, sample), self.states.get((pid, 0), "S"))
        if state == "gone":
            self._attempt("process", pid, sample, Outcome.ABSENT, "ESRCH: the process is gone", at)
            return
        stat = f"{pid} (VLLM::Worker) {state} {CORE} " + " ".join(["0"] * 9) + " 0 0 0 0 20 0 4 0 12 0 1000 " + " ".join(["0"] * 28)
        self._fileset(
            "process",
            f"process/pid-{pid}.{sample}.json",
            {f"/proc/{pid}/stat": stat, f"/proc/{pid}/wchan": self.wchans.get(pid, "futex_do_wait")},
            at,
            pid,
            sample,
        )
        used = self.cpu.get((pid, pid), [0, 0, 0])[sample - 1]
        task = stat.replace(" 0 0 0 0 20 0 4", f" {int(used * 100)} 0 0 0 20 0 4", 1)
        self._fileset("cpu", f"cpu/pid-{pid}.{sample}.json", {f"/proc/{pid}/task/{pid}/stat": task}, at, pid, sample)

    def _metrics_text(self, sample: int, at: int) -> None:
        if "metrics" not in self.denied and sample <= len(self.metrics):
            m = self.metrics[sample - 1]
            text = (
                "# TYPE vllm:num_requests_running gauge\n"
                f'vllm:num_requests_running{{engine="0"}} {m["running"]}\nvllm:num_requests_waiting{{engine="0"}} {m["waiting"]}\n'
                f'vllm:generation_tokens_total{{engine="0"}} {m["tokens"]}\nvllm:iteration_tokens_total_count{{engine="0"}} {m["steps"]}\n'
            )
            if "gaps" in m:
                text += f'vllm:inter_token_latency_seconds_sum{{engine="0"}} {m["gap_seconds"]}\n'
                text += f'vllm:inter_token_latency_seconds_count{{engine="0"}} {m["gaps"]}\n'
            name = f"queues/metrics-8000.{sample}.prom"
            self._add("queues", name, "prometheus", text, pid=API, sample=sample, at=at, target="http://127.0.0.1:8000/metrics")
        self._sockets(sample, at)

    def _ring(self) -> None:
        if not self.ring:
            return
        looks = [
            {"at_ns": T0 + i * 500_000_000, "flags": "".join(f"0{f}" for f in "".join(slots)), "calls": []}
            for i, slots in enumerate(self.ring)
        ]
        for look in looks:
            look["calls"] = [{"slot": i, "name": "execute_model"} for i in range(len(self.ring[0]))]
        ring = {
            "segment": "psm_0a1b2c3d",
            "geometries": [{"slots": len(self.ring[0]), "readers": self.ranks, "known": True}],
            "looks": looks,
            "holders": [{"pid": pid} for pid in (CORE, *(WORKER + r for r in range(self.ranks)))],
        }
        self._add("rings", "rings/psm_0a1b2c3d.1.json", "ring-json", json.dumps(ring), pid=CORE, sample=1)

    def _sockets(self, sample: int, at: int) -> None:
        rows = [
            "  sl  local_address rem_address   st tx_queue rx_queue",
            "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 777 1",
        ]
        rows += [
            f"   {i}: 0100007F:1F40 0100007F:{40000 + i:04X} 01 00000000:00000000 00:00000000 00000000  0  0 {800 + i} 1"
            for i in range(1, self.clients + 1)
        ]
        self._fileset(
            "queues",
            f"queues/sockets.{sample}.json",
            {f"/proc/{API}/net/tcp": "\n".join(rows)},
            at,
            None,
            sample,
            links={f"/proc/{API}/fd/5": "socket:[777]"},
        )

    def _fileset(
        self,
        collector: str,
        name: str,
        files: dict[str, str],
        at: int,
        pid: int | None = None,
        sample: int = 0,
        links: dict[str, str] | None = None,
    ) -> None:
        body = {"at_ns": at, "files": files, "links": links or {}, "errors": {}, "truncated": []}
        self._add(collector, name, "fileset", json.dumps(body), pid=pid, sample=sample, at=at)

    def _add(
        self, collector: str, name: str, kind: str, text: str, *, pid: int | None = None, sample: int = 0, at: int = T0, target: str = ""
    ) -> None:
        if collector in self.denied:
            self._attempt(collector, pid, sample, Outcome(self.denied[collector]), "not permitted", at)
            return
        evidence = self.writer.add(name, kind, text.encode(), collector=collector, at_ns=at, sample=sample, pid=pid, source=name)
        self._attempt(collector, pid, sample, Outcome.OK, "", at, target, (evidence.path,) if evidence else ())

    def _attempt(
        self,
        collector: str,
        pid: int | None,
        sample: int,
        outcome: Outcome,
        reason: str,
        at: int,
        target: str = "",
        evidence: tuple[Any, ...] = (),
    ) -> None:
        origin = Origin(node=self.node, process=ProcessKey(pid=pid)) if pid else Origin(node=self.node)
        self.writer.attempt(
            Attempt(
                collector=collector,
                target=target or (f"pid {pid}" if pid else "node"),
                outcome=outcome,
                reason=reason,
                sample=sample,
                started_ns=at,
                ended_ns=at + 1,
                origin=origin,
                evidence=evidence,
            )
        )
