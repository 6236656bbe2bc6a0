"""A stand-in for NVML where there is no GPU. It is no recording: names, types and errors are those of the real `pynvml`, whose
constants and exceptions it uses; the figures are those that people reported of these machines.

`machine(...)` makes a module object that a test puts in place of `pynvml`. As a script it is run instead of a collector child:
`python -I fake_nvml.py SCENARIO < request`.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml

NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
H100: dict[str, Any] = {
    "nvmlDeviceGetUUID": "GPU-11111111-2222-3333-4444-555555555555",
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId="00000000:9B:00.0"),
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=100, memory=3),
    "nvmlDeviceGetPowerUsage": 118_000,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetTemperature": 41,
    "nvmlDeviceGetCurrentClocksEventReasons": 0,
    "nvmlDeviceGetPerformanceState": 0,
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=85_520_809_984, used=77_000_000_000, free=8_520_809_984),
    "nvmlDeviceGetClockInfo": {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_GRAPHICS: 1980, pynvml.NVML_CLOCK_MEM: 2619},
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=4243, usedGpuMemory=76_000_000_000)],
    "nvmlDeviceGetTemperatureThreshold": 87,
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
}
GB10: dict[str, Any] = {
    **H100,
    "nvmlDeviceGetUUID": "GPU-99999999-2222-3333-4444-555555555555",
    "nvmlDeviceGetName": "NVIDIA GB10",
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId="0000000F:01:00.0"),
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=96, memory=0),
    "nvmlDeviceGetPowerUsage": 13_400,
    "nvmlDeviceGetEnforcedPowerLimit": NOT_SUPPORTED,
    "nvmlDeviceGetMemoryInfo": NOT_SUPPORTED,
    "nvmlDeviceGetClockInfo": {pynvml.NVML_CLOCK_SM: 513, pynvml.NVML_CLOCK_GRAPHICS: 513, pynvml.NVML_CLOCK_MEM: NOT_SUPPORTED},
    "nvmlDeviceGetMaxClockInfo": 3003,
    "nvmlDeviceGetTotalEccErrors": NOT_SUPPORTED,
    "nvmlDeviceGetRemappedRows": NOT_SUPPORTED,
}
LOST = dict.fromkeys(H100, pynvml.NVML_ERROR_GPU_IS_LOST)
HANGS = {**H100, "nvmlDeviceGetPowerUsage": "hang"}


def machine(*gpus: dict[str, Any], start: int = 0) -> ModuleType:
    """A module like pynvml with these GPUs. An int where the real function gives an object or text is an NVML error code."""
    module = ModuleType("pynvml")
    vars(module).update({k: v for k, v in vars(pynvml).items() if k.startswith("NVML")})

    def device(name: str) -> Any:
        def call(index: int, *arguments: Any) -> Any:
            answer = gpus[index][name]
            if answer == "hang":
                threading.Event().wait()
            if isinstance(answer, dict):
                answer = answer[arguments[0]]
            if answer in (NOT_SUPPORTED, pynvml.NVML_ERROR_GPU_IS_LOST):
                raise pynvml.NVMLError(answer)
            return answer

        return call

    def init() -> None:
        if start == -1:
            threading.Event().wait()
        if start:
            raise pynvml.NVMLError(start)

    for name in H100:
        setattr(module, name, device(name))
    vars(module).update(
        nvmlInit=init,
        nvmlDeviceGetCount=lambda: len(gpus),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlSystemGetDriverVersion=lambda: "580.95.05",
        nvmlSystemGetCudaDriverVersion=lambda: 13000,
    )
    return module


if __name__ == "__main__":
    from collectors.__main__ import main

    scenarios = {
        "hang": lambda: machine(H100, HANGS, H100),
        "hang-at-start": lambda: machine(start=-1),
    }
    sys.modules["pynvml"] = scenarios[sys.argv[1]]()
    sys.exit(main(["gpu"]))
