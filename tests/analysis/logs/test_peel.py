from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forensics.analysis.logs import FORMATS, Hint, peel, peel_all
from forensics.analysis.times import Calendar, Stamp, iso

LOOSE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A machine may be busy."""

CAL = Calendar(reference_ns=1_788_256_800_000_000_000)  # 2026-09-01T10:00:00Z

WRAPPERS = {
    "compose": lambda s: "vllm-1  | " + s,
    "kubectl-time": lambda s: "2026-09-01T10:00:00.123456789Z " + s,
    "cri": lambda s: "2026-09-01T10:00:00.123456789Z stderr F " + s,
    "pod-prefix": lambda s: "[pod/vllm-0/engine] " + s,
    "mpirun": lambda s: "[1,5]<stderr>:" + s,
    "srun": lambda s: " 5: " + s,
    "syslog": lambda s: "Sep  1 10:00:00 node0 unit[4]: " + s,
    "systemd": lambda s: "2026-09-01T10:00:00+0000 node0 unit[4]: " + s,
    "syslog5424": lambda s: "<30>1 2026-09-01T10:00:00Z node0 unit 4 - - " + s,
    "docker-json": lambda s: json.dumps({"log": s + "\n", "stream": "stderr", "time": "2026-09-01T10:00:00.1Z"}),
    "journald-json": lambda s: json.dumps({"__REALTIME_TIMESTAMP": "1788256800000000", "_HOSTNAME": "node0", "MESSAGE": s}),
    "stern": lambda s: "vllm-6d5f-x2k4j engine " + s,
    "leading-time": lambda s: "2026-09-01 10:00:00.5 " + s,
    "ray-driver": lambda s: "(Actor(Inner) pid=4, ip=192.0.2.7) " + s,
    "torch-rank": lambda s: "[rank5]: " + s,
}
ENGINES = [(f, s) for f in FORMATS if not f.wrapper and not f.goes_on for s in f.samples]


@LOOSE
@given(st.lists(st.sampled_from(sorted(WRAPPERS)), max_size=5, unique=True), st.sampled_from(ENGINES))
def test_wrappers_are_peeled_in_order_however_they_are_stacked(names, engine):
    form, line = engine
    alone = peel(line)
    for name in reversed(names):
        line = WRAPPERS[name](line)
    out = peel(line)
    assert out.wrappers == tuple(names)
    assert (out.format, out.message, out.inner_time, out.at) == (form.name, alone.message, alone.inner_time, alone.at)
    for field in ("engine", "process", "pid", "rank", "level"):
        said = getattr(alone, field)
        assert said in ("", None) or getattr(out, field) == said
    if set(names) - {"compose", "pod-prefix", "stern", "mpirun", "srun", "ray-driver", "torch-rank"}:
        assert iso(CAL.read(out.wrapper_time).earliest_ns).startswith("2026-09-01T10:00:00")


def test_five_deep_and_both_clocks():
    out = peel(
        "vllm-1  | 2026-09-01T02:00:00.5Z \x1b[36m(Engine pid=4, ip=192.0.2.7)\x1b[0m \x1b[1;36m(EngineCore pid=77)\x1b[0;0m ERROR 09-01 10:00:00 [core.py:12] x\r\n"
    )
    assert out.wrappers == ("colour", "compose", "kubectl-time", "ray-driver")
    assert (out.wrapper_time, out.inner_time) == (Stamp("iso", "2026-09-01T02:00:00.5Z"), Stamp("month-day", "09-01 10:00:00"))
    assert (out.process, out.pid, out.host, out.level, out.at, out.message) == ("EngineCore", 77, "192.0.2.7", "ERROR", "core.py:12", "x")


def test_colours_in_the_ways_in_which_they_survive():
    for begin, end in (
        ("\x1b[1;36m", "\x1b[0;0m"),
        ("[36m", "[0m"),
        ("#033[36m", "#033[0m"),
        ("^[[36m", "^[[0m"),
        ("\\u001b[36m", "\\u001b[0m"),
    ):
        out = peel(f"{begin}(EngineCore pid=7){end} INFO 09-01 10:00:00 [core.py:1] x {begin}y{end}")
        assert (out.pid, out.wrappers, out.message) == (7, ("colour",), "x y")
    assert peel("INFO 09-01 10:00:00 [core.py:1] waited [5m]").message == "waited [5m]"


def test_lines_copied_out_of_a_terminal_program():
    out = peel('\u2502 {"time":"2026-10-08T13:03:51.794Z","level":"INFO","message":"started"}          \u2502')
    assert (out.wrappers, out.format, out.message) == (("frame",), "json-lines", "started")
    assert peel('\u2502   File "a.py", line 1, in f    \u2502').message == '  File "a.py", line 1, in f'


def test_a_mark_at_the_head_of_the_file():
    assert peel("\ufeffINFO 09-01 10:00:00 [core.py:1] x").message == "x"


def test_of_several_outer_clocks_the_one_that_names_its_zone_counts():
    assert (
        peel("Sep  1 10:00:00 n0 docker[4]: 2026-09-01T08:00:00Z INFO 09-01 10:00:00 [a.py:1] x").wrapper_time.text
        == "2026-09-01T08:00:00Z"
    )


def test_the_pid_of_a_container_runtime_is_nobodys():
    assert peel("Sep  1 10:00:00 n0 dockerd[4]: x").pid is None
    assert peel("Sep  1 10:00:00 n0 vllm[4]: x").pid == 4
    assert peel("Sep  1 10:00:00 n0 kernel: NVRM: Xid").engine == "kernel"


def test_a_line_that_a_progress_bar_began():
    out = peel(
        "Loading shards:  50%|#####     | 1/2 [00:01<00:01]\r(Worker_TP0 pid=7) ERROR 09-01 10:00:00 [m.py:1] WorkerProc hit an exception."
    )
    assert (out.process, out.level, out.message) == ("Worker_TP0", "ERROR", "WorkerProc hit an exception.")


def test_a_prefix_of_the_operators_own_and_its_date():
    out = peel("prod|eu-1|2026-09-01T08:00:00Z|(EngineCore pid=7) INFO 09-01 10:00:00 [m.py:1] x")
    assert (out.process, out.wrapper_time) == ("EngineCore", Stamp("iso", "2026-09-01T08:00:00Z"))


def test_a_quoted_line_is_not_taken_for_one():
    assert peel("prompt: '(EngineCore pid=7) INFO 09-01 10:00:00 [m.py:1] x'").process == ""


def test_two_writers_on_one_line():
    first, second = peel_all("(Worker_TP0 pid=1) INFO 09-01 10:00:00 [a.py:1] hel(Worker_TP1 pid=2) ERROR 09-01 10:00:01 [b.py:2] lo")
    assert (first.message, second.pid, second.message) == ("hel", 2, "lo")


def test_what_stood_on_the_line_before_is_nobodys():
    lead, own = peel_all("Failed: Cuda error 'x'(Worker_TP1 pid=2) ERROR 09-01 10:00:01 [b.py:2] y".replace("'", ""))
    assert (lead.message, lead.pid, own.pid, own.message) == ("Failed: Cuda error x", None, 2, "y")
    (whole,) = peel_all("(EngineCore pid=1) INFO 09-01 10:00:00 [a.py:1] killing (Worker_TP1 pid=2) now, see core.py:12")
    assert whole.message == "killing (Worker_TP1 pid=2) now, see core.py:12"


def test_the_launchers_number_is_a_rank_only_where_it_starts_every_rank():
    vllm = peel(" 0: (Worker_TP1 pid=7) INFO 09-01 10:00:00 [a.py:1] x")
    assert (vllm.rank, vllm.task, vllm.process) == (None, 0, "Worker_TP1")
    hint = Hint()
    assert peel("[1,3]<stderr>:[TensorRT-LLM][ERROR] x", hint).rank == 3
    assert peel("[1,2]<stderr>:terminate called", hint).rank == 2
    assert peel("[1,2]<stderr>:terminate called").rank is None


def test_weak_prefixes_need_something_known_behind_them_or_before():
    hint = Hint()
    assert peel(" 0: banner", hint).message == " 0: banner"
    assert peel(" 0: INFO 09-01 10:00:00 [a.py:1] x", hint).message == "x"
    assert (peel(" 3: banner", hint).message, peel(" 3: banner", hint).task) == ("banner", 3)
    assert peel("GPU | Memory | Power", hint).message == "GPU | Memory | Power"


def test_a_bare_bracket_belongs_to_the_engine_that_the_file_has_shown():
    hint = Hint()
    line = '[2026-11-30 14:06:07] INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK'
    assert peel(line, hint).engine == ""
    peel("[2026-11-30 14:06:06 TP0] Decode batch, #running-req: 1", hint)
    assert peel(line, hint).message == '127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK'


def test_ranks_that_are_not_global_are_not_named():
    assert peel("[2026-11-30 14:06:07 TP3] x").rank == 3
    assert peel("[2026-11-30 14:06:07 DP1 TP3] x").rank is None
    assert peel("[2026-11-30 14:06:07 PP1 TP3] x").rank is None
    assert peel("[default3]:x").rank is None
    assert peel("[E1003 18:37:01.832146912 ProcessGroupNCCL.cpp:607] [PG ID 0 PG GUID 0(default_pg) Rank 1] x").rank == 1
    assert peel("[E1003 18:37:01.832146912 ProcessGroupNCCL.cpp:607] [PG ID 3 PG GUID 17(tp) Rank 1] x").rank is None


HOSTILE = [
    "\0",
    "\x1b[",
    "\x1b[31m",
    "#033[",
    "{",
    '{"log":',
    '{"log":"x","stream":1,"time":[]}',
    "\r",
    "\ufffd",
    "﻿",
    "1" * 40,
    "[" * 40,
    "²",
    "٣",
    " " * 40,
]


@LOOSE
@given(
    st.lists(
        st.one_of(
            st.sampled_from(HOSTILE), st.sampled_from([s for f in FORMATS for s in (*f.samples, *f.negatives)]), st.text(max_size=20)
        ),
        max_size=8,
    )
)
def test_no_text_breaks_it(parts):
    hint = Hint()
    for text in ("".join(parts), *parts):
        for out in (peel(text), peel(text, hint), *peel_all(text, hint)):
            for stamp in (out.wrapper_time, out.inner_time):
                if stamp is not None:
                    assert stamp.zoned in (True, False)
                    CAL.read(stamp, CAL.parse("2026-09-01 10:00:00"), 1)


@LOOSE
@given(st.sampled_from([s for f in FORMATS for s in f.samples]), st.data())
def test_a_line_that_is_cut_or_damaged_anywhere(line, data):
    at = data.draw(st.integers(0, len(line)))
    peel(line[:at])
    peel(line[at:])
    peel(line[:at] + data.draw(st.text(max_size=3)) + line[at + 1 :])


def test_ten_megabytes_of_one_line():
    head = "(EngineCore pid=7) ERROR 09-01 10:00:00 [core.py:1] "
    assert len(peel(head + "x" * 10_000_000).message) == 10_000_000
    assert peel('{"log":"' + "x" * 10_000_000).message.startswith('{"log"')
    peel("[" * 100_000)
    peel("\ufeff" * 1_000_000)
    peel("\u2502" * 1_000_000)
    peel("{" * 100_000)
    peel('{"a":' * 100_000)
