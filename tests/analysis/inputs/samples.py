"""What tools print, by the name of the parser that reads it: (file name, text). Names say little on purpose: content decides."""

from __future__ import annotations

import json
import pickle

PYSPY = """Process 4211: VLLM::Worker_TP1
Python v3.12.11 (/usr/bin/python3.12)

Thread 4211 (active+gil): "MainThread"
    __futex_abstimed_wait_common (libc.so.6)
    cuMemcpyDtoHAsync_v2 (libcuda.so.560.35.03)
    c10::cuda::memcpy_and_sync (c10/cuda/CUDAFunctions.h:78)
    item (torch/_tensor.py:40)
        Arguments:
            self: <Tensor at 0x7f12>
        Locals:
            out: None
    <module> (run.py:12)
Thread 4300 (idle): "Thread-1 (loop)"
    wait (threading.py:359)
"""
PYSTACK = """Traceback for thread 4211 (python3) [Has the GIL] (most recent call last):
    (Python) File "/usr/lib/python3.12/runpy.py", line 88, in _run_code
    (Python) File "/srv/run.py", line 7, in <module>
"""
GDB = """[New LWP 7001]
[Thread debugging using libthread_db enabled]
Using host libthread_db library "/lib/x86_64-linux-gnu/libthread_db.so.1".
0x00007f2b1c0a117e in __futex_abstimed_wait_common () from /lib/x86_64-linux-gnu/libc.so.6

Thread 2 (Thread 0x7f2b0a7fe640 (LWP 7001) "pt_nccl_watchdg"):
#0  0x00007f2b1c0a117e in __futex_abstimed_wait_common () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f2b1c0a3b80 in pthread_cond_clockwait () from /lib/x86_64-linux-gnu/libc.so.6
#2  0x00007f2ab2 in c10d::ProcessGroupNCCL::Watchdog::run (this=0x55d, a=1,
    b=2) from /usr/lib/libtorch_cuda.so

Thread 1 (Thread 0x7f2b1c5d1740 (LWP 6990) "python3"):
#0  0x00007f2b1c0a0e2c in ?? () from /usr/lib/libcuda.so.1
#1  0x00007f2b1c0a0e30 in ncclCommInitRank(ncclComm**, int) () from /usr/lib/libnccl.so.2
#2  0x000055d in _PyEval_EvalFrameDefault (tstate=0x1) at Python/generated_cases.c.h:813
#3  Frame 0x7f2a, for file /usr/lib/python3/dist-packages/torch/distributed/c10d.py, line 41, in init_process_group (x=1)
"""
EU_STACK = """PID 6990 - process
TID 6990:
#0  0x00007f2b1c0a117e __poll - /usr/lib/libc.so.6
#1  0x000055d0 main - /usr/bin/python3.12
TID 7001:
#0  0x00007f2b1c0a117e epoll_wait - /usr/lib/libc.so.6
"""
PYSPY_TOP = """Collecting samples from 'python serve.py' (python v3.12.3)
Total Samples 900
GIL: 61.00%, Active: 98.00%, Threads: 9

  %Own   %Total  OwnTime  TotalTime  Function (filename)
 61.00%  98.00%    5.50s     8.82s   poll (app/loop.py)
  0.00%  98.00%   0.000s     8.82s   <module> (serve.py)
"""
TOP = """top - 10:15:07 up 41 days,  3:12,  2 users,  load average: 1.20, 0.87, 0.40
Tasks: 812 total,   3 running, 809 sleeping,   0 stopped,   0 zombie
%Cpu(s):  1.5 us,  5.9 sy,  0.0 ni, 92.4 id,  0.0 wa,  0.0 hi,  0.2 si,  0.0 st
MiB Mem :  24105.6 total,  18272.8 free,   2212.7 used,   4020.6 buff/cache

    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND
   7120 batch     20   0   71.2g  40.1g  10212 R  99.7   7.9   9120:11 featurize
   7121 root      20   0  212.1g   2048   9.1g D   0.3  12.1    812:10 VLLM::Worker_TP
top - 10:15:10 up 41 days,  3:12,  2 users,  load average: 1.10, 0.87, 0.40
Tasks: 812 total,   2 running, 810 sleeping,   0 stopped,   0 zombie
%Cpu(s):  2.5 us,  5.9 sy,  0.0 ni, 91.4 id,  0.0 wa,  0.0 hi,  0.2 si,  0.0 st

    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND
   7120 batch     20   0   71.2g  40.1g  10212 R  12.0   7.9   9120:11 featurize
"""
PS_AUX = """USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
root           1  0.0  0.0 168404 11000 ?        Ss   Mar01   0:14 /sbin/init
root        7121  101  2.0 999999 40960 ?        Dl   Mar01  99:01 VLLM::Worker_TP1
root        7200  0.0  0.0      0     0 ?        Z    Mar01   0:00 [python3] <defunct>
"""
PS_EF = """UID          PID    PPID  C STIME TTY          TIME CMD
root           1       0  0 Mar01 ?        00:00:14 /sbin/init
root        7121       1 99 Mar01 ?        01:39:01 python -m vllm.entrypoints.openai.api_server --port 8000
"""
PS_EO = """    PID    PPID STAT WCHAN            NLWP   RSS                  STARTED CMD
   7121       1 Sl   futex_wait_queue   41 40960 Mon Mar  2 16:20:31 2026 VLLM::EngineCore
"""
DF_H = """Filesystem      Size  Used Avail Use% Mounted on
overlay         1.8T  1.2T  540G  69% /
/dev/mapper/a-very-long-name-of-a-volume
                 10G   10G     0 100% /models
tmpfs            64M   64M     0 100% /dev/shm
"""
DF_K = """Filesystem                1K-blocks       Used Available Use% Mounted on
tmpfs                         65536      65536         0 100% /dev/shm
"""
DF_B = """Filesystem     Type        1B-blocks          Used     Available Use% Mounted on
tmpfs          tmpfs     67108864000      33554432   67075309568   1% /dev/shm
"""
SS = """State      Recv-Q Send-Q    Local Address:Port      Peer Address:Port  Process
LISTEN     12     2048            0.0.0.0:8000           0.0.0.0:*      users:(("python3",pid=7100,fd=21))
ESTAB      4096   0            10.0.0.1:8000          10.0.0.9:51002    users:(("python3",pid=7100,fd=30))
ESTAB      0      80           10.0.0.1:8000          10.0.0.9:51003    users:(("python3",pid=7100,fd=31))
"""
NETSTAT = """Active Internet connections (servers and established)
Proto Recv-Q Send-Q Local Address           Foreign Address         State       PID/Program name
tcp       12      0 0.0.0.0:8000            0.0.0.0:*               LISTEN      7100/python3
tcp     4096      0 10.0.0.1:8000           10.0.0.9:51002          ESTABLISHED 7100/python3
"""
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max open files            1024                 524288               files
Max locked memory         8388608              8388608              bytes
"""
ULIMIT = """core file size              (blocks, -c) 0
open files                          (-n) 1024
max locked memory           (kbytes, -l) 8192
stack size                  (kbytes, -s) unlimited
"""
MEMINFO = """MemTotal:       65829120 kB
MemFree:         1122611 kB
MemAvailable:    9122611 kB
"""
FREE = """               total        used        free      shared  buff/cache   available
Mem:            62Gi       40Gi       2.0Gi       8.7Mi        20Gi        21Gi
Swap:             0B          0B          0B
"""
MAPS = """55fc90eb8000-55fc90eba000 r--p 00000000 fe:00 260386                     /usr/bin/python3.12
7f2b1c000000-7f2b1c022000 r-xp 00000000 fe:00 1311                       /usr/lib/libnccl.so.2.27.3
7f2b1c022000-7f2b1c023000 rw-p 00022000 fe:00 1311                       /usr/lib/libnccl.so.2.27.3
7f2b1d000000-7f2b1d001000 r-xp 00000000 fe:00 1400                       /opt/hook/libintercept.so (deleted)
7ffd35400000-7ffd35421000 rw-p 00000000 00:00 0                          [stack]
"""
MAPS_NAMES = "/opt/hook/libintercept.so\n/usr/lib/libcuda.so.1\n"
STATUS = """Name:\tVLLM::Worker_TP
Umask:\t0022
State:\tD (disk sleep)
Tgid:\t7121
Ngid:\t0
Pid:\t7121
PPid:\t7100
NSpid:\t7121\t88
VmRSS:\t   40960 kB
Threads:\t41
"""
STAT = "7121 (VLLM::Worker (1)) D 7100 7121 7100 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 41 0 2472968 3133440 10 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
STACK = "[<0>] rwsem_down_read_slowpath+0x1f1/0x4e0\n[<0>] uvm_ioctl+0x10/0x20 [nvidia_uvm]\n"
SYSCALL = "202 0x7fa7d41bb000 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd354009c8 0x7fa7d43362ad\n"
UPTIME = " 10:12:10 up 6 days,  6:52,  1 user,  load average: 3.64, 2.66, 2.26\n"
PROC_STAT = "cpu  100 0 50 1000 0 0 0 0 0 0\ncpu0 100 0 50 1000 0 0 0 0 0 0\nintr 1 2 3\nbtime 1772460000\nprocesses 12\n"
PROMETHEUS = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a \\"b\\"\\\\c"} 3.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="a \\"b\\"\\\\c"} 77.0
"""
SCRAPES = """# sampled_at 2026-03-02T10:00:00Z
vllm:num_requests_running{engine="0"} 3.0
vllm:generation_tokens_total{engine="0"} 77.0
# sampled_at 2026-03-02T10:01:00Z
vllm:num_requests_running{engine="0"} 3.0
vllm:generation_tokens_total{engine="0"} 77.0
"""
GPU_CSV = """timestamp, index, name, uuid, pci.bus_id, utilization.gpu [%], power.draw [W], power.limit [W], temperature.gpu, clocks.current.sm [MHz], memory.used [MiB], memory.total [MiB], clocks_event_reasons.active
2026/03/02 10:01:30.000, 0, NVIDIA H200, GPU-aa, 00000000:19:00.0, 96 %, 115.50 W, 700.00 W, 41, 1980 MHz, 120000 MiB, 143771 MiB, 0x0000000000000004
2026/03/02 10:01:30.000, 1, NVIDIA H200, GPU-bb, 00000000:3B:00.0, [N/A], [N/A], [Not Supported], 40, [Unknown Error], [N/A], [N/A], 0x0000000000000000
"""
GPU_CSV_BARE = """utilization.gpu, power.draw, memory.used, clocks_throttle_reasons.hw_slowdown, clocks_throttle_reasons.sw_thermal_slowdown
96, 115.50, 1024, Active, Not Active
0, 70.10, 0, Not Active, Not Active
"""
COMPUTE_APPS = """pid, process_name, gpu_bus_id, used_gpu_memory [MiB]
7121, VLLM::Worker_TP1, 00000000:3B:00.0, 1024 MiB
7122, python -c a, b, 00000000:19:00.0, [N/A]
"""
DMON = """#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
 20260302   10:01:30      0    115     41     40     96      3      0      0      0      0   2619   1980
 20260302   10:01:30      1      -     40      -      0      0      0      0      0      0   2619    345
"""
GPU_TABLE = """Mon Mar  2 16:20:31 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 560.35.03              Driver Version: 560.35.03      CUDA Version: 12.6     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:19:00.0 Off |                    0 |
| N/A   41C    P0            115W /  700W |  120000MiB / 143771MiB |     96%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |                  N/A |
| N/A   52C    P0             15W /  N/A  | Not Supported          |     95%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
|   2  ERR!                           On  |   00000000:B3:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!             ERR! /  ERR! |        0MiB / 143771MiB |    ERR!      Default |
|                                         |                        |                 ERR! |
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A      7121      C   VLLM::Worker_TP0                         119000MiB |
+-----------------------------------------------------------------------------------------+
"""
GPU_LONG = """
==============NVSMI LOG==============

Timestamp                                 : Mon Mar  2 16:20:31 2026
Driver Version                            : 560.35.03
CUDA Version                              : 12.6

Attached GPUs                             : 2
GPU 00000000:19:00.0
    Product Name                          : NVIDIA H200
    GPU UUID                              : GPU-aa
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
        SW Thermal Slowdown               : Not Active
    FB Memory Usage
        Total                             : 143771 MiB
        Reserved                          : 500 MiB
        Used                              : 120000 MiB
    Utilization
        Gpu                               : 96 %
        Memory                            : 3 %
    Temperature
        GPU Current Temp                  : 41 C
        GPU Shutdown Temp                 : 92 C
    GPU Power Readings
        Power Draw                        : N/A
        Average Power Draw                : 115.50 W
        Current Power Limit               : 700.00 W
    Clocks
        Graphics                          : 1980 MHz
        SM                                : 1980 MHz
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 7121
            Type                          : C
            Name                          : VLLM::Worker_TP0
            Used GPU Memory               : 119000 MiB
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA H200
    Utilization
        Gpu                               : N/A
"""
GPU_FAULT = "Unable to determine the device handle for GPU3: 0000:3B:00.0: Unknown Error\n"
GPU_NONE = "No devices were found\n"
DMESG_ISO = """2026-03-02T16:20:30,000000+00:00 mlx5_core 0000:ab:00.0: Port module event: module 0, Cable unplugged
2026-03-02T16:20:31,123456+00:00 NVRM: Xid (PCI:0000:3b:00): 79, pid=7121, name=python3, GPU has fallen off the bus.
"""
DMESG_T = """[Mon Mar  2 16:20:30 2026] eth0: renamed from veth1
[Mon Mar  2 16:20:31 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=7121, name=python3, GPU has fallen off the bus.
"""
DMESG = """[    0.000000] Linux version 6.8.0-45-generic (buildd@host) (gcc 13.2.0)
[  100.250000] NVRM: Xid (PCI:0000:3b:00): 79, pid=7121, name=python3, GPU has fallen off the bus.
"""
DMESG_X = """kern  :notice: [    0.000000] Linux version 6.8.0-45-generic (buildd@host) (gcc 13.2.0)
kern  :err   : [  100.250000] NVRM: Xid (PCI:0000:3b:00): 79, pid=7121, name=python3, GPU has fallen off the bus.
"""
JOURNAL = """Mar 02 16:20:30 gpu-a kernel: docker0: port 1(veth1) entered blocking state
Mar 02 16:20:31 gpu-a kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=7121, name=python3, GPU has fallen off the bus.
"""
JOURNAL_MONO = """[  100.250000] gpu-a kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=7121, name=python3, GPU has fallen off the bus.
"""
JOURNAL_JSON = (
    json.dumps(
        {
            "__REALTIME_TIMESTAMP": "1772468431123456",
            "_SOURCE_MONOTONIC_TIMESTAMP": "100250000",
            "_TRANSPORT": "kernel",
            "_HOSTNAME": "gpu-a",
            "MESSAGE": "NVRM: Xid (PCI:0000:3b:00): 79, pid=7121, name=python3, GPU has fallen off the bus.",
        }
    )
    + "\n"
)
DMESG_JSON = json.dumps(
    {"dmesg": [{"pri": 3, "time": 100.25, "msg": "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a, GPU has fallen off the bus."}]}
)
MIXED = """Mar 02 16:20:29 gpu-a vllm[7100]: (Worker_TP1 pid=7121) INFO 03-02 16:20:29 [core.py:58] Initializing a V1 LLM engine
Mar 02 16:20:30 gpu-a vllm[7100]: (Worker_TP1 pid=7121) INFO 03-02 16:20:30 [core.py:59] Loading
Mar 02 16:20:31 gpu-a kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=7121, name=python3, GPU has fallen off the bus.
"""
RAS = """NCCL version 2.27.3 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  MISMATCH
    1         2         1         4         4         8   RUNNING      OK

Errors
======

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  6 ranks have launched up to operation 6650
  Rank 5 has launched up to operation 6640 -- GPU 1 managed by process 7121 on node 10.0.0.2
  Rank 6 has launched up to operation 6649 -- GPU 2 managed by process 7122 on node 10.0.0.2
  Communicator ranks have different Broadcast operation counts
  7 ranks have launched up to operation 9
  Rank 5 has launched up to operation 8 -- GPU 1 managed by process 7121 on node 10.0.0.2
"""
RAS_DEAD = """NCCL version 2.27.3 compiled with CUDA 12.9

Job summary
===========

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 7121 on node 10.0.0.3 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21
"""


def _ras_rank(rank: int, count: int) -> dict[str, object]:
    return {
        "rank": rank,
        "host": "10.0.0.2",
        "pid": 7120 + rank,
        "cuda_dev": rank,
        "nvml_dev": rank,
        "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False},
        "collective_counts": {"Broadcast": 3, "AllReduce": count},
    }


_RAS_DOC = {
    "nccl_version": "2.28.9",
    "cuda_runtime_version": 13000,
    "timestamp": "2026-03-02 16:20:31",
    "communicators_count": 1,
    "communicators": [
        {
            "hash": "0xae94423cfbb2ef4a",
            "size": 4,
            "ranks": [_ras_rank(0, 64), _ras_rank(1, 60)],
            "missing_ranks": [
                {"rank": 2, "host": 'a, "b" : {x}', "pid": 9, "status": {"unresponsive": True, "considered_dead": False}},
                {"rank": 3, "host": "h", "pid": 10, "status": {"unresponsive": True, "considered_dead": True}},
            ],
        }
    ],
}
RAS_JSON = json.dumps(_RAS_DOC, indent=2)
RAS_JSON_BROKEN = RAS_JSON.replace('        },\n        {\n          "rank": 3', '        }\n        {\n          "rank": 3')
assert RAS_JSON_BROKEN != RAS_JSON
FLIGHT_NCCL = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 9, "last_started_collective": 8, "last_completed_collective": 7}},
    "entries": [
        {
            "frames": [{"name": "forward", "filename": "/usr/lib/python3/dist-packages/torch/nn/m.py", "line": 12}],
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": n,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": 1772468431000000000 + n,
            "state": "completed" if n < 8 else "started" if n == 8 else "scheduled",
            "retired": n < 8,
            "is_p2p": False,
        }
        for n in (7, 8, 9)
    ],
}
FLIGHT_GLOO = {
    "version": "2.10",
    "pg_config": {"": {"name": "", "desc": "", "ranks": ""}},
    "pg_status": {"1": {"last_enqueued_collective": "4", "last_started_collective": "0", "last_completed_collective": "3"}},
    "entries": [
        {
            "pg_id": 1,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": n,
            "profiling_name": "gloo:all_reduce",
            "state": "scheduled",
            "retired": n < 4,
            "is_p2p": False,
        }
        for n in (3, 4)
    ],
}
IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tPort 1:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 400
\t\tBase lid: 65535
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tCA type: MT4129
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
"""
RDMA_LINK = """link mlx5_0/1 state DOWN physical_state DISABLED netdev ib0
link mlx5_1/1 subnet_prefix fe80:0000:0000:0000 lid 3 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP
"""
IBV = """hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tphys_port_cnt:\t\t\t1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t100.0 Gbps (128)
"""
PERFQUERY = """# Port counters: Lid 3 port 1 (CapMask: 0x5A00)
PortSelect:......................1
SymbolErrorCounter:..............12
LinkDownedCounter:...............2
PortXmitData:....................9981273312
"""
COUNTERS = """# sampled_at 2026-03-02T10:00:00Z
mlx5_0 port 1 link_downed 0
mlx5_0 port 1 port_xmit_data 100
# sampled_at 2026-03-02T10:01:00Z
mlx5_0 port 1 link_downed 1
mlx5_0 port 1 port_xmit_data 100
"""
COUNTER_PATHS = """/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:3
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence:7
"""
IP_LINK = """1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN mode DEFAULT group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
4: enp1s0f0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 9000 qdisc mq state DOWN mode DEFAULT group default qlen 1000
"""
DMESG_E = """[Mar 2 16:20] Linux version 6.8.0-45-generic (buildd@host) (gcc 13.2.0)
[  +0.250000] eth0: renamed from veth1
[ +31.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=7121, name=python3, GPU has fallen off the bus.
"""
BOOTS = """IDX BOOT ID                          FIRST ENTRY                 LAST ENTRY
 -1 0f0e0d0c0b0a09080706050403020100 Sun 2026-03-01 10:00:00 UTC Mon 2026-03-02 16:10:00 UTC
  0 1f0e0d0c0b0a09080706050403020100 Mon 2026-03-02 16:18:55 UTC Mon 2026-03-02 18:00:00 UTC
"""
DCGM = """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aa",pci_bus_id="00000000:19:00.0",device="nvidia0",modelName="NVIDIA H200",Hostname="x"} 96
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-bb",pci_bus_id="00000000:3B:00.0",device="nvidia1",modelName="NVIDIA H200",Hostname="x"} 140737488355328
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-aa",pci_bus_id="00000000:19:00.0",device="nvidia0",modelName="NVIDIA H200",Hostname="x"} 115.5
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-aa",pci_bus_id="00000000:19:00.0",device="nvidia0",modelName="NVIDIA H200",Hostname="x"} 1024
"""
GPU_LIST = """GPU 0: NVIDIA H200 (UUID: GPU-aa)
GPU 1: NVIDIA H200 (UUID: GPU-bb)
"""
NVLINK = """GPU 0: NVIDIA H200 (UUID: GPU-aa)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
"""
NVLINK_ERRORS = """GPU 0: NVIDIA H200 (UUID: GPU-aa)
\t Link 0: Replay Errors: 0
\t Link 0: CRC FLIT Errors: 3
"""
PODS = """# captured_at 2026-03-02T10:10:00Z
NAME        READY   STATUS             RESTARTS        AGE   IP
decode-0    1/1     Running            7 (10m ago)     24h   10.0.0.1
decode-1    0/1     CrashLoopBackOff   3 (30s ago)     24h   10.0.0.2
"""
DOCKER_PS = """CONTAINER ID   IMAGE              COMMAND                  CREATED       STATUS                       PORTS     NAMES
0a1b2c3d4e5f   vllm/vllm-openai   "vllm serve m --port…"   2 days ago    Exited (137) 3 minutes ago             vllm
1a1b2c3d4e5f   etcd:3.5           "etcd"                   2 days ago    Up 2 days                              etcd
"""
POD_BARE = "restartCount: 7\nstartedAt: 2026-03-02T10:00:00Z\npodCreated: 2026-03-01T10:00:00Z\n"
POD_YAML = """apiVersion: v1
kind: Pod
metadata:
  creationTimestamp: "2026-03-01T10:00:00Z"
  name: decode-0
spec:
  containers:
  - name: vllm
status:
  containerStatuses:
  - containerID: containerd://aa
    lastState:
      terminated:
        exitCode: 137
        finishedAt: "2026-03-02T09:59:00Z"
        reason: OOMKilled
        startedAt: "2026-03-01T10:00:10Z"
    name: vllm
    restartCount: 7
    started: true
    state:
      running:
        startedAt: "2026-03-02T10:00:00Z"
"""
POD_JSON = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "decode-0", "creationTimestamp": "2026-03-01T10:00:00Z"},
        "status": {
            "containerStatuses": [
                {
                    "name": "vllm",
                    "restartCount": 7,
                    "state": {"running": {"startedAt": "2026-03-02T10:00:00Z"}},
                    "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-03-02T09:59:00Z"}},
                }
            ]
        },
    }
)
DESCRIBE = """# captured_at 2026-03-02T10:10:00Z
Name:             decode-0
Namespace:        serving
Start Time:       Sun, 01 Mar 2026 10:00:00 +0000
Containers:
  vllm:
    State:          Running
      Started:      Mon, 02 Mar 2026 10:00:00 +0000
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Sun, 01 Mar 2026 10:00:10 +0000
      Finished:     Mon, 02 Mar 2026 09:59:00 +0000
    Ready:          True
    Restart Count:  7
Events:
  Type     Reason     Age                  From     Message
  ----     ------     ----                 ----     -------
  Warning  Unhealthy  5m (x3 over 12m)     kubelet  Liveness probe failed: HTTP probe failed with statuscode: 500
  Normal   Killing    90s                  kubelet  Container vllm failed liveness probe, will be restarted
"""
EVENTS = """LAST SEEN   TYPE      REASON      OBJECT         MESSAGE
5m12s       Warning   BackOff     pod/decode-0   Back-off restarting failed container
"""
EVENTS_BARE = "2026-03-02T10:00:09Z Warning Unhealthy Readiness probe failed\n2026-03-02T10:00:19Z Normal Killing pod/decode-0 Stopping container vllm\n"
DOCKER = json.dumps(
    [
        {
            "Id": "aa",
            "Created": "2026-03-01T10:00:00.5Z",
            "State": {
                "Status": "exited",
                "Running": False,
                "OOMKilled": True,
                "ExitCode": 137,
                "Error": "",
                "StartedAt": "2026-03-01T10:00:10Z",
                "FinishedAt": "2026-03-02T09:59:00Z",
            },
            "Name": "/vllm",
            "RestartCount": 0,
        }
    ],
    indent=4,
)
SHM = """total 161M
-rw------- 1 root root 161M Mar  2 10:00 psm_0a1b2c3d
-rw------- 1 root root  32M Mar  1  2025 nccl-AbCdEf
"""
SHM_FULL = """/dev/shm:
total 64
drwxrwxrwt 2 root root       360 2026-03-02 10:00:00.000000000 +0000 .
-rw------- 1 1000 1000 167772190 2026-03-02 10:00:00.637595096 +0000 a file with blanks
"""
PSTORE = """Panic#1 Part1
<4>[  100.250000] Kernel panic - not syncing: Fatal exception
"""
RANK_MAP = "rank 3 local_rank 3 pid 7121 pci 0000:3b:00.0\nrank: 4, host: gpu-b, gpu: 0, pid: 90\n"
ENV = "PATH=/usr/bin\nNCCL_DEBUG=INFO\nHF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345\nVLLM_API_KEY=abc\nMY_SECRET=1\n"
ENV_EXPORT = "declare -x LD_PRELOAD=\"/opt/hook/libintercept.so\"\nexport CUDA_VISIBLE_DEVICES='0,1'\n"
ENVIRON = "PATH=/usr/bin\0NCCL_DEBUG=INFO\0HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345\0"
LOG = "(EngineCore pid=7100) INFO 03-02 10:00:00 [core.py:58] Initializing a V1 LLM engine\n"
LOG_CURL = "http=503 t=2.104\n"

SAMPLES: tuple[tuple[str, str, str], ...] = tuple(
    (parser, name, text)
    for parser, entries in {
        "py-spy": [("a.txt", PYSPY), ("b.txt", "# captured_at 2026-03-02T10:00:00Z host gpu-b\n" + PYSPY)],
        "pystack": [("a.txt", PYSTACK)],
        "gdb": [("a.txt", GDB), ("b.txt", EU_STACK)],
        "py-spy top": [("a.txt", PYSPY_TOP)],
        "top": [("a.txt", TOP)],
        "ps": [("a.txt", PS_AUX), ("b.txt", PS_EF), ("c.txt", PS_EO), ("d.txt", "Mon Mar  2 16:20:31 UTC 2026\n" + PS_AUX)],
        "df": [("a.txt", DF_H), ("b.txt", DF_K), ("c.txt", DF_B)],
        "ss": [("a.txt", SS), ("b.txt", NETSTAT)],
        "limits": [("a.txt", LIMITS), ("b.txt", ULIMIT)],
        "meminfo": [("a.txt", MEMINFO), ("b.txt", FREE), ("c.txt", "# sampled_at 2026-03-02T10:00:00Z\n" + MEMINFO)],
        "maps": [("a.txt", MAPS), ("b.txt", MAPS_NAMES)],
        "proc": [("a.txt", STATUS), ("pid7121.b.txt", STAT), ("pid7121.c.txt", STACK), ("pid7121.d.txt", SYSCALL)],
        "uptime": [("a.txt", UPTIME), ("b.txt", PROC_STAT), ("uptime.txt", "2026-02-25 15:20:01\n"), ("c.txt", BOOTS)],
        "prometheus": [("a.txt", PROMETHEUS), ("b.txt", SCRAPES), ("c.txt", DCGM)],
        "nvidia-smi csv": [("a.csv", GPU_CSV), ("b.txt", GPU_CSV_BARE), ("c.txt", COMPUTE_APPS), ("d.txt", DMON)],
        "nvidia-smi links": [("a.txt", GPU_LIST), ("b.txt", NVLINK), ("c.txt", NVLINK_ERRORS)],
        "pod list": [("a.txt", PODS), ("b.txt", DOCKER_PS)],
        "nvidia-smi": [("a.txt", GPU_TABLE), ("b.txt", GPU_LONG), ("c.txt", GPU_FAULT), ("d.txt", GPU_NONE)],
        "kernel": [
            ("dmesg.txt", DMESG_ISO),
            ("a.txt", DMESG_T),
            ("b.txt", DMESG),
            ("c.txt", DMESG_X),
            ("dmesg.2.txt", DMESG_E),
            ("d.txt", JOURNAL),
            ("dmesg.1.txt", JOURNAL_MONO),
            ("e.txt", JOURNAL_JSON),
            ("f.txt", DMESG_JSON),
        ],
        "nccl ras": [("a.txt", RAS), ("b.txt", RAS_DEAD), ("c.txt", RAS_JSON), ("d.txt", RAS_JSON_BROKEN)],
        "flight recorder": [("rank_1.json", json.dumps(FLIGHT_NCCL)), ("rank_2.json", json.dumps(FLIGHT_GLOO))],
        "links": [
            ("a.txt", IBSTAT),
            ("b.txt", RDMA_LINK),
            ("c.txt", IBV),
            ("d.txt", PERFQUERY),
            ("e.txt", COUNTERS),
            ("f.txt", COUNTER_PATHS),
            ("g.txt", IP_LINK),
        ],
        "pods": [
            ("a.txt", POD_BARE),
            ("b.txt", POD_YAML),
            ("c.txt", POD_JSON),
            ("d.txt", DESCRIBE),
            ("e.txt", EVENTS),
            ("f.txt", EVENTS_BARE),
            ("g.txt", DOCKER),
        ],
        "shm": [("a.txt", SHM), ("b.txt", SHM_FULL)],
        "pstore": [("a.txt", PSTORE), ("pstore.txt", "(empty)\n")],
        "rank map": [("a.txt", RANK_MAP), ("b.txt", "rank 1 pid 7121\nrank 0 pid 7122\n")],
        "environ": [("a.txt", ENV), ("b.txt", ENV_EXPORT), ("environ", ENVIRON)],
        "health": [("a.txt", LOG_CURL)],
        "log": [("a.log", LOG), ("journal.txt", MIXED)],
    }.items()
    for name, text in entries
)
FLIGHT_PICKLE = pickle.dumps(FLIGHT_NCCL, protocol=2)
