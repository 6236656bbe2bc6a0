"""From single processes to engines: families by parent, orphans by session or log, nodes by their rendezvous."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from forensics.engines import generic
from forensics.engines._argv import WORLD_LIMIT, ancestors, multiprocessing_helper
from forensics.engines._profile import EngineProfile, Placed
from forensics.model import EngineInstance, EngineProcess, ProcessInfo, RankId, Role

START_NEIGHBOURHOOD_NS = 120 * 10**9
"""Orphans whose head is gone and that share neither session nor log belong together when they started within this time."""
CLOCK_GRAIN_NS = 2 * 10**9
"""Start times are derived from the boot time, which is only good to a second."""

_ORDER = {Role.LAUNCHER: 0, Role.API: 1, Role.COORDINATOR: 2, Role.CORE: 3, Role.WORKER: 4, Role.HELPER: 5}
_HEADS = (Role.LAUNCHER, Role.API)


@dataclass
class Draft:
    """An engine being put together."""

    profile: EngineProfile
    members: list[tuple[ProcessInfo, Placed]] = field(default_factory=list)

    @property
    def infos(self) -> list[ProcessInfo]:
        return [info for info, _ in self.members]

    @property
    def sparse(self) -> bool:
        """Made of names in logs and stacks only: no parents are known, and of a command line no more than a title."""
        return all(info.ppid is None and len(info.argv) < 2 for info in self.infos)

    @property
    def headed(self) -> bool:
        return any(placed.role in _HEADS for _, placed in self.members)

    @property
    def asked(self) -> bool:
        return any(info.asked for info in self.infos)

    @property
    def together(self) -> str:
        tell = self.profile.together
        return next((text for text in map(tell, self.infos) if text), "") if tell else ""

    @property
    def nodes(self) -> set[str]:
        return {info.node for info in self.infos}

    @property
    def started_ns(self) -> int | None:
        known = [info.started_ns for info in self.infos if info.started_ns is not None]
        return min(known) if known else None

    def seats(self) -> set[tuple[Role, int | None, int | None]]:
        """The places that this part fills; two parts of one engine never fill the same one."""
        return {
            (placed.role, placed.rank.dp if placed.rank else None, placed.rank.rank if placed.rank else None)
            for _, placed in self.members
            if placed.role in (Role.API, Role.CORE, Role.WORKER)
        }


def identify(processes: Sequence[ProcessInfo], profiles: Sequence[EngineProfile]) -> list[EngineInstance]:
    """Group processes of any number of nodes into engines. Processes that belong to no engine are left out."""
    drafts: list[Draft] = []
    nodes: dict[str, dict[int, ProcessInfo]] = {}
    for info in processes:
        table = nodes.setdefault(info.node, {})
        table[info.pid] = _richer(table.get(info.pid), info)
    for table in nodes.values():
        found = _on_node(table, profiles)
        if any(draft.profile is not generic.PROFILE for draft in found):
            # beside a known engine, an unranked Python server is a bystander
            found = [draft for draft in found if draft.profile is not generic.PROFILE or draft.asked or generic.has_ranks(draft.infos)]
        taken = {info.pid for draft in found for info in draft.infos}
        for info in table.values():
            if info.asked and info.pid not in taken:
                found.append(Draft(generic.PROFILE, [(info, Placed(Role.API, None, info.comm or "process"))]))
        drafts += found
    drafts = _complete(_join_nodes(drafts))
    ranked = [profile.name for profile in (*profiles, generic.PROFILE)]
    drafts.sort(
        key=lambda draft: (ranked.index(draft.profile.name), min(draft.nodes), draft.started_ns or 0, min(info.pid for info in draft.infos))
    )
    return [_instance(f"e{index}", draft) for index, draft in enumerate(drafts)]


def _richer(known: ProcessInfo | None, new: ProcessInfo) -> ProcessInfo:
    """Two accounts of one pid (a table and a log prefix, or two prefixes): keep the one that says more."""
    if known is None:
        return new
    return max(known, new, key=lambda info: (bool(info.argv), info.ppid is not None, info.title.count("_"), len(info.title)))


def _on_node(table: dict[int, ProcessInfo], profiles: Sequence[EngineProfile]) -> list[Draft]:
    drafts: list[Draft] = []
    rest = dict(table)
    for profile in profiles:
        claims: dict[int, Placed] = {}
        for info in rest.values():
            placed = profile.place(info, rest)
            if placed:
                claims[info.pid] = placed
        if not claims:
            continue
        for info in rest.values():  # whatever a claimed process started belongs to its engine
            if info.pid not in claims and any(each.pid in claims for each in ancestors(info, rest)):
                claims[info.pid] = Placed(Role.HELPER, None, multiprocessing_helper(info) or info.comm or "child")
        drafts += _adopt(_families(profile, claims, rest))
        rest = {pid: info for pid, info in rest.items() if pid not in claims}
    return drafts


def _families(profile: EngineProfile, claims: dict[int, Placed], table: dict[int, ProcessInfo]) -> list[Draft]:
    """One draft for each topmost claimed process; those without any known parent share one for each log they speak in."""
    found: dict[int | tuple[str, ...], Draft] = {}
    for pid, placed in claims.items():
        info = table[pid]
        claimed = [each for each in ancestors(info, table) if each.pid in claims]
        top = claimed[-1] if claimed else info
        key = top.log_files[:1] if top.ppid is None and not top.argv else top.pid
        found.setdefault(key, Draft(profile)).members.append((info, placed))
    rooted = [draft for key, draft in found.items() if isinstance(key, int)]
    heard: list[Draft] = []
    for draft in (draft for key, draft in found.items() if not isinstance(key, int)):
        # several logs of one node are one engine (front and workers apart) unless both hold the same seat
        home = next((other for other in heard if not other.seats() & draft.seats()), None)
        if home:
            home.members += draft.members
        else:
            heard.append(draft)
    return rooted + heard


def _adopt(drafts: list[Draft]) -> list[Draft]:
    """Give orphans (their parent died, init took them) back to the engine they came from, or to each other."""
    heads = [draft for draft in drafts if draft.headed]
    orphans: list[Draft] = []
    for draft in drafts:
        if draft.headed:
            continue
        home = next((head for head in heads if _kin(head, draft) and not _older(draft, head)), None)
        if home is None and len(heads) == 1 and _only_names(heads[0], draft):
            home = heads[0]
        home = home or next(
            (other for other in orphans if _kin(other, draft) or _born_together(other, draft) or _only_names(other, draft)), None
        )
        if home:
            home.members += draft.members
        else:
            orphans.append(draft)
    return heads + orphans


def _kin(one: Draft, other: Draft) -> bool:
    sessions = {info.session for info in one.infos if info.session} & {info.session for info in other.infos if info.session}
    logs = {path for info in one.infos for path in info.log_files} & {path for info in other.infos for path in info.log_files}
    return bool(sessions or logs)


def _older(orphan: Draft, head: Draft) -> bool:
    """Whether an orphan was there before the head: then it is left over from a previous run in the same session or log."""
    if orphan.started_ns is None or head.started_ns is None:
        return False
    return orphan.started_ns < head.started_ns - CLOCK_GRAIN_NS


def _born_together(one: Draft, other: Draft) -> bool:
    if one.started_ns is None or other.started_ns is None:
        return False
    return abs(one.started_ns - other.started_ns) <= START_NEIGHBOURHOOD_NS and not one.seats() & other.seats()


def _only_names(one: Draft, other: Draft) -> bool:
    """Whether nothing but their titles is known of both, as of mailed stack dumps: places that do not collide are one engine."""
    infos = (*one.infos, *other.infos)
    bare = all(info.ppid is None and info.session is None and info.started_ns is None and not info.asked for info in infos)
    placed = all(rank is not None for role, _, rank in (*one.seats(), *other.seats()) if role is Role.WORKER)
    return bare and placed and not one.seats() & other.seats()


def _join_nodes(drafts: list[Draft]) -> list[Draft]:
    """Merge parts whose command lines name the same rendezvous and the same world."""
    joined: list[Draft] = []
    for draft in drafts:
        text = draft.together
        home = None
        if text:
            home = next((each for each in joined if each.profile is draft.profile and each.together == text), None)
            if home and (home.seats() & draft.seats() or (_loopback(text) and home.nodes != draft.nodes)):
                home = None  # the same seat twice, or everybody's own loopback: two engines that look alike
        if home:
            home.members += draft.members
        else:
            joined.append(draft)
    return joined


def _loopback(text: str) -> bool:
    return text.startswith(("127.", "localhost", "::1", "[::1]", ":"))


def _complete(drafts: list[Draft]) -> list[Draft]:
    """In bare logs a follower's lines state no rendezvous: it joins the only headed engine that lacks what it has."""
    kept = [draft for draft in drafts if draft.headed or not draft.sparse]
    for part in drafts:
        if part in kept:
            continue
        seats = part.seats()
        alike = [each for each in kept if each.profile is part.profile and each.sparse and each.headed]
        # what was only photographed writes no log of its own: it may belong to the engine of its own node
        apart = any(info.log_files for info in part.infos)
        fitting = [each for each in alike if not (apart and each.nodes & part.nodes) and not each.seats() & seats]
        known = all(rank is not None or (role is Role.CORE and dp is not None) for role, dp, rank in seats)
        if len(alike) == 1 and fitting and seats and known:
            fitting[0].members += part.members
        else:
            kept.append(part)
    return kept


def _instance(name: str, draft: Draft) -> EngineInstance:
    profile = draft.profile
    members = sorted(draft.members, key=lambda each: (_ORDER[each[1].role], _rank_key(each[1].rank), each[0].node, each[0].pid))
    infos = [info for info, _ in members]
    told = [size for size in map(profile.world, infos) if size and size <= WORLD_LIMIT] if profile.world else []
    world = max(filter(None, (_world(placed.rank for _, placed in members), *told)), default=None)
    processes = tuple(
        EngineProcess(info=info, role=placed.role, rank=_in_world(placed, world), label=placed.label or placed.role.value)
        for info, placed in members
    )
    stated = [size for size in (profile.dp_size(info) for info in infos) if size] if profile.dp_size else []
    replicas = [placed.rank.dp + 1 for _, placed in members if placed.rank and placed.rank.dp is not None]
    return EngineInstance(
        id=name,
        kind=profile.name,
        processes=processes,
        nodes=tuple(sorted(draft.nodes)),
        ports=_ports(profile, members),
        log_files=tuple(dict.fromkeys(path for info in infos for path in info.log_files)),
        version=next((text for text in map(profile.version, infos) if text), "") if profile.version else "",
        world_size=world,
        dp_size=max([1, *stated, *replicas]),
        execute_timeout_s=_execute_timeout(profile, members),
    )


def _rank_key(rank: RankId | None) -> tuple[int, int]:
    if rank is None:
        return (-1, -1)
    return (-1 if rank.dp is None else rank.dp, 1 << 30 if rank.rank is None else rank.rank)


def _world(ranks: Iterable[RankId | None]) -> int | None:
    """The world of one replica: what was stated, but never less than the ranks that were seen; None where no number can be meant."""
    known = [rank for rank in ranks if rank is not None]
    sizes = [rank.world_size for rank in known if rank.world_size] + [rank.rank + 1 for rank in known if rank.rank is not None]
    return max((size for size in sizes if size <= WORLD_LIMIT), default=None)


def _in_world(placed: Placed, world: int | None) -> RankId | None:
    rank = placed.rank
    if rank is None or rank.rank is None or rank.world_size == world:
        return rank
    return RankId(rank=rank.rank, world_size=world, tp=rank.tp, pp=rank.pp, dp=rank.dp, ep=rank.ep)


def _ports(profile: EngineProfile, members: Sequence[tuple[ProcessInfo, Placed]]) -> tuple[int, ...]:
    """Where the engine serves HTTP: the port of its command line, else whatever its front ends listen on."""
    fronts = [info for info, placed in members if placed.role in _HEADS]
    asked = [port for port in (profile.listens(info) for info in fronts) if port] if profile.listens else []
    if asked:
        return tuple(dict.fromkeys(asked))
    apis = [info for info, placed in members if placed.role is Role.API]
    return tuple(dict.fromkeys(port for info in apis for port in info.listening_ports))


def _execute_timeout(profile: EngineProfile, members: Sequence[tuple[ProcessInfo, Placed]]) -> float | None:
    """The time limit from an environment that could be read; the default only where one could be read and lacks it."""
    if not profile.execute_timeout_env:
        return None
    for info, placed in members:
        if placed.role is Role.HELPER:
            continue
        try:
            return float(info.env[profile.execute_timeout_env])
        except (KeyError, ValueError):
            continue
    intact = any(info.env and placed.role in _HEADS for info, placed in members)
    return profile.execute_timeout_default_s if intact else None
