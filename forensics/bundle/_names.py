"""Names that came from somewhere else: made safe to create, and safe to print."""

from __future__ import annotations

import re
from collections.abc import Collection

MAX_COMPONENT_BYTES = 150
"""Below NAME_MAX (255) with room for a suffix, and short enough that path and prefix fit a plain ustar header mostly."""
MAX_DEPTH = 6
MAX_PATH_BYTES = 400

MANIFEST = "manifest.json"
CHECKSUMS = "manifest-sha256.txt"
ATTEMPTS = "attempts.jsonl"
JOURNAL = "evidence.jsonl"
"""Evidence records as files open and close; folded into the manifest (and removed) when the bundle is sealed."""
RESERVE = ".reserve"
OWN_FILES = frozenset({MANIFEST, CHECKSUMS, ATTEMPTS, JOURNAL, RESERVE})

_UNSAFE = re.compile(r"[^A-Za-z0-9._+@=,%-]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def safe_path(path: str) -> str:
    """Turn any string into a relative path of plain components: no "..", no root, no control or shell characters, bounded.

    Collectors are not trusted with names: what they send may hold the name of a log file, of a thread or of a URL.
    """
    parts: list[str] = []
    for raw in path.replace("\\", "/").split("/"):
        part = _UNSAFE.sub("_", raw)
        if part in ("", ".", ".."):
            continue
        if part[0] in ".-":  # a hidden file is skipped by readers, a leading dash is an option to every tool
            part = "_" + part[1:]
        parts.append(_shorten(part, MAX_COMPONENT_BYTES))
    if len(parts) > MAX_DEPTH:
        parts = [*parts[: MAX_DEPTH - 1], _shorten("_".join(parts[MAX_DEPTH - 1 :]), MAX_COMPONENT_BYTES)]
    while len("/".join(parts)) > MAX_PATH_BYTES:
        parts = [_shorten(part, max(16, len(part) // 2)) for part in parts]
    return "/".join(parts) or "unnamed"


def _shorten(name: str, limit: int) -> str:
    """Keep the end, where the extension and the number of the sample are."""
    return name if len(name) <= limit else name[: limit // 2] + "~" + name[-(limit - limit // 2 - 1) :]


def unique_path(path: str, taken: Collection[str]) -> str:
    """`path`, or the first of name-2.ext, name-3.ext, … that is not taken."""
    if path not in taken:
        return path
    head, slash, name = path.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    number = 2
    while (candidate := f"{head}{slash}{stem}-{number}{dot}{suffix}") in taken:
        number += 1
    return candidate


def printable(text: str) -> str:
    """`text` with everything that a terminal would obey written out as \\xNN or \\uNNNN."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", text)
