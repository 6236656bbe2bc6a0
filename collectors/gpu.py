"""What NVML says of every GPU: `gpu/INDEX.json`, one reading each, delivered as it comes.

NVML may hang for minutes in uninterruptible sleep when a GPU's firmware has died, so every GPU is asked in a thread of its
own: the others still answer, and the silence of one is recorded (TIMEOUT) with where its thread sleeps in the kernel.
A field that this GPU does not offer stands in `errors` with NVML's name for it: a GB10 answers NOT_SUPPORTED to memory,
power limit and memory clock, because it shares the host's memory.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from collectors._contract import Emitter, Request, read_bounded

ANSWER_S = 6.0
"""Patience with NVML as a whole, twice: for its start (seconds without persistence mode) and for all GPUs together."""

DRIVER = "/proc/driver/nvidia/version"
OUTCOMES = {
    "LIBRARY_NOT_FOUND": ("ABSENT", "libnvidia-ml.so.1 is not installed", ""),
    "DRIVER_NOT_LOADED": ("ABSENT", "the NVIDIA driver is not loaded", ""),
    "NO_PERMISSION": ("DENIED", "no access to the GPU's device files", "run as root, or give the container its GPUs (docker: --gpus all)"),
    "TIMEOUT": ("TIMEOUT", "the driver gave up waiting for the GPU", ""),
    "GPU_IS_LOST": ("PARTIAL", "the GPU does not answer any more: GPU is lost", ""),
    "RESET_REQUIRED": ("PARTIAL", "the GPU requires a reset", ""),
    "LIB_RM_VERSION_MISMATCH": ("UNSUPPORTED", "library and kernel driver differ in version", "reload the driver, or reboot"),
    # in a container most often its device cgroup: a daemon-reload of systemd takes the GPUs away from containers
    "UNKNOWN": ("UNSUPPORTED", "NVML: unknown error", "try nvidia-smi on the host; in a container, restart it with its GPUs"),
}
"""By NVML's error name: (outcome, reason, cure). A name that is not here is UNSUPPORTED."""
NOT_OFFERED = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_DATA", "NOT_FOUND")
"""Errors of a field that make nothing wrong with its GPU: old library, other product."""

REMAPPED = ("corrected", "uncorrected", "pending", "failed")
Json = dict[str, Any]


def processes(nvml: Any, gpu: Any) -> list[Json]:
    """Compute processes. used_bytes is null where the driver does not tell; pids are those of NVML's own pid namespace."""
    return [{"pid": p.pid, "used_bytes": p.usedGpuMemory} for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)]


def ecc(nvml: Any, gpu: Any) -> Json:
    kinds = {"corrected": nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, "uncorrected": nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED}
    since = {"volatile": nvml.NVML_VOLATILE_ECC, "aggregate": nvml.NVML_AGGREGATE_ECC}
    return {f"{k}_{s}": nvml.nvmlDeviceGetTotalEccErrors(gpu, kinds[k], since[s]) for k in kinds for s in since}


def event_reasons(nvml: Any, gpu: Any) -> int:
    """Bits as in nvml.h, nvmlClocksEventReason*; called throttle reasons before driver 535."""
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu))
    except (AttributeError, nvml.NVMLError_FunctionNotFound):  # old binding, old library
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu))


FIELDS: Mapping[str, Callable[[Any, Any], Any]] = {
    # most telling first: a GPU that dies under our questions has then answered those
    "uuid": lambda n, g: n.nvmlDeviceGetUUID(g),
    "name": lambda n, g: n.nvmlDeviceGetName(g),
    "bus_id": lambda n, g: n.nvmlDeviceGetPciInfo(g).busId,
    "utilization_percent": lambda n, g: n.nvmlDeviceGetUtilizationRates(g).gpu,
    "power_mw": lambda n, g: n.nvmlDeviceGetPowerUsage(g),
    "power_limit_mw": lambda n, g: n.nvmlDeviceGetEnforcedPowerLimit(g),
    "temperature_c": lambda n, g: n.nvmlDeviceGetTemperature(g, n.NVML_TEMPERATURE_GPU),
    "throttle_bits": event_reasons,
    "pstate": lambda n, g: n.nvmlDeviceGetPerformanceState(g),
    "memory_used_bytes": lambda n, g: n.nvmlDeviceGetMemoryInfo(g).used,
    "memory_free_bytes": lambda n, g: n.nvmlDeviceGetMemoryInfo(g).free,
    "memory_total_bytes": lambda n, g: n.nvmlDeviceGetMemoryInfo(g).total,
    "clocks_mhz.sm": lambda n, g: n.nvmlDeviceGetClockInfo(g, n.NVML_CLOCK_SM),
    "clocks_mhz.sm_max": lambda n, g: n.nvmlDeviceGetMaxClockInfo(g, n.NVML_CLOCK_SM),
    "clocks_mhz.graphics": lambda n, g: n.nvmlDeviceGetClockInfo(g, n.NVML_CLOCK_GRAPHICS),
    "clocks_mhz.memory": lambda n, g: n.nvmlDeviceGetClockInfo(g, n.NVML_CLOCK_MEM),
    "processes": processes,
    "slowdown_temperature_c": lambda n, g: n.nvmlDeviceGetTemperatureThreshold(g, n.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    "ecc": ecc,
    "remapped_rows": lambda n, g: dict(zip(REMAPPED, n.nvmlDeviceGetRemappedRows(g), strict=False)),
    "driver_version": lambda n, _: n.nvmlSystemGetDriverVersion(),
    "cuda_version": lambda n, _: n.nvmlSystemGetCudaDriverVersion(),
}


def collect(request: Request, emit: Emitter) -> None:
    patience_s = float(request.options.get("answer_s", ANSWER_S))
    jobs: dict[str, Callable[[], Any]] = {}
    with emit.attempt("NVML") as attempt:
        if request.sysroot:
            attempt.end("ABSENT", "NVML speaks of this machine, not of a recorded tree")
            return
        try:
            import pynvml as nvml
        except ImportError as error:
            attempt.end(*unless_driver(f"pynvml cannot be imported ({error})", "pip install nvidia-ml-py"))
            return
        for _, answer in answers({"start": lambda: nvml.nvmlInit() or nvml.nvmlDeviceGetCount()}, patience_s):
            if isinstance(answer, Exception):
                attempt.end(*judge(nvml, answer))
                return
            jobs = {f"gpu {i}": partial(read_gpu, nvml, i) for i in range(answer)}
            if not jobs:
                attempt.end("EMPTY", "the driver is loaded and knows no GPU")
    for name, answer in answers(jobs, patience_s):
        with emit.attempt(name) as attempt:
            if isinstance(answer, Exception):
                attempt.end(*judge(nvml, answer))
                continue
            wrong = [error for error in answer["errors"].values() if error not in NOT_OFFERED]
            if wrong:
                attempt.end("PARTIAL", *OUTCOMES.get(wrong[0], ("", f"NVML: {wrong[0]}", ""))[1:])
            file, at_ns = f"gpu/{answer['index']}.json", answer["at_ns"]
            attempt.evidence.append(emit.evidence(file, "nvml", json.dumps(answer), source="NVML", at_ns=at_ns))


def read_gpu(nvml: Any, index: int) -> Json:
    """One reading: the fields of FIELDS ("clocks_mhz.sm" lands in {"clocks_mhz": {"sm": …}}), null where `errors` says why."""
    reading: Json = {"index": index, "at_ns": time.time_ns(), "errors": {}}
    try:
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {**reading, "errors": {"handle": error_name(nvml, error)}}
    for field, read in FIELDS.items():
        group, _, key = field.rpartition(".")
        place = reading.setdefault(group, {}) if group else reading
        place[key] = None
        try:
            place[key] = read(nvml, gpu)
        except nvml.NVMLError as error:
            reading["errors"][field] = error_name(nvml, error)
        except AttributeError:
            reading["errors"][field] = "FUNCTION_NOT_FOUND"  # this pynvml is older than the question
    return reading


def answers(jobs: Mapping[str, Callable[[], Any]], patience_s: float) -> Iterator[tuple[str, Any]]:
    """Run the jobs side by side and yield (name, result or exception) as they come; TimeoutError for those that never do."""
    done: queue.Queue[tuple[str, Any]] = queue.Queue()

    def run(name: str, job: Callable[[], Any]) -> None:
        try:
            done.put((name, job()))
        except Exception as error:
            done.put((name, error))

    threads = {name: threading.Thread(target=run, args=(name, job), daemon=True) for name, job in jobs.items()}
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + patience_s
    while threads:
        try:
            name, answer = done.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        del threads[name]
        yield name, answer
    for name, thread in threads.items():
        yield name, TimeoutError(f"NVML did not answer within {patience_s:g} s; its thread is {sleeping_in(thread.native_id)}")


def sleeping_in(tid: int | None) -> str:
    """State and wait channel of one of our own threads, for people: "in state D at rwsem_down_read_slowpath"."""
    try:
        raw, _ = read_bounded(f"/proc/self/task/{tid}/stat", 4096)
        wchan, _ = read_bounded(f"/proc/self/task/{tid}/wchan", 4096)
    except OSError:
        return "in an unknown state"
    return f"in state {raw[raw.rindex(b')') + 2 :].split()[0].decode()} at {wchan.decode('utf-8', 'replace')}"


def error_name(nvml: Any, error: Exception) -> str:
    names = {v: k.removeprefix("NVML_ERROR_") for k, v in vars(nvml).items() if k.startswith("NVML_ERROR_")}
    return str(names.get(getattr(error, "value", None), error))


def judge(nvml: Any, error: Exception) -> tuple[str, str, str]:
    if isinstance(error, TimeoutError):
        return "TIMEOUT", str(error), "look into the kernel log: a GPU that hangs NVML usually shows there (Xid)"
    if not isinstance(error, nvml.NVMLError):
        return "FAILED", f"{type(error).__name__}: {error}", "please report this defect of the collector"
    name = error_name(nvml, error)
    if name == "LIBRARY_NOT_FOUND":
        return unless_driver(OUTCOMES[name][1], "install libnvidia-ml here, or mount it")
    return OUTCOMES.get(name, ("UNSUPPORTED", f"NVML: {name}", ""))


def unless_driver(reason: str, cure: str) -> tuple[str, str, str]:
    """ABSENT, except where the driver itself is loaded: there "no GPU here" would be wrong."""
    if os.path.exists(DRIVER):
        return "UNSUPPORTED", f"{reason}, yet {DRIVER} exists", cure
    return "ABSENT", reason, ""
