"""The wait-for graph in one sentence, and in Graphviz' language."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from forensics.model import Grade, Report, Root, Verdict, Wait
from forensics.report.dot import dot
from forensics.report.waitwords import story, wait_lines

from .samples import SAMPLES, ref

CORE = "(EngineCore, pid 10 on a)"
RANKS = [f"rank {r} (Worker_TP{r}, pid {20 + r} on a)" for r in range(4)]


def wait(a: str, b: str, via: str, detail: str = "", grade: Grade = Grade.ESTABLISHED) -> Wait:
    ranks = {name: r for r, name in enumerate(RANKS)}
    return Wait(
        waiter=a, waits_for=b, via=via, detail=detail, grade=grade, ref=ref("s", "l"), waiter_rank=ranks.get(a), target_rank=ranks.get(b)
    )


def test_a_deadlock_behind_a_collective_is_told_as_a_chain_that_ends_in_a_cycle() -> None:
    writer = f'thread "kv-transfer-writer" of {RANKS[1]}'
    waits = [
        wait(CORE, RANKS[0], "rpc-response"),
        wait(RANKS[0], RANKS[1], "collective", "all_reduce"),
        wait(RANKS[1], writer, "lock", "table_lock (offload.py:52)"),
        wait(writer, RANKS[1], "lock", "buffer_lock (offload.py:54)"),
    ]
    assert story(waits, whole=True) == (
        "EngineCore waits for rank 0's answer; rank 0 waits in all_reduce for rank 1; "
        'rank 1 waits for the lock table_lock (offload.py:52) that thread "kv-transfer-writer" holds; '
        'thread "kv-transfer-writer" waits for the lock buffer_lock (offload.py:54) that rank 1 holds: a cycle. '
        "Nothing else waits for a cause of its own."
    )


def test_ranks_that_wait_alike_are_told_together_and_two_causes_are_not_called_one() -> None:
    alike = [wait(RANKS[r], RANKS[3], "collective", "all_gather") for r in (0, 1, 2)]
    assert story(alike, whole=True) == "ranks 0-2 wait in all_gather for rank 3. Nothing else waits for a cause of its own."
    assert story(alike) == "ranks 0-2 wait in all_gather for rank 3.", "somebody was not seen"
    assert story([*alike, wait(CORE, "the GPU", "gpu")], whole=True).endswith("waits for the GPU.")
    assert story([]) == ""


def test_a_wait_that_is_only_possible_is_told_as_such() -> None:
    assert story([wait(RANKS[0], "whoever holds x", "lock", grade=Grade.POSSIBLE)]).startswith("rank 0 may wait for whoever holds x")


def test_what_stands_between_is_shown_with_the_way() -> None:
    (line,) = wait_lines([wait(RANKS[0], "whoever takes from q", "queue", "q, 4 of 4")])
    assert (line.via, line.target) == ("queue q, 4 of 4", "whoever takes from q")


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_dot_is_whole_and_quotes_what_comes_from_outside(name: str) -> None:
    text = dot(SAMPLES[name]())
    assert text.startswith("digraph waits {") and text.endswith("}\n")
    assert text.count(" -> ") == len(SAMPLES[name]().waits)
    hostile = dot(Report(verdict=Verdict(), root=Root(), waits=(wait('a"]; x [label="\x1b[31m\n', "b\\", "lock"),)))
    for source in (text, hostile):
        assert "\x1b" not in source
        assert all(re.fullmatch(r'(?:[^"]|"(?:[^"\\]|\\.)*")*', line) for line in source.splitlines())
        if graphviz := shutil.which("dot"):
            subprocess.run([graphviz, "-Tplain"], input=source, text=True, check=True, capture_output=True)
