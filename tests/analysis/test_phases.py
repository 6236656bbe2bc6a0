"""The life of an engine in stretches, and the timeline of everything that was read."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from forensics.analysis import analyze

START = """\
(APIServer pid=11) INFO 03-05 08:00:00 [api_server.py:1890] vLLM API server version 0.25.1
(EngineCore pid=20) INFO 03-05 08:00:12 [core.py:112] Initializing a V1 LLM engine (v0.25.1) with config: model='/m', tensor_parallel_size=2
(Worker_TP0 pid=31) INFO 03-05 08:00:20 [parallel_state.py:1607] world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://127.0.0.1:1 backend=nccl
(Worker_TP1 pid=32) INFO 03-05 08:00:20 [parallel_state.py:1607] world_size=2 rank=1 local_rank=1 distributed_init_method=tcp://127.0.0.1:1 backend=nccl
(EngineCore pid=20) INFO 03-05 08:02:30 [core.py:281] init engine (profile, create kv cache, warmup model) took 100.00 s
(APIServer pid=11) INFO:     Application startup complete.
"""
STATS = (
    "(APIServer pid=11) INFO 03-05 {at} [loggers.py:310] Engine 000: Avg prompt throughput: {p} tokens/s, "
    "Avg generation throughput: {g} tokens/s, Running: {r} reqs, Waiting: 0 reqs, GPU KV cache usage: 3.1%, Prefix cache hit rate: 0.0%\n"
)
WAIT = (
    "(EngineCore pid=20) INFO 03-05 {at} [shm_broadcast.py:705] No available shared memory broadcast block found in 60 seconds. "
    "This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation).\n"
)
DEATH = """\
(EngineCore pid=20) ERROR 03-05 09:05:10 [core.py:1138] EngineCore encountered a fatal error.
(EngineCore pid=20) ERROR 03-05 09:05:10 [core.py:1138] Traceback (most recent call last):
(EngineCore pid=20) ERROR 03-05 09:05:10 [core.py:1138]   File "/x/vllm/v1/executor/multiproc_executor.py", line 387, in get_response
(EngineCore pid=20) ERROR 03-05 09:05:10 [core.py:1138]     raise TimeoutError(f"RPC call to {method} timed out.") from e
(EngineCore pid=20) ERROR 03-05 09:05:10 [core.py:1138] TimeoutError: RPC call to sample_tokens timed out.
(APIServer pid=11) ERROR 03-05 09:05:11 [async_llm.py:704] AsyncLLM output_handler failed.
"""


def _log(folder: Path, *, dies: bool = True) -> Path:
    moving = "".join(STATS.format(at=f"08:{m:02d}:00", p=100.0, g=55.5, r=4) for m in range(3, 60))
    still = STATS.format(at="09:00:10", p=100.0, g=55.5, r=4) + STATS.format(at="09:00:20", p=0.0, g=0.0, r=4)
    waits = "".join(WAIT.format(at=f"09:0{m}:10") for m in range(1, 5))
    folder.mkdir(exist_ok=True)
    (folder / "node0.log").write_text(START + moving + (still + waits + DEATH if dies else ""))
    return folder


def _clock(ns: int) -> str:
    from forensics.model.times import iso

    return (iso(ns) or "")[11:19]


def test_a_stall_that_ends_in_death_has_all_its_phases(tmp_path):
    report = analyze([_log(tmp_path / "in")])
    phases = [(p.name, _clock(p.since.earliest_ns), p.until and _clock(p.until.earliest_ns)) for p in report.phases]
    assert [name for name, _, _ in phases] == ["start-up", "serving", "silence", "detection", "teardown"]
    starts = {name: begin for name, begin, _ in phases}
    assert starts["start-up"] == "08:00:00" and starts["serving"] == "08:02:30"
    assert "09:00:09" <= starts["silence"] <= "09:00:20"
    assert starts["detection"] == "09:01:10"
    assert starts["teardown"] == "09:05:10"
    assert all(until == begin for (_, _, until), (_, begin, _) in itertools.pairwise(phases)), "one follows the other"
    assert report.phases[2].ref and report.phases[2].ref.source == "node0.log", "what ended it stands in the log"


def test_an_engine_that_serves_is_in_its_serving_phase(tmp_path):
    report = analyze([_log(tmp_path / "in", dies=False)])
    assert [p.name for p in report.phases] == ["start-up", "serving"]


def test_repeats_are_one_event_with_a_count_and_a_later_episode_is_another(tmp_path):
    folder = _log(tmp_path / "in")
    later = "".join(WAIT.format(at=f"08:3{m}:00") for m in range(3))
    text = (folder / "node0.log").read_text()
    at = text.index("(APIServer pid=11) INFO 03-05 08:33")
    (folder / "node0.log").write_text(text[:at] + later + text[at:])
    waits = [e for e in analyze([folder]).timeline if e.finding == "symptom-shm-broadcast-wait"]
    assert [e.count for e in waits] == [3, 4]


@pytest.mark.parametrize(
    "lines, shown", [(("kernel: NVRM: Xid (PCI:0000:b3:00): 79, pid=1, GPU has fallen off the bus.",), True), ((), False)]
)
def test_kernel_lines_stand_on_the_same_timeline(tmp_path, lines, shown):
    folder = _log(tmp_path / "in")
    (folder / "node0.kernel.log").write_text("".join(f"Mar 05 09:00:05 node0 {line}\n" for line in ("kernel: quiet", *lines)))
    events = [e for e in analyze([folder]).timeline if e.ref.source == "node0.kernel.log"]
    assert bool(events) == shown
    assert all(_clock(e.at.earliest_ns) == "09:00:05" for e in events)


def test_who_fell_silent_is_an_event(tmp_path):
    folder = _log(tmp_path / "in")
    (folder / "node1.log").write_text(
        "(Worker_TP2 pid=77) INFO 03-05 08:00:20 [parallel_state.py:1607] world_size=4 rank=2 local_rank=0 "
        "distributed_init_method=tcp://127.0.0.1:1 backend=nccl\n"
        "(Worker_TP2 pid=77) INFO 03-05 08:55:00 [gpu_model_runner.py:1] hello\n"
    )
    silent = [e for e in analyze([folder]).timeline if "silent from then on" in e.what]
    assert any(e.node == "node1" and _clock(e.at.latest_ns) == "08:55:00" for e in silent)


def test_a_line_without_a_year_is_not_later_than_its_file(tmp_path):
    import datetime
    import os

    folder = _log(tmp_path / "in", dies=False)
    written = datetime.datetime(2026, 11, 30, tzinfo=datetime.timezone.utc).timestamp()
    os.utime(folder / "node0.log", (written, written))
    first = analyze([folder]).timeline[0]
    assert datetime.datetime.fromtimestamp(first.at.earliest_ns / 1e9, datetime.timezone.utc).year == 2026, "though 2027 is nearer"


def test_an_undated_line_is_bounded_by_neighbours_that_no_signature_knows(tmp_path):
    (tmp_path / "node0.log").write_text(
        START
        + STATS.format(at="08:03:00", p=1.0, g=1.0, r=1)
        + "(Worker_TP0 pid=31) INFO 03-05 08:40:00 [somewhere.py:7] a line that nobody knows\n"
        + "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'an illegal memory access was encountered'\n"
        + "(Worker_TP1 pid=32) INFO 03-05 08:40:02 [somewhere.py:7] another\n"
        + DEATH
    )
    (fault,) = [f for f in analyze([tmp_path]).findings if f.id == "cuda-illegal-access"]
    assert fault.since and _clock(fault.since.earliest_ns) == "08:40:00"
