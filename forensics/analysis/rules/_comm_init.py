"""Signs that the creation of a communicator began, and that it was not over when it was looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from forensics.analysis.times import SECOND
from forensics.analysis.view import View
from forensics.model import EvidenceRef, LogHit, LogSpan, ThreadStack, TimeRange

START, COMPLETE, ENDED, ANNOUNCED = "nccl-init-start", "nccl-init-complete", "nccl-comm-ended", "vllm-nccl-version"
STUCK_S = 120.0
"""A communicator of one node is made in seconds, one of hundreds of ranks in a minute."""
SETTLE_S = 30.0
"""What a process may still print while its neighbours begin."""
SEEN_S = 55.0
"""A stack inside the creation this long after it began shows a creation that does not end."""
_INSIDE = re.compile(r"^(?:p?ncclCommInit(?:Rank\w*|All)|p?ncclCommSplit|ncclCudaLibraryInit|initTransportsRank|bootstrapInit)\b")


@dataclass(frozen=True)
class Open:
    """A communicator of which ranks began the creation and did not finish it."""

    ranks: tuple[int, ...]
    """Within the communicator."""
    size: int
    done: tuple[int, ...]
    absent: tuple[int, ...]
    """Of which nothing was read that says that they began."""
    starts: tuple[LogHit, ...]
    waited_s: float


def unfinished(view: View) -> list[Open]:
    """Communicators whose creation stood open when the evidence ended, by NCCL's own lines."""
    comms: dict[tuple[str, int], dict[str, dict[int, LogHit]]] = {}
    for hit in view.hits_of(START, COMPLETE, ENDED):
        f = hit.fields
        # ranks of one communicator share its id; older lines have none, and then only ranks of one node can be joined by their number
        key = (f.get("comm_id") or f"{hit.node} {f['nranks']}", int(f["nranks"]))
        kind = "start" if hit.signature == START else "done"
        comms.setdefault(key, {"start": {}, "done": {}})[kind][int(f["comm_rank"])] = hit
    out = []
    for (_, size), seen in comms.items():
        lacking = {r: h for r, h in seen["start"].items() if r not in seen["done"]}
        ends = [view.ended_ns] if view.ended_ns is not None else []
        begun = [h.at.latest_ns for h in lacking.values() if h.at]
        if not lacking or not begun or not ends:
            continue
        absent = tuple(r for r in range(size if size <= 4096 else 0) if r not in seen["start"] and r not in seen["done"])
        out.append(
            Open(
                tuple(sorted(lacking)), size, tuple(sorted(seen["done"])), absent, tuple(lacking.values()), (ends[0] - max(begun)) / SECOND
            )
        )
    return out


def silent_since(view: View) -> tuple[LogHit, float] | None:
    """The newest line with which a worker announced NCCL, and for how long no worker of its node had printed anything after it.

    None where a worker went on. 0 where the last lines of the workers are not known.
    """
    announced = [h for h in view.hits_of(ANNOUNCED) if h.at]
    if not announced or view.ended_ns is None:
        return None
    hit = announced[-1]
    assert hit.at
    last = {pid: ns for s in view.on_nodes(LogSpan) if s.node == hit.node for pid, ns in s.last_of.items() if _works(view, s.node, pid)}
    spoke = [h.at.latest_ns for h in view.hits if h.at and h.node == hit.node and _works(view, h.node, h.pid)]
    quiet_from = max([*last.values(), *spoke], default=hit.at.latest_ns)
    if quiet_from > hit.at.latest_ns + SETTLE_S * SECOND:
        return None
    return hit, (view.ended_ns - max(quiet_from, hit.at.latest_ns)) / SECOND if hit.pid in last else 0.0


def _works(view: View, node: str, pid: int | None) -> bool:
    return any(w.pid == pid and w.info.node == node for w in view.workers)


def inside(view: View) -> list[tuple[ThreadStack, bool]]:
    """Stacks that stand in the creation of a communicator, newest of each thread, and whether it stood there long.

    Two samples of one capture lie within the seconds that every creation takes.
    """
    by_thread: dict[tuple[str, int, int | None], list[ThreadStack]] = {}
    for stack in [] if view.past else view.on_nodes(ThreadStack):
        if stack.reader != "core":
            by_thread.setdefault((stack.node, stack.pid, stack.tid), []).append(stack)
    found = []
    for stacks in by_thread.values():
        stacks.sort(key=lambda s: (s.at.earliest_ns if s.at else 0, s.sample))
        last = stacks[-1]
        if any(_INSIDE.match(f.name) for f in (*last.frames, *last.mixed)):
            same = [s.at.latest_ns for s in stacks[:-1] if s.path == last.path and s.at]
            found.append((last, bool(last.at and same and last.at.earliest_ns - min(same) >= SEEN_S * SECOND)))
    return found


def since(starts: Iterator[LogHit] | list[LogHit], stacks: list[ThreadStack]) -> TimeRange | None:
    dated = [h.at for h in starts if h.at] or [s.at for s in stacks if s.at]
    return min(dated, key=lambda t: t.earliest_ns, default=None)


def refs(hits: list[LogHit], stacks: list[ThreadStack]) -> list[EvidenceRef]:
    return [*(h.ref for h in hits[:6]), *(s.ref for s in stacks[:4])]
