"""GPUs, links, communicators, collectives, containers, kernel."""

from __future__ import annotations

import json

import pytest

from forensics.analysis.parse._pickle import plain_pickle
from forensics.model import (
    BootTime,
    CollectiveRecord,
    CommunicatorStatus,
    ContainerStatus,
    CrashRecord,
    FunctionShare,
    GpuFault,
    GpuProcess,
    GpuSample,
    KernelEvent,
    KernelSpan,
    LinkCounter,
    LinkState,
    PlatformEvent,
    RankPlace,
    ThreadStack,
)
from forensics.model.times import iso
from tests.analysis.inputs import samples as s
from tests.analysis.inputs.test_machine import of, read, when


def test_csv_with_units_buses_and_reasons():
    first, second = of(read(s.GPU_CSV), GpuSample)
    assert (first.utilization_percent, first.power_watts, first.power_limit_watts, first.temperature_celsius) == (96, 115.5, 700, 41)
    assert (first.sm_clock_mhz, first.memory_used_bytes, first.throttle_bits, first.pci) == (1980, 120000 * 2**20, 4, "0000:19:00.0")
    assert when(first) == "2026-03-02T10:01:30Z"
    assert (second.utilization_percent, second.power_watts, second.power_limit_watts, second.memory_used_bytes) == (None,) * 4
    assert [f.index for f in of(read(s.GPU_CSV), GpuFault)] == [1], "an unknown error is a GPU that could not be asked"


def test_csv_without_index_and_units_counts_rows():
    first, second = of(read(s.GPU_CSV_BARE), GpuSample)
    assert (first.index, second.index) == (0, 1) and first.memory_used_bytes == 1024 * 2**20
    assert (first.throttle_bits, second.throttle_bits) == (8, 0)


def test_processes_on_gpus():
    apps = of(read(s.COMPUTE_APPS), GpuProcess)
    assert [(a.pid, a.pci, a.used_bytes) for a in apps] == [(7121, "0000:3b:00.0", 2**30), (7122, "0000:19:00.0", None)]
    assert apps[1].name == "python -c a, b"
    (app,) = of(read(s.GPU_TABLE), GpuProcess)
    assert (app.pid, app.index, app.used_bytes) == (7121, 0, 119000 * 2**20)


def test_dmon():
    first, second = of(read(s.DMON), GpuSample)
    assert (first.power_watts, first.utilization_percent, first.sm_clock_mhz, when(first)) == (115, 96, 1980, "2026-03-02T10:01:30Z")
    assert second.power_watts is None and second.index == 1


def test_the_table():
    sink = read(s.GPU_TABLE)
    gpus = of(sink, GpuSample)
    assert [(g.index, g.utilization_percent, g.power_watts, g.power_limit_watts, g.temperature_celsius) for g in gpus] == [
        (0, 96, 115, 700, 41),
        (1, 95, 15, None, 52),
        (2, None, None, None, None),
    ]
    assert gpus[0].memory_used_bytes == 120000 * 2**20 and gpus[1].memory_used_bytes is None
    assert gpus[1].pci == "000f:01:00.0" and when(gpus[0]) == "2026-03-02T16:20:31Z"
    assert [(f.index, f.pci) for f in of(sink, GpuFault)] == [(2, "0000:b3:00.0")]


def test_the_long_form():
    first, second = of(read(s.GPU_LONG), GpuSample)
    assert (first.utilization_percent, first.power_watts, first.power_limit_watts, first.temperature_celsius) == (96, 115.5, 700, 41)
    assert (first.throttle_bits, first.pids, first.sm_clock_mhz, first.uuid) == (0x4 | 0x8 | 0x40, (7121,), 1980, "GPU-aa")
    assert when(first) == "2026-03-02T16:20:31Z" and (second.index, second.utilization_percent) == (1, None)


@pytest.mark.parametrize(
    ("text", "index", "pci"),
    [
        (s.GPU_FAULT, 3, "0000:3b:00.0"),
        ("Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error\n", None, "0000:3b:00.0"),
        ("Unable to determine the device handle for GPU2: 00000000:3B:00.0: GPU is lost.  Reboot the system\n", 2, "0000:3b:00.0"),
        (s.GPU_NONE, None, ""),
        ("Failed to initialize NVML: Driver/library version mismatch\n", None, ""),
    ],
)
def test_what_nvidia_smi_says_when_it_cannot_ask(text, index, pci):
    (fault,) = of(read(text), GpuFault)
    assert (fault.index, fault.pci) == (index, pci)


def test_py_spy_with_native_frames_locals_and_another_node():
    stacks = of(read("# captured_at 2026-03-02T10:00:00Z host gpu-b\n" + s.PYSPY, "rank1.pyspy.1.txt"), ThreadStack)
    main = stacks[0]
    assert (main.node, main.pid, main.gil, when(main)) == ("gpu-b", 4211, True, "2026-03-02T10:00:00Z")
    assert [f.name for f in main.frames] == ["item", "<module>"]
    assert [(f.name, f.native) for f in main.mixed][:3] == [
        ("__futex_abstimed_wait_common", True),
        ("cuMemcpyDtoHAsync_v2", True),
        ("c10::cuda::memcpy_and_sync", True),
    ]
    assert stacks[1].mixed == () and not stacks[1].active


def test_py_spy_of_several_processes_in_one_file():
    text = s.PYSPY + "\n" + s.PYSPY.replace("4211", "5000")
    assert [t.pid for t in of(read(text, "gpu-a.pid4211.txt", 4211), ThreadStack)] == [4211, 4211, 5000, 5000]
    frame = {"name": "f", "filename": "a.py", "line": 1}
    raw = json.dumps([{"pid": pid, "thread_id": 1, "os_thread_id": pid, "frames": [frame]} for pid in (1, 2)])
    assert [t.pid for t in of(read(raw, "pid1.json", 1), ThreadStack)] == [1, 2]


def test_gdb_threads_with_native_and_python_frames():
    watch, main = of(read(s.GDB), ThreadStack)
    assert (main.pid, main.tid, watch.tid, watch.name, watch.reader) == (6990, 6990, 7001, "pt_nccl_watchdg", "gdb")
    assert [(f.name, f.file) for f in watch.mixed] == [
        ("__futex_abstimed_wait_common", "libc.so.6"),
        ("pthread_cond_clockwait", "libc.so.6"),
        ("c10d::ProcessGroupNCCL::Watchdog::run", "libtorch_cuda.so"),
    ]
    assert [f.name for f in main.mixed][:2] == ["???", "ncclCommInitRank(ncclComm**, int)"]
    assert [(f.name, f.file, f.line) for f in main.frames] == [("init_process_group", "torch/distributed/c10d.py", 41)]
    one, two = of(read(s.EU_STACK), ThreadStack)
    assert (one.pid, two.pid, two.tid, one.mixed[0].file) == (6990, 6990, 7001, "libc.so.6")


def test_gdb_as_people_shorten_it():
    text = '# captured_at 2026-03-02T10:00:00Z host gpu-b\nThread 77 (LWP 77) "python3":\n#0  futex_wait () from libc.so.6\n#1  f() () from libx.so\n'
    (stack,) = of(read(text, "rank0.gdb.1.txt"), ThreadStack)
    assert (stack.node, stack.pid, stack.tid, when(stack)) == ("gpu-b", 77, 77, "2026-03-02T10:00:00Z")
    assert [(f.name, f.file, f.native) for f in stack.mixed] == [("futex_wait", "libc.so.6", True), ("f", "libx.so", True)]


def test_py_spy_top():
    poll, module = of(read(s.PYSPY_TOP), FunctionShare)
    assert (poll.function, poll.file, poll.own_percent, poll.total_percent, poll.gil_percent) == ("poll", "app/loop.py", 61, 98, 61)
    assert module.own_percent == 0


def test_ras_names_the_rank_behind_and_fills_in_the_others():
    mismatch = next(c for c in of(read(s.RAS), CommunicatorStatus) if c.comm == "27a079b828ff1a75")
    assert (mismatch.size, mismatch.status, mismatch.errors, mismatch.operation) == (8, "RUNNING", "MISMATCH", "AllReduce")
    assert mismatch.counts == {0: 6650, 1: 6650, 2: 6650, 3: 6650, 4: 6650, 5: 6640, 6: 6649, 7: 6650}
    assert (mismatch.pids[5], mismatch.hosts[5]) == (7121, "10.0.0.2")
    assert [c.size for c in of(read(s.RAS), CommunicatorStatus) if c.comm == "group 1"] == [4]


def test_ras_does_not_fill_in_what_does_not_add_up():
    text = s.RAS.replace("  6 ranks have launched", "  5 ranks have launched")
    counts = next(c for c in of(read(text), CommunicatorStatus) if c.operation).counts
    assert counts == {5: 6640, 6: 6649}


def test_ras_of_a_dead_process():
    (comm,) = of(read(s.RAS_DEAD), CommunicatorStatus)
    assert (comm.missing, comm.errors, comm.silent) == ((21,), "INCOMPLETE", ((7121, "10.0.0.3"),))


@pytest.mark.parametrize("text", [s.RAS_JSON, s.RAS_JSON_BROKEN, "NCCL version 2.28.9 compiled with CUDA 13\n" + s.RAS_JSON_BROKEN])
def test_ras_json_also_where_it_is_malformed(text):
    (comm,) = of(read(text), CommunicatorStatus)
    assert (comm.counts, comm.operation, comm.missing, comm.dead) == ({0: 64, 1: 60}, "AllReduce", (2,), (3,))
    assert comm.hosts[2] == 'a, "b" : {x}' and comm.pids[1] == 7121 and comm.errors == "INCOMPLETE,MISMATCH"
    assert when(comm) == "2026-03-02T16:20:31Z"


@pytest.mark.parametrize("raw", [json.dumps(s.FLIGHT_NCCL).encode(), s.FLIGHT_PICKLE])
def test_flight_recorder_of_nccl(raw):
    (record,) = of(read(raw, "nccl_trace_rank_3"), CollectiveRecord)
    assert (record.rank, record.group, record.last_enqueued, record.last_started, record.last_completed) == (3, "default_pg", 9, 8, 7)
    assert (record.pending, record.pending_seq, record.frames[0].file) == ("nccl:all_reduce", 8, "torch/nn/m.py")


def test_flight_recorder_of_gloo_with_numbers_as_texts():
    (record,) = of(read(json.dumps(s.FLIGHT_GLOO), "rank_2.json"), CollectiveRecord)
    assert (record.rank, record.last_enqueued, record.last_completed, record.pending_seq) == (2, 4, 3, 4)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00idq\x00\x85R.",
        b"\x80\x02c__builtin__\neval\n.",
        b"\x80\x02}q\x00)h\x00s.",
        b"\x80\x02]q\x00(h\x00",
        b"\x80\x02X\xff\xff\xff\x7fabc.",
        b"\x80\x02.",
        b"\x80\x02}(K\x01u.",
    ],
)
def test_a_hostile_or_damaged_pickle_is_refused(raw):
    with pytest.raises(ValueError):
        plain_pickle(raw)


def test_link_states():
    states = {(x.device, x.port): x.state for text in (s.IBSTAT, s.RDMA_LINK, s.IBV, s.IP_LINK) for x in of(read(text), LinkState)}
    assert states["mlx5_0", "1"] == "DOWN" and states["mlx5_1", "1"] == "ACTIVE" and states["enp1s0f0", ""] == "DOWN"
    down = of(read(s.IBSTAT), LinkState)[0]
    assert (down.state, down.rate) == ("DOWN (Polling)", "400")


def test_link_counters_over_time():
    rows = [(c.device, c.port, c.counter, c.value, when(c)[14:16]) for c in of(read(s.COUNTERS), LinkCounter) if c.counter == "link_downed"]
    assert rows == [("mlx5_0", "1", "link_downed", 0, "00"), ("mlx5_0", "1", "link_downed", 1, "01")]
    assert {c.counter: c.value for c in of(read(s.COUNTER_PATHS), LinkCounter)} == {"link_downed": 3, "out_of_sequence": 7}
    assert {c.counter: c.value for c in of(read(s.PERFQUERY), LinkCounter)}["LinkDownedCounter"] == 2


@pytest.mark.parametrize("text", [s.POD_YAML, s.POD_JSON, s.DESCRIBE, s.POD_BARE])
def test_pod_status(text):
    (pod,) = of(read(text), ContainerStatus)
    assert (pod.restarts, iso(pod.started.earliest_ns), iso(pod.created.earliest_ns)) == (7, "2026-03-02T10:00:00Z", "2026-03-01T10:00:00Z")
    if text is not s.POD_BARE:
        assert (pod.reason, pod.exit_code, iso(pod.ended.earliest_ns)) == ("OOMKilled", 137, "2026-03-02T09:59:00Z")


def test_the_end_of_one_container_is_not_laid_to_another():
    item = "".join(s.POD_YAML.partition("  containerStatuses:\n")[2:])
    sidecar = (
        item.replace("OOMKilled", "Error")
        .replace("137", "1")
        .replace("name: vllm", "name: sidecar")
        .replace("restartCount: 7", "restartCount: 2")
    )
    well = "  - containerID: containerd://cc\n    lastState: {}\n    name: proxy\n    restartCount: 0\n"
    pods = of(read(s.POD_YAML + well + sidecar), ContainerStatus)
    assert [(p.restarts, p.exit_code, p.reason) for p in pods] == [(7, 137, "OOMKilled"), (0, None, ""), (2, 1, "Error")]
    head, _, rest = s.DESCRIBE.partition("  vllm:\n")
    container, _, events = rest.partition("Events:")
    other = container.replace("OOMKilled", "Error").replace("137", "1").replace("Restart Count:  7", "Restart Count:  2")
    pods = of(read(f"{head}  vllm:\n{container}  sidecar:\n{other}Events:{events}"), ContainerStatus)
    assert [(p.name, p.restarts, p.exit_code, p.reason) for p in pods] == [("vllm", 7, 137, "OOMKilled"), ("sidecar", 2, 1, "Error")]


def test_docker_inspect():
    (container,) = of(read(s.DOCKER), ContainerStatus)
    assert (container.name, container.reason, container.exit_code) == ("vllm", "OOMKilled", 137)
    assert iso(container.ended.earliest_ns) == "2026-03-02T09:59:00Z"


def test_events_of_the_platform():
    bare = of(read(s.EVENTS_BARE), PlatformEvent)
    assert [(e.reason, e.warning, when(e), e.about) for e in bare] == [
        ("Unhealthy", True, "2026-03-02T10:00:09Z", ""),
        ("Killing", False, "2026-03-02T10:00:19Z", "pod/decode-0"),
    ]
    unhealthy, killing = of(read(s.DESCRIBE), PlatformEvent)
    assert (unhealthy.count, unhealthy.reason) == (3, "Unhealthy") and unhealthy.text.startswith("Liveness probe failed")
    assert iso(killing.at.latest_ns) == "2026-03-02T10:08:30.999Z"
    (event,) = of(read(s.EVENTS), PlatformEvent)
    assert (event.about, event.at) == ("pod/decode-0", None), "an age without the time of the listing dates nothing"


def test_pstore_and_that_it_was_empty():
    (crash,) = of(read(s.PSTORE), CrashRecord)
    assert "Kernel panic" in crash.text and not crash.empty
    for text in ("(empty)\n", "total 0\n", "ls: cannot access '/sys/fs/pstore/*': No such file or directory\n"):
        (crash,) = of(read(text, "gpu-a.pstore.txt"), CrashRecord)
        assert crash.empty


def test_rank_map():
    first, second = of(read(s.RANK_MAP), RankPlace)
    assert (first.rank, first.local_rank, first.pid, first.pci, first.node) == (3, 3, 7121, "0000:3b:00.0", "gpu-a")
    assert (second.rank, second.node, second.gpu, second.pid) == (4, "gpu-b", 0, 90)


@pytest.mark.parametrize("text", [s.DMESG_ISO, s.DMESG_T, s.JOURNAL, s.JOURNAL_JSON])
def test_kernel_lines_with_a_clock(text):
    sink = read(text, "gpu-a.dmesg.txt")
    (event,) = [e for e in of(sink, KernelEvent) if e.signature.startswith("kernel-xid")]
    assert when(event)[:19] == "2026-03-02T16:20:31" and event.fields["code"] == "79" and event.at.basis == "kernel"
    (span,) = of(sink, KernelSpan)
    assert span.at is not None


@pytest.mark.parametrize("text", [s.DMESG, s.DMESG_X, s.JOURNAL_MONO, s.DMESG_JSON])
def test_kernel_lines_that_count_from_boot_stay_undated(text):
    sink = read(text, "gpu-a.dmesg.txt")
    (event,) = [e for e in of(sink, KernelEvent) if e.signature.startswith("kernel-xid")]
    assert event.at is None and event.since_boot_ns == 100_250_000_000
    assert of(sink, KernelSpan)[0].since_boot_ns[1] == 100_250_000_000


def test_a_journal_of_both_clocks_tells_the_boot():
    (boot,) = of(read(s.JOURNAL_JSON), BootTime)
    assert boot.booted.earliest_ns == 1772468431123456000 - 100250000000


def test_a_mixed_journal_is_read_both_ways():
    sink = read(s.MIXED)
    assert [e.fields["code"] for e in of(sink, KernelEvent)] == ["79"] and of(sink, KernelSpan)[0].lines == 1


def test_the_human_form_of_dmesg_counts_on_from_the_minute():
    sink = read(s.DMESG_E, "gpu-a.dmesg.txt")
    event = next(e for e in of(sink, KernelEvent) if "Xid" in e.text)
    assert iso(event.at.earliest_ns) == "2026-03-02T16:20:31.250Z" and event.at.latest_ns - event.at.earliest_ns > 59e9


def test_the_list_of_boots():
    (boot,) = of(read(s.BOOTS), BootTime)
    assert iso(boot.booted.earliest_ns) == "2026-03-02T16:17:55Z" and iso(boot.booted.latest_ns)[:19] == "2026-03-02T16:18:55"


def test_readings_of_an_exporter():
    (gpu,) = of(read(s.DCGM), GpuSample)
    assert (gpu.index, gpu.utilization_percent, gpu.power_watts, gpu.memory_used_bytes, gpu.pci) == (0, 96, 115.5, 2**30, "0000:19:00.0")
    assert not read(s.DCGM).notes


def test_links_between_gpus():
    assert [(g.index, g.uuid) for g in of(read(s.GPU_LIST), GpuSample)] == [(0, "GPU-aa"), (1, "GPU-bb")]
    assert [(x.device, x.port, x.state) for x in of(read(s.NVLINK), LinkState)] == [("gpu0", "0", "ACTIVE"), ("gpu0", "1", "INACTIVE")]
    counters = {c.counter: c.value for c in of(read(s.NVLINK_ERRORS), LinkCounter)}
    assert counters == {"nvlink_replay_errors": 0, "nvlink_crc_flit_errors": 3}


def test_tables_of_pods_and_containers():
    first, second = of(read(s.PODS), ContainerStatus)
    assert (first.name, first.restarts, first.reason, iso(first.started.latest_ns)) == ("decode-0", 7, "", "2026-03-02T10:00:00.999Z")
    assert (second.restarts, second.reason) == (3, "CrashLoopBackOff")
    dead, well = of(read(s.DOCKER_PS), ContainerStatus)
    assert (dead.name, dead.exit_code, dead.reason, well.name, well.reason) == ("vllm", 137, "Exited", "etcd", "")


def test_the_heading_of_a_csv_holds_for_later_sheets():
    head, row, *_ = s.GPU_CSV_BARE.splitlines()
    text = f"# sampled_at 2026-03-02T10:00:00Z\n{head}\n{row}\n# sampled_at 2026-03-02T10:01:00Z\n{row}\n"
    assert [when(g)[14:16] for g in of(read(text), GpuSample)] == ["00", "01"]


def test_a_log_of_the_boot_before():
    (span,) = of(read(s.JOURNAL, "gpu-a.kernel.previous-boot.log"), KernelSpan)
    assert span.previous_boot
    (span,) = of(read(s.JOURNAL, "gpu-a.kernel.log"), KernelSpan)
    assert not span.previous_boot


def test_a_row_of_blanks_is_read_at_once():
    rows = ["|   0   N/A  N/A  4711      C   " + " " * 3900, "|   0  NVIDIA H100 " + " " * 3900 + "x"]
    sink = read(s.GPU_TABLE + "\n".join(rows) + "\n|    0   N/A  N/A      4711      C   two  words          4MiB |\n", "smi.txt")
    assert [(p.name, p.used_bytes) for p in of(sink, GpuProcess) if p.pid == 4711] == [("two words", 4 << 20)]
