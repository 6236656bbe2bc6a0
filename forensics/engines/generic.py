"""Any Python program of several processes that serves: no engine is known by name here, only its shape.

A tree of Python processes is taken for an engine when its children say which rank they are, or when one of them
listens on a TCP port. Ranked last: every other engine is a Python program too.
"""

from __future__ import annotations

import re

from forensics.engines._argv import ANCESTRY_LIMIT, command, is_python, multiprocessing_helper, number, retitled
from forensics.engines._generic_frames import FRAMES
from forensics.engines._profile import EngineProfile, Placed, ProgressNames, Table
from forensics.model import ProcessInfo, RankId, Role

_RANK_OPTIONS = ("--rank", "--global-rank", "--tp-rank", "--worker-rank", "--local-rank")
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
    rank = rank_of(info)
    if info.ppid is None and not info.argv:  # a log prefix: the name is all there is
        return Placed(Role.WORKER, RankId(rank=rank), f"worker {rank}") if rank is not None else None
    if not is_python(info) and rank is None:
        return None
    root = _root(info, table)
    family = _family(root, table)
    real = [each for each in family if not multiprocessing_helper(each) or multiprocessing_helper(each) == "starting"]
    ranked = [each for each in real if rank_of(each) is not None]
    if len(real) < 2 or not (ranked or any(each.listening_ports for each in real)):
        return None
    helper = multiprocessing_helper(info)
    if helper and helper != "starting":
        return Placed(Role.HELPER, None, helper)
    # ranks listen as well (rendezvous, collectives): the front end is the one that has no rank
    fronts = [each for each in real if each.listening_ports and each not in ranked]
    front = min(fronts, key=lambda each: (_depth(each, root, table), each.pid)) if fronts else root
    if info.pid == front.pid and rank is None:
        return Placed(Role.API, None, "api")
    parents = {each.ppid for each in (ranked or real) if each.pid != root.pid}
    if rank is not None:
        above = table.get(info.ppid) if info.ppid is not None else None
        if above and above.pid != info.pid and rank_of(above) == rank and above in family:
            return Placed(Role.HELPER, None, "child")  # forked from a rank: it shares the parent's command line
        size = len({rank_of(each) for each in ranked})
        return Placed(Role.WORKER, RankId(rank=rank, world_size=size), f"worker {rank}")
    if info.pid in parents:
        return Placed(Role.CORE, None, "core")
    if ranked:
        return Placed(Role.HELPER, None, "child")
    return Placed(Role.WORKER, RankId(), "worker")


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


def _root(info: ProcessInfo, table: Table) -> ProcessInfo:
    current = info
    for _ in range(ANCESTRY_LIMIT):
        above = table.get(current.ppid) if current.ppid is not None else None
        if above is None or above.pid in (info.pid, current.pid) or not (is_python(above) or rank_of(above) is not None):
            break
        current = above
    return current


def _family(root: ProcessInfo, table: Table) -> list[ProcessInfo]:
    children: dict[int | None, list[ProcessInfo]] = {}
    for each in table.values():
        children.setdefault(each.ppid, []).append(each)
    found, queue = [root], [root]
    while queue:
        for child in children.get(queue.pop().pid, ()):
            if child not in found and (is_python(child) or rank_of(child) is not None):
                found.append(child)
                queue.append(child)
    return found


def _depth(info: ProcessInfo, root: ProcessInfo, table: Table) -> int:
    depth, current = 0, info
    while current.pid != root.pid and depth < ANCESTRY_LIMIT:
        above = table.get(current.ppid) if current.ppid is not None else None
        if above is None:
            break
        current, depth = above, depth + 1
    return depth


def has_ranks(infos: list[ProcessInfo]) -> bool:
    """Whether any of these processes says which rank it is: without that, a tree is an engine only for want of a better one."""
    return any(rank_of(info) is not None for info in infos)


PROFILE = EngineProfile(
    name="python",
    place=place,
    progress=PROGRESS,
    frames=FRAMES,
    env_allow=("RANK", "LOCAL_RANK", "WORLD_SIZE"),
)
