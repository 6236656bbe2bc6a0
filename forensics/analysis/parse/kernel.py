"""Kernel logs: /dev/kmsg records, dmesg in its forms, `journalctl -k`, journald JSON. Only what a signature knows is kept, and the span.

Lines that count from boot keep that count (`since_boot_ns`); they are dated here where the time of the boot was recorded beside them,
else by `kernelclock` from whatever the evidence tells. `dmesg -T` computes its times from the present uptime: they are off by every
suspend since, and kept as they stand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink, clean
from forensics.analysis.parse._sheets import ctime, sheets
from forensics.analysis.signatures import Signature, signatures
from forensics.analysis.times import SECOND
from forensics.model import BootTime, KernelEvent, KernelSpan, TimeRange

LINE_CHARS = 4096
MOST_CONTEXT, MOST = 500, 20_000
"""Of one kind of line so many are kept of a file."""
_KMSG = re.compile(r"^\d+,\d+,(\d{1,18}),[^;]{0,200};(.*)$")
_LEVEL = r"(?:<\d{1,3}>|[a-z0-9]+ {0,4}:[a-z]+ {0,4}: )?"
_MONOTONIC = re.compile(rf"^{_LEVEL}\[ *(\d{{1,9}})\.(\d{{6}})\](?: *<[^>]{{1,20}}>)? (.*)$")
_CTIME = re.compile(rf"^{_LEVEL}\[([A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d \d{{4}})\] (.*)$")
_ISO = re.compile(rf"^{_LEVEL}(\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]\d{{6}}[+-]\d\d:?\d\d) (.*)$")
_DELTA = re.compile(rf"^{_LEVEL}\[(?: *\+ *(\d{{1,9}}\.\d{{1,9}})|([A-Z][a-z]{{2}} ?[ \d]\d \d\d:\d\d))\] (.*)$")
_JOURNAL = re.compile(
    r"^(?:<\d{1,3}>)?(?:\d )?(?:[A-Z][a-z]{2} [ \d]?\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|(?:[A-Z][a-z]{2} )?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,20}(?: [A-Z]{1,5})?)"
    r" \S{1,64} kernel(?:\[\d{1,9}\])?(?:: | - - - | \S{1,20} \S{1,20} \S{1,20} )(.*)$"
)
_INDENTED = re.compile(r"\s*(?:kernel: ?)?(?=<\d|\[)")
"""Before a prefix: the indent of a quoted block; the word of a message that syslogd writes to all terminals."""
_BEGINS = re.compile(r"-- (?:Journal|Logs) begins? (?:at )?|-- Boot [0-9a-f]{8,}|-- No entries")
_PREVIOUS = re.compile(r"previous[-_. ]?boot|boot[-_.]?-1|[-_.]b-?1\b|last[-_]boot", re.I)
_WALL = re.compile(r"\b(?:rtc_cmos|rtc-\S+|PTP|systemd\[1\]|rtc\S*)\b.{0,80}setting system clock to (\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)")


@dataclass(frozen=True)
class _Line:
    number: int
    text: str
    message: str
    at: TimeRange | None
    boot_ns: int | None


class _Entry(msgspec.Struct):
    """journald's export as JSON (`journalctl -o json`)."""

    message: str | list[int] | None = msgspec.field(name="MESSAGE", default=None)
    transport: str = msgspec.field(name="_TRANSPORT", default="")
    identifier: str | list[str] = msgspec.field(name="SYSLOG_IDENTIFIER", default="")
    realtime: str = msgspec.field(name="__REALTIME_TIMESTAMP", default="")
    source_monotonic: str = msgspec.field(name="_SOURCE_MONOTONIC_TIMESTAMP", default="")
    hostname: str = msgspec.field(name="_HOSTNAME", default="")


class _Record(msgspec.Struct):
    msg: str = ""
    time: float | None = None


class _Dmesg(msgspec.Struct):
    dmesg: list[_Record] = []


def parse(inp: Input, sink: Sink) -> None:
    # what names a fault exactly comes before the catch-all, which has no literal
    known = sorted((s for s in signatures() if s.engine == "kernel"), key=lambda s: not s.literal)
    head = bytes(inp.data[:4096]).removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"{") and b'"dmesg"' in head:
        _collect(inp, sink, known, _dmesg_json(inp))
        return
    if head.startswith(b"{"):
        _collect(inp, sink, known, _journal_json(inp, sink))
        return
    for sheet in sheets(inp):
        lines = (r for number, text in _whole(sheet.lines()) if (r := _read(sheet.inp, number, text)))
        _collect(sheet.inp, sink, known, _human(sheet.inp, lines))


def _whole(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Lines that were broken when they were copied, or by the driver itself, put together again: the rest is indented, or goes on
    with a bracket, and has no prefix of its own."""
    before: tuple[int, str] | None = None
    for number, text in lines:
        broken = before is not None and _REST.match(text) and _WORDS.search(before[1]) and len(before[1]) < LINE_CHARS
        if broken and before is not None and not _FRAME.match(text.strip()) and not _KERNEL_PREFIX.match(text.strip()):
            before = (before[0], f"{before[1].rstrip()} {text.strip()}")
            continue
        if before is not None:
            yield before
        before = (number, text)
    if before is not None:
        yield before


def _read(inp: Input, number: int, text: str) -> _Line | None:
    if not text.strip() or text.startswith("-- "):
        return None
    if text[:1] in " \tk" and (m := _INDENTED.match(text)):
        text = text[m.end() :]
    if m := _KMSG.match(text):
        return _monotonic(inp, number, text, m[2], int(m[1]) * 1000)
    if m := _MONOTONIC.match(text):
        message = m[3]
        if inner := re.match(r"\S{1,64} kernel: (.*)$", message):  # journalctl -o short-monotonic
            message = inner[1]
        return _monotonic(inp, number, text, message, int(m[1]) * SECOND + int(m[2]) * 1000)
    if m := _CTIME.match(text):
        return _Line(number, text, m[2], _kernel(ctime(m[1], inp)), None)
    if m := _ISO.match(text):
        return _Line(number, text, m[2].split(" kernel: ", 1)[-1], _kernel(inp.calendar.parse(m[1].replace(",", "."))), None)
    if m := _DELTA.match(text):
        return _Line(number, text, m[3], None, None)
    if m := _JOURNAL.match(text):
        prefix = text[: m.start(1)]
        # a wrapper of its own may hold the kernel's count too: "kernel: [  123.456789] text"
        inner = _MONOTONIC.match(m[1])
        return _Line(number, text, inner[3] if inner else m[1], _kernel(inp.calendar.parse(prefix, 80)), _since(inner))
    return _Line(number, text, text, _kernel(inp.calendar.parse(text, 40)), None)


def _human(inp: Input, lines: Iterator[_Line]) -> Iterator[_Line]:
    """Dates the lines of `dmesg -e`: one in a while names its minute, the others how long after the line above them they came."""
    minute: TimeRange | None = None
    after = 0.0
    for line in lines:
        if line.at is None and line.boot_ns is None and (m := _DELTA.match(line.text)):
            if m[2]:
                minute, after = inp.calendar.parse(f"{m[2]}:00"), 0.0
            else:
                after += float(m[1])
            if minute is not None:
                start = minute.earliest_ns + round(after * SECOND)
                line = replace(line, at=TimeRange(earliest_ns=start, latest_ns=start + 60 * SECOND - 1, basis="kernel"))
        yield line


def _since(m: re.Match[str] | None) -> int | None:
    return int(m[1]) * SECOND + int(m[2]) * 1000 if m else None


def _kernel(at: TimeRange | None) -> TimeRange | None:
    return TimeRange(earliest_ns=at.earliest_ns, latest_ns=at.latest_ns, basis="kernel") if at else None


def _monotonic(inp: Input, number: int, text: str, message: str, since_ns: int) -> _Line:
    at = None
    if inp.boot_ns is not None:
        at = TimeRange(earliest_ns=inp.boot_ns + since_ns, latest_ns=inp.boot_ns + since_ns + SECOND, basis="kernel")
    return _Line(number, text, message, at, since_ns)


def _journal_json(inp: Input, sink: Sink) -> Iterator[_Line]:
    decode = msgspec.json.Decoder(_Entry).decode
    broken = 0
    for number, raw in enumerate(inp.document().split(b"\n"), 1):
        if not raw.strip():
            continue
        try:
            entry = decode(raw)
        except msgspec.MsgspecError:
            broken += 1
            continue
        if entry.transport != "kernel" and entry.identifier != "kernel":
            continue
        text = entry.message if isinstance(entry.message, str) else bytes(b & 255 for b in entry.message or []).decode("utf-8", "replace")
        at = None
        if re.fullmatch(r"[0-9]{1,18}", entry.realtime):
            ns = int(entry.realtime) * 1000
            at = TimeRange(earliest_ns=ns, latest_ns=ns + 999, basis="kernel")
        since = int(entry.source_monotonic) * 1000 if re.fullmatch(r"[0-9]{1,17}", entry.source_monotonic) else None
        yield _Line(number, text[:LINE_CHARS], text[:LINE_CHARS], at, since)
    if broken:
        sink.note(f"{inp.name}: {broken} lines are no entry of a journal")


def _dmesg_json(inp: Input) -> Iterator[_Line]:
    for number, record in enumerate(msgspec.json.decode(inp.document(), type=_Dmesg).dmesg, 1):
        text = record.msg[:LINE_CHARS]
        if record.time is not None and 0 <= record.time < 1e9:
            yield _monotonic(inp, number, text, text, int(record.time * 1e6) * 1000)
        else:
            yield _Line(number, text, text, None, None)


def _collect(inp: Input, sink: Sink, known: list[Signature], lines: Iterator[_Line], spoke: bool = True) -> None:
    first: TimeRange | None = None
    last: TimeRange | None = None
    mono: list[int] = []
    boot: tuple[int, int, _Line] | None = None
    count = start = end = 0
    kept: Counter[str] = Counter()
    telling = re.compile("|".join(re.escape(s.literal) for s in known if s.literal))  # most lines hold none: one pass instead of one each
    bare = [s for s in known if not s.literal]
    for line in lines:
        count += 1
        start, end = start or line.number, line.number
        if line.at:
            first, last = first or line.at, line.at
        if line.boot_ns is not None:
            mono = [mono[0] if mono else line.boot_ns, line.boot_ns]
            if line.at and inp.boot_ns is None:  # a line with both clocks tells when the count began; a journal writes late, never early
                begun = line.at.earliest_ns - line.boot_ns
                if boot is None or begun < boot[0]:
                    boot = (begun, line.at.latest_ns - line.boot_ns, line)
            elif boot is None and inp.boot_ns is None and (m := _WALL.search(line.message)):
                wall = inp.calendar.parse(m[1].replace("T", " ") + "Z")
                boot = (wall.earliest_ns - line.boot_ns, wall.latest_ns - line.boot_ns, line) if wall else None
        for signature in known if telling.search(line.message) else bare:
            found = signature.regex.search(line.message) if signature.literal in line.message else None
            if found and (fields := signature.read(found)) is not None:
                kept[signature.id] += 1
                if kept[signature.id] > (MOST_CONTEXT if signature.role == "context" else MOST):
                    break  # a noisy bus writes a corrected error a second
                sink.add(
                    KernelEvent(
                        node=inp.node,
                        at=line.at,
                        ref=inp.ref(f"line {line.number}", line.text),
                        signature=signature.id,
                        feeds=signature.feeds,
                        role=signature.role,
                        fields=fields,
                        text=line.message[:400],
                        since_boot_ns=line.boot_ns,
                    )
                )
                break
    span = inp.at
    if first and last:
        span = TimeRange(
            earliest_ns=min(first.earliest_ns, last.earliest_ns), latest_ns=max(last.latest_ns, first.earliest_ns + SECOND), basis="kernel"
        )
    if boot:
        booted = TimeRange(earliest_ns=boot[0], latest_ns=max(boot[0], boot[1]) + SECOND, basis="kernel")
        sink.add(BootTime(node=inp.node, ref=inp.ref(f"line {boot[2].number}", boot[2].text), booted=booted, via="kernel"))
    if not spoke:  # what systemd says of its units is no ground for saying that the kernel was silent
        return
    sink.add(
        KernelSpan(
            node=inp.node,
            at=span,
            ref=inp.ref(f"lines {start}-{end}", f"{count} kernel log lines"),
            lines=count,
            since_boot_ns=(mono[0], mono[1]) if mono else None,
            previous_boot=bool(_PREVIOUS.search(inp.name.rsplit("/", 1)[-1])),
        )
    )


def recognise(name: str, head: str) -> bool:
    lines = [line[:LINE_CHARS] for line in head.split("\n") if line.strip()]
    if len(head) >= 8000:
        lines = lines[:-1]
    if not lines:
        return False
    stripped = head.lstrip()
    if stripped.startswith("{"):
        if re.match(r'\{\s*"dmesg"\s*:', stripped):
            return True
        return '"__REALTIME_TIMESTAMP"' in head and bool(re.search(r'"_TRANSPORT"\s*:\s*"kernel"', head))
    if _BEGINS.match(lines[0]):
        return len(lines) == 1 or any(" kernel: " in line for line in lines) or "kernel" in name or "dmesg" in name
    certain = sum(bool(_KMSG.match(line) or _JOURNAL.match(line) or _CTIME.match(line)) for line in lines)
    if certain and certain * 2 >= len(lines):
        return True
    maybe = sum(bool(_MONOTONIC.match(line) or _ISO.match(line) or _DELTA.match(line)) for line in lines)
    named = any(word in name.lower() for word in (".kernel", "dmesg", "kmsg", "kern.log", "kernel.log"))
    if named and (certain + maybe > 0 or any(_WORDS.search(line) for line in lines)):
        return True
    # other programs count from their start as well: the kernel's own words must be among them
    return maybe * 4 >= len(lines) * 3 and any(_KERNEL_WORDS.search(line) for line in lines)


_WORDS = re.compile(r"\bNVRM: |kernel:\[|soft lockup|Kernel panic - |\bnvidia-|oom-killer|oom-kill:|ut of memory:|mlx5_core |pcieport ")
"""In what the kernel writes over several lines."""
_REST = re.compile(r"^(?:\s{2,}\S|\(0x[0-9a-f]+\) |0x[0-9a-f]+ bytes )")
_FRAME = re.compile(r"\? ?[\w.]+\+0x[0-9a-f]+/0x|\[<[0-9a-f]{8,}>\]|</?\w+>|[A-Z][\w ]{1,20}:|(?:RIP|R\w\w|Code): |\[ *\d+\] ")
"""Lines of a stack, a register dump or a table: they stand below another and are not its rest."""
_KERNEL_PREFIX = re.compile(r"\[ *\+?\d+\.\d{6}\]|\[[A-Z][a-z]{2} |<\d{1,3}>|\d{4}-\d\d-\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:|kernel: ")
_KERNEL_WORDS = re.compile(
    r"\] (?:Linux version |Command line: |NVRM: |nvidia|mlx5_core |ACPI|BIOS-|pci |pcieport |usb "
    r"|audit: |systemd\[1\]|EXT4-fs|oom-kill:|Out of memory"
    r"|Memory cgroup out|\S+ invoked oom-killer|INFO: task |watchdog: |mce: |x86/|cgroup|docker0|IPv6: |Call Trace)"
    r"|[+-]\d\d:?\d\d (?:NVRM: |mlx5_core |pcieport |Out of memory)"
)


def parse_rows(inp: Input, sink: Sink, rows: Sequence[tuple[int, str]], spoke: bool) -> None:
    """The kernel's lines, with their numbers, out of a log of everything; `spoke`: not all of them are of programs beside it."""
    known = sorted((s for s in signatures() if s.engine == "kernel"), key=lambda s: not s.literal)
    lines = [line for number, row in rows if (line := _read(inp, number, clean(row[:LINE_CHARS])))]
    if lines:
        _collect(inp, sink, known, iter(lines), spoke)


PARSER = Parser("kernel", ("kernel-log",), recognise, parse)
