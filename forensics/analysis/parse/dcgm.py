"""GPU readings in a scrape of NVIDIA's DCGM exporter (dcgm-exporter 3 and 4, default-counters.csv)."""

from __future__ import annotations

from forensics.analysis.parse._base import Input, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._units import pci
from forensics.engines.exposition import parse as samples
from forensics.model import GpuSample

FIELDS = {
    "DCGM_FI_DEV_GPU_UTIL": "utilization_percent",
    "DCGM_FI_DEV_POWER_USAGE": "power_watts",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": "power_limit_watts",
    "DCGM_FI_DEV_GPU_TEMP": "temperature_celsius",
    "DCGM_FI_DEV_SM_CLOCK": "sm_clock_mhz",
    "DCGM_FI_DEV_FB_USED": "memory_used_bytes",
    "DCGM_FI_DEV_FB_TOTAL": "memory_total_bytes",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "throttle_bits",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "throttle_bits",
}
MIB = ("memory_used_bytes", "memory_total_bytes")
BLANK = 1 << 46
"""DCGM writes numbers of this size and above where it has no value (DCGM_FP64_BLANK, 2^47)."""


def gpus(inp: Input, text: str, sink: Sink) -> bool:
    """Add a GpuSample for each GPU of a scrape; False where it holds none."""
    if "DCGM_FI_DEV_" not in text:
        return False
    found: dict[tuple[str, int], tuple[dict[str, str], dict[str, float]]] = {}
    for name, labels, value in samples(text, tuple(FIELDS)):
        index = labels.get("gpu", "")
        if name not in FIELDS or not (index.isascii() and index.isdigit() and len(index) < 5) or value >= BLANK or value < 0:
            continue
        _, values = found.setdefault((labels.get("Hostname", ""), int(index)), (labels, {}))
        values[FIELDS[name]] = value * (1 << 20) if FIELDS[name] in MIB else value
    for (host, number), (labels, values) in found.items():
        quote = ", ".join(f"{field} {value:g}" for field, value in values.items())
        whole = {field: round(value) for field, value in values.items() if field in MIB or field == "throttle_bits"}
        sink.add(
            GpuSample(
                # the exporter's own name of the host is that of its pod, more often than not: the file's stands
                node=inp.node,
                at=inp.at,
                ref=inp.ref(f"gpu {number}" + (f" of {plain(host)}" if host else ""), quote),
                index=number,
                uuid=plain(labels.get("UUID", "")),
                name=plain(labels.get("modelName", "")),
                pci=pci(labels.get("pci_bus_id", "")),
                utilization_percent=values.get("utilization_percent"),
                power_watts=values.get("power_watts"),
                power_limit_watts=values.get("power_limit_watts"),
                temperature_celsius=values.get("temperature_celsius"),
                sm_clock_mhz=values.get("sm_clock_mhz"),
                memory_used_bytes=whole.get("memory_used_bytes"),
                memory_total_bytes=whole.get("memory_total_bytes"),
                throttle_bits=whole.get("throttle_bits"),
            )
        )
    return bool(found)
