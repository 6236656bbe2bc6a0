"""Merged stacks: nobody is lost or counted twice, ranges of ranks are right, and outliers are those that left the majority."""

from __future__ import annotations

import random
import time
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.analysis import stackreport
from forensics.analysis.merge import Level, merge, path
from forensics.analysis.outliers import outliers
from forensics.analysis.peers import Peer, Peers, peers_of
from forensics.model import EngineInstance, EngineProcess, EvidenceRef, Frame, ProcessInfo, RankId, Role, ThreadStack, TimeRange, ranges
from forensics.report.folded import folded

from .scene import IN_STEP

LEVELS = list(Level)


def stack(rank, *outermost_first, sample=1, thread="MainThread", tid=None, node="n0"):
    """A stack of the process 1000 + rank; a frame is "name file line" (x.py, line 1 unless said; native in a library)."""
    frames = []
    for text in reversed(outermost_first):
        name, _, place = text.partition(" ")
        file, line = (place or "x.py 1").split()
        frames.append(Frame(name=name, file=file, line=int(line), native=".so" in file))
    ref = EvidenceRef(source=f"stacks/pid-{1000 + rank}.{sample}.json", locator=thread)
    tid = 1000 + rank if tid is None else tid
    python = tuple(f for f in frames if not f.native)
    mixed = tuple(frames) if len(python) < len(frames) else ()
    return ThreadStack(node=node, ref=ref, pid=1000 + rank, tid=tid, name=thread, frames=python, mixed=mixed, sample=sample)


def crew(count, expected=None, role="worker"):
    """Ranks 0 to count - 1 of one role, no groups."""
    processes = {("n0", 1000 + r): Peer(f"worker TP{r}", role, "", r) for r in range(count)}
    return Peers(processes, {(role, ""): frozenset(range(expected or count))})


def told(stacks, peers, level=Level.FUNCTION):
    """(nodes, outliers) of the report, each node by its innermost frame's name."""
    nodes, apart = stackreport.of_tree(merge(stacks, level), peers, "e0")
    return {(n.frames[-1].split()[0] if n.frames else ""): n for n in nodes}, apart


FRAMES = st.builds(Frame, name=st.sampled_from("abc"), file=st.sampled_from(["x.py", "y.py", ""]), line=st.integers(0, 3))
NATIVE = st.builds(Frame, name=st.sampled_from("ab"), file=st.sampled_from(["libz.so", "x.py"]), native=st.just(True))
STACKS = st.lists(
    st.builds(
        ThreadStack,
        node=st.sampled_from(["n0", "n1"]),
        ref=st.just(EvidenceRef(source="s", locator="l")),
        pid=st.integers(1, 4),
        tid=st.integers(1, 4),
        name=st.sampled_from(["MainThread", "w", "Thread-1 (f)", "\x1b[2J\n;"]),
        frames=st.lists(FRAMES, max_size=6).map(tuple),
        mixed=st.just(()) | st.lists(FRAMES | NATIVE, max_size=6).map(tuple),
        reader=st.sampled_from(["", "pystack", "core"]),
        sample=st.integers(1, 3),
    ),
    max_size=24,
)


@settings(deadline=None)
@given(STACKS, st.sampled_from(LEVELS))
def test_every_stack_is_found_at_its_leaf_and_counts_add_up(stacks, level):
    tree = merge(stacks, level)
    assert sorted(map(id, tree.visits)) == sorted(map(id, stacks))
    assert (tree.nodes[0].start, tree.nodes[0].end) == (0, len(stacks))
    for visit, end, thread in zip(tree.visits, tree.ends, tree.thread_of, strict=True):
        steps = path(visit, level)
        assert tree.find(visit) == end
        assert [tree.nodes[i].key for i in tree.way(end)] == [key for key, _ in steps]
        assert all(any(v is visit for v in tree.at(i)) for i in (0, *tree.way(end)))
        assert tree.threads[thread][:3] == (visit.node, visit.pid, visit.tid)
    for i, node in enumerate(tree.nodes):
        below = [tree.nodes[c] for c in node.children]
        assert node.end - node.start == node.own + sum(c.end - c.start for c in below) == len(tree.at(i)) == len(tree.threads_at(i))
        assert all(tree.nodes[c].parent == i < c for c in node.children)
        assert len({c.key for c in below}) == len(below)


@settings(deadline=None)
@given(STACKS)
def test_levels_only_ever_join(stacks):
    """Two stacks that are together at one level are together at every coarser one."""
    for a in stacks:
        for b in stacks:
            alike = [_keys(a, level) == _keys(b, level) for level in LEVELS]
            assert alike == sorted(alike)
    sizes = [len(merge(stacks, level).nodes) for level in LEVELS]
    assert sizes == sorted(sizes, reverse=True)


def _keys(stack, level):
    return [key for key, _ in path(stack, level)]


@settings(deadline=None)
@given(STACKS, st.sampled_from(LEVELS))
def test_the_report_counts_every_stack_once(stacks, level):
    peers = Peers({("n0", p): Peer(f"w{p}", "worker", "", p) for p in (1, 2, 3)}, {})
    nodes, _ = stackreport.of_tree(merge(stacks, level), peers, "e0")
    assert sum(n.stacks for n in nodes if n.depth == 0) == len(stacks)
    open_: list[list[int]] = []
    for n in nodes:
        assert n.stacks == sum(p.stacks for p in n.present) > 0
        assert n.depth <= len(open_)
        del open_[n.depth :]
        if open_:
            open_[-1][1] += n.stacks
            assert open_[-1][1] <= open_[-1][0]
        open_.append([n.stacks, 0])


@settings(deadline=None)
@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.sets(st.integers(41, 60)))
def test_has_lacks_and_unread_are_exact(here, elsewhere, unread):
    elsewhere -= here
    stacks = [*(stack(r, "main", "inside") for r in here), *(stack(r, "main", "outside") for r in elsewhere)]
    processes = {("n0", 1000 + r): Peer(f"w{r}", "worker", "", r) for r in (*here, *elsewhere, *unread)}
    nodes, _ = told(stacks, Peers(processes, {("worker", ""): frozenset((*here, *elsewhere, *unread))}))
    for name, inside, outside in (("inside", here, elsewhere), ("outside", elsewhere, here)):
        if inside and outside:
            (present,) = nodes[name].present
            assert (present.has, present.lacks, present.unread) == (ranges(inside), ranges(outside), ranges(unread))
            assert present.stacks == present.count == len(inside)


def test_a_scattered_set_is_counted_and_begun():
    stacks = [stack(r, "main", "a" if r % 2 else "b") for r in range(1000)]
    nodes, _ = told(stacks, crew(1000))
    (present,) = nodes["a"].present
    assert present.count == 500 and present.has.startswith("1,3,5,") and present.has.endswith(",…")
    assert present.lacks.startswith("0,2,4,") and len(present.lacks) < 300


def test_the_levels_differ_as_they_say():
    stacks = [stack(0, "f a.py 1", "g a.py 5", "h b.py 1"), stack(1, "f a.py 1", "g a.py 6", "h b.py 1"), stack(2, "f a.py 1", "k b.py 9")]
    ends = {level: [merge(stacks, level).find(s) for s in stacks] for level in LEVELS}
    assert [len(set(e)) for e in ends.values()] == [3, 2, 1]
    tree = merge(stacks, Level.FUNCTION)
    assert [tree.nodes[i].label for i in tree.way(ends[Level.FUNCTION][0])] == ["f (a.py:1)", "g (a.py:5,6)", "h (b.py:1)"]
    tree = merge(stacks, Level.MODULE)
    assert [tree.nodes[i].label for i in tree.way(ends[Level.MODULE][0])] == ["a.py", "b.py"]


def test_many_lines_of_one_function_are_not_all_named():
    tree = merge([stack(r, f"spin ring.py {r}") for r in range(1, 9)])
    assert [n.label for n in tree.nodes[1:]] == ["spin (ring.py:1,2,3,…)"]


# ------------------------------------------------------------------------------------------------------------ outliers


def test_one_rank_that_left_the_way_of_its_peers():
    inside = ["main", "loop", "execute", "all_reduce dist.py 9"]
    stacks = [stack(r, *inside, sample=s) for r in (0, 1, 3) for s in (1, 2)]
    stacks += [stack(2, "main", "loop", "execute", "forward model.py 311", "matmul model.py 7", sample=s) for s in (1, 2)]
    nodes, (apart,) = told(stacks, crew(4))
    assert (apart.ranks, apart.majority_ranks, apart.samples, apart.processes) == ((2,), "0-1,3", 2, ("worker TP2",))
    assert (apart.shared, apart.next, apart.stands) == ("execute (x.py:1)", "forward (model.py:311)", "matmul (model.py:7)")
    assert (apart.majority, apart.thread, apart.ref.source) == ("all_reduce (dist.py:9)", "MainThread", "stacks/pid-1002.2.json")
    assert nodes["matmul"].frames == ("forward (model.py:311)", "matmul (model.py:7)")
    assert {name: n.outliers for name, n in nodes.items() if n.outliers} == {"matmul": "2"}
    assert (nodes["all_reduce"].present[0].has, nodes["all_reduce"].present[0].lacks) == ("0-1,3", "2")
    assert (nodes["matmul"].threads, nodes["matmul"].steady, nodes["matmul"].samples) == (1, 1, 2)


def test_ending_where_the_others_go_on_is_leaving_too():
    stacks = [*(stack(r, "main", "execute", "all_reduce") for r in range(3)), stack(3, "main", "execute")]
    nodes, (apart,) = told(stacks, crew(4))
    assert (apart.ranks, apart.shared, apart.next, apart.stands) == ((3,), "execute (x.py:1)", "", "execute (x.py:1)")
    assert nodes["execute"].outliers == "3"


@pytest.mark.parametrize(
    "where",
    [["a", "b"], ["a", "a", "b", "b"], ["a", "b", "c"], ["a"] * 4, ["a", "a", "b", "c"]],
    ids=["two that differ", "two and two", "all apart", "all together", "half is no majority"],
)
def test_without_a_majority_nobody_is_an_outlier(where):
    _, apart = told([stack(r, "main", name) for r, name in enumerate(where)], crew(len(where)))
    assert apart == []


def test_beyond_the_last_majority_nobody_leaves():
    """Five of six go into `step` and part there: the sixth alone left a majority."""
    stacks = [stack(r, "main", "step", name) for r, name in enumerate("aabbc")] + [stack(5, "main", "idle")]
    _, apart = told(stacks, crew(6))
    assert [(a.ranks, a.majority, a.majority_ranks) for a in apart] == [((5,), "step (x.py:1)", "0-4")]


def test_who_was_apart_for_a_moment_is_no_outlier():
    def at(rank, sample):
        return "away" if rank == 3 or (rank == 2 and sample == 1) else "together"

    stacks = [stack(r, "main", at(r, s), sample=s) for r in range(6) for s in (1, 2, 3)]
    _, apart = told(stacks, crew(6))
    assert [(a.ranks, a.samples) for a in apart] == [((3,), 3)]


def test_only_peers_are_compared():
    """Each group has a majority of its own; a core is nobody's peer, nor is a thread that only one rank has."""
    processes = {("n0", 1000 + r): Peer(f"w{r}", "worker", f"PP{r // 3}", r) for r in range(6)} | {("n0", 1009): Peer("core", "core")}
    peers = Peers(processes, {})
    stacks = [stack(r, "main", "recv" if r < 3 else "send") for r in range(6)]
    stacks += [stack(9, "main", "wait"), stack(4, "pump", thread="pump", tid=7)]
    assert told(stacks, peers)[1] == []
    stacks = [stack(r, "main", "recv" if r in (0, 1, 2, 4) else "send") for r in range(6)]
    assert [(a.ranks, a.group, a.majority_ranks) for a in told(stacks, peers)[1]] == [((4,), "PP1", "3,5")]


def test_other_threads_are_compared_by_name_and_python_numbers_do_not_count():
    def of(rank, name, frame, tid):
        return stack(rank, "run", frame, thread=name, tid=tid)

    stacks = [of(r, f"Thread-{r + 4} (pump)", "put" if r == 1 else "get", 50) for r in range(4)]
    # of a name that one process has twice nothing can be said about that process
    stacks += [of(r, "pool", "idle", 60) for r in range(4)] + [of(2, "pool", "busy", 61)]
    stacks += [of(r, "", "x" if r else "y", 70) for r in range(4)]
    apart = told(stacks, crew(4))[1]
    assert [(a.ranks, a.thread) for a in apart] == [((1,), "Thread (pump)")]


def test_a_rank_without_a_stack_is_on_neither_side():
    stacks = [*(stack(r, "main", "all_reduce") for r in (0, 1, 2)), stack(3), stack(4, "main", "forward")]
    nodes, (apart,) = told(stacks, crew(5, expected=8))
    assert (apart.ranks, apart.majority_ranks, apart.unread) == ((4,), "0-2", "3,5-7")
    (present,) = nodes["all_reduce"].present
    assert (present.has, present.lacks, present.unread) == ("0-2", "4", "3,5-7")
    (nowhere,) = nodes[""].present
    assert (nowhere.has, nowhere.lacks, nowhere.unread, nodes[""].frames) == ("3", "", "", ())


def test_native_frames_do_not_tear_ranks_apart():
    """Rank 2 was read without native frames, rank 1 with native frames in between as well: all stand in all_reduce."""
    stacks = [
        *(stack(r, "main", "all_reduce", "ncclGroupEnd libnccl.so 0") for r in (0, 3)),
        stack(1, "_start libc.so 0", "main", "dispatch libtorch.so 0", "all_reduce", "ncclGroupEnd libnccl.so 0"),
        stack(2, "main", "all_reduce"),
    ]
    nodes, apart = told(stacks, crew(4))
    assert apart == []
    (present,) = nodes["ncclGroupEnd"].present
    assert (present.has, present.lacks, present.unread) == ("0-1,3", "", "2"), "that rank 2 is not there was not seen"


@settings(deadline=None)
@given(st.lists(st.lists(st.sampled_from("ab"), max_size=5), min_size=1, max_size=12))
def test_outliers_are_those_outside_the_deepest_majority(paths):
    """Against the definition, counted prefix by prefix."""
    stacks = [stack(r, *steps) for r, steps in enumerate(paths)]
    read = {r: steps for r, steps in enumerate(paths) if steps}
    prefixes = Counter(tuple(steps[:n]) for steps in read.values() for n in range(1, len(steps) + 1))
    common = [p for p, n in prefixes.items() if 2 * n > len(read)]
    deepest = max(common, key=len, default=())
    expected = {r for r, steps in read.items() if deepest and tuple(steps[: len(deepest)]) != deepest}
    tree = merge(stacks)
    found = outliers(tree, crew(len(paths)))
    assert {r for o in found for r in o.ranks} == expected
    for o in found:
        assert o.majority_ranks == tuple(sorted(read.keys() - expected))
        for rank in o.ranks:
            steps = tuple(read[rank])
            shared = max(n for n in range(len(steps) + 1) if steps[:n] == deepest[:n])
            assert len(tree.way(o.shared)) == shared
            assert len(tree.way(o.next)) == min(shared + 1, len(steps))
            assert len(tree.way(o.stands)) == len(steps)


def test_of_two_dumps_without_numbers_the_newer_counts():
    def at(seconds, *steps):
        when = TimeRange(earliest_ns=seconds, latest_ns=seconds, basis="file time")
        return msgspec.structs.replace(stack(2, *steps, sample=0), at=when)

    others = [stack(r, "main", "all_reduce", sample=0) for r in (0, 1)]
    assert told([*others, at(2, "main", "forward"), at(1, "main", "all_reduce")], crew(3))[1][0].stands == "forward (x.py:1)"
    assert told([*others, at(1, "main", "forward"), at(2, "main", "all_reduce")], crew(3))[1] == []


def test_a_core_file_shows_no_living_peer():
    dead = msgspec.structs.replace(stack(3, "main", "abort"), reader="core")
    nodes, apart = told([*(stack(r, "main", "all_reduce") for r in range(3)), dead], crew(4))
    assert apart == [] and nodes["abort"].names == ("MainThread (core file)",)


def test_threads_that_run_no_python_are_in_the_tree_too():
    stacks = [stack(r, "clone libc.so 0", "poll_loop libnccl.so 0", thread="nccl", tid=5) for r in (0, 1)] + [stack(2, "main")]
    nodes, apart = told(stacks, crew(3))
    assert nodes["poll_loop"].frames == ("clone (libc.so)", "poll_loop (libnccl.so)")
    assert (nodes["poll_loop"].present[0].has, nodes["poll_loop"].present[0].unread, apart) == ("0-1", "2", [])


# --------------------------------------------------------------------------------------------------------- bad inputs


def test_nothing_at_all():
    tree = merge([])
    assert (len(tree.nodes), tree.visits, stackreport.of_tree(tree, crew(2), "e0")) == (1, [], ([], []))


def test_stacks_of_ten_thousand_frames():
    deep = [f"f{i} deep.py {i + 1}" for i in range(10_000)]
    stacks = [*(stack(r, *deep) for r in range(3)), stack(3, *deep[:9_000], "away")]
    for level in LEVELS:
        tree = merge(stacks, level)
        assert all(tree.find(s) == end for s, end in zip(tree.visits, tree.ends, strict=True))
    nodes, (apart,) = stackreport.of_tree(merge(stacks), crew(4), "e0")
    assert [len(n.frames) for n in nodes] == [9_000, 1, 1_000]
    assert (apart.ranks, apart.shared) == ((3,), "f8999 (deep.py:9000)")


def test_many_places_are_counted_where_they_are_not_told(monkeypatch):
    monkeypatch.setattr(stackreport, "MOST_ENDS", 3)
    stacks = [*(stack(r, "main", "together") for r in range(5)), stack(5, "main", "away")]
    stacks += [stack(r, "run", f"idle{i}", thread=f"t{i}", tid=i) for r in range(6) for i in range(10)]
    nodes, _ = stackreport.of_tree(merge(stacks), crew(6), "e0")
    assert [(n.depth, n.left_out, n.stacks) for n in nodes] == [(0, 0, 6), (1, 0, 1), (1, 0, 5), (0, 0, 60), (1, 0, 6), (1, 9, 54)]
    assert nodes[1].outliers == "5", "an outlier is told before anything else"


def test_time_does_not_explode_where_all_are_apart():
    """Every rank at a place of its own, half of them outliers of as many kinds."""

    def seconds(count):
        stacks = [stack(r, "main", "together" if r % 2 or not r else f"away{r}") for r in range(count)]
        began = time.process_time()
        _, apart = stackreport.of_tree(merge(stacks), crew(count), "e0")
        assert len(apart) == (count - 1) // 2
        return time.process_time() - began

    assert seconds(8_000) < 40 * max(seconds(1_000), 0.002)


# ------------------------------------------------------------------------------------------------------------- peers


def _process(pid, role, label="", **rank):
    return EngineProcess(info=ProcessInfo(pid=pid, node="n0"), role=role, label=label, rank=RankId(**rank) if rank else None)


def test_crews_of_an_engine():
    workers = [_process(10 + r, Role.WORKER, f"worker {r}", rank=r, tp=r % 2, pp=r // 2) for r in range(4)]
    peers = peers_of(EngineInstance(id="e0", kind="vllm", processes=(*workers, _process(5, Role.CORE, "core")), world_size=4))
    assert peers.expected == {("worker", "PP0"): {0, 1}, ("worker", "PP1"): {2, 3}}
    assert peers.of(("n0", 5)) == Peer("core", "core")
    assert peers.of(("n0", 99)) == Peer("pid 99")

    one = peers_of(
        EngineInstance(id="e0", kind="vllm", processes=tuple(_process(10 + r, Role.WORKER, rank=r) for r in (0, 2)), world_size=4)
    )
    assert one.expected == {("worker", ""): {0, 1, 2, 3}}, "ranks that nobody found are expected"

    replicas = [_process(10 + n, Role.WORKER, rank=n % 2, dp=n // 2) for n in range(4)]
    two = peers_of(EngineInstance(id="e0", kind="vllm", processes=tuple(replicas), world_size=2, dp_size=2))
    assert two.expected == {("worker", "DP0"): {0, 1}, ("worker", "DP1"): {0, 1}}


def test_a_random_crowd_is_the_same_in_any_order():
    chance = random.Random(7)
    stacks = [stack(r, "main", *chance.choices("abc", k=4), sample=s) for r in range(20) for s in (1, 2)]
    shuffled = chance.sample(stacks, len(stacks))

    def facts(given):
        nodes, apart = stackreport.of_tree(merge(given), crew(20), "e0")
        return Counter((n.depth, n.frames, n.stacks, n.present, n.outliers) for n in nodes), [(a.ranks, a.stands, a.samples) for a in apart]

    assert facts(stacks) == facts(shuffled)


# ----------------------------------------------------------------------------------------------------- a whole capture


def test_a_capture_shows_who_is_apart(scene, tell):
    hung = scene(ranks=4)
    hung.hang(2, IN_STEP)
    report = tell(hung).report
    (apart,) = report.outliers
    assert (apart.engine, apart.ranks, apart.majority_ranks, apart.thread) == ("e0", (2,), "0-1,3", "MainThread")
    assert apart.stands.startswith("Attention.forward (vllm/attention/layer.py")
    assert apart.majority.startswith("OpOverloadPacket.__call__ (torch/_ops.py")
    assert apart.samples == 3 and apart.shared.startswith("Worker.execute_model")
    marked = [n for n in report.stack_tree if n.outliers]
    assert [(n.outliers, n.present[0].has, n.present[0].lacks, n.steady) for n in marked] == [("2", "2", "0-1,3", 1)]
    lines = folded(report).splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == sum(n.stacks for n in report.stack_tree if not n.depth)
    assert [line for line in lines if line.endswith(" 9") and line.startswith("worker;") and "OpOverloadPacket" in line]


def test_a_capture_of_an_idle_engine_shows_nobody_apart(scene, tell):
    quiet = scene(ranks=4)
    quiet.idle()
    assert tell(quiet).report.outliers == ()
