"""Redact text line by line. The state that a line leaves for the next (inside a private key, inside a printed list) lives here."""

from __future__ import annotations

import re

from forensics.bundle import _patterns as p
from forensics.bundle import _triggers as t
from forensics.bundle._credentials import Credentials
from forensics.bundle._keys import Holds, holds
from forensics.bundle._requests import Requests
from forensics.bundle._spans import EXEMPT, NUMBER, PLACE_OF_CODE, Mark, Replaced, replace_named, worth
from forensics.bundle._values import Value, unbalanced, unescape

PEM_LINES = 256
"""A 16384-bit RSA key has 250 lines. If the END line never comes, ordinary text behind it must survive."""

_HAS_VALUE = re.compile(rb"[\"'\d]")
_KEYED = {Holds.PROMPT: "prompt", Holds.TEXT: "prompt", Holds.PROSE: "prompt", Holds.SCHEMA: "schema", Holds.TOKENS: "token-ids"}


class TextRedactor:
    """Redacts one text, line by line, in order. A line is bytes without its newline."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self._pem_left = 0
        self._open_kind = ""
        self._open_depth = 0
        self._credentials = Credentials(mark)
        self._requests = Requests(mark)
        self.request = self._requests.mark

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
        escaped_nuls = b"\\u0000" in body and b"\0" not in body  # a command line in JSON that was cut, hence read as text
        if escaped_nuls:
            body = body.replace(b"\\u0000", b"\0")
        if what & (t.CONTENT | t.OTHER):
            body = self._content(body, code)
        body = self._credentials.line(body, what, code)
        if what & t.REQUEST:
            body = self._requests.line(body)
        return (body.replace(b"\0", b"\\u0000") if escaped_nuls else body) + tail

    # private keys

    def _pem(self, body: bytes) -> bytes:
        begin = p.PEM_BEGIN.search(body)
        if begin:
            end = p.PEM_END.search(body, begin.end())
            if end:
                self._pem_left = 0
                inner = body[begin.end() : end.start()]
                if not worth(inner):
                    return body
                return body[: begin.end()] + self._mark("secret", inner.strip()) + body[end.start() :]
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
            body = replace_named(p.CONTENT, t.CONTENT_WORDS, body, 2, self._content_value)
        if b"input_value=" in body:
            body = self._input_values(body)
        if b"::=" in body:
            body = p.EBNF.sub(lambda match: self._mark("schema", match[0]), body)
        return replace_named(p.TOKEN_IDS, ("token_ids", "input_ids", "output_ids", "tokens"), body, 1, self._content_value)

    def _input_values(self, body: bytes) -> bytes:
        """pydantic's ValidationError shortens its repr in the middle, so no bracket can be trusted: it ends where the next field begins."""
        head, *rest = body.split(b"input_value=")
        for index, part in enumerate(rest):
            end = part.find(b", input_type=")
            value = part if end < 0 else part[:end]
            if value.strip() and not p.PLACEHOLDER.fullmatch(value):
                rest[index] = self._mark("prompt", value) + part[len(value) :]
        return b"input_value=".join([head, *rest])

    def _content_value(self, match: re.Match[bytes], value: Value, body: bytes) -> Replaced | None:
        name, quote = (b"token_ids", match[1]) if match.re is p.TOKEN_IDS else (match[1], match[2])
        what = holds(name.decode())
        if value.form == "group":
            return self._content_group(what, quote or b"", value, body)
        inner = body[value.inner_start : value.inner_end]
        if what is Holds.TOKENS or not inner.strip() or p.PLACEHOLDER.fullmatch(inner.strip()):
            return None
        if value.form == "bare":
            prompt = self._bare_prompt(match, inner) if what is Holds.PROMPT else None
            return (value.start, value.end, prompt) if prompt else None
        if what is Holds.PROSE and len(inner.split()) < 3:
            return None
        if name.lower() == b"schema" and not inner.lstrip().startswith((b"{", b"\\")):
            return None
        return value.inner_start, value.inner_end, self._mark(_KEYED[what], unescape(inner))

    def _content_group(self, what: Holds, quote: bytes, value: Value, body: bytes) -> Replaced | None:
        if what is Holds.PROSE or PLACE_OF_CODE.fullmatch(body, value.start, min(value.end, value.start + 200)):
            return None
        inner = body[value.inner_start : value.inner_end]
        kind = _KEYED[what]
        if value.inner_end == value.end and unbalanced(body, value.start):
            self._open_kind, self._open_depth = kind, 1
        if not inner.strip() or p.PLACEHOLDER.fullmatch(inner.strip(b" \t\"'\\")):
            return None
        if what is not Holds.PROMPT and not _HAS_VALUE.search(inner):
            return None
        if what is Holds.TOKENS or p.NUMBERS_ONLY.fullmatch(inner):
            return value.start, value.end, self._tokens(inner, quote)
        return value.start, value.end, quote + self._mark(kind, body[value.start : value.end]) + quote

    def _bare_prompt(self, match: re.Match[bytes], inner: bytes) -> bytes | None:
        if EXEMPT.fullmatch(inner) or NUMBER.match(inner) or p.PLACEHOLDER.match(inner):
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


def _closers(text: bytes) -> bytes:
    return text[len(text.rstrip(b" \t,])}")) :]
