"""Ranks that stand at different places, and what their libraries say of it."""

from __future__ import annotations

from tests.analysis import test_posted_reports
from tests.analysis.collectives import test_counts, test_dp_cores, test_odd_one_out, test_watchdog
from tests.rules.registry import of

FIXTURES = [
    of(test_watchdog.test_torch_s_own_comparison_establishes_it, {"rank-divergence-collective": "established"}, also=["no-crash-found"]),
    of(
        test_watchdog.test_with_every_rank_of_the_world_counted_it_is_established,
        {"nccl-watchdog-timeout": "established", "rank-behind-in-collective": "established"},
        also=["no-crash-found"],
    ),
    of(
        test_watchdog.test_a_monitored_barrier_names_who_did_not_come, {"rank-behind-in-collective": "established"}, also=["no-crash-found"]
    ),
    of(
        test_watchdog.test_ranks_that_stand_level_name_nobody,
        {"nccl-watchdog-timeout": "established"},
        also=["engine-stalled", "no-crash-found"],
        clear=["divergence", "rank_behind"],
    ),
    of(
        test_watchdog.test_a_stuck_watchdog_began_its_limit_earlier,
        {"heartbeat-monitor-abort": "established", "engine-died": "established"},
    ),
    of(
        test_watchdog.test_ray_s_channel_timeout_began_its_limit_earlier,
        {"symptom-ray-channel-timeout": "established"},
        also=["engine-died"],
    ),
    of(test_watchdog.test_nccl_s_remote_errors_are_symptoms, {"symptom-nccl-remote-error": "established"}, also=["no-crash-found"]),
    of(test_watchdog.test_lost_peers_are_symptoms_with_their_began, {"symptom-peer-loss": "established"}, also=["no-crash-found"]),
    of(
        test_watchdog.test_a_plain_shutdown_is_no_lost_peer,
        also=["healthy-serving", "no-crash-found"],
        clear=["symptoms_collective", "engine_died"],
    ),
    of(
        test_counts.test_two_equal_reports_are_enough_without_a_log_that_says_so,
        {"rank-behind-in-collective": "established", "rank-divergence-collective": "established"},
        also=["healthy-serving", "no-crash-found"],
    ),
    of(
        test_counts.test_two_reports_of_a_job_that_moves_say_nothing,
        also=["healthy-serving", "no-crash-found"],
        clear=["rank_behind", "divergence"],
        healthy=True,
    ),
    of(
        test_dp_cores.test_the_replica_that_never_came,
        {"dp-peer-missing-from-collective": "established"},
        also=["engine-stalled", "no-crash-found"],
        outside={1},
        minutes=(4, 5),
        grade="established",
    ),
    of(
        test_odd_one_out.test_a_lone_rank_is_named_and_a_tie_is_not,
        {"rank-divergence-batch": "established"},
        also=["engine-stalled", "no-crash-found"],
        last=[7, 7, 6, 7],
        named=2,
    ),
    of(
        test_odd_one_out.test_steps_of_another_run_with_the_same_numbers_are_not_compared,
        also=["engine-stalled", "no-crash-found"],
        clear=["rank_batch"],
    ),
    of(
        test_posted_reports.test_a_segment_that_cuda_refused_does_not_fill_shared_memory,
        {"symptom-nccl-error": "established"},
        clear=["shm"],
    ),
]
