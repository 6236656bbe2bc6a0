"""Redaction while writing: no secret that we can recognise ever reaches the disk.

A secret becomes `<redacted:KIND:xxxxxxxx>`; KIND is secret, prompt, token-ids, schema, request or env. The same secret gets the same
placeholder in every file of a bundle and, with the same key, on every node, so that one can still see that two ranks held the same
request or that two nodes used different tokens.

What the digits give away, honestly. They come from a keyed hash, and three keys are possible:
- `FORENSICS_REDACTION_KEY` set to the same private text on all nodes: nobody without that text learns anything.
- an incident id: placeholders agree between the nodes of an incident and mean nothing outside it, but the id stands in the bundle,
  so whoever holds the bundle can try guesses;
- neither: a key that everybody knows. Placeholders agree between all nodes and incidents, and anybody can try guesses.
Against guessing, the last two give away little: a request id (random anyway) and a long random credential keep all 32 bits, because
no list of guesses contains them; everything that could be guessed (a short or wordy password, a prompt, a schema) is first folded to
8 or 12 bits. One guess in 256 (or 4096) then fits by chance, a dictionary attack leaves thousands of candidates, and equal
placeholders of such secrets mean "probably the same", not "the same". A slow hash was not chosen: it delays a dictionary by minutes
and would cost the sick node seconds.

Recognition is by shape and by name and therefore not complete: a secret in plain prose ("the password is …") passes.
"""

from __future__ import annotations

import os
import re
from hashlib import blake2b
from typing import Protocol

from forensics.bundle._structure import DOCUMENT_LIMIT_BYTES, DocumentRedactor
from forensics.bundle._text import TextRedactor
from forensics.bundle._triggers import Triggers

KEY_VARIABLE = "FORENSICS_REDACTION_KEY"
LINE_LIMIT_BYTES = 32 * 1024 * 1024
"""The longest line that is held while it is incomplete. What goes beyond is dropped, because it can no longer be redacted safely."""
PUBLIC_KEY = b"inference-forensics redaction/1"

_TEXT_KINDS = frozenset({"log", "kernel-log", "prometheus", "patches-toml"})
_BLOCK_BYTES = 512 * 1024
"""Lists of the lines of more than this fall out of the caches of the CPU: one call with 30 MB was five times slower."""
_MUST_PARSE = re.compile(rb"\\u00[2-7][0-9a-fA-F]|/environ\"|\"env(?:iron(?:ment)?)?\"|\"locals\":\s*\[")
"""Documents that are walked even when nothing in them triggers: an escape may hide a name, and environments go by allow-list."""
_STRONG = re.compile(rb"[\x21-\x7e]{20,}")
_WEAK_BITS = {"secret": 8, "request": 32}


class Redaction(Protocol):
    """The redaction of one file that arrives in chunks."""

    counts: dict[str, int]
    truncated: bool

    def feed(self, data: bytes) -> bytes: ...
    def finish(self) -> bytes: ...


class Redacting(Protocol):
    """What a bundle writer needs of a redactor."""

    def redact(self, data: bytes, kind: str, name: str) -> tuple[bytes, dict[str, int]]: ...
    def stream(self, kind: str, name: str) -> Redaction: ...
    def text(self, text: str) -> str: ...


class Redactor:
    """Redacts evidence of every kind. Holds the key and what it learnt about harmless lines; streams share it, also across threads."""

    def __init__(self, *, key: bytes | None = None, incident: str = "") -> None:
        self._private = bool(key)
        material = key or (b"incident\x00" + incident.encode("utf-8", "surrogatepass") if incident else PUBLIC_KEY)
        self._key = blake2b(material, digest_size=32, person=b"forensics-redact").digest()
        self.triggers = Triggers()

    @classmethod
    def from_environment(cls, incident: str = "") -> Redactor:
        """A redactor with the private key of FORENSICS_REDACTION_KEY, else that of the incident, else the public one."""
        return cls(key=os.environ.get(KEY_VARIABLE, "").encode("utf-8", "surrogateescape") or None, incident=incident)

    def placeholder(self, kind: str, secret: bytes) -> bytes:
        """`<redacted:KIND:xxxxxxxx>`; see the head of this module for what the digits give away."""
        digest = blake2b(secret, digest_size=8, key=self._key).digest()
        bits = 32 if self._private or (kind == "secret" and _is_strong(secret)) else _WEAK_BITS.get(kind, 12)
        if bits < 32:
            few = int.from_bytes(digest, "big") & ((1 << bits) - 1)
            digest = blake2b(b"few" + few.to_bytes(4, "big"), digest_size=8, key=self._key).digest()
        return b"<redacted:" + kind.encode() + b":" + digest[:4].hex().encode() + b">"

    def redact(self, data: bytes, kind: str, name: str) -> tuple[bytes, dict[str, int]]:
        """Redact one whole file; returns it with the number of replacements by kind. Unchanged files come back byte for byte."""
        stream = self.stream(kind, name)
        return stream.feed(data) + stream.finish(), stream.counts

    def stream(self, kind: str, name: str) -> Redaction:
        """Redact a file that arrives in chunks, cut anywhere."""
        return RedactionStream(self, kind)

    def text(self, text: str) -> str:
        """Redact a short string (a reason, a URL, a path)."""
        return self.redact(text.encode("utf-8", "surrogatepass"), "log", "")[0].decode("utf-8", "surrogatepass") if text else text


class RedactionStream:
    """One file on its way to the disk. Text is redacted line by line; a JSON document is held until it is whole."""

    def __init__(self, owner: Redactor, kind: str) -> None:
        self.counts: dict[str, int] = {}
        self.truncated = False
        self._owner = owner
        self._kind = kind
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._dropped = 0
        self._previous = b""
        self._lines = TextRedactor(self._mark)
        self._document: bool | None = False if kind in _TEXT_KINDS else None

    def feed(self, data: bytes) -> bytes:
        """Redacted bytes that are safe to write now; the rest waits for more."""
        if not data:
            return b""
        if self._document is None and (first := data.lstrip()[:1]):
            self._document = first in (b"{", b"[")
        if self._document is not False:
            self._hold(data)
            if self._held_bytes <= DOCUMENT_LIMIT_BYTES:
                return b""
            self._document = False
            data = self._take()
        if len(data) <= _BLOCK_BYTES:
            return self._feed_lines(data)
        return b"".join([self._feed_lines(data[start : start + _BLOCK_BYTES]) for start in range(0, len(data), _BLOCK_BYTES)])

    def finish(self) -> bytes:
        """The last bytes. Nothing may be fed afterwards."""
        rest = self._take()
        if self._document and rest:
            return self._whole(rest)
        return self._feed_tail(rest)

    def _mark(self, kind: str, secret: bytes) -> bytes:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return self._owner.placeholder(kind, secret)

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)

    def _take(self) -> bytes:
        data = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        return data

    def _feed_lines(self, data: bytes) -> bytes:
        end = data.rfind(b"\n") + 1
        out = b""
        if end:
            if self._dropped:  # the end of a line whose beginning went beyond the limit
                skip = data.find(b"\n")
                out = self._drop_note()
                data, end = data[skip:], end - skip
            self._hold(data[:end])
            out += self._block(self._take())
            data = data[end:]
        if self._dropped or self._held_bytes + len(data) > LINE_LIMIT_BYTES:
            if not self._dropped:
                out += self._block(self._take(), last=False)
            self._dropped += len(data)
            self.truncated = True
        elif data:
            self._hold(data)
        return out

    def _feed_tail(self, rest: bytes) -> bytes:
        out = self._drop_note() if self._dropped else b""
        return out + self._block(rest) if rest else out

    def _drop_note(self) -> bytes:
        note = b" <redacted: %d bytes of an overlong line>" % self._dropped
        self._dropped = 0
        return note

    def _whole(self, raw: bytes) -> bytes:
        if not self._owner.triggers.lines(raw) and not _MUST_PARSE.search(raw):
            return raw
        before = dict(self.counts)
        document = DocumentRedactor(self._mark, self._lines.request, self._text_of_document).document(raw)
        if document is not None:
            return document
        self.counts = before
        return self._block(raw)

    def _text_of_document(self, text: bytes) -> bytes:
        if not self._owner.triggers.lines(text):
            return text
        return self._process(text, TextRedactor(self._mark), b"")

    def _block(self, data: bytes, last: bool = True) -> bytes:
        out = self._process(data, self._lines, self._previous)
        self._previous = data[:-1].rpartition(b"\n")[2] if last else b""
        return out

    def _process(self, data: bytes, redactor: TextRedactor, previous: bytes) -> bytes:
        suspects = dict(self._owner.triggers.lines(data))
        if not suspects and not redactor.carries:
            return data
        lines = data.split(b"\n")
        original = list(lines)
        ended = len(lines) - 1 if not lines[-1] else len(lines)  # behind the last newline there is no line
        for index in range(ended):
            what = suspects.get(index, 0)
            if what or redactor.carries:
                lines[index] = self._line(original[index], redactor, original[index - 1] if index else previous, what)
        return b"\n".join(lines)

    def _line(self, line: bytes, redactor: TextRedactor, previous: bytes, what: int) -> bytes:
        text = line.strip()
        if text[:1] == b"{" and text[-1:] == b"}" and not redactor.carries:
            # a log that writes one JSON object a line (docker, --logging-config json): its strings must be decoded first
            before = dict(self.counts)
            document = DocumentRedactor(self._mark, redactor.request, self._text_of_document).document(line)
            if document is not None:
                return document
            self.counts = before
        return redactor.line(line, previous, what)


class NullRedactor:
    """Redacts nothing: for the operator who asked for exactly that."""

    def redact(self, data: bytes, kind: str, name: str) -> tuple[bytes, dict[str, int]]:
        return data, {}

    def stream(self, kind: str, name: str) -> Redaction:
        return _Unchanged()

    def text(self, text: str) -> str:
        return text


class _Unchanged:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.truncated = False

    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


def _is_strong(secret: bytes) -> bool:
    """Whether no list of guesses contains it: long, one word, letters and digits mixed."""
    return bool(_STRONG.fullmatch(secret) and re.search(rb"\d", secret) and re.search(rb"[A-Za-z]", secret))
