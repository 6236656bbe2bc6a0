"""Lines of every kind, in any order: no rule breaks on them."""

from __future__ import annotations

import random

import pytest

from forensics.analysis.signatures import signatures
from tests.analysis.mechanisms.logs import Log, sglang, told


@pytest.mark.parametrize("seed", range(6))
def test_every_line_that_is_known_in_any_order(tmp_path, seed):
    chance = random.Random(seed)
    lines = [e for s in signatures() for e in s.examples]
    chance.shuffle(lines)
    log, other = Log(start=seed % 2 == 0), []
    for i, text in enumerate(lines):
        kind = chance.randrange(4)
        if kind == 0:
            log.stats(i, chance.choice((0.0, 0.4, 55.0)), chance.randrange(3), chance.randrange(3), chance.choice((0.0, 30.0, 99.9)))
        elif kind == 1:
            other.append(sglang(i, text, chance.randrange(4)))
        elif kind == 2:
            log.raw(text)
        else:
            log.line(
                i, chance.choice(("EngineCore", "Worker_TP1", "APIServer")), chance.randrange(5), text, chance.choice(("INFO", "ERROR"))
            )
    t = told(tmp_path, node0=log, decode__1=other, node0_env_txt="VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=nan\nWATCHDOG_TIMEOUT=1e999\n")
    broken = [(r.rule, r.reason) for r in t.report.rules if r.status.value == "ERRORED"]
    assert not broken
