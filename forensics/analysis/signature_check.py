"""Whether signatures are what they should be: examples that match, look-alikes that do not, patterns that no line can make run away."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

from forensics.analysis.signatures import FIELD_TYPES, Signature

LITERAL_CHARS = 6
"""A shorter literal stands in too many lines: the scanner looks for it to leave the others unread."""
SEARCH_CPU_S = 0.1
"""CPU time of one search of LINE_CHARS, in seconds: it takes microseconds, and lines may be thirty times as long."""
LINE_CHARS = 2048
PUMPS = (40, LINE_CHARS)
"""How often a piece of an example is repeated: few show what doubles with each, many what grows with their square."""
POSITIONS = 16
"""How many places of an example are tried."""
ADVICE = (
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    "set VLLM_LOGGING_LEVEL=DEBUG to see RPC call timeouts",
    "Consider increasing the timeout with VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS if RPC call to execute_model timed out.",
    "Set NCCL_DEBUG=WARN for detail on an unhandled system error, or TORCH_NCCL_TRACE_BUFFER_SIZE to see the watchdog timeout.",
    "If the process was killed, check dmesg for Out of memory.",
    "To silence this warning, specify disable_custom_all_reduce=True explicitly.",
)
"""Lines that advise name what they advise against. None is an observation."""


class _TooLong(Exception):
    pass


def problems(signature: Signature, neighbours: Sequence[Signature] = ()) -> Iterator[str]:
    """What is wrong with one signature, a sentence each. neighbours: all that are in force with it; itself among them or not."""
    if len(signature.literal) < LITERAL_CHARS and (signature.literal or signature.engine != "kernel"):
        yield f"literal {signature.literal!r} is shorter than {LITERAL_CHARS} characters"
    if not signature.source.strip():
        yield "source is empty: say which version prints the line, where, or which report shows it"
    if not re.fullmatch(r"[a-z0-9]+([-:/][a-z0-9]+)*", signature.feeds):
        yield f"feeds {signature.feeds!r} is no id of a finding"
    yield from _limit(signature)
    if not signature.examples:
        yield "there is no example"
    if runaway := _runs_away(signature):
        yield runaway
        return  # the rest would run away, too
    for text in signature.examples:
        yield from _example(signature, text, neighbours)
    for text in signature.counter_examples:
        if _claims(signature, text):
            yield f"counter-example matches: {text[:80]!r}"
    for text in ADVICE:
        if _claims(signature, text):
            yield f"a line that only advises matches: {text[:80]!r}"


def _limit(signature: Signature) -> Iterator[str]:
    if not signature.limit or re.fullmatch(r"\d+(\.\d+)?", signature.limit):
        return
    if signature.fields.get(signature.limit) not in ("seconds", "milliseconds", "int", "float"):
        yield f"limit {signature.limit!r} is neither a number of seconds nor a field that holds one (typed seconds or milliseconds)"


def _example(signature: Signature, text: str, neighbours: Sequence[Signature]) -> Iterator[str]:
    if signature.literal not in text:
        yield f"the literal does not stand in the example {text[:80]!r}: the scanner would never reach it"
    m = signature.regex.search(text)
    if m is None:
        yield f"the pattern does not match the example {text[:80]!r}"
    elif signature.read(m) is None:
        wrong = [n for n, kind in signature.fields.items() if m.groupdict().get(n) and not FIELD_TYPES[kind].fullmatch(m[n])]
        yield f"field {', '.join(wrong)} of the example {text[:80]!r} is not of its type"
    for other in neighbours:
        if other.id != signature.id and other.engine == signature.engine and _claims(other, text):
            yield f"{other.id} claims the example {text[:80]!r} as well"


def _claims(signature: Signature, text: str) -> bool:
    return bool(signature.literal) and signature.literal in text and signature.regex.search(text) is not None


def _runs_away(signature: Signature) -> str:
    """Words for a pattern that a line of a few kilobytes holds up; "" where none was found."""
    for pattern in (signature.pattern, *signature.after):
        compiled = re.compile(pattern)
        for text in signature.examples:
            for line in _pumped(text):
                try:
                    with _cpu_limit():
                        compiled.search(line)
                except _TooLong:
                    held = f"a line of {LINE_CHARS} characters holds the pattern up for more than {SEARCH_CPU_S} s"
                    return f"{held}: repeats within repeats, or two in a row? ({pattern[:60]!r})"
    return ""


def _pumped(text: str) -> Iterator[str]:
    """Lines that begin like an example and then repeat one of its pieces, without its end."""
    pieces = [(m.start(), m[0]) for m in re.finditer(r"\d+|[A-Za-z_]+|\S|\s", text[:400])]
    for times in PUMPS:
        for start, piece in pieces[:: max(1, len(pieces) // POSITIONS)]:
            for unit in {piece, piece + " "}:
                yield (text[:start] + unit * times)[:LINE_CHARS] + "\x00"


@contextlib.contextmanager
def _cpu_limit() -> Iterator[None]:
    """Raise _TooLong in a search that uses more CPU time than it may. Only the main thread can be told to stop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, SEARCH_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
