"""Shared-memory segments that processes hold, found through /proc and opened for reading without their knowledge.

A segment stays reachable through the descriptor or the mapping of a holder when its name is gone, and in another mount namespace.
Nothing here maps a segment: a mapping would allocate pages that the engine never touched, `pread` of a hole does not.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import Any

from collectors._contract import PTRACE_CURE, Target, absence, os_error_outcome, read_bounded, resolve_in_root
from collectors._rings import MIB, geometries

NAMES = re.compile(r"(psm_\w{1,64}|sglang_loads_[\w.\-]{1,180}\.shm)", re.ASCII)
"""What multiprocessing.shared_memory calls its segments, and SGLang its load snapshot."""
DESCRIPTORS_MAX = 20_000
MAPS_LIMIT_BYTES = 8 * 1024 * 1024
"""About 70,000 mappings; the kernel allows 65,530 unless told otherwise."""
SEGMENTS_MAX = 400
"""Far more than any engine has; each costs us a descriptor while it is watched."""
_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+) +(/.*/(?:psm_|sglang_loads_).*)$", re.M)
_DELETED = " (deleted)"
_SHOWN = 3


Told = tuple[str, str, str]
"""(outcome, reason, cure)"""


class Segment:
    """One segment, whoever holds it. Its identity is (device, inode): names repeat between containers and outlive the file."""

    def __init__(self, path: str, identity: tuple[int, int]) -> None:
        self.deleted = path.endswith(_DELETED)
        self.path = path.removesuffix(_DELETED)
        self.name = self.path.rpartition("/")[2]
        self.identity = identity
        self.holders: list[dict[str, Any]] = []
        self.doors: list[tuple[int, str]] = []
        """(pid, path) through which it can be opened, the best first."""

    def open(self) -> tuple[int, int, int]:
        """Returns (descriptor, size in bytes, pid through which it was reached). Raises OSError, the most telling one."""
        errors: list[OSError] = []
        # a descriptor needs least, map_files needs more rights, the name must still be there
        for pid, door in sorted(self.doors, key=lambda d: ("/map_files/" in d[1], "/root/" in d[1])):
            try:
                return *self._enter(door), pid
            except OSError as error:
                errors.append(error)
        raise next((e for e in errors if e.errno in (errno.EACCES, errno.EPERM)), errors[-1])

    def _enter(self, door: str) -> tuple[int, int]:
        """The number behind a door may be used anew for a pipe or a device, where opening it to read is an act: look first."""
        place = os.open(door, os.O_PATH | os.O_CLOEXEC)
        try:
            found = os.fstat(place)
            if not stat.S_ISREG(found.st_mode) or (found.st_dev, found.st_ino) != self.identity:
                raise FileNotFoundError(errno.ENOENT, "no longer held", door)
            return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), found.st_size
        finally:
            os.close(place)


class Unfit:
    """Segments of one process that are no ring by their size: told of, never looked into."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, int]] = set()
        self.small = self.odd = 0
        self._shown: list[str] = []

    def add(self, identity: tuple[int, int], name: str, size: int) -> None:
        if identity in self.seen:  # Python keeps two descriptors of each segment
            return
        self.seen.add(identity)
        # a MiB is the least that a ring can have: a small segment is one of the many other uses of shared memory
        first = not (self.small if size < MIB else self.odd)
        if size < MIB:
            self.small += 1
        else:
            self.odd += 1
        if first or (size >= MIB and len(self._shown) < _SHOWN):
            self._shown.append(f"{name}: a size of {size} bytes fits no ring: N x (whole MiB + 1 + readers)")

    def told(self) -> str:
        more = len(self.seen) - len(self._shown)
        return "; ".join(self._shown) + (f"; and {more} more" if more else "")


class Segments:
    """Those of several processes, joined. What no ring is by its size takes no place from one that may be."""

    def __init__(self, sysroot: str = "") -> None:
        self.sysroot = sysroot.rstrip("/")
        self.found: dict[tuple[int, int], Segment] = {}
        self.left_out: set[tuple[int, int]] = set()
        self._left_out: set[tuple[int, int]] = set()
        self._unfit = Unfit()

    def look_at(self, target: Target) -> tuple[Told, list[Segment]]:
        """Add what a target holds. Returns ((outcome, reason, cure), its segments). EMPTY only when it holds none, left out ones too."""
        gone = absence(target, self.sysroot)
        if gone:
            return gone, []
        self._left_out, self._unfit = set(), Unfit()
        problems = [problem for look in (self._descriptors, self._mappings) if (problem := look(target.pid))]
        mine = [s for s in self.found.values() if any(h["pid"] == target.pid for h in s.holders)]
        self.left_out |= self._left_out
        if problems:
            outcome, reason, cure = problems[0]
            return (outcome if len(problems) == 2 and not mine else "PARTIAL", reason, cure), mine
        if self._left_out:
            more = f"{len(self._left_out)} more segments of it, which may be rings, were not looked at: {SEGMENTS_MAX} are the most"
            return ("PARTIAL", more, ""), mine
        return self._judged(mine), mine

    def _judged(self, mine: list[Segment]) -> Told:
        if self._unfit.odd:
            return ("PARTIAL" if mine else "UNSUPPORTED"), self._unfit.told(), ""
        if mine:
            return "OK", "", ""
        return "EMPTY", f"it holds no ring: {self._unfit.told()}" if self._unfit.small else "it holds no ring and no load snapshot", ""

    def _descriptors(self, pid: int) -> Told | None:
        folder = f"{self.sysroot}/proc/{pid}/fd"
        try:
            numbers = sorted(os.listdir(folder), key=lambda n: (len(n), n))
        except OSError as error:
            return _problem(error)
        for number in numbers[:DESCRIPTORS_MAX]:
            door = f"{folder}/{number}"
            try:
                link = os.readlink(door)
                if not _is_segment(link):
                    continue
                if self.sysroot:  # a recorded link leads to a recorded file, never to one of ours
                    door = resolve_in_root(self.sysroot, link.removesuffix(_DELETED))
                held = os.stat(door)
            except FileNotFoundError:
                continue  # closed since it was listed
            except OSError as error:
                return _problem(error)
            self._hold(link, (held.st_dev, held.st_ino), held.st_size, pid, door, {"pid": pid, "fd": int(number), "how": "fd"})
        cut = len(numbers) > DESCRIPTORS_MAX
        return ("PARTIAL", f"only the first {DESCRIPTORS_MAX} descriptors", "") if cut else None

    def _mappings(self, pid: int) -> Told | None:
        """Segments that are mapped and whose descriptor was closed: rare in Python, usual elsewhere."""
        try:
            raw, cut = read_bounded(f"{self.sysroot}/proc/{pid}/maps", MAPS_LIMIT_BYTES)
        except OSError as error:
            return _problem(error)
        for start, end, major, minor, inode, shown in _MAPPING.findall(raw):
            link = shown.decode("utf-8", "surrogateescape")
            if not _is_segment(link):
                continue
            identity = (os.makedev(int(major, 16), int(minor, 16)), int(inode))
            door = f"{self.sysroot}/proc/{pid}/map_files/{int(start, 16):x}-{int(end, 16):x}"
            size = None
            if self.sysroot:
                door = resolve_in_root(self.sysroot, link.removesuffix(_DELETED))
                try:
                    held = os.stat(door)
                except OSError:
                    continue
                identity, size = (held.st_dev, held.st_ino), held.st_size
            elif identity not in self.found:
                size = _size(identity, (door, resolve_in_root(f"/proc/{pid}/root", link.removesuffix(_DELETED))))
            self._hold(link, identity, size, pid, door, {"pid": pid, "how": "map"})
        return ("PARTIAL", f"only the first {MAPS_LIMIT_BYTES >> 20} MiB of its mappings", "") if cut else None

    def _hold(self, link: str, identity: tuple[int, int], size: int | None, pid: int, door: str, holder: dict[str, Any]) -> None:
        segment = self.found.get(identity)
        if segment is None:
            name = link.removesuffix(_DELETED).rpartition("/")[2]
            if size is not None and name.startswith("psm_") and (size < MIB or not geometries(size)):
                self._unfit.add(identity, name, size)
                return
            if len(self.found) >= SEGMENTS_MAX:
                self._left_out.add(identity)
                return
            segment = self.found[identity] = Segment(link, identity)
        if all(known["pid"] != pid for known in segment.holders):  # Python keeps two descriptors of each segment
            segment.holders.append(holder)
        segment.doors.append((pid, door))
        if not self.sysroot and not segment.deleted:
            segment.doors.append((pid, resolve_in_root(f"/proc/{pid}/root", segment.path)))


def _size(identity: tuple[int, int], doors: tuple[str, ...]) -> int | None:
    """Of a segment that is only mapped; None where it cannot be told."""
    for door in doors:
        try:
            held = os.stat(door)
        except OSError:
            continue
        if (held.st_dev, held.st_ino) == identity:
            return held.st_size
    return None


def _is_segment(link: str) -> bool:
    return NAMES.fullmatch(link.removesuffix(_DELETED).rpartition("/")[2]) is not None and link.startswith("/")


def _problem(error: OSError) -> Told | None:
    """What kept us from listing; None where a zombie has nothing left to list."""
    if error.errno in (errno.ENOENT, errno.ESRCH):
        return None
    outcome, reason, cure = os_error_outcome(error)
    return outcome, reason, PTRACE_CURE if outcome == "DENIED" else cure
