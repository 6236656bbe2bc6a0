"""Processes: how they ended, what ran out, what state they are in."""

from __future__ import annotations

from tests.analysis import test_incidents, test_other_readings, test_ray_nodes
from tests.analysis.engines import test_sglang, test_trtllm
from tests.analysis.layers import test_process
from tests.rules.registry import of

FIXTURES = [
    of(
        test_process.test_descriptors_that_ran_out,
        {"fd-exhausted": "established"},
        also=["engine-died"],
        clear=["shm"],
        line="OSError: [Errno 24] Too many open files",
    ),
    of(test_process.test_a_warning_about_a_low_limit_is_no_exhaustion, also=["healthy-serving", "no-crash-found"], clear=["descriptors"]),
    of(test_process.test_semaphores_that_were_removed, {"ipc-objects-removed": "established"}, also=["worker-start-failed"]),
    of(
        test_process.test_shared_memory_that_is_full,
        {"shm-exhausted": "established"},
        also=["worker-start-failed"],
        line="OSError: [Errno 28] No space left on device: '/dev/shm/sgl_shm_mm_501_0'",
    ),
    of(
        test_process.test_leftovers_of_earlier_starts_are_the_root,
        {"shm-leak-across-restarts": "established"},
        also=["container-restarted", "shm-exhausted", "worker-start-failed"],
    ),
    of(
        test_process.test_a_full_disk_is_not_shared_memory,
        {"worker-start-failed": "established"},
        clear=["shm"],
        line="OSError: [Errno 28] No space left on device",
    ),
    of(
        test_process.test_a_library_between_nccl_and_the_driver,
        {"interposed-cuda-library": "established", "interposer-deadlock": "supported"},
        also=["comm-init-stuck", "no-crash-found", "startup-in-progress"],
        library="/usr/local/vgpu/libvgpu.so",
    ),
    of(test_process.test_an_allocator_that_is_preloaded_is_no_interposer, also=["healthy-serving", "no-crash-found"], clear=["interposer"]),
    of(
        test_process.test_a_segfault_in_the_kernel_log_names_rank_and_library,
        {"sigsegv": "established"},
        also=["engine-died", "worker-process-died"],
    ),
    of(
        test_process.test_what_the_machine_says_of_a_crash,
        {"native-crash": "established"},
        also=["engine-died", "worker-process-died"],
        line="Process 503 (VLLM::Worker_TP) of user 0 dumped core.",
        who="systemd-coredump[9120]",
        id="native-crash",
    ),
    of(test_process.test_a_segfault_of_another_program_is_not_ours, also=["healthy-serving", "no-crash-found"], clear=["native_crash"]),
    of(
        test_incidents.test_a_stopped_rank_is_the_root_and_the_spinning_one_its_victim,
        {
            "process-stopped": "established",
            "rank-not-responding": "established",
            "busy-spin": "established",
            "one-rank-not-in-collective": "supported",
            "engine-stalled": "established",
            "health-endpoint-misleading": "established",
        },
        also=["host-stable", "no-crash-found", "rank-divergence-collective"],
    ),
    of(
        test_incidents.test_a_process_in_uninterruptible_sleep_counts_when_it_stays_there,
        {"process-uninterruptible": "established"},
        also=[
            "engine-stalled",
            "health-endpoint-misleading",
            "host-stable",
            "no-crash-found",
            "rank-divergence-collective",
            "rank-not-responding",
        ],
    ),
    of(
        test_incidents.test_our_own_tracing_stop_is_not_a_stopped_process,
        also=["healthy-serving", "host-stable", "no-crash-found"],
        clear=["process_state"],
    ),
    of(
        test_incidents.test_a_worker_that_ends_first_is_the_root_and_its_teardown_is_not,
        {"worker-process-died": "established", "engine-died": "established"},
        also=["host-stable"],
    ),
    of(
        test_incidents.test_a_full_queue_on_the_output_rank_kills_and_is_the_root_not_its_empty_echo,
        {"bounded-queue-overflow": "established"},
        also=["engine-died", "host-stable"],
        clear=["worker_died"],
    ),
    of(
        test_incidents.test_an_exception_on_a_silent_rank_is_found_though_nobody_was_told,
        {"worker-exception-swallowed": "established"},
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "rank-divergence-collective"],
        clear=["bounded_queue"],
    ),
    of(
        test_incidents.test_a_rank_that_spins_while_nothing_is_outstanding_is_a_cost_not_a_fault,
        {"idle-cpu-spin": "established", "idle-healthy": "established"},
        also=["host-stable", "no-crash-found"],
    ),
    of(
        test_incidents.test_a_starting_engine_is_not_stalled,
        {"startup-in-progress": "established"},
        also=["host-stable", "no-crash-found", "symptom-shm-broadcast-wait"],
        clear=["engine_stalled"],
        healthy=True,
    ),
    of(
        test_incidents.test_an_idle_engine_is_idle_only_because_every_witness_agrees,
        {"idle-healthy": "established"},
        also=["host-stable", "no-crash-found"],
        clear=["busy_spin", "engine_stalled", "one_rank_outside", "rank_not_responding"],
        healthy=True,
    ),
    of(
        test_other_readings.test_the_idle_replica_is_not_blamed_for_the_busy_one,
        {"engine-stalled": "established"},
        also=["no-crash-found"],
        clear=["one_rank_outside"],
    ),
    of(
        test_other_readings.test_a_traceback_before_the_engine_was_ready_explains_nothing_later,
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "rank-divergence-collective"],
        clear=["worker_exception"],
    ),
    of(
        test_other_readings.test_a_health_check_that_timed_out_is_not_a_step_that_did,
        also=["healthy-serving", "no-crash-found"],
        clear=["symptoms"],
    ),
    of(
        test_sglang.test_a_second_life_after_a_crash,
        {"worker-exception-fatal": "established", "engine-died": "established"},
        also=["healthy-serving"],
    ),
    of(
        test_sglang.test_an_orderly_stop_is_no_crash,
        {"orderly-shutdown": "established"},
        also=["no-crash-found"],
        clear=["worker_died", "tool_self_kill"],
        healthy=True,
    ),
    of(
        test_sglang.test_a_watchdog_that_only_reports_leaves_the_engine_standing,
        also=["engine-stalled", "no-crash-found"],
        clear=["tool_self_kill"],
    ),
    of(test_trtllm.test_a_world_of_one_names_no_rank, {"tool-self-kill": "established"}, also=["engine-died", "engine-stalled"]),
    of(test_trtllm.test_a_rank_that_fails_in_the_start, {"gpu-oom": "established", "worker-start-failed": "established"}),
    of(
        test_ray_nodes.test_another_machines_raylet_explains_nothing,
        {"ray-actor-died": "established"},
        also=["engine-died"],
        clear=["ray_oom"],
    ),
    of(
        test_ray_nodes.test_the_raylet_of_the_lost_actors_machine_says_why,
        {"ray-oom-kill": "established", "ray-actor-died": "established"},
        also=["engine-died"],
    ),
    of(
        test_ray_nodes.test_the_crash_of_another_process_is_not,
        {"evidence-missing:raylet-log": "established"},
        also=["engine-died", "ray-actor-died"],
        clear=["native_crash"],
    ),
]
