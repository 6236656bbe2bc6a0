"""Taking one log line apart: prefix by prefix, from the container runtime's down to the engine's own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import msgspec

from forensics.analysis.logs._format import Format, Peeled
from forensics.analysis.logs.formats import BY_FIRST_CHARACTER, RECORDS
from forensics.analysis.logs.spoken import without_spoken
from forensics.analysis.times import Stamp

DEEPEST = 12
"""More prefixes than anybody stacks."""
LEAD_CHARS = 240
"""How far into a line an engine's prefix is looked for behind text that nobody knows: a half-written line, a progress bar."""
LINE_CHARS = 8192
"""How far into a message a second writer is looked for."""
RECORD_CHARS = 1024 * 1024
"""A longer JSON line is not decoded: it is no log record."""

KNOWN = ('{"', "Traceback (most recent call last)", 'File "')
"""What nobody else's line begins with."""
FRAME = "\u2502"
"""What a terminal program draws around the lines that were copied out of it."""
MPI_ENGINE = "tensorrt-llm"
"""Its launcher starts one process for each rank; others have it start one for each node."""
WEAK_DEPTH = 3
"""So many ambiguous prefixes may stand one behind the other."""

_COLOUR = re.compile(
    r"(?:\x1b|#033|\^\[|\\(?:033|x1b|u001b))\[[0-9;:?]{0,24}[A-Za-z]"
    r"|\[\d{1,3}(?:;\d{1,3}){0,5}m"  # the escape character itself was lost on the way
)
_DATED = (
    r"(?:\([A-Za-z_][\w\-]{0,60}(?: (?:[TPDE]P\d{1,4})| rank=\d{1,6})?,? pid=\d{1,9}(?:, ip=[^)\s]{1,64})?\) )?"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./\-]{1,120}:\d{1,6}\]"
    r"|\[rank\d{1,6}\]:\[?[IWEF]\d{3,4} "
)
_EMBEDDED = re.compile(_DATED + r"|\((?:APIServer|ApiServer_\d+|EngineCore|Worker|VllmWorker)[\w\-]{0,60} pid=\d{1,9}\) ")
_SECOND = re.compile(_DATED)
"""Within a message only what is dated: words may speak of a process as its prefix does."""
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\s?(?:Z|[+-]\d\d:?\d\d(?!\d))?")
_BLANKS = re.compile(r" {0,16}")


@dataclass(slots=True)
class Hint:
    """What the lines of one file have shown so far. One for each file, handed to every `peel` of it."""

    chain: tuple[Format, ...] = ()
    """The formats of the line before: the next one mostly has the same."""
    seen: set[str] = field(default_factory=set)
    """Weak formats that this file has shown beyond doubt."""
    engine: str = ""
    """The engine whose own form was seen last."""


def peel(text: str, hint: Hint | None = None) -> Peeled:
    """Take a line apart. Never raises, whatever the text; what no format knows stays in the message as it is.

    `hint` remembers the file's formats from line to line: it makes the next line cheaper, and settles forms that would be
    ambiguous in a single line.
    """
    out = Peeled()
    text = text.rstrip(" \t\r\n\0")
    text = _plain(text, out)
    known = hint.chain if hint is not None else ()
    chain: list[Format] = []
    position = 0
    while len(chain) < DEEPEST and position < len(text):
        form, m = _fitting(text, position, known, len(chain), hint)
        if form is not None and m is not None:
            form.fill(out, m)
            position = m.end()
        elif text[position] == "{" and (found := _record(text[position:], out)):
            form, text = found
            text, position = _plain(text, out), 0
        elif text[position] == "\ufeff":
            text, position = text[position:].lstrip("\ufeff"), 0
            continue
        elif text[position] == FRAME and "frame" not in out.wrappers:
            out.wrappers += ("frame",)
            text, position = text[position + 1 :].rstrip(FRAME + " ").removeprefix(" "), 0
            continue
        elif "unknown" not in out.wrappers and not out.format and (start := _behind(text, position, out)) is not None:
            position = start
            continue
        else:
            break
        chain.append(form)
        if form.wrapper:
            out.wrappers += (form.name,)
        else:
            out.format = form.name
            if not form.goes_on:
                break
    out.message = without_spoken(text[position:] if position else text)
    if hint is not None:
        _remember(hint, out, chain)
    if out.rank is None and out.engine == MPI_ENGINE:
        out.rank = out.task
    return out


def peel_all(text: str, hint: Hint | None = None) -> list[Peeled]:
    """Like `peel`, for a line into which several wrote: one record for each prefix that stands in it, in order.

    What stands before the first one is a record of nobody.
    """
    first = peel(text, hint)
    found = [first]
    if first.lead.strip():
        found.insert(0, Peeled(message=first.lead, wrappers=first.wrappers, wrapper_time=first.wrapper_time, host=first.host))
    while len(found) < DEEPEST:
        last = found[-1]
        said = last.message
        if not ("pid=" in said or ".py:" in said or "]:[" in said):
            break
        m = _SECOND.search(said, 1, LINE_CHARS)
        if m is None or said[m.start() - 1] in "'\"`":
            break  # none, or quoted and not written
        last.message = said[: m.start()]
        found.append(peel(said[m.start() :], hint))
    return found


def _fitting(
    text: str, position: int, known: tuple[Format, ...], depth: int, hint: Hint | None
) -> tuple[Format | None, re.Match[str] | None]:
    """The first format that fits here: the one of the line before where no other could, else in their fixed order."""
    if depth < len(known) and known[depth].exact and (m := known[depth].pattern.match(text, position)):
        return known[depth], m
    for form in BY_FIRST_CHARACTER.get(text[position], ()):
        m = form.pattern.match(text, position)
        if m is None or (form.weak and not (hint is not None and form.name in hint.seen) and not _known_at(text, m.end())):
            continue
        if form.weak and hint is not None:
            hint.seen.add(form.name)
        return form, m
    return None, None


def _known_at(text: str, position: int, depth: int = 0) -> bool:
    """Whether something that is beyond doubt begins here, be it behind further weak prefixes."""
    if m := _BLANKS.match(text, position):
        position = m.end()
    if position >= len(text):
        return False
    if text.startswith(KNOWN, position):
        return True
    for form in BY_FIRST_CHARACTER.get(text[position], ()):
        m = form.pattern.match(text, position)
        if m and (not form.weak or (depth < WEAK_DEPTH and _known_at(text, m.end(), depth + 1))):
            return True
    return False


def _record(text: str, out: Peeled) -> tuple[Format, str] | None:
    """A line that is a JSON record as a whole: its format, and the text inside."""
    if len(text) > RECORD_CHARS:
        return None
    try:
        record = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # cut by rotation, or only looks like it
        return None
    if not isinstance(record, dict):
        return None
    for form in RECORDS:
        inside = form.decode(record, out) if form.decode else None
        if inside is not None:
            return form, inside.rstrip("\r\n\0")
    return None


def _behind(text: str, position: int, out: Peeled) -> int | None:
    """Where an engine's prefix begins behind text that no format knows; its date is kept as a wrapper's."""
    m = _EMBEDDED.search(text, position, position + LEAD_CHARS)
    if m is None or m.start() == position or text[m.start() - 1] in "'\"`":
        return None
    out.wrappers += ("unknown",)
    out.lead = text[position : m.start()]
    date = _STAMP.search(out.lead)
    if date and out.wrapper_time is None:
        out.wrapper_time = Stamp("iso", date[0])
    return m.start()


def _plain(text: str, out: Peeled) -> str:
    """The text without its colours, also where a syslog daemon or a pager has spelt them out."""
    if not ("\x1b" in text or "[0m" in text or ";0m" in text):
        return text
    plain = _COLOUR.sub("", text)
    if len(plain) != len(text) and "colour" not in out.wrappers:
        out.wrappers += ("colour",)
    return plain


def _remember(hint: Hint, out: Peeled, chain: list[Format]) -> None:
    if out.engine:
        hint.engine = out.engine
    elif out.task is not None and hint.engine == MPI_ENGINE and not out.format:
        out.engine = MPI_ENGINE
    elif out.format == "bracketed":
        out.engine = hint.engine if hint.engine == "sglang" else ""
    if out.format and tuple(chain) != hint.chain:
        hint.chain = tuple(chain)
