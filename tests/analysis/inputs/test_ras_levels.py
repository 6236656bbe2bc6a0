"""RAS tells of a single rank in either of two forms; the ranks that it does not name stand at the other level in both."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.analysis import analyze

ROW = "    0         1         2         4         8         8   RUNNING  MISMATCH\n"
HEAD = (
    "NCCL version 2.27.5 compiled with CUDA 12.9\n\nJob summary\n===========\n\nCommunicators... (0.00s)\n=============\n\n"
    + ROW
    + "\nWarnings\n========\n\n#0-0 (fa93daea854b060b) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
    "  7 ranks have launched up to operation 91\n"
)
PLACE = "-- GPU 1 managed by process 5233 on node 192.0.2.12\n"


@pytest.mark.parametrize(
    "last", ["  1 rank has launched up to operation 90\n  Rank 5 " + PLACE, "  Rank 5 has launched up to operation 90 " + PLACE]
)
def test_the_rank_that_is_behind_is_named(tmp_path: Path, last: str) -> None:
    for look in (1, 2):
        (tmp_path / f"node0.ras.{look}.txt").write_text(HEAD + last)
    (tmp_path / "node0.log").write_text(
        "(EngineCore pid=1) INFO 03-14 08:00:00 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='/m', "
        "tensor_parallel_size=8, pipeline_parallel_size=1\n"
        "(EngineCore pid=1) ERROR 03-14 09:38:25 [core.py:1] TimeoutError: RPC call to execute_model timed out.\n"
    )
    found = {f.id: f for f in analyze([tmp_path]).findings}
    assert found["rank-behind-in-collective"].ranks == (5,) and found["rank-behind-in-collective"].grade.value == "established"
