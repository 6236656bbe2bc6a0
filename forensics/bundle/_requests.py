"""Request ids in a line of text: by shape, by the name in front of them, by the word "request"."""

from __future__ import annotations

import re

from forensics.bundle import _patterns as p
from forensics.bundle import _triggers as t
from forensics.bundle._spans import Mark, Replaced, replace_at, replace_named, strings, worth
from forensics.bundle._values import Value

_VERSION = re.compile(rb"v?\d+\.\d+[\w.+\-]*")
"""What follows the name of the library "requests" in a list of packages."""


class Requests:
    """Replaces request ids: they may carry whatever a client put into X-Request-Id."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark

    def line(self, body: bytes) -> bytes:
        body = replace_at(p.REQUEST_ID, ("chatcmpl-", "cmpl-", "req-", *t.ID_WORDS), body, self._shaped)
        body = replace_named(p.REQUEST_NAMED, ("req", "rid", "correlation", "trace"), body, 1, self._named)
        return replace_at(p.REQUEST_SPOKEN, ("request",), body, self._spoken)

    def _shaped(self, match: re.Match[bytes]) -> bytes:
        prefix = match[1] or match[3] or match[5]
        return bytes(prefix) + self.mark(match[2] or match[4] or match[6])

    def mark(self, value: bytes) -> bytes:
        """The placeholder of a request id, which keeps the suffixes that the engine itself appended."""
        suffix = p.REQUEST_SUFFIX.search(value)
        cut = suffix.start() if suffix and suffix.start() > 0 else len(value)
        return self._mark("request", value[:cut]) + value[cut:]

    def _named(self, match: re.Match[bytes], value: Value, body: bytes) -> Replaced | None:
        if match[2] == b"," and not re.search(rb"x-|b?['\"]x", body[max(0, match.start() - 4) : match.start()], re.IGNORECASE):
            return None
        if value.form == "group":  # a flat list or set of ids; inside anything nested the names stand before the ids again
            nested = p.BRACKET.search(body, value.inner_start)
            end = nested.start() if nested else value.inner_end
            out, kept = b"", value.inner_start
            for start, stop in strings(body, value._replace(inner_end=end)):
                if _is_request(body[start:stop]):
                    out += body[kept:start] + self.mark(body[start:stop])
                    kept = stop
            return (value.inner_start, kept, out) if out else None
        start, end = value.inner_start, value.inner_end
        if value.form == "bare" and (word := p.BARE_WORD.match(body, start, end)):  # behind a colon, only the first word is the id
            end = start + len(word[0].rstrip(b".:"))
        return (start, end, self.mark(body[start:end])) if _is_request(body[start:end]) else None

    def _spoken(self, match: re.Match[bytes]) -> bytes:
        word = match[1].rstrip(b".")
        if len(word) < 6 or not re.search(rb"\d", word) or not re.search(rb"[A-Za-z]", word) or _VERSION.fullmatch(word):
            return match[0]
        return match[0][: match.start(1) - match.start()] + self.mark(word) + match[1][len(word) :]


def _is_request(inner: bytes) -> bool:
    return worth(inner) and b"<redacted:" not in inner and not re.fullmatch(rb"\d{1,7}", inner)
