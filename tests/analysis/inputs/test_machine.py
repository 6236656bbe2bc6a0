"""Processes, memory, file systems, sockets, limits: what the listings say comes out with its units, times and samples."""

from __future__ import annotations

import pytest

from forensics.analysis import parse
from forensics.analysis.parse import Input, Sink
from forensics.analysis.times import Calendar, iso
from forensics.model import (
    BootTime,
    ConfigValue,
    CpuSample,
    FileSystemUse,
    HostCpu,
    MappedLibrary,
    MemorySample,
    ProcessState,
    ProgressSample,
    QueueDepth,
    ShmSegment,
    ThreadWait,
)
from tests.analysis.inputs import samples as s

CAL = Calendar(reference_ns=1_772_481_600_000_000_000)
"""2026-03-02T20:00:00Z"""


def read(text: str | bytes, name: str = "gpu-a.txt", pid: int | None = None, sample: int = 0) -> Sink:
    data = text if isinstance(text, bytes) else text.encode()
    parser = parse.find("", name, data[:8192].decode("utf-8", "replace"))
    assert parser is not None, "not recognised"
    sink = Sink()
    parser.parse(Input(name=name, node="gpu-a", data=data, pid=pid, sample=sample, calendar=CAL), sink)
    return sink


def of(sink: Sink, kind):
    return [o for o in sink.observations if isinstance(o, kind)]


def when(o) -> str:
    return iso(o.at.earliest_ns) if o.at else ""


def test_top_gives_rates_of_each_look_and_the_machine():
    sink = read(s.TOP)
    assert [(c.pid, c.percent, c.sample) for c in of(sink, CpuSample)] == [(7120, 99.7, 0), (7121, 0.3, 0), (7120, 12.0, 1)]
    assert [round(h.idle_fraction, 3) for h in of(sink, HostCpu)] == [0.924, 0.914]
    states = of(sink, ProcessState)
    assert states[0].rss_bytes == round(40.1 * 2**30) and states[1].rss_bytes == 2048 * 1024 and states[1].state == "D"


def test_ps_gives_no_rate_for_it_only_knows_the_mean_since_the_start():
    sink = read(s.PS_AUX)
    assert of(sink, CpuSample) == []
    assert [(p.pid, p.state) for p in of(sink, ProcessState)] == [(1, "S"), (7121, "D"), (7200, "Z")]
    assert of(sink, ProcessState)[1].rss_bytes == 40960 * 1024


def test_a_listing_without_head_is_of_top_where_its_name_says_so():
    text = "  PID USER  %CPU COMMAND\n  131 root  100.0 VLLM::Worker_TP0\n"
    assert [c.percent for c in of(read(text, "gpu-a.top.txt"), CpuSample)] == [100.0]
    assert of(read(text, "gpu-a.ps.txt"), CpuSample) == [] and of(read(text, "stop.txt"), CpuSample) == []


def test_ps_with_the_full_command_parents_and_lstart():
    ef = read(s.PS_EF)
    assert ef.processes[1].ppid == 1 and ef.processes[1].argv[:3] == ("python", "-m", "vllm.entrypoints.openai.api_server")
    eo = read(s.PS_EO)
    assert iso(eo.processes[0].started_ns) == "2026-03-02T16:20:31Z" and eo.processes[0].title == "VLLM::EngineCore"
    state = of(eo, ProcessState)[0]
    assert (state.wchan, state.threads) == ("futex_wait_queue", 41)


def test_threads_are_not_taken_for_processes():
    sink = read("    PID     LWP S %CPU COMMAND\n   7121    7121 S  0.0 python3\n   7121    7130 R 99.0 NCCL Progress\n")
    assert [p.pid for p in of(sink, ProcessState)] == [7121] and [c.tid for c in of(sink, CpuSample)] == [7121, 7130]
    sink = read(s.TOP.replace("Tasks:", "Threads:"))
    assert of(sink, ProcessState) == [] and of(sink, CpuSample)[0].tid == 7120


def test_the_line_of_date_and_a_comment_date_what_follows():
    assert when(of(read("Mon Mar  2 16:20:31 UTC 2026\n" + s.PS_AUX), ProcessState)[0]) == "2026-03-02T16:20:31Z"
    sink = read("# captured_at 2026-03-02T10:00:00+01:00 host gpu-b\n" + s.MEMINFO)
    (memory,) = of(sink, MemorySample)
    assert (memory.node, when(memory), memory.available_bytes) == ("gpu-b", "2026-03-02T09:00:00Z", 9122611 * 1024)
    sink = read("Every 2.0s: free -h      gpu-c: Mon Mar  2 04:20:31 PM 2026\n\n" + s.FREE)
    (memory,) = of(sink, MemorySample)
    assert (memory.node, when(memory), memory.total_bytes) == ("gpu-c", "2026-03-02T16:20:31Z", 62 * 2**30)


def test_several_sheets_in_one_file_are_samples():
    text = "".join(f"# sampled_at 2026-03-02T10:0{n}:00Z\n{s.PS_AUX}" for n in range(3))
    states = [p for p in of(read(text), ProcessState) if p.pid == 7121]
    assert [p.sample for p in states] == [0, 1, 2] and [when(p)[14:16] for p in states] == ["00", "01", "02"]


def test_free_without_units_is_told_and_not_guessed():
    sink = read(s.FREE.replace("Gi", "").replace("Mi", "").replace("2.0", "2"))
    assert of(sink, MemorySample) == [] and "without units" in sink.notes[0]


@pytest.mark.parametrize("text", [s.DF_H, s.DF_K, s.DF_B])
def test_df_in_bytes_whatever_its_blocks(text):
    shm = next(f for f in of(read(text), FileSystemUse) if f.mount == "/dev/shm")
    assert shm.total_bytes == (67108864000 if text is s.DF_B else 64 * 2**20)
    assert shm.available_bytes == (67075309568 if text is s.DF_B else 0)


def test_df_joins_a_row_that_a_long_device_broke():
    mounts = {f.mount: f.available_bytes for f in of(read(s.DF_H), FileSystemUse)}
    assert mounts["/models"] == 0 and mounts["/"] == 540 * 2**30


@pytest.mark.parametrize("text", [s.SS, s.NETSTAT])
def test_sockets_queues_and_clients(text):
    queues = {(q.kind, q.queue): (q.depth, q.pid) for q in of(read(text), QueueDepth)}
    assert queues["accept-backlog", "port 8000"] == (12, 7100)
    assert queues["socket-recv", "8000->51002"] == (4096, 7100)
    assert queues["clients", "port 8000"][0] == (2 if text is s.SS else 1)


def test_listening_sockets_alone_say_nothing_of_clients():
    text = "\n".join(line for line in s.SS.splitlines() if "ESTAB" not in line) + "\n"
    assert [q.kind for q in of(read(text), QueueDepth)] == ["accept-backlog"]
    assert of(read(text), QueueDepth)[0].capacity == 2048


def test_limits_of_a_process_and_of_a_shell():
    values = {c.name: c.value for c in of(read(s.LIMITS, "pid7121.limits.txt", 7121), ConfigValue)}
    assert values["limit of open files"] == "1024, at most 524288" and values["limit of locked memory"] == "8388608"
    assert {c.name: c.value for c in of(read(s.ULIMIT), ConfigValue)}["limit of open files"] == "1024"


def test_libraries_once_each_with_the_rank_of_the_file_name():
    for text in (s.MAPS, "# captured_at 2026-03-02T10:00:00Z\n" + s.MAPS):
        libraries = of(read(text, "rank3.maps.txt"), MappedLibrary)
        assert [m.path for m in libraries] == ["/usr/lib/libnccl.so.2.27.3", "/opt/hook/libintercept.so"]
        assert {m.rank for m in libraries} == {3}
    assert [m.path for m in of(read(s.MAPS_NAMES), MappedLibrary)] == ["/opt/hook/libintercept.so", "/usr/lib/libcuda.so.1"]


def test_segments_with_their_age_as_coarse_as_printed():
    psm, nccl = of(read(s.SHM), ShmSegment)
    assert (psm.name, psm.size_bytes) == ("psm_0a1b2c3d", 161 * 2**20)
    assert iso(psm.changed.earliest_ns) == "2026-03-02T10:00:00Z" and psm.changed.latest_ns - psm.changed.earliest_ns == 59_999_999_999
    assert iso(nccl.changed.earliest_ns) == "2025-03-01T00:00:00Z" and nccl.changed.latest_ns - nccl.changed.earliest_ns > 86_000e9
    (full,) = of(read(s.SHM_FULL), ShmSegment)
    assert (full.name, full.owner, full.size_bytes) == ("a file with blanks", "1000", 167772190)
    assert full.changed.earliest_ns % 1_000_000_000 == 637595096


def test_proc_files_by_themselves():
    status = read(s.STATUS)
    assert (status.processes[0].ns_pids, of(status, ProcessState)[0].state) == ((7121, 88), "D")
    stat = read(s.STAT, "pid7121.stat.txt", 7121)
    assert of(stat, CpuSample)[0].cpu_seconds == 3.0 and of(stat, ProcessState)[0].title == "VLLM::Worker (1)"
    (wait,) = of(read(s.STACK, "pid7121.stack.txt", 7121), ThreadWait)
    assert wait.kernel_stack == ("rwsem_down_read_slowpath", "uvm_ioctl [nvidia_uvm]") and wait.tid == 7121
    (wait,) = of(read(s.SYSCALL, "pid7121.syscall.txt", 7121), ThreadWait)
    assert wait.futex == 0x7FA7D41BB000 and wait.syscall == 202
    lost = read(s.STACK)
    assert of(lost, ThreadWait) == [] and "of which process" in lost.notes[0]


def test_uptime_tells_the_boot_only_where_the_time_of_day_has_a_date():
    assert of(read(s.UPTIME), BootTime) == []
    (boot,) = of(read("# captured_at 2026-03-02T10:12:10Z\n" + s.UPTIME), BootTime)
    assert iso(boot.booted.latest_ns) == "2026-02-24T03:20:10.999Z"
    (boot,) = of(read(s.PROC_STAT), BootTime)
    assert boot.booted.earliest_ns == 1772460000 * 10**9
    (boot,) = of(read("2026-02-25 15:20:01\n", "uptime.txt"), BootTime)
    assert iso(boot.booted.earliest_ns) == "2026-02-25T15:20:01Z"


def test_secrets_of_an_environment_do_not_come_through():
    for text in (s.ENV, s.ENVIRON):
        sink = read(text, "pid7121.environ", 7121)
        values = {c.name: c.value for c in of(sink, ConfigValue)}
        assert values["NCCL_DEBUG"] == "INFO" and "HF_TOKEN" not in values and "VLLM_API_KEY" not in values
        assert "hf_abc" not in repr(sink)
        assert {c.pid for c in of(sink, ConfigValue)} == {7121}
    values = {c.name: c.value for c in of(read(s.ENV_EXPORT), ConfigValue)}
    assert values == {"LD_PRELOAD": "/opt/hook/libintercept.so", "CUDA_VISIBLE_DEVICES": "0,1"}


def test_a_secret_in_a_harmless_variable_is_redacted():
    sink = read("VLLM_ARGS=--api-key sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD\nVLLM_X=1\n")
    assert "sk-abcdefghij" not in repr(sink)


def test_scrapes_of_one_file_are_samples_in_time():
    first, second = of(read(s.SCRAPES), ProgressSample)
    assert (when(first), when(second)) == ("2026-03-02T10:00:00Z", "2026-03-02T10:01:00Z") and first.sample != second.sample
    assert of(read(s.PROMETHEUS), ProgressSample)[0].counters["generation_tokens"] == 77
