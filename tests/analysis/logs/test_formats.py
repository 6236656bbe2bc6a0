from __future__ import annotations

import pytest

from forensics.analysis.logs import FORMATS, Hint, peel
from forensics.analysis.times import Calendar

CAL = Calendar(reference_ns=1_788_256_800_000_000_000)  # 2026-09-01T10:00:00Z
SAMPLES = [(f, s) for f in FORMATS for s in f.samples]
NEGATIVES = [(f, s) for f in FORMATS for s in f.negatives]


@pytest.mark.parametrize(("form", "line"), SAMPLES, ids=lambda v: v[:60] if isinstance(v, str) else v.name)
def test_a_sample_peels_to_its_format(form, line):
    out = peel(line)
    if form.wrapper:
        assert form.name in out.wrappers
    else:
        assert out.format == form.name or form.goes_on
    if form.engine and not out.format:
        assert out.engine == form.engine
    stamp = out.wrapper_time if form.wrapper else out.inner_time
    if stamp is not None:
        assert CAL.read(stamp, CAL.parse("2026-09-01 00:00:00"), 1) is not None
    assert len(out.message) < len(line)


@pytest.mark.parametrize(("form", "line"), NEGATIVES, ids=lambda v: v[:60] if isinstance(v, str) else v.name)
def test_a_negative_does_not(form, line):
    out = peel(line)
    assert out.format != form.name
    assert out.wrappers[:1] != (form.name,)


@pytest.mark.parametrize(("form", "line"), SAMPLES, ids=lambda v: v[:60] if isinstance(v, str) else v.name)
def test_what_the_file_showed_before_changes_nothing(form, line):
    alone = peel(line)
    for other, before in SAMPLES:
        if other.weak or peel(before).engine in ("sglang", "tensorrt-llm"):
            continue  # what is ambiguous in a line alone, they settle
        hint = Hint()
        peel(before, hint)
        assert peel(line, hint) == alone, before
