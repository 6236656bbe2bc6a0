"""A traceback behind a wrapper belongs to the process whose line announced it."""

from __future__ import annotations

import pytest

from forensics.analysis.parse import Input, Sink, log
from forensics.analysis.times import Calendar
from forensics.model import LogHit

CAL = Calendar(reference_ns=1_788_256_800_000_000_000)  # 2026-09-01T10:00:00Z

TRACE = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()", "ValueError: bad"]


@pytest.mark.parametrize(
    "wrapper",
    ["", "2026-09-01T10:00:00.5Z ", "2026-09-01T10:00:00.5Z stderr F ", "[pod/vllm-0/engine] ", "vllm-1  | ", "2026-09-01 10:00:00.5 "],
    ids=["none", "kubectl", "cri", "pod", "compose", "shipper"],
)
def test_it_is_of_the_process_above_it(wrapper):
    lines = [wrapper + "(EngineCore pid=7) ERROR 09-01 10:00:00 [core.py:1] step failed"] + [wrapper + t for t in TRACE]
    sink = Sink()
    log.parse(Input(name="n0.log", node="n0", data="\n".join(lines).encode(), calendar=CAL), sink)
    (hit,) = [o for o in sink.observations if isinstance(o, LogHit) and o.signature == "python-traceback"]
    assert (hit.process, hit.pid, hit.level, hit.fields["exc_type"]) == ("EngineCore", 7, "ERROR", "ValueError")


def test_it_is_nobodys_when_the_line_above_is_older():
    text = "2026-09-01T09:00:00Z (EngineCore pid=7) ERROR 09-01 09:00:00 [core.py:1] step failed\n" + "\n".join(
        "2026-09-01T10:00:00Z " + t for t in TRACE
    )
    sink = Sink()
    log.parse(Input(name="n0.log", node="n0", data=text.encode(), calendar=CAL), sink)
    (hit,) = [o for o in sink.observations if isinstance(o, LogHit) and o.signature == "python-traceback"]
    assert hit.pid is None


def test_of_two_writers_on_one_line_each_says_its_own():
    text = (
        "(Worker_TP0 pid=1) INFO 09-01 10:00:00 [a.py:1] loa(Worker_TP1 pid=2) ERROR 09-01 10:00:01 [m.py:1] WorkerProc hit an exception.\n"
    )
    sink = Sink()
    log.parse(Input(name="n0.log", node="n0", data=text.encode(), calendar=CAL), sink)
    (hit,) = [o for o in sink.observations if isinstance(o, LogHit)]
    assert (hit.process, hit.pid, hit.level) == ("Worker_TP1", 2, "ERROR")


def test_what_a_library_printed_before_the_prefix_on_its_line_is_met_and_nobodys():
    text = "!!!!!!! Segfault encountered !!!!!!!(Worker_TP1 pid=2) ERROR 09-01 10:00:01 [m.py:1] WorkerProc hit an exception.\n"
    sink = Sink()
    log.parse(Input(name="n0.log", node="n0", data=text.encode(), calendar=CAL), sink)
    found = {o.signature: o.pid for o in sink.observations if isinstance(o, LogHit)}
    assert found["vllm-worker-exception"] == 2
    assert all(pid is None for signature, pid in found.items() if signature != "vllm-worker-exception")
