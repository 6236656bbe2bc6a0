"""Random object graphs, made in one long-lived child for each version: what is read is what was made."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import EVERYTHING, Child


class Made(NamedTuple):
    """An expression for the child, and how its value looks in a snapshot (members of sets sorted by their JSON)."""

    source: str
    looks: Any


def literal(value: Any) -> Made:
    return Made(ascii(value), value)


def tagged(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"$type": kind, **fields}


def as_int(value: int) -> Made:
    big = value.bit_length() > 1024
    return Made(str(value), tagged("int", bits=value.bit_length(), hex=hex(value)) if big else value)


def as_float(value: float) -> Made:
    finite = value == value and abs(value) != float("inf")
    return Made(f"float({str(value)!r})", value if finite else tagged("float", value=str(value)))


def as_bytes(value: bytes) -> Made:
    return Made(ascii(value), tagged("bytes", length=len(value), data=repr(value)[2:-1]))


def key(made: Made) -> str:
    return json.dumps(made.looks, sort_keys=True)


INTEGERS = st.one_of(st.integers(-5, 300), st.integers(), st.integers(-(2**1200), 2**1200))
# json refuses lone surrogates in neither direction; they stay themselves
STRINGS = st.one_of(st.text(max_size=12), st.text(st.characters(codec="latin-1"), max_size=12), st.text("ab$\x00\x1b", max_size=80))
SCALARS = st.one_of(
    st.sampled_from([literal(None), literal(True), literal(False)]),
    INTEGERS.map(as_int),
    st.floats().map(as_float),
    STRINGS.map(literal),
    st.binary(max_size=20).map(as_bytes),
    st.sampled_from(
        [
            Made("Color.RED", tagged("shapes.Color", name="RED", value=1)),
            Made("Level.LOW", tagged("shapes.Level", name="LOW", value=10)),
        ]
    ),
)
NAMES = st.text("abcgh_", min_size=1, max_size=5).filter(lambda name: not name.startswith("__"))


def joined(items: list[Made]) -> str:
    return ", ".join(item.source for item in items)


def as_list(items: list[Made]) -> Made:
    return Made(f"[{joined(items)}]", [item.looks for item in items])


def as_tuple(items: list[Made]) -> Made:
    return Made(f"({joined(items)}{',' if items else ''})", [item.looks for item in items])


def as_deque(items: list[Made], by: int, spare: int) -> Made:
    looks = [item.looks for item in items]
    by %= len(items) or 1
    looks = looks[-by:] + looks[:-by] if by else looks
    return Made(
        f"rotated([{joined(items)}], {by}, {len(items) + spare})",
        tagged("collections.deque", length=len(items), maxlen=len(items) + spare, items=looks),
    )


def as_set(items: list[Made], kind: str) -> Made:
    looks = sorted((item.looks for item in items), key=lambda one: json.dumps(one, sort_keys=True))
    return Made(f"{kind}([{joined(items)}])", tagged(kind.replace("churned_", ""), length=len(items), items=looks))


def as_dict(pairs: list[tuple[Made, Made]], gone: list[str]) -> Made:
    source = "churned([{}], {!r})".format(", ".join(f"({k.source}, {v.source})" for k, v in pairs), gone)
    entries = {k.looks: v.looks for k, v in pairs if isinstance(k.looks, str)}
    named = {k.looks["data"]: v.looks for k, v in pairs if isinstance(k.looks, dict)}
    others = [[k.looks, v.looks] for k, v in pairs if not isinstance(k.looks, (str, dict))]
    if not others and not named and not any(name.startswith("$") for name in entries):
        return Made(source, entries)
    environ = {}
    if all(isinstance(side.looks, dict) and side.looks["$type"] == "bytes" for side in pairs[0]):  # the first entry tells
        texts = {name: v.get("data") if isinstance(v, dict) else v for name, v in (entries | named).items()}
        environ = {name: text for name, text in texts.items() if isinstance(text, str)}
        entries, named = ({name: v for name, v in one.items() if name not in environ} for one in (entries, named))
    parts = {"environ": environ, "entries": entries, "named": named, "items": others}
    return Made(source, tagged("dict", length=len(pairs), **{name: part for name, part in parts.items() if part}))


def as_instance(kind: str, attributes: dict[str, Made], gone: list[str]) -> Made:
    inner = ", ".join(f"{name!r}: {value.source}" for name, value in attributes.items())
    deleted = [name for name in gone if name not in attributes] if kind == "Plain" else []
    looks = {name: value.looks for name, value in attributes.items()}
    return Made(
        f"{kind}({{{inner}}}{f', {deleted!r}' if deleted else ''})", tagged(f"shapes.{kind}", **({"attributes": looks} if looks else {}))
    )


def as_slotted(left: Made, right: Made, more: dict[str, Made]) -> Made:
    kind = "Mixed" if more else "Slotted"
    named = "".join(f", {name}={value.source}" for name, value in more.items())
    looks = {"left": left.looks, "right": right.looks, **{name: value.looks for name, value in more.items()}}
    return Made(f"{kind}({left.source}, {right.source}{named})", tagged(f"shapes.{kind}", attributes=looks))


# 1, True and 1.0 are one key: keys of one kind only
KEYS = st.one_of(STRINGS.map(literal), st.integers(2, 10**12).map(as_int), st.binary(max_size=6).map(as_bytes))
MEMBERS = st.lists(KEYS, max_size=8, unique_by=key)
ATTRIBUTES = st.lists(NAMES.filter(lambda name: name not in ("left", "right", "self")), max_size=5, unique=True)
GONE = st.lists(st.sampled_from(["gone", "left_out", "x9"]), max_size=2, unique=True)
KINDS = st.sampled_from(["scalar", "list", "tuple", "deque", "set", "dict", "instance", "slotted"])


@st.composite
def graphs(draw: st.DrawFn, depth: int = 3) -> Made:
    kind = draw(KINDS) if depth else "scalar"
    if kind == "scalar":
        return draw(SCALARS)
    if kind == "set":
        return as_set(draw(MEMBERS), draw(st.sampled_from(["set", "frozenset", "churned_set"])))

    def inner() -> Made:
        return draw(graphs(depth - 1))

    if kind == "dict":
        return as_dict([(name, inner()) for name in draw(MEMBERS)], draw(GONE))
    if kind == "instance":
        return as_instance(draw(st.sampled_from(["Plain", "Opened"])), {name: inner() for name in draw(ATTRIBUTES)}, draw(GONE))
    if kind == "slotted":
        return as_slotted(inner(), inner(), {name: inner() for name in draw(ATTRIBUTES)[:2]})
    items = [inner() for _ in range(draw(st.integers(0, 4)))]
    if kind == "deque":
        return as_deque(items, draw(st.integers(0, 70)), draw(st.integers(1, 3)))
    return as_list(items) if kind == "list" else as_tuple(items)


def sorted_sets(value: Any) -> Any:
    """`value` with the members of sets in the order of their JSON."""
    if isinstance(value, list):
        return [sorted_sets(one) for one in value]
    if isinstance(value, dict):
        out = {name: sorted_sets(one) for name, one in value.items() if name != "$at"}
        if out.get("$type") in ("set", "frozenset") and isinstance(out.get("items"), list):
            out["items"] = sorted(out["items"], key=lambda one: json.dumps(one, sort_keys=True))
        return out
    return value


@settings(
    max_examples=200,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(graphs())
def test_what_is_read_is_what_was_made(child: Child, made: Made) -> None:
    snapshot = child.process.snapshot(child.make(made.source), EVERYTHING)
    assert not snapshot.torn and not snapshot.cut
    assert json.dumps(sorted_sets(snapshot.value), sort_keys=True) == json.dumps(made.looks, sort_keys=True), made.source
