"""What a capture of a whole fleet leaves: one bundle a node in the form in which the collectors deliver it, all of one engine."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from forensics.bundle import BundleWriter, NullRedactor
from forensics.model import Attempt, Origin, Outcome, ProcessInfo, ProcessKey

RANKS_PER_NODE, SAMPLES, PYTHON_THREADS, THREADS, FRAMES = 8, 3, 10, 40, 14
T0 = 1_788_256_800_000_000_000
AT = (T0, T0 + 2 * 10**9, T0 + 15 * 10**9)
API, CORE, WORKER = 5100, 5200, 5300
IN_STEP = ("Attention.forward", "Worker.execute_model", "WorkerProc.worker_busy_loop")
IN_COLLECTIVE = ("OpOverloadPacket.__call__", "GroupCoordinator.all_reduce", "Worker.execute_model", "WorkerProc.worker_busy_loop")
CORE_WAITS = ("MessageQueue.dequeue", "MultiprocExecutor.collective_rpc.<locals>.get_response", "EngineCore.step")
FILE_OF = {
    "Attention.forward": "vllm/attention/layer.py",
    "Worker.execute_model": "vllm/v1/worker/gpu_worker.py",
    "WorkerProc.worker_busy_loop": "vllm/v1/executor/multiproc_executor.py",
    "OpOverloadPacket.__call__": "torch/_ops.py",
    "GroupCoordinator.all_reduce": "vllm/distributed/parallel_state.py",
    "MessageQueue.dequeue": "vllm/distributed/device_communicators/shm_broadcast.py",
    "MultiprocExecutor.collective_rpc.<locals>.get_response": "vllm/v1/executor/multiproc_executor.py",
    "EngineCore.step": "vllm/v1/engine/core.py",
}


Clock = tuple[dict[str, object] | None, str | None]
"""(adjtimex, chronyc) as the clock collector writes them."""
KEPT: Clock = ({"synchronised": True, "maxerror_us": 2000}, None)


def fleet(
    parent: Path,
    nodes: int,
    *,
    outside: int | None = None,
    clocks: tuple[Clock, ...] = (),
    without: Mapping[int, Collection[str]] | None = None,
) -> list[Path]:
    """Bundles of `nodes` nodes with eight ranks each: pipeline stage = node. `outside` stands still in its step, and so does the engine.

    clocks: what the first nodes say of their clocks; the others are kept by a time server. without: node to collectors that did not run.
    """
    made = []
    for node in range(nodes):
        clock = clocks[node] if node < len(clocks) else KEPT
        made.append(_Node(parent, node, nodes, outside, clock, (without or {}).get(node, ())).path)
    return made


class _Node:
    def __init__(self, parent: Path, node: int, nodes: int, outside: int | None, clock: Clock, without: Collection[str]) -> None:
        self.clock, self.without = clock, without
        self.node, self.nodes, self.outside = node, nodes, outside
        self.name = f"node{node:04d}"
        self.ranks = {WORKER + local: node * RANKS_PER_NODE + local for local in range(RANKS_PER_NODE)}
        self.pids = (API, *(() if node else (CORE,)), *self.ranks)
        """A follower has no engine core: its launcher starts the workers."""
        self.writer = BundleWriter(parent, f"{self.name}-bundle", redactor=NullRedactor())
        self.path = self.writer.path
        self._table()
        for sample, at in enumerate(AT, 1):
            for pid in self.pids:
                self._process(pid, sample, at)
            self._metrics(sample, at)
            self._fileset("cpu", f"cpu/host.{sample}.json", self._host(sample), at, None, sample)
        self._machine()
        self._add("rpclogs", "rpclogs/server.log", "log", self._log(), AT[-1], API)
        self.writer.seal(node=self.name, started_ns=T0 - 10**9, ended_ns=AT[-1] + 10**9, utc_offset_s=0, profile="standard")

    def _table(self) -> None:
        serve = [
            "python3",
            "vllm",
            "serve",
            "/m",
            "--tensor-parallel-size",
            str(RANKS_PER_NODE),
            "--pipeline-parallel-size",
            str(self.nodes),
        ]
        if self.nodes > 1:
            serve += ["--nnodes", str(self.nodes), "--node-rank", str(self.node), "--master-addr", "192.0.2.1"]
        serve += ["--headless"] if self.node else []
        ports = () if self.node else (8000,)
        rows = [
            ProcessInfo(pid=API, ppid=1, node=self.name, argv=tuple(serve), title=" ".join(serve), state="S", listening_ports=ports),
        ]
        if not self.node:
            rows.append(ProcessInfo(pid=CORE, ppid=API, node=self.name, title="VLLM::EngineCore", argv=("VLLM::EngineCore",), state="S"))
        for local, pid in enumerate(self.ranks):
            title = f"VLLM::Worker_PP{self.node}_TP{local}"
            rows.append(ProcessInfo(pid=pid, ppid=API if self.node else CORE, node=self.name, title=title, argv=(title,), state="S"))
        self._add("discovery", "discovery/processes.json", "process-table", msgspec.json.encode(rows).decode(), T0)

    def _process(self, pid: int, sample: int, at: int) -> None:
        still = self.outside is not None
        main: tuple[str, ...] = CORE_WAITS
        if pid in self.ranks:
            at_work = self.ranks[pid] == self.outside if still else sample % 2 == 0
            main = IN_STEP if at_work else IN_COLLECTIVE
        threads = [self._stack(pid, pid, "MainThread", main)]
        for n in range(1, PYTHON_THREADS):
            helper = [f"Helper{n}.step{depth}" for depth in range(FRAMES)]
            threads.append(self._stack(pid, pid + 1000 * n, f"helper-{n}", tuple(helper)))
        self._add("stacks", f"stacks/pid-{pid}.{sample}.json", "pyspy-json", json.dumps(threads), at, pid, sample)
        stat = f"{pid} (VLLM::Worker) S {CORE} " + " ".join(["0"] * 9) + " 0 0 0 0 20 0 4 0 12 0 1000 " + " ".join(["0"] * 28)
        status = "Name:\tVLLM::Worker\nState:\tS (sleeping)\nThreads:\t40\nVmRSS:\t 9000000 kB\nCpus_allowed_list:\t0-127\n"
        files = {f"/proc/{pid}/{n}": text for n, text in (("stat", stat), ("status", status), ("wchan", "futex_do_wait"), ("comm", "VLLM"))}
        self._fileset("process", f"process/pid-{pid}.{sample}.json", files, at, pid, sample)
        photo = {}
        for n in range(THREADS):
            task = f"/proc/{pid}/task/{pid + 1000 * n}"
            ticks = sample * 100 if not n else 0
            photo[f"{task}/stat"] = stat.replace(" 0 0 0 0 20 0 4", f" {ticks} 0 0 0 20 0 4", 1)
            photo[f"{task}/schedstat"], photo[f"{task}/wchan"] = f"{ticks}0000 0 1", "futex_do_wait"
        self._fileset("cpu", f"cpu/pid-{pid}.{sample}.json", photo, at, pid, sample)
        values = [{"name": "running_requests", "expr": "x", "type": "int", "value": "4", "torn": False}] if pid == CORE else []
        live = {"at_ns": at, "python": "3.12", "values": values, "queues": [], "locks": [], "waits": [], "notes": []}
        self._add("objects", f"objects/pid-{pid}.{sample}.json", "live-json", json.dumps(live), at, pid, sample)

    @staticmethod
    def _stack(pid: int, tid: int, name: str, names: tuple[str, ...]) -> dict[str, object]:
        frames = [
            {"name": n, "filename": f"/x/{FILE_OF.get(n, 'helper.py')}", "short_filename": FILE_OF.get(n, "helper.py"), "line": 10}
            for n in names
        ]
        active = "GroupCoordinator.all_reduce" in names
        return {
            "pid": pid,
            "thread_id": tid,
            "thread_name": name,
            "os_thread_id": tid,
            "active": active,
            "owns_gil": False,
            "frames": frames,
        }

    def _metrics(self, sample: int, at: int) -> None:
        if not self.node:
            steps = 100 if self.outside is not None else 100 + 60 * sample
            text = (
                "# TYPE vllm:num_requests_running gauge\n"
                'vllm:num_requests_running{engine="0"} 4\nvllm:num_requests_waiting{engine="0"} 0\n'
                f'vllm:generation_tokens_total{{engine="0"}} {4 * steps}\nvllm:iteration_tokens_total_count{{engine="0"}} {steps}\n'
            )
            target = "http://127.0.0.1:8000/metrics"
            self._add("queues", f"queues/metrics-8000.{sample}.prom", "prometheus", text, at, API, sample, target=target)
        rows = ["  sl  local_address rem_address   st tx_queue rx_queue"]
        rows += [
            f"   {i}: 0100007F:1F40 0100007F:{40000 + i:04X} 01 00000000:00000000 00:00000000 00000000  0  0 {800 + i} 1" for i in range(40)
        ]
        files = {f"/proc/{pid}/net/tcp": "\n".join(rows) for pid in self.pids[:2]}
        self._fileset("queues", f"queues/sockets.{sample}.json", files, at, None, sample, links={f"/proc/{API}/fd/5": "socket:[801]"})

    @staticmethod
    def _host(sample: int) -> dict[str, str]:
        ticks = 1000 * sample
        cpus = "".join(f"cpu{n} {ticks} 0 0 {ticks}\n" for n in range(128))
        pressure = "some avg10=0.50 avg60=0.40 avg300=0.30 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        return {"/proc/stat": f"cpu  {ticks} 0 0 {ticks} 0 0 0 0\n{cpus}", "/proc/loadavg": "9 9 9 9/900 4", "/proc/pressure/cpu": pressure}

    def _machine(self) -> None:
        meminfo = "MemTotal: 2000000000 kB\nMemFree: 5000000 kB\nMemAvailable: 1600000000 kB\n"
        self._fileset("memory", "memory/host.json", {"/proc/meminfo": meminfo}, T0, None)
        kernel = "[    1.000000] Linux version 6.8\n" + "".join(f"[ {n}.000000] eth{n}: Link up\n" for n in range(2, 400))
        self._add("kernel", "kernel/dmesg.txt", "kernel-log", kernel, T0)
        for index, pid in enumerate(self.ranks):
            gpu = {
                "index": index,
                "uuid": f"GPU-{self.node}-{index}",
                "name": "NVIDIA H200",
                "utilization_percent": 90,
                "power_mw": 400_000,
            }
            gpu |= {"power_limit_mw": 700_000, "temperature_c": 50, "throttle_bits": 0, "processes": [{"pid": pid, "used_bytes": 1}]}
            self._add("gpu", f"gpu/{index}.json", "nvml", json.dumps(gpu), T0)
        zones: dict[str, str] = {}
        for n in range(16):
            base = f"/sys/class/thermal/thermal_zone{n}"
            zones |= {f"{base}/type": "acpitz", f"{base}/temp": "40000", f"{base}/trip_point_0_type": "critical"}
            zones[f"{base}/trip_point_0_temp"] = "100000"
        for sample in (1, 2):
            self._fileset("thermal", f"thermal/zones.{sample}.json", zones, AT[sample - 1], None, sample)
        self._builds()
        clock = {"wall_ns": T0, "boottime_ns": 10**15, "utc_offset_s": 0, "adjtimex": self.clock[0], "chronyc": self.clock[1]}
        self._add("clock", "clock/clock.json", "clock", json.dumps(clock), T0)
        if not self.node:
            probe = {"url": "http://127.0.0.1:8000/health", "status": 200, "latency_s": 0.004, "error": "", "body": ""}
            self._add("health", "health/8000-health.json", "http", json.dumps(probe), T0, API)
        flags = "".join("01" * (1 + RANKS_PER_NODE) for _ in range(10))
        calls = [{"slot": n, "name": "execute_model"} for n in range(10)]
        ring = {
            "segment": f"psm_{self.node:08x}",
            "geometries": [{"slots": 10, "readers": RANKS_PER_NODE, "known": True}],
            "looks": [{"at_ns": T0 + n * 5 * 10**8, "flags": flags, "calls": calls} for n in range(2)],
            "holders": [{"pid": pid} for pid in self.pids[1:]],
        }
        self._add("rings", f"rings/psm_{self.node:08x}.1.json", "ring-json", json.dumps(ring), T0, self.pids[1], 1)

    def _builds(self) -> None:
        site = "/opt/env/lib/python3.12/site-packages"
        libraries = [
            {"path": f"{site}/{path}", "version": "2.27.5", "build_id": f"{n:040x}"}
            for n, path in enumerate(
                ("nvidia/nccl/lib/libnccl.so.2", "torch/lib/libtorch_cpu.so", "torch/lib/libtorch_cuda.so", "vllm/_C.abi3.so")
            )
        ]
        packages = [{"package": name, "folder": site, "version": "1.0", "changed_ns": 1} for name in ("vllm", "torch")]
        for pid in self.pids:
            body = {
                "pid": pid,
                "python": "3.12",
                "process_started_ns": 2,
                "driver": "570.86.15",
                "packages": packages,
                "libraries": libraries,
            }
            self._add("builds", f"builds/pid-{pid}.json", "builds", json.dumps(body), T0, pid)
        checks = [{"distribution": "vllm", "folder": site, "named": 9, "hashed": 9, "sources": 9, "sources_hashed": 9}]
        distributions = [{"name": f"package-{n}", "version": "1.0", "folder": site} for n in range(150)]
        body = {"pids": list(self.pids), "folders": [site], "distributions": distributions, "checks": checks}
        self._add("builds", "builds/environment-1.json", "environment", json.dumps(body), T0)

    def _log(self) -> str:
        world = self.nodes * RANKS_PER_NODE
        lines = []

        def log(at_s: float, process: str, pid: int, message: str) -> None:
            stamp = time.strftime("%m-%d %H:%M:%S", time.gmtime(T0 / 1e9 + at_s))
            lines.append(f"({process} pid={pid}) INFO {stamp} [x.py:1] {message}")

        for local, (pid, rank) in enumerate(self.ranks.items()):
            place = (
                f"rank {rank} in world size {world} is assigned as DP rank 0, PP rank {self.node}, PCP rank 0, TP rank {local}, EP rank N/A"
            )
            log(-3600, f"Worker_PP{self.node}_TP{local}", pid, place)
        if not self.node:
            log(-3500, "EngineCore", CORE, "init engine (profile, create kv cache, warmup model) took 9.20 s")
            lines.append(f"(APIServer pid={API}) INFO:     Application startup complete.")
            for at_s in range(-3400, -20, 10):
                rates = "Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 90.0 tokens/s"
                log(at_s, "APIServer", API, f"Engine 000: {rates}, Running: 4 reqs, Waiting: 0 reqs, GPU KV cache usage: 5.0%")
        for n in range(300):
            log(-3400 + 11 * n, f"Worker_PP{self.node}_TP{n % 8}", WORKER + n % 8, f"cache block {n} of step {n * 17} is warm")
        return "\n".join(lines) + "\n"

    def _fileset(
        self,
        collector: str,
        name: str,
        files: dict[str, str],
        at: int,
        pid: int | None,
        sample: int = 0,
        links: dict[str, str] | None = None,
    ) -> None:
        body = {"at_ns": at, "files": files, "links": links or {}, "errors": {}, "truncated": []}
        self._add(collector, name, "fileset", json.dumps(body), at, pid, sample)

    def _add(
        self, collector: str, name: str, kind: str, text: str, at: int, pid: int | None = None, sample: int = 0, target: str = ""
    ) -> None:
        if collector in self.without:
            return
        made = self.writer.add(name, kind, text.encode(), collector=collector, at_ns=at, sample=sample, pid=pid, source=name)
        self.writer.attempt(
            Attempt(
                collector=collector,
                target=target or (f"pid {pid}" if pid else "node"),
                outcome=Outcome.OK,
                sample=sample,
                started_ns=at,
                ended_ns=at + 1,
                origin=Origin(node=self.name, process=ProcessKey(pid=pid)) if pid else Origin(node=self.name),
                evidence=(made.path,),
            )
        )
