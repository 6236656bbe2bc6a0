"""Merged stacks in words, as rows of a page, and folded for flame-graph viewers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.analysis.merge import merge
from forensics.analysis.peers import Peer, Peers
from forensics.analysis.stackreport import of_tree
from forensics.model import EvidenceRef, Frame, Report, Root, StackPresence, ThreadStack, Verdict
from forensics.report import render, safe, stackwords
from forensics.report.folded import folded

from .hostile import PAYLOADS, poisoned
from .samples import SAMPLES
from .test_escaping import Page


def report(*paths, ranks=True):
    """A report of one thread for each path of frame names, outermost first; each of a rank of its own."""
    stacks = [
        ThreadStack(
            node="n0",
            ref=EvidenceRef(source="s", locator="l"),
            pid=r,
            tid=r,
            name="MainThread",
            frames=tuple(Frame(name=n, file="x.py", line=3) for n in reversed(names)),
        )
        for r, names in enumerate(paths)
    ]
    peers = Peers({("n0", r): Peer(f"w{r}", "worker" if ranks else "", "", r if ranks else None) for r in range(len(paths))}, {})
    nodes, outliers = of_tree(merge(stacks), peers, "e0")
    return Report(verdict=Verdict(state="stalled"), root=Root(), stack_tree=tuple(nodes), outliers=tuple(outliers))


def test_folded_is_what_a_viewer_reads():
    assert folded(SAMPLES["stalled"]()).splitlines() == [
        "worker;worker_busy_loop (v1/executor/multiproc_executor.py:943);execute_model (v1/worker/gpu_model_runner.py:3377);"
        "forward (model_executor/models/llama.py:311) 2",
        "worker;worker_busy_loop (v1/executor/multiproc_executor.py:943);execute_model (v1/worker/gpu_model_runner.py:3377);"
        "forward (model_executor/layers/linear.py:1482);all_reduce (torch/distributed/distributed_c10d.py:2935,2937) 6",
        "core;step (v1/engine/core.py:674);get_response (v1/executor/multiproc_executor.py:440) 1",
        "worker;run (threading.py:953) 24",
        "api;run (threading.py:953);… 5 more places 16",
    ]
    assert folded(SAMPLES["healthy"]()) == ""


def parsed(text):
    """Folded lines as flamegraph.pl and speedscope take them apart: the count after the last blank, frames between semicolons."""
    found = []
    for line in text.splitlines():
        stack, count = re.fullmatch(r"(.+) (\d+)", line).groups()
        found.append((tuple(stack.split(";")), int(count)))
    return found


NAMES = st.text(alphabet="ab;\x1b\n\r\x85\u2028 \t1", max_size=4)


@settings(deadline=None)
@given(st.lists(st.lists(NAMES, max_size=4), max_size=10))
def test_no_name_can_break_a_folded_line(paths):
    lines = parsed(folded(report(*paths)))
    assert sum(count for _, count in lines) == len(paths)
    assert sorted(len(steps) for steps, count in lines for _ in range(count)) == sorted(1 + max(len(p), 1) for p in paths)
    for steps, _ in lines:
        assert steps[0] == "worker" and all(step and step == safe.visible(step) for step in steps)


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_folded_evidence_cannot_act(payload):
    text = folded(poisoned(SAMPLES["stalled"](), payload))
    assert all(c == "\n" or c.isprintable() for c in text)
    assert len(parsed(text)) == len(text.splitlines())


@pytest.mark.parametrize(
    ("present", "words"),
    [
        (StackPresence(role="worker", has="0-2,5", lacks="3-4"), "worker ranks 0-2,5, not 3-4"),
        (StackPresence(role="worker", group="DP1", has="3", unread="6-7"), "worker DP1 rank 3, 6-7 unread"),
        (StackPresence(role="core", processes=("core DP0", "core DP1")), "core DP0, core DP1"),
        (StackPresence(has="1"), "rank 1"),
        (StackPresence(role="worker", count=500, has="1,3,…", lacks="0,2,…"), "worker 500 ranks 1,3,…, not 0,2,…"),
        (StackPresence(role="worker"), "worker"),
    ],
)
def test_who_passes_in_words(present, words):
    assert stackwords.presence_words(present) == words


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=14))
def test_the_page_nests_as_the_tree_does(paths):
    """Every run of steps lies within its parent's element, and everything that is opened is closed."""
    made = report(*paths)
    page = Page(render(made, "html"))
    assert not page.open
    depth, found = 0, []
    for row in stackwords.rows(made.stack_tree):
        found.append(depth)
        depth += row.nested - row.closes
    assert depth == 0 and found == [n.depth for n in made.stack_tree]
    # what leads to where ranks part lies open
    way: list[stackwords.Row] = []
    for row in stackwords.rows(made.stack_tree):
        del way[row.node.depth :]
        if row.node.outliers or row.node.present[0].lacks:
            assert all(above.open for above in way)
        way.append(row)


def test_a_stack_of_ten_thousand_frames_is_shown_by_its_ends():
    deep = [f"f{i}" for i in range(10_000)]
    made = report(deep, deep, [*deep[:5_000], "away"])
    for form in ("html", "markdown", "terminal", "json"):
        text = render(made, form)
        assert "away" in text and (form == "json" or len(text) < 40_000)
    assert "… 4940 more frames" in render(made, "markdown")
    assert max(len(steps) for steps, _ in parsed(folded(made))) == 10_001


def test_many_nested_branches():
    """Each rank goes one step further than the last: a tree as deep as there are places."""
    made = report(*(["f"] * (i + 1) for i in range(600)))
    assert max(n.depth for n in made.stack_tree) > 300
    assert not Page(render(made, "html")).open
    assert sum(count for _, count in parsed(folded(made))) == 600


def test_where_most_are_is_told_only_of_an_engine_that_does_not_work():
    made = report(["main", "wait"], ["main", "wait"], ["main", "run"])
    assert "rank 2 in run (x.py:3), ranks 0-1 in wait (x.py:3)" in render(made, "terminal")
    healthy = Report(verdict=Verdict(state="healthy"), root=Root(), stack_tree=made.stack_tree, outliers=made.outliers)
    assert "run (x.py:3)" not in render(healthy, "terminal")
    assert "run (x.py:3)" in render(healthy, "markdown")


def test_processes_of_unknown_place_are_named_by_their_pids():
    made = report(["main"], ["main"], ranks=False)
    assert folded(made) == "process;main (x.py:3) 2\n"
    assert "w0, w1" in render(made, "html")
