"""What slows a machine down: heat, power, processors that are waited for, clocks that nobody keeps."""

from __future__ import annotations

from tests.analysis import test_clock_unsynchronised, test_hardware_pace
from tests.rules.registry import of

FIXTURES = [
    of(
        test_hardware_pace.test_a_power_brake_is_an_amplifier_with_its_rank_and_figures,
        {"power-brake": "established"},
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "no-crash-found", "rank-divergence-collective"],
    ),
    of(
        test_hardware_pace.test_a_cap_under_full_load_is_context,
        {"power-capped": "established"},
        also=["healthy-serving", "host-stable", "no-crash-found"],
    ),
    of(
        test_hardware_pace.test_reasons_that_nobody_read_are_no_all_clear,
        also=["healthy-serving", "host-stable", "no-crash-found"],
        unclear={"gpu_power": ("gpu",)},
    ),
    of(
        test_hardware_pace.test_a_host_that_is_hotter_than_its_gpus_points_at_the_host_s_side,
        {"thermal-high": "established"},
        also=["healthy-serving", "host-stable", "no-crash-found"],
    ),
    of(
        test_hardware_pace.test_a_broken_sensor_is_not_hot,
        also=["healthy-serving", "host-stable", "no-crash-found"],
        clear=["thermal_high"],
        healthy=True,
    ),
    of(
        test_hardware_pace.test_a_rank_that_waits_for_a_processor_is_named_and_is_no_root,
        {"cpu-pressure": "established"},
        also=["engine-stalled", "health-endpoint-misleading", "host-stable", "no-crash-found", "rank-divergence-collective"],
    ),
    of(
        test_hardware_pace.test_a_rank_that_gets_its_processor_refutes_what_the_host_s_pressure_suggests,
        also=["healthy-serving", "host-stable", "no-crash-found"],
        clear=["cpu_pressure"],
        healthy=True,
        nth=2,
    ),
    of(
        test_hardware_pace.test_nobody_read_who_waits,
        {"healthy-serving": "established"},
        also=["host-stable", "no-crash-found"],
        unclear={"cpu_pressure": ("/proc/pressure/cpu", "schedstat of the engine's threads")},
        healthy=True,
    ),
    of(
        test_hardware_pace.test_the_kernel_s_word_on_heat_counts_around_the_incident_only,
        {"thermal-throttled": "established"},
        also=["healthy-serving", "host-stable", "no-crash-found"],
        clear=["gpu_power"],
        nth=2,
    ),
    of(
        test_clock_unsynchronised.test_a_step_while_the_engine_ran_is_established,
        {"clock-unsynchronised": "established"},
        also=["healthy-serving", "host-stable", "no-crash-found"],
    ),
    of(
        test_clock_unsynchronised.test_clocks_of_bare_logs_were_not_recorded,
        {"clock-unsynchronised": "possible"},
        also=["healthy-serving", "no-crash-found"],
    ),
    of(
        test_clock_unsynchronised.test_one_node_has_one_clock,
        also=["healthy-serving", "host-stable", "no-crash-found"],
        clear=["clock_unsynchronised"],
    ),
]
