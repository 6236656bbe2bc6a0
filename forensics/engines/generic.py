"""Any Python program of several processes that serves: no engine is known by name here, only its shape.

A tree of Python processes is taken for an engine when its children say which rank they are, or when one of them
listens on a TCP port. Ranked last: every other engine is a Python program too.
"""

from __future__ import annotations

import re

from forensics.engines._argv import WORLD_LIMIT, command, is_python, multiprocessing_helper, number, retitled
from forensics.engines._generic_frames import FRAMES
from forensics.engines._profile import EngineProfile, Placed, ProgressNames, Stated, Table
from forensics.model import ProcessInfo, RankId, Role

_RANK_OPTIONS = ("--rank", "--global-rank", "--tp-rank", "--worker-rank", "--local-rank")
_WORLD_OPTIONS = ("--world-size", "--nranks", "--tp-size")
_RANK_TITLES = (
    # what names a rank outright before what merely numbers a worker
    re.compile(r"(?i)(?:^|[^a-z0-9])(?:global[ _-]?)?rank[ _=:#-]?(\d{1,5})\b"),
    re.compile(r"_TP(\d{1,5})(?![A-Za-z0-9])"),
    re.compile(r"(?i)(?:^|[^a-z0-9])worker[ _=:#-]?(\d{1,5})\b"),
)

PROGRESS = ProgressNames(
    steps=("iteration_tokens_total_count", "engine_steps_total", "steps_total", "iterations_total"),
    generation_tokens=(
        "generation_tokens_total",
        "generated_tokens_total",
        "output_tokens_total",
        "completion_tokens_total",
        "tokens_generated_total",
    ),
    prompt_tokens=("prompt_tokens_total", "input_tokens_total"),
    requests=("request_success_total", "requests_finished_total", "requests_completed_total", "finished_requests_total"),
    running=("num_requests_running", "num_running_reqs", "requests_running", "running_requests", "requests_in_flight"),
    waiting=("num_requests_waiting", "num_queue_reqs", "requests_waiting", "waiting_requests", "requests_queued", "queued_requests"),
    kv_usage=("kv_cache_usage_perc", "kv_usage", "token_usage"),
    step_seconds=("inter_token_latency_seconds", "time_per_output_token_seconds", "step_seconds"),
    replica_label="engine",
)


def place(info: ProcessInfo, table: Table) -> Placed | None:
    """Claim a process of a serving Python tree."""
    if info.ppid is None and not info.argv:  # a log prefix: the name is all there is
        rank = rank_of(info)
        return Placed(Role.WORKER, RankId(rank=rank), f"worker {rank}") if rank is not None else None
    tree = _tree(table)
    if info.pid not in tree.members:
        return None
    rank = tree.ranks[info.pid]
    root = tree.root(info.pid)
    family = [pid for pid in tree.below(root) if tree.root(pid) == root]
    real = [pid for pid in family if multiprocessing_helper(table[pid]) in ("", "starting")]
    ranked = [pid for pid in real if tree.ranks[pid] is not None]
    if len(real) < 2 or not (ranked or any(table[pid].listening_ports for pid in real)):
        return None
    helper = multiprocessing_helper(info)
    if helper and helper != "starting":
        return Placed(Role.HELPER, None, helper)
    if rank is not None:
        if info.ppid is not None and tree.ranks.get(info.ppid) == rank:
            return Placed(Role.HELPER, None, "child")  # forked from a rank: it shares the parent's command line
        # ranks on other nodes are not in this table: what the command line says comes first
        size = number(command(info), *_WORLD_OPTIONS) or len({tree.ranks[pid] for pid in ranked})
        return Placed(Role.WORKER, RankId(rank=rank, world_size=size), f"worker {rank}")
    # ranks listen as well (rendezvous, collectives): the front end is the topmost that has no rank
    fronts = [pid for pid in real if table[pid].listening_ports and pid not in ranked]
    front = min(fronts, key=lambda pid: (len(tree.above(pid)), pid)) if fronts else root
    if info.pid == front:
        return Placed(Role.API, None, "api")
    if info.pid in {table[pid].ppid for pid in (ranked or real) if pid != root}:
        return Placed(Role.CORE, None, "core")
    return Placed(Role.HELPER, None, "child") if ranked else Placed(Role.WORKER, RankId(), "worker")


class _Tree:
    """The Python processes of a table by parent. Built once for a table: every process is placed against the same one."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.ranks = {pid: rank_of(info) for pid, info in table.items()}
        self.members = {pid for pid, info in table.items() if is_python(info) or self.ranks[pid] is not None}
        self.children: dict[int | None, list[int]] = {}
        for pid in self.members:
            self.children.setdefault(table[pid].ppid, []).append(pid)
        self._roots: dict[int, int] = {}

    def above(self, pid: int) -> list[int]:
        """Parents that are members, nearest first."""
        found: list[int] = []
        parent = self.table[pid].ppid
        while parent in self.members and parent != pid and parent not in found:
            found.append(parent)
            parent = self.table[parent].ppid
        return found

    def below(self, pid: int) -> list[int]:
        """This process and everything that descends from it."""
        found, queue, seen = [pid], [pid], {pid}
        while queue:
            for child in self.children.get(queue.pop(), ()):
                if child not in seen:
                    seen.add(child)
                    found.append(child)
                    queue.append(child)
        return found

    def root(self, pid: int) -> int:
        """Top of the engine that a process would belong to: the nearest front end over ranks, else the topmost Python parent.

        A program that starts two such engines (a test, a supervisor) is part of neither.
        """
        if pid not in self._roots:
            chain = [pid, *self.above(pid)]
            self._roots[pid] = next((each for each in chain if self._heads(each)), chain[-1])
        return self._roots[pid]

    def _heads(self, pid: int) -> bool:
        if not self.table[pid].listening_ports or self.ranks[pid] is not None:
            return False
        return any(self.ranks[each] is not None for each in self.below(pid))


_last: _Tree | None = None


def _tree(table: Table) -> _Tree:
    global _last
    if _last is None or _last.table is not table:
        _last = _Tree(table)
    return _last


def rank_of(info: ProcessInfo) -> int | None:
    """The rank that a process states: an option, the environment, or its title (only where that is all there is)."""
    argv = command(info)
    stated = number(argv, *_RANK_OPTIONS)
    if stated is not None:
        return stated
    for name in ("RANK", "LOCAL_RANK"):
        if info.env.get(name, "").isdigit():
            return int(info.env[name])
    if retitled(info) or (not info.argv and info.ppid is None):
        for pattern in _RANK_TITLES:
            found = pattern.search(info.title)
            if found:
                return int(found[1])
    return None


def commanded(info: ProcessInfo) -> Stated | None:
    """The size that a rank was given: by an option, or by the environment."""
    size = number(command(info), *_WORLD_OPTIONS)
    if size is None and (text := info.env.get("WORLD_SIZE", "")).isdigit() and len(text) < 10:
        size = int(text)
    return Stated(world=size) if size and size <= WORLD_LIMIT and rank_of(info) is not None else None


def listens(info: ProcessInfo) -> int | None:
    """The port that the command line asks for, where the real ones could not be seen (another user's process)."""
    return None if info.listening_ports else number(command(info), "--port")


def has_ranks(infos: list[ProcessInfo]) -> bool:
    """Whether any of these processes says which rank it is: without that, a tree is an engine only for want of a better one."""
    return any(rank_of(info) is not None for info in infos)


PROFILE = EngineProfile(
    name="python",
    place=place,
    listens=listens,
    commanded=commanded,
    progress=PROGRESS,
    frames=FRAMES,
    env_allow=("RANK", "LOCAL_RANK", "WORLD_SIZE"),
)
