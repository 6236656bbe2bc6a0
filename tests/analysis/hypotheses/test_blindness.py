"""What was not seen refutes nothing: with a source, a node or a time taken away no verdict becomes firmer."""

from __future__ import annotations

import pytest

from forensics.analysis import analyze
from forensics.model import Grade, Hypothesis
from tests.analysis.hypotheses.conftest import ASKED, sound
from tests.analysis.hypotheses.test_ledgers import COUNTERS, gpu, host_cpu, shot, stalled, two_nodes, zone
from tests.analysis.scene import Scene

SOURCES = ("memory", "kernel", "gpu", "thermal", "cpu", "rpclogs", "queues", "stacks", "process", "health")


def everything(folder, denied: str = "") -> dict[str, Hypothesis]:
    """A standstill of which all was read, and all of it was well; without one source."""
    s = Scene(folder)
    if denied:
        s.denied[denied] = "DENIED"
    stalled(s)
    shot(s, "memory", "memory/cgroup.json", {"/sys/fs/cgroup/memory.current": "1", "/sys/fs/cgroup/memory.max": "max"})
    shot(s, "memory", "memory/shm.json", {"statvfs:/dev/shm": "blocks=1000 bavail=900 frsize=4096"})
    shot(s, "thermal", "thermal/zones.1.json", zone(61))
    host_cpu(s, 40, 1.5)
    gpu(s)
    found = {h.name: h for h in analyze([s.bundle()], hypotheses=ASKED).hypotheses}
    for h in found.values():
        sound(h)
    return found


def test_with_everything_read_all_of_them_are_refuted(tmp_path):
    assert {name: h.verdict.value for name, h in everything(tmp_path).items()} == dict.fromkeys(ASKED, "refuted")


@pytest.mark.parametrize("denied", SOURCES)
def test_a_source_less_never_refutes_more_and_supports_nothing(tmp_path, denied):
    for name, h in everything(tmp_path, denied).items():
        assert h.verdict in (Grade.REFUTED, Grade.NOT_ASSESSABLE), name


@pytest.mark.parametrize(
    ("denied", "open_"), [("memory", "memory"), ("gpu", "power"), ("gpu", "thermal"), ("thermal", "thermal"), ("cpu", "cpu")]
)
def test_the_source_that_answers_is_needed(tmp_path, denied, open_):
    h = everything(tmp_path, denied)[open_]
    assert h.verdict is Grade.NOT_ASSESSABLE
    assert h.unread and "not looked at" in h.sentence


def test_a_node_less_never_refutes(tmp_path):
    late = {f"node{n}_rdma": COUNTERS.format("2026-09-01T10:06:00Z", 0) for n in (0, 1)}
    (tmp_path / "both").mkdir()
    (tmp_path / "one").mkdir()
    assert two_nodes(tmp_path / "both", **late).verdict is Grade.REFUTED
    two_nodes(tmp_path / "one", **late)
    for file in (tmp_path / "one").glob("node1*"):
        file.unlink()
    found = {h.name: h for h in analyze([tmp_path / "one"], hypotheses=["network"]).hypotheses}
    assert found["network"].verdict is Grade.NOT_ASSESSABLE
    assert "Refuted for node0" in found["network"].sentence and "not looked at" in found["network"].sentence
