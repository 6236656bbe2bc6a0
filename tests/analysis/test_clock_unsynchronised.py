"""May times of several nodes be compared?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forensics.analysis import analyze
from tests.analysis.conftest import Told
from tests.analysis.scene import T0, Scene
from tests.bench.bench_fleet import fleet

TRACKED = "C0000201,192.0.2.1,3,1788256000.1,{off},0.0001,0.0002,-1.1,0.0,0.1,0.002,{dispersion},64.2,{leap}\n"


def clock(s: Scene, adjtimex: dict | None, chronyc: str | None = None) -> None:
    state = {"wall_ns": T0, "boottime_ns": 10**15, "utc_offset_s": 0, "adjtimex": adjtimex, "chronyc": chronyc}
    s._add("clock", "clock/clock.json", "clock", json.dumps(state), at=T0)


KEPT = {"synchronised": True, "maxerror_us": 20_000}
FREE = {"synchronised": False, "maxerror_us": 16_000_000}
STATS = (
    "(APIServer pid={pid}) INFO 09-01 {at} [loggers.py:310] Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 9.0 "
    "tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%\n"
)
ARGS = "(APIServer pid=1) INFO 09-01 08:00:00 [utils.py:233] non-default args: {'tensor_parallel_size': 2, 'nnodes': 2}\n"
PLACE = (
    "(Worker_TP{rank} pid={pid}) INFO 09-01 08:00:09 [parallel_state.py:1400] rank {rank} in world size 2 is assigned as DP rank 0, PP rank 0, "
    "PCP rank 0, TP rank {rank}, EP rank N/A\n"
)


def two_nodes(tmp_path: Path, journal: str = "") -> Told:
    for rank in (0, 1):
        text = PLACE.format(rank=rank, pid=300 + rank)
        text = ARGS + text + "".join(STATS.format(pid=1, at=f"09:{m:02}:00") for m in range(10)) if rank == 0 else text
        (tmp_path / f"node{rank}.log").write_text(text + f"(Worker_TP{rank} pid={300 + rank}) INFO 09-01 09:30:00 [x.py:1] still here\n")
    if journal:
        (tmp_path / "node1.kernel.log").write_text(journal)
    return Told(analyze([tmp_path]))


def test_clocks_of_bare_logs_were_not_recorded(tmp_path):
    told = two_nodes(tmp_path)
    finding = told.by_id["clock-unsynchronised"]
    assert (finding.grade.value, finding.severity.value, finding.role.value) == ("possible", "info", "context")
    assert set(finding.nodes) == {"node0", "node1"} and "no certain order" in finding.title


def test_a_step_while_the_engine_ran_is_established(tmp_path):
    line = "Sep  1 {at} node1 chronyd[811]: System clock was stepped by {by} seconds\nSep  1 09:00:01 node1 kernel: eth0: Link up\n"
    told = two_nodes(tmp_path, line.format(at="09:05:00", by="-3.214001"))
    finding = told.by_id["clock-unsynchronised"]
    assert finding.grade.value == "established" and "by -3.2 s at 2026-09-01T09:05:00" in finding.title
    assert told.root == (None, None)


@pytest.mark.parametrize(("at", "by"), [("07:00:00", "-3.214001"), ("09:05:00", "0.004100")])
def test_a_step_at_boot_and_a_tiny_one_are_no_matter(tmp_path, at, by):
    line = f"Sep  1 {at} node1 chronyd[811]: System clock was stepped by {by} seconds\nSep  1 09:00:01 node1 kernel: eth0: Link up\n"
    assert two_nodes(tmp_path, line).grade("clock-unsynchronised") == "possible"


def test_a_lost_time_server_is_supported(tmp_path):
    line = "Sep  1 09:05:00 node1 chronyd[811]: Can't synchronise: no selectable sources\nSep  1 09:00:01 node1 kernel: eth0: Link up\n"
    told = two_nodes(tmp_path, line)
    assert told.grade("clock-unsynchronised") == "supported" and told.by_id["clock-unsynchronised"].nodes == ("node1",)


def test_one_node_has_one_clock(scene, tell):
    s = scene()
    clock(s, FREE)
    assert tell(s).grade("clock-unsynchronised") is None


def bundles(tmp_path: Path, first: tuple, second: tuple) -> Told:
    """A head with rank 0 and a follower with rank 1, captured with these clocks."""
    return Told(analyze(fleet(tmp_path, 2, clocks=(first, second))))


@pytest.mark.parametrize(
    ("first", "second", "grade"),
    [
        ((KEPT, None), (KEPT, None), None),
        ((KEPT, None), (FREE, None), "supported"),
        # chrony without rtcsync leaves the kernel's flag up
        ((KEPT, None), (FREE, TRACKED.format(off="0.0003", dispersion="0.001", leap="Normal")), None),
        ((KEPT, None), (FREE, TRACKED.format(off="0.0003", dispersion="0.001", leap="Not synchronised")), "established"),
        ((KEPT, None), (None, TRACKED.format(off="1.7", dispersion="0.9", leap="Normal")), "possible"),
        ((KEPT, None), (None, None), "possible"),
        ((KEPT, None), (None, "506 Cannot talk to daemon"), "possible"),
    ],
)
def test_what_the_nodes_say_of_their_clocks(tmp_path, first, second, grade):
    assert bundles(tmp_path, first, second).grade("clock-unsynchronised") == grade
