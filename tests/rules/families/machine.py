"""The machine: its kernel, memory, network, heat, and the containers on it."""

from __future__ import annotations

from tests.analysis import test_circumstances, test_claims, test_nodes, test_posted_reports
from tests.analysis.layers import test_afterwards, test_machine, test_network, test_oom
from tests.rules.registry import of

FIXTURES = [
    of(
        test_machine.test_a_failed_allocation_on_a_machine_that_goes_on_is_a_circumstance,
        {"driver-alloc-failure": "established"},
        also=["healthy-serving", "no-crash-found"],
        clear=["host_silent"],
    ),
    of(
        test_machine.test_the_driver_without_memory_just_before_points_at_shared_memory,
        {"host-wedge-unified-memory": "supported", "host-stopped-logging": "established"},
        also=["driver-alloc-failure", "healthy-serving", "no-crash-found"],
        unclear={"memory_exhaustion": ("a second sample",)},
    ),
    of(
        test_machine.test_all_logs_of_a_machine_stop_and_it_was_booted_again,
        {"host-stopped-logging": "established"},
        also=["healthy-serving", "no-crash-found"],
        clear=["driver_alloc", "host_oom", "host_stable"],
    ),
    of(
        test_machine.test_a_panic_is_told_by_the_kernel_or_by_what_the_firmware_kept,
        {"kernel-panic": "established"},
        also=["healthy-serving"],
        where="kernel",
    ),
    of(
        test_machine.test_trouble_without_a_finding_of_its_own_still_counts_against_a_stable_host,
        {"kernel-task-blocked": "established"},
        also=["healthy-serving", "no-crash-found"],
        clear=["host_stable"],
    ),
    of(
        test_machine.test_trouble_without_a_finding_of_its_own_still_counts_against_a_stable_host,
        {"kernel-lockup": "established"},
        also=["healthy-serving", "no-crash-found"],
        nth=3,
    ),
    of(
        test_machine.test_a_follower_that_is_silent_while_it_serves_is_not_missed,
        also=["healthy-serving", "host-stable", "no-crash-found"],
        unclear={
            "engine_stalled": ("metrics", "stacks"),
            "serving": ("metrics",),
            "recovered": ("metrics",),
            "kv_not_freed": ("metrics",),
            "health_misleading": ("metrics",),
        },
    ),
    of(
        test_afterwards.test_a_log_that_stops_at_work_as_its_container_ends_is_of_an_engine_that_died,
        {"container-restarted": "established", "engine-died": "established"},
        clear=["host_oom", "crashes"],
        unclear={"execution_mode": ("live objects of the core", "stacks of every worker")},
        code="137",
    ),
    of(
        test_afterwards.test_a_service_that_a_guard_of_memory_ended_is_told_though_it_came_back,
        {"host-oom-kill": "established"},
        also=["healthy-serving"],
    ),
    of(
        test_afterwards.test_a_previous_boot_is_no_silence_of_a_machine_that_writes_again,
        also=["healthy-serving", "no-crash-found"],
        clear=["host_silent"],
    ),
    of(
        test_network.test_a_card_that_stopped_answering,
        {"nic-lost": "established"},
        also=["engine-stalled", "no-crash-found", "symptom-shm-broadcast-wait"],
        line="mlx5_core 0000:d2:00.0: poll_health:836:(pid 0): Fatal error 3 detected",
    ),
    of(
        test_network.test_a_port_that_stays_down_is_the_root,
        {"rdma-port-down": "established"},
        also=["engine-stalled", "no-crash-found", "symptom-shm-broadcast-wait"],
    ),
    of(
        test_network.test_ports_that_come_up_while_the_machine_boots_are_not_told,
        also=["healthy-serving", "no-crash-found"],
        clear=["rdma_port"],
    ),
    of(
        test_network.test_counters_that_moved_establish_it,
        {"fabric-fault": "established"},
        also=["engine-stalled", "no-crash-found", "symptom-shm-broadcast-wait"],
    ),
    of(
        test_network.test_counters_that_stayed_refute_a_fault_of_the_fabric,
        also=["engine-stalled", "no-crash-found", "symptom-shm-broadcast-wait"],
    ),
    of(
        test_oom.test_a_kill_after_the_engine_s_end_is_not_the_root,
        {"host-oom-kill": "established", "memory-exhaustion": "established"},
        also=["engine-died", "worker-process-died"],
    ),
    of(test_oom.test_ray_s_summary_is_established, {"ray-oom-kill": "established"}, also=["engine-died"]),
    of(test_oom.test_ray_s_own_line_and_not_its_guess, also=["engine-died"], clear=["ray_oom", "native_crash"]),
    of(
        test_claims.test_error_counters_that_are_not_zero_and_were_first_read_in_the_trouble_refute_nothing,
        also=["engine-stalled", "no-crash-found", "symptom-shm-broadcast-wait"],
        unclear={"fabric": ("the same counters from before",)},
    ),
    of(
        test_claims.test_memory_that_was_read_after_the_end_refutes_nothing,
        also=["engine-died", "worker-process-died"],
        unclear={"memory_exhaustion": ("memory in the minutes before",)},
    ),
    of(
        test_claims.test_a_crash_elsewhere_is_as_certain_as_the_crash,
        {"crash-on-other-node": "supported", "engine-died": "supported"},
        also=["healthy-serving"],
    ),
    of(
        test_circumstances.test_cpu_saturation_is_measured_over_the_capture,
        {"cpu-saturated": "established"},
        also=["healthy-serving", "host-stable", "no-crash-found"],
        busy=198,
        load=40.0,
        grade="established",
    ),
    of(
        test_circumstances.test_cpu_saturation_is_measured_over_the_capture,
        also=["healthy-serving", "host-stable", "no-crash-found"],
        clear=["cpu_saturated"],
        healthy=True,
        busy=100,
        load=40.0,
        grade=None,
    ),
    of(
        test_circumstances.test_throttling_counts_only_when_it_grew_during_the_capture,
        also=["healthy-serving", "host-stable", "no-crash-found"],
        clear=["thermal_high"],
        healthy=True,
    ),
    of(
        test_circumstances.test_throttling_counts_only_when_it_grew_during_the_capture,
        {"thermal-throttled": "established"},
        also=["healthy-serving", "host-stable", "no-crash-found"],
        nth=2,
    ),
    of(
        test_circumstances.test_memory_that_ran_out_is_an_amplifier_and_never_the_root,
        {"memory-exhaustion": "established"},
        also=["engine-stalled", "health-endpoint-misleading", "host-oom-kill", "rank-divergence-collective"],
    ),
    of(test_nodes.test_heat_is_told_without_an_engine, {"thermal-high": "established"}),
    of(
        test_nodes.test_a_kernel_log_alone_still_says_whether_the_machine_is_sound,
        {"host-stable": "established"},
        unclear={
            "address_in_use": ("log",),
            "comm_init": ("log", "stacks"),
            "control_plane": ("log",),
            "device_assert": ("log",),
            "rendezvous": ("log",),
            "symptoms_collective": ("log",),
            "log_clock_offset": ("log",),
        },
    ),
    of(test_posted_reports.test_what_the_platform_did_is_told_where_no_engine_was_heard, {"pod-evicted": "established"}),
]
