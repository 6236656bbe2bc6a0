"""List a tar archive from hostile bytes: what is safe to read, what was refused and why, and where each file's content lies.

The standard tarfile is not used for reading: it allocates what a header claims, follows GNU sparse maps and raises a dozen kinds of
exceptions. This reads ustar, pax and GNU long names, and nothing else.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from forensics.bundle._gzip import Stream
from forensics.bundle._names import printable

BLOCK = 512
MAX_MEMBERS = 20_000
MAX_META_BYTES = 1024 * 1024
"""Of one pax header. Ours are below 1 KiB."""
MAX_META_IN_A_ROW = 8
MAX_LISTED = 20
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a named pipe",
    b"S": "a sparse file",
}


@dataclass
class TarEntry:
    """A regular file in the archive. `available` < `size` when the archive was cut inside it."""

    name: str
    size: int
    offset: int
    mtime_ns: int
    comment: str = ""
    available: int = 0
    sha256: str = ""
    """Of what is available."""

    @property
    def whole(self) -> bool:
        return self.available == self.size


@dataclass
class TarListing:
    entries: list[TarEntry] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    cut: bool = False
    """The archive ends (or its reading was stopped) before its end mark."""


def looks_like_tar(block: bytes) -> bool:
    """Whether a block is a tar header: its checksum holds."""
    if len(block) < BLOCK or not block[:1].strip(b"\0"):
        return False
    stored = _octal(block[148:156])
    return stored is not None and stored == sum(block[:148]) + 8 * 0x20 + sum(block[156:BLOCK])


def list_tar(stream: Stream) -> TarListing:
    """Read the whole archive once and list it. Never raises for content; OSError of the file itself passes."""
    return _Lister(stream).run()


class _Lister:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._out = TarListing()
        self._members = 0
        self._refused = 0
        self._names: set[str] = set()

    def run(self) -> TarListing:
        out = self._out
        meta: dict[str, str] = {}
        metas = 0
        while True:
            block = self._exactly(BLOCK)
            if len(block) < BLOCK:
                if self._went_on():
                    meta, metas = {}, 0
                    continue
                out.cut = True
                break
            if not block.strip(b"\0"):
                break
            if not looks_like_tar(block):
                if not self._find_header():
                    out.cut = True
                    break
                continue
            self._members += 1
            if self._members > MAX_MEMBERS:
                self._loss(f"more than {MAX_MEMBERS} members: the rest was not read")
                out.cut = True
                break
            kind, size = block[156:157], _number(block[124:136])
            if kind in b"xgLK" and kind and size is not None:
                metas += 1
                more = self._meta(kind, size) if metas <= MAX_META_IN_A_ROW else None
                if more is None:
                    self._loss("a header of the archive is larger or longer than any honest one: the rest was not read")
                    out.cut = True
                    break
                meta = {**meta, **more} if kind != b"g" else meta
                continue
            self._member(block, kind, size, meta)
            meta, metas = {}, 0
        if self._refused > MAX_LISTED:
            out.losses.append(f"{self._refused - MAX_LISTED} more members of the archive were refused")
        if self._stream.problem == "bomb":
            self._loss(f"reading stopped after {self._stream.offset >> 20} MiB: the archive unpacks to far more than it should (a bomb)")
            out.cut = True
        return out

    def _member(self, block: bytes, kind: bytes, size: int | None, meta: dict[str, str]) -> None:
        name = meta.get("path") or _name(block)
        size = _decimal(meta.get("size", "")) if "size" in meta else size
        if size is None or size < 0:
            self._refuse(f"{_short(name)}: its size is nonsense")
            return
        if kind == b"5":
            return
        sparse = any(key.startswith("GNU.sparse") for key in meta)
        if kind not in (b"0", b"\0", b"7") or sparse:
            what = "a sparse file" if sparse else _KINDS.get(kind, "of an unknown type")
            self._refuse(f"{_short(name)} is {what}: refused")
            # links carry no content whatever their size field says
            self._skip(0 if kind in (b"1", b"2", b"3", b"4", b"6") else size)
            return
        clean = plain_name(name)
        if clean is None:
            self._refuse(f"{_short(name)} would lie outside the bundle: refused")
            self._skip(size)
            return
        if clean in self._names:
            self._loss(f"{_short(clean)} occurs twice; both were read")
            number = 2
            while f"{clean} ({number})" in self._names:
                number += 1
            clean = f"{clean} ({number})"
        self._names.add(clean)
        mtime = _seconds(meta.get("mtime", "")) or _number(block[136:148]) or 0
        mtime_ns = min(max(mtime, 0), 8**11) * 1_000_000_000
        entry = TarEntry(clean, size, self._stream.offset, mtime_ns, meta.get("comment", ""))
        self._out.entries.append(entry)
        digest = hashlib.sha256()
        while entry.available < size and (piece := self._stream.read(size - entry.available)):
            digest.update(piece)
            entry.available += len(piece)
        entry.sha256 = digest.hexdigest()
        if entry.whole:
            self._exactly(-size % BLOCK)

    def _meta(self, kind: bytes, size: int) -> dict[str, str] | None:
        if not 0 <= size <= MAX_META_BYTES:
            return None
        raw = self._exactly(size)
        self._exactly(-size % BLOCK)
        if kind == b"L":
            return {"path": raw.rstrip(b"\0").decode("utf-8", "backslashreplace")}
        return _pax(raw) if kind == b"x" else {}

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0 and (piece := self._stream.read(size)):
            parts.append(piece)
            size -= len(piece)
        return b"".join(parts)

    def _skip(self, size: int) -> None:
        size += -size % BLOCK
        while size > 0 and (piece := self._stream.read(size)):
            size -= len(piece)

    def _went_on(self) -> bool:
        damaged = self._stream.problem == "damaged"
        went_on = damaged and self._stream.resume()
        if damaged:
            self._loss("the archive is damaged in the middle" + ("; reading went on behind the damage" if went_on else ""))
        return went_on

    def _find_header(self) -> bool:
        """Damage in an uncompressed place: look for the next block that is a header, so that only one file is lost."""
        self._loss("the archive is damaged in the middle: a header is missing, and the file behind it is lost")
        while len(block := self._exactly(BLOCK)) == BLOCK:
            if looks_like_tar(block):
                kind, size = block[156:157], _number(block[124:136])
                if kind in (b"0", b"\0", b"7") and size is not None and size >= 0:
                    self._member(block, kind, size, {})
                    return True
        return self._went_on()

    def _refuse(self, sentence: str) -> None:
        self._refused += 1
        if self._refused <= MAX_LISTED:
            self._out.losses.append(sentence)

    def _loss(self, sentence: str) -> None:
        if sentence not in self._out.losses and len(self._out.losses) < 200:
            self._out.losses.append(sentence)


def plain_name(name: str) -> str | None:
    """A name as it may be shown and looked up: relative, no "..", no control characters; None when it wants to escape."""
    if not name or name.startswith(("/", "\\")) or "\0" in name or (name[1:2] == ":" and name[2:3] in ("/", "\\")):
        return None
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if not parts or ".." in parts or len(name) > 4096:
        return None
    return printable("/".join(parts))


def _name(block: bytes) -> str:
    name = block[:100].split(b"\0")[0]
    prefix = block[345:500].split(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "backslashreplace")


def _pax(raw: bytes) -> dict[str, str]:
    """The records of a pax header; reading ends at the first that is malformed."""
    found: dict[str, str] = {}
    at = 0
    while at < len(raw):
        space = raw.find(b" ", at, at + 12)
        length = _decimal(raw[at:space].decode("ascii", "replace")) if space > 0 else None
        if length is None or length <= space - at or at + length > len(raw):
            break
        key, equals, value = raw[space + 1 : at + length - 1].partition(b"=")
        if equals:
            found[key.decode("utf-8", "backslashreplace")] = value.decode("utf-8", "backslashreplace")
        at += length
    return found


def _number(digits: bytes) -> int | None:
    """A number field: octal text, or base-256 when its first bit is set. None when it is neither."""
    if digits[:1] and digits[0] & 0x80:
        value = int.from_bytes(digits[1:], "big")
        return value if digits[0] == 0x80 and value < 2**62 else None
    return _octal(digits)


def _octal(digits: bytes) -> int | None:
    text = digits.split(b"\0")[0].strip()
    if not text:
        return 0
    return int(text, 8) if all(c in b"01234567" for c in text) else None


def _decimal(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _seconds(text: str) -> int | None:
    return _decimal(text.split(".", maxsplit=1)[0])


def _short(name: str) -> str:
    text = printable(name)
    return text if len(text) <= 80 else text[:50] + "…" + text[-25:]
