"""What every parser is given and where it puts what it found."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from forensics.analysis.buffers import Buffer
from forensics.analysis.times import Calendar
from forensics.model import EvidenceRef, Observation, ProcessInfo, TimeRange

TEXT_BYTES = 64 * 1024 * 1024
"""Of a file that is read as one text; logs are scanned whole."""
QUOTE_CHARS = 300
"""A quote is a reminder, not a copy."""


_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|\x1b\(B")


def clean(text: str) -> str:
    """Text without a byte order mark, colours and line ends of another system: people mail what they see."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return _COLOUR.sub("", text) if "\x1b" in text else text


@dataclass(frozen=True, kw_only=True)
class Input:
    """One file of evidence, ready to be read."""

    name: str
    """How the report names it."""
    node: str
    data: Buffer
    kind: str = ""
    """Evidence.kind from a bundle; "" for a bare file."""
    pid: int | None = None
    sample: int = 0
    at: TimeRange | None = None
    calendar: Calendar
    boot_ns: int | None = None
    """When the node booted: it dates kernel lines that count from there."""
    parts: tuple[tuple[int, str], ...] = ()
    """Of a rotated log: (number of its first line, name) of each file that was joined, in order. A first line below 1: what stands above
    `data` in the file is not part of it."""
    markers: tuple[tuple[str, str], ...] = ()
    """(patch name, log_marker) of the operator's patches: looked for in logs."""

    def text(self, limit: int = TEXT_BYTES) -> str:
        """The content without what terminals and editors add; lines keep their numbers."""
        return clean(bytes(self.data[:limit]).decode("utf-8", "replace"))

    def document(self) -> bytes:
        """The whole content, as a JSON decoder takes it."""
        return bytes(self.data[:]).removeprefix(b"\xef\xbb\xbf").lstrip()

    def ref(self, locator: str, quote: str = "") -> EvidenceRef:
        name, locator = self._part(locator)
        return EvidenceRef(source=name, locator=locator, quote=" ".join(quote.split())[:QUOTE_CHARS])

    def _part(self, locator: str) -> tuple[str, str]:
        """The file and the lines in it that lines of a joined log are; lines of several files stay as they are counted."""
        m = re.fullmatch(r"(lines?) (\d+)(?:-(\d+))?", locator) if self.parts else None
        if m is None:
            return self.name, locator
        numbers = [int(n) for n in m.groups()[1:] if n]
        homes = {self.parts[max(0, bisect.bisect_right(self.parts, (n, "\U0010ffff")) - 1)] for n in numbers}
        if len(homes) > 1:
            return self.name, locator
        first, name = homes.pop()
        return name, f"{m[1]} {'-'.join(str(n - first + 1) for n in numbers)}"


@dataclass
class Sink:
    """Collects what the parsers found."""

    observations: list[Observation] = field(default_factory=list)
    processes: list[ProcessInfo] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be read, in words for the report."""

    def add(self, observation: Observation) -> None:
        self.observations.append(observation)

    def process(self, info: ProcessInfo) -> None:
        self.processes.append(info)

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass(frozen=True)
class Parser:
    """One format. `recognise` looks at the content first and the name second."""

    name: str
    kinds: tuple[str, ...]
    recognise: Callable[[str, str], bool]
    """(file name, first 8 KiB as text) to whether this is the format."""
    parse: Callable[[Input, Sink], None]
    binary: bool = False
    """Whether its files hold NUL bytes: no parser of text may guess at those."""

    def run(self, inp: Input, sink: Sink) -> None:
        """Parse; what was read before a fault stands, and the fault itself is a line of the report, whatever it is."""
        try:
            self.parse(inp, sink)
        except Exception as error:
            sink.note(f"{inp.name}: {self.name} parser gave up: {type(error).__name__}: {str(error)[:200]}")
