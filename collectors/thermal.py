"""How hot the machine is and what it may bear: thermal zones, hwmon chips, throttle counters, CPU clocks, and which machine it is.

One fileset `thermal/zones.N.json`, keyed by path: a GB10 has seven zones that all call themselves "acpitz".
Formats: Documentation/driver-api/thermal/sysfs-api.rst, hwmon/sysfs-interface.rst, arch/x86/kernel/cpu/mce/therm_throt.c.
"""

from __future__ import annotations

import re
import threading

from collectors._contract import Emitter, FileSet, Request

SENSOR_S = 1.0
"""Patience with one zone or chip. A NIC or drive whose firmware has died blocks the read of its sensor for a minute, in
uninterruptible sleep, and must not take the other zones with it."""
SAMPLES = 2
"""Temperatures move slowly; two samples give the direction."""
MACHINE = ("product_name", "board_name", "sys_vendor")

ZONES, HWMON, CPUS = "/sys/class/thermal", "/sys/class/hwmon", "/sys/devices/system/cpu"
ZONE_FILE = re.compile(r"type|temp|mode|policy|trip_point_\d+_(type|temp|hyst)")
COOLER_FILE = re.compile(r"type|cur_state|max_state")
CHIP_FILE = re.compile(r"name|temp\d+_(input|label|max|crit)|power\d+_(input|average|cap|label)|fan\d+_input")
THROTTLE_FILE = re.compile(r"\w+_(count|max_time_ms)")
CLOCK_FILE = re.compile(r"scaling_cur_freq|scaling_max_freq|cpuinfo_max_freq")
TEMPERATURE = re.compile(r"/(temp|temp\d+_input)$")


def collect(request: Request, emit: Emitter) -> None:
    last = request.first_sample + min(request.samples, SAMPLES) - 1
    for sample in request.sampling():
        with emit.attempt("thermal zones", sample=sample) as attempt:
            found = read_sensors(request.sysroot)
            attempt.end(*outcome(found))
            if found.files:
                attempt.evidence.append(
                    emit.evidence(f"thermal/zones.{sample}.json", "fileset", found.json(), sample=sample, source="/sys", at_ns=found.at_ns)
                )
        if sample == last:
            return


def read_sensors(sysroot: str) -> FileSet:
    """Everything once. A sensor that fails (EIO, ENODATA, EAGAIN while its zone is off) or hangs (ETIMEDOUT) stands in errors."""
    found = FileSet(sysroot)
    for name in found.names(ZONES):
        if name.startswith("thermal_zone"):
            read_patiently(found, f"{ZONES}/{name}", ZONE_FILE)
        elif name.startswith("cooling_device"):
            read_patiently(found, f"{ZONES}/{name}", COOLER_FILE)
    for name in found.names(HWMON):
        read_patiently(found, f"{HWMON}/{name}", CHIP_FILE)
    for name in found.names(CPUS):
        if re.fullmatch(r"cpu\d+", name):
            inside = found.names(f"{CPUS}/{name}")
            for folder, wanted in (("thermal_throttle", THROTTLE_FILE), ("cpufreq", CLOCK_FILE)):
                if folder in inside:
                    read_folder(found, f"{CPUS}/{name}/{folder}", wanted)
    for name in MACHINE:
        found.read(f"/sys/class/dmi/id/{name}", 4096)
    return found


def read_folder(found: FileSet, folder: str, wanted: re.Pattern[str]) -> None:
    for name in found.names(folder):
        if wanted.fullmatch(name):
            found.read(f"{folder}/{name}", 4096)


def read_patiently(found: FileSet, folder: str, wanted: re.Pattern[str]) -> None:
    """Read one sensor's folder in a thread, so that a hanging one is left behind after `SENSOR_S`."""
    own = FileSet(found.sysroot)
    reader = threading.Thread(target=read_folder, args=(own, folder, wanted), daemon=True)
    reader.start()
    reader.join(SENSOR_S)
    # copies: a reader left behind may wake up and write while we send
    found.files.update(dict(own.files))
    found.errors.update(dict(own.errors))
    if reader.is_alive():
        found.errors[folder] = "ETIMEDOUT"


def outcome(found: FileSet) -> tuple[str, str, str]:
    """(outcome, reason, cure). A machine without any sensor is ABSENT even where its name or CPU clocks could be read."""
    silent = [f"{path} {name}" for path, name in found.errors.items() if name == "ETIMEDOUT" or TEMPERATURE.search(path)]
    if not silent and not any(TEMPERATURE.search(path) for path in found.files):
        return "ABSENT", "this machine shows no temperature sensor (usual for a virtual machine)", ""
    if silent:
        return "PARTIAL", "did not answer: " + ", ".join(silent[:4]), ""
    return found.outcome()
