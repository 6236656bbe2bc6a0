"""Find where a value ends in a line that may be Python, JSON, JSON inside a string, a shell command or plain prose.

Works on bytes and in linear time: log lines of many megabytes occur (a traceback with a prompt in it).
"""

from __future__ import annotations

import contextlib
import re
from typing import NamedTuple


class Value(NamedTuple):
    """A value in a line: `start`..`end` with its quotes or brackets, `inner_start`..`inner_end` without."""

    start: int
    end: int
    inner_start: int
    inner_end: int
    form: str
    """quoted | group | bare"""


_QUOTE = re.compile(rb"(?:[bBuUrRfF]{0,2})(\\*)('''|\"\"\"|['\"])")
_GROUP = re.compile(rb"(?:[A-Za-z_][A-Za-z0-9_.]{0,80})?([\[({])")
_GROUP_EVENT = re.compile(rb"[\[\](){}\"']")
_CLOSERS = (b"]", b")", b"}")
_DELIMITER = frozenset(b',)]};: \t\r\n"\\')


MAX_DEPTH = 100
"""Of brackets. Deeper ones are made to keep parsers busy; the rest of the line counts as inside."""


def scan_value(line: bytes, pos: int, bare: re.Pattern[bytes], level: int = 0, depth: int = MAX_DEPTH) -> Value | None:
    """The value that begins at `pos`, or None when nothing does.

    `bare` says how far an unquoted value goes. `level` is the number of backslashes before the quotes of the key, so that a group
    in JSON that itself stands in a JSON string ends with that string. A group nested deeper than `depth` counts as never ending.
    A value that never ends ends with the line: of two wrong answers, the one that hides more.
    """
    quote = _QUOTE.match(line, pos)
    if quote:
        inner = quote.end()
        found = find_close(line, inner, quote[2], len(quote[1]))
        inner_end, end = found if found else (_line_end(line), _line_end(line))
        return Value(pos, end, inner, inner_end, "quoted")
    group = _GROUP.match(line, pos)
    if group:
        end = _group_end(line, group.start(1), level, depth)
        closed = end > group.end() and line[end - 1 : end] in _CLOSERS
        return Value(pos, end, group.end(), end - 1 if closed else end, "group")
    word = bare.match(line, pos)
    if word and word.end() > pos:
        return Value(pos, word.end(), pos, word.end(), "bare")
    return None


def find_close(line: bytes, pos: int, quote: bytes, escapes: int) -> tuple[int, int] | None:
    r"""(end of the content, end of the closing quote) of a string opened by `escapes` backslashes and `quote`; None: never closed.

    A string nested n levels deep in JSON has 2^n - 1 backslashes before its quotes, and a quote inside it has 2^(n+1) - 1 or more;
    a quote with fewer backslashes closes a string further out, and this one with it.
    """
    at = pos
    while (at := line.find(quote, at)) >= 0:
        run = at
        while run > pos and line[run - 1] == 0x5C:
            run -= 1
        count = at - run
        after = at + len(quote)
        if count < escapes:
            return at - count, at - count
        # 'it\\'s' is Python inside JSON: there the even run is an escaped quote after all. A real end has a delimiter behind it
        odd = not escapes and count >= 2 and after < len(line) and line[after] not in _DELIMITER
        if count % (2 * (escapes + 1)) == escapes and not odd:
            return at - escapes, after
        at = after
    return None


def _group_end(line: bytes, pos: int, level: int, limit: int) -> int:
    depth = 0
    at = pos
    while event := _GROUP_EVENT.search(line, at):
        char, at = event[0], event.end()
        if char in b"[({":
            depth += 1
            if depth > limit:
                return _line_end(line)
        elif char in b"])}":
            depth -= 1
            if depth <= 0:
                return at
        else:
            run = event.start()
            while run > pos and line[run - 1] == 0x5C:
                run -= 1
            count = event.start() - run
            if count < level:  # the string that contains this group ends here
                return run
            closed = find_close(line, at, char, count)
            if closed is None:
                return _line_end(line)
            at = max(closed[1], at)
    return _line_end(line)


def unbalanced(line: bytes, pos: int) -> bool:
    """Whether the group that begins at `pos` is still open at the end of the line (a tensor or JSON printed over several)."""
    depth = 0
    for event in _GROUP_EVENT.finditer(line, pos):
        depth += event[0] in b"[({"
        depth -= event[0] in b"])}"
        if depth <= 0 and event[0] in b"])}":
            return False
    return depth > 0


def _line_end(line: bytes) -> int:
    return len(line.rstrip(b"\r\n"))


_ESCAPE = re.compile(rb"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[\\\"'/bfnrt])")
_PLAIN = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def unescape(value: bytes) -> bytes:
    """Undo the escapes of JSON and Python, so that one secret has one digest however it was quoted. Never raises."""
    if b"\\" not in value:
        return value
    for _ in range(3):  # JSON in JSON in a log line
        plain = _ESCAPE.sub(_unescape_one, value)
        if plain == value:
            break
        value = plain
    if b"\xed" in value:  # JSON writes a character beyond the BMP as two surrogates
        with contextlib.suppress(UnicodeError):
            value = value.decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass").decode("utf-16-le").encode()
    return value


def _unescape_one(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1] in b"ux" and len(code) > 1:
        return chr(int(code[1:], 16)).encode("utf-8", "surrogatepass")
    return _PLAIN.get(code, code)
