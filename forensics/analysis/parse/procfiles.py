"""Photographs of /proc and /sys (kind fileset).

Formats: Documentation/filesystems/proc.rst, Documentation/admin-guide/{thermal,cgroup-v2}.rst of Linux 6.x.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse.cgroups import groups
from forensics.analysis.parse.sockets import socket_queues
from forensics.analysis.parse.waits import thread_waits
from forensics.model import (
    CpuSample,
    EvidenceRef,
    HostCpu,
    MemorySample,
    ProcessInfo,
    ProcessState,
    ThermalReading,
    ThrottleCount,
    TimeRange,
)


class FileSet(msgspec.Struct):
    at_ns: int = 0
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    errors: dict[str, str] = {}


_TASK = re.compile(r"^/proc/(\d+)/task/(\d+)/stat$")
_PROCESS = re.compile(r"^/proc/(\d+)/stat$")
_ZONE = re.compile(r"^(/sys/class/thermal/thermal_zone(\d+))/temp$")
_HWMON = re.compile(r"^(/sys/class/hwmon/hwmon\d+)/(temp\d+)_input$")
_THROTTLE = re.compile(r"^/sys/devices/system/cpu/(cpu\d+)/thermal_throttle/(\w+)_count$")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
"""USER_HZ: 100 on every Linux that runs an inference engine."""


def parse(inp: Input, sink: Sink) -> None:
    shot = msgspec.json.decode(bytes(inp.data), type=FileSet)
    at = TimeRange(earliest_ns=shot.at_ns, latest_ns=shot.at_ns, basis="sampled") if shot.at_ns else inp.at

    def ref(path: str, quote: str) -> EvidenceRef:
        return inp.ref(path, quote)

    _processes(shot, inp, at, sink, ref)
    _host(shot, inp, at, sink, ref)
    _memory(shot, inp, at, sink, ref)
    _thermal(shot, inp, at, sink, ref)
    for queue in socket_queues(shot.files, shot.links, node=inp.node, at=at, sample=inp.sample, ref=ref):
        sink.add(queue)
    for wait in thread_waits(shot.files, node=inp.node, at=at, sample=inp.sample, ref=ref):
        sink.add(wait)


Ref = Callable[[str, str], EvidenceRef]


def stat_fields(text: str) -> tuple[str, list[str]]:
    """(comm, fields from the state onward): comm may hold spaces and parentheses, so fields count from the last ")"."""
    end = text.rindex(")")
    return text[text.index("(") + 1 : end], text[end + 2 :].split()


def _processes(shot: FileSet, inp: Input, at: TimeRange | None, sink: Sink, ref: Ref) -> None:
    for path, text in shot.files.items():
        if not path.endswith("/stat"):
            continue
        task, process = _TASK.match(path), _PROCESS.match(path)
        if not (task or process):
            continue
        try:
            comm, fields = stat_fields(text)
            cpu = (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
        except (ValueError, IndexError):
            sink.note(f"{inp.name}: {path} is not a stat file")
            continue
        folder = path.rsplit("/", 1)[0]
        wchan = shot.files.get(folder + "/wchan", "").strip()
        wchan = "" if wchan == "0" else wchan
        waited = shot.files.get(folder + "/schedstat", "").split()
        quote = f"{comm} {fields[0]} wchan={wchan or '-'}"
        if task:
            sink.add(
                CpuSample(
                    node=inp.node,
                    at=at,
                    ref=ref(path, f"{quote} cpu={cpu:.2f} s"),
                    pid=int(task[1]),
                    tid=int(task[2]),
                    thread=comm,
                    state=fields[0],
                    wchan=wchan,
                    cpu_seconds=cpu,
                    waited_seconds=int(waited[1]) / 1e9 if len(waited) > 1 and waited[1].isdigit() else None,
                    sample=inp.sample,
                )
            )
            continue
        assert process
        pid = int(process[1])
        status = fields[49] if len(fields) > 49 else ""
        sink.add(
            ProcessState(
                node=inp.node,
                at=at,
                ref=ref(path, quote),
                pid=pid,
                ppid=int(fields[1]),
                state=fields[0],
                wchan=wchan,
                # the kernel shows 0 for a live process and to those who may not trace it
                exit_status=int(status) if fields[0] in "ZX" and status.lstrip("-").isdigit() else None,
                rss_bytes=int(fields[21]) * 4096,
                threads=int(fields[17]),
                sample=inp.sample,
            )
        )
        sink.process(ProcessInfo(pid=pid, node=inp.node, state=fields[0]))


def _host(shot: FileSet, inp: Input, at: TimeRange | None, sink: Sink, ref: Ref) -> None:
    stat = shot.files.get("/proc/stat")
    load = shot.files.get("/proc/loadavg", "").split()
    if stat is None and not load:
        return
    busy = total = cpus = None
    if stat:
        m = re.search(r"^cpu +(.*)$", stat, re.M)
        if m:
            ticks = [int(n) for n in m[1].split()[:8]]
            total = sum(ticks)
            busy = total - ticks[3] - (ticks[4] if len(ticks) > 4 else 0)
        cpus = len(re.findall(r"^cpu\d+ ", stat, re.M)) or None
    pressure = re.search(r"^some avg10=([\d.]+)", shot.files.get("/proc/pressure/cpu", ""), re.M)
    sink.add(
        HostCpu(
            node=inp.node,
            at=at,
            ref=ref("/proc/stat", f"load {load[0] if load else '?'} on {cpus or '?'} CPUs"),
            cpus=cpus,
            busy_ticks=busy,
            total_ticks=total,
            load1=float(load[0]) if load else None,
            runnable=int(load[3].split("/")[0]) if len(load) > 3 and "/" in load[3] else None,
            pressure_some_avg10=float(pressure[1]) if pressure else None,
        )
    )


def meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo as bytes by name."""
    return {m[1]: int(m[2]) * 1024 for m in re.finditer(r"^(\w+(?:\(\w+\))?):\s+(\d+) kB", text, re.M)}


def _memory(shot: FileSet, inp: Input, at: TimeRange | None, sink: Sink, ref: Ref) -> None:
    if text := shot.files.get("/proc/meminfo"):
        oom = re.search(r"^oom_kill (\d+)", shot.files.get("/proc/vmstat", ""), re.M)
        pressure = re.search(r"^full avg10=([\d.]+)", shot.files.get("/proc/pressure/memory", ""), re.M)
        add_meminfo(text, inp, at, sink, int(oom[1]) if oom else None, float(pressure[1]) if pressure else None)
    for group in groups(shot.files, node=inp.node, at=at, ref=ref):
        sink.add(group)
    if shm := re.search(r"blocks=(\d+).*?bavail=(\d+).*?frsize=(\d+)", shot.files.get("statvfs:/dev/shm", "")):
        blocks, free, size = (int(n) for n in shm.groups())
        sink.add(
            MemorySample(
                node=inp.node,
                at=at,
                ref=ref("/dev/shm", f"{free * size / 2**30:.2f} of {blocks * size / 2**30:.2f} GiB free"),
                scope="shm",
                total_bytes=blocks * size,
                available_bytes=free * size,
            )
        )


def add_meminfo(text: str, inp: Input, at: TimeRange | None, sink: Sink, oom: int | None, pressure: float | None) -> None:
    """One MemorySample of a meminfo text."""
    values = meminfo(text)
    total, available = values.get("MemTotal"), values.get("MemAvailable")
    if total is None:
        sink.note(f"{inp.name}: no MemTotal in meminfo")
        return
    quote = f"MemAvailable {available / 2**30:.1f} GiB of {total / 2**30:.1f} GiB" if available is not None else "no MemAvailable"
    sink.add(
        MemorySample(
            node=inp.node,
            at=at,
            ref=inp.ref("/proc/meminfo", quote),
            scope="host",
            total_bytes=total,
            available_bytes=available,
            oom_kills=oom,
            pressure_full_avg10=pressure,
        )
    )


def _number(text: str | None) -> float | None:
    try:
        return float(text.strip()) if text else None
    except ValueError:
        return None


def _thermal(shot: FileSet, inp: Input, at: TimeRange | None, sink: Sink, ref: Ref) -> None:
    for path, text in shot.files.items():
        if not path.startswith("/sys/"):
            continue
        if zone := _ZONE.match(path):
            base, kind = zone[1], shot.files.get(zone[1] + "/type", "?").strip()
            trips: dict[str, float] = {}
            for n in range(16):
                trip, at_mc = shot.files.get(f"{base}/trip_point_{n}_type"), _number(shot.files.get(f"{base}/trip_point_{n}_temp"))
                # firmware writes 0 or nonsense below zero for trips that it does not use
                if trip and at_mc and at_mc > 0:
                    trips[trip.strip()] = min(at_mc / 1000, trips.get(trip.strip(), 1e9))
            key = f"thermal_zone{zone[2]}"
        elif hwmon := _HWMON.match(path):
            base, sensor = hwmon[1], hwmon[2]
            label = shot.files.get(f"{base}/{sensor}_label", "").strip()
            kind = f"{shot.files.get(base + '/name', '?').strip()} {label or sensor}"
            trips = {n: v / 1000 for n in ("max", "crit") if (v := _number(shot.files.get(f"{base}/{sensor}_{n}"))) and v > 0}
            key = base.rsplit("/", 1)[1] + "/" + sensor
        elif throttle := _THROTTLE.match(path):
            if (count := _number(text)) is not None:
                sink.add(
                    ThrottleCount(
                        node=inp.node, at=at, ref=ref(path, f"{count:.0f} events"), key=f"{throttle[1]}/{throttle[2]}", count=int(count)
                    )
                )
            continue
        else:
            continue
        if (milli := _number(text)) is None:
            continue
        celsius = milli / 1000
        quote = f"{key} ({kind}) {celsius:.1f} C; trips {trips or 'none'}"
        sink.add(ThermalReading(node=inp.node, at=at, ref=ref(path, quote), key=key, kind=kind, celsius=celsius, trips_celsius=trips))


PARSER = Parser(
    "fileset",
    ("fileset",),
    lambda name, head: head.lstrip().startswith('{"at_ns"') and '"files"' in head,
    parse,
)
