"""What is concluded, how firmly, and what nobody looked at."""

from __future__ import annotations

import enum

from forensics.model.builds import Build
from forensics.model.grade import Grade
from forensics.model.history import SeenBefore
from forensics.model.ledger import Hypothesis
from forensics.model.outcome import Outcome
from forensics.model.process import EngineProcess
from forensics.model.records import Alignment, EvidenceRef, Record, TimeRange
from forensics.model.settings import Setting


class FindingRole(str, enum.Enum):
    """The part a finding plays in the story."""

    ROOT = "root"
    CASCADE = "cascade"
    AMPLIFIER = "amplifier"
    TEARDOWN = "teardown"
    CONTEXT = "context"


class Severity(str, enum.Enum):
    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class Finding(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One claim, with what speaks for and against it. No finding without `because`."""

    id: str
    grade: Grade
    severity: Severity
    role: FindingRole
    title: str
    because: tuple[EvidenceRef, ...]
    against: tuple[EvidenceRef, ...] = ()
    does_not_show: str = ""
    would_settle: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    engine: str = ""
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    since: TimeRange | None = None
    until: TimeRange | None = None
    origin: str = ""
    """The file of the operator's own rule that made it; "" for a rule that ships with the tool."""


class RuleStatus(str, enum.Enum):
    FIRED = "FIRED"
    """It made at least one finding."""
    CLEAR = "CLEAR"
    """Everything it needs was seen, and its claim is not so."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """Something it needs was denied, timed out, failed or was never collected."""
    NOT_APPLICABLE = "NOT_APPLICABLE"
    """The question does not arise here (no such engine, no patches stated, no GPU)."""
    ERRORED = "ERRORED"
    """The rule itself broke. The report goes on without it."""


class RuleResult(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What one rule said about one engine (or, with engine "", about the nodes)."""

    rule: str
    status: RuleStatus
    engine: str = ""
    reason: str = ""
    missing: tuple[str, ...] = ()
    origin: str = ""
    """As of a Finding."""
    seconds: float | None = None
    """How long it took; differs from run to run, so the report's JSON has it only when asked."""


class CoverageCell(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One square of the grid node x rank x source. A hole in the grid is a defect of ours."""

    node: str
    source: str
    outcome: Outcome
    rank: int | None = None
    pid: int | None = None
    reason: str = ""
    cure: str = ""
    """What the operator can do about a blind cell; the attempt's own words."""


class StatedShape(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What one source says of an engine's size. None where it says nothing."""

    where: str
    """live object | log | command line: in this order they count"""
    world_size: int | None = None
    """Ranks of one replica."""
    replicas: int | None = None
    nodes: int | None = None
    node_rank: int | None = None
    """Which of the nodes it is that says so."""
    ref: EvidenceRef


class Coverage(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What was expected to be seen and what was."""

    expected_ranks: tuple[int, ...] = ()
    """Each place that a rank can take, once. Replicas that each count from 0 follow one another: see `replica_size`."""
    seen_ranks: tuple[int, ...] = ()
    expected_nodes: tuple[str, ...] = ()
    seen_nodes: tuple[str, ...] = ()
    unseen_node_count: int = 0
    """Nodes that the engine's configuration says exist and of which nothing was seen, not even a name."""
    replica_size: int = 0
    """Where data-parallel replicas each count from 0: place n (here and in the cells) is rank n % size of replica n // size."""
    ranks_stated: bool = True
    """False where no source says how many ranks there are: the expected ones are then no more than those that were heard of."""
    stated: tuple[StatedShape, ...] = ()
    """Where the expected sizes were read, those that count most first."""
    disagreements: tuple[str, ...] = ()
    """Sizes of which these sources say different things, in words."""
    cells: tuple[CoverageCell, ...] = ()

    @property
    def complete(self) -> bool:
        ranks = set(self.expected_ranks) <= set(self.seen_ranks)
        nodes = set(self.expected_nodes) <= set(self.seen_nodes)
        return ranks and nodes and not self.unseen_node_count


class Verdict(Record, frozen=True, kw_only=True, omit_defaults=True):
    state: str = "unknown"
    """stalled | dead | degraded | healthy | starting | stopped | unknown"""
    sentence: str = ""


class Root(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The finding that broke first. All None when the inputs cannot tell: never guessed."""

    finding: str | None = None
    grade: Grade | None = None
    node: str | None = None
    rank: int | None = None
    pid: int | None = None
    since_ns: int | None = None
    candidates: tuple[str, ...] = ()
    """When null because several claims tie: who they are."""


class Wait(Record, frozen=True, kw_only=True, omit_defaults=True):
    """An edge of the wait-for graph: who waits for whom, and how that is known."""

    waiter: str
    waits_for: str
    via: str
    """collective | rpc-response | rpc-request | lock | queue | event | gpu | future | join"""
    grade: Grade
    ref: EvidenceRef
    waiter_rank: int | None = None
    target_rank: int | None = None
    detail: str = ""
    """What stands between them: "all_reduce", "table_lock (offload.py:52)", "request_queue, 4 of 4"."""
    waiter_at: tuple[str, int] | None = None
    """(node, pid) of the waiter's process; names are for people."""
    target_at: tuple[str, int] | None = None
    """Of the one waited for; None where only a description of it is known."""


class TimelineEvent(Record, frozen=True, kw_only=True, omit_defaults=True):
    at: TimeRange
    node: str
    what: str
    ref: EvidenceRef
    engine: str = ""
    rank: int | None = None
    finding: str = ""
    count: int = 1


class Phase(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One stretch in the life of an engine. Phases follow one another; a gap between two means that nobody knows."""

    engine: str
    name: str
    """start-up | restart | serving | onset | silence | detection | teardown"""
    since: TimeRange
    until: TimeRange | None = None
    """None: it lasted to the end of the evidence, or its end was not seen."""
    ended_by: str = ""
    """What separates it from the next, in words."""
    ref: EvidenceRef | None = None
    """Where that was read."""

    @property
    def seconds(self) -> float | None:
        return (self.until.earliest_ns - self.since.earliest_ns) / 1e9 if self.until else None


class StackGroup(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Threads that stand at the same place. frames innermost first, "name (file:line)"."""

    engine: str
    thread: str
    frames: tuple[str, ...]
    processes: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    samples: int = 1
    moved: bool | None = None
    motion: str = ""
    """stuck (did not move, used no CPU) | spinning (did not move, used CPU) | moving; "" where samples do not tell or members differ."""


class StackPresence(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Which processes of one role and parallel group pass a step of the merged stacks.

    Ranks are written as "0-2,5"; of a very scattered set its beginning, ending in ",…".
    """

    role: str = ""
    group: str = ""
    """Parallel group ("DP0 PP1"), "" where the role is not divided."""
    count: int = 0
    """How many ranks pass here."""
    has: str = ""
    lacks: str = ""
    """Ranks of the same role and group that were read and never pass here."""
    unread: str = ""
    """Ranks of which no stack was read that could show this step: whether they pass here is unknown."""
    processes: tuple[str, ...] = ()
    """Those that have no rank, by name."""
    stacks: int = 0


class StackNode(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A run of steps of the merged stacks that the same threads take. Nodes follow one another as in a walk through the tree."""

    engine: str
    depth: int = 0
    """Nesting: the node before it of one depth less is its parent."""
    frames: tuple[str, ...] = ()
    """Outermost first, "name (file:line)"; of one function, every line where threads stood. () where no frame was read."""
    stacks: int = 0
    """How many stacks pass here: one for each thread in each sample."""
    threads: int = 0
    steady: int = 0
    """How many of these threads pass here in all of their samples."""
    samples: int = 0
    """The most samples that any of them has."""
    names: tuple[str, ...] = ()
    present: tuple[StackPresence, ...] = ()
    outliers: str = ""
    """Ranks that leave the way of most of their peers with this step."""
    left_out: int = 0
    """Not a run of steps but this many branches of the parent that are only counted."""


class StackOutlier(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Ranks that stood elsewhere than most of their peers (same role and parallel group, thread of the same name) in every sample."""

    engine: str
    ranks: tuple[int, ...]
    stands: str
    """Their innermost frame."""
    majority: str
    """The innermost frame at which most of the peers are together."""
    majority_ranks: str
    """As in StackPresence."""
    shared: str = ""
    """The last frame in common, "" where there is none."""
    next: str = ""
    """The first frame of their own, "" where they end at `shared`."""
    role: str = ""
    group: str = ""
    thread: str = ""
    processes: tuple[str, ...] = ()
    unread: str = ""
    """Peers of which no stack was read: they are on neither side."""
    samples: int = 1
    ref: EvidenceRef


class EngineReport(Record, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    kind: str
    verdict: Verdict
    root: Root
    coverage: Coverage
    version: str = ""
    nodes: tuple[str, ...] = ()
    processes: tuple[EngineProcess, ...] = ()
    config: tuple[Setting, ...] = ()
    """Every setting that was read of it, by name."""
    builds: tuple[Build, ...] = ()
    """What runs: one for each distinct build of a component."""


class Report(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a renderer needs. JSON, terminal, Markdown and HTML are all made from this one record."""

    verdict: Verdict
    root: Root
    engines: tuple[EngineReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    first_event: TimelineEvent | None = None
    coverage: Coverage = Coverage()
    clocks: tuple[Alignment, ...] = ()
    timeline: tuple[TimelineEvent, ...] = ()
    phases: tuple[Phase, ...] = ()
    stacks: tuple[StackGroup, ...] = ()
    stack_tree: tuple[StackNode, ...] = ()
    outliers: tuple[StackOutlier, ...] = ()
    waits: tuple[Wait, ...] = ()
    waits_whole: bool = False
    """Whether every rank of every engine was seen, and every main thread that is not idle stands in the graph."""
    rules: tuple[RuleResult, ...] = ()
    inputs: tuple[str, ...] = ()
    """What was analysed, by name."""
    unread: tuple[str, ...] = ()
    """Inputs that nobody recognised, and what was lost of a damaged bundle: never dropped silently."""
    seen_before: SeenBefore | None = None
    """What the incident store of this machine says of the root; None where it was not asked, or no root is named."""
    meta: dict[str, str] = {}
    """incident, node, captured, tool version …"""
