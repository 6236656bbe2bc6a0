from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from forensics.analysis.parse import Input, Sink, log
from forensics.analysis.times import SECOND, Calendar, iso, latest_date_hint
from forensics.analysis.tracebacks import read_traceback
from forensics.model import LogHit, LogSpan

CAL = Calendar(reference_ns=1_788_256_800_000_000_000)  # 2026-09-01T10:00:00Z


def parse(text: str | bytes, **kw) -> Sink:
    sink = Sink()
    data = text if isinstance(text, bytes) else text.encode()
    log.parse(Input(name="n0.log", node="n0", data=data, calendar=CAL, **kw), sink)
    return sink


def hits(sink: Sink, signature: str) -> list[LogHit]:
    return [o for o in sink.observations if isinstance(o, LogHit) and o.signature == signature]


def test_times_in_their_forms():
    assert iso(CAL.parse("(W pid=1) INFO 08-31 23:00:01 [x]").earliest_ns) == "2026-08-31T23:00:01Z"
    assert iso(CAL.parse("2026-09-01 12:00:00,250 INFO").earliest_ns) == "2026-09-01T12:00:00.250Z"
    assert iso(CAL.parse("2026-09-01T12:00:00+02:00 x").earliest_ns) == "2026-09-01T10:00:00Z"
    assert iso(CAL.parse("Sep  1 09:59:00 host kernel:").earliest_ns) == "2026-09-01T09:59:00Z"
    assert CAL.parse("no time here") is None
    assert CAL.parse("99-99 99:99:99") is None


def test_a_line_without_a_year_belongs_to_the_nearest_one():
    january = Calendar(reference_ns=1_767_312_000_000_000_000)  # 2026-01-02
    assert iso(january.parse("12-31 23:59:59").earliest_ns).startswith("2025-12-31")
    assert iso(january.parse("01-05 00:00:00").earliest_ns).startswith("2026-01-05")
    zone = Calendar(reference_ns=CAL.reference_ns, utc_offset_s=7200)
    assert iso(zone.parse("09-01 12:00:00").earliest_ns) == "2026-09-01T10:00:00Z"


def test_the_latest_date_named_anywhere_is_the_hint():
    assert latest_date_hint(b"x 2026-06-11 y 2025-01-01") == latest_date_hint(b"2026-06-11")
    assert latest_date_hint(b"none") is None


def test_an_undated_line_lies_between_its_neighbours():
    sink = parse(
        "(EngineCore pid=2) ERROR 09-01 09:00:00 [core.py:1] EngineCore encountered a fatal error.\n"
        '(APIServer pid=1) INFO:     192.0.2.1:1 - "GET /health HTTP/1.1" 200 OK\n'
        "(EngineCore pid=2) INFO 09-01 09:05:00 [x.py:1] No available shared memory broadcast block found in 60 seconds.\n"
    )
    (health,) = hits(sink, "http-health-access")
    assert iso(health.at.earliest_ns) == "2026-09-01T09:00:00Z"
    assert health.at.latest_ns // SECOND == CAL.parse("09-01 09:05:00").latest_ns // SECOND
    assert health.at.basis == "inferred"


def test_line_numbers_survive_long_lines_crlf_nul_and_broken_utf8():
    text = b"a\r\n" + b"x" * 300_000 + b"\n\xff\xfe\0\n" + b"(W pid=7) ERROR 09-01 09:00:00 [m.py:1] WorkerProc hit an exception.\r\n"
    (hit,) = hits(parse(text), "vllm-worker-exception")
    assert hit.ref.locator == "line 4"
    assert hit.pid == 7


def test_the_same_line_a_thousand_times_is_kept_few_times_and_counted():
    line = "(APIServer pid=1) ERROR 09-01 09:00:00 [s.py:5] vllm.EngineDeadError: EngineCore encountered an issue.\n"
    found = hits(parse(line * 1000), "vllm-engine-dead-error")
    assert len(found) <= log.SAME_HITS
    assert sum(h.count for h in found) == 1000


def test_every_pid_that_speaks_is_known_also_after_a_restart_under_the_same_name():
    sink = parse("(EngineCore pid=5) INFO 09-01 08:00:00 [a.py:1] x\n(EngineCore pid=9) INFO 09-01 09:00:00 [a.py:1] y\n")
    (span,) = [o for o in sink.observations if isinstance(o, LogSpan)]
    assert set(span.pids) == {5, 9}
    assert {p.pid for p in sink.processes} == {5, 9}


def test_markers_of_the_operator_prove_the_process_that_prints_them():
    sink = parse(
        "[patch] fast-spin active pid=150\n(Worker_TP1 pid=200) INFO 09-01 08:00:20 [x.py:1] y\n",
        markers=(("fast-spin", "[patch] fast-spin active"),),
    )
    (hit,) = hits(sink, "patch-marker")
    assert (hit.pid, hit.fields) == (150, {"patch": "fast-spin"})


def test_a_traceback_is_read_through_prefixes_and_other_writers():
    p = "(Worker_TP0 pid=7) ERROR 09-01 09:00:00 [m.py:1] "
    text = "\n".join(
        [
            p + "WorkerProc hit an exception.",
            p + "Traceback (most recent call last):",
            p + '  File "/opt/site-packages/acme/io.py", line 3, in push',
            "(Worker_TP1 pid=8) ERROR 09-01 09:00:00 [m.py:1] ValueError: somebody else's",
            p + "    q.put_nowait(x)",
            p + '  File "/usr/lib/python3.12/queue.py", line 136, in put',
            p + "    raise Full",
            p + "queue.Full",
        ]
    )
    trace = read_traceback(text, 7)
    assert (trace.exc_type, trace.at, trace.code) == ("queue.Full", "push (io.py:3)", "q.put_nowait(x)")


def test_of_a_chain_the_exception_that_came_first_counts():
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nKeyError: \'x\'\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File "b.py", line 2, in h\n    f()\nRuntimeError: later\n'
    trace = read_traceback(text, None)
    assert trace.exc_type == "KeyError"
    assert trace.chain == ("KeyError", "RuntimeError")


def test_a_traceback_of_plain_logging_belongs_to_the_line_above_it():
    sink = parse(
        '2026-09-01 09:00:00,100 ERROR [rank3] step failed\nTraceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nValueError: bad\n'
    )
    (hit,) = hits(sink, "python-traceback")
    assert (hit.rank, hit.fields["exc_type"]) == (3, "ValueError")
    assert hit.at is not None


@given(st.binary(max_size=4000))
def test_no_bytes_break_the_parser(data):
    parse(data + b"\nTraceback (most recent call last)\n" + data)


@given(st.text(max_size=2000))
def test_no_text_breaks_the_traceback_reader(text):
    read_traceback("Traceback (most recent call last):\n" + text, None)
    read_traceback(text, 7)


def test_an_analysis_of_an_empty_folder_says_so(tmp_path: Path):
    import pytest

    from forensics.analysis import NothingToAnalyze, analyze

    with pytest.raises(NothingToAnalyze):
        analyze([tmp_path])
