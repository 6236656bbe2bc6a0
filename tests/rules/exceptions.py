"""What has no fixture, and why. Short, or it is no exception."""

from __future__ import annotations

NEVER_CLEAR = {
    "execution_mode": "where nothing tells the mode it cannot tell either, and else it tells the mode",
    "fabric": "where nothing speaks of a fabric the question does not arise; counters that did not move are a finding, refuted",
    "memory_exhaustion": "memory that did not run out is a finding, refuted, with the figures",
    "patch": "it is asked only where somebody names patches, and each of them is live, absent or unreadable",
}
NEVER_INCONCLUSIVE = {
    "container": "it reads what a platform says of its containers, and without that the question does not arise",
    "dp_peer": "where neither logs nor stacks were read no second replica is known",
    "evidence_missing": "it tells what others lack",
    "patch": "a process that could not be asked is a finding of its own: unreadable",
}
NOT_RECORDED = {
    "container": "no container platform runs with the tests",
    "dp_peer": "the toy engine has one replica",
    "execution_mode": "the toy engine has one way to run its steps",
    "fabric": "no RDMA port is there to be recorded",
    "gpu_power": "no GPU is there to be recorded",
    "thermal_high": "the machine that recorded shows no sensor",
}
NO_FIXTURE_FIRES: dict[str, str] = {}
"""Finding id to why nothing here makes it."""
WITHOUT_WHAT_CONTRADICTS: dict[str, dict[str, str]] = {
    "a_launch_that_failed_because_the_gpu_was_lost_is_no_illegal_access": {
        "cuda-illegal-access": "the line is a launch that failed; that the GPU was lost before is in the kernel's log alone"
    },
    "a_previous_boot_is_no_silence_of_a_machine_that_writes_again": {
        "host-stopped-logging": "that the machine writes again is in the log that is taken away"
    },
    "ports_that_come_up_while_the_machine_boots_are_not_told": {
        "rdma-port-down": "the port was down and came back; that no engine ran yet is in the engine's log alone"
    },
    "a_rank_that_spins_while_nothing_is_outstanding_is_a_cost_not_a_fault": {
        "busy-spin": "the same spinning; that the engine is idle is in its counters alone"
    },
    "a_starting_engine_is_not_stalled": {"engine-stalled": "that it starts is in its log alone: supported, never established"},
    "another_machines_raylet_explains_nothing": {"ray-oom-kill": "true of the machine whose log is left, and then it is the only one"},
    "recorded-slow": {"busy-spin": "one source saw the thread a little below the limit, the other a little above"},
    "locks_in_an_engine_that_moves_claim_nothing": dict.fromkeys(
        ("circular-wait", "lock-deadlock", "rank-divergence-collective", "engine-stalled", "health-endpoint-misleading"),
        "the scene is a contradiction by intent: threads in a circle of locks in every look, and counters that move",
    ),
    "with_nothing_queued_behind_the_result_no_failure_waits_there": {
        "failure-head-of-line-blocked": "that nothing is queued there is in the live objects alone"
    },
    "a_rank_that_moves_while_calls_wait_is_in_a_long_step": dict.fromkeys(
        ("engine-stalled", "rank-not-responding", "health-endpoint-misleading"),
        "that the rank moves is in its stacks alone: supported, never established",
    ),
}
"""Fixture to findings that are more than possible when the one source that contradicts them is taken away, and why it must be so."""
