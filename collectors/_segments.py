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

NAMES = re.compile(r"(psm_\w{1,64}|sglang_loads_[\w.\-]{1,180}\.shm)", re.ASCII)
"""What multiprocessing.shared_memory calls its segments, and SGLang its load snapshot."""
DESCRIPTORS_MAX = 20_000
MAPS_LIMIT_BYTES = 8 * 1024 * 1024
"""About 70,000 mappings; the kernel allows 65,530 unless told otherwise."""
SEGMENTS_MAX = 400
"""Far more than any engine has; each costs us a descriptor while it is watched."""
_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+) +(/.*/(?:psm_|sglang_loads_).*)$", re.M)
_DELETED = " (deleted)"


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
                fd = os.open(door, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                errors.append(error)
                continue
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) == self.identity:
                return fd, found.st_size, pid
            os.close(fd)  # the number was closed and used again since it was listed
            errors.append(FileNotFoundError(errno.ENOENT, "no longer held", door))
        raise next((e for e in errors if e.errno in (errno.EACCES, errno.EPERM)), errors[-1])


class Segments:
    """Those of several processes, joined."""

    def __init__(self, sysroot: str = "") -> None:
        self.sysroot = sysroot.rstrip("/")
        self.found: dict[tuple[int, int], Segment] = {}
        self.left_out: set[tuple[int, int]] = set()

    def look_at(self, target: Target) -> tuple[tuple[str, str, str], list[Segment]]:
        """Add what a target holds. Returns ((outcome, reason, cure), its segments); EMPTY when it holds none."""
        gone = absence(target, self.sysroot)
        if gone:
            return gone, []
        before = {id(s): len(s.holders) for s in self.found.values()}
        problems = [problem for look in (self._descriptors, self._mappings) if (problem := look(target.pid))]
        mine = [s for s in self.found.values() if len(s.holders) > before.get(id(s), 0)]
        if not problems:
            return (("OK", "", "") if mine else ("EMPTY", "it holds no ring and no load snapshot", "")), mine
        outcome, reason, cure = problems[0]
        return (outcome if len(problems) == 2 and not mine else "PARTIAL", reason, cure), mine

    def _descriptors(self, pid: int) -> tuple[str, str, str] | None:
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
            self._hold(link, (held.st_dev, held.st_ino), pid, door, {"pid": pid, "fd": int(number), "how": "fd"})
        cut = len(numbers) > DESCRIPTORS_MAX
        return ("PARTIAL", f"only the first {DESCRIPTORS_MAX} descriptors", "") if cut else None

    def _mappings(self, pid: int) -> tuple[str, str, str] | None:
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
            if self.sysroot:
                door = resolve_in_root(self.sysroot, link.removesuffix(_DELETED))
                try:
                    held = os.stat(door)
                except OSError:
                    continue
                identity = (held.st_dev, held.st_ino)
            self._hold(link, identity, pid, door, {"pid": pid, "how": "map"})
        return ("PARTIAL", f"only the first {MAPS_LIMIT_BYTES >> 20} MiB of its mappings", "") if cut else None

    def _hold(self, link: str, identity: tuple[int, int], pid: int, door: str, holder: dict[str, Any]) -> None:
        segment = self.found.get(identity)
        if segment is None:
            if len(self.found) >= SEGMENTS_MAX:
                self.left_out.add(identity)
                return
            segment = self.found[identity] = Segment(link, identity)
        if all(known["pid"] != pid for known in segment.holders):  # Python keeps two descriptors of each segment
            segment.holders.append(holder)
        segment.doors.append((pid, door))
        if not self.sysroot and not segment.deleted:
            segment.doors.append((pid, resolve_in_root(f"/proc/{pid}/root", segment.path)))


def _is_segment(link: str) -> bool:
    return NAMES.fullmatch(link.removesuffix(_DELETED).rpartition("/")[2]) is not None and link.startswith("/")


def _problem(error: OSError) -> tuple[str, str, str] | None:
    """What kept us from listing; None where a zombie has nothing left to list."""
    if error.errno in (errno.ENOENT, errno.ESRCH):
        return None
    outcome, reason, cure = os_error_outcome(error)
    return outcome, reason, PTRACE_CURE if outcome == "DENIED" else cure
