from __future__ import annotations

import re
from importlib import resources

from forensics.analysis.scan import Plan
from forensics.analysis.signatures import load_signature, signatures


def test_every_file_that_ships_is_a_signature() -> None:
    """They are not checked again at each start."""
    files = [f for f in (resources.files("forensics") / "signatures").iterdir() if f.name.endswith(".toml")]
    assert sorted(load_signature(f.read_text("utf-8")).id for f in files) == [s.id for s in signatures()]


def test_one_plan_finds_every_example() -> None:
    plan = Plan.of(signatures(), (), "kernel: ")
    for signature in signatures():
        for example in signature.examples:
            if signature.literal:
                ids, _ = plan.search(example.encode())
                assert any(signature in plan.signatures[i] for i in ids if i < len(plan.literals)), signature.id


def test_what_tells_is_a_line_that_its_own_pattern_knows() -> None:
    (stats,) = [s for s in signatures() if s.id == "vllm-stats"]
    still = (
        "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs, "
        "GPU KV cache usage: 53.0%, Prefix cache hit rate: 41.2%"
    )
    assert re.search(stats.telling, still) and stats.regex.search(still)
    assert not any(re.search(stats.telling, example) for example in stats.examples)
