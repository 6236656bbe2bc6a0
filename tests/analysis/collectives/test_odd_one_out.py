"""Steps and operations that each rank tells of itself: one rank among several that agree is named, a tie is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.analysis import analyze

STEP = (
    "[06/02/2026-{at}] [TRT-LLM] [RANK {rank}] [I] iter = {step}, global_rank = {rank}, rank = {rank}, currank_total_requests = 7/7, "
    "host_step_time = 41.2ms, prev_device_step_time = 40.1ms, timestamp = 2026-06-02 {at}, num_scheduled_requests: {held}, "
    "states = {{'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': {held}}}"
)
HANG = "[06/02/2026-17:25:05] [TRT-LLM] [RANK {rank}] [E] Hang detected after 300 seconds."


def log(last: list[int], first: int = 1200, minute: int = 20) -> list[str]:
    """Three steps in which four ranks hold the same, and one in which they hold these."""
    lines = []
    for i, held in enumerate([[7] * 4] * 3 + [last]):
        lines += [STEP.format(at=f"17:{minute}:0{i}", rank=r, step=first + i, held=held[r]) for r in range(4)]
    return lines


@pytest.mark.parametrize(("last", "named"), [([7, 7, 6, 7], 2), ([7, 7, 6, 6], None)])
def test_a_lone_rank_is_named_and_a_tie_is_not(tmp_path: Path, last: list[int], named: int | None) -> None:
    (tmp_path / "node0.log").write_text("\n".join([*log(last), *(HANG.format(rank=r) for r in range(4))]) + "\n")
    report = analyze([tmp_path])
    assert next(f for f in report.findings if f.id == "rank-divergence-batch").grade.value == "established"
    assert report.root.finding == "rank-divergence-batch" and report.root.rank == named


def test_steps_of_another_run_with_the_same_numbers_are_not_compared(tmp_path: Path) -> None:
    again = [STEP.format(at="17:24:00", rank=0, step=1200, held=3), *(HANG.format(rank=r) for r in range(4))]
    (tmp_path / "node0.log").write_text("\n".join([*log([7] * 4), *again]) + "\n")
    assert "rank-divergence-batch" not in {f.id for f in analyze([tmp_path]).findings}
