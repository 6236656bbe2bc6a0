"""Credentials in a line of text: by the name in front of them, by the option, the header or the URL they stand in, by their shape."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from forensics.bundle import _patterns as p
from forensics.bundle import _triggers as t
from forensics.bundle._keys import Holds, holds, is_password
from forensics.bundle._spans import EXEMPT, NUMBER, PLACE_OF_CODE, Mark, positions, replace_group, strings, worth
from forensics.bundle._values import Value, scan_value, unescape


class Credentials:
    """Replaces credentials. `what` is the mask of what to look for, `code` says that the line is source code in a traceback."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark

    def line(self, body: bytes, what: int, code: bool) -> bytes:
        if what & t.OPTION:
            body = self._options(body)
        if what & t.SECRET:
            body = self._secrets(body, code)
        if what & t.URL:
            body = p.USERINFO.sub(self._userinfo, body)
            body = replace_group(p.QUERY, body, self._query)
        if what & t.BEARER:
            body = replace_group(p.BEARER, body, self._bearer)
        if what & t.SHAPE:
            body = replace_group(p.AWS_PAIR, body, lambda value: self._mark("secret", value))
            body = p.SHAPES.sub(lambda match: self._mark("secret", match[0]), body)
        return body

    def _options(self, body: bytes) -> bytes:
        """--api-key X, --api-key=X, "--api-key", "X": also several values, which vLLM accepts for its keys."""
        out: list[bytes] = []
        kept = at = 0
        several = body.count(b"--") > 1
        while match := p.OPTION.search(body, at):
            at = match.end()
            name, quote, separator = match[1].decode(), match[2], match[3]
            what = holds(name)
            if what not in (Holds.SECRET, Holds.MAYBE_SECRET, Holds.PROMPT) or (separator.strip() == b"," and not quote):
                continue
            if separator != b"=" and body[at : at + 1] == b"-":
                continue
            many = "key" in name.lower() and (b"\x00" in separator or bool(quote) or several)
            bare = p.BARE_LINE if b"\x00" in separator else p.BARE_SHELL
            value = scan_value(body, at, bare)
            while value is not None and value.form != "group":
                inner = body[value.inner_start : value.inner_end]
                if what is Holds.PROMPT and NUMBER.fullmatch(inner):
                    break
                if not p.PLACEHOLDER.fullmatch(inner) and not EXEMPT.fullmatch(inner):
                    kind = "prompt" if what is Holds.PROMPT else "secret"
                    out += (body[kept : value.inner_start], self._mark(kind, unescape(inner)))
                    kept = value.inner_end
                at = value.end
                follow = (p.NEXT_ITEM if quote else p.NEXT_WORD).match(body, at) if many and separator != b"=" else None
                if not follow or body[follow.end() : follow.end() + 3].lstrip(b"\\\"'").startswith(b"-"):
                    break
                value = scan_value(body, follow.end(), bare)
        return b"".join(out) + body[kept:] if out else body

    def _secrets(self, body: bytes, code: bool) -> bytes:
        out: list[bytes] = []
        kept = at = 0
        for position in positions(t.SECRET_WORDS, body):
            match = p.SECRET_NAME.match(body, position) if position >= at else None
            if match is None:
                continue
            head = p.NAME_BEFORE.search(body, max(kept, match.start() - 48), match.start())
            first = head.start() if head else match.start()
            name = body[first : match.end(1)].decode("ascii", "replace")
            what, quote, separator = holds(name), match[2] or b"", match[3]
            if what not in (Holds.SECRET, Holds.MAYBE_SECRET) or body[max(0, first - 1) : first] == b"/":
                continue
            if separator == b"," and not (
                quote and p.HEADER_NAME.search(name) and re.match(rb"b?\\*[\"']", body[match.end() : match.end() + 9])
            ):
                continue
            at = match.end()
            env = p.ENV_LINE.search(body, max(0, first - 16), match.end() - 1) if separator == b"=" and name.isupper() else None
            prose = separator == b":" and not quote
            bare = p.BARE_WORD
            if env:
                bare = p.BARE_STRING if env[1] else p.BARE_LINE
            elif prose and re.search("cookie|passphrase", name, re.IGNORECASE):
                bare = p.BARE_LINE
            value = scan_value(body, at, bare, max(0, len(quote) - 1))
            if value is None:
                continue
            for start, end in self._credentials(value, body, what, name, code):
                out += (body[kept:start], self._mark("secret", unescape(body[start:end])))
                kept = at = end
            at = max(at, value.end) if value.form != "group" else at
        return b"".join(out) + body[kept:] if out else body

    def _credentials(self, value: Value, body: bytes, what: Holds, name: str, code: bool) -> list[tuple[int, int]]:
        """The spans inside a value that are the credential itself (not "Bearer", not the brackets)."""
        if value.form == "group":
            if PLACE_OF_CODE.fullmatch(body, value.start, value.end) or code:
                return []
            spans = list(strings(body, value))
            if not spans and what is Holds.SECRET and body[value.inner_start : value.inner_end].strip():
                spans = [(value.inner_start, value.inner_end)]
            return [span for span in spans if worth(body[span[0] : span[1]])]
        start, end = value.inner_start, value.inner_end
        if value.form == "bare" and code:
            return []
        scheme = p.SCHEME.match(body, start)
        if scheme and scheme.end() <= end + 2:
            start = scheme.end()
            if value.form == "bare":
                rest = (p.BARE_LINE if scheme[1].lower() in (b"digest", b"aws4-hmac-sha256") else p.BARE_WORD).match(body, start)
                end = rest.end() if rest else start
        elif value.form == "bare" and p.SCHEME.match(body[start:end] + b" x") and what is Holds.SECRET and "auth" in name.lower():
            return []
        inner = body[start:end]
        if not worth(inner):
            return []
        if what is Holds.MAYBE_SECRET and not _looks_secret(inner, value.form == "quoted"):
            return []
        if what is Holds.SECRET and NUMBER.fullmatch(inner) and not is_password(name) and len(inner) < 6:
            return []
        return [(start, end)]

    def _userinfo(self, match: re.Match[bytes]) -> bytes:
        user, colon, password = match[2].partition(b":")
        if p.PLACEHOLDER.search(match[2]):
            return match[0]
        if colon:
            return match[1] + b"://" + user + b":" + (self._mark("secret", unquote_to_bytes(password)) if password else b"") + b"@"
        if match[1].lower().startswith(b"http") or _looks_secret(user, False):
            return match[1] + b"://" + self._mark("secret", unquote_to_bytes(user)) + b"@"
        return match[0]

    def _query(self, value: bytes) -> bytes | None:
        return None if p.PLACEHOLDER.search(value) or EXEMPT.fullmatch(value) else self._mark("secret", value)

    def _bearer(self, value: bytes) -> bytes | None:
        return None if value.lower().rstrip(b".") in p.BEARER_PROSE else self._mark("secret", value)


def _looks_secret(value: bytes, quoted: bool) -> bool:
    """Whether a word under a name as common as "token" is a credential: mixed letters and digits, or long, or quoted and not tiny."""
    if re.search(rb"\s", value) or NUMBER.fullmatch(value) or value.startswith((b"/", b"<", b"{")):
        return False
    mixed = re.search(rb"\d", value) and re.search(rb"[A-Za-z]", value)
    return bool((len(value) >= 8 and mixed) or len(value) >= 20 or (quoted and len(value) >= 4 and re.search(rb"\w{3}", value)))
