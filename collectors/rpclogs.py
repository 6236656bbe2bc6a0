"""The engine's logs: of each distinct file the head (who is who), the tail, and a window around the newest fatal line.

`rpclogs/BASENAME.K.log`, raw lines, each slice from a line start, never overlapping: K is 1 for the head (or the whole of a
small file), 2 for the window, 3 for the tail. `source` is the file as the node calls it. The newest rotated sibling follows
under its own name. Where output goes to a container runtime or to the journal, its text is fetched from there.
"""

from __future__ import annotations

import os
import re
import stat
import time
from typing import Any

from collectors._commands import read_log
from collectors._contract import Emitter, Request, absence, nothing_to_do, os_error_outcome, resolve_in_root
from collectors._sinks import Sink, sinks
from collectors._slices import HEAD, TAIL, last_bytes, slices

HEAD_BYTES, TAIL_BYTES, WINDOW_BYTES, ROTATED_BYTES = 64 * 1024, 4 * 1024 * 1024, 256 * 1024, 1024 * 1024
JOURNAL_S, JOURNAL_LINES = 2.0, 5000
SEARCH_S, ALL_SEARCHES_S = 5.0, 15.0
"""For how long a fatal line that lies before the tail is looked for: in one log, and in all of them together."""
DESCRIPTOR = re.compile(r".*/proc/\d+/fd/\d+$")
IN_CONTAINER = re.compile(r"(/proc/\d+/root)(/.*)")
ROTATED = re.compile(r"[.-]\d[\d.T_-]*(\.gz)?")


class Log:
    """One source, read once however many processes write into it."""

    def __init__(self, sink: Sink, pid: int | None) -> None:
        self.sink, self.pid = sink, pid
        self.outcome: tuple[str, str, str] | None = None
        self.evidence: list[str] = []


class Reader:
    """Reads logs and sends their slices."""

    def __init__(self, request: Request, emit: Emitter) -> None:
        self.sysroot, self.emit = request.sysroot, emit
        self.logs: dict[Any, Log] = {}
        self.names: set[str] = set()
        self.max_bytes = request.max_bytes
        self.search_until = time.monotonic() + ALL_SEARCHES_S

    def known(self, sink: Sink, pid: int | None) -> Log:
        """The one log behind `sink`. Under two names, that of a file outdoes that of a descriptor."""
        try:
            s = os.stat(sink.open)
            log = self.logs.setdefault((s.st_dev, s.st_ino), Log(sink, pid))
        except OSError:
            log = self.logs.setdefault(sink.name, Log(sink, pid))
        if DESCRIPTOR.match(log.sink.name):
            log.sink = sink
        return log

    def file(self, path: str) -> Sink:
        inside = IN_CONTAINER.match(path)
        return Sink(path, resolve_in_root(self.sysroot + inside[1], inside[2]) if inside else resolve_in_root(self.sysroot, path))

    def bound(self, size: int) -> int:
        """`size`, or less of it where so many logs share the byte bound that the last ones would get nothing."""
        total = (HEAD_BYTES + TAIL_BYTES + WINDOW_BYTES + ROTATED_BYTES) * len(self.logs)
        return min(size, size * self.max_bytes // total)

    def send(self, log: Log, name: str, data: bytes, source: str, *, cut: bool) -> None:
        evidence = self.emit.evidence(f"rpclogs/{name}.log", "log", data, pid=log.pid, source=source, truncated=cut)
        log.evidence.append(evidence)

    def name(self, path: str) -> str:
        base = re.sub(r"[^A-Za-z0-9._-]+", "_", os.path.basename(path))[-80:].lstrip(".") or "log"
        name, i = base, 1
        while name in self.names:
            name, i = f"{base}-{i + 1}", i + 1
        self.names.add(name)
        return name

    def read(self, log: Log) -> tuple[str, str, str]:
        """Send what can be had of one log; returns (outcome, reason, cure)."""
        sink = log.sink
        if sink.journal:
            argv = ("journalctl", "-o", "short-iso", "--no-pager", "-n", str(JOURNAL_LINES), *sink.journal)
            got = read_log(argv, JOURNAL_S, self.bound(TAIL_BYTES), sink.cure)
            if got.text:
                self.send(log, self.name(f"journal-{sink.name}") + ".1", got.text, " ".join(argv), cut=got.cut)
            elif got.outcome in ("EMPTY", "ABSENT"):
                return "ABSENT", sink.lost, sink.cure
            return got.outcome, got.reason, got.cure
        if not sink.open:
            return "ABSENT", sink.lost, sink.cure
        mode = os.stat(sink.open).st_mode
        if not stat.S_ISREG(mode):  # not even opened: that would wake up a writer who waits for a reader
            return "ABSENT", f"{sink.name} is not a regular file ({stat.filemode(mode)})", ""
        fd = os.open(sink.open, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            outcome = self.read_slices(log, fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)
        self.read_rotated(log)
        return outcome if outcome[0] != "EMPTY" or not log.evidence else ("PARTIAL", f"{outcome[1]}; its rotated sibling was read", "")

    def read_slices(self, log: Log, fd: int, size: int) -> tuple[str, str, str]:
        source = log.sink.name
        if not size:
            return "EMPTY", f"{source} is empty", ""
        name, sent = self.name(source.removesuffix(" (deleted)")), 0
        search_s = min(SEARCH_S, self.search_until - time.monotonic())
        for k, data in slices(fd, size, *map(self.bound, (HEAD_BYTES, WINDOW_BYTES, TAIL_BYTES)), search_s=search_s):
            self.send(log, f"{name}.{k}", data, source, cut=len(data) < size)
            sent += len(data)
        return ("OK", "", "") if sent == size else ("PARTIAL", f"{sent} of the {size} bytes of {source}", "")

    def read_rotated(self, log: Log) -> None:
        """The tail of the newest rotated sibling: right after a rotation it holds everything of interest."""
        beside = log.sink.open
        if DESCRIPTOR.match(beside):
            beside = resolve_in_root(f"{self.sysroot}/proc/{log.pid}/root", log.sink.name.removesuffix(" (deleted)"))
        folder, base = os.path.split(beside)
        newest: tuple[int, str] = (0, "")
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(base) and ROTATED.fullmatch(entry.name[len(base) :]) and entry.is_file(follow_symlinks=False):
                        s = entry.stat()
                        if (s.st_dev, s.st_ino) not in self.logs:
                            newest = max(newest, (s.st_mtime_ns, entry.name))
            if newest[1]:
                data, cut = last_bytes(f"{folder}/{newest[1]}", self.bound(ROTATED_BYTES))
                source = f"{folder}/{newest[1]}".removeprefix(self.sysroot)
                self.send(log, f"{self.name(newest[1])}.{TAIL if cut else HEAD}", data, source, cut=cut)
        except OSError:
            pass  # the log itself was read; an older one that cannot be does not make that less true


def collect(request: Request, emit: Emitter) -> None:
    extra = [str(path) for path in request.options.get("logs", ())]
    if not request.targets and not extra:
        nothing_to_do(emit, "logs")
        return
    reader = Reader(request, emit)
    plan: list[tuple[str, int | None, list[Log], tuple[str, str, str] | None]] = []
    for target in request.targets:
        found = [reader.known(reader.file(path), target.pid) for path in target.log_files]
        failure = absence(target, request.sysroot)  # the log of a dead process is the one that matters: go on with its files
        if not failure:
            try:
                live = sinks(target.pid, request.sysroot)
                found += [reader.known(sink, target.pid) for sink in live if not found or sink.open or sink.journal]
            except OSError as error:
                failure = os_error_outcome(error)
        plan.append((target.name, target.pid, list(dict.fromkeys(found)), failure))
    plan += [(path, None, [reader.known(reader.file(path), None)], None) for path in extra]
    for name, pid, found, failure in plan:
        with emit.attempt(name, pid=pid) as attempt:
            for log in found:
                try:
                    log.outcome = log.outcome or reader.read(log)
                except OSError as error:
                    log.outcome = os_error_outcome(error)
                finally:
                    attempt.evidence += log.evidence
            attempt.end(*together([log.outcome for log in found if log.outcome] or [failure or ("ABSENT", "no output", "")]))


def together(outcomes: list[tuple[str, str, str]]) -> tuple[str, str, str]:
    """One outcome for the several places that a process writes to."""
    words = {outcome for outcome, _, _ in outcomes}
    reasons = "; ".join(dict.fromkeys(reason for outcome, reason, _ in outcomes if reason and outcome not in ("OK", "EMPTY")))
    cures = "; ".join(dict.fromkeys(cure for _, _, cure in outcomes if cure))
    if len(words) == 1:
        return words.pop(), reasons or outcomes[0][1], cures
    if words <= {"OK", "EMPTY"}:
        return "OK", "", ""
    if words & {"OK", "EMPTY", "PARTIAL"}:
        return "PARTIAL", reasons, cures
    return next(outcome for outcome, _, _ in outcomes if outcome != "ABSENT"), reasons, cures
