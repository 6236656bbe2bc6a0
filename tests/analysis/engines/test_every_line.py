"""Every line that is known of an engine, all in one log: whatever their order, no rule breaks, and the engine is told by them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forensics.analysis.signatures import signatures
from tests.analysis.engines.folder import rust, sglang, trtllm

FORMS: dict[str, Callable[[float, str], str]] = {
    "sglang": lambda at, text: sglang(at, text, "TP0"),
    "trtllm": lambda at, text: trtllm(at, text, 0),
    "tgi": lambda at, text: rust(at, "INFO", text),
    "dynamo": lambda at, text: rust(at, "INFO", text),
}


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("engine", FORMS)
def test_no_rule_breaks(look, engine: str, order: int) -> None:
    said = [example for s in signatures() if s.engine == engine for example in s.examples][::order]
    told = look(node0=[FORMS[engine](7.0 * n, text) for n, text in enumerate(said)])
    assert [e.kind for e in told.report.engines] == [engine]
    assert not [r.reason for r in told.report.rules if r.status.value == "ERRORED"]


@pytest.mark.parametrize("engine", FORMS)
def test_no_line_is_claimed_by_two_signatures_of_its_engine(engine: str) -> None:
    mine = [s for s in signatures() if s.engine == engine]
    for one in mine:
        for other in mine:
            claimed = one is not other and any(other.literal in e and other.regex.search(e) for e in one.examples)
            assert not claimed, (one.id, other.id)
