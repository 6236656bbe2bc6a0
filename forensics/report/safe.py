"""Evidence is hostile text. Whatever is shown to a person passes through here once and cannot act on the screen any more."""

from __future__ import annotations

import unicodedata

QUOTE_LIMIT = 4000
"""Characters of one quotation in a document for people. JSON keeps the whole of it."""

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(value: object, keep: str = "") -> str:
    """Text in which every control, format (bidi override, zero width), surrogate or unassigned character is spelled out.

    `keep` names characters that are harmless where the text goes ("\\n\\t" inside HTML). Never raises.
    """
    text = value if isinstance(value, str) else str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep or unicodedata.category(c) == "Zs" else _spelled(c) for c in text)


def _spelled(char: str) -> str:
    code = ord(char)
    if char in _SHORT:
        return _SHORT[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(value: object) -> str:
    """`value` on one line: line ends become " ⏎ ", runs of blanks one blank, everything else as in `visible`."""
    text = value if isinstance(value, str) else str(value)
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    return visible(" ⏎ ".join(" ".join(word for word in line.replace("\t", " ").split(" ") if word) for line in lines))


def bounded(text: str, limit: int = QUOTE_LIMIT) -> str:
    """At most `limit` characters, saying how many were left out."""
    return text if len(text) <= limit else f"{text[:limit]} … [{len(text) - limit} more characters]"


def display_width(text: str) -> int:
    """Columns that `text` takes in a terminal: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def clip(text: str, width: int) -> str:
    """`text` in at most `width` columns, ending in "…" when it was cut."""
    if display_width(text) <= width:
        return text
    kept, used = [], 0
    for char in text:
        used += display_width(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"
