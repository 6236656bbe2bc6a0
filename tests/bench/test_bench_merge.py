"""Merging the stacks of very large jobs: absolute times against the goals, and whether time grows with the input and no faster."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec
import pytest
from test_bench import result

from forensics.analysis.merge import merge
from forensics.analysis.outliers import MAIN
from forensics.analysis.peers import Peer, Peers
from forensics.analysis.stackreport import of_tree
from forensics.model import EvidenceRef, Frame, Report, Root, ThreadStack, Verdict
from forensics.report import FORMATS, render
from forensics.report.folded import folded

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

PROCESSES, SHAPES = 131_072, 5_000
RANKS, THREADS = 1_024, 100
Made = TypeVar("Made")


def shapes(count: int, seed: int = 1) -> list[tuple[Frame, ...]]:
    """Distinct stacks of 12 to 30 frames, innermost first: shared outer frames, then more and more of their own."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        outer = [
            Frame(name=f"Layer{d}.step{chance.randrange(3)}", file=f"engine/module{d}.py", line=10 * d + 1)
            for d in range(chance.randrange(9, 28))
        ]
        own = [Frame(name=f"Kernel{number}.wait{d}", file="engine/kernels.py", line=number) for d in range(3)]
        made.append((*reversed(own), *reversed(outer)))
    return made


def stack(rank: int, frames: tuple[Frame, ...], thread: int = 0, sample: int = 1) -> ThreadStack:
    ref = EvidenceRef(source=f"stacks/pid-{1000 + rank}.{sample}.json", locator=f"thread {thread}")
    name = f"worker-{thread}" if thread else MAIN
    return ThreadStack(node=f"node{rank // 8}", ref=ref, pid=1000 + rank, tid=10 * rank + thread, name=name, frames=frames, sample=sample)


def peers(ranks: int) -> Peers:
    processes = {(f"node{r // 8}", 1000 + r): Peer(f"worker TP{r}", "worker", "", r) for r in range(ranks)}
    return Peers(processes, {("worker", ""): frozenset(range(ranks))})


def cpu_seconds(work: Callable[[], Made]) -> tuple[float, Made]:
    """CPU time of this process, the only one that works here: what else runs on the machine does not count."""
    gc.collect()
    began = time.process_time()
    made = work()
    return time.process_time() - began, made


def test_single_stack_processes() -> None:
    chance = random.Random(2)
    places = shapes(SHAPES)
    lines = [msgspec.json.encode(stack(r, places[r % SHAPES if r < SHAPES else chance.randrange(SHAPES)])) for r in range(PROCESSES)]
    decoder = msgspec.json.Decoder(ThreadStack)
    decode_s, merge_s, half_s = [], [], []
    tree = merge([])
    for _ in range(3):
        # the first half has every shape as well: only the number of processes differs
        half_s.append(cpu_seconds(lambda: merge([decoder.decode(line) for line in lines[: PROCESSES // 2]]))[0])
        seconds, records = cpu_seconds(lambda: [decoder.decode(line) for line in lines])
        decode_s.append(seconds)
        seconds, tree = cpu_seconds(partial(merge, records))
        merge_s.append(seconds)
    assert len(tree.visits) == PROCESSES and sum(n.own > 0 for n in tree.nodes) == SHAPES
    what = f"{PROCESSES} processes of {SHAPES} shapes"
    whole = min(decode_s) + min(merge_s)
    result(f"{what}: decoded and merged in", whole, 10.0, "s", limit=40.0, details=f"decoding {min(decode_s):.2f} s")
    result(f"{what}: merged from records in", min(merge_s), 3.0, "s", limit=12.0)
    result("time of twice the processes / time of the half", whole / min(half_s), 2.5, limit=5.0)
    report_s, (nodes, outliers) = cpu_seconds(lambda: of_tree(tree, peers(PROCESSES), "e0"))
    assert sum(n.stacks for n in nodes if not n.depth) == PROCESSES
    print(f"bench: the report of that tree ({len(nodes)} runs, {len(outliers)} outliers) takes {report_s:.2f} s")
    # two halves that share nothing: twice the shapes as well
    twice = [*places, *shapes(SHAPES, seed=3)]
    both = [stack(r, twice[r % (2 * SHAPES)]) for r in range(PROCESSES)]
    one = [stack(r, twice[r % SHAPES]) for r in range(PROCESSES // 2)]
    pairs = [(cpu_seconds(partial(merge, both))[0], cpu_seconds(partial(merge, one))[0]) for _ in range(3)]
    grown, base = (min(times) for times in zip(*pairs, strict=True))
    result("time of twice the processes and twice the shapes / time of the half", grown / base, 2.5, limit=5.0)


@pytest.mark.parametrize("apart", [3, RANKS // 3], ids=["few outliers", "a third apart"])
def test_many_ranks_with_many_threads(apart: int) -> None:
    places = shapes(THREADS + RANKS)
    stacks = [stack(r, places[t], t) for r in range(RANKS) for t in range(1, THREADS)]
    # each that is apart is at a place of its own
    stacks += [stack(r, places[THREADS + r] if r < apart else places[0]) for r in range(RANKS)]
    crew = peers(RANKS)

    def whole() -> dict[str, str]:
        nodes, outliers = of_tree(merge(stacks), crew, "e0")
        assert len(outliers) == apart
        report = Report(verdict=Verdict(state="stalled"), root=Root(), stack_tree=tuple(nodes), outliers=tuple(outliers))
        return {form: render(report, form) for form in FORMATS} | {"folded": folded(report)}

    whole()  # imports and compiles the templates
    seconds, made = min((cpu_seconds(whole) for _ in range(3)), key=lambda pair: pair[0])
    sizes = ", ".join(f"{form} {len(text) // 1024} KiB" for form, text in made.items())
    result(f"{RANKS} ranks x {THREADS} threads ({apart} apart) merged and rendered in", seconds, 10.0, "s", limit=40.0, details=sizes)
