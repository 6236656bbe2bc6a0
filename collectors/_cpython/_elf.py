"""As much of an ELF file as it takes to find the interpreter's own state and to tell builds apart: sections, symbols, the build id."""

from __future__ import annotations

import os
import struct

_TABLE_LIMIT_BYTES = 32 << 20
_NOTE_LIMIT_BYTES = 64 << 10
_SYMBOL = struct.Struct("<IBBHQQ")


class NotElf(Exception):
    """Not a 64-bit little-endian ELF file, or a broken one."""


class Elf:
    """An open ELF file; the caller closes the descriptor. Reads nothing but headers and the tables that are asked for."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        head = self._at(0, 64)
        if head[:6] != b"\x7fELF\x02\x01":
            raise NotElf("not a 64-bit little-endian ELF file")
        phoff, shoff = struct.unpack_from("<QQ", head, 32)
        phsize, phnum, shsize, shnum, shstrndx = struct.unpack_from("<HHHHH", head, 54)
        if phsize != 56 or (shnum and shsize != 64):
            raise NotElf("unknown sizes of headers")
        self._segments = [struct.unpack_from("<IIQQQQQQ", raw) for raw in self._table(phoff, phsize, phnum)]
        headers = [struct.unpack_from("<IIQQQQIIQQ", raw) for raw in self._table(shoff, shsize, shnum)]
        names = self._at(headers[shstrndx][4], headers[shstrndx][5]) if shstrndx < len(headers) else b""
        self._sections = {_name(names, header[0]): header for header in headers}

    def section(self, name: str) -> tuple[int, int] | None:
        """(virtual address, size) of a section."""
        header = self._sections.get(name)
        return (header[3], header[5]) if header else None

    def symbol(self, wanted: str) -> int | None:
        """Virtual address of a defined dynamic symbol."""
        table, strings = self._sections.get(".dynsym"), self._sections.get(".dynstr")
        if table is None or strings is None:
            return None
        names = self._at(strings[4], strings[5])
        target = wanted.encode() + b"\0"
        for offset, _, _, index, value, _ in _SYMBOL.iter_unpack(self._at(table[4], table[5] // 24 * 24)):
            if index and names.startswith(target, offset):
                return int(value)
        return None

    @property
    def first_address(self) -> int:
        """Virtual address of the page that holds the file's first byte; where that is mapped minus this is the load bias."""
        for kind, _, offset, address, *_ in self._segments:
            if kind == 1 and offset < 4096:  # PT_LOAD
                return int(address - offset)
        raise NotElf("nothing of it is loaded")

    @property
    def build_id(self) -> str:
        """The note by which linkers tell builds apart (NT_GNU_BUILD_ID), in hexadecimal; "" where there is none."""
        for kind, _, offset, _, _, size, _, align in self._segments:
            raw = self._at(offset, min(size, _NOTE_LIMIT_BYTES)) if kind == 4 else b""  # PT_NOTE
            at, pad = 0, 8 if align == 8 else 4
            while at + 12 <= len(raw):
                name_bytes, content_bytes, note = struct.unpack_from("<III", raw, at)
                start = -(-(at + 12 + name_bytes) // pad) * pad
                if note == 3 and raw[at + 12 : at + 16] == b"GNU\0":
                    return raw[start : start + content_bytes].hex()
                at = start + -(-content_bytes // pad) * pad
        return ""

    def content(self, section: str, limit: int) -> bytes:
        """The beginning of a section as it lies in the file; b"" where there is no such section."""
        header = self._sections.get(section)
        return self._at(header[4], min(header[5], limit)) if header and header[1] != 8 else b""  # SHT_NOBITS lies nowhere

    def _at(self, offset: int, size: int) -> bytes:
        if size > _TABLE_LIMIT_BYTES or offset >= 1 << 62:
            raise NotElf("a table of absurd size")
        try:
            data = os.pread(self._fd, size, offset)
        except OSError as error:
            raise NotElf(str(error)) from error
        if len(data) < size:
            raise NotElf("cut")
        return data

    def _table(self, offset: int, size: int, count: int) -> list[bytes]:
        raw = self._at(offset, size * count)
        return [raw[i : i + size] for i in range(0, size * count, size)]


def _name(strings: bytes, offset: int) -> str:
    return strings[offset : strings.find(b"\0", offset)].decode("latin-1")
