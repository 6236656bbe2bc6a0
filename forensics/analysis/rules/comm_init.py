"""The creation of a communicator began and does not end. It has no limit of its own: torch's watchdog does not look at it."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._advice import RACE, TOGETHER
from forensics.analysis.rules._comm_init import SEEN_S, STUCK_S, Open, inside, refs, silent_since, since, unfinished
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._lived_on import served, served_after
from forensics.analysis.rules._positions import stuck, world
from forensics.analysis.times import SECOND, duration, iso
from forensics.analysis.view import View
from forensics.model import EngineProcess, Finding, FindingRole, LogHit, Severity, ThreadStack


def evaluate(view: View) -> Iterator[Finding]:
    stacks = inside(view)
    open_ = [o for o in unfinished(view) if not _went_on(view, list(o.starts)) and (o.waited_s >= STUCK_S or stacks)]
    announced = silent_since(view)
    if announced and _went_on(view, [announced[0]]):
        announced = None
    if not (open_ or stacks or (announced and announced[1] >= STUCK_S)):
        return
    worst = max(open_, key=lambda o: o.waited_s, default=None)
    starts = list(worst.starts) if worst else [announced[0]] if announced else []
    if not starts and _went_on(view, []):
        return
    shown = [s for s, _ in stacks]
    # two looks at one place that lie far apart, or one that is taken long after the creation began
    late = any(s.at and h.at and s.at.earliest_ns - h.at.latest_ns >= SEEN_S * SECOND for s in shown for h in starts)
    seen = bool(stacks) and (any(long for _, long in stacks) or late)
    quiet = announced is not None and announced[1] >= STUCK_S
    by_lines = worst is not None and worst.waited_s >= STUCK_S
    who = _who(view, worst, shown)
    began = since(starts, shown)
    when = f" since {iso(began.earliest_ns)}" if began else ""
    yield view.finding(
        "comm-init-stuck",
        grade(observed=seen or (by_lines and _failed(view)), agreeing=2 if by_lines or quiet else 0),
        title=f"The creation of a communicator began and did not end{when}: {_how(worst, announced, shown)}",
        because=refs(starts, shown),
        severity=Severity.CRITICAL,
        role=FindingRole.ROOT,
        processes=who,
        ranks=worst.ranks if worst and worst.size == world(view) else (),
        nodes=() if who else dict.fromkeys([*(h.node for h in starts), *(s.node for s in shown)]),
        since=began,
        does_not_show="why: the ranks that began wait for all others, and each step also goes through the driver and the network",
        would_settle=["NCCL_DEBUG=INFO of every rank: who began, who completed", "native stacks of every rank, twice"],
    )


def _went_on(view: View, starts: list[LogHit]) -> bool:
    """Whether the engine became ready or worked after these lines: then the creation ended, whatever was printed."""
    if not starts:
        return served(view) is not None or any(i.moved for i in view.progress.metrics)
    return all(served_after(view, s) for s in starts)


def _failed(view: View) -> bool:
    """Whether something else says that the start did not succeed: a line that is only missing may have been lost."""
    return view.starting or bool(view.events("start-failed", "fatal", "timeout") or stuck(view))


def _who(view: View, worst: Open | None, shown: list[ThreadStack]) -> list[EngineProcess]:
    """Those that are known to be inside; where only the silence of all tells, everybody: they wait for each other."""
    if worst and worst.done:
        return [w for w in view.workers if w.rank and w.rank.rank in worst.ranks and worst.size == world(view)]
    mine = [w for w in view.workers if any(s.pid == w.pid and s.node == w.info.node for s in shown)]
    found = mine if len(mine) > 1 else list(view.workers) or mine
    # one that is inside waits for others; where it is the only one that was seen, nothing says that it is the one to blame
    return found if len(found) > 1 else []


def _how(worst: Open | None, announced: tuple[LogHit, float] | None, shown: list[ThreadStack]) -> str:
    said = []
    if worst:
        said.append(f"rank {_listed(worst.ranks)} of {worst.size} began and did not complete for {duration(worst.waited_s)}")
        if worst.done:
            said.append(f"rank {_listed(worst.done)} completed")
        if worst.absent:
            said.append(f"of rank {_listed(worst.absent)} no beginning was read")
    elif announced and announced[1]:
        said.append(f"no worker printed anything for {duration(announced[1])} after NCCL was loaded")
    if shown:
        said.append(f"{len(shown)} stack(s) inside it")
    return "; ".join(said)


def _listed(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks[:12])) + (", …" if len(ranks) > 12 else "")


TEXTS = {
    "comm-init-stuck": Text(
        says=(
            "Ranks began to create a communicator and never finished. Nothing in NCCL or in torch's watchdog limits this: it can stand "
            "for ever."
        ),
        establishes="Init START without Init COMPLETE on named ranks, or their stacks inside the creation in two samples.",
        lower="Supported: the log ends inside the creation, and nothing tells that time went on.",
        next_steps=(
            "look at the ranks without an Init START first: the others wait for them",
            "NCCL_DEBUG=INFO, and compare the interface that each rank chose (NCCL_SOCKET_IFNAME, NCCL_IB_HCA)",
        ),
        over_nodes=(TOGETHER, RACE),
    ),
}

RULE = Rule(
    name="comm_init",
    texts=TEXTS,
    about="Ranks began to create a communicator and none, or not all, of them finished.",
    any_of=("log", "stacks"),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="A slow start: its workers print lines after the communicator (attention backend, weights). Then nothing is claimed.",
    references=("NCCL init.cc Init START and Init COMPLETE", "vllm distributed/device_communicators/pynccl.py"),
)
