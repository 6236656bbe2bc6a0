"""GPUs, their memory, the bus below them."""

from __future__ import annotations

from tests.analysis import test_gpu_kernel_folder
from tests.analysis.layers import test_gpu
from tests.analysis.vllm_versions import test_posted
from tests.rules.registry import of

FIXTURES = [
    of(
        test_gpu.test_a_fault_at_the_onset_is_the_root_at_the_rank_of_its_gpu,
        {"gpu-off-bus": "established"},
        also=["engine-stalled", "no-crash-found", "symptom-shm-broadcast-wait"],
        clear=["bus_and_nic", "host_stable"],
        id="gpu-off-bus",
    ),
    of(
        test_gpu.test_a_fault_at_the_onset_is_the_root_at_the_rank_of_its_gpu,
        {"gpu-mmu-fault": "established"},
        also=["engine-stalled", "no-crash-found", "symptom-shm-broadcast-wait"],
        id="gpu-mmu-fault",
    ),
    of(
        test_gpu.test_a_fault_at_the_onset_is_the_root_at_the_rank_of_its_gpu,
        {"gpu-ecc-contained": "established"},
        also=["engine-stalled", "no-crash-found", "symptom-shm-broadcast-wait"],
        id="gpu-ecc-contained",
    ),
    of(
        test_gpu.test_a_fault_at_the_onset_is_the_root_at_the_rank_of_its_gpu,
        {"gpu-hardware-failure": "established"},
        also=["engine-stalled", "no-crash-found", "symptom-shm-broadcast-wait"],
        id="gpu-hardware-failure",
    ),
    of(
        test_gpu.test_a_fault_at_the_onset_is_the_root_at_the_rank_of_its_gpu,
        {"gpu-nvlink-fault": "established"},
        also=["engine-stalled", "no-crash-found", "symptom-shm-broadcast-wait"],
        id="gpu-nvlink-fault",
    ),
    of(
        test_gpu.test_a_fault_at_the_onset_is_the_root_at_the_rank_of_its_gpu,
        {"gpu-xid": "established"},
        also=["engine-stalled", "no-crash-found", "symptom-shm-broadcast-wait"],
        id="gpu-xid",
    ),
    of(
        test_gpu.test_a_fatal_bus_error_alone,
        {"pcie-aer-fatal": "established"},
        also=["engine-stalled", "no-crash-found", "symptom-shm-broadcast-wait"],
    ),
    of(
        test_gpu.test_noise_of_a_healthy_machine_is_no_fault,
        {"healthy-serving": "established", "host-stable": "established"},
        also=["no-crash-found"],
        clear=["gpu_fault", "bus_and_nic", "task_blocked", "host_silent"],
        healthy=True,
        noise="EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    ),
    of(
        test_gpu.test_an_illegal_access_while_it_is_torn_down_is_not_the_root,
        {"cuda-illegal-access": "established", "worker-process-died": "established"},
        also=["engine-died"],
    ),
    of(
        test_gpu.test_a_launch_that_failed_because_the_gpu_was_lost_is_no_illegal_access,
        {"gpu-off-bus": "established"},
        also=["engine-died", "worker-process-died"],
        clear=["cuda_fault"],
    ),
    of(test_gpu.test_gpu_memory_that_ran_out_ends_the_engine, {"gpu-oom": "established"}, also=["engine-died"], clear=["host_oom"]),
    of(
        test_gpu.test_advice_is_no_fault,
        also=["engine-died"],
        clear=["cuda_fault", "gpu_oom"],
        advice="For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    ),
    of(
        test_gpu.test_a_start_on_a_gpu_that_was_lost_before,
        {"relaunch-on-faulted-fabric": "established"},
        also=["engine-died", "engine-stalled", "gpu-off-bus", "symptom-shm-broadcast-wait"],
    ),
    of(
        test_gpu.test_a_machine_that_was_booted_in_between_is_healed,
        also=["engine-died", "engine-stalled", "gpu-off-bus", "symptom-shm-broadcast-wait"],
        clear=["relaunch_on_fault"],
    ),
    of(
        test_gpu.test_a_stop_that_was_asked_for_is_no_trouble,
        {"orderly-shutdown": "established"},
        also=["healthy-serving", "no-crash-found"],
        clear=["engine_died"],
        healthy=True,
    ),
    of(
        test_gpu_kernel_folder.test_busy_at_a_third_of_the_power_it_drew_is_a_kernel_that_does_not_end,
        {"gpu-kernel-not-terminating": "supported"},
        also=["engine-stalled", "no-crash-found"],
    ),
    of(
        test_gpu_kernel_folder.test_what_merely_looks_like_it_is_not_claimed,
        also=["engine-stalled", "no-crash-found"],
        clear=["gpu_kernel"],
        watts=("52.00 W", "50.00 W", "51.00 W"),
        options={},
    ),
    of(test_posted.test_an_assertion_in_a_kernel_is_the_root, {"cuda-device-assert": "established"}),
]
