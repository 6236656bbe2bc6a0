"""What parsers make of raw evidence: one typed fact each, with its time and a pointer to where it was read."""

from __future__ import annotations

from forensics.model.records import EvidenceRef, Record, TimeRange


class Observation(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Base: every fact knows its node, its time and its evidence."""

    node: str
    at: TimeRange | None = None
    ref: EvidenceRef
    pid: int | None = None


class Frame(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One Python (or native) frame."""

    name: str
    """Qualified name where the reader gives it: "MessageQueue.dequeue"."""
    file: str
    """Of a native frame the library, without its folder: "libnccl.so.2"."""
    line: int = 0
    native: bool = False
    """Machine code of a library, not Python."""


class ThreadStack(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """One thread at one moment. frames[0] is the innermost."""

    pid: int
    tid: int | None = None
    name: str = ""
    active: bool | None = None
    gil: bool | None = None
    frames: tuple[Frame, ...] = ()
    """Python frames only: what every reader shows, so that samples compare and patterns find their place."""
    mixed: tuple[Frame, ...] = ()
    """Python and native frames together, where a reader showed native ones. Of a thread that runs no Python there is nothing else."""
    tags: tuple[str, ...] = ()
    """What pystack says of the thread: "Waiting for the GIL", "Garbage collecting", …"""
    reader: str = ""
    """pystack | gdb | core (a core file: the moment of its death, no sample of the living) | "" for py-spy"""
    sample: int = 0

    @property
    def path(self) -> tuple[tuple[str, str, int], ...]:
        """Identity of a position: two samples with the same path have not visibly moved.

        Native frames count only where there are no others: not every sample has them.
        """
        return tuple((f.name, f.file, f.line) for f in self.frames or self.mixed)

    @property
    def shown(self) -> tuple[Frame, ...]:
        """The fullest picture, for people."""
        return self.mixed or self.frames


class ProcessState(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A process in /proc, `ps` or `top`. state is the kernel's letter."""

    pid: int
    ppid: int | None = None
    state: str = ""
    wchan: str = ""
    title: str = ""
    exit_status: int | None = None
    """Wait status of a zombie as the kernel encodes it, where it could be read."""
    rss_bytes: int | None = None
    threads: int | None = None
    sample: int = 0
    gone: bool = False
    """True when the process had vanished by the time of this sample."""


class CpuSample(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """CPU time burnt by one thread (or by the process, tid None) up to this moment."""

    pid: int
    tid: int | None = None
    thread: str = ""
    state: str = ""
    wchan: str = ""
    cpu_seconds: float | None = None
    waited_seconds: float | None = None
    """Time spent runnable, waiting for a processor (second field of schedstat)."""
    percent: float | None = None
    """Only where the source itself gives a rate (top, ps); otherwise computed from two samples."""
    sample: int = 0


class HostCpu(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """How busy the machine is. Fractions are 0..1 of all CPUs; ticks are cumulative."""

    cpus: int | None = None
    busy_ticks: int | None = None
    total_ticks: int | None = None
    idle_fraction: float | None = None
    load1: float | None = None
    runnable: int | None = None
    pressure_some_avg10: float | None = None


class MemorySample(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """Host, cgroup or GPU memory. scope is "host", "cgroup:/path", "gpu:0", "shm"."""

    scope: str
    total_bytes: int | None = None
    available_bytes: int | None = None
    used_bytes: int | None = None
    oom_kills: int | None = None
    pressure_full_avg10: float | None = None


class CpuGroup(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """The processor quota of one cgroup and how often it ran into it. Counts are cumulative since the group was made."""

    scope: str
    """ "cgroup:/path" """
    quota_cpus: float | None = None
    """How many CPUs its processes may use together; None without a limit."""
    periods: int | None = None
    throttled: int | None = None
    """Periods in which its processes were held back because the quota was used up."""
    throttled_seconds: float | None = None
    pressure_some_avg10: float | None = None
    pressure_full_avg10: float | None = None


class ClockState(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """Whether anything keeps a node's clock right, as one witness says."""

    via: str
    """adjtimex | chronyc"""
    synchronised: bool
    error_s: float | None = None
    """How far off it may be by the witness's own account."""


class ThermalReading(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """One sensor. Sensors of one type stay apart by `key` (the zone's index or the hwmon path)."""

    key: str
    kind: str
    celsius: float
    trips_celsius: dict[str, float] = {}
    """trip type (passive, hot, critical) to its temperature."""


class ThrottleCount(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """Cumulative thermal throttle events of a CPU package or core since boot."""

    key: str
    count: int


class ProgressSample(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """How far an engine has come, from its metrics endpoint or its stats line. Counters never decrease while it lives."""

    via: str
    """metrics | log"""
    dp_rank: str = ""
    counters: dict[str, float] = {}
    """steps, generation_tokens, prompt_tokens, requests, preemptions: whichever the engine offers."""
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    """Fraction 0..1."""
    prompt_tps: float | None = None
    generation_tps: float | None = None
    mean_step_s: float | None = None
    """Mean time between tokens since start, where a histogram offers it."""
    token_gaps: float | None = None
    """How many times between tokens that is the mean of: with both, two samples tell the mean between them."""
    step: bool = False
    """A line that is printed with a step: that it stands there is movement, whatever its figures say."""
    rank: int | None = None
    """Who prints it, where each rank prints its own."""
    sample: int = 0


class QueueDepth(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """Something waiting in a queue that can be counted from outside: a socket, a ring slot, a live queue."""

    queue: str
    kind: str
    """socket-recv | socket-send | accept-backlog | clients | server-load | load-snapshot (what a scheduler last
    said in shared memory; `at` runs from when it said so to when it was read) | live (a queue object read in a process's memory)"""
    depth: int
    capacity: int | None = None
    unit: str = "items"
    putting: tuple[int, ...] = ()
    """Threads (kernel ids) that are inside a put of this queue; kind "live" only."""
    getting: tuple[int, ...] = ()
    """Threads inside a get of it."""
    takers: tuple[int, ...] = ()
    """Threads that run a function which takes from it, wherever in it they stand: looked for where somebody waits to put."""
    givers: tuple[int, ...] = ()
    """Threads that run a function which puts into it: looked for where a main thread waits to get."""
    address: int | None = None
    """Of the queue object: its identity within its process; kind "live" only."""
    sample: int = 0


class ThreadWait(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """Where the kernel holds one thread: /proc/PID/task/TID/{stat,wchan,syscall,stack}."""

    pid: int
    tid: int
    thread: str = ""
    """The kernel's name of the thread (comm), 15 characters at most."""
    state: str = ""
    wchan: str = ""
    syscall: int | None = None
    """Number of the system call that it is inside, None when it runs in user space or the file was not readable."""
    futex: int | None = None
    """Address of the word that it waits at, where that system call is a futex wait."""
    kernel_stack: tuple[str, ...] = ()
    """Function names, innermost first."""
    inner: int | None = None
    """Its id in the pid namespace of its process, where that is another one (a container)."""
    sample: int = 0


class RingReading(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """One shared-memory ring at one moment. A reader's flag says "has taken it out", never "has executed it"."""

    ring: str
    """Name of the segment."""
    holders: tuple[int, ...] = ()
    """Processes (pids of this node) that have it open or mapped."""
    readers: int = 0
    chunks: int = 0
    """Slots in all."""
    written: tuple[int, ...] = ()
    """Slots that have been written (in the first lap: so far)."""
    unread: tuple[tuple[int, ...], ...] = ()
    """For each reader, the written slots that it has not taken yet, in ring order from the oldest."""
    calls: tuple[str, ...] = ()
    """For each slot the name of the call that lies there, "" where none can be told."""
    ambiguous: bool = False
    """The size fits more than one geometry: the flags may be misread."""
    sample: int = 0


class LiveValue(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A value of a running program, read in its memory without stopping it."""

    pid: int
    name: str
    """What the engine's own file calls it: "running_requests"."""
    expr: str = ""
    type: str = ""
    """Qualified type name of the object: "collections.deque"."""
    value: str = ""
    """As JSON."""
    torn: bool = False
    """It changed while it was read."""
    sample: int = 0


class LockReading(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A lock that a thread waits for, or that a frame holds, read in the memory of its process."""

    pid: int
    address: int
    """Of the lock object: the identity of the lock within its process."""
    kind: str
    """Lock | RLock | Condition"""
    place: str = ""
    """How the program calls it: "table_lock (vllm_plugin/offload.py:52)"."""
    owner: int | None = None
    """Thread id (as the kernel counts) of the owner that the lock itself stores; only re-entrant locks store one."""
    count: int | None = None
    waiters: tuple[int, ...] = ()
    """Threads (kernel ids) that wait at a futex inside this lock."""
    inside: tuple[int, ...] = ()
    """Threads (kernel ids) with a frame inside a `with` block of this lock: who holds a plain one."""
    sample: int = 0


class EventWait(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A thread that waits for an event, a condition, a future, an item or another thread's end: no lock, though one lies underneath."""

    pid: int
    tid: int
    kind: str
    """Type of the object ("threading.Event"), or "join"."""
    place: str = ""
    """How the program calls the object: "ReadyEvent._event (offload.py:31)"."""
    address: int | None = None
    """Of the object: its identity within its process."""
    flag: str = ""
    """State of the object as JSON: false of an event that is not set, "PENDING" of a future; "" where it has none."""
    target: int | None = None
    """Thread (kernel id) whose end is waited for."""
    sample: int = 0


class CoreFile(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A core file that lies on the node. `pid` is that of the process that died, where the file or its name tells."""

    path: str
    size_bytes: int = 0
    written_ns: int | None = None
    executable: str = ""
    signal: int | None = None


class HealthSample(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """One HTTP probe. status is None when nothing answered; error says what happened instead."""

    url: str
    status: int | None = None
    latency_s: float | None = None
    error: str = ""


class LogHit(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A log line (or block) that a signature knows."""

    signature: str
    feeds: str
    """Finding id that it feeds."""
    role: str
    """root | cascade | teardown | confirmation | context"""
    event: str = ""
    """What the line is in its engine's life: one of EVENTS in forensics.analysis.signatures, "" for the others."""
    engine: str = ""
    """Which engine prints such a line: "vllm"; "any" where several do."""
    process: str = ""
    """Name in the line's prefix: "Worker_TP1"."""
    rank: int | None = None
    level: str = ""
    fields: dict[str, str] = {}
    text: str = ""
    count: int = 1
    limit_s: float | None = None
    """Where the line reports that a limit ran out: that limit."""

    @property
    def began(self) -> TimeRange | None:
        """When what the line reports began: its time, less the limit that had run out by then."""
        if self.at is None or not self.limit_s:
            return self.at
        back = round(self.limit_s * 1e9)
        return TimeRange(earliest_ns=self.at.earliest_ns - back, latest_ns=self.at.latest_ns - back, basis="inferred")


class LogSpan(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """What one log file covers: its first and last dated line, and who wrote into it."""

    first_ns: int | None = None
    last_ns: int | None = None
    lines: int = 0
    pids: tuple[int, ...] = ()
    """Whose names stand in its prefixes."""
    engine: str = ""
    """Which engine's lines these are, as far as their form or a signature tells: a name of forensics.engines."""
    ranks: tuple[int, ...] = ()
    """Ranks that speak in it, where its lines name ranks."""
    last_of: dict[int, int] = {}
    """pid to the time (ns) of the last line that it wrote here."""
    clock_offset_s: float | None = None
    """What the wrapper's clock is ahead of the clock inside (a zone, mostly), where both stand on its lines and differ."""


class ConfigValue(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A setting in force and where it was read."""

    name: str
    value: str
    via: str
    """log | cmdline | environ | live | http | limits"""


class KernelEvent(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A kernel log line that a signature knows; KernelSpan says what was read."""

    signature: str
    feeds: str = ""
    """Finding id that it feeds."""
    role: str = ""
    """root | cascade | teardown | confirmation | context"""
    fields: dict[str, str] = {}
    text: str = ""
    since_boot_ns: int | None = None
    """What the line itself counts from boot, where it does; `at` is then None unless the time of the boot is known."""


class KernelSpan(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A kernel log was read on this node over this time: the ground for host-stable."""

    lines: int
    since_boot_ns: tuple[int, int] | None = None
    """First and last line as counted from boot, where the lines count so."""
    previous_boot: bool = False
    """Of the boot before the present one ("journalctl -k -b -1"): it ends where the machine went down."""


class PatchReading(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """What the file that a patch touches holds, as one process sees it. Whether the patch is live is for a rule to say."""

    patch: str
    path: str = ""
    exists: bool | None = None
    changed_ns: int | None = None
    """The later of mtime and ctime: a file may be moved into place with an old mtime."""
    image_started_ns: int | None = None
    """When the program image that the process runs was started (a forked worker runs its parent's image)."""
    sha256: str = ""
    contains: bool | None = None
    function_sha256: str = ""
    error: str = ""


class GpuSample(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU at one moment (NVML)."""

    index: int
    uuid: str = ""
    name: str = ""
    utilization_percent: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    throttle_bits: int | None = None
    """NVML's reasons: 1 idle, 2 application clocks, 4 power cap, 8 HW slowdown, 32 SW thermal, 64 HW thermal, 128 power brake."""
    pci: str = ""
    """Bus id, lower case, with a domain of four digits: "0000:b3:00.0"."""
    pids: tuple[int, ...] = ()
