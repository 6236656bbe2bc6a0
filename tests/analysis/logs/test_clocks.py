from __future__ import annotations

import pytest

from forensics.analysis.logs import Hint, peel, survey
from forensics.analysis.logs.clocks import local_zone
from forensics.analysis.times import SECOND, Calendar, Stamp, iso
from forensics.model import TimeRange

CAL = Calendar(reference_ns=1_788_256_800_000_000_000)  # 2026-09-01T10:00:00Z


def text(outer, inner, lines=8, step=10, lag=lambda i: 0.3):
    """Lines whose wrapper is written with `outer`, whose process with `inner`: (ns) to text."""
    out = []
    for i in range(lines):
        t = CAL.reference_ns - 3600 * SECOND + i * step * SECOND
        out.append(f"{outer(t + int(lag(i) * SECOND))} (EngineCore pid=7) INFO {inner(t)} [core.py:1] line {i}\n")
    return "".join(out).encode()


def utc(ns):
    return iso(ns)


def shifted(hours, form="{} {}", seconds=0):
    def write(ns):
        day, clock = iso(ns + int(hours * 3600 + seconds) * SECOND).rstrip("Z").split(".")[0].split("T")
        return form.format(day, clock)

    return write


def inner(hours=0, seconds=0):
    write = shifted(hours, seconds=seconds)
    return lambda ns: write(ns)[5:]


def times(data):
    clocks, hint = survey(data, CAL), Hint()
    return clocks, [clocks.at(peel(line, hint)) for line in data.decode().splitlines()]


def test_clocks_that_agree_have_no_offset():
    clocks, at = times(text(utc, inner()))
    assert (clocks.offset_s, clocks.zone_s, clocks.pairs) == (None, 0, 8)
    assert iso(at[0].earliest_ns) == "2026-09-01T09:00:00.300Z"


@pytest.mark.parametrize("hours", [8, -7, 5.5])
def test_a_wrapper_in_another_zone_is_brought_into_the_zone_of_the_processes(hours):
    clocks, at = times(text(shifted(hours), inner()))
    assert clocks.offset_s == pytest.approx(hours * 3600, abs=2)
    assert iso(at[0].earliest_ns).startswith("2026-09-01T09:00:00")


def test_a_wrapper_that_names_its_zone_is_right_whatever_the_process_says():
    clocks, at = times(text(utc, inner(8)))
    assert clocks.offset_s == pytest.approx(-8 * 3600, abs=2)
    assert clocks.zone_s == 0
    assert iso(at[0].earliest_ns) == "2026-09-01T09:00:00.300Z"


def test_a_wrapper_that_names_the_zone_of_the_processes_agrees_with_them():
    def local(ns):
        return iso(ns + 8 * 3600 * SECOND).rstrip("Z") + "+08:00"

    data = text(local, inner(8))
    clocks, at = times(data)
    assert clocks.offset_s is None
    assert iso(at[0].earliest_ns) == "2026-09-01T09:00:00.300Z"
    assert iso(clocks.at(peel("INFO 09-01 17:00:00 [core.py:1] x")).earliest_ns) == "2026-09-01T09:00:00Z"
    assert local_zone(data, CAL) == 8 * 3600
    # processes in UTC beside such a runtime stand a zone apart
    assert survey(text(local, inner()), CAL).offset_s == pytest.approx(8 * 3600, abs=2)
    assert local_zone(text(utc, inner(8)), CAL) is None


def test_a_process_whose_clock_is_minutes_off():
    clocks, at = times(text(utc, inner(seconds=-95)))
    assert clocks.offset_s == pytest.approx(95.3, abs=1)
    assert iso(at[0].earliest_ns) == "2026-09-01T09:00:00.300Z"


def test_a_line_without_the_wrapper_is_on_its_clock_all_the_same():
    alone = peel("INFO 09-01 17:00:00 [core.py:1] x")
    assert iso(survey(text(utc, inner(8)), CAL).at(alone).earliest_ns) == "2026-09-01T09:00:00Z"
    assert iso(survey(text(shifted(8), inner(8)), CAL).at(alone).earliest_ns) == "2026-09-01T17:00:00Z"
    assert iso(survey(text(shifted(16), inner(8)), CAL).at(alone).earliest_ns) == "2026-09-01T17:00:00Z"


def test_lines_that_waited_in_a_buffer_prove_no_offset():
    clocks, _ = times(text(utc, inner(), lines=20, lag=lambda i: 190 - 10 * i))
    assert clocks.offset_s is None


def test_a_few_odd_lines_do_not_decide():
    data = text(shifted(8), inner(), lines=30) + text(shifted(0), inner(), lines=2)
    assert survey(data, CAL).offset_s == pytest.approx(8 * 3600, abs=2)
    assert survey(text(shifted(8), inner(), lines=2), CAL).offset_s is None


def test_the_process_omits_the_year_and_the_wrapper_tells_it():
    old = Calendar(reference_ns=CAL.reference_ns + 200 * 86400 * SECOND)
    assert survey(text(utc, inner()), old).offset_s is None


def test_a_log_of_one_clock_has_none_to_compare():
    clocks = survey(b"(EngineCore pid=7) INFO 09-01 10:00:00 [core.py:1] x\n" * 9, CAL)
    assert (clocks.offset_s, clocks.pairs) == (None, 0)


def test_a_bare_clock_takes_the_day_of_its_neighbour():
    clocks = survey(b"", CAL)
    line = peel("[23:59:59] /x/a.cc:1: Warning: x")
    assert clocks.at(line) is None
    assert iso(clocks.at(line, CAL.parse("2026-09-02 00:00:03")).earliest_ns) == "2026-09-01T23:59:59Z"


FORMS = [
    ("us", "09/01/2026-10:00:00", "2026-09-01T10:00:00Z"),
    ("slash", "2026/07/20 18:01:55.000", "2026-07-20T18:01:55Z"),
    ("ctime", "Sun Sep 13 19:44:02 2026", "2026-09-13T19:44:02Z"),
    ("ctime", "Sun Sep 13 19:44:02 UTC 2026", "2026-09-13T19:44:02Z"),
    ("glog", "1003 18:37:01.832146912", "2026-10-03T18:37:01.832Z"),
    ("glog", "524 18:37:01.832146912", "2026-05-24T18:37:01.832Z"),
    ("glog", "20260901 10:00:00.5000", "2026-09-01T10:00:00.500Z"),
    ("syslog", "Sep  1 10:00:00.250000", "2026-09-01T10:00:00.250Z"),
    ("epoch", "1788256800", "2026-09-01T10:00:00Z"),
    ("epoch", "1788256800.25", "2026-09-01T10:00:00.250Z"),
    ("epoch", "1788256800250", "2026-09-01T10:00:00.250Z"),
    ("epoch", "1788256800250000", "2026-09-01T10:00:00.250Z"),
    ("epoch", "1788256800250000000", "2026-09-01T10:00:00.250Z"),
    ("iso", "2026-09-01T12:00:00,250+02:00", "2026-09-01T10:00:00.250Z"),
    ("iso", "2026-09-01 10:00:00 UTC", "2026-09-01T10:00:00Z"),
    ("boot", "60.5", "2026-09-01T10:01:00.500Z"),
]


@pytest.mark.parametrize(("form", "written", "is_"), FORMS)
def test_every_form_of_a_time(form, written, is_):
    assert iso(CAL.read(Stamp(form, written), boot_ns=CAL.reference_ns).earliest_ns) == is_


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("epoch", "12345"),
        ("epoch", "1.7e9"),
        ("epoch", "9" * 30),
        ("us", "13/45/2026-99:00:00"),
        ("iso", "0000-00-00 00:00:00"),
        ("boot", "x"),
        ("boot", "9" * 40),
        ("clock", "25:00:00"),
        ("month-day", "0a-b1 10:00:00"),
    ],
)
def test_what_is_no_time_is_none(form, written):
    assert CAL.read(Stamp(form, written), TimeRange(earliest_ns=0, latest_ns=0, basis="logged"), 0) is None


def test_only_a_named_zone_is_one():
    assert Stamp("iso", "2026-09-01T10:00:00Z").zoned
    assert Stamp("iso", "2026-09-01T10:00:00.5+0530").zoned
    assert Stamp("epoch", "1788256800").zoned
    assert not Stamp("iso", "2026-09-01 10:00:00").zoned
    assert not Stamp("syslog", "Sep  1 10:00:00").zoned
