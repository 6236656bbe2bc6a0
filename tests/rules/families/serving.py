"""Progress, load, restarts and transfers, as logs tell them."""

from __future__ import annotations

from tests.analysis.logs import test_clock_offset
from tests.analysis.mechanisms import test_backlog, test_mechanisms, test_queues, test_recovered, test_restarts, test_transfers
from tests.rules.registry import of

FIXTURES = [
    of(
        test_queues.test_a_prompt_that_needs_more_than_the_whole_cache_is_told_with_both_numbers,
        {
            "scheduler-head-of-line-unschedulable": "established",
            "engine-alive-not-progressing": "established",
            "load-at-onset": "established",
        },
        also=["no-crash-found"],
    ),
    of(test_queues.test_an_engine_that_was_put_to_sleep_lets_nobody_in_on_purpose, also=["no-crash-found"], clear=["scheduler_waiting"]),
    of(
        test_queues.test_requests_that_wait_behind_others_are_no_standstill,
        {"queue-waiting-behind-capacity": "possible"},
        also=["healthy-serving", "no-crash-found"],
        clear=["scheduler_waiting", "engine_stalled"],
        healthy=True,
    ),
    of(
        test_queues.test_a_burst_that_is_let_in_at_once_is_not_even_a_queue,
        also=["healthy-serving", "no-crash-found"],
        clear=["queue_waiting", "recovered", "load"],
        healthy=True,
    ),
    of(
        test_queues.test_slow_with_a_queue_behind_it_moves_all_the_same,
        {"slow-progress": "established"},
        also=["no-crash-found", "queue-waiting-behind-capacity"],
    ),
    of(
        test_queues.test_a_long_prompt_is_computed,
        {"long-prefill": "established"},
        also=["no-crash-found"],
        clear=["engine_stalled"],
        healthy=True,
    ),
    of(test_queues.test_a_long_prompt_in_sglang, {"long-prefill": "established"}, also=["no-crash-found"], healthy=True),
    of(
        test_queues.test_an_idle_log_says_nothing,
        also=["healthy-serving", "no-crash-found"],
        clear=["engine_stalled", "scheduler_waiting"],
        healthy=True,
    ),
    of(
        test_backlog.test_a_queue_of_minutes_before_a_standstill,
        {"backlog-before-onset": "established", "engine-stalled": "supported"},
        also=["no-crash-found"],
    ),
    of(
        test_backlog.test_without_trouble_a_queue_is_only_a_queue,
        {"queue-waiting-behind-capacity": "possible"},
        also=["healthy-serving", "no-crash-found"],
        clear=["load"],
        healthy=True,
    ),
    of(
        test_recovered.test_both_edges_are_told_and_the_verdict_is_the_present,
        {"transient-stall-recovered": "established", "symptom-shm-broadcast-wait": "established"},
        also=["healthy-serving", "no-crash-found"],
    ),
    of(
        test_recovered.test_a_kernel_compiled_in_passing_is_a_circumstance,
        {"jit-compile-during-serving": "established"},
        also=["healthy-serving", "no-crash-found"],
    ),
    of(
        test_recovered.test_kernels_compiled_at_start_up_are_not_told,
        {"healthy-serving": "established"},
        also=["no-crash-found"],
        clear=["jit_compile"],
        healthy=True,
    ),
    of(
        test_recovered.test_an_engine_that_went_idle_prints_nothing_and_stood_not_still,
        also=["healthy-serving", "no-crash-found"],
        clear=["recovered"],
        healthy=True,
    ),
    of(
        test_restarts.test_an_engine_that_was_well_is_restarted_for_it,
        {"healthy-engine-restarted": "established", "health-probe-timeout-under-load": "established"},
        also=["container-restarted", "healthy-serving", "no-crash-found"],
        signal=True,
    ),
    of(
        test_restarts.test_a_restart_without_a_failed_probe_is_somebody_s_wish,
        also=["healthy-serving", "no-crash-found"],
        clear=["restarted_healthy"],
    ),
    of(
        test_restarts.test_an_engine_that_stood_still_was_restarted_with_reason,
        {"engine-stalled": "established"},
        also=["healthy-serving", "no-crash-found"],
        clear=["restarted_healthy", "health_misleading", "container"],
    ),
    of(
        test_transfers.test_blocks_that_nobody_fetched_and_requests_that_wait_for_them,
        {"scheduler-parked-on-kv-load": "supported", "kv-transfer-not-retrieved": "established"},
        also=["engine-alive-not-progressing", "healthy-serving", "no-crash-found"],
        line="Request {} timed out after 480 seconds without being sent. Freeing its blocks on the producer side.",
        limit=480,
    ),
    of(
        test_transfers.test_a_disconnect_says_that_the_peer_is_lost_and_not_why,
        {
            "kv-transfer-peer-gone": "supported",
            "symptom-peer-loss": "established",
            "evidence-missing:stacks": "established",
            "evidence-missing:metrics": "established",
            "evidence-missing:process": "established",
            "evidence-missing:kernel": "established",
            "evidence-missing:memory": "established",
            "evidence-missing:cpu": "established",
        },
        also=["engine-died"],
    ),
    of(
        test_transfers.test_a_transfer_that_raised_on_the_sending_side,
        {"kv-sender-failed": "established"},
        unclear={"crashes": ("the rest of the log",)},
    ),
    of(
        test_transfers.test_what_sglang_says_of_a_transfer,
        {"kv-receiver-waits-forever": "established"},
        also=["no-crash-found"],
        message="Request 4711 waiting_timeout",
        id="kv-receiver-waits-forever",
        grade="established",
    ),
    of(
        test_transfers.test_blocks_that_were_fetched_by_some_are_not_told, also=["healthy-serving", "no-crash-found"], clear=["kv_transfer"]
    ),
    of(
        test_transfers.test_blocks_that_never_come_back,
        {"kv-blocks-not-freed-after-abort": "supported"},
        also=["healthy-serving", "no-crash-found"],
    ),
    of(test_transfers.test_blocks_that_wait_to_be_fetched_are_not_lost, also=["healthy-serving", "no-crash-found"], clear=["kv_not_freed"]),
    of(
        test_mechanisms.test_it_ends_in_a_timeout_of_a_raised_limit,
        {
            "time-limit-raised": "established",
            "grammar-spec-livelock": "supported",
            "grammar-matcher-after-termination": "established",
            "symptom-rpc-timeout": "established",
        },
        also=["engine-died", "engine-stalled", "symptom-shm-broadcast-wait"],
    ),
    of(test_mechanisms.test_a_limit_at_its_default_was_not_raised, also=["engine-stalled", "no-crash-found"], clear=["time_limits"]),
    of(test_mechanisms.test_a_warning_long_before_a_stall_is_not_its_cause, also=["engine-stalled", "no-crash-found"], clear=["grammar"]),
    of(
        test_mechanisms.test_a_lease_that_was_given_up,
        {"control-plane-lease-lost": "established"},
        also=["healthy-serving", "no-crash-found"],
        unclear={"busy_spin": ("cpu",), "cpu_saturated": ("cpu",), "one_rank_outside": ("cpu", "gpu"), "thermal_high": ("thermal", "gpu")},
    ),
    of(test_mechanisms.test_a_lease_that_is_tried_again_is_not_lost, also=["no-crash-found"], clear=["control_plane"]),
    of(
        test_mechanisms.test_experts_that_waited_name_themselves_and_not_the_one_that_did_not_come,
        {"deepep-dispatch-timeout": "established"},
        also=["healthy-serving", "no-crash-found"],
        line="DeepEP timeout check failed: rank = 5, thread = 2, value = 1024)",
    ),
    of(
        test_mechanisms.test_an_idle_process_that_sleeps_does_not_spin,
        also=["idle-healthy", "no-crash-found"],
        clear=["busy_spin"],
        healthy=True,
    ),
    of(
        test_clock_offset.test_a_zone_apart_is_said_and_events_are_dated_by_one_clock,
        {"log-clock-offset": "established"},
        also=["engine-died"],
        outer="docker",
    ),
]
