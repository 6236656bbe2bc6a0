"""The wait-for graph: cycles are drawn, alike ranks are one box, and nothing overlaps."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from forensics.model import Grade, Report, Root, Verdict, Wait
from forensics.report import grid, waitgraph

from .samples import SAMPLES, ref


def graph(*edges: tuple[str, str], root: Root | None = None, ranks: dict[str, int] | None = None) -> Report:
    ranks = ranks or {}
    waits = tuple(
        Wait(waiter=a, waits_for=b, via="lock", grade=Grade.POSSIBLE, ref=ref("s", "l"), waiter_rank=ranks.get(a), target_rank=ranks.get(b))
        for a, b in edges
    )
    return Report(verdict=Verdict(), root=root or Root(), waits=waits)


def boxes(report: Report):
    drawing = waitgraph.draw(report)
    assert drawing
    return {b.label: b for b in drawing.boxes}, drawing


def sound(drawing: waitgraph.Drawing) -> None:
    for a, b in itertools.combinations(drawing.boxes, 2):
        apart = a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y
        assert apart, (a.label, b.label)
    for b in drawing.boxes:
        assert b.x >= 0 and b.y >= 0 and b.x + b.width <= drawing.width and b.y + b.height <= drawing.height
    for a in drawing.arrows:
        assert a.text_x - a.text_width / 2 >= 0 and a.text_x + a.text_width / 2 <= drawing.width
        assert re.fullmatch(r"M-?[\d.]+ -?[\d.]+C(-?[\d.]+ ){5}-?[\d.]+", a.path)


def test_waiters_stand_left_of_whom_they_wait_for():
    found, drawing = boxes(SAMPLES["stalled"]())
    sound(drawing)
    assert found["API server"].x < found["core"].x < found["worker TP0"].x < found["worker TP2"].x
    assert found["worker TP0"].x == found["worker TP1"].x
    assert [b.label for b in drawing.boxes if b.root] == ["worker TP2"]
    assert found["worker TP2"].detail == "rank 2 · pid 4245 · root"


def test_ranks_that_wait_alike_are_one_box():
    found, drawing = boxes(SAMPLES["many_ranks"]())
    sound(drawing)
    assert set(found) == {"ranks 0-36,38-63", "worker TP37"}
    assert found["worker TP37"].root
    assert len(drawing.arrows) == 1


def test_a_deadlock_is_a_cycle_and_both_edges_are_seen():
    found, drawing = boxes(graph(("a", "b"), ("b", "a"), ("c", "a")))
    sound(drawing)
    assert found["a"].x == found["b"].x
    assert found["c"].x < found["a"].x
    down, up = drawing.arrows[:2]
    assert down.text_x > found["a"].x + found["a"].width
    assert up.text_x < found["a"].x


def test_somebody_who_waits_for_himself():
    _, drawing = boxes(graph(("a", "a")))
    sound(drawing)


def test_the_firmest_of_parallel_edges_is_drawn():
    report = graph(("a", "b"))
    firm = Wait(waiter="a", waits_for="b", via="queue", grade=Grade.ESTABLISHED, ref=ref("s", "l"))
    drawing = waitgraph.draw(Report(verdict=Verdict(), root=Root(), waits=(*report.waits, firm, *report.waits)))
    assert drawing
    assert [a.grade for a in drawing.arrows] == [Grade.ESTABLISHED]


def test_nothing_or_too_much_is_not_drawn():
    assert waitgraph.draw(graph()) is None
    assert waitgraph.draw(graph(*((f"a{i}", f"b{i}") for i in range(30)))) is None


def test_an_ambiguous_root_is_not_marked():
    ranks = {"thread 1": 3, "thread 2": 3, "x": 0}
    found, _ = boxes(graph(("thread 1", "x"), ("thread 2", "x"), root=Root(finding="f", rank=3), ranks=ranks))
    assert not any(b.root for b in found.values())


NAMES = st.sampled_from("abcdefghij")


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=25))
def test_any_graph_can_be_drawn(edges):
    drawing = waitgraph.draw(graph(*edges))
    assert drawing
    sound(drawing)
    assert {b.label for b in drawing.boxes} == {name for edge in edges for name in edge}
    assert len(drawing.arrows) == len(set(edges))


@given(st.lists(st.tuples(NAMES, NAMES), max_size=25))
def test_components_are_the_mutually_reachable(edges):
    names = sorted({n for e in edges for n in e})
    reach = {n: {n} for n in names}
    for _ in names:
        for a, b in edges:
            reach[a] |= reach[b]
    found = waitgraph.components(names, edges)
    for a in names:
        for b in names:
            assert (found[a] == found[b]) == (b in reach[a] and a in reach[b])
            if found[a] != found[b] and b in reach[a]:
                assert found[b] < found[a]


def test_a_long_chain_does_not_exhaust_the_stack():
    names = [str(i) for i in range(5000)]
    assert len(set(waitgraph.components(names, list(itertools.pairwise(names))).values())) == 5000


def test_grid_folds_alike_ranks_and_shows_the_lost():
    table, nodes = grid.grids(SAMPLES["one_node_unseen"]())
    assert [(r.node, r.who, r.seen) for r in table.rows] == [("gpu-a", "ranks 0-3", True), ("?", "ranks 4-7", False)]
    assert [(r.who, r.seen) for r in nodes.rows] == [("gpu-a", True), ("gpu-b", False), ("1 more node, name unknown", False)]


def test_grid_keeps_engines_apart():
    tables = grid.grids(SAMPLES["two_engines"]())
    assert [t.heading for t in tables] == ["e0 vllm 0.32.0", "e1 torchrun", ""]
    assert [t.rows[0].detail for t in tables[:2]] == ["pids 101, 102", "pids 201, 202"]


def test_grid_shows_the_worse_of_two_attempts_and_marks_a_hole():
    from forensics.model import Coverage, CoverageCell, Outcome

    cells = (
        CoverageCell(node="a", rank=0, pid=1, source="stacks", outcome=Outcome.OK),
        CoverageCell(node="a", rank=0, pid=1, source="stacks", outcome=Outcome.TIMEOUT),
        CoverageCell(node="a", rank=1, pid=2, source="log", outcome=Outcome.OK),
    )
    report = Report(verdict=Verdict(), root=Root(), coverage=Coverage(expected_ranks=(0, 1), seen_ranks=(0, 1), cells=cells))
    (table,) = grid.grids(report)
    assert table.sources == ("stacks", "log")
    assert [r.outcomes for r in table.rows] == [(Outcome.TIMEOUT, None), (None, Outcome.OK)]
