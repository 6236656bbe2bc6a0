"""Merged stacks in words: who passes a step and who is missing there, the outliers, and the tree as rows of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forensics.model import Report, StackNode, StackOutlier, StackPresence
from forensics.report.view import rank_words

MOST_FRAMES = 60
"""Frames of one run that are shown; a stack of thousands is a recursion, and its ends tell which."""
_OUTER_FRAMES = 15
_MOST_NAMES = 3
"""Threads that are named: where more pass, their number says as much."""


def presence_words(p: StackPresence) -> str:
    """ "worker DP0 ranks 0-2,5, not 3-4, 6 unread"; of processes without a rank, their names."""
    crew = " ".join(part for part in (p.role, p.group) if part)
    scattered = f"{p.count} ranks {p.has}" if p.has.endswith("…") else _ranks(p.has)
    who = [f"{crew} {scattered}".strip()] if p.has else []
    who += [f"not {p.lacks}"] if p.lacks else []
    who += [f"{p.unread} unread"] if p.unread else []
    return ", ".join([*who, *p.processes]) or crew


def node_words(node: StackNode) -> list[str]:
    """Who passes, which threads, and whether they are there in each of their samples."""
    words = [" + ".join(presence_words(p) for p in node.present)]
    if node.left_out:
        return [*words, f"{node.threads} thread{_s(node.threads)}"]
    words += [", ".join(node.names)] if len(node.names) <= _MOST_NAMES else []
    threads = f"{node.threads} thread{_s(node.threads)}"
    if node.samples > 1 and node.threads == 1:
        words.append(f"in {'' if node.steady else 'not '}{_samples(node.samples)}")
    elif node.samples > 1:
        steady = "each" if node.steady == node.threads else f"{node.steady} of them"
        words.append(f"{threads}, {steady} in {_samples(node.samples)}")
    elif node.threads > 1:
        words.append(threads)
    return words


def apart_words(node: StackNode) -> str:
    """ "rank 2 apart", or ""."""
    return f"{_ranks(node.outliers)} apart" if node.outliers else ""


def no_frames(node: StackNode) -> str:
    """What stands where a node has no frame to show."""
    if node.left_out:
        return f"… {node.left_out} more place{_s(node.left_out)}"
    return "no frame"


def frame_lines(frames: Sequence[str]) -> list[str]:
    """The frames of a run, outermost first; of a very long one both ends."""
    more = len(frames) - MOST_FRAMES
    if more <= 1:
        return list(frames)
    return [*frames[:_OUTER_FRAMES], f"… {more} more frames", *frames[_OUTER_FRAMES + more :]]


def brief(frame: str) -> str:
    """A frame with the last part of its path only: "all_reduce (distributed_c10d.py:2937)"."""
    name, bracket, place = frame.rpartition(" (")
    return f"{name}{bracket}{place.rpartition('/')[2]}" if bracket else frame


@dataclass(frozen=True)
class OutlierWords:
    who: str
    where: str
    others: str
    others_where: str
    parted: str
    """ "after execute_model (…)", "from the outermost frame on"."""
    detail: tuple[str, ...]


def outlier_words(o: StackOutlier, report: Report) -> OutlierWords:
    group = f" of {o.group}" if o.group else ""
    detail = [o.engine if len(report.engines) > 1 else "", o.thread if o.thread != "MainThread" else ""]
    detail.append(f"in {_samples(o.samples)}" if o.samples > 1 else "one sample only")
    detail.append(f"{o.unread} unread" if o.unread else "")
    parted = f"after {o.shared}" if o.shared else "from the outermost frame on"
    return OutlierWords(
        rank_words(o.ranks) + group,
        o.stands,
        _ranks(o.majority_ranks) + group,
        o.majority,
        parted if o.next else "",
        tuple(part for part in detail if part),
    )


@dataclass(frozen=True)
class Row:
    """One node on a page of nested elements."""

    node: StackNode
    engine: str
    """Where a new engine begins and there are several: its id."""
    nested: bool
    """Whether it has something to unfold: nodes below, or more frames than the one in its heading."""
    open: bool
    """Whether below it ranks are apart, or main threads of ranks part without a majority."""
    closes: int
    """How many elements end after it, its own included where it is nested and nothing lies below."""


def rows(tree: Sequence[StackNode]) -> Iterator[Row]:
    """The tree as rows, flat: whatever its depth, a template needs no recursion."""
    below = [False] * len(tree)
    way: list[int] = []
    for i, node in enumerate(tree):
        del way[node.depth :]
        if _looked_for(node):
            for above in way:
                below[above] = True
        way.append(i)
    depths = [*(n.depth for n in tree), 0]
    many = len({n.engine for n in tree}) > 1
    for i, node in enumerate(tree):
        branches = depths[i + 1] > node.depth
        nested = branches or len(node.frames) > 1
        begins = many and (not i or tree[i - 1].engine != node.engine)
        closes = 0 if branches else nested + max(0, node.depth - depths[i + 1])
        yield Row(node, node.engine if begins else "", nested, below[i], closes)


def _looked_for(node: StackNode) -> bool:
    return bool(node.outliers) or ("MainThread" in node.names and any(p.lacks for p in node.present))


def _ranks(ranges: str) -> str:
    return f"rank {ranges}" if ranges.isdigit() else f"ranks {ranges}"


def _samples(count: int) -> str:
    return "both samples" if count == 2 else f"all {count} samples"


def _s(count: int) -> str:
    return "s" * (count != 1)
