"""torch's flight recorder: the newest collectives of each process group, of NCCL and of gloo, as JSON or as a pickle of plain data.

Measured with torch 2.14: the JSON writes numbers of pg_status as texts and 0 where nothing is known; gloo leaves `state` at "scheduled"
even of what has ended, so `retired` and pg_status decide.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import bounded, plain
from forensics.analysis.parse._pickle import plain_pickle
from forensics.analysis.parse.pystack import short
from forensics.analysis.times import SECOND
from forensics.model import CollectiveRecord, Frame, TimeRange

_RANK = re.compile(r"rank[_-]?(\d{1,6})(?=\D|$)|(?:trace|dump|fr)[_-](\d{1,6})(?=\.|$)|^(\d{1,6})\.(?:json|pkl|pickle)$")
GROUPS_MAX = 4096


def parse(inp: Input, sink: Sink) -> None:
    data = inp.document()
    raw = plain_pickle(data) if data[:1] == b"\x80" else msgspec.json.decode(data)
    if not isinstance(raw, dict) or not ({"entries", "pg_status", "pg_config"} & set(raw)):
        raise ValueError("no dump of a flight recorder")
    entries = [e for e in _list(raw.get("entries")) if isinstance(e, dict)]
    rank = _int(raw.get("rank"))
    if rank is None and (m := _RANK.search(inp.name.rsplit("/", 1)[-1])):
        rank = int(next(g for g in m.groups() if g))
    status = raw.get("pg_status") if isinstance(raw.get("pg_status"), dict) else {}
    config = raw.get("pg_config") if isinstance(raw.get("pg_config"), dict) else {}
    assert isinstance(status, dict) and isinstance(config, dict)
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault(_word(entry.get("pg_id")), []).append(entry)
    told, configured = _by_word(status), _by_word(config)
    # gloo, which has one group in a dump, files it under an empty name
    only = next(iter(configured.values())) if len(configured) == len(config) == 1 else {}
    for key in list(dict.fromkeys([*map(_word, status), *groups]))[:GROUPS_MAX]:
        mine = configured.get(key, {})
        description = _word(mine.get("desc")) or _word(mine.get("name"))
        _group(inp, sink, rank, key, told.get(key, {}), groups.get(key, []), description, _members(mine or only))


def _by_word(value: dict[Any, Any]) -> dict[str, dict[Any, Any]]:
    return {_word(k): v for k, v in value.items() if isinstance(v, dict)}


def _members(config: dict[Any, Any]) -> tuple[int, ...]:
    """ "[0, 1, 2]" of the group."""
    return tuple(int(n) for n in re.findall(r"\d{1,6}", _word(config.get("ranks")))[:GROUPS_MAX])


def _group(
    inp: Input,
    sink: Sink,
    rank: int | None,
    key: str,
    told: dict[Any, Any],
    entries: Sequence[dict[str, Any]],
    description: str,
    members: tuple[int, ...] = (),
) -> None:
    collective = [e for e in entries if e.get("is_p2p") is not True]
    numbers = {id(e): _int(e.get("collective_seq_id", e.get("seq_id"))) for e in collective}
    enqueued, started, completed = (
        _int(told.get(f"last_{word}_collective", told.get(f"last_{word}_work"))) for word in ("enqueued", "started", "completed")
    )
    done = [n for e in collective if (e.get("retired") is True or e.get("state") == "completed") and (n := numbers[id(e)]) is not None]
    if enqueued is None:
        enqueued = max((n for n in numbers.values() if n is not None), default=None)
    if completed is None and done:
        completed = max(done)
    pending = None
    for entry in sorted(collective, key=lambda e: numbers[id(e)] or 0):
        n = numbers[id(entry)]
        if n is None or entry.get("retired") is True or entry.get("state") == "completed" or (completed is not None and n <= completed):
            continue
        pending = entry
        break
    named = pending or (collective[-1] if collective else None)
    name = _names(named.get("process_group")) if named else ""
    frames: list[Frame] = []
    for f in _list(pending.get("frames")) if pending else []:
        if isinstance(f, dict):
            frames.append(
                Frame(
                    name=plain(_word(f.get("name")) or "?"),
                    file=short(_word(f.get("filename"))),
                    line=min(_int(f.get("line")) or 0, 1 << 31),
                )
            )
    group = plain(name or description or key or "default")
    quote = f"enqueued {enqueued}, started {started}, completed {completed}" + (
        f"; pending {plain(_word(pending.get('profiling_name')) or '?')} seq {numbers[id(pending)]} {plain(_word(pending.get('state')))}"
        if pending
        else ""
    )
    created = _int(pending.get("time_created_ns")) if pending else None
    at = inp.at
    if at is None and created and created > SECOND:  # the dump was taken later than the newest thing in it
        newest = max((n for e in entries if (n := _int(e.get("time_created_ns")))), default=created)
        at = TimeRange(earliest_ns=newest, latest_ns=max(newest, inp.calendar.reference_ns), basis="inferred")
    sink.add(
        CollectiveRecord(
            node=inp.node,
            at=at,
            ref=inp.ref(f"process group {group}", quote),
            pid=inp.pid,
            rank=rank,
            group=group,
            last_enqueued=enqueued,
            last_started=started,
            last_completed=completed,
            pending=plain(_word(pending.get("profiling_name"))) if pending else "",
            pending_seq=numbers[id(pending)] if pending else None,
            members=members,
            frames=bounded(frames),
        )
    )


def _names(value: Any) -> str:
    """ "process_group" is [name, description]: the description where there is one."""
    words = [word for v in _list(value)[:2] if (word := _word(v)) and word != "undefined"]
    return words[-1] if words else ""


def _word(value: Any) -> str:
    """Texts and numbers only: a pickle may hold lists that hold each other."""
    return value[:1000] if isinstance(value, str) else str(value) if isinstance(value, int) and abs(value) < 1 << 62 else ""


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _int(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        return None
    return value


_KEYS = ('"pg_config"', '"pg_status"', '"collective_seq_id"', '"comm_lib_version"', '"nccl_version"')


def recognise(name: str, head: str) -> bool:
    if head.lstrip()[:1] == "{":
        return sum(key in head for key in _KEYS[:4]) >= 1 and ('"version"' in head or '"entries"' in head)
    # a pickle's first byte is no valid UTF-8: it comes as the mark of replacement
    return head[:1] in ("\x80", "\ufffd") and any(word in head for word in ("pg_config", "pg_status", "collective_seq_id"))


PARSER = Parser("flight recorder", ("flight-recorder",), recognise, parse, binary=True)
