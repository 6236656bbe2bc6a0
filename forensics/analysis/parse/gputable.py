"""`nvidia-smi` as people run it: the table with its processes, the long form of `-q`, and what it says when it cannot ask a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import Sheet, body, ctime, sheets
from forensics.analysis.parse._units import number, pci, size
from forensics.analysis.parse.gpucsv import FAULTS, REASONS, fault
from forensics.model import GpuFault, GpuProcess, GpuSample, TimeRange

_BANNER = re.compile(r"^\| NVIDIA-SMI +\S+ ")
_LOG = re.compile(r"^=+ ?NVSMI LOG ?=+\s*$")
# of rows in which every run of blanks is one: a line of blanks alone would otherwise be divided in very many ways
_GPU = re.compile(
    r"^\| (\d{1,3}) (\S.*?) (?:(?:On|Off|N/A|ERR!|Disabled|Enabled) ?)?\| ?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]) "
)
_STATE = re.compile(r"^\| ?(?:\S+) (\S+) (?:P\d{1,2}|ERR!|N/A|Unknown\S*) (\S+) ?/ ?(\S+) ?\|([^|]*)\|([^|]*)\|")
_PROCESS = re.compile(r"^\| (\d{1,3}) (?:\S+ \S+ )?(\d{1,9}) (?:[CGM+]{1,5}) (?:(.*?) )??(\d+[KMG]iB|N/A|) ?\|$")
_BLANKS = re.compile(r"\s+")
_SECTION = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_PAIR = re.compile(r"^( *)(\S.{0,80}?) *: *(.*)$")


def parse(inp: Input, sink: Sink) -> None:
    for sheet in sheets(inp):
        at = sheet.inp.at
        first = sheet.text[:4096]
        (_long if any(_LOG.match(line) for line in first.split("\n")) else _table)(inp, sheet, sink, at)


def _table(inp: Input, sheet: Sheet, sink: Sink, at: TimeRange | None) -> None:
    pending: tuple[int, str, str, int] | None = None
    for number_, line in sheet.lines():
        if found := fault(line, number_, inp, sheet.inp):
            sink.add(found)
            continue
        row_text = _BLANKS.sub(" ", line.rstrip())
        if m := _GPU.match(row_text):
            pending = (int(m[1]), plain(m[2]), pci(m[3]), number_)
        elif pending and (m := _STATE.match(row_text)):
            index, name, bus, row = pending
            pending = None
            used, _, total = m[4].partition("/")
            busy = re.match(r"\s*(\d{1,3})%", m[5])
            ref = inp.ref(f"lines {row}-{number_}", line)
            if "ERR!" in line:
                sink.add(GpuFault(node=sheet.inp.node, at=at, ref=ref, index=index, pci=bus, text=plain(" ".join(line.split()), 300)))
            sink.add(
                GpuSample(
                    node=sheet.inp.node,
                    at=at,
                    ref=ref,
                    index=index,
                    name=name,
                    utilization_percent=float(busy[1]) if busy else None,
                    power_watts=number(m[2]),
                    power_limit_watts=number(m[3]),
                    temperature_celsius=number(m[1]),
                    memory_used_bytes=size(used) if "B" in used else None,
                    memory_total_bytes=size(total) if "B" in total else None,
                    pci=bus,
                )
            )
        elif m := _PROCESS.match(row_text):
            sink.add(
                GpuProcess(
                    node=sheet.inp.node,
                    at=at,
                    ref=inp.ref(f"line {number_}", line),
                    pid=int(m[2]),
                    index=int(m[1]),
                    name=plain(m[3] or ""),
                    used_bytes=size(m[4]) if m[4] and m[4] != "N/A" else None,
                )
            )


def _long(inp: Input, sheet: Sheet, sink: Sink, at: TimeRange | None) -> None:
    """Pairs by their path of headings: "Utilization/Gpu"; one GpuSample for each section that begins with "GPU <bus id>"."""
    index = -1
    bus, began = "", 0
    values: dict[str, str] = {}
    pids: list[tuple[int, str, str, int]] = []

    def finish() -> None:
        if index < 0:
            return
        sink.add(_sample(inp, sheet.inp, at, index, bus, began, values, tuple(p for p, *_ in pids)))
        for pid, name, used, line in pids:
            sink.add(
                GpuProcess(
                    node=sheet.inp.node,
                    at=at,
                    ref=inp.ref(f"line {line}", f"Process ID : {pid}"),
                    pid=pid,
                    index=index,
                    pci=bus,
                    uuid=plain(values.get("GPU UUID", "")),
                    name=plain(name),
                    used_bytes=size(used) if used.endswith("iB") else None,
                )
            )

    for number_, path, value in _pairs(sheet):
        if m := _SECTION.match(path):
            finish()
            index, bus, began, values, pids = index + 1, pci(m[1]), number_, {}, []
        elif path == "Timestamp":
            at = ctime(value, sheet.inp) or at
        elif path.endswith("Process ID") and value.isdigit():
            pids.append((int(value[:9]), "", "", number_))
        elif pids and path.endswith("Process ID/Name"):
            pids[-1] = (pids[-1][0], value, pids[-1][2], pids[-1][3])
        elif pids and path.endswith("/Used GPU Memory"):
            pids[-1] = (pids[-1][0], pids[-1][1], value, pids[-1][3])
        elif value:
            values.setdefault(path, value)
    finish()
    for number_, line in sheet.lines():
        if found := fault(line, number_, inp, sheet.inp):
            sink.add(found)


def _pairs(sheet: Sheet) -> Iterator[tuple[int, str, str]]:
    stack: list[tuple[int, str]] = []
    for number_, line in sheet.lines():
        if not line.strip():
            continue
        if _SECTION.match(line):
            stack = []
            yield number_, line.strip(), ""
            continue
        m = _PAIR.match(line)
        indent = len(line) - len(line.lstrip())
        while stack and stack[-1][0] >= indent:
            stack.pop()
        name = (m[2] if m else line).strip()
        if m and (m[3] or line.rstrip().endswith(":")):
            yield number_, "/".join([n for _, n in stack if n] + [name]), m[3].strip()
        if len(stack) < 12:
            stack.append((indent, name))


def _sample(
    inp: Input, at_sheet: Input, at: TimeRange | None, index: int, bus: str, line: int, values: dict[str, str], pids: tuple[int, ...]
) -> GpuSample:
    def first(*paths: str) -> str:
        found = (values[p] for p in paths if p in values)
        return next((v for v in found if number(v) is not None), "")

    bits: int | None = None
    for path, value in values.items():
        where, _, name = path.rpartition("/")
        if ("Event Reasons" in where or "Throttle Reasons" in where) and value in ("Active", "Not Active"):
            reason = name.lower().replace("hw ", "hw_").replace("sw ", "sw_").replace(" ", "_")
            reason = {"idle": "gpu_idle"}.get(reason, reason)
            bits = (bits or 0) | (REASONS.get(reason, 0) if value == "Active" else 0)
    power, limit = (
        ("GPU Power Readings", "Power Readings", "Module Power Readings"),
        ("Current Power Limit", "Power Limit", "Enforced Power Limit"),
    )
    draw = ("Power Draw", "Instantaneous Power Draw", "Average Power Draw")
    used, total = first("FB Memory Usage/Used"), first("FB Memory Usage/Total")
    utilization, temperature = first("Utilization/Gpu", "Utilization/GPU"), first("Temperature/GPU Current Temp")
    watts = first(*(f"{p}/{d}" for p in power for d in draw))
    return GpuSample(
        node=at_sheet.node,
        at=at,
        ref=inp.ref(f"line {line}", f"GPU {bus}: {utilization or '?'}, {watts or '?'}, {temperature or '?'}"),
        index=index,
        uuid=plain(values.get("GPU UUID", "")),
        name=plain(values.get("Product Name", "")),
        utilization_percent=number(utilization),
        power_watts=number(watts),
        power_limit_watts=number(first(*(f"{p}/{name}" for p in power for name in limit))),
        temperature_celsius=number(temperature),
        memory_used_bytes=size(used) if used else None,
        memory_total_bytes=size(total) if total else None,
        sm_clock_mhz=number(first("Clocks/SM")),
        sm_clock_max_mhz=number(first("Max Clocks/SM")),
        throttle_bits=bits,
        pci=bus,
        pids=pids,
    )


def recognise(name: str, head: str) -> bool:
    lines = body(head, 80)
    if any(_BANNER.match(line) or _LOG.match(line) for line in lines):
        return True
    # a refusal stands alone: the same words inside a log are the log's
    return 0 < len(lines) <= 20 and bool(FAULTS.search(lines[0])) and not re.match(r"[\[(]|\d{2,4}-\d\d|[A-Z][a-z]{2} +\d", lines[0])


PARSER = Parser("nvidia-smi", ("gpu-table",), recognise, parse)
