"""Each format is recognised by its content, and by its own parser alone."""

from __future__ import annotations

import pickle

import pytest

from forensics.analysis import parse
from tests.analysis.inputs.samples import FLIGHT_PICKLE, SAMPLES

SAME = {("kernel", "journal"), ("log", "journal")}
"""Pairs that may both say yes: the first wins by its place."""
IDS = [f"{parser}-{name}" for parser, name, _ in SAMPLES]


@pytest.mark.parametrize(("parser", "name", "text"), SAMPLES, ids=IDS)
def test_the_right_parser_is_found(parser, name, text):
    found = parse.find("", name, text[:8192])
    assert found is not None and found.name == parser


@pytest.mark.parametrize(("parser", "name", "text"), SAMPLES, ids=IDS)
def test_no_other_parser_takes_it(parser, name, text):
    """Plain log text comes last and takes whatever has a date: it is left out here."""
    others = [p.name for p in parse.PARSERS if p.name not in (parser, "log") and p.recognise(name, text[:8192])]
    assert [o for o in others if (parser, o) not in SAME] == []


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
