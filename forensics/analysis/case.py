"""Everything that the inputs say, indexed: the one thing that rules look at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from forensics.model import (
    Alignment,
    Attempt,
    EngineInstance,
    Finding,
    Observation,
    ProcessInfo,
    TimeRange,
)

if TYPE_CHECKING:
    from forensics.analysis.rules import Rule

COMM_CHARS = 15
"""The kernel keeps this much of a process name (TASK_COMM_LEN - 1); `top` shows no more."""

O = TypeVar("O", bound=Observation)  # noqa: E741 the one type variable of this module


@dataclass
class Case:
    """All observations of all inputs."""

    inputs: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    attempts: list[tuple[str, Attempt]] = field(default_factory=list)
    """(node, attempt): only bundles have them."""
    captured: dict[str, TimeRange] = field(default_factory=dict)
    """When each bundled node was photographed."""
    processes: dict[tuple[str, int], ProcessInfo] = field(default_factory=dict)
    engines: list[EngineInstance] = field(default_factory=list)
    patches: list[dict[str, Any]] = field(default_factory=list)
    clocks: list[Alignment] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)
    judged: dict[str, list[Finding]] = field(default_factory=dict)
    """Findings of each engine by its id, those of an earlier life that broke among them: for rules that compare engines."""
    _tried: dict[tuple[str, str], list[Attempt]] = field(default_factory=lambda: defaultdict(list))
    _tried_count: int = 0
    own_rules: tuple[Rule, ...] = ()
    """Rules of the operator, beside those that ship."""
    timing: bool = False
    """Whether rule results tell how long each took."""
    _by_type: dict[type[Observation], list[Observation]] = field(default_factory=lambda: defaultdict(list))
    _by_node: dict[type[Observation], dict[str, list[Observation]]] = field(default_factory=dict)
    """Made when it is first asked for; forgotten when more is added."""

    def add(self, observations: Iterable[Observation]) -> None:
        nodes: dict[str, None] = {}
        for observation in observations:
            self._by_type[type(observation)].append(observation)
            nodes[observation.node] = None
        self._by_node.clear()
        self.nodes += [node for node in nodes if node not in self.nodes]

    def attempts_of(self, node: str, collector: str) -> list[Attempt]:
        """Attempts of one collector on one node, in their order. Asked for each rank and source: looked up, not searched."""
        if self._tried_count != len(self.attempts):
            self._tried.clear()
            for where, attempt in self.attempts:
                self._tried[where, attempt.collector].append(attempt)
            self._tried_count = len(self.attempts)
        return self._tried.get((node, collector), [])

    def of(self, kind: type[O]) -> list[O]:
        """All observations of one type, in the order in which they were read."""
        return self._by_type.get(kind, [])  # type: ignore[return-value]

    def on(self, node: str, kind: type[O]) -> list[O]:
        """The same of one node: looked up, not searched, for a fleet has hundreds."""
        if kind not in self._by_node:
            placed = self._by_node[kind] = defaultdict(list)
            for observation in self.of(kind):
                placed[observation.node].append(observation)
        return self._by_node[kind].get(node, [])  # type: ignore[return-value]

    def replace_all(self, kind: type[O], new: list[O]) -> None:
        self._by_type[kind] = list(new)
        self._by_node.pop(kind, None)

    def add_process(self, info: ProcessInfo) -> None:
        """Join what several sources say of one process: the first non-empty word stands, a longer title wins."""
        key = (info.node, info.pid)
        known = self.processes.get(key)
        if known is None:
            self.processes[key] = info
            return
        changes = {}
        for name in info.__struct_fields__:
            old, new = getattr(known, name), getattr(info, name)
            if new and not old:
                changes[name] = new
        if _title_rank(info.title) > _title_rank(known.title):
            changes["title"], changes["argv"] = info.title, info.argv
        if changes:
            self.processes[key] = msgspec.structs.replace(known, **changes)

    @property
    def bundled(self) -> set[str]:
        return set(self.captured)


def _title_rank(title: str) -> tuple[int, int]:
    """How much a title says: a command line says most of an API server, a set title most of a worker, a log prefix least."""
    if not title:
        return (0, 0)
    if " " in title.strip():
        return (3, 0)
    if len(title) == COMM_CHARS:  # probably cut by the kernel: "VLLM::EngineCor"
        return (1, 0)
    return (2 if "::" in title else 1, len(title))
