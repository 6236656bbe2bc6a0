"""Which clocks this node and its engines write their times with, and how far they may be trusted.

`clock/clock.json` (kind clock):
{"wall_ns", "monotonic_ns", "boottime_ns", "read_within_ns": all three at one moment, give or take this,
 "utc_offset_s", "zone", "tz_env", "boot_id", "uptime_s", "btime_s",
 "adjtimex": {"state", "synchronised", "offset_us", "maxerror_us", "esterror_us", "status", "tai_s"} | null,
 "chronyc", "timedatectl": their raw text | null,
 "targets": [{"pid", "tz_env", "localtime", "utc_offset_s"}]: the zone that an engine in a container writes its log in,
 "errors": {what: why}}
`clock/files.json` is the fileset behind it. Of a recorded tree only what its files say is given.
"""

from __future__ import annotations

import ctypes
import datetime
import errno
import json
import os
import time
import zoneinfo
from typing import Any

from collectors._commands import run_bounded
from collectors._contract import Emitter, FileSet, Request, Target, read_bounded, resolve_in_root

FILES = ("/proc/uptime", "/proc/sys/kernel/random/boot_id", "/etc/timezone")
CLOCKSOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
COMMANDS = {"chronyc": ("chronyc", "-n", "-c", "tracking"), "timedatectl": ("timedatectl", "show")}  # -n: no look-up of names
COMMAND_S = 1.0
TIME_ERROR, STA_UNSYNC, STA_NANO = 5, 0x0040, 0x2000  # linux/timex.h
STATES = ("ok", "insert leap second", "delete leap second", "leap second", "after leap second", "error")


class Timex(ctypes.Structure):
    """struct timex of linux/timex.h on 64 bit."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("constant", "precision", "tolerance", "sec", "usec", "tick", "ppsfreq", "jitter")),
        ("shift", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("stabil", "jitcnt", "calcnt", "errcnt", "stbcnt")),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    ]


def collect(request: Request, emit: Emitter) -> None:
    with emit.attempt("clock") as attempt:
        live = not request.sysroot
        found = FileSet(request.sysroot)
        for path in FILES:
            found.read(path)
        found.read(CLOCKSOURCE)
        localtime = found.link("/etc/localtime")
        errors: dict[str, str] = {}
        clock: dict[str, Any] = {
            **(read_clocks() if live else {"wall_ns": None, "monotonic_ns": None, "boottime_ns": None}),
            "utc_offset_s": time.localtime().tm_gmtoff if live else offset_of(request.sysroot, "/etc/localtime", None),
            "zone": (localtime or "").partition("zoneinfo/")[2] or found.files.get("/etc/timezone", "").strip(),
            "tz_env": os.environ.get("TZ") if live else None,
            "boot_id": found.files.get("/proc/sys/kernel/random/boot_id", "").strip(),
            "uptime_s": number(found.files.get("/proc/uptime", "").split(" ")[0]),
            "btime_s": read_btime(request.sysroot),
            "adjtimex": read_adjtimex(errors) if live else None,
            **{name: command_output(name, errors) if live else None for name in COMMANDS},
            "targets": [zone_of(target, request.sysroot, errors) for target in request.targets],
            "errors": errors,
        }
        if not live and not found.files and not found.links:
            attempt.end("ABSENT", "no clock files in this tree")
            return
        late = [why for why in errors.values() if why.startswith("TIMEOUT")]
        denied = [what for what, why in errors.items() if why == "EACCES" and what.startswith("pid ")]
        if late or denied:
            cure = "run as root to read the zone of other users' processes" if denied else ""
            attempt.end("PARTIAL", "; ".join([*late, *(f"zone of {what} not permitted" for what in denied[:4])]), cure)
        attempt.evidence.append(emit.evidence("clock/clock.json", "clock", json.dumps(clock), source="clock", at_ns=found.at_ns))
        attempt.evidence.append(emit.evidence("clock/files.json", "fileset", found.json(), source="/proc", at_ns=found.at_ns))


def read_clocks() -> dict[str, int]:
    """Wall, monotonic and boot time of one moment. The tightest of a few tries: we may be scheduled away in between."""
    tries = []
    for _ in range(5):
        before = time.monotonic_ns()
        wall, boot = time.time_ns(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        after = time.monotonic_ns()
        tries.append((after - before, wall, (before + after) // 2, boot))
    within, wall, monotonic, boot = min(tries)
    return {"wall_ns": wall, "monotonic_ns": monotonic, "boottime_ns": boot, "read_within_ns": within}


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_btime(sysroot: str) -> int | None:
    """Boot time in whole seconds since the epoch, from /proc/stat."""
    try:
        raw, _ = read_bounded(f"{sysroot}/proc/stat", 4 * 1024 * 1024)  # the interrupt line alone may have 100 kB
    except OSError:
        return None
    _, _, rest = raw.partition(b"\nbtime ")
    return int(rest.split()[0]) if rest[:1].isdigit() else None


def read_adjtimex(errors: dict[str, str]) -> dict[str, Any] | None:
    """The kernel's own view of its clock discipline. modes=0 reads only, and needs no privilege."""
    try:
        call = ctypes.CDLL(None, use_errno=True).adjtimex
        timex = Timex()
        state = call(ctypes.byref(timex))
    except (OSError, AttributeError) as error:
        errors["adjtimex"] = str(error)
        return None
    if state < 0:
        errors["adjtimex"] = errno.errorcode.get(ctypes.get_errno(), "EIO")
        return None
    return {
        "state": STATES[state] if state < len(STATES) else str(state),
        "synchronised": state != TIME_ERROR and not timex.status & STA_UNSYNC,
        "offset_us": timex.offset / 1000 if timex.status & STA_NANO else float(timex.offset),
        "maxerror_us": timex.maxerror,
        "esterror_us": timex.esterror,
        "status": timex.status,
        "tai_s": timex.tai,
    }


def command_output(name: str, errors: dict[str, str]) -> str | None:
    """Raw text of a time daemon's own tool where it is installed; its silence is noted, and never waited for."""
    try:
        ran = run_bounded(COMMANDS[name], COMMAND_S, 65536)
    except OSError as error:
        errors[name] = errno.errorcode.get(error.errno or 0, "EIO")
        return None
    if ran.status is None:
        errors[name] = f"TIMEOUT: {' '.join(COMMANDS[name])} did not end within {COMMAND_S:g} s"
    elif ran.status:
        errors[name] = f"exit {ran.status}: {(ran.err or ran.out).decode('utf-8', 'replace').strip()[:300]}"
    return ran.out.decode("utf-8", "replace") if ran.out and not ran.status else None


def zone_of(target: Target, sysroot: str, errors: dict[str, str]) -> dict[str, Any]:
    """The zone of one process: TZ of its environment (gone where the process overwrote it), else its own /etc/localtime."""
    zone: dict[str, Any] = {"pid": target.pid, "tz_env": None, "localtime": None, "utc_offset_s": None}
    base = f"{sysroot}/proc/{target.pid}"
    try:
        environ, _ = read_bounded(f"{base}/environ")
        for item in environ.split(b"\0"):
            if item.startswith(b"TZ="):
                zone["tz_env"] = item[3:].decode("utf-8", "replace")
        zone["localtime"] = os.readlink(f"{base}/root/etc/localtime")
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file of its own, as containers like to mount it
            errors[target.name] = errno.errorcode.get(error.errno or 0, "EIO")
    zone["utc_offset_s"] = offset_of(f"{base}/root", "/etc/localtime", zone["tz_env"])
    return zone


def offset_of(root: str, localtime: str, tz: str | None) -> int | None:
    """Seconds east of UTC now, by the zone file that `tz` or `localtime` names inside `root`; None when it cannot be read."""
    if tz == "":
        return 0
    if tz and not tz.startswith("/"):
        localtime = f"/usr/share/zoneinfo/{tz.removeprefix(':')}"
    try:
        with open(resolve_in_root(root, localtime), "rb") as f:
            found = datetime.datetime.now(zoneinfo.ZoneInfo.from_file(f)).utcoffset()
    except FileNotFoundError:  # without a zone file, libc takes UTC
        return 0 if tz is None and os.path.isdir(f"{root}/etc") else None
    except (OSError, ValueError):
        return None
    return None if found is None else int(found.total_seconds())
