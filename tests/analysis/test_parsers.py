"""The other formats: what people mail and what the collectors write."""

from __future__ import annotations

import json

import pytest

from forensics.analysis import parse
from forensics.analysis.ingest import node_of
from forensics.analysis.parse import Input, Sink
from forensics.analysis.times import Calendar, iso
from forensics.model import (
    CpuSample,
    HealthSample,
    HostCpu,
    KernelEvent,
    KernelSpan,
    MemorySample,
    PatchReading,
    ProcessState,
    QueueDepth,
    ThermalReading,
    ThreadStack,
    ThrottleCount,
)

CAL = Calendar(reference_ns=1_788_256_800_000_000_000)


def read(text: str, name: str = "n1.txt", kind: str = "") -> Sink:
    parser = parse.find(kind, name, text[:8192])
    assert parser is not None, "not recognised"
    sink = Sink()
    parser.parse(Input(name=name, node="n1", data=text.encode(), kind=kind, calendar=CAL), sink)
    return sink


def of(sink: Sink, kind):
    return [o for o in sink.observations if isinstance(o, kind)]


def fileset(files: dict[str, str], links: dict[str, str] | None = None) -> Sink:
    return read(json.dumps({"at_ns": 5, "files": files, "links": links or {}, "errors": {}}), kind="fileset")


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("node1-worker.log", "node1"),
        ("prefill-2.log", "prefill-2"),
        ("a0.kernel.log", "a0"),
        ("x/y/head.log", "head"),
        ("node0.pid12.pyspy.1.txt", "node0"),
    ],
)
def test_a_bare_file_is_of_the_node_its_name_says(name, node):
    assert node_of(name) == node


def test_seven_thermal_zones_of_one_type_stay_apart():
    files = {}
    for i in range(7):
        base = f"/sys/class/thermal/thermal_zone{i}"
        files |= {
            f"{base}/type": "acpitz\n",
            f"{base}/temp": f"{40000 + i * 1000}\n",
            f"{base}/trip_point_0_type": "critical\n",
            f"{base}/trip_point_0_temp": "105000\n",
        }
    readings = of(fileset(files), ThermalReading)
    assert [r.celsius for r in readings] == [40.0 + i for i in range(7)]
    assert len({r.key for r in readings}) == 7
    assert readings[0].trips_celsius == {"critical": 105.0}


def test_hwmon_and_throttle_counters():
    sink = fileset(
        {
            "/sys/class/hwmon/hwmon3/name": "mlx5\n",
            "/sys/class/hwmon/hwmon3/temp1_input": "61000\n",
            "/sys/class/hwmon/hwmon3/temp1_crit": "105000\n",
            "/sys/class/hwmon/hwmon3/temp2_input": "not a number\n",
            "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "17\n",
        }
    )
    (reading,) = of(sink, ThermalReading)
    assert (reading.key, reading.kind, reading.trips_celsius) == ("hwmon3/temp1", "mlx5 temp1", {"crit": 105.0})
    assert of(sink, ThrottleCount)[0].count == 17


def test_a_process_name_with_parentheses_does_not_shift_the_fields():
    stat = "42 (a) (b) T 7 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 9 0 12345 0 1000 " + " ".join(["0"] * 28)
    sink = fileset({"/proc/42/stat": stat, "/proc/42/wchan": "do_signal_stop", "/proc/42/task/42/stat": stat})
    (state,) = of(sink, ProcessState)
    assert (state.state, state.ppid, state.threads, state.rss_bytes, state.wchan) == ("T", 7, 9, 1000 * 4096, "do_signal_stop")
    assert of(sink, CpuSample)[0].cpu_seconds == 2.0


def test_socket_queues_join_ports_with_processes():
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    rows = (
        "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 777 1\n"
        "   1: 0100007F:1F40 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 778 1\n"
        "   2: 0100007F:D000 0100007F:D001 01 00000010:00000400 00:00000000 00000000     0        0 779 1\n"
    )
    sink = fileset({"/proc/9/net/tcp": head + rows}, {"/proc/9/fd/3": "socket:[777]", "/proc/9/fd/4": "socket:[779]"})
    depths = {(q.queue, q.kind): q.depth for q in of(sink, QueueDepth)}
    assert depths[("port 8000", "clients")] == 1
    assert depths[("port 8000", "accept-backlog")] == 3
    assert depths[("53248->53249", "socket-recv")] == 1024
    assert depths[("53248->53249", "socket-send")] == 16


def test_memory_of_host_cgroup_and_shared_memory():
    sink = fileset(
        {
            "/proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB\n",
            "/proc/vmstat": "pgfault 1\noom_kill 2\n",
            "/sys/fs/cgroup/a/memory.current": "500\n",
            "/sys/fs/cgroup/a/memory.max": "800\n",
            "/sys/fs/cgroup/a/memory.events": "low 0\noom_kill 1\n",
            "/sys/fs/cgroup/b/memory.current": "500\n",
            "/sys/fs/cgroup/b/memory.max": "max\n",
            "statvfs:/dev/shm": "blocks=100 bavail=25 frsize=4096",
        }
    )
    by_scope = {m.scope: m for m in of(sink, MemorySample)}
    assert (by_scope["host"].available_bytes, by_scope["host"].oom_kills) == (400 * 1024, 2)
    assert (by_scope["cgroup:/a"].available_bytes, by_scope["cgroup:/a"].oom_kills) == (300, 1)
    assert by_scope["cgroup:/b"].total_bytes is None
    assert by_scope["shm"].available_bytes == 25 * 4096


def test_host_cpu_counts_idle_and_waiting_for_disks_as_not_busy():
    (cpu,) = of(fileset({"/proc/stat": "cpu  10 0 5 80 5 0 0 0 0 0\ncpu0 1 1\ncpu1 1 1\n", "/proc/loadavg": "9.5 1 1 7/100 4"}), HostCpu)
    assert (cpu.cpus, cpu.busy_ticks, cpu.total_ticks, cpu.load1, cpu.runnable) == (2, 15, 100, 9.5, 7)


def test_py_spy_text_and_json_say_the_same():
    text = 'Process 31: VLLM::Worker_TP1\nPython v3.12.1 (/usr/bin/python3)\n\nThread 31 (active+gil): "MainThread"\n    f (a.py:3)\n    <module> (b.py:9)\nThread 0x7f (idle)\n    g (c.py:1)\n'
    main, other = of(read(text), ThreadStack)
    assert (main.pid, main.tid, main.name, main.active, main.gil) == (31, 31, "MainThread", True, True)
    assert [f.name for f in main.frames] == ["f", "<module>"]
    assert (other.tid, other.active) == (0x7F, False)
    data = json.dumps(
        [
            {
                "pid": 31,
                "thread_name": "MainThread",
                "os_thread_id": 31,
                "active": True,
                "owns_gil": True,
                "frames": [
                    {"name": "f", "filename": "/x/a.py", "short_filename": "a.py", "line": 3},
                    {"name": "<module>", "filename": "/x/b.py", "short_filename": "b.py", "line": 9},
                ],
            }
        ]
    )
    (same,) = of(read(data), ThreadStack)
    assert same.path == main.path


def test_ps_and_top():
    ps = "  PID  PPID STAT WCHAN  %CPU   RSS NLWP COMMAND\n   31     5 Tl   do_sig 15.3 18052   48  \\_ VLLM::Worker_TP1\n"
    (state,) = of(read(ps), ProcessState)
    assert (state.pid, state.ppid, state.state, state.title, state.threads) == (31, 5, "T", "VLLM::Worker_TP1", 48)
    top = "top - 09:15:07 up 1 day,  load average: 61.20, 60.87, 58.40\nTasks: 812 total,  59 running\n%Cpu(s): 91.5 us,  5.9 sy,  0.0 ni,  2.4 id\n\n    PID USER  S  %CPU COMMAND\n   9120 batch R  5212 featurize\n"
    (host,) = of(read(top), HostCpu)
    assert (host.idle_fraction, host.load1, host.runnable) == (pytest.approx(0.024), 61.2, 59)
    assert of(read(top), CpuSample)[0].percent == 5212


def test_kernel_logs_in_their_forms():
    quiet = read("-- Journal begins at Thu 2026-06-11 08:00:00 UTC. --\nJun 17 08:00:00 a0 kernel: eth0: Link up\n", "a0.kernel.log")
    assert not of(quiet, KernelEvent)
    assert iso(of(quiet, KernelSpan)[0].at.earliest_ns) == "2026-06-17T08:00:00Z"
    bad = read(
        "[  12.5] x\n[ 100.000001] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.\n[ 101.000001] Out of memory: Killed process 42 (python3)\n",
        "dmesg.txt",
        "kernel-log",
    )
    assert [e.signature for e in of(bad, KernelEvent)] == ["kernel-xid-off-bus", "kernel-oom"]
    kmsg = read(
        "6,1,5000000,-;Linux version\n3,2,6000000,-;INFO: task python3:42 blocked for more than 120 seconds.\n", "kmsg.txt", "kernel-log"
    )
    assert [e.signature for e in of(kmsg, KernelEvent)] == ["kernel-hung-task"]


def test_health_probes():
    (curl,) = of(read("http=000 t=5.0\n"), HealthSample)
    assert curl.status is None
    probe = {"url": "http://127.0.0.1:8000/health", "status": 503, "latency_s": 0.1, "error": "", "body": ""}
    assert of(read(json.dumps(probe), kind="http"), HealthSample)[0].status == 503


def test_a_patch_reading_carries_the_later_of_its_times():
    row = {
        "patch": "p",
        "pid": 4,
        "path": "/a.py",
        "exists": True,
        "mtime_ns": 5,
        "ctime_ns": 9,
        "image_started_ns": 7,
        "contains": True,
        "sha256": "ab",
    }
    (reading,) = of(read(json.dumps([row]), kind="patch-witness"), PatchReading)
    assert (reading.changed_ns, reading.image_started_ns, reading.contains) == (9, 7, True)


def test_meminfo_dated_by_a_comment():
    (sample,) = of(read("# 2026-08-11T09:15:07Z\nMemTotal: 10 kB\nMemAvailable: 5 kB\n"), MemorySample)
    assert iso(sample.at.earliest_ns) == "2026-08-11T09:15:07Z"


def test_binary_is_nobody_s():
    assert parse.find("", "core.bin", "\x7fELF\0\0\0") is None
