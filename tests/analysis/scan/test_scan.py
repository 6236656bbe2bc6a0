"""The scanner against the plain reading of every line: same hits, same numbers, whatever the sizes of pieces and chunks."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.analysis.buffers import FileBuffer
from forensics.analysis.parse import Input, Sink, log
from forensics.analysis.scan import Candidate, Found, Plan, files, literals, pieces, scan
from forensics.analysis.signatures import Signature, signatures
from forensics.analysis.times import Calendar
from forensics.model import LogHit, LogSpan, ProgressSample

CAL = Calendar(reference_ns=1_788_256_800_000_000_000)  # 2026-09-01T10:00:00Z
STATS = (
    "(APIServer pid=1) INFO {at} [loggers.py:9] Engine 000: Avg prompt throughput: {p} tokens/s, Avg generation throughput: {g} tokens/s, "
    "Running: {r} reqs, Waiting: {w} reqs, GPU KV cache usage: 12.0%, Prefix cache hit rate: 1.0%"
)


def who(text: str) -> tuple[str, str]:
    m = re.match(r"\((\w+ pid=\d+)\) \w+ [\d-]+ [\d:]+ \[[^\]]*\] ", text)
    return (text[m.end() :], m[1]) if m else (text, "")


def file_of(path: Path, data: bytes) -> FileBuffer:
    path.write_bytes(data)
    return FileBuffer(os.open(path, os.O_RDONLY))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large log is one of a few kilobytes."""
    monkeypatch.setattr(files, "EVERY_BYTES", 4096)
    monkeypatch.setattr(files, "CHUNK_BYTES", 5000)
    monkeypatch.setattr(files, "PARALLEL_BYTES", 10**12)
    monkeypatch.setattr(files, "STATS_LINES", 50)
    monkeypatch.setattr(files, "STATS_CHOSEN", 20)
    monkeypatch.setattr(files, "TAIL_BYTES", 2000)
    monkeypatch.setattr(pieces, "TAIL_BYTES", 2000)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1500)
    monkeypatch.setattr(files, "PIECE_BYTES", 1500)


PLAN = Plan.of(signatures())
TEXTS = [s.examples[0] for s in signatures() if s.engine == "vllm" and not s.block][:12]


def clock(n: int) -> str:
    return f"09-01 {n // 3600 % 24:02d}:{n // 60 % 60:02d}:{n % 60:02d}"


def expected(data: bytes) -> set[int]:
    """Offsets of all lines in which a literal stands."""
    found, offset = set(), 0
    for line in data.split(b"\n"):
        if any(text in line for text in PLAN.literals):
            found.add(offset)
        offset += len(line) + 1
    return found


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(
        st.one_of(
            st.sampled_from([t.encode().split(b"\n")[0] for t in TEXTS]),
            st.binary(max_size=60).map(lambda b: b.replace(b"\n", b" ")),
            st.integers(0, 4000).map(lambda n: b"x" * n),
        ),
        max_size=40,
    ),
    ended=st.booleans(),
    piece=st.integers(1600, 9000),
    chunk=st.integers(500, 20_000),
)
def test_every_line_with_a_literal_is_found_with_its_number(lines: list[bytes], ended: bool, piece: int, chunk: int) -> None:
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", max(piece, 5000))
        patch.setattr(files, "CHUNK_BYTES", chunk)
        found = scan(data, PLAN, who)
    assert {c.start for c in found.candidates} == expected(data)
    for c in found.candidates:
        assert found.number(data, c.start) == data[: c.start].count(b"\n") + 1
    assert found.lines == len(data.split(b"\n")) - data.endswith(b"\n") if data else found.lines == 0


def test_a_line_longer_than_a_piece_costs_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1000)
    monkeypatch.setattr(files, "CHUNK_BYTES", 3000)
    text = TEXTS[0].encode()
    data = b"\n".join([b"a", b"y" * 10_500, text, b"z" * 7000 + text, text])
    found = scan(data, PLAN, who)
    numbers = [found.number(data, c.start) for c in found.candidates]
    assert numbers.count(3) == numbers.count(5) == 1 and 4 in numbers
    assert found.lines == 5


def test_without_hyperscan_the_same_is_found_and_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = random.Random(5)
    data = "\n".join(rng.choice([*TEXTS, "nothing", STATS.format(at=clock(1), p=0.0, g=0.0, r=2, w=0)]) for _ in range(300)).encode()
    fast = scan(data, PLAN, who)
    monkeypatch.setattr(literals, "engine_of_search", lambda: "re")
    monkeypatch.setattr(files, "engine_of_search", lambda: "re")
    slow = scan(data, Plan.of(signatures()), who)
    assert [c.start for c in slow.candidates] == [c.start for c in fast.candidates]
    assert [set(c.literals) for c in slow.candidates] == [set(c.literals) for c in fast.candidates]
    assert slow.notes and not fast.notes


def test_in_a_large_log_hits_are_counted_and_the_first_and_last_are_kept(small: None, tmp_path: Path) -> None:
    wait = "(EngineCore pid=7) INFO {at} [shm_broadcast.py:1] No available shared memory broadcast block found in 60 seconds."
    lines = []
    for n in range(3000):
        lines.append(wait.format(at=clock(n)))
        if n == 1500:
            lines.append("(Worker_TP1 pid=8) ERROR 09-01 00:25:00 [multiproc_executor.py:5] WorkerProc hit an exception.")
        if n % 7 == 0:
            lines.append(
                f'(APIServer pid=1) INFO:     192.0.2.{n % 250}:{1024 + n} - "GET /health HTTP/1.1" {503 if n == 2100 else 200} OK'
            )
    sink = parsed(file_of(tmp_path / "n0.log", "\n".join(lines).encode()))
    hits = [o for o in sink.observations if isinstance(o, LogHit)]
    waits = [h for h in hits if h.signature == "vllm-shm-broadcast-wait"]
    assert sum(h.count for h in waits) == 3000 and len(waits) == log.SAME_HITS
    assert waits[0].ref.locator == "line 1" and waits[-1].ref.locator == f"line {1 + lines.index(wait.format(at=clock(2999)))}"
    (raised,) = [h for h in hits if h.signature == "vllm-worker-exception"]
    assert lines[int(raised.ref.locator.split()[1]) - 1].startswith("(Worker_TP1")
    health = [h for h in hits if h.signature == "http-health-access"]
    assert sum(h.count for h in health) == len(range(0, 3000, 7))
    assert [h.fields["status"] for h in health].count("503") == 1


def signature(id: str, literal: str, pattern: str) -> Signature:
    return Signature(id=id, feeds="x", engine="any", role="context", source="-", literal=literal, pattern=pattern, examples=())


@pytest.mark.parametrize(
    "known",
    [
        [signature("killed", "exit code", r"exit code 137\b"), signature("ended", "exit code", r"exit code \d+")],
        [signature("killed", "exit code", r"exit code 137\b")],
    ],
    ids=["two of one literal", "the digits decide"],
)
def test_lines_that_differ_in_digits_alone_may_be_different_hits(small: None, tmp_path: Path, known: list[Signature]) -> None:
    lines = [f"(Worker pid=8) INFO {clock(n)} [a.py:5] task {n % 90 + 10} has exit code {137 if n == 1500 else 143}" for n in range(3000)]
    data = "\n".join(lines).encode()
    kept = [data[c.start :].partition(b"\n")[0].decode() for c in scan(file_of(tmp_path / "n0.log", data), Plan.of(known), who).candidates]
    assert lines[1500] in kept and len(kept) < 100


def test_of_too_many_stats_lines_those_that_tell_are_kept(small: None, tmp_path: Path) -> None:
    lines = []
    for n in range(2000):
        still = 900 <= n < 905
        lines.append(STATS.format(at=clock(n * 10), p=0.0 if still else 5.0, g=0.0 if still else 50.0, r=3, w=n % 4))
    sink = parsed(file_of(tmp_path / "n0.log", "\n".join(lines).encode()))
    samples = [o for o in sink.observations if isinstance(o, ProgressSample)]
    assert len(samples) < 1000
    numbers = [int(s.ref.locator.split()[1]) for s in samples]
    assert set(range(901, 906)) | {900, 906} <= set(numbers), "the standstill, and the lines around it"
    assert {1, 2000} <= set(numbers) and set(range(1995, 2001)) <= set(numbers), "the first, and the end in full"
    assert any("lines of counters" in note for note in sink.notes)


def test_stats_lines_around_a_wait_are_read(small: None, tmp_path: Path) -> None:
    lines = [STATS.format(at=clock(n * 10), p=5.0, g=50.0, r=3, w=0) for n in range(2000)]
    lines.insert(1003, "(EngineCore pid=7) INFO 09-01 02:47:00 [s.py:1] No available shared memory broadcast block found in 60 seconds.")
    sink = parsed(file_of(tmp_path / "n0.log", "\n".join(lines).encode()))
    numbers = {int(o.ref.locator.split()[1]) for o in sink.observations if isinstance(o, ProgressSample)}
    assert {1002, 1003, 1005, 1006} <= numbers


def test_processes_and_one_process_read_the_same(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(2)
    lines = [
        rng.choice([f"(Worker_TP{n % 4} pid={50 + n % 4}) ERROR {clock(n)} [m.py:1] {rng.choice(TEXTS)}", "noise"]) for n in range(2000)
    ]
    data = file_of(tmp_path / "n0.log", "\n".join(lines).encode())
    alone = told(scan(data, PLAN, who))
    monkeypatch.setattr(files, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert told(scan(data, PLAN, who)) == alone


def told(found: Found) -> tuple[list[Candidate], list[int], int]:
    return found.candidates, found.before, found.lines


def die(span: tuple[int, int]) -> None:
    os._exit(1)


def test_a_worker_that_is_killed_costs_nothing(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = file_of(tmp_path / "n0.log", "\n".join([TEXTS[0], "x"] * 2000).encode())
    alone = told(scan(data, PLAN, who))
    monkeypatch.setattr(files, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(files, "_work", die)
    assert told(scan(data, PLAN, who)) == alone


def parsed(data: bytes | FileBuffer) -> Sink:
    sink = Sink()
    log.parse(Input(name="n0.log", node="n0", data=data, calendar=CAL), sink)
    assert any(isinstance(o, LogSpan) for o in sink.observations)
    return sink


@pytest.mark.parametrize("literal", ['says "no"', "a\\b", "<tag> & more", "plain", "grün"])
def test_a_literal_is_found_in_json_too(literal: str) -> None:
    import json

    spelt = literals.spellings(literal)
    careful = json.dumps({"log": literal}, ensure_ascii=False)
    for c in "<>&":
        careful = careful.replace(c, f"\\u{ord(c):04x}")
    for line in (literal, json.dumps({"log": literal}), json.dumps({"log": literal}, ensure_ascii=False), careful):
        assert any(s in line.encode() for s in spelt), line


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    data = file_of(tmp_path / "x.log", b"abc\n" * 5000)
    os.truncate(tmp_path / "x.log", 10)
    assert len(data) == 20000 and data[4:12] == b"abc\nab" and data[100:200] == b""
    assert data.find(b"zzz") == -1 and data.rfind(b"zzz") == -1


@given(st.binary(max_size=300), st.binary(min_size=1, max_size=3), st.integers(0, 300), st.integers(0, 300))
def test_a_file_is_searched_like_bytes(tmp_path_factory: pytest.TempPathFactory, raw: bytes, what: bytes, a: int, b: int) -> None:
    data = file_of(tmp_path_factory.mktemp("f") / "x", raw)
    assert data.find(what, a, b) == raw.find(what, a, b) and data.rfind(what, a, b) == raw.rfind(what, a, b)
    assert data[a:b] == raw[a:b] and data.find(what) == raw.find(what) and data.rfind(what) == raw.rfind(what)


def test_a_large_container_log_is_read_record_by_record(small: None, tmp_path: Path) -> None:
    import json

    said = ["(EngineCore pid=7) INFO 09-01 09:00:00 [x.py:1] step"] * 200
    said.append("(Worker_TP1 pid=8) ERROR 09-01 09:30:00 [multiproc_executor.py:5] WorkerProc hit an exception.")
    said += ["(Worker_TP1 pid=8) ERROR 09-01 09:30:00 [multiproc_executor.py:5] Traceback (most recent call last):"]
    said += ['(Worker_TP1 pid=8) ERROR 09-01 09:30:00 [multiproc_executor.py:5]   File "/x/acme.py", line 3, in push']
    said += ["(Worker_TP1 pid=8) ERROR 09-01 09:30:00 [multiproc_executor.py:5] queue.Full"]
    lines = [json.dumps({"log": text + "\n", "stream": "stderr", "time": "2026-09-01T09:30:00.5Z"}) for text in said]
    sink = parsed(file_of(tmp_path / "n0-json.log", "\n".join(lines).encode()))
    (raised,) = [o for o in sink.observations if isinstance(o, LogHit) and o.signature == "vllm-worker-exception"]
    assert (raised.pid, raised.ref.locator, raised.fields["exc_type"]) == (8, "line 201", "queue.Full")
