"""Numbers as tools print them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d{1,18}(?:[.,]\d{1,6})?) ?(?:([KMGTPE])(i?)(B?)|B)?(?:ytes)?", re.I)
_POWER = {letter: index for index, letter in enumerate("KMGTPE", 1)}
_FLOAT = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?")
_PCI = re.compile(r"(?:(?:PCI:)?([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.I)


def size(text: str, unit: int = 1) -> int | None:
    """ "161M", "3.0G", "1234MiB", "512", "0" in bytes; a bare number counts `unit` bytes. None where it is no size ("N/A", "-").

    K, M, G count in 1024: every tool read here does, unless it was asked for something else and then does not say so.
    """
    m = _SIZE.fullmatch(text.strip())
    if m is None:
        return None
    value = float(m[1].replace(",", "."))
    letter = (m[2] or "").upper()
    if letter:
        return round(value * (1 << 10 * _POWER[letter]))
    if text.strip()[-1:] in "Bb" or "bytes" in text:
        return round(value)
    return int(m[1]) * unit if m[1].isdigit() else round(value * unit)


def number(text: str) -> float | None:
    """The number that a cell begins with ("46.10 W", "96 %", "2418 MHz"); None for "[N/A]", "Not Supported", "ERR!" and the like."""
    m = _FLOAT.match(text.strip()[:40])
    return float(m[0]) if m else None


def pci(text: str) -> str:
    """A bus id in one spelling: "0000:b3:00.0" of "00000000:B3:00.0", "PCI:0000:b3:00" and "b3:00.0"; "" where it is none."""
    m = _PCI.fullmatch(text.strip()[:40])
    if m is None:
        return ""
    return f"{int(m[1] or '0', 16):04x}:{m[2].lower()}:{m[3].lower()}.{m[4] or '0'}"
