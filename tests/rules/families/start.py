"""Starts, rendezvous and ports."""

from __future__ import annotations

from tests.analysis.collectives import test_replicas, test_start
from tests.analysis.mechanisms import test_mechanisms
from tests.analysis.vllm_versions import test_versions
from tests.rules.registry import of

FIXTURES = [
    of(
        test_start.test_a_port_of_our_own_that_is_taken_ends_the_start,
        {"address-in-use": "established", "worker-start-failed": "supported"},
    ),
    of(
        test_start.test_the_port_of_nccl_s_status_service_is_not_the_engine_s,
        {"nccl-ras-port-taken": "established", "startup-completed": "established", "healthy-serving": "established"},
        also=["no-crash-found"],
    ),
    of(
        test_start.test_a_port_that_was_tried_and_given_up_for_another_is_nothing,
        also=["healthy-serving", "no-crash-found"],
        clear=["address_in_use"],
    ),
    of(
        test_start.test_ranks_that_began_a_communicator_and_never_completed_it,
        {"comm-init-stuck": "established", "startup-in-progress": "supported"},
        also=["no-crash-found"],
    ),
    of(
        test_start.test_a_communicator_in_the_making_is_no_hang,
        {"startup-in-progress": "supported"},
        also=["no-crash-found"],
        clear=["comm_init"],
        healthy=True,
    ),
    of(
        test_start.test_a_first_relaunch_that_failed_and_a_second_that_worked,
        {"rendezvous-race-on-relaunch": "established", "rendezvous-peer-missing": "established"},
        also=["healthy-serving", "worker-start-failed"],
    ),
    of(
        test_start.test_a_relaunch_that_failed_for_want_of_memory_is_no_race,
        also=["gpu-oom", "healthy-serving", "worker-start-failed"],
        clear=["relaunch_race"],
    ),
    of(test_start.test_a_client_that_still_tries_is_no_failure, also=["healthy-serving", "no-crash-found"], clear=["rendezvous"]),
    of(
        test_start.test_a_rank_of_the_run_before_that_still_prints,
        {"orphan-rank-from-previous-run": "established"},
        also=["engine-died", "startup-in-progress", "symptom-shm-broadcast-wait"],
    ),
    of(test_start.test_a_world_of_one_node_lacks_no_other_node, {"rendezvous-peer-missing": "established"}, also=["worker-start-failed"]),
    of(
        test_replicas.test_a_container_that_gives_the_same_pids_again_has_no_orphans,
        also=["healthy-serving", "no-crash-found", "symptom-shm-broadcast-wait", "transient-stall-recovered"],
        clear=["orphan_rank"],
    ),
    of(
        test_replicas.test_an_engine_that_left_its_wave_while_a_peer_waits,
        {"dp-peer-missing-from-collective": "supported", "symptom-rpc-timeout": "established"},
        also=["engine-died", "engine-stalled"],
    ),
    of(
        test_replicas.test_engines_that_pause_together_are_idle, also=["healthy-serving", "no-crash-found"], clear=["dp_peer"], healthy=True
    ),
    of(
        test_mechanisms.test_shards_that_come_slowly_during_start_up,
        {"slow-weight-load": "established", "startup-in-progress": "supported"},
        also=["no-crash-found"],
    ),
    of(test_mechanisms.test_one_cold_shard_is_not_a_slow_load, also=["no-crash-found", "startup-in-progress"], clear=["weight_load"]),
    of(
        test_versions.test_a_healthy_log_full_of_scary_lines,
        also=["healthy-serving"],
        clear=["ray_actor_died", "worker_died", "worker_exception", "symptoms", "cuda_fault", "descriptors"],
        healthy=True,
    ),
    of(test_versions.test_an_older_front_that_ends_for_no_fault_was_stopped, {"orderly-shutdown": "established"}, also=["no-crash-found"]),
]
