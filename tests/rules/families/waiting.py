"""Who waits for whom inside a captured engine: locks, queues, rings, native code."""

from __future__ import annotations

from tests.analysis import test_native_rules, test_waits
from tests.analysis.mechanisms import test_stacks
from tests.rules.registry import of

FIXTURES = [
    of(
        test_waits.test_a_lock_deadlock_read_in_memory_is_a_cycle_and_established,
        {"circular-wait": "established", "lock-deadlock": "established"},
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "no-crash-found", "rank-divergence-collective"],
        kind="owner",
    ),
    of(
        test_waits.test_locks_in_an_engine_that_moves_claim_nothing,
        {"healthy-serving": "established"},
        also=["host-stable", "no-crash-found"],
        clear=["lock_deadlock", "circular_wait"],
        healthy=True,
    ),
    of(
        test_waits.test_a_put_into_a_full_queue_waits_for_its_consumer_which_waits_for_an_event,
        {"queue-at-capacity": "established"},
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "no-crash-found", "rank-divergence-collective"],
    ),
    of(
        test_waits.test_a_full_queue_whose_consumer_moves_is_back_pressure,
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "no-crash-found", "rank-divergence-collective"],
        clear=["queue_capacity"],
    ),
    of(
        test_waits.test_an_overlapping_pass_that_waits_at_a_single_slot_is_supported,
        {"execution-mode-incompatible": "supported"},
        also=[
            "engine-stalled",
            "health-endpoint-misleading",
            "host-stable",
            "no-crash-found",
            "queue-at-capacity",
            "rank-divergence-collective",
        ],
    ),
    of(
        test_waits.test_a_failure_behind_an_unfinished_result_is_shown_by_the_delivery_thread,
        {"failure-head-of-line-blocked": "established", "worker-exception-swallowed": "established"},
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "rank-divergence-collective", "rank-not-responding"],
    ),
    of(
        test_waits.test_with_nothing_queued_behind_the_result_no_failure_waits_there,
        also=[
            "engine-stalled",
            "health-endpoint-misleading",
            "host-stable",
            "rank-divergence-collective",
            "rank-not-responding",
            "worker-exception-swallowed",
        ],
        clear=["head_of_line"],
    ),
    of(
        test_waits.test_a_rank_that_moves_while_calls_wait_is_in_a_long_step,
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "no-crash-found", "rank-divergence-collective"],
        clear=["rank_not_responding"],
    ),
    of(
        test_waits.test_the_mode_in_force_outdoes_the_command_line_and_contradictions_are_not_established,
        {"execution-mode": "established"},
        also=["healthy-serving", "host-stable", "no-crash-found"],
    ),
    of(
        test_waits.test_a_refused_item_is_told_with_the_queue_s_capacity,
        {"bounded-queue-overflow": "established"},
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "rank-divergence-collective", "worker-exception-swallowed"],
    ),
    of(
        test_native_rules.test_a_gil_that_native_code_keeps_is_established_by_owner_and_waiter,
        {"gil-held": "established"},
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "no-crash-found", "rank-divergence-collective"],
    ),
    of(
        test_native_rules.test_a_gil_without_waiter_or_with_a_moving_owner_is_ordinary,
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "no-crash-found", "rank-divergence-collective"],
        clear=["gil_held"],
        change="nobody waits",
    ),
    of(
        test_native_rules.test_two_threads_in_nccl_s_launch_are_a_deadlock_of_the_host,
        {"nccl-host-enqueue-deadlock": "supported"},
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "no-crash-found"],
    ),
    of(
        test_native_rules.test_one_thread_in_nccl_s_launch_is_a_launch,
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "no-crash-found"],
        clear=["nccl_enqueue"],
        second="alone",
    ),
    of(
        test_native_rules.test_idle_workers_are_no_case_for_any_of_them,
        also=["host-stable", "idle-healthy", "no-crash-found"],
        clear=["gil_held", "nccl_enqueue"],
        healthy=True,
    ),
    of(
        test_native_rules.test_a_rank_that_waits_for_a_gpu_that_polls_is_supported_and_alone_the_root,
        {"gpu-kernel-not-terminating": "supported"},
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "no-crash-found", "rank-not-responding"],
    ),
    of(
        test_stacks.test_a_grammar_that_a_helper_thread_compiles_while_all_wait_is_why_they_wait,
        {"grammar-compile-blocking": "established"},
        also=["engine-alive-not-progressing", "no-crash-found"],
    ),
    of(
        test_stacks.test_a_grammar_that_a_helper_thread_compiles_while_all_wait_is_why_they_wait,
        also=["healthy-serving", "no-crash-found"],
        clear=["grammar_compile"],
        nth=2,
    ),
]
