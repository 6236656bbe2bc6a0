"""No input makes a parser raise what ingest does not catch, and none costs it time out of proportion."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.analysis import parse
from forensics.analysis.parse import Input, Sink
from forensics.analysis.parse._pickle import plain_pickle
from forensics.analysis.times import Calendar
from tests.analysis.inputs.samples import FLIGHT_PICKLE, SAMPLES

CAUGHT = (ValueError, KeyError, IndexError, msgspec.MsgspecError, RecursionError)
CAL = Calendar(reference_ns=1_772_481_600_000_000_000)
BY_NAME = {p.name: p for p in (*parse.PARSERS, parse.TRANSCRIPT)}
MINE = sorted({parser for parser, _, _ in SAMPLES} - {"log", "pystack", "health"})
BITS = st.sampled_from(
    [
        "",
        "\n",
        " ",
        "\t",
        ":",
        "-",
        "|",
        "9" * 30,
        "-1",
        "0x",
        "%",
        "N/A",
        "\0",
        "\x1b[0m",
        "é",
        "\u2028",
        "[",
        "]",
        "{",
        "}",
        '"',
        ",",
        "1e999",
        "NaN",
        "#",
        "(",
    ]
)


def run(parser: str, text: str | bytes, name: str = "a.pid7.txt") -> None:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    try:
        BY_NAME[parser].parse(Input(name=name, node="n", data=data, pid=7, calendar=CAL), Sink())
    except CAUGHT:
        pass


@settings(deadline=None)
@given(st.data())
def test_mutated_samples(data):
    _, name, text = data.draw(st.sampled_from(SAMPLES))
    for _ in range(data.draw(st.integers(1, 4))):
        at, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 12))
        text = text[:at] + data.draw(BITS) + text[at + length :]
    head = text[:8192]
    for parser in parse.PARSERS:
        parser.recognise(name, head)
    found = parse.find("", name, head)
    if found is not None and found.name in BY_NAME:
        run(found.name, text, name)


@settings(deadline=None)
@given(st.sampled_from(MINE), st.sampled_from(SAMPLES))
def test_a_parser_survives_every_other_format(parser, sample):
    run(parser, sample[2], sample[1])


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["$ df -h", "=== ps ===", "==> a <==", "+ date", "$ cat /proc/1/stat"]), st.sampled_from(SAMPLES)),
        max_size=4,
    ),
    BITS,
)
def test_sessions(parts, noise):
    text = "".join(f"{command}\n{noise}{sample[2]}" for command, sample in parts)
    if parse.find("", "a.txt", text[:8192]) is parse.TRANSCRIPT:
        run("transcript", text)


@settings(deadline=None)
@given(st.sampled_from(MINE), st.text(max_size=400))
def test_a_parser_survives_any_text(parser, text):
    run(parser, text)


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, len(FLIGHT_PICKLE)), st.integers(0, 40))
def test_mutated_pickles(noise, at, length):
    try:
        plain_pickle(FLIGHT_PICKLE[:at] + noise + FLIGHT_PICKLE[at + length :])
    except ValueError:
        pass
    run("flight recorder", b"\x80\x02" + noise)


LONG = 100_000
PUMPS = [
    "a",
    " ",
    "1",
    "(",
    "[",
    "\t",
    "=",
    ":",
    ",",
    "|",
    "-",
    "/",
    ".",
    "a ",
    "1 ",
    "a:",
    "1:",
    "a=",
    "0x1 ",
    " (",
    "#",
    "a/",
    '"',
    '\\"',
    "[ ",
    "{}",
    "rank 1 ",
    "Mar 02 ",
]


@pytest.mark.parametrize(("parser", "name", "text"), [entry for entry in SAMPLES if entry[0] in MINE])
def test_a_long_line_is_not_searched_at_length(parser, name, text):
    """Lines are cut before patterns see them: 100 kB in one line would take minutes if any pattern were quadratic."""
    first, last = text.split("\n", 1)[0], text.rstrip().rsplit("\n", 1)[-1]
    for pump in PUMPS:
        filler = (pump * LONG)[:LONG]
        run(parser, f"{text}\n{first}{filler}\n{last}{filler}", name)
        BY_NAME[parser].recognise("a.txt", (first + filler)[:8192])
        BY_NAME[parser].recognise("a.txt", (text + filler)[:8192])


@pytest.mark.parametrize("parser", MINE)
def test_many_short_lines_take_time_in_proportion(parser):
    for pump in PUMPS:
        run(parser, (pump + "\n") * 4_000)
