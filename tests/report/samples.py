"""Hand-made reports, rich enough that every branch of every rendering has something to show."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

from forensics.model import (
    Alignment,
    Build,
    Coverage,
    CoverageCell,
    EngineProcess,
    EngineReport,
    EvidenceRef,
    Finding,
    FindingRole,
    Grade,
    Hypothesis,
    LedgerEntry,
    NodeAnswer,
    Outcome,
    Phase,
    ProcessInfo,
    RankId,
    Report,
    Role,
    Root,
    RuleResult,
    RuleStatus,
    Setting,
    SettingReading,
    Severity,
    StackGroup,
    StackNode,
    StackOutlier,
    StackPresence,
    StatedShape,
    TimelineEvent,
    TimeRange,
    Verdict,
    Wait,
)

SECOND = 1_000_000_000
NODE = "gpu-a"


def at(clock: str, millis: int = 0, day: int = 1) -> int:
    hour, minute, second = map(int, clock.split(":"))
    moment = datetime(2026, 9, day, hour, minute, second, tzinfo=timezone.utc)
    return int(moment.timestamp()) * SECOND + millis * 1_000_000


def instant(clock: str, basis: str = "logged", millis: int = 0) -> TimeRange:
    ns = at(clock, millis)
    return TimeRange(earliest_ns=ns, latest_ns=ns, basis=basis)


def between(first: str, last: str, basis: str = "sampled") -> TimeRange:
    return TimeRange(earliest_ns=at(first), latest_ns=at(last), basis=basis)


def ref(source: str, locator: str, quote: str = "") -> EvidenceRef:
    return EvidenceRef(source=source, locator=locator, quote=quote)


def process(pid: int, role: Role, label: str, rank: int | None = None, world: int | None = None, node: str = NODE) -> EngineProcess:
    place = RankId(rank=rank, world_size=world, tp=rank) if rank is not None else None
    return EngineProcess(info=ProcessInfo(pid=pid, node=node, title=f"engine {label}"), role=role, rank=place, label=label)


def cells(node: str, ranks: dict[int, int], sources: tuple[str, ...], outcome: Outcome = Outcome.OK, reason: str = "", cure: str = ""):
    return tuple(
        CoverageCell(node=node, rank=rank, pid=pid, source=source, outcome=outcome, reason=reason, cure=cure)
        for rank, pid in ranks.items()
        for source in sources
    )


def node_cells(node: str, **outcomes: tuple[Outcome, str, str] | Outcome) -> tuple[CoverageCell, ...]:
    out = []
    for source, value in outcomes.items():
        outcome, reason, cure = value if isinstance(value, tuple) else (value, "", "")
        out.append(CoverageCell(node=node, source=source, outcome=outcome, reason=reason, cure=cure))
    return tuple(out)


_NOT_PERMITTED = "EPERM /dev/kmsg: Operation not permitted"
_KMSG_CURE = "run as root, or set kernel.dmesg_restrict=0"


def suspicions(asked: bool = False) -> tuple[Hypothesis, ...]:
    """Two that are always answered, and one with all three columns."""
    free = "212 GiB (83%) of the host's memory was available 12 s after the onset"
    lean = "no line of the log says that /dev/shm was full"
    waited = "Requests had been waiting without a break for 4 min before (3 to 7 waiting)"
    return (
        Hypothesis(
            name="memory",
            claim="Memory ran out: the host's, a container's, /dev/shm, a GPU's or the KV cache",
            verdict=Grade.REFUTED,
            sentence=f"{free}; {lean}.",
            engine="e0",
            against=(
                LedgerEntry(
                    text=free,
                    node=NODE,
                    part="host memory",
                    decides=True,
                    ref=ref("memory/host.json", "/proc/meminfo", "MemAvailable 212.0 GiB"),
                ),
                LedgerEntry(text=lean, node=NODE, part="/dev/shm", ref=ref("/var/log/engine/serve.log", "lines 1 to 900")),
            ),
            nodes=(NodeAnswer(node=NODE, verdict=Grade.REFUTED, said=(free, lean)),),
        ),
        Hypothesis(
            name="thermal",
            claim="Heat was at work: a sensor at its limit, or clocks lowered for it",
            verdict=Grade.NOT_ASSESSABLE,
            sentence="not looked at: the sensors and their trip points.",
            engine="e0",
            unread=(LedgerEntry(text="the sensors and their trip points", node=NODE, part="the sensors"),),
            nodes=(NodeAnswer(node=NODE, verdict=Grade.NOT_ASSESSABLE),),
        ),
        Hypothesis(
            name="overload",
            claim="More was asked of the engine than it can do",
            verdict=Grade.POSSIBLE,
            sentence=f"{waited}; not looked at: whether the queue was growing.",
            engine="e0",
            asked=asked,
            supporting=(
                LedgerEntry(
                    text=waited,
                    part="the queue",
                    finding="backlog-before-onset",
                    ref=ref("/var/log/engine/serve.log", "line 780", "Waiting: 3 reqs"),
                ),
            ),
            against=(
                LedgerEntry(
                    text="the KV cache was at most 61% full", part="the KV cache", ref=ref("/var/log/engine/serve.log", "line 790")
                ),
            ),
            unread=(LedgerEntry(text="whether the queue was growing", part="the queue"),),
            nodes=(NodeAnswer(node="", verdict=Grade.POSSIBLE, said=(waited,)),),
            does_not_show="that load began the trouble: many engines carry a queue for hours",
        ),
    )


def config(node: str) -> tuple[Setting, ...]:
    """A switch that runs otherwise than it was asked for, a raised limit, and one that nobody minds."""
    live = ref("objects/pid-4231.3.json", "value 7", '{"name": "async_scheduling", "value": false}')
    asked = ref("process table", "pid 4200", "--async-scheduling true")
    limit = ref("process table", "pid 4200 environment", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800")
    size = ref("/var/log/engine/serve.log", "line 3", "tensor_parallel_size=4")
    return (
        Setting(
            name="async_scheduling",
            value="false",
            via="live object",
            stated=True,
            disagreement=f"the live object of pid 4231 of {node} says false, the command line of pid 4200 of {node} says true",
            disagreeing=(live, asked),
            readings=(
                SettingReading(value="false", via="live object", node=node, pids=(4231,), ref=live),
                SettingReading(value="true", via="command line", node=node, pids=(4200,), asked=True, ref=asked),
            ),
        ),
        Setting(
            name="tensor_parallel_size",
            value="4",
            via="log",
            stated=True,
            readings=(SettingReading(value="4", via="log", node=node, pids=(4231,), ref=size),),
        ),
        Setting(
            name="VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
            value="1800",
            via="environment",
            default="300",
            stated=True,
            risk="30 min is above the default of 5 min: a standstill is noticed that much later, and none is cured",
            readings=(SettingReading(value="1800", via="environment", node=node, pids=(4200,), asked=True, ref=limit),),
        ),
    )


def stalled() -> Report:
    """TP=4: rank 2 is stopped, the others spin in all_reduce, the core waits for the output rank."""
    workers = {r: 4243 + r for r in range(4)}
    stopped = workers[2]
    seen = (
        *cells(NODE, {0: workers[0], 1: workers[1], 3: workers[3]}, ("stacks", "process", "cpu", "log")),
        CoverageCell(
            node=NODE, rank=2, pid=stopped, source="stacks", outcome=Outcome.PARTIAL, reason="stopped process: read without pausing it"
        ),
        *cells(NODE, {2: stopped}, ("process", "cpu", "log")),
        CoverageCell(node=NODE, pid=4200, source="stacks", outcome=Outcome.OK),
        CoverageCell(node=NODE, pid=4200, source="metrics", outcome=Outcome.OK),
        CoverageCell(node=NODE, pid=4200, source="health", outcome=Outcome.OK),
        CoverageCell(node=NODE, pid=4200, source="log", outcome=Outcome.OK),
        CoverageCell(node=NODE, pid=4231, source="stacks", outcome=Outcome.OK),
        CoverageCell(node=NODE, pid=4231, source="process", outcome=Outcome.OK),
        CoverageCell(node=NODE, pid=4231, source="log", outcome=Outcome.OK),
        *node_cells(
            NODE,
            thermal=Outcome.OK,
            memory=Outcome.OK,
            clock=Outcome.OK,
            kernel=(Outcome.DENIED, _NOT_PERMITTED, _KMSG_CURE),
            gpu=(Outcome.ABSENT, "no NVML library on this node", ""),
            patches=Outcome.EMPTY,
        ),
    )
    coverage = Coverage(expected_ranks=(0, 1, 2, 3), seen_ranks=(0, 1, 2, 3), expected_nodes=(NODE,), seen_nodes=(NODE,), cells=seen)
    root = Root(finding="process-stopped", grade=Grade.ESTABLISHED, node=NODE, rank=2, pid=stopped, since_ns=at("10:02:00"))
    verdict = Verdict(
        state="stalled",
        sentence="vllm on gpu-a holds 16 requests and has not advanced since 10:02:00Z; rank 2 is stopped and ranks 0, 1 and 3 wait for it.",
    )
    findings = (
        Finding(
            id="engine-stalled",
            grade=Grade.ESTABLISHED,
            severity=Severity.CRITICAL,
            role=FindingRole.CASCADE,
            engine="e0",
            nodes=(NODE,),
            title="16 requests are held and no step has completed between two samples 20 s apart",
            because=(
                ref(
                    "http://127.0.0.1:8000/metrics",
                    "sample 2 iteration_tokens_total_count",
                    "81733 in both samples; num_requests_running 16",
                ),
                ref("/proc/net/tcp", "port 8000", "16 established client connections in both samples"),
                ref("stacks/pid-4231.2.json", "MainThread frame 0", "get_response (multiproc_executor.py:440), unmoved"),
            ),
            does_not_show="Requests that arrived after the stall began are not in the gauges.",
            next_steps=("Drain the load balancer away from gpu-a before the 300 s limit kills the engine.",),
            since=instant("10:02:00", "inferred"),
        ),
        Finding(
            id="process-stopped",
            grade=Grade.ESTABLISHED,
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT,
            engine="e0",
            nodes=(NODE,),
            ranks=(2,),
            pids=(stopped,),
            title="Worker TP2 (pid 4245) is stopped by a signal: state T in both samples",
            because=(
                ref("/proc/4245/status", "State, samples 1 and 2", "State:\tT (stopped)"),
                ref("/proc/4245/wchan", "sample 2", "do_signal_stop"),
                ref("/proc/4245/stat", "utime, samples 1 and 2", "no CPU time used in 20.0 s"),
            ),
            against=(),
            does_not_show="Who sent the signal: the kernel keeps no record of that.",
            would_settle=("an audit rule on kill(2), or the shell history of whoever was logged in",),
            next_steps=(
                "Find who stopped pid 4245 (job control, a debugger, a cgroup freezer); `kill -CONT 4245` lets it go on.",
                "Keep the bundle: a restart destroys this evidence.",
            ),
            since=between("10:01:58", "10:02:00"),
        ),
        Finding(
            id="busy-spin",
            grade=Grade.ESTABLISHED,
            severity=Severity.INFO,
            role=FindingRole.AMPLIFIER,
            engine="e0",
            nodes=(NODE,),
            ranks=(0, 1, 3),
            pids=(workers[0], workers[1], workers[3]),
            title="Ranks 0, 1 and 3 burn a full core each polling in all_reduce: they are the victims",
            because=(ref("/proc/4243/task/4243/stat", "samples 1 and 2", "19.9 CPU s in 20.0 s, same frame all_reduce"),),
            since=instant("10:02:01", "sampled"),
        ),
        Finding(
            id="symptom-shm-broadcast-wait",
            grade=Grade.ESTABLISHED,
            severity=Severity.WARNING,
            role=FindingRole.CASCADE,
            engine="e0",
            nodes=(NODE,),
            title="The core has waited 60 s for an answer of the output rank",
            because=(
                ref(
                    "/var/log/engine/serve.log",
                    "line 812",
                    "(EngineCore pid=4231) INFO 09-01 10:03:00 [shm_broadcast.py:871] No available shared memory broadcast block found in 60 seconds.",
                ),
            ),
            since=instant("10:02:00", "inferred"),
        ),
        Finding(
            id="health-endpoint-misleading",
            grade=Grade.ESTABLISHED,
            severity=Severity.WARNING,
            role=FindingRole.CONTEXT,
            engine="e0",
            nodes=(NODE,),
            title="/health answered 200 in 3 ms while nothing advanced",
            because=(ref("http://127.0.0.1:8000/health", "sample 1", "200 in 0.003 s"),),
            next_steps=("Probe progress, not /health.",),
            since=instant("10:03:04", "sampled"),
        ),
        Finding(
            id="memory-exhaustion",
            grade=Grade.REFUTED,
            severity=Severity.INFO,
            role=FindingRole.CONTEXT,
            nodes=(NODE,),
            title="Host memory did not run out: 412 GiB of 512 GiB available, no OOM kill counted",
            because=(ref("/proc/meminfo", "MemAvailable", "MemAvailable:   432013312 kB"),),
            against=(ref("/proc/meminfo", "MemAvailable", "MemAvailable:   432013312 kB"),),
        ),
        Finding(
            id="thermal-high",
            grade=Grade.REFUTED,
            severity=Severity.INFO,
            role=FindingRole.CONTEXT,
            nodes=(NODE,),
            title="No zone was near its trip point: the hottest at 61 °C of 95 °C",
            because=(ref("/sys/class/thermal/thermal_zone3", "temp", "61000 (passive trip 95000)"),),
        ),
        Finding(
            id="evidence-missing:kernel/gpu-a",
            grade=Grade.ESTABLISHED,
            severity=Severity.WARNING,
            role=FindingRole.CONTEXT,
            nodes=(NODE,),
            title="The kernel log of gpu-a was not read: machine trouble (Xid, MCE, OOM) can be neither claimed nor excluded",
            because=(ref("attempts.jsonl", "kernel", "DENIED EPERM /dev/kmsg: Operation not permitted"),),
            would_settle=("the kernel log of gpu-a from 10:00 on (run `dmesg -T` as root)",),
        ),
    )
    return Report(
        verdict=verdict,
        root=root,
        engines=(
            EngineReport(
                id="e0",
                kind="vllm",
                version="0.32.0",
                verdict=verdict,
                root=root,
                coverage=coverage,
                nodes=(NODE,),
                processes=(
                    process(4200, Role.API, "API server"),
                    process(4231, Role.CORE, "core"),
                    *(process(pid, Role.WORKER, f"worker TP{r}", r, 4) for r, pid in workers.items()),
                ),
                builds=(
                    Build(
                        component="vllm",
                        version="0.32.0",
                        via="packages",
                        nodes=(NODE,),
                        ranks=(0, 1, 2, 3),
                        pids=(4200, 4231, *workers.values()),
                    ),
                    Build(
                        component="nccl", version="2.27.5", build_id="3f2a", path="/x/libnccl.so.2", via="maps", nodes=(NODE,), ranks=(0,)
                    ),
                ),
            ),
        ),
        findings=findings,
        hypotheses=suspicions(),
        first_event=TimelineEvent(
            at=between("10:01:58", "10:02:00"),
            node=NODE,
            what="last step completed",
            ref=ref("/var/log/engine/serve.log", "line 809", "Engine 000: Avg generation throughput: 512.3 tokens/s, Running: 16 reqs"),
            engine="e0",
        ),
        coverage=coverage,
        clocks=(Alignment(node=NODE, method="one node: its own clock", bound_ns=0, utc_offset_s=0),),
        phases=(
            Phase(
                engine="e0",
                name="serving",
                since=instant("09:31:00"),
                until=instant("10:02:00"),
                ended_by="rank 2 stops answering",
                ref=ref("/proc/4245/status", "State", "State:\tT (stopped)"),
            ),
            Phase(engine="e0", name="onset", since=instant("10:02:00")),
        ),
        timeline=(
            TimelineEvent(
                at=instant("10:01:58"),
                node=NODE,
                what="serving: 16 requests running, 512.3 tokens/s",
                ref=ref("/var/log/engine/serve.log", "line 809", "Engine 000: Avg generation throughput: 512.3 tokens/s, Running: 16 reqs"),
                engine="e0",
            ),
            TimelineEvent(
                at=between("10:01:58", "10:02:00", "inferred"),
                node=NODE,
                what="rank 2 stops answering",
                ref=ref("/proc/4245/status", "State", "State:\tT (stopped)"),
                engine="e0",
                rank=2,
                finding="process-stopped",
            ),
            TimelineEvent(
                at=instant("10:03:00"),
                node=NODE,
                what="core waits for a broadcast block",
                ref=ref("/var/log/engine/serve.log", "line 812", "No available shared memory broadcast block found in 60 seconds."),
                engine="e0",
                finding="symptom-shm-broadcast-wait",
                count=2,
            ),
            TimelineEvent(
                at=instant("10:03:04", "sampled", 250),
                node=NODE,
                what="/health answers 200",
                ref=ref("http://127.0.0.1:8000/health", "sample 1", "200 in 0.003 s"),
                engine="e0",
            ),
        ),
        stacks=(
            StackGroup(
                engine="e0",
                thread="MainThread",
                frames=(
                    "all_reduce (torch/distributed/distributed_c10d.py:2937)",
                    "forward (model_executor/layers/linear.py:1482)",
                    "execute_model (v1/worker/gpu_model_runner.py:3377)",
                    "worker_busy_loop (v1/executor/multiproc_executor.py:943)",
                ),
                processes=("worker TP0", "worker TP1", "worker TP3"),
                ranks=(0, 1, 3),
                samples=2,
                moved=False,
            ),
            StackGroup(
                engine="e0",
                thread="MainThread",
                frames=("forward (model_executor/models/llama.py:311)", "execute_model (v1/worker/gpu_model_runner.py:3377)"),
                processes=("worker TP2",),
                ranks=(2,),
                samples=2,
                moved=False,
            ),
            StackGroup(
                engine="e0",
                thread="MainThread",
                frames=("get_response (v1/executor/multiproc_executor.py:440)", "step (v1/engine/core.py:674)"),
                processes=("core",),
                samples=2,
                moved=None,
            ),
        ),
        stack_tree=(
            StackNode(
                engine="e0",
                frames=(
                    "worker_busy_loop (v1/executor/multiproc_executor.py:943)",
                    "execute_model (v1/worker/gpu_model_runner.py:3377)",
                ),
                stacks=8,
                threads=4,
                steady=4,
                samples=2,
                names=("MainThread",),
                present=(StackPresence(role="worker", count=4, has="0-3", stacks=8),),
            ),
            StackNode(
                engine="e0",
                depth=1,
                frames=("forward (model_executor/models/llama.py:311)",),
                stacks=2,
                threads=1,
                steady=1,
                samples=2,
                names=("MainThread",),
                present=(StackPresence(role="worker", count=1, has="2", lacks="0-1,3", stacks=2),),
                outliers="2",
            ),
            StackNode(
                engine="e0",
                depth=1,
                frames=("forward (model_executor/layers/linear.py:1482)", "all_reduce (torch/distributed/distributed_c10d.py:2935,2937)"),
                stacks=6,
                threads=3,
                steady=3,
                samples=2,
                names=("MainThread",),
                present=(StackPresence(role="worker", count=3, has="0-1,3", lacks="2", stacks=6),),
            ),
            StackNode(
                engine="e0",
                frames=("step (v1/engine/core.py:674)", "get_response (v1/executor/multiproc_executor.py:440)"),
                stacks=1,
                threads=1,
                steady=1,
                samples=1,
                names=("MainThread",),
                present=(StackPresence(role="core", processes=("core",), stacks=1),),
            ),
            StackNode(
                engine="e0",
                frames=("run (threading.py:953)",),
                stacks=40,
                threads=20,
                steady=18,
                samples=2,
                names=("ThreadPoolExecutor-0_0", "heartbeat"),
                present=(
                    StackPresence(role="worker", count=2, has="0-1", lacks="2", unread="3", stacks=24),
                    StackPresence(role="api", processes=("API server",), stacks=16),
                ),
            ),
            StackNode(
                engine="e0",
                depth=1,
                stacks=16,
                threads=8,
                present=(StackPresence(role="api", processes=("API server",), stacks=16),),
                left_out=5,
            ),
        ),
        outliers=(
            StackOutlier(
                engine="e0",
                role="worker",
                thread="MainThread",
                ranks=(2,),
                processes=("worker TP2",),
                stands="forward (model_executor/models/llama.py:311)",
                shared="execute_model (v1/worker/gpu_model_runner.py:3377)",
                next="forward (model_executor/models/llama.py:311)",
                majority="all_reduce (torch/distributed/distributed_c10d.py:2935,2937)",
                majority_ranks="0-1,3",
                samples=2,
                ref=ref(f"stacks/pid-{stopped}.2.json", 'thread 4245 "MainThread"', "forward (model_executor/models/llama.py:311)"),
            ),
        ),
        waits=(
            Wait(
                waiter="API server",
                waits_for="core",
                via="socket",
                grade=Grade.SUPPORTED,
                ref=ref("/proc/net/unix", "sample 2", "16 streams open, nothing to read"),
            ),
            Wait(
                waiter="core",
                waits_for="worker TP0",
                via="rpc-response",
                grade=Grade.ESTABLISHED,
                ref=ref("stacks/pid-4231.2.json", "MainThread frame 0", "get_response (multiproc_executor.py:440)"),
                target_rank=0,
            ),
            *(
                Wait(
                    waiter=f"worker TP{r}",
                    waits_for="worker TP2",
                    via="collective",
                    grade=Grade.ESTABLISHED,
                    ref=ref(f"stacks/pid-{workers[r]}.2.json", "MainThread frame 0", "all_reduce (distributed_c10d.py:2937)"),
                    waiter_rank=r,
                    target_rank=2,
                )
                for r in (0, 1, 3)
            ),
        ),
        rules=(
            RuleResult(rule="engine_stalled", status=RuleStatus.FIRED, engine="e0"),
            RuleResult(rule="process_stopped", status=RuleStatus.FIRED, engine="e0"),
            RuleResult(rule="lock_deadlock", status=RuleStatus.CLEAR, engine="e0", reason="no thread of any rank stands in a lock acquire"),
            RuleResult(rule="host_stable", status=RuleStatus.INCONCLUSIVE, reason="the kernel log was not read", missing=("kernel/gpu-a",)),
            RuleResult(rule="patch_live", status=RuleStatus.NOT_APPLICABLE, engine="e0", reason="no patches.toml was given"),
            RuleResult(rule="memory_exhaustion", status=RuleStatus.FIRED),
        ),
        inputs=("gpu-a-20260901T100304Z.tar.gz",),
        unread=(),
        meta={"incident": "INC-1432", "node": NODE, "captured": "2026-09-01T10:03:04Z", "tool": "inference-forensics 0.1.0"},
    )


def dead() -> Report:
    """TP=2 from bare logs of one node: the queue.Full of rank 0 killed the engine; a lock cycle is drawn as well."""
    node = "node0"
    verdict = Verdict(
        state="dead", sentence="The engine core ended fatally at 14:16:42Z; a bounded queue of rank 0 refused an item one second before."
    )
    root = Root(finding="bounded-queue-overflow", grade=Grade.ESTABLISHED, node=node, rank=0, pid=7256, since_ns=at("14:16:41"))
    coverage = Coverage(
        expected_ranks=(0, 1),
        seen_ranks=(0, 1),
        expected_nodes=(node,),
        seen_nodes=(node,),
        cells=(
            *cells(node, {0: 7256, 1: 7257}, ("log",)),
            *cells(node, {0: 7256, 1: 7257}, ("stacks",), Outcome.SKIPPED, "bare logs: nothing was captured"),
            *node_cells(node, kernel=(Outcome.SKIPPED, "bare logs: nothing was captured", "capture a bundle with `forensics capture`")),
        ),
    )
    return Report(
        verdict=verdict,
        root=root,
        engines=(
            EngineReport(
                id="e0",
                kind="vllm",
                verdict=verdict,
                root=root,
                coverage=coverage,
                nodes=(node,),
                config=config(node),
                processes=(
                    process(7256, Role.WORKER, "worker TP0", 0, 2, node),
                    process(7257, Role.WORKER, "worker TP1", 1, 2, node),
                ),
            ),
        ),
        findings=(
            Finding(
                id="bounded-queue-overflow",
                grade=Grade.ESTABLISHED,
                severity=Severity.CRITICAL,
                role=FindingRole.ROOT,
                engine="e0",
                nodes=(node,),
                ranks=(0,),
                pids=(7256,),
                title="A bounded queue of rank 0 refused an item (queue.Full)",
                because=(
                    ref(
                        "node0.log",
                        "line 514",
                        'Traceback (most recent call last):\n  File "connector.py", line 88, in save\n    self._queue.put_nowait(block)\nqueue.Full',
                    ),
                ),
                does_not_show="Why the consumer did not keep up. More memory would not have helped: the bound is a number of items.",
                would_settle=("the stack of the consumer thread before the death",),
                next_steps=("Raise or unbound the queue only together with back-pressure on its producer.",),
                since=instant("14:16:41"),
                until=instant("14:16:42"),
            ),
            Finding(
                id="engine-died",
                grade=Grade.ESTABLISHED,
                severity=Severity.CRITICAL,
                role=FindingRole.CASCADE,
                engine="e0",
                nodes=(node,),
                title="The engine core ended fatally while serving",
                because=(ref("node0.log", "line 560", "EngineCore encountered a fatal error. Worker failed with error ''"),),
                since=instant("14:16:42"),
            ),
            Finding(
                id="lock-deadlock",
                grade=Grade.POSSIBLE,
                severity=Severity.WARNING,
                role=FindingRole.CONTEXT,
                engine="e0",
                nodes=(node,),
                ranks=(1,),
                title="Two threads of rank 1 may hold each other's lock",
                because=(ref("node0.pid7257.pyspy.1.txt", "thread 12 frame 0", "acquire (threading.py:120)"),),
                against=(ref("node0.log", "line 515", "Worker_TP1 logged one second later"),),
                would_settle=("a second stack sample with native frames",),
            ),
        ),
        hypotheses=suspicions(asked=True),
        first_event=TimelineEvent(at=instant("14:16:41"), node=node, what="queue.Full", ref=ref("node0.log", "line 514", "queue.Full")),
        coverage=coverage,
        clocks=(Alignment(node=node, method="none"),),
        timeline=(
            TimelineEvent(
                at=instant("14:16:41"), node=node, what="queue.Full on rank 0", ref=ref("node0.log", "line 514", "queue.Full"), rank=0
            ),
            TimelineEvent(at=instant("14:16:42"), node=node, what="engine core fatal", ref=ref("node0.log", "line 560", "fatal error")),
        ),
        waits=(
            Wait(
                waiter="rank 1 thread A",
                waits_for="rank 1 thread B",
                via="lock",
                grade=Grade.POSSIBLE,
                ref=ref("node0.pid7257.pyspy.1.txt", "thread 12 frame 0", "acquire (threading.py:120)"),
            ),
            Wait(
                waiter="rank 1 thread B",
                waits_for="rank 1 thread A",
                via="lock",
                grade=Grade.POSSIBLE,
                ref=ref("node0.pid7257.pyspy.1.txt", "thread 13 frame 0", "acquire (threading.py:120)"),
            ),
        ),
        rules=(
            RuleResult(rule="bounded_queue_overflow", status=RuleStatus.FIRED, engine="e0"),
            RuleResult(rule="engine_died", status=RuleStatus.FIRED, engine="e0"),
            RuleResult(rule="thermal_high", status=RuleStatus.INCONCLUSIVE, reason="no temperature was read", missing=("thermal/node0",)),
            RuleResult(rule="slow_progress", status=RuleStatus.ERRORED, engine="e0", reason="ZeroDivisionError: float division by zero"),
        ),
        inputs=("node0.log", "node0.pid7257.pyspy.1.txt"),
        unread=("node0.notes.bin: not recognised",),
    )


def healthy() -> Report:
    verdict = Verdict(state="healthy", sentence="vllm on gpu-a is serving: 4 requests running, counters move.")
    coverage = Coverage(
        expected_ranks=(0, 1),
        seen_ranks=(0, 1),
        expected_nodes=(NODE,),
        seen_nodes=(NODE,),
        cells=(
            *cells(NODE, {0: 51, 1: 52}, ("stacks", "process", "cpu", "log")),
            *node_cells(NODE, kernel=Outcome.OK, thermal=Outcome.OK, gpu=(Outcome.ABSENT, "", "")),
        ),
    )
    return Report(
        verdict=verdict,
        root=Root(),
        engines=(
            EngineReport(
                id="e0",
                kind="vllm",
                verdict=verdict,
                root=Root(),
                coverage=coverage,
                nodes=(NODE,),
                processes=(process(51, Role.WORKER, "worker TP0", 0, 2), process(52, Role.WORKER, "worker TP1", 1, 2)),
            ),
        ),
        findings=(
            Finding(
                id="healthy-serving",
                grade=Grade.ESTABLISHED,
                severity=Severity.INFO,
                role=FindingRole.CONTEXT,
                engine="e0",
                nodes=(NODE,),
                title="The iteration counter moved by 214 in 1.0 s",
                because=(ref("http://127.0.0.1:8000/metrics", "samples 1 and 2", "iteration_tokens_total_count 1017 → 1231"),),
                since=instant("09:00:00", "sampled"),
            ),
        ),
        coverage=coverage,
        clocks=(Alignment(node=NODE, method="one node: its own clock", bound_ns=0, utc_offset_s=7200),),
        rules=(RuleResult(rule="healthy_serving", status=RuleStatus.FIRED, engine="e0"),),
        inputs=("gpu-a-20260901T090000Z",),
        meta={"node": NODE, "captured": "2026-09-01T09:00:00Z"},
    )


def unknown() -> Report:
    """Nothing but the two mandatory records."""
    return Report(verdict=Verdict(), root=Root())


def two_engines() -> Report:
    """One node, two engines whose ranks carry the same numbers: e0 serves, e1 is dead with two tied causes."""
    well = Verdict(state="healthy", sentence="e0 is serving.")
    worst = Verdict(
        state="dead", sentence="e1 (torchrun) died at 11:00:05Z; two ranks failed within the same second and nothing orders them."
    )
    tied = Root(candidates=("worker-process-died rank 0", "worker-process-died rank 1"))
    sources = ("stacks", "process", "log")
    c0 = Coverage(
        expected_ranks=(0, 1), seen_ranks=(0, 1), expected_nodes=(NODE,), seen_nodes=(NODE,), cells=cells(NODE, {0: 101, 1: 102}, sources)
    )
    c1 = Coverage(
        expected_ranks=(0, 1),
        seen_ranks=(0, 1),
        expected_nodes=(NODE,),
        seen_nodes=(NODE,),
        cells=(
            *cells(NODE, {0: 201, 1: 202}, ("stacks",), Outcome.ABSENT, "the process is gone"),
            *cells(NODE, {0: 201, 1: 202}, ("process", "log")),
        ),
    )
    union = Coverage(
        expected_ranks=(0, 1),
        seen_ranks=(0, 1),
        expected_nodes=(NODE,),
        seen_nodes=(NODE,),
        cells=(*c0.cells, *c1.cells, *node_cells(NODE, kernel=Outcome.OK, memory=Outcome.OK)),
    )
    died = [
        Finding(
            id="worker-process-died",
            grade=Grade.ESTABLISHED,
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT,
            engine="e1",
            nodes=(NODE,),
            ranks=(r,),
            pids=(201 + r,),
            title=f"Rank {r} exited with status 1",
            because=(ref("/var/log/train.log", f"line {90 + r}", f"exitcode  : 1 (pid: {201 + r})"),),
            since=instant("11:00:05"),
        )
        for r in (0, 1)
    ]
    return Report(
        verdict=worst,
        root=tied,
        engines=(
            EngineReport(
                id="e0",
                kind="vllm",
                version="0.32.0",
                verdict=well,
                root=Root(),
                coverage=c0,
                nodes=(NODE,),
                processes=(process(101, Role.WORKER, "worker TP0", 0, 2), process(102, Role.WORKER, "worker TP1", 1, 2)),
            ),
            EngineReport(
                id="e1",
                kind="torchrun",
                verdict=worst,
                root=tied,
                coverage=c1,
                nodes=(NODE,),
                processes=(process(201, Role.WORKER, "rank 0", 0, 2), process(202, Role.WORKER, "rank 1", 1, 2)),
            ),
        ),
        findings=(
            *died,
            Finding(
                id="healthy-serving",
                grade=Grade.SUPPORTED,
                severity=Severity.INFO,
                role=FindingRole.CONTEXT,
                engine="e0",
                nodes=(NODE,),
                title="e0 completes steps",
                because=(ref("http://127.0.0.1:8000/metrics", "samples 1 and 2", "counters move"),),
            ),
        ),
        coverage=union,
        clocks=(Alignment(node=NODE, method="one node: its own clock", bound_ns=0, utc_offset_s=0),),
        rules=(RuleResult(rule="worker_process_died", status=RuleStatus.FIRED, engine="e1"),),
        inputs=("gpu-a-20260901T110010Z.tar.gz",),
        meta={"node": NODE, "captured": "2026-09-01T11:00:10Z"},
    )


def one_node_unseen() -> Report:
    """PP=2 over two nodes, of which only the first was captured; one more node is known only by number."""
    verdict = Verdict(state="stalled", sentence="The engine is stalled; ranks 4-7 were not looked at, so who broke first cannot be said.")
    coverage = Coverage(
        expected_ranks=tuple(range(8)),
        seen_ranks=(0, 1, 2, 3),
        expected_nodes=("gpu-a", "gpu-b"),
        seen_nodes=("gpu-a",),
        unseen_node_count=1,
        stated=(
            StatedShape(where="live object", world_size=8, nodes=3, node_rank=0, ref=ref("objects/pid-200.1.json", "world_size", "8")),
            StatedShape(where="command line", world_size=16, nodes=3, node_rank=0, ref=ref("process table", "pid 100", "vllm serve /m")),
        ),
        disagreements=("ranks of one replica: 8 (live object), 16 (command line)",),
        cells=(
            *cells("gpu-a", {r: 300 + r for r in range(4)}, ("process", "log")),
            *cells(
                "gpu-a",
                {r: 300 + r for r in range(4)},
                ("stacks",),
                Outcome.DENIED,
                "py-spy may not read another user's process",
                "run as root or with CAP_SYS_PTRACE",
            ),
            *node_cells("gpu-a", kernel=Outcome.OK, gpu=(Outcome.TIMEOUT, "NVML did not answer in 10 s", "")),
        ),
    )
    return Report(
        verdict=verdict,
        root=Root(),
        engines=(EngineReport(id="e0", kind="vllm", verdict=verdict, root=Root(), coverage=coverage, nodes=("gpu-a", "gpu-b")),),
        findings=(
            Finding(
                id="rank-not-responding",
                grade=Grade.NOT_ASSESSABLE,
                severity=Severity.WARNING,
                role=FindingRole.CONTEXT,
                engine="e0",
                title="Whether one rank stopped answering cannot be told: no stack of any rank was read",
                because=(ref("attempts.jsonl", "stacks", "DENIED for 4 of 4 processes"),),
                would_settle=("stacks of ranks 0-7, taken as root on both nodes",),
            ),
            Finding(
                id="evidence-missing:log/gpu-b",
                grade=Grade.ESTABLISHED,
                severity=Severity.WARNING,
                role=FindingRole.CONTEXT,
                nodes=("gpu-b",),
                title="Nothing of gpu-b was collected: no claim about ranks 4-7 can be made",
                because=(ref("manifest.json", "nodes", "gpu-b is named by --nnodes 3"),),
                would_settle=("a bundle of gpu-b over the same minutes",),
            ),
        ),
        coverage=coverage,
        clocks=(
            Alignment(node="gpu-a", method="none"),
            Alignment(node="gpu-b", offset_ns=-1_250_000_000, bound_ns=400_000_000, method="barrier lines"),
        ),
        timeline=(
            TimelineEvent(
                at=between("12:00:00", "12:00:09", "inferred"), node="gpu-a", what="last line of rank 0", ref=ref("a.log", "line 9")
            ),
            TimelineEvent(at=instant("12:00:05"), node="gpu-b", what="gpu-b named as peer", ref=ref("b.log", "line 3")),
        ),
        rules=(
            RuleResult(
                rule="rank_not_responding", status=RuleStatus.INCONCLUSIVE, engine="e0", reason="stacks were denied", missing=("stacks",)
            ),
        ),
        inputs=("gpu-a-20260901T120000Z.tar.gz",),
        unread=("gpu-a-20260901T120000Z.tar.gz: truncated after 71 % (lost: thermal, gpu)",),
        meta={"node": "gpu-a", "captured": "2026-09-01T12:00:30Z"},
    )


def many_ranks() -> Report:
    """64 ranks on 8 nodes: 63 of them wait in a collective for rank 37."""
    guilty = 37
    nodes = tuple(f"node{n}" for n in range(8))
    coverage_cells: list[CoverageCell] = []
    processes = []
    for n, name in enumerate(nodes):
        ranks = {r: 5000 + r for r in range(n * 8, n * 8 + 8)}
        coverage_cells += cells(name, ranks, ("stacks", "process", "cpu", "log", "gpu"))
        coverage_cells += node_cells(name, kernel=Outcome.OK, thermal=Outcome.OK, clock=Outcome.OK, memory=Outcome.OK)
        processes += [process(pid, Role.WORKER, f"worker TP{r}", r, 64, name) for r, pid in ranks.items()]
    coverage = Coverage(
        expected_ranks=tuple(range(64)), seen_ranks=tuple(range(64)), expected_nodes=nodes, seen_nodes=nodes, cells=tuple(coverage_cells)
    )
    verdict = Verdict(state="stalled", sentence="63 of 64 ranks stand in the same all_reduce; rank 37 on node4 never entered it.")
    root = Root(
        finding="one-rank-not-in-collective", grade=Grade.SUPPORTED, node="node4", rank=guilty, pid=5037, since_ns=at("03:14:07", 250)
    )
    others = tuple(r for r in range(64) if r != guilty)
    return Report(
        verdict=verdict,
        root=root,
        engines=(
            EngineReport(
                id="e0",
                kind="vllm",
                version="0.32.0",
                verdict=verdict,
                root=root,
                coverage=coverage,
                nodes=nodes,
                processes=tuple(processes),
            ),
        ),
        findings=(
            Finding(
                id="one-rank-not-in-collective",
                grade=Grade.SUPPORTED,
                severity=Severity.CRITICAL,
                role=FindingRole.ROOT,
                engine="e0",
                nodes=("node4",),
                ranks=(guilty,),
                pids=(5037,),
                title="Rank 37 is idle at 78 W while 63 others spin at 240 W or more",
                because=(
                    ref("node4 nvml", "GPU 5, sample 2", "utilisation 0 %, 78 W"),
                    ref("node0 nvml", "GPU 0, sample 2", "100 %, 244 W"),
                ),
                would_settle=("a stack of pid 5037 with native frames",),
                since=instant("03:14:07", "sampled", 250),
            ),
            Finding(
                id="busy-spin",
                grade=Grade.ESTABLISHED,
                severity=Severity.INFO,
                role=FindingRole.AMPLIFIER,
                engine="e0",
                nodes=nodes,
                ranks=others,
                pids=tuple(5000 + r for r in others),
                title="63 ranks poll in all_reduce",
                because=(ref("stacks/pid-5000.2.json", "MainThread frame 0", "all_reduce (distributed_c10d.py:2937)"),),
            ),
        ),
        coverage=coverage,
        clocks=tuple(Alignment(node=n, offset_ns=i * 1_000_000, bound_ns=5_000_000, method="chrony") for i, n in enumerate(nodes)),
        stacks=(
            StackGroup(
                engine="e0",
                thread="MainThread",
                frames=("all_reduce (distributed_c10d.py:2937)", "forward (linear.py:1482)"),
                processes=tuple(f"worker TP{r}" for r in others),
                ranks=others,
                samples=2,
                moved=False,
            ),
        ),
        stack_tree=(
            StackNode(
                engine="e0",
                frames=("execute_model (v1/worker/gpu_model_runner.py:3377)", "all_reduce (torch/distributed/distributed_c10d.py:2937)"),
                stacks=128,
                threads=64,
                steady=64,
                samples=2,
                names=("MainThread",),
                present=(StackPresence(role="worker", count=64, has="0-63", stacks=128),),
            ),
        ),
        waits=tuple(
            Wait(
                waiter=f"worker TP{r}",
                waits_for=f"worker TP{guilty}",
                via="collective",
                grade=Grade.SUPPORTED,
                ref=ref(f"stacks/pid-{5000 + r}.2.json", "MainThread frame 0", "all_reduce (distributed_c10d.py:2937)"),
                waiter_rank=r,
                target_rank=guilty,
            )
            for r in others
        ),
        rules=(RuleResult(rule="one_rank_not_in_collective", status=RuleStatus.FIRED, engine="e0"),),
        inputs=tuple(f"{n}-20260901T031410Z.tar.gz" for n in nodes),
        meta={"incident": "INC-9", "captured": "2026-09-01T03:14:10Z"},
    )


SAMPLES: dict[str, Callable[[], Report]] = {
    "stalled": stalled,
    "dead": dead,
    "healthy": healthy,
    "unknown": unknown,
    "two_engines": two_engines,
    "one_node_unseen": one_node_unseen,
    "many_ranks": many_ranks,
}
