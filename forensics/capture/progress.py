"""Shows a capture while it runs, on stderr: live lines on a terminal, plain lines elsewhere. stdout belongs to the bundle's path."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, TextIO

from forensics.capture.discovery import Discovery
from forensics.capture.plan import Step
from forensics.model import Attempt, EngineInstance, Outcome

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
REASON_LIMIT = 160


def plain(text: str, limit: int = REASON_LIMIT) -> str:
    """One line without anything that a terminal would obey: process titles and error texts come from the sick side."""
    text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def fold(numbers: list[int]) -> str:
    """Sorted numbers as ranges: "0-3, 6"."""
    runs: list[list[int]] = []
    for number in dict.fromkeys(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def engine_line(engine: EngineInstance) -> str:
    """An engine in one line."""
    ranks = sorted(process.rank.rank for process in engine.workers if process.rank and process.rank.rank is not None)
    parts = [f"{engine.id} {engine.kind}{' ' + engine.version if engine.version else ''}: {len(engine.processes)} processes"]
    if ranks:
        parts.append(f"rank {fold(ranks)}" + (f" of {engine.world_size}" if engine.world_size else ""))
    if engine.ports:
        parts.append(f"port {', '.join(map(str, engine.ports))}")
    if not engine.log_files:
        parts.append("no log file found")
    return ", ".join(parts)


class Lines:
    """Plain lines: what was found, what went wrong with its cure, and one line for each collector when it ends."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._counts: dict[str, Counter[Outcome]] = {}
        self._cured: set[str] = set()

    def found(self, discovery: Discovery) -> None:
        for engine in discovery.engines:
            self.note(engine_line(engine))
        if not discovery.engines:
            self.note("no engine process is left on this node: collecting the named logs and the state of the machine")
        for text in discovery.denied[:5]:
            self.note(f"could not read {text}")

    def started(self, step: Step) -> None:
        pass

    def attempt(self, attempt: Attempt) -> None:
        self._counts.setdefault(attempt.collector, Counter())[attempt.outcome] += 1
        if attempt.outcome.blind and attempt.outcome is not Outcome.SKIPPED:
            self.note(f"{attempt.collector} {attempt.target}: {attempt.outcome.value}, {attempt.reason}")
            if attempt.cure and attempt.cure not in self._cured:  # the same cure for fifty processes is said once
                self._cured.add(attempt.cure)
                self.note(f"  cure: {attempt.cure}", limit=400)

    def ended(self, step: Step, seconds: float) -> None:
        self.note(f"{step.collector}: {self.summary(step.collector)} ({seconds:.1f} s)")

    def note(self, text: str, limit: int = REASON_LIMIT) -> None:
        try:
            self._out.write(plain(text, limit) + "\n")
            self._out.flush()
        except (OSError, ValueError):
            pass  # whoever read our stderr has gone; the capture goes on

    def summary(self, collector: str) -> str:
        counts = self._counts.get(collector, Counter())
        return ", ".join(f"{count} {outcome.value}" for outcome, count in counts.most_common()) or "nothing yet"

    def close(self) -> None:
        """Nothing to put away."""


class Live(Lines):
    """The same with a line for each collector that is running. rich is imported once the children are on their way."""

    def __init__(self, out: TextIO | None = None) -> None:
        super().__init__(out)
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._waiting: list[str] = []

    def started(self, step: Step) -> None:
        self._waiting.append(step.collector)

    def attempt(self, attempt: Attempt) -> None:
        self._show()
        super().attempt(attempt)
        if attempt.collector in self._tasks and self._progress:
            self._progress.update(self._tasks[attempt.collector], what=self.summary(attempt.collector))

    def ended(self, step: Step, seconds: float) -> None:
        self._show()
        task = self._tasks.pop(step.collector, None)
        if task is not None and self._progress:
            self._progress.remove_task(task)
        super().ended(step, seconds)

    def note(self, text: str, limit: int = REASON_LIMIT) -> None:
        if self._progress:
            self._progress.console.print(plain(text, limit), markup=False, highlight=False, soft_wrap=True)
        else:
            super().note(text, limit)

    def close(self) -> None:
        if self._progress:
            self._progress.stop()
            self._progress = None

    def _show(self) -> None:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            columns: tuple[Any, ...] = (
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                TextColumn("{task.fields[what]}", markup=False),
                TimeElapsedColumn(),
            )
            # refreshed rarely: the machine may have no time to spare for us
            self._progress = Progress(*columns, console=Console(file=self._out), refresh_per_second=3, transient=True)
            self._progress.start()
        while self._waiting:
            name = self._waiting.pop(0)
            self._tasks[name] = self._progress.add_task(name, what="", total=None)


def display(out: TextIO | None = None) -> Lines:
    """Live lines where somebody is watching, plain lines otherwise."""
    stream = out or sys.stderr
    return Live(stream) if stream.isatty() else Lines(stream)
