"""What is looked for, and the library that looks: hyperscan, or the standard library's expressions where it cannot be imported."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from forensics.analysis.signatures import Signature, beginning

FALLBACK_NOTE = "searched without hyperscan, which this Python has not: the same result, many times slower"
COUNTERS = frozenset({"stats", "step"})
"""Events of lines that are printed again and again with how far an engine has come."""
_ESCAPED = re.compile(r'["\\<>&\x00-\x1f\x7f-\U0010ffff]')


@dataclass(frozen=True, eq=False)
class Plan:
    """All literals of one analysis. Indexes: first the literals of ordinary signatures, then markers, then those of stats lines."""

    literals: tuple[bytes, ...]
    signatures: tuple[tuple[Signature, ...], ...]
    """Those of each literal; () for a marker."""
    markers: int
    """Index of the first marker…"""
    stats: int
    """…and of the first literal of a stats line."""
    telling: tuple[str, ...] = ()
    """Expressions (of hyperscan and of `re` alike) for stats lines that always matter."""
    search: Callable[[bytes], tuple[list[int], list[int]]] = field(init=False, repr=False)
    """Of a buffer: (indexes, ends) of all literals and telling lines, in order of their ends; of stats literals one per buffer."""

    def __post_init__(self) -> None:
        make = _hyperscan if engine_of_search() == "hyperscan" else _expressions
        object.__setattr__(self, "search", make(self))

    @classmethod
    def of(cls, known: Sequence[Signature], markers: Sequence[str] = (), kernel: str = "") -> Plan:
        """A plan for these signatures and for whatever an operator's patched build prints.

        `kernel`: what stands in the kernel's lines; it stands in for the literal that some signatures of those have not.
        """
        ordinary: dict[bytes, list[Signature]] = {}
        stats: dict[bytes, list[Signature]] = {}
        for signature in known:
            group = stats if signature.event in COUNTERS else ordinary
            literal = signature.literal or (kernel if signature.engine == "kernel" else "")
            # a blank at the end tells nothing more, and costs: the search looks at the last bytes of a literal first
            for spelt in spellings(literal.rstrip(" ") or literal) if literal else ():
                group.setdefault(spelt, []).append(signature)
        said = [m.encode() for m in markers if m]
        return cls(
            literals=(*ordinary, *said, *stats),
            signatures=(*map(tuple, ordinary.values()), *(() for _ in said), *map(tuple, stats.values())),
            markers=len(ordinary),
            stats=len(ordinary) + len(said),
            telling=tuple(dict.fromkeys(s.telling for s in known if s.event in COUNTERS and s.telling)),
        )


def spellings(literal: str) -> list[bytes]:
    """A literal as it stands in a plain log and, where that differs, in the JSON of a container runtime or a logger."""
    if not _ESCAPED.search(literal):
        return [literal.encode()]
    plain = json.dumps(literal, ensure_ascii=False)[1:-1]
    ascii_only = json.dumps(literal)[1:-1]
    # Go writes these three by their numbers
    careful = functools.reduce(lambda text, c: text.replace(c, f"\\u{ord(c):04x}"), "<>&", plain)
    return [text.encode() for text in dict.fromkeys((literal, plain, ascii_only, careful))]


@functools.lru_cache(maxsize=1)
def engine_of_search() -> str:
    """ "hyperscan", or "re" where it cannot be imported."""
    try:
        import hyperscan  # noqa: F401
    except ImportError:
        return "re"
    return "hyperscan"


def _hyperscan(plan: Plan) -> Callable[[bytes], tuple[list[int], list[int]]]:
    import hyperscan

    database: Any = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    # an expression among hundreds of literals would halve the speed of all: of a telling line its literal beginning is looked for
    told = [(begin, re.compile(t.encode())) for t in plan.telling if (begin := beginning(t).encode())]
    expressions = [_quoted(literal) for literal in (*plan.literals, *(begin for begin, _ in told))]
    if not expressions:
        return lambda data: ([], [])
    first_told = len(plan.literals)
    # one callback for each stats literal and buffer: they are far too many to be told one by one
    once = [hyperscan.HS_FLAG_SINGLEMATCH if plan.stats <= i < len(plan.literals) else 0 for i in range(len(expressions))]
    database.compile(expressions=expressions, ids=list(range(len(expressions))), elements=len(expressions), flags=once)

    def search(data: bytes) -> tuple[list[int], list[int]]:
        found: list[tuple[int, int, int, int, object]] = []
        add = found.append

        def met(*match: Any) -> None:  # (which, start, end, flags, context); kept as it comes: this runs for every hit
            add(match)

        database.scan(data, met)
        if found and told and any(m[0] >= first_told for m in found):
            found[:] = [m for m in found if m[0] < first_told or _goes_on(data, m[2], *told[m[0] - first_told])]
        return [m[0] for m in found], [m[2] for m in found]

    return search


def _goes_on(data: bytes, end: int, begin: bytes, expression: re.Pattern[bytes]) -> bool:
    return expression.match(data, end - len(begin)) is not None


def _quoted(literal: bytes) -> bytes:
    """As an expression of hyperscan's: every byte that is no letter or digit by its number."""
    return b"".join(bytes((c,)) if chr(c).isalnum() and c < 128 else b"\\x%02x" % c for c in literal)


def _expressions(plan: Plan) -> Callable[[bytes], tuple[list[int], list[int]]]:
    everything = [*(re.escape(literal) for literal in plan.literals), *(t.encode() for t in plan.telling)]
    each = [re.compile(e) for e in everything]
    longest = sorted(range(plan.stats), key=lambda i: -len(plan.literals[i]))
    any_of = re.compile(b"|".join(everything[i] for i in longest)) if longest else None

    def search(data: bytes) -> tuple[list[int], list[int]]:
        found: list[tuple[int, int]] = []
        position = 0
        while any_of and (m := any_of.search(data, position)):
            end = data.find(b"\n", m.end())
            end = len(data) if end < 0 else end
            # what else stands on that line
            found += [(k.end(), i) for i in longest if (k := each[i].search(data, m.start(), end))]
            position = end
        found += [(m.end(), i) for i in range(plan.stats, len(plan.literals)) if (m := each[i].search(data))]
        found += [(m.end(), i) for i in range(len(plan.literals), len(each)) for m in each[i].finditer(data)]
        found.sort()
        return [i for _, i in found], [end for end, _ in found]

    return search
