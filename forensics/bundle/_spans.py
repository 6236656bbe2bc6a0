"""Find spans in a line and replace them: what the redactors of credentials, contents and request ids have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from forensics.bundle import _patterns as p
from forensics.bundle import _triggers as t
from forensics.bundle._keys import Holds, holds
from forensics.bundle._values import MAX_DEPTH, Value, find_close, scan_value

Mark = Callable[[str, bytes], bytes]
"""(kind, secret) to its placeholder; counts as it goes."""
Replaced = tuple[int, int, bytes]
"""Start and end of what goes, and what comes instead."""

EXEMPT = re.compile(rb"(?:none|null|nil|true|false|undefined|unset|\*+|\.{3}|\$\{?\w+\}?|%\(?\w*\)?s|-)?", re.IGNORECASE)
NUMBER = re.compile(rb"[-+]?\d[\d.,_]*(?:[eE][-+]?\d+)?[ \t]*(?:%|tokens?|toks?|ms|us|s|[kKMG]i?B|chars?|bytes?)?(?=[\s,;|)\]}/]|$)")
PLACE_OF_CODE = re.compile(rb"\{[A-Za-z_][\w.!:()\[\]'\"]*\}?")
_QUOTED = re.compile(rb"(\\*)([\"'])")


def worth(inner: bytes) -> bool:
    """Whether a value is anything at all: not None, not a placeholder, not a row of stars."""
    plain = inner.strip()
    return not EXEMPT.fullmatch(plain) and not p.PLACEHOLDER.fullmatch(plain)


def positions(words: Iterable[str], body: bytes) -> list[int]:
    """Where any of `words` begins, except as the kind of a placeholder."""
    found = t.positions(words, body.decode("latin-1").lower())
    return [at for at in found if body[max(0, at - 10) : at] != b"<redacted:"] if b"<redacted:" in body else found


def replace_named(
    pattern: re.Pattern[bytes],
    words: tuple[str, ...],
    body: bytes,
    quote_group: int,
    replace: Callable[[re.Match[bytes], Value, bytes], Replaced | None],
) -> bytes:
    """Replace the value behind every name. `replace` returns None to leave a value alone."""
    out: list[bytes] = []
    kept = at = 0
    for position in positions(words, body):
        match = pattern.match(body, position) if position >= at else None
        if match is None:
            continue
        quote = match[quote_group] or b""
        bare = p.BARE_LINE if match[0].rstrip().endswith(b":") else p.BARE_WORD
        depth = MAX_DEPTH
        if pattern is p.REQUEST_NAMED or (pattern is p.CONTENT and holds(match[1].decode()) is Holds.PROSE):
            depth = 1  # a group is read flat, or not at all: looking for its end would only cost time
        value = scan_value(body, match.end(), bare, max(0, len(quote) - 1), depth)
        at = match.end()
        new = replace(match, value, body) if value else None
        if new is not None:
            out += (body[kept : new[0]], new[2])
            kept = at = new[1]
    return b"".join(out) + body[kept:] if out else body


def replace_at(pattern: re.Pattern[bytes], words: tuple[str, ...], body: bytes, replace: Callable[[re.Match[bytes]], bytes]) -> bytes:
    """`pattern.sub`, tried only where one of `words` begins."""
    out: list[bytes] = []
    kept = 0
    for position in positions(words, body):
        if position >= kept and (match := pattern.match(body, position)):
            out += (body[kept:position], replace(match))
            kept = match.end()
    return b"".join(out) + body[kept:] if out else body


def replace_group(pattern: re.Pattern[bytes], body: bytes, replace: Callable[[bytes], bytes | None]) -> bytes:
    """Replace group 1 of every match; `replace` returns None to leave it."""

    def one(match: re.Match[bytes]) -> bytes:
        new = replace(match[1])
        if new is None:
            return match[0]
        start = match.start()
        return match[0][: match.start(1) - start] + new + match[0][match.end(1) - start :]

    return pattern.sub(one, body)


def strings(body: bytes, value: Value) -> list[tuple[int, int]]:
    """Spans of the contents of the quoted strings inside a group."""
    spans: list[tuple[int, int]] = []
    at = value.inner_start
    while (match := _QUOTED.search(body, at, value.inner_end)) is not None:
        closed = find_close(body, match.end(), match[2], len(match[1]))
        end, at = closed if closed else (value.inner_end, value.inner_end)
        if end > match.end():
            spans.append((match.end(), end))
        at = max(at, match.end())
    return spans
