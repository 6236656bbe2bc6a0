"""One capture from beginning to end: find, photograph, look again where that is worth it, seal, pack."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from forensics import __version__
from forensics.capture import _procfs as procfs
from forensics.capture._priority import Priority
from forensics.capture.discovery import Discovery, discover, stopped
from forensics.capture.errors import NothingFound, OutputUnusable
from forensics.capture.options import CaptureOptions, ProgressSink, Quiet, check, read_patches
from forensics.capture.plan import (
    DEEPER,
    INTERVAL_S,
    LATER,
    NICE,
    SAMPLED,
    SETTLE_S,
    URGENT,
    Look,
    Plan,
    Step,
    again,
    look,
    make_plan,
    request,
    standing,
    stuck,
)
from forensics.capture.recorder import Recorder
from forensics.capture.runner import Runner
from forensics.model import Attempt, EngineInstance, Outcome, Role

__all__ = ["CaptureOptions", "CaptureResult", "ProgressSink", "Quiet", "capture"]

ORDER = (*URGENT[:1], *DEEPER, *URGENT[1:], *(name for name in LATER if name not in DEEPER))
"""Of a bundle's members, most volatile first."""
ENGINE_EVIDENCE = ("stacks", "process", "rpclogs")
"""Without these of an engine's own processes a capture is incomplete."""
AHEAD_S = 0.1
"""Before a sample is due: a full host takes a moment to let us in."""
SMALL_BYTES = 64 * 1024 * 1024
"""Up to this a bundle is packed in less than a second, which on a saturated host a low priority would turn into a minute."""


@dataclass(frozen=True)
class CaptureResult:
    path: Path
    """The packed bundle; the directory where packing failed."""
    attempts: tuple[Attempt, ...]
    engines: tuple[EngineInstance, ...]
    incomplete: list[str]
    """"what: why" of every required piece of evidence that is missing, and of everything lost."""
    interrupted: bool = False


def capture(options: CaptureOptions, progress: ProgressSink | None = None) -> CaptureResult:
    """Photograph this node into a sealed, packed bundle.

    Raises CaptureError (with its cure) when there is nothing to photograph or nowhere to put it. Once evidence has arrived,
    nothing is raised for what goes wrong: it is an attempt in the bundle and a line of `incomplete`. SIGINT and SIGTERM end
    the collecting; what there is gets sealed.
    """
    show = progress or Quiet()
    started_ns = time.time_ns()
    check(options)
    patches = read_patches(options.patches)
    with _Interrupts() as interrupts, Priority() as priority:
        found = _discover(options)
        show.found(found)
        before = stopped(found.pids, options.sysroot)
        plan = make_plan(
            found, options.profile, options.deadline_s, options.window_s, patches=patches[1], logs=options.logs, cpus=os.cpu_count()
        )
        recorder = Recorder(found, show, boot_id=_boot_id(options.sysroot))
        runner = Runner(recorder, options.command, priority.usual)
        course = _Course(plan, found, runner, recorder, show, options, interrupts, priority)
        try:
            course.begin()  # the volatile children are running while this process prepares to write
            writer = _writer(options, found, started_ns, recorder.boot_id)
        except BaseException:
            runner.abort("the bundle could not be created")
            raise
        recorder.open(writer)
        writer.add(
            "discovery/processes.json",
            "process-table",
            msgspec.json.format(msgspec.json.encode(found.processes), indent=1),
            collector="discovery",
            at_ns=started_ns,
            source="/proc",
        )
        recorder.note("discovery", "node", *_found_outcome(found), evidence=("discovery/processes.json",))
        if patches[0]:
            writer.add("patches/patches.toml", "patches-toml", patches[0], collector="patches", source=str(options.patches))
        try:
            course.finish()
        except BaseException:  # interrupted twice: what has been written stays, unsealed but readable
            runner.kill()
            raise
        _after(runner, recorder, before, found, options.sysroot)
        runner.close()
        show.note("sealing and packing")
        offset_s = time.localtime(started_ns // 10**9).tm_gmtoff
        writer.seal(
            ended_ns=time.time_ns(),
            utc_offset_s=offset_s,
            timezone=time.strftime("%Z", time.localtime(started_ns // 10**9)),
            engines=[_summary(engine) for engine in found.engines],
        )
        priority.prompt(False)
        small = sum(record.size_bytes for record in writer.evidence) < SMALL_BYTES
        pack = partial(writer.pack, ORDER, keep=options.keep_directory)
        path = pack() if small else _niced(pack)
        attempts = tuple(writer.attempts)
        return CaptureResult(
            path=path,
            attempts=attempts,
            engines=found.engines,
            incomplete=[*incomplete(attempts, found, interrupts.name), *writer.losses],
            interrupted=bool(interrupts.name),
        )


class _Course:
    """Drives the runner through the plan."""

    def __init__(
        self,
        plan: Plan,
        found: Discovery,
        runner: Runner,
        recorder: Recorder,
        show: ProgressSink,
        options: CaptureOptions,
        interrupts: _Interrupts,
        priority: Priority,
    ) -> None:
        self.plan, self.found, self.runner, self.recorder, self.show = plan, found, runner, recorder, show
        self.options, self.interrupts, self.priority = options, interrupts, priority
        self.began = time.monotonic()
        self.waiting = list(plan.later)
        self.rounds = list(plan.rounds)
        self.stuck: list[int] = []
        """Processes of the replicas whose counters stand still."""
        self.judged = 0
        """The last sample after which it was decided whether to look again."""
        self.latest = 2

    def begin(self) -> None:
        for step in self.plan.urgent:
            self._start(step)

    def finish(self) -> None:
        """Run until everything has ended, the deadline has passed, or somebody interrupts."""
        while self.runner.busy or self.waiting or self.rounds:
            if self.interrupts.name:
                return self._stop(f"interrupted by {self.interrupts.name}", Outcome.SKIPPED)
            if self.elapsed >= self.options.deadline_s:
                return self._stop(f"the capture's deadline of {self.options.deadline_s:g} s was spent", Outcome.TIMEOUT)
            if self.waiting and self._settled() and self._slow_running() < self.plan.slots:
                self._start(self.waiting.pop(0))
            if self.rounds and not self.runner.running(*SAMPLED):
                self._look_again()
            self.priority.prompt(self._volatile())
            self.runner.turn(0.05)
        return None

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def _start(self, step: Step) -> None:
        self.show.started(step)
        self.runner.start(step, request(step, self.found, self.options.sysroot))

    def _settled(self) -> bool:
        """Whether the volatile collectors have their first sample: until then the processors are theirs."""
        if self.elapsed >= SETTLE_S or not self.runner.running(*SAMPLED):
            return True
        return self.recorder.stacks_seen(1) >= len(self.found.pids)

    def _volatile(self) -> bool:
        """Whether a sample is being taken, or just about to be; not while the samplers sleep, nor for what is no more volatile."""
        if not self.runner.running(*SAMPLED):
            return False
        due = 1 if self.elapsed < INTERVAL_S - AHEAD_S else self.latest
        return self.recorder.stacks_seen(due) < len(self.found.pids)

    def _slow_running(self) -> int:
        return sum(1 for child in self.runner.active if child.step.collector not in self.plan_urgent)

    @property
    def plan_urgent(self) -> set[str]:
        return {step.collector for step in self.plan.urgent}

    def _look_again(self) -> None:
        """Decide once after each look; take the next one when its moment has come."""
        if self.judged < self.latest:
            self.judged = self.latest
            still = standing(self.found.engines, self._looks())
            if not still:
                self.rounds = []
                return
            for engine, seen in still.items():
                self.show.note(f"{engine} stands still ({seen.why}): looking again at {self.rounds[0][1]:g} s")
            # two seconds are a long prefill; who has stood still at the next look as well is not disturbed by a longer one
            self.stuck = stuck(self.found.engines, still) if self.latest > 2 else []
        sample, at_s = self.rounds[0]
        if self.elapsed >= at_s:
            self.rounds.pop(0)
            self.latest = sample
            for step in again(self.plan, sample, self.stuck):
                self._start(step)

    def _looks(self) -> list[Look]:
        return [look(self.found.engines, *self.recorder.queues.get(sample, ([], []))) for sample in range(1, self.latest + 1)]

    def _stop(self, why: str, outcome: Outcome) -> None:
        self.runner.abort(why, outcome)
        for step in self.waiting:
            self.recorder.note(step.collector, "node", Outcome.SKIPPED, why, "")
        if self.rounds and outcome is Outcome.TIMEOUT:
            self.recorder.note("capture", "further looks", Outcome.SKIPPED, why, "raise --deadline")


def _niced(work: Callable[[], Path]) -> Path:
    """Do slow work at a low priority: in a thread of its own, because without privilege no priority is ever got back."""
    done: list[Path] = []
    failed: list[BaseException] = []

    def run() -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="packing")
    try:
        thread.start()
    except RuntimeError:  # no more threads on this host
        return work()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


class _Interrupts:
    """Turns SIGINT and SIGTERM into a wish to stop. The second one is obeyed at once."""

    def __init__(self) -> None:
        self.name = ""
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> _Interrupts:
        with contextlib.suppress(ValueError):  # not in the main thread: somebody else handles signals
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.name:
            raise KeyboardInterrupt
        self.name = signal.Signals(number).name

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


def _discover(options: CaptureOptions) -> Discovery:
    try:
        found = discover(options.sysroot, options.engine, options.pids)
    except OSError as error:
        raise NothingFound(f"cannot read /proc: {error.strerror or error}", "capture runs on Linux, with /proc mounted") from error
    alive = set(found.pids)
    missing = [pid for pid in options.pids if pid not in alive]
    if missing and not options.logs and not found.engines:
        raise NothingFound(f"no process {', '.join(map(str, missing))} on {found.node}", "see which engines run with `forensics doctor`")
    if not found.engines and not options.logs:
        looked = "".join(f"\n  looked for {text}" for text in found.looked_for)
        denied = "".join(f"\n  could not read {text}" for text in found.denied[:5])
        cure = (
            "name a process with --pid, or its log files with --log when it is gone already; "
            "in a container, run in the engine's pid namespace (docker: --pid host or --pid container:NAME)"
        )
        raise NothingFound(f"no engine found on {found.node}{looked}{denied}", cure)
    return found


def _found_outcome(found: Discovery) -> tuple[Outcome, str, str]:
    if found.denied:
        return Outcome.PARTIAL, "; ".join(found.denied[:8]), "run as root, or as the user of the engine"
    if not found.engines:
        return Outcome.EMPTY, "no engine process is left; only the log files that were named", ""
    return Outcome.OK, "", ""


def _boot_id(sysroot: str) -> str:
    try:
        return procfs.read(f"{sysroot}/proc/sys/kernel/random/boot_id", 64).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _writer(options: CaptureOptions, found: Discovery, started_ns: int, boot_id: str) -> Any:
    from forensics.bundle import BundleError, BundleWriter

    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(started_ns // 10**9))
    name = "-".join(filter(None, (found.node, moment, options.incident)))
    head = {
        "tool": f"inference-forensics {__version__}",
        "node": found.node,
        "boot_id": boot_id,
        "incident": options.incident,
        "trigger": options.trigger,
        "reason": options.reason,
        "profile": options.profile,
        "started_ns": started_ns,
    }
    try:
        return BundleWriter(options.out, name, head=head)
    except BundleError as error:
        raise OutputUnusable(error.message, error.cure) from error


def _after(runner: Runner, recorder: Recorder, before: set[int], found: Discovery, sysroot: str) -> None:
    """Nobody may be left stopped who ran before. If our own reader had to be killed, it may have done that: undo it."""
    if sysroot or not found.pids:
        return
    left = stopped(found.pids) - before
    if any(step.collector == "stacks" for step in runner.forced):
        left |= {pid for pid in found.pids if pid not in before and procfs.stop_pending(pid)}
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        text = f"pids {sorted(left)} were stopped, or about to be, when the stack reader was killed: continued" if left else ""
        recorder.note("capture", "targets left running", Outcome.OK, text, "")
    elif left:
        text = f"pids {sorted(left)} are stopped now and were not before; nothing of ours holds them"
        recorder.note("capture", "targets left running", Outcome.PARTIAL, text, "")
    else:
        recorder.note("capture", "targets left running", Outcome.OK, "", "")


def incomplete(attempts: Sequence[Attempt], found: Discovery, interrupted: str) -> list[str]:
    """What required evidence is missing, "what: why", each once. Not for a target that was gone: that is an observation."""
    missing = [f"capture: interrupted by {interrupted}"] if interrupted else []
    inner = {process.pid for engine in found.engines for process in engine.processes if process.role is not Role.HELPER}
    for attempt in attempts:
        if not attempt.outcome.blind or attempt.collector not in ENGINE_EVIDENCE or attempt.target.startswith("native stacks"):
            continue  # native stacks are more than is required: they come on top of the Python stacks of the same process
        pid = attempt.origin.pid if attempt.origin else None
        if pid is not None and pid not in inner:
            continue
        missing.append(f"{attempt.collector} {attempt.target}: {attempt.outcome.value}, {attempt.reason}")
    return list(dict.fromkeys(missing))


def _summary(engine: EngineInstance) -> dict[str, Any]:
    """An engine for people who read the manifest."""
    processes = [{"pid": process.pid, "label": process.label, "state": process.info.state} for process in engine.processes]
    return {
        "id": engine.id,
        "kind": engine.kind,
        "version": engine.version,
        "world_size": engine.world_size,
        "ports": engine.ports,
        "processes": processes,
    }
