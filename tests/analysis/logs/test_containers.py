from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forensics.analysis.logs import peel, unwrap
from forensics.analysis.logs.containers import container_form, unwrap_lines

LOOSE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A machine may be busy."""


def docker(text, time="2026-09-01T10:00:00.1Z", stream="stderr"):
    return json.dumps({"log": text, "stream": stream, "time": time}).encode() + b"\n"


def test_a_docker_file_keeps_its_lines_its_clock_and_its_streams():
    out = unwrap(
        docker('(EngineCore pid=7) ERROR 09-01 10:00:00 [a.py:1] "quoted" é\n') + docker("x\n", stream="stdout") + b'{"log":"cut by rota'
    ).split(b"\n")
    first = peel(out[0].decode())
    assert (first.wrappers, first.wrapper_time.text, first.stream, first.pid) == (("cri",), "2026-09-01T10:00:00.1Z", "stderr", 7)
    assert first.message == '"quoted" é'
    assert out[1] == b"2026-09-01T10:00:00.1Z stdout F x"
    assert out[2] == b'{"log":"cut by rota'


def test_pieces_of_a_long_line_are_put_together_where_they_end():
    out = unwrap(
        docker("one ") + docker("other\n", stream="stdout") + docker("two ") + docker("three\n", time="2026-09-01T10:00:09Z")
    ).split(b"\n")
    assert out == [b"", b"2026-09-01T10:00:00.1Z stdout F other", b"", b"2026-09-01T10:00:09Z stderr F one two three", b""]
    cri = b"2026-09-01T10:00:00.1Z stdout P one \n2026-09-01T10:00:00.2Z stdout F two\n2026-09-01T10:00:00.3Z stdout F three\n"
    assert unwrap(cri).split(b"\n")[:3] == [b"", b"2026-09-01T10:00:00.2Z stdout F one two", b"2026-09-01T10:00:00.3Z stdout F three"]
    assert unwrap(docker("no end")).split(b"\n")[-1] == b"2026-09-01T10:00:00.1Z stderr F no end"


def test_a_file_that_rotation_cut_in_a_record():
    out = unwrap(b'ed","stream":"stdout","time":"2026-09-01T10:00:00.1Z"}\n' + docker("x\n")).split(b"\n")
    assert out[1] == b"2026-09-01T10:00:00.1Z stderr F x"


def test_the_journal_becomes_lines_of_its_hosts_units_and_kernel():
    records = [
        {
            "__REALTIME_TIMESTAMP": "1788256800123456",
            "_HOSTNAME": "n0",
            "_TRANSPORT": "kernel",
            "MESSAGE": "NVRM: Xid (PCI:0000:9b:00): 79, x",
        },
        {
            "__REALTIME_TIMESTAMP": "1788256800123456",
            "_HOSTNAME": "n0",
            "SYSLOG_IDENTIFIER": "vllm",
            "_PID": "812",
            "MESSAGE": [104, 105, 10, 255],
        },
        {"__REALTIME_TIMESTAMP": "1788256800123456", "_HOSTNAME": "n0", "MESSAGE": None},
    ]
    out = unwrap("\n".join(map(json.dumps, records)).encode()).decode().split("\n")
    assert out[0] == "2026-09-01T10:00:00.123456Z n0 kernel: NVRM: Xid (PCI:0000:9b:00): 79, x"
    assert peel(out[0]).engine == "kernel"
    line = peel(out[1])
    assert (line.host, line.process, line.pid, line.message) == ("n0", "vllm", 812, "hi \ufffd")
    assert len(out) == 3


def test_anything_else_is_left_as_it_is():
    for data in (b"", b"plain\n", b'{"a": 1}\n', b'{"log": broken', b"[1]\n"):
        assert unwrap(data) is data
        assert container_form(data) in ("", "docker")


@LOOSE
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.sampled_from(
                [docker("x\n"), docker("y"), b"2026-09-01T10:00:00.1Z stdout P x", b'{"MESSAGE":1,"_HOSTNAME":[]}', b'{"log":1}']
            ),
        ),
        max_size=8,
    ),
    st.sampled_from(["docker", "journal", "cri"]),
)
def test_no_bytes_break_it_and_no_line_is_lost(lines, form):
    unwrap(b"\n".join(lines))
    out = list(unwrap_lines(lines, form))
    assert len(out) >= len(lines)
