"""Control groups in a fileset: memory in use and its limit, the processor quota and how often it was used up.

Formats: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux 6.x.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from forensics.model import CpuGroup, EvidenceRef, MemorySample, TimeRange

_MEMORY = re.compile(r"^(/sys/fs/cgroup.*)/memory\.(?:current|usage_in_bytes)$")
_CPU = re.compile(r"^(/sys/fs/cgroup.*)/cpu\.(?:stat|max|pressure)$")
NO_LIMIT = 1 << 60
"""Version 1 writes "no limit" as a number near 2^63."""
TIGHT = 0.9
"""Above this share of its limit a group may be short, or full of page cache: what is cache must then be known."""
Ref = Callable[[str, str], EvidenceRef]


def groups(files: Mapping[str, str], *, node: str, at: TimeRange | None, ref: Ref) -> Iterator[MemorySample | CpuGroup]:
    """One MemorySample and one CpuGroup for each group of which those files were read."""
    limited: dict[str, str] = {}
    for path, text in files.items():
        if not path.startswith("/sys/fs/cgroup"):
            continue
        if m := _MEMORY.match(path):
            yield _memory(files, m[1], path, text, node, at, ref)
        elif m := _CPU.match(path):
            limited.setdefault(m[1], path)
    for folder, path in limited.items():
        yield _cpu(files, folder, path, node, at, ref)


def _memory(files: Mapping[str, str], folder: str, path: str, text: str, node: str, at: TimeRange | None, ref: Ref) -> MemorySample:
    limit = (files.get(folder + "/memory.max") or files.get(folder + "/memory.limit_in_bytes") or "").strip()
    events = re.search(r"^oom_kill (\d+)", files.get(folder + "/memory.events", ""), re.M)
    pressure = field(files.get(folder + "/memory.pressure", ""), "full")
    capped = int(limit) if limit.isdigit() and int(limit) < NO_LIMIT else None
    used = int(text.strip() or 0)
    kept = _cache(files.get(folder + "/memory.stat", ""))
    # page cache counts as used and is given back on demand: a group that has read its weights stands at its limit all day
    available = None if capped is None or (kept is None and used > TIGHT * capped) else max(0, capped - used) + min(kept or 0, used)
    cache = f", {kept / 2**30:.2f} GiB of it page cache" if kept is not None else ""
    return MemorySample(
        node=node,
        at=at,
        ref=ref(path, f"{used / 2**30:.2f} GiB of {limit or '?'}{cache}"),
        scope="cgroup:" + folder.removeprefix("/sys/fs/cgroup"),
        total_bytes=capped,
        used_bytes=used,
        available_bytes=available,
        oom_kills=int(events[1]) if events else None,
        pressure_full_avg10=pressure,
    )


def _cache(stat: str) -> int | None:
    """Bytes of files that the kernel may drop: not those of tmpfs, which count as shared memory."""
    found = {m[1]: int(m[2]) for m in re.finditer(r"^(?:total_)?((?:in)?active_file) (\d+)$", stat, re.M)}
    return sum(found.values()) if len(found) == 2 else None


def _cpu(files: Mapping[str, str], folder: str, path: str, node: str, at: TimeRange | None, ref: Ref) -> CpuGroup:
    counts = {m[1]: int(m[2]) for m in re.finditer(r"^(\w+) (\d+)$", files.get(folder + "/cpu.stat", ""), re.M)}
    quota, _, period = files.get(folder + "/cpu.max", "").strip().partition(" ")
    cpus = int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
    pressure = files.get(folder + "/cpu.pressure", "")
    words = [f"quota {cpus:g} CPUs" if cpus is not None else "no quota"]
    if "nr_periods" in counts:
        words.append(f"throttled in {counts.get('nr_throttled', 0)} of {counts['nr_periods']} periods")
    return CpuGroup(
        node=node,
        at=at,
        ref=ref(path, ", ".join(words)),
        scope="cgroup:" + folder.removeprefix("/sys/fs/cgroup"),
        quota_cpus=cpus,
        periods=counts.get("nr_periods"),
        throttled=counts.get("nr_throttled"),
        throttled_seconds=counts["throttled_usec"] / 1e6 if "throttled_usec" in counts else None,
        pressure_some_avg10=field(pressure, "some"),
        pressure_full_avg10=field(pressure, "full"),
    )


def field(pressure: str, line: str) -> float | None:
    """avg10 of the line "some" or "full" of a pressure file, in per cent of time."""
    m = re.search(rf"^{line} avg10=([\d.]{{1,12}})", pressure, re.M)
    return float(m[1]) if m else None
