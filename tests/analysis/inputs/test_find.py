"""Each format is recognised by its content, and by its own parser alone."""

from __future__ import annotations

import pickle

import pytest

from forensics.analysis import parse
from forensics.analysis.parse import Input, Sink
from forensics.analysis.times import Calendar
from tests.analysis.inputs.samples import FLIGHT_PICKLE, SAMPLES

CAL = Calendar(reference_ns=1_772_481_600_000_000_000)
IDS = [f"{parser}-{name}" for parser, name, _ in SAMPLES]


@pytest.mark.parametrize(("parser", "name", "text"), SAMPLES, ids=IDS)
def test_the_right_parser_is_found(parser, name, text):
    found = parse.find("", name, text[:8192])
    assert found is not None and found.name == parser


@pytest.mark.parametrize(("parser", "name", "text"), SAMPLES, ids=IDS)
def test_no_other_parser_takes_it(parser, name, text):
    """Plain log text comes last and takes whatever has a date: it is left out here."""
    others = [p.name for p in parse.PARSERS if p.name not in (parser, "log") and p.recognise(name, text[:8192])]
    assert others == []


@pytest.mark.parametrize(("parser", "name", "text"), SAMPLES, ids=IDS)
def test_a_head_that_is_cut_anywhere_raises_nothing(parser, name, text):
    for end in range(0, min(len(text), 600), 7):
        for p in parse.PARSERS:
            p.recognise(name, text[:end])


def test_a_pickle_of_plain_data_is_a_flight_recorder_and_other_binaries_are_nobodys():
    assert parse.find("", "trace_rank_0", FLIGHT_PICKLE.decode("utf-8", "replace")).name == "flight recorder"
    assert parse.find("", "weights.bin", pickle.dumps({"a": 1}).decode("utf-8", "replace")) is None
    assert parse.find("", "x.bin", "\x7fELF\0\0\0PATH=1\0") is None


@pytest.mark.parametrize(
    "text",
    [
        "INFO 03-02 10:00:00 [api_server.py:1] NCCL_DEBUG=INFO\n",
        "(APIServer pid=1) INFO 03-02 10:00:00 [x.py:1] Using kernel: FLASH_ATTN\nGPU is lost? no\n",
        "[2026-03-02 10:00:00] ERROR Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error\n",
        "2026-03-02T10:00:00Z INFO rank 3 pid 12 gpu 4 is ready to serve traffic\n",
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: x\n',
        "gpu-a:7121:7121 [0] NCCL INFO Bootstrap : Using eth0\n",
        "Mar 02 16:20:29 gpu-a vllm[7100]: INFO 03-02 16:20:29 [core.py:58] hello\n",
        "# pip freeze\ntorch==2.9.0\nvllm==0.12.0\n2026-03-02 10:00:00 done\n",
    ],
)
def test_a_log_that_speaks_of_such_things_stays_a_log(text):
    found = parse.find("", "x.log", text)
    assert found is not None and found.name == "log"


def test_text_of_no_kind_is_nobodys():
    assert parse.find("", "notes.txt", "we saw it hang again\nplease look\n") is None
    assert parse.find("", "requirements.txt", "torch==2.9.0\nvllm==0.12.0\n") is None
    assert parse.find("", "config.json", '{"State": 1, "kind": "x"}') is None
    assert parse.find("", "t.csv", "name, count\na, 1\n") is None
    assert parse.find("", "ls.txt", "total 4\n-rw-r--r-- 1 root root 12 Mar  2 10:00 config.json\n") is None


def seen(parser: str, name: str, data: bytes) -> list[tuple[str, object, object]]:
    found = parse.find("", name, data[:8192].decode("utf-8", "replace"))
    assert found is not None and found.name == parser
    sink = Sink()
    found.parse(Input(name=name, node="n", data=data, pid=7, calendar=CAL), sink)
    return [(type(o).__name__, o.at, _facts(o)) for o in sink.observations]


def _facts(o) -> dict[str, object]:
    return {k: v for k in o.__struct_fields__ if k not in ("ref", "at") for v in [getattr(o, k)]}


@pytest.mark.parametrize(("parser", "name", "text"), SAMPLES, ids=IDS)
def test_what_mail_terminals_and_editors_do_to_a_file_changes_nothing(parser, name, text):
    plain = seen(parser, name, text.encode())
    assert seen(parser, name, b"\xef\xbb\xbf" + text.encode()) == plain
    assert seen(parser, name, text.replace("\n", "\r\n").encode()) == plain
    if text.lstrip()[:1] in "[{" or parser == "log":  # nobody colours a document
        return
    coloured = "\x1b[1m" + text.replace("\n", "\x1b[0m\n\x1b[32m", 3)
    assert seen(parser, name, coloured.encode()) == plain


@pytest.mark.parametrize(("parser", "name", "text"), [entry for entry in SAMPLES if entry[0] not in ("kernel", "journal", "log", "health")])
def test_a_file_without_its_last_line_end_loses_nothing(parser, name, text):
    assert seen(parser, name, text.rstrip("\n").encode()) == seen(parser, name, text.encode())
