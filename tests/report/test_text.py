"""One screen says what matters, in this order, and never drops anything silently."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from forensics.model import Coverage, CoverageCell, Finding, FindingRole, Grade, Outcome, Report, Root, Severity, Verdict, Wait
from forensics.report import FORMATS, UnsupportedFormat, render, text, view
from forensics.report.terminal import print_report

from .samples import SAMPLES, ref


@pytest.mark.parametrize("name", SAMPLES)
def test_it_fits_one_screen(name):
    lines = render(SAMPLES[name](), "terminal").splitlines()
    assert len(lines) <= 42
    assert max(map(len, lines)) <= 100
    labels = [line[:11].strip() for line in lines if line[:11].strip()]
    assert labels[:3] == ["seen", "verdict", "root"]


def test_it_stays_one_screen_however_much_there_is():
    many = tuple(
        Finding(
            id=f"f{i}",
            grade=list(Grade)[i % 5],
            severity=list(Severity)[i % 3],
            role=list(FindingRole)[i % 5],
            title=f"claim {i}: " + "words " * 60,
            because=(ref("a", "b", "c" * 500),),
            next_steps=(f"step {i} " * 30,),
        )
        for i in range(300)
    )
    waits = tuple(Wait(waiter=f"a{i}", waits_for=f"b{i}", via="lock", grade=Grade.POSSIBLE, ref=ref("s", "l")) for i in range(100))
    cells = tuple(CoverageCell(node=f"n{i}", source="stacks", outcome=Outcome.DENIED, reason="why " * 40) for i in range(50))
    report = Report(verdict=Verdict(sentence="s"), root=Root(), findings=many, waits=waits, coverage=Coverage(cells=cells))
    short = text.plain(report)
    assert len(short.splitlines()) <= 60
    claims, ruled_out = len(view.claims(report)), len(view.refuted(report))
    assert f"… {claims - 7} more findings" in short
    assert f"… {ruled_out - 3} more claims ruled out" in short
    assert "… 95 more waits" in short
    long = text.plain(report, verbose=True)
    assert "more findings" not in long
    assert all(f"claim {i}:" in long for i in range(300))


def test_the_worst_news_comes_first():
    out = render(SAMPLES["stalled"](), "terminal")
    order = ["4 of 4 ranks", "STALLED", "process-stopped", "rank 2 · worker TP2 · pid 4245 · gpu-a · since 2026-09-01T10:02:00Z"]
    order += [
        "core waits for rank 0's answer; ranks 0-1,3 wait in a",
        "Worker TP2 (pid 4245) is stopped",
        "16 requests are held",
        "ruled out",
        "412 GiB of 512 GiB",
    ]
    order += ["blind to", "kernel of gpu-a: DENIED", "cure: run as root", "next "]
    places = [out.index(words) for words in order]
    assert places == sorted(places)


def test_no_all_clear_and_no_guess():
    unseen = " ".join(render(SAMPLES["one_node_unseen"](), "terminal").split())
    assert "not seen: ranks 4-7, gpu-b, 1 more node(s) of unknown name" in unseen
    assert "root not named" in unseen
    assert "several claims tie: worker-process-died rank 0" in render(SAMPLES["two_engines"](), "terminal")
    # a role of root without a root named is a candidate, not the root
    assert "candidate  established  Rank 0 exited" in render(SAMPLES["two_engines"](), "terminal")
    assert "root       none: nothing that was seen" in render(SAMPLES["healthy"](), "terminal")


def test_not_a_terminal_means_no_escape_and_colour_only_on_one():
    plain, coloured = io.StringIO(), io.StringIO()
    print_report(SAMPLES["stalled"](), console=Console(file=plain))
    assert plain.getvalue() == render(SAMPLES["stalled"](), "terminal")
    assert "\x1b" not in plain.getvalue()
    print_report(SAMPLES["stalled"](), console=Console(file=coloured, force_terminal=True, width=100, color_system="standard"))
    assert "\x1b[" in coloured.getvalue()


def test_an_output_that_knows_only_ascii_gets_plain_characters():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    for name in ("stalled", "many_ranks"):
        print_report(SAMPLES[name](), console=Console(file=out))
    out.flush()
    shown = raw.getvalue().decode("ascii")
    assert "ranks 0-36,38-63 -> " in shown
    assert "61 \\xb0C of 95 \\xb0C" in shown


def test_formats():
    assert FORMATS == ("terminal", "json", "markdown", "html")
    with pytest.raises(UnsupportedFormat, match="unsupported report format 'sarif': this version writes terminal, json, markdown, html"):
        render(SAMPLES["unknown"](), "sarif")


def test_claims_put_the_root_first_and_leave_out_what_claims_nothing():
    report = SAMPLES["stalled"]()
    assert [f.id for f in view.claims(report)] == [
        *("process-stopped", "engine-stalled", "symptom-shm-broadcast-wait", "busy-spin", "health-endpoint-misleading")
    ]
    assert [f.id for f in view.refuted(report)] == ["memory-exhaustion", "thermal-high"]
    assert [f.id for f in view.unseen(report)] == ["evidence-missing:kernel/gpu-a"]


def test_the_same_finding_of_another_engine_is_not_the_root():
    report = SAMPLES["two_engines"]()
    named = msgspec.structs.replace(report.engines[1].root, finding="worker-process-died", rank=1, candidates=())
    engine = msgspec.structs.replace(report.engines[1], root=named)
    report = msgspec.structs.replace(report, root=named, engines=(report.engines[0], engine))
    assert [(f.ranks, view.is_root(f, report)) for f in report.findings[:2]] == [((0,), False), ((1,), True)]


@pytest.mark.parametrize(
    ("numbers", "words"), [([], ""), ([3], "3"), ([0, 1, 2, 3, 7], "0-3,7"), ([2, 1, 1], "1-2"), ([5, 3, 1], "1,3,5"), (range(64), "0-63")]
)
def test_ranges(numbers, words):
    assert view.ranges(numbers) == words


def test_coverage_sentence_counts_what_is_known_to_exist():
    assert view.coverage_sentence(Coverage()) == "no ranks known, no nodes known"
    assert view.coverage_sentence(Coverage(expected_ranks=(0, 1), seen_ranks=(0,), expected_nodes=("a",), seen_nodes=("a",))) == (
        "1 of 2 ranks, 1 of 1 nodes seen"
    )
    # a rank that nobody expected is still one that exists
    assert view.coverage_sentence(Coverage(expected_ranks=(0,), seen_ranks=(0, 5), unseen_node_count=2)).startswith(
        "2 of 2 ranks, 0 of 2 nodes"
    )


def test_sixty_ranks_that_went_the_same_way_make_one_line():
    cells = [
        CoverageCell(node="a", rank=r, pid=100 + r, source="stacks", outcome=Outcome.DENIED, reason="no", cure="root") for r in range(60)
    ]
    (group,) = view.cell_groups(cells)
    assert (group.who, group.cure) == ("ranks 0-59 on a", "root")
    assert not view.cell_groups(
        [CoverageCell(node="a", source="gpu", outcome=Outcome.EMPTY), CoverageCell(node="a", source="x", outcome=Outcome.OK)]
    )
