"""Names that a target chose: of threads, functions and files. They are shown to people and may hold anything."""

from __future__ import annotations

import re

from forensics.model import Frame

NAME_CHARS = 200
LINE_CHARS = 4096
"""Of a line of text: the patterns for frames are searched in no more."""
FRAMES_MAX = 2048
INNERMOST = 1536
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(name: str, limit: int = NAME_CHARS) -> str:
    """Without line ends, terminal escapes and characters that reverse the reading order: those are spelled out. Bounded."""
    if len(name) <= limit and name.isprintable():  # nearly all of them, and there are millions
        return name
    text = _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", name[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def bounded(frames: list[Frame]) -> tuple[Frame, ...]:
    """Frames, innermost first, of a stack that may have run away: its inner and its outer end, and how many lie between."""
    if len(frames) <= FRAMES_MAX:
        return tuple(frames)
    outermost = FRAMES_MAX - INNERMOST
    left_out = len(frames) - FRAMES_MAX
    return (*frames[:INNERMOST], Frame(name=f"… {left_out} frames …", file=""), *frames[-outermost:])
