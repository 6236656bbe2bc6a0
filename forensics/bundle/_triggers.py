"""Decide which lines of a text are looked at closely, and for what: the literal prefilter before all patterns.

Lines of a log differ mostly in their numbers. So a verdict belongs to a *skeleton*, the line in lower case without its digits, and is
remembered: an ordinary log costs little more than splitting it into lines. A skeleton that was never seen is judged by its words,
whose verdicts are remembered too. A literal below therefore has no digits ("ya29." is searched for as "ya."), and whatever a pattern
matches must, without its digits and in lower case, still match its trigger.

Skeletons are str (latin-1, one byte a character): `in` is 2.5 times faster on str than on bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from forensics.bundle._keys import CONTENT_NAMES

CONTENT, SECRET, OPTION, URL, BEARER, SHAPE, REQUEST, OTHER = (1 << bit for bit in range(8))
"""What a line may hold. A mask of these decides which patterns are tried on it."""
EVERYTHING = 255

CONTENT_WORDS = CONTENT_NAMES
_SECRET_WORDS = "secret passw passphrase passcode pwd token credential auth cookie dsn sas jwt _pat key"
SECRET_WORDS = tuple(_SECRET_WORDS.split())
_SHAPE_WORDS = (
    "hf_ sk- k_live k_test ghp_ gho_ ghu_ ghs_ ghr_ github_pat glpat- xox xapp- akia asia aiza ya. nvapi- npm_ pypi- dckr_pat gsk_ hvs. "
    "sg. eyj"
)
_ID_WORDS = "embd pool score rerank classify tokn tokenize transcribe translate generate-tokens resp msg"
ID_WORDS = tuple(_ID_WORDS.split())
_EXACT = "x-amz- x-goog- awsaccess googleaccess key-pair"

_GAP = r"\\*[\"']?[ \t]*"
_ASSIGNED = r"(?:=>|[:=])"
_OPENED = r"(?:=>|[:=])[ \t]*[a-z_.]{0,80}\\*[\"'\[({]"
_NAMED = r"(?:=>|[:=,])"

# (what, literal, what follows it in its word, what follows that in the line)
_TABLE: tuple[tuple[int, str, str, str], ...] = (
    *((SECRET, word, r"[a-z_\-]{0,40}", _NAMED) for word in SECRET_WORDS),
    (CONTENT, "prompt", "s?", _ASSIGNED),
    *((CONTENT, name, "", _OPENED) for name in CONTENT_WORDS if "prompt" not in name),
    (CONTENT, "put_ids", "", _OPENED),
    (CONTENT, "token_ids", "", _OPENED),
    (CONTENT, "tokens", "", _OPENED),
    (REQUEST, "rid", "s?", _NAMED),
    (REQUEST, "req", r"(?:uest)?(?:[_\-]?ids?)?", r"(?:[ \t]?ids?\\*[\"']?[ \t]*)?" + _NAMED),
)
_FIXED: tuple[tuple[int, str, str], ...] = (
    (OPTION, "--", r"(?<!---)[a-z_.\-]{0,60}(?:secret|passw|passphrase|pwd|token|credential|auth|cookie|dsn|key|prompt)"),
    (URL, "://", r"[^\s/?#\"'\\<>\x00]{1,256}@"),
    (URL, "sig", r"[a-z]{0,8}="),
    *((URL, word, rf"(?<=[?&;u]{word})=") for word in ("code", "session", "key", "token", "auth")),
    *((URL, word, "") for word in _EXACT.split()),
    *((SHAPE, word, "") for word in _SHAPE_WORDS.split()),
    *((REQUEST, word, rf"(?<![a-z_]{word})[-_]") for word in ID_WORDS),
    (REQUEST, "req-", r"(?<![a-z_]req-)"),
    *((REQUEST, word, "") for word in ("cmpl-", "correlation", "trace-id", "trace_id")),
    (REQUEST, "request", r"s?(?:\(s\))?(?:$|[ \t]+(?:id[ \t]*[:=]?[ \t]*)?['\"]?[a-z_.@+\-])"),
    (BEARER, "bearer", ""),
    *((OTHER, word, "") for word in ("input_value=", "::=", "private")),
)


# patterns stay text until their literal is met: compiling them all would double the start of a capture, and `re` remembers them
_IN_WORD = tuple(
    [(what, word, re.escape(word) + rest + r"\\*[\"']?(?:$|[:=,])") for what, word, rest, _ in _TABLE]
    + [(what, word, re.escape(word) + rest if rest else "") for what, word, rest in _FIXED]
)
_IN_LINE = tuple(
    [(what, word, re.escape(word) + rest + _GAP + end) for what, word, rest, end in _TABLE]
    + [(what, word, re.escape(word) + rest if rest else "") for what, word, rest in _FIXED]
)
_LOWER = bytes(range(256)).lower()
_DIGITS = b"0123456789"
_MAX_VERDICTS = 50_000
_MAX_KEY = 2048
"""Longer lines are judged each time: a cache of them would outgrow the log."""


class Triggers:
    """Judges lines, and remembers. Safe to share between threads: a lost update costs one more judgement."""

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}
        self._words: dict[str, int] = {}

    def lines(self, data: bytes) -> list[tuple[int, int]]:
        """(index of the line, mask of what it may hold) for every line of `data` that may hold anything."""
        skeletons = data.translate(_LOWER, _DIGITS).decode("latin-1").split("\n")
        verdicts = self._lines
        found = {}
        for skeleton in set(skeletons):
            mask = verdicts.get(skeleton)
            if mask is None:
                mask = self._judge(skeleton)
                _remember(verdicts, skeleton, mask)
            if mask:
                found[skeleton] = mask
        return [(index, found[skeleton]) for index, skeleton in enumerate(skeletons) if skeleton in found] if found else []

    def _judge(self, skeleton: str) -> int:
        mask = 0
        for word in skeleton.split():
            verdict = self._words.get(word)
            if verdict is None:
                verdict = _judge_word(word)
                _remember(self._words, word, verdict)
            mask |= verdict
        if mask:  # the words may hold something: now exactly
            wanted, mask = mask, 0
            for what, literal, pattern in _IN_LINE:
                if what & wanted & ~mask and literal in skeleton and (not pattern or re.search(pattern, skeleton, re.ASCII)):
                    mask |= what
        return mask


def _judge_word(word: str) -> int:
    if not word.strip("abcdefx()[]{}<>:,.-"):  # addresses and hashes: without end, and without interest
        return 0 if "-" not in word else OPTION if "--" in word else 0
    mask = 0
    for what, literal, pattern in _IN_WORD:
        if literal in word and (not pattern or re.search(pattern, word, re.ASCII)):
            mask |= what
    return mask


def _remember(verdicts: dict[str, int], key: str, mask: int) -> None:
    if len(key) <= _MAX_KEY:
        if len(verdicts) >= _MAX_VERDICTS:
            verdicts.clear()
        verdicts[key] = mask


def positions(words: Iterable[str], lower: str) -> list[int]:
    """Where any of `words` begins in `lower`, in order."""
    found: set[int] = set()
    for word in words:
        at = lower.find(word)
        while at >= 0:
            found.add(at)
            at = lower.find(word, at + 1)
    return sorted(found)
