"""forensics collect NAME"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from forensics.cli import complain


def collect_command(
    name: str,
    *,
    pids: tuple[int, ...] = (),
    samples: int = 1,
    interval_s: float = 2.0,
    out: Path | None = None,
    logs: tuple[Path, ...] = (),
    patches: Path | None = None,
    sysroot: str = "",
    native: bool = False,
) -> int:
    """Run one collector in a child and print its evidence, redacted, as JSON lines; with `out`, write a bundle directory.

    Returns 0, 3 when something could not be read, 2 for a name that there is not.
    """
    from collectors import NAMES

    if name not in NAMES:
        complain(f"there is no collector {name!r}", f"choose one of {', '.join(NAMES)}")
        return 2
    from forensics.capture.discovery import Discovery, discover, node_name
    from forensics.capture.options import read_patches
    from forensics.capture.plan import Step, make_plan, request
    from forensics.capture.runner import Runner

    try:
        found = discover(sysroot, pids=pids)
    except OSError as error:  # a recorded tree of /sys alone is enough for most collectors
        if pids:
            complain(f"cannot read {sysroot}/proc: {error.strerror or error}", "leave out --pid")
            return 2
        found = Discovery(node=node_name(sysroot))
    missing = [pid for pid in pids if pid not in found.pids]
    if missing:
        complain(f"no process {', '.join(map(str, missing))} on {found.node}", "see which processes there are with `forensics doctor`")
        return 4
    plan = make_plan(found, "full", patches=read_patches(patches)[1], logs=logs)
    options = next((step.options for step in (*plan.urgent, *plan.later) if step.collector == name), {})
    if native:
        options = {**options, "native": True}
    step = Step(name, deadline_s=samples * max(interval_s, 2.0) + 120.0, samples=samples, interval_s=interval_s, options=options)
    asked = request(step, found, sysroot)
    if pids:
        asked["targets"] = [target for target in asked["targets"] if target["pid"] in pids]
    sink: _Printer | Writer = (
        _Printer() if out is None else Writer(out, f"{found.node}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{name}", found)
    )
    runner = Runner(sink)
    try:
        runner.start(step, asked)
        while runner.busy:
            runner.turn(0.2)
    finally:  # Ctrl-C: the child must not stay behind
        runner.abort("interrupted")
        runner.close()
    sink.finish()
    return 3 if sink.blind else 0


class _Printer:
    """Evidence to stdout, attempts to stderr."""

    def __init__(self) -> None:
        from forensics.bundle import Redactor

        self.blind = False
        self._redactor = Redactor.from_environment("")
        self._parts: dict[str, list[bytes]] = {}

    def evidence(self, step: Any, line: Any) -> None:
        self._parts.setdefault(line.name, []).append(line.data)
        if not line.more:
            self._print(line, line.truncated)

    def _print(self, line: Any, truncated: bool) -> None:
        import msgspec

        data, _ = self._redactor.redact(b"".join(self._parts.pop(line.name)), line.kind, line.name)
        record = {
            "type": "evidence",
            "name": line.name,
            "kind": line.kind,
            "pid": line.pid,
            "sample": line.sample,
            "source": line.source,
            "at_ns": line.at_ns,
            "truncated": truncated,
            "text": data.decode("utf-8", "backslashreplace"),
        }
        sys.stdout.write(msgspec.json.encode(record).decode() + "\n")
        sys.stdout.flush()

    def attempt(self, step: Any, line: Any) -> None:
        self.blind = self.blind or line.outcome.blind
        say_attempt(line)

    def ended(self, step: Any, seconds: float) -> list[str]:
        return sorted(self._parts)

    def finish(self) -> None:
        """Everything has been printed as it came."""


class Writer:
    """Evidence into a bundle directory, attempts to stderr as well where `say`."""

    def __init__(self, out: Path, name: str, found: Any, say: bool = True) -> None:
        from forensics.bundle import BundleWriter
        from forensics.capture.options import Quiet
        from forensics.capture.recorder import Recorder

        self.blind_targets: list[str] = []
        self._say = say
        self._writer = BundleWriter(out, name, head={"node": found.node, "started_ns": time.time_ns()})
        self._recorder = Recorder(found, Quiet())
        self._recorder.open(self._writer)
        if found.processes:
            import msgspec

            table = msgspec.json.format(msgspec.json.encode(found.processes), indent=1)
            self._writer.add(
                "discovery/processes.json", "process-table", table, collector="discovery", at_ns=time.time_ns(), source="/proc"
            )

    def evidence(self, step: Any, line: Any) -> None:
        self._recorder.evidence(step, line)

    @property
    def blind(self) -> bool:
        return bool(self.blind_targets)

    def add(self, name: str, kind: str, text: str) -> None:
        """A file that no collector brings."""
        self._writer.add(name, kind, text, collector=name.partition("/")[0], at_ns=time.time_ns())

    def attempt(self, step: Any, line: Any) -> None:
        if line.outcome.blind:
            self.blind_targets.append(f"{line.target}: {line.reason}" + (f" (cure: {line.cure})" if line.cure else ""))
        if self._say:
            say_attempt(line)
        self._recorder.attempt(step, line)

    def ended(self, step: Any, seconds: float) -> list[str]:
        return self._recorder.ended(step, seconds)

    def seal(self) -> Path:
        """Close the bundle; returns its path."""
        self._writer.seal(ended_ns=time.time_ns())
        self._writer.close()
        return self._writer.path

    def finish(self) -> None:
        sys.stdout.write(f"{self.seal()}\n")


def say_attempt(line: Any) -> None:
    from forensics.capture.progress import plain

    text = f"{line.outcome.value:<11} {line.target}" + (f" (sample {line.sample})" if line.sample else "")
    sys.stderr.write(plain(text + (f": {line.reason}" if line.reason else ""), 400) + "\n")
    if line.cure:
        sys.stderr.write(f"            cure: {plain(line.cure, 400)}\n")
