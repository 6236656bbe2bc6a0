"""Recorded trees of machines that we do not have, built where a test needs one: a DGX Spark, a server, a virtual machine.

Values are those of real machines where facts name them (seven zones that all say "acpitz", hwmon of NVMe and ConnectX); the
rest is plausible and nothing depends on it. A collector reads such a tree through `sysroot`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Create `files` (node path to content) under `root`."""
    for path, content in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def zones(count: int, kind: str = "acpitz", first_millidegrees: int = 45000) -> dict[str, str]:
    files = {}
    for i in range(count):
        zone = f"/sys/class/thermal/thermal_zone{i}"
        files |= {
            f"{zone}/type": f"{kind}\n",
            f"{zone}/temp": f"{first_millidegrees + i * 1000}\n",
            f"{zone}/mode": "enabled\n",
            f"{zone}/policy": "step_wise\n",
            f"{zone}/trip_point_0_type": "critical\n",
            f"{zone}/trip_point_0_temp": "105000\n",
            f"{zone}/trip_point_0_hyst": "0\n",
            f"{zone}/uevent": "",
        }
    return files


def gb10(root: Path) -> Path:
    """A DGX Spark: seven zones of one name, hwmon chips of SoC, drive and NIC, no x86 throttle counters."""
    return write(
        root,
        {
            **zones(7),
            "/sys/class/thermal/cooling_device0/type": "Processor\n",
            "/sys/class/thermal/cooling_device0/cur_state": "0\n",
            "/sys/class/thermal/cooling_device0/max_state": "3\n",
            "/sys/class/hwmon/hwmon0/name": "acpitz\n",
            "/sys/class/hwmon/hwmon0/temp1_input": "51200\n",
            "/sys/class/hwmon/hwmon1/name": "nvme\n",
            "/sys/class/hwmon/hwmon1/temp1_input": "38850\n",
            "/sys/class/hwmon/hwmon1/temp1_label": "Composite\n",
            "/sys/class/hwmon/hwmon1/temp1_crit": "84850\n",
            "/sys/class/hwmon/hwmon1/in0_input": "12000\n",
            "/sys/class/hwmon/hwmon2/name": "mlx5\n",
            "/sys/class/hwmon/hwmon2/temp1_input": "55000\n",
            "/sys/class/hwmon/hwmon2/temp1_label": "asic\n",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3900000\n",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq": "3900000\n",
            "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3900000\n",
            "/sys/class/dmi/id/product_name": "NVIDIA_DGX_Spark\n",
            "/sys/class/dmi/id/board_name": "P4242\n",
            "/sys/class/dmi/id/sys_vendor": "NVIDIA\n",
        },
    )


def server(root: Path) -> Path:
    """An x86 server: package zones, throttle counters that have moved, a power meter."""
    return write(
        root,
        {
            **zones(2, "x86_pkg_temp"),
            "/sys/class/hwmon/hwmon0/name": "coretemp\n",
            "/sys/class/hwmon/hwmon0/temp1_input": "71000\n",
            "/sys/class/hwmon/hwmon0/temp1_max": "90000\n",
            "/sys/class/hwmon/hwmon1/name": "power_meter\n",
            "/sys/class/hwmon/hwmon1/power1_average": "612000000\n",
            "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "3\n",
            "/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count": "41\n",
            "/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_max_time_ms": "12\n",
            "/sys/class/dmi/id/product_name": "G593-ZD1\n",
        },
    )


def virtual_machine(root: Path) -> Path:
    """No sensor at all, but a name and CPU clocks."""
    return write(
        root,
        {
            "/sys/class/dmi/id/product_name": "KVM\n",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2600000\n",
            "/proc/meminfo": "MemTotal: 16 kB\n",
        },
    )


def empty(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    return root


def process(
    root: Path,
    pid: int,
    *,
    parent: int = 1,
    start_ticks: int = 500,
    stdout: str = "/dev/null",
    stderr: str = "",
    cgroup: str = "0::/\n",
    maps: str = "",
    argv: tuple[str, ...] = ("/usr/bin/python3",),
    exe: str = "/usr/bin/python3.11",
    image: int = 0,
    container: str = "",
) -> Path:
    """Add one process. `container`: path in the tree that is its root directory (else it shares the tree's)."""
    fields = ["S", str(parent), *["0"] * 17, str(start_ticks), *["0"] * 3, str(image), "0", str(image), *["0"] * 24]
    proc = f"/proc/{pid}"
    write(
        root,
        {
            f"{proc}/stat": f"{pid} (python3) {' '.join(fields)}\n",
            f"{proc}/comm": "python3\n",
            f"{proc}/cmdline": "\0".join(argv) + "\0",
            f"{proc}/environ": "",
            f"{proc}/maps": maps,
            f"{proc}/cgroup": cgroup,
            f"{proc}/mountinfo": "",
        },
    )
    base = root / proc.lstrip("/")
    (base / "fd").mkdir()
    (base / "exe").symlink_to(exe)
    (base / "cwd").symlink_to("/")
    (base / "fd" / "0").symlink_to("/dev/null")
    (base / "fd" / "1").symlink_to(stdout)
    (base / "fd" / "2").symlink_to(stderr or stdout)
    if container:
        (base / "root").symlink_to(os.path.relpath(root / container.lstrip("/"), base))
    return root
