"""What parsers make of the machine around an engine: its GPUs, links, file systems, containers, and what communicators say."""

from __future__ import annotations

from forensics.model.observations import Frame, Observation
from forensics.model.records import TimeRange


class GpuFault(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU that a tool could not ask ("Unable to determine the device handle")."""

    index: int | None = None
    pci: str = ""
    """Bus id as the kernel writes it, lower case: "0000:b3:00.0"."""
    text: str = ""


class GpuProcess(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A process that a tool lists on a GPU: it joins pids to GPUs where no rank is named."""

    pid: int
    index: int | None = None
    pci: str = ""
    uuid: str = ""
    name: str = ""
    used_bytes: int | None = None


class RankPlace(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """Which GPU a rank runs on."""

    rank: int
    local_rank: int | None = None
    pci: str = ""
    gpu: int | None = None


class FileSystemUse(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `df`."""

    mount: str
    total_bytes: int | None = None
    used_bytes: int | None = None
    available_bytes: int | None = None


class ShmSegment(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """One file in /dev/shm. `changed` is its modification time, as coarse as `ls` prints it."""

    name: str
    size_bytes: int = 0
    changed: TimeRange | None = None
    owner: str = ""


class MappedLibrary(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A library that a process has mapped, from its maps file (`pid`, or `rank` where the file's name tells no more)."""

    path: str
    rank: int | None = None


class ContainerStatus(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """What the container runtime says of the container that the engine ran in."""

    name: str = ""
    restarts: int | None = None
    started: TimeRange | None = None
    created: TimeRange | None = None
    """Of the pod: its volumes and its /dev/shm live as long as it does."""
    ended: TimeRange | None = None
    """When the container before this one ended."""
    exit_code: int | None = None
    """Of the container that ended last."""
    reason: str = ""
    """Why it ended, as the platform calls it: "OOMKilled", "Error", "Completed"."""


class PlatformEvent(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """An event of the platform about this node's container: a failed probe, an eviction, a kill."""

    reason: str
    """As the platform calls it: "Unhealthy", "OOMKilled", "Evicted"."""
    text: str = ""
    warning: bool = False
    about: str = ""
    """What it happened to, as far as it is named: "pod/decode-0"."""
    count: int = 1


class LinkCounter(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """A cumulative counter of a network port (RDMA, InfiniBand, Ethernet)."""

    device: str
    port: str = ""
    counter: str
    value: int


class LinkState(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """State of a network port: "ACTIVE", "DOWN", … as the tool writes it."""

    device: str
    port: str = ""
    state: str
    rate: str = ""


class CommunicatorStatus(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """What NCCL's RAS says of one communicator: which ranks have come how far."""

    comm: str
    size: int | None = None
    status: str = ""
    """RUNNING | INIT | ABORT | …; several joined by commas."""
    errors: str = ""
    """OK | MISMATCH | ERROR | INCOMPLETE; several joined by commas."""
    counts: dict[int, int] = {}
    """rank to the number of operations that it has launched, where told."""
    operation: str = ""
    """Which operation the counts are of ("AllReduce"), "" for all."""
    missing: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    pids: dict[int, int] = {}
    """rank of this communicator to the process that it is, on `hosts[rank]`. These ranks are not the engine's."""
    hosts: dict[int, str] = {}
    silent: tuple[tuple[int, str], ...] = ()
    """(pid, host) of processes that could not be reached, where no rank of theirs is told."""


class CollectiveRecord(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """The newest collectives of one process group, from a rank's flight recorder."""

    rank: int | None = None
    group: str
    last_enqueued: int | None = None
    last_started: int | None = None
    last_completed: int | None = None
    pending: str = ""
    """Name of the oldest collective that has not ended ("nccl:all_reduce")."""
    pending_seq: int | None = None
    members: tuple[int, ...] = ()
    """Ranks of the group, where the recorder lists them: groups that share a description are told apart by them."""
    frames: tuple[Frame, ...] = ()


class BootTime(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """When the node booted, as something in the evidence tells: it dates kernel lines that count from there."""

    booted: TimeRange
    via: str
    """uptime -s | uptime | btime | journal | kernel"""


class FunctionShare(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """One line of `py-spy top`: the part of the time that a program spends in a function."""

    function: str
    file: str
    own_percent: float
    total_percent: float
    own_seconds: float | None = None
    total_seconds: float | None = None
    gil_percent: float | None = None
    """Of the whole program, from the summary above."""
    active_percent: float | None = None


class CrashRecord(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """What the firmware kept of a kernel's last words (pstore), or that it kept nothing."""

    text: str = ""

    @property
    def empty(self) -> bool:
        return not self.text
