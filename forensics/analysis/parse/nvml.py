"""GPU readings that the gpu collector took through NVML."""

from __future__ import annotations

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.model import GpuSample


class _Process(msgspec.Struct):
    pid: int = 0


class _Clocks(msgspec.Struct):
    sm: float | None = None
    sm_max: float | None = None


class _Gpu(msgspec.Struct):
    index: int = 0
    uuid: str = ""
    name: str = ""
    utilization_percent: float | None = None
    power_mw: float | None = None
    power_limit_mw: float | None = None
    temperature_c: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    throttle_bits: int | None = None
    clocks_mhz: _Clocks = msgspec.field(default_factory=_Clocks)
    processes: list[_Process] = []


def parse(inp: Input, sink: Sink) -> None:
    gpu = msgspec.json.decode(bytes(inp.data), type=_Gpu, strict=False)
    quote = f"{gpu.name} {gpu.utilization_percent} % {(gpu.power_mw or 0) / 1000:.0f} W {gpu.temperature_c} C"
    sink.add(
        GpuSample(
            node=inp.node,
            at=inp.at,
            ref=inp.ref(f"gpu {gpu.index}", quote),
            index=gpu.index,
            uuid=gpu.uuid,
            name=gpu.name,
            utilization_percent=gpu.utilization_percent,
            power_watts=gpu.power_mw / 1000 if gpu.power_mw is not None else None,
            power_limit_watts=gpu.power_limit_mw / 1000 if gpu.power_limit_mw is not None else None,
            temperature_celsius=gpu.temperature_c,
            memory_used_bytes=gpu.memory_used_bytes,
            memory_total_bytes=gpu.memory_total_bytes,
            sm_clock_mhz=gpu.clocks_mhz.sm,
            sm_clock_max_mhz=gpu.clocks_mhz.sm_max,
            throttle_bits=gpu.throttle_bits,
            pids=tuple(p.pid for p in gpu.processes),
        )
    )


PARSER = Parser("nvml", ("nvml",), lambda name, head: False, parse)
