"""Redact text line by line. The state that a line leaves for the next (inside a private key, inside a printed list) lives here."""

from __future__ import annotations

import re
from collections.abc import Callable

from forensics.bundle import _patterns as p
from forensics.bundle import _triggers as t
from forensics.bundle._keys import Holds, holds, is_password
from forensics.bundle._values import Value, find_close, scan_value, unbalanced, unescape

Mark = Callable[[str, bytes], bytes]
"""(kind, secret) to its placeholder; counts as it goes."""

PEM_LINES = 256
"""A 16384-bit RSA key has 250 lines. If the END line never comes, ordinary text behind it must survive."""

_EXEMPT = re.compile(rb"(?:none|null|nil|true|false|undefined|unset|\*+|\.{3}|\$\{?\w+\}?|%\(?\w*\)?s|-)?", re.IGNORECASE)
_NUMBER = re.compile(rb"[-+]?\d[\d.,_]*(?:[eE][-+]?\d+)?[ \t]*(?:%|tokens?|toks?|ms|us|s|[kKMG]i?B|chars?|bytes?)?(?=[\s,;|)\]}/]|$)")
_PLACE_OF_CODE = re.compile(rb"\{[A-Za-z_][\w.!:()\[\]'\"]*\}?")
_KEYED = {Holds.PROMPT: "prompt", Holds.TEXT: "prompt", Holds.PROSE: "prompt", Holds.SCHEMA: "schema", Holds.TOKENS: "token-ids"}


class TextRedactor:
    """Redacts one text, line by line, in order. A line is bytes without its newline."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self._pem_left = 0
        self._open_kind = ""
        self._open_depth = 0
        self._code_below = False

    @property
    def carries(self) -> bool:
        """Whether the next line must be looked at even if nothing in it looks like a secret."""
        return self._pem_left > 0 or self._open_depth > 0

    def line(self, line: bytes, previous: bytes = b"", what: int = t.EVERYTHING) -> bytes:
        """Redact one line. `previous` is the line before it as it stood in the log, `what` the mask of what to look for."""
        body = line.rstrip(b"\r")
        tail = line[len(body) :]
        if self._pem_left or b"PRIVATE KEY" in body:
            body = self._pem(body)
        if self._open_depth:
            done, body = self._continued(body)
            if done:
                return body + tail
        code = p.CODE_BELOW.search(previous) is not None
        if what & (t.CONTENT | t.OTHER):
            body = self._content(body, code)
        if what & t.OPTION:
            body = self._options(body)
        if what & t.SECRET:
            body = self._secrets(body, code)
        if what & t.URL:
            body = p.USERINFO.sub(self._userinfo, body)
            body = _replace_group(p.QUERY, body, self._query)
        if what & t.BEARER:
            body = _replace_group(p.BEARER, body, self._bearer)
        if what & t.SHAPE:
            body = _replace_group(p.AWS_PAIR, body, lambda value: self._mark("secret", value))
            body = p.SHAPES.sub(lambda match: self._mark("secret", match[0]), body)
        if what & t.REQUEST:
            body = self._requests(body)
        return body + tail

    # private keys

    def _pem(self, body: bytes) -> bytes:
        begin = p.PEM_BEGIN.search(body)
        if begin:
            end = p.PEM_END.search(body, begin.end())
            if end:
                self._pem_left = 0
                inner = body[begin.end() : end.start()]
                return body[: begin.end()] + self._mark("secret", inner.strip()) + body[end.start() :] if inner.strip() else body
            self._pem_left = PEM_LINES
            rest = body[begin.end() :]
            return body[: begin.end()] + (self._mark("secret", rest.strip()) if rest.strip(b" \t\"'\\rn|>") else rest)
        end = p.PEM_END.search(body)
        if end:
            self._pem_left = 0
            return p.PEM_BODY.sub(lambda match: self._mark("secret", match[0]), body[: end.start()]) + body[end.start() :]
        self._pem_left -= 1
        return p.PEM_BODY.sub(lambda match: self._mark("secret", match[0]), body)

    # prompts, schemas, token ids

    def _continued(self, body: bytes) -> tuple[bool, bytes]:
        """A line inside a list that a line above opened; (True, line) when nothing else in it needs a look."""
        text = body.strip()
        kind, done = self._open_kind, True
        if p.NUMBERS_ONLY.fullmatch(text):
            body = body.replace(text, self._tokens(text, b""), 1)
        elif p.KEYED_ITEM.match(text):
            done = False
        elif p.STRING_ITEM.fullmatch(text):
            body = body.replace(text, b'"' + self._mark(kind, text.rstrip(b",])}").strip(b"\"'\\")) + b'"' + _closers(text), 1)
        elif not p.BRACKETS_ONLY.fullmatch(text):
            self._open_depth = 0
            return False, body
        ends = _closers(text) if done and text[:1] in b"\"'" else text
        self._open_depth += sum(ends.count(c) for c in (b"[", b"(", b"{")) - sum(ends.count(c) for c in (b"]", b")", b"}"))
        self._open_depth = max(0, self._open_depth)
        return done, body

    def _content(self, body: bytes, code: bool) -> bytes:
        if not code:
            body = self._named(p.CONTENT, t.CONTENT_WORDS, body, 2, self._content_value)
        if b"input_value=" in body:
            body = _replace_group(p.INPUT_VALUE, body, lambda value: None if p.PLACEHOLDER.search(value) else self._mark("prompt", value))
        if b"::=" in body:
            body = p.EBNF.sub(lambda match: self._mark("schema", match[0]), body)
        return self._named(p.TOKEN_IDS, ("token_ids", "input_ids", "output_ids", "tokens"), body, 1, self._content_value)

    def _named(
        self,
        pattern: re.Pattern[bytes],
        words: tuple[str, ...],
        body: bytes,
        quote_group: int,
        replace: Callable[[re.Match[bytes], Value, bytes], bytes | None],
    ) -> bytes:
        """Replace the value behind every name. `replace` returns None to leave a value alone."""
        out: list[bytes] = []
        kept = at = 0
        for position in t.positions(words, _lower(body)):
            match = pattern.match(body, position) if position >= at else None
            if match is None:
                continue
            quote = match[quote_group] or b""
            bare = p.BARE_LINE if match[0].rstrip().endswith(b":") else p.BARE_WORD
            value = scan_value(body, match.end(), bare, max(0, len(quote) - 1))
            at = match.end()
            new = replace(match, value, body) if value else None
            if value and new is not None:
                out += (body[kept : value.start], new)
                kept = at = value.end
        return b"".join(out) + body[kept:] if out else body

    def _content_value(self, match: re.Match[bytes], value: Value, body: bytes) -> bytes | None:
        name, quote = (b"token_ids", match[1]) if match.re is p.TOKEN_IDS else (match[1], match[2])
        what = holds(name.decode())
        inner = body[value.inner_start : value.inner_end]
        if not inner.strip() or p.PLACEHOLDER.fullmatch(inner.strip()):
            return None
        kind = _KEYED[what]
        if value.form == "group":
            if not re.search(rb"[\"'\d]", inner) and what is not Holds.PROMPT:
                return None
            if (
                what is Holds.PROSE
                or (what is Holds.SCHEMA and not re.search(rb"[\"'\d]", inner))
                or _PLACE_OF_CODE.fullmatch(body, value.start)
            ):
                return None
            if value.inner_end == value.end and unbalanced(body, value.start):
                self._open_kind, self._open_depth = kind, 1
            if what is Holds.TOKENS or p.NUMBERS_ONLY.fullmatch(inner):
                return self._tokens(inner, quote or b"")
            whole = body[value.start : value.end]
            return (quote or b"") + self._mark(kind, whole) + (quote or b"")
        if what is Holds.TOKENS:
            return None
        if value.form == "bare":
            return self._bare_prompt(match, inner) if what is Holds.PROMPT else None
        if what is Holds.PROSE and len(inner.split()) < 3:
            return None
        if name.lower() == b"schema" and not inner.lstrip().startswith((b"{", b"\\")):
            return None
        return body[value.start : value.inner_start] + self._mark(kind, unescape(inner)) + body[value.inner_end : value.end]

    def _bare_prompt(self, match: re.Match[bytes], inner: bytes) -> bytes | None:
        if _EXEMPT.fullmatch(inner) or _NUMBER.match(inner) or p.PLACEHOLDER.match(inner):
            return None
        if not match[0].rstrip().endswith(b":") and re.fullmatch(rb"[A-Za-z_][\w.]*", inner) and b"." in inner:
            return None  # request.prompt: code
        return self._mark("prompt", inner.rstrip())

    def _tokens(self, inner: bytes, quote: bytes) -> bytes:
        """Token ids become one placeholder with their number: how long a prompt was is worth a diagnosis."""
        ids = re.findall(rb"\d+", inner)
        if not ids:
            return b"[]"
        return b"[" + quote + self._mark("token-ids", b",".join(ids)) + b" x%d" % len(ids) + quote + b"]"

    # credentials by name

    def _options(self, body: bytes) -> bytes:
        """--api-key X, --api-key=X, "--api-key", "X": also several values, which vLLM accepts for its keys."""
        out: list[bytes] = []
        kept = at = 0
        while match := p.OPTION.search(body, at):
            at = match.end()
            name, quote, separator = match[1].decode(), match[2], match[3]
            what = holds(name)
            if what not in (Holds.SECRET, Holds.MAYBE_SECRET, Holds.PROMPT) or (separator.strip() == b"," and not quote):
                continue
            if separator != b"=" and body[at : at + 1] == b"-":
                continue
            many = "key" in name.lower() and (b"\x00" in separator or bool(quote) or body.count(b"--") > 1)
            bare = p.BARE_LINE if b"\x00" in separator else p.BARE_SHELL
            value = scan_value(body, at, bare)
            while value is not None and value.form != "group":
                inner = body[value.inner_start : value.inner_end]
                if what is Holds.PROMPT and _NUMBER.fullmatch(inner):
                    break
                if not p.PLACEHOLDER.fullmatch(inner) and not _EXEMPT.fullmatch(inner):
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
        for position in t.positions(t.SECRET_WORDS, _lower(body)):
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
            env = separator == b"=" and name.isupper() and p.ENV_LINE.search(body[: match.end() - 1]) is not None
            prose = separator == b":" and not quote
            to_end = env or (prose and re.search("cookie|passphrase", name, re.IGNORECASE) is not None)
            value = scan_value(body, at, p.BARE_LINE if to_end else p.BARE_WORD, max(0, len(quote) - 1))
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
            if _PLACE_OF_CODE.fullmatch(body, value.start, value.end) or code:
                return []
            spans = list(_strings(body, value))
            if not spans and what is Holds.SECRET and body[value.inner_start : value.inner_end].strip():
                spans = [(value.inner_start, value.inner_end)]
            return [span for span in spans if self._worth(body[span[0] : span[1]])]
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
        if not self._worth(inner):
            return []
        if what is Holds.MAYBE_SECRET and not _looks_secret(inner, value.form == "quoted"):
            return []
        if what is Holds.SECRET and _NUMBER.fullmatch(inner) and not is_password(name) and len(inner) < 6:
            return []
        return [(start, end)]

    def _worth(self, inner: bytes) -> bool:
        plain = inner.strip()
        return not _EXEMPT.fullmatch(plain) and not p.PLACEHOLDER.fullmatch(plain)

    # credentials by shape

    def _userinfo(self, match: re.Match[bytes]) -> bytes:
        from urllib.parse import unquote_to_bytes

        user, colon, password = match[2].partition(b":")
        if p.PLACEHOLDER.search(match[2]):
            return match[0]
        if colon:
            return match[1] + b"://" + user + b":" + (self._mark("secret", unquote_to_bytes(password)) if password else b"") + b"@"
        if match[1].lower().startswith(b"http") or _looks_secret(user, False):
            return match[1] + b"://" + self._mark("secret", unquote_to_bytes(user)) + b"@"
        return match[0]

    def _query(self, value: bytes) -> bytes | None:
        return None if p.PLACEHOLDER.search(value) or _EXEMPT.fullmatch(value) else self._mark("secret", value)

    def _bearer(self, value: bytes) -> bytes | None:
        return None if value.lower().rstrip(b".") in p.BEARER_PROSE else self._mark("secret", value)

    # request ids

    def _requests(self, body: bytes) -> bytes:
        body = self._sub(p.REQUEST_ID, ("chatcmpl-", "cmpl-", "req-", *t.ID_WORDS), body, self._request_id)
        body = self._named(p.REQUEST_NAMED, ("req", "rid", "correlation", "trace"), body, 1, self._request_named)
        return self._sub(p.REQUEST_SPOKEN, ("request",), body, self._request_spoken)

    def _sub(self, pattern: re.Pattern[bytes], words: tuple[str, ...], body: bytes, replace: Callable[[re.Match[bytes]], bytes]) -> bytes:
        """`pattern.sub`, tried only where one of `words` begins."""
        out: list[bytes] = []
        kept = 0
        for position in t.positions(words, _lower(body)):
            if position >= kept and (match := pattern.match(body, position)):
                out += (body[kept:position], replace(match))
                kept = match.end()
        return b"".join(out) + body[kept:] if out else body

    def _request_id(self, match: re.Match[bytes]) -> bytes:
        prefix = match[1] or match[3] or match[5]
        return bytes(prefix) + self.request(match[2] or match[4] or match[6])

    def request(self, value: bytes) -> bytes:
        """The placeholder of a request id, which keeps the suffixes that the engine itself appended."""
        suffix = p.REQUEST_SUFFIX.search(value)
        cut = suffix.start() if suffix and suffix.start() > 0 else len(value)
        return self._mark("request", value[:cut]) + value[cut:]

    def _request_named(self, match: re.Match[bytes], value: Value, body: bytes) -> bytes | None:
        if match[2] == b"," and not re.search(rb"x-|b?['\"]x", body[max(0, match.start() - 4) : match.start()], re.IGNORECASE):
            return None
        if value.form == "group":
            whole = body[value.start : value.end]
            spans = [(s, e) for s, e in _strings(body, value) if self._is_request(body[s:e])]
            for start, end in reversed(spans):
                whole = whole[: start - value.start] + self.request(body[start:end]) + whole[end - value.start :]
            return whole if spans else None
        inner = body[value.inner_start : value.inner_end]
        if value.form == "bare" and (word := p.BARE_WORD.match(inner)):  # behind a colon, only the first word is the id
            value = value._replace(end=value.start + word.end(), inner_end=value.start + word.end())
            inner = word[0].rstrip(b".:")
            value = value._replace(end=value.start + len(inner), inner_end=value.start + len(inner))
        if not self._is_request(inner):
            return None
        return body[value.start : value.inner_start] + self.request(inner) + body[value.inner_end : value.end]

    def _is_request(self, inner: bytes) -> bool:
        return self._worth(inner) and b"<redacted:" not in inner and not re.fullmatch(rb"\d{1,7}", inner)

    def _request_spoken(self, match: re.Match[bytes]) -> bytes:
        word = match[1].rstrip(b".")
        if not re.search(rb"\d", word) or word.isdigit() or len(word) < 6:
            return match[0]
        return match[0][: match.start(1) - match.start()] + self.request(word) + match[1][len(word) :]


def _lower(body: bytes) -> str:
    return body.decode("latin-1").lower()


def _strings(body: bytes, value: Value) -> list[tuple[int, int]]:
    """Spans of the contents of the quoted strings inside a group."""
    spans: list[tuple[int, int]] = []
    at = value.inner_start
    while (match := re.compile(rb"(\\*)([\"'])").search(body, at, value.inner_end)) is not None:
        closed = find_close(body, match.end(), match[2], len(match[1]))
        end, at = closed if closed else (value.inner_end, value.inner_end)
        if end > match.end():
            spans.append((match.end(), end))
        at = max(at, match.end())
    return spans


def _looks_secret(value: bytes, quoted: bool) -> bool:
    """Whether a word under a name as common as "token" is a credential: mixed letters and digits, or long, or quoted and not tiny."""
    if re.search(rb"\s", value) or _NUMBER.fullmatch(value) or value.startswith((b"/", b"<", b"{")):
        return False
    mixed = re.search(rb"\d", value) and re.search(rb"[A-Za-z]", value)
    return bool((len(value) >= 8 and mixed) or len(value) >= 20 or (quoted and len(value) >= 4 and re.search(rb"\w{3}", value)))


def _closers(text: bytes) -> bytes:
    return text[len(text.rstrip(b" \t,])}")) :]


def _replace_group(pattern: re.Pattern[bytes], body: bytes, replace: Callable[[bytes], bytes | None]) -> bytes:
    """Replace group 1 of every match; `replace` returns None to leave it."""

    def one(match: re.Match[bytes]) -> bytes:
        new = replace(match[1])
        if new is None:
            return match[0]
        start = match.start()
        return match[0][: match.start(1) - start] + new + match[0][match.end(1) - start :]

    return pattern.sub(one, body)
