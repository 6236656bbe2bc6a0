"""Words of an engine's users inside its own lines: somebody who asks a model about a crash quotes the crash."""

from __future__ import annotations

import re

MARKS = ("prompt", "output", "text", "content", "input", "body", "query", "question")
"""One of these names stands before what a user wrote or a model answered."""
_SPOKEN = re.compile(
    r"(?<!\w)(?P<name>(?:prompts?|outputs?|text|content|inputs?|body|query|question)[\"']?\s?[:=]\s?\[?)"
    r"(?:'(?:[^'\\]|\\.)*(?:'|\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\Z))",
    re.S,
)
_UNQUOTED = re.compile(r"(?<!\w)(?:[Mm]odel[_ ]output): .*", re.S)


def without_spoken(message: str) -> str:
    """A message without the quoted text of requests and answers: those are nobody's observations.

    Engines log them with --enable-log-requests, quoted as Python or JSON quotes; a quote that the end of the line cuts off ends there.
    A message that is itself an unread JSON record is left as it is.
    """
    if message.startswith("{") or not any(mark in message for mark in MARKS):
        return message
    if "'" in message or '"' in message:
        message = _SPOKEN.sub(lambda m: f"{m['name']}''", message)
    return _UNQUOTED.sub("", message) if "odel" in message else message
