"""`nvidia-smi --query-gpu=… --format=csv` and `--query-compute-apps=…` with any columns and units, and `nvidia-smi dmon`.

Names of the columns: `nvidia-smi --help-query-gpu` of drivers 470 to 595. "[N/A]", "[Not Supported]" and "[Unknown Error]" are no numbers.
"""

from __future__ import annotations

import re
from collections import Counter

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import Sheet, body, sheets, stamped
from forensics.analysis.parse._units import number, pci
from forensics.model import GpuFault, GpuProcess, GpuSample, TimeRange

_UNIT = re.compile(r"\s*\[([^\]]{1,10})\]\s*$")
ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci",
    "pci.bus_id": "pci",
    "utilization.gpu": "utilization",
    "clocks.sm": "sm",
    "clocks.current.sm": "sm",
    "clocks.max.sm": "sm_max",
    "power.draw": "power",
    "power.draw.instant": "power",
    "power.draw.average": "power",
    "power.limit": "limit",
    "enforced.power.limit": "limit",
    "temperature.gpu": "temperature",
    "memory.used": "used",
    "memory.total": "total",
    "used_gpu_memory": "used",
    "used_memory": "used",
    "process_name": "process",
    "clocks_event_reasons.active": "reasons",
    "clocks_throttle_reasons.active": "reasons",
}
REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}
_KNOWN = re.compile(
    r"(?:timestamp|index|count|name|gpu_name|uuid|gpu_uuid|serial|gpu_serial|pid|pstate|process_name|driver_version|vbios_version|minor_number"
    r"|(?:utilization|memory|power|temperature|clocks|clocks_event_reasons|clocks_throttle_reasons|pci|pcie|ecc|fan|enforced|compute|used_gpu_memory"
    r"|used_memory|gpu_bus_id|persistence_mode|display|retired_pages|remapped_rows|mig|encoder|fabric|clocks_event_reasons_counters|gpu_recovery_action)\b.*)"
)
_FACTOR = {"kib": 1024, "mib": 1 << 20, "gib": 1 << 30, "mb": 1 << 20, "b": 1, "w": 1, "mw": 0.001}
FAULTS = re.compile(
    r"Unable to determine the device handle|No devices were found|NVIDIA-SMI has failed|Failed to initialize NVML|"
    r"GPU is lost|GPU requires reset|"
    r"couldn't communicate with the NVIDIA driver|Unable to query|Insufficient (?:Permissions|external power)"
)
_FAULT_GPU = re.compile(r"\bGPU ?(\d{1,3})\b(?!:\d)|\bGPU (?=[0-9A-Fa-f]{4,8}:)")
_BUS = re.compile(r"\b(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\b")


def fault(line: str, number_: int, inp: Input, sheet: Input) -> GpuFault | None:
    """A GPU, or the driver, that could not be asked. None for other lines."""
    if not FAULTS.search(line):
        return None
    gpu, bus = _FAULT_GPU.search(line), _BUS.search(line)
    return GpuFault(
        node=sheet.node,
        at=sheet.at,
        ref=inp.ref(f"line {number_}", line),
        index=int(gpu[1]) if gpu and gpu[1] else None,
        pci=pci(bus[0]) if bus else "",
        text=plain(line.strip(), 300),
    )


def parse(inp: Input, sink: Sink) -> None:
    columns: list[tuple[str, str]] = []
    for sheet in sheets(inp):
        columns = _sheet(inp, sheet, sink, columns)


def _columns(line: str) -> list[tuple[str, str]]:
    """(name, unit) of each column; [] where the line is no heading of such a table."""
    found = []
    for cell in line.split(","):
        unit = _UNIT.search(cell)
        name = (cell[: unit.start()] if unit else cell).strip().lower()
        found.append((name, unit[1].lower() if unit else ""))
    known = all(_KNOWN.fullmatch(name) for name, _ in found)
    # "name" and "count" are headings of anything: one word that only nvidia-smi uses must be among them
    return (
        found
        if known
        and any("." in name or name.startswith(("gpu_", "used_", "utilization")) or (name == "pid" and len(found) > 1) for name, _ in found)
        else []
    )


def _sheet(inp: Input, sheet: Sheet, sink: Sink, columns: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Reads one sheet under the columns known so far: those of a heading above an earlier sheet still hold."""
    dmon: list[str] = []
    rows: Counter[object] = Counter()
    for number_, line in sheet.lines():
        if not line.strip():
            continue
        if found := fault(line, number_, inp, sheet.inp):
            sink.add(found)
        elif line.startswith("#") and " gpu " in f" {line[1:]} ".lower():
            dmon = line[1:].lower().split()
        elif line.startswith("#"):
            continue
        elif dmon:
            _monitored(inp, sheet.inp, sink, dmon, line, number_)
        elif found_columns := _columns(line):
            columns = found_columns
        elif columns:
            _row(inp, sheet.inp, sink, columns, line, number_, rows)
    return columns


def _row(inp: Input, at_sheet: Input, sink: Sink, columns: list[tuple[str, str]], line: str, number_: int, rows: Counter[object]) -> None:
    cells = [cell.strip() for cell in line.split(",")]
    names = [name for name, _ in columns]
    if len(cells) > len(columns) and "process_name" in names:  # a command line may hold commas
        where = names.index("process_name")
        extra = len(cells) - len(columns)
        cells[where : where + extra + 1] = [", ".join(cells[where : where + extra + 1])]
    if len(cells) != len(columns):
        return
    row, factor, bits = _values(columns, cells)
    at = at_sheet.at
    if stamp := row.get("timestamp"):
        at = stamped(stamp, at_sheet) or at
    bus = pci(row.get("pci", ""))
    index = row.get("index", "")
    used = _scaled(row, "used", factor)
    ref = inp.ref(f"line {number_}", line)
    if "pid" in row:
        if row["pid"].isdigit():
            sink.add(
                GpuProcess(
                    node=at_sheet.node,
                    at=at,
                    ref=ref,
                    pid=int(row["pid"]),
                    index=int(index) if index.isdigit() else None,
                    pci=bus,
                    uuid=plain(row.get("uuid", "")),
                    name=plain(row.get("process", row.get("name", ""))),
                    used_bytes=None if used is None else round(used),
                )
            )
        return
    # without an index the rows of one moment count the GPUs
    moment = (at.earliest_ns, at.latest_ns) if at else None
    order = rows[moment]
    rows[moment] += 1
    if (reasons := row.get("reasons", "")).lower().startswith("0x"):
        try:
            bits = int(reasons, 16)
        except ValueError:
            pass
    total = _scaled(row, "total", factor)
    if "[gpu is lost]" in line.lower() or "[unknown error]" in line.lower() or "[gpu requires reset]" in line.lower():
        sink.add(
            GpuFault(
                node=at_sheet.node, at=at, ref=ref, index=int(index) if index.isdigit() else None, pci=bus, text=plain(line.strip(), 300)
            )
        )
    sink.add(
        GpuSample(
            node=at_sheet.node,
            at=at,
            ref=ref,
            index=int(index) if index.isdigit() else order,
            uuid=plain(row.get("uuid", "")),
            name=plain(row.get("name", "")),
            utilization_percent=number(row.get("utilization", "")),
            power_watts=_scaled(row, "power", factor),
            power_limit_watts=_scaled(row, "limit", factor),
            temperature_celsius=number(row.get("temperature", "")),
            memory_used_bytes=None if used is None else round(used),
            memory_total_bytes=None if total is None else round(total),
            sm_clock_mhz=number(row.get("sm", "")),
            sm_clock_max_mhz=number(row.get("sm_max", "")),
            throttle_bits=bits,
            pci=bus,
        )
    )


def _values(columns: list[tuple[str, str]], cells: list[str]) -> tuple[dict[str, str], dict[str, float], int | None]:
    """(cell of each column by our name for it, what its number is multiplied with, bits of the reasons for lower clocks)"""
    row: dict[str, str] = {}
    factor: dict[str, float] = {}
    bits: int | None = None
    for (name, unit), cell in zip(columns, cells, strict=True):
        reason = name.rpartition(".")[2]
        if name.startswith(("clocks_event_reasons.", "clocks_throttle_reasons.")) and reason in REASONS:
            if cell.lower() in ("active", "not active"):
                bits = (bits or 0) | (REASONS[reason] if cell.lower() == "active" else 0)
            continue
        key = ALIASES.get(name, name)
        if key in row and number(row[key]) is not None:
            continue
        row[key] = cell
        given = cell.rpartition(" ")[2].lower()
        factor[key] = _FACTOR.get(given) or _FACTOR.get(unit) or (1 << 20 if key in ("used", "total") else 1)
    return row, factor, bits


def _scaled(row: dict[str, str], key: str, factor: dict[str, float]) -> float | None:
    value = number(row.get(key, ""))
    return None if value is None else value * factor[key]


def _monitored(inp: Input, at_sheet: Input, sink: Sink, columns: list[str], line: str, number_: int) -> None:
    cells = line.split()
    if len(cells) != len(columns):
        return
    row = dict(zip(columns, cells, strict=True))
    if not row.get("gpu", "").isdigit():
        return
    at: TimeRange | None = at_sheet.at
    day = row.get("date", "")
    if len(day) == 8 and day.isdigit() and "time" in row:
        at = at_sheet.calendar.parse(f"{day[:4]}-{day[4:6]}-{day[6:]} {row['time']}") or at
    used = number(row.get("fb", ""))
    ref = inp.ref(f"line {number_}", line)
    if "pid" in row:
        if row["pid"].isdigit():
            sink.add(
                GpuProcess(
                    node=at_sheet.node,
                    at=at,
                    ref=ref,
                    pid=int(row["pid"]),
                    index=int(row["gpu"]),
                    name=plain(row.get("command", row.get("name", ""))),
                    used_bytes=None if used is None else round(used * (1 << 20)),
                )
            )
        return
    sink.add(
        GpuSample(
            node=at_sheet.node,
            at=at,
            ref=ref,
            index=int(row["gpu"]),
            utilization_percent=number(row.get("sm", "")),
            power_watts=number(row.get("pwr", "")),
            temperature_celsius=number(row.get("gtemp", row.get("temp", ""))),
            memory_used_bytes=None if used is None else round(used * (1 << 20)),
            sm_clock_mhz=number(row.get("pclk", "")),
        )
    )


_DMON = re.compile(r"^# ?(?:Date +Time +)?(?:Time +)?gpu +(?:pwr|pid|sm|gtemp|fb|mclk)\b", re.I)


def recognise(name: str, head: str) -> bool:
    if any(_DMON.match(line) for line in head.split("\n")[:5]):
        return True
    lines = body(head, 8)
    return any("," in line and _columns(line) for line in lines) or bool(
        lines and not lines[1:] and "," not in lines[0] and _columns(lines[0])
    )


PARSER = Parser("nvidia-smi csv", ("gpu-csv",), recognise, parse)
