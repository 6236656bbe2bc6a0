"""Names and values as a program prints its own configuration: a dict, a call of a constructor, or names with equals signs."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST = 1000
_HEAD = re.compile(r"\s*(?:\{|[A-Za-z_][\w.]*\s*[({])")
_KEY = re.compile(r"[\s,]*(?:'([A-Za-z_]\w{0,80})'\s*:|\"([A-Za-z_]\w{0,80})\"\s*:|([A-Za-z_]\w{0,80})\s*[=:])\s*")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """(name, value as it is written) of "{'a': 1, 'b': [2, 3]}", "Args(a=1, b='x, y')" or "a=1, b=2", outermost names only.

    What cannot be read ends it: a line that was cut in the middle of a value loses that value and nothing else.
    """
    head = _HEAD.match(text)
    at = head.end() if head else 0
    for _ in range(MOST):
        key = _KEY.match(text, at)
        if key is None:
            return
        end = _value_end(text, key.end())
        if end is None or (head and end == len(text)):  # cut: its closing bracket never came
            return
        value = text[key.end() : end].strip()
        if value:
            yield key[1] or key[2] or key[3], value
        at = end


def _value_end(text: str, at: int) -> int | None:
    """Where a value ends: at a comma or a closing bracket of the level on which it began; None where it was cut inside."""
    closers: list[str] = []
    quote = ""
    skip = False
    for i in range(at, len(text)):
        char = text[i]
        if skip:
            skip = False
        elif quote:
            skip = char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _CLOSING:
            closers.append(_CLOSING[char])
        elif closers and char == closers[-1]:
            closers.pop()
        elif not closers and char in ",)]}":
            return i
    return None if quote or closers else len(text)
