from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forensics.analysis.tracebacks import read_traceback

LOOSE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A machine may be busy."""

PLAIN = [
    "Traceback (most recent call last):",
    '  File "/opt/site-packages/acme/io.py", line 3, in push',
    "    q.put_nowait(x)",
    "    ~~~~~~~~~~~~^^^",
    '  File "/usr/lib/python3.12/queue.py", line 136, in put',
    "    raise Full",
    "queue.Full",
]

PREFIXES = {
    "vllm": "(Worker_TP0 pid=7) ERROR 09-01 09:00:00 [m.py:1] ",
    "vllm old": "ERROR 09-01 09:00:00 engine.py:135] ",
    "vllm print": "(EngineCore_DP0 pid=7) ",
    "path": "(EngineCore pid=7) ERROR 09-01 09:00:00 [v1/engine/core.py:12] ",
    "ray": "(RayWorkerWrapper pid=7, ip=192.0.2.4) ",
    "ray around vllm": "(Actor(x) pid=3, ip=192.0.2.4) (EngineCore pid=7) ERROR 03-08 17:31:28 [core.py:1138] ",
    "torch": "[rank3]: ",
    "torchrun": "[default0]:[rank3]: ",
    "trtllm": "[1,3]<stderr>:[05/12/2026-14:10:00] [TRT-LLM] [RANK 3] [E] ",
    "cri": "2026-09-01T10:00:00.123456789Z stderr F ",
    "pod": "[pod/vllm-0/engine] 2026-09-01T10:00:00.1Z (EngineCore pid=7) ERROR 09-01 10:00:00 [core.py:1] ",
    "colour": "\x1b[36m(EngineCore pid=7)\x1b[0;0m \x1b[31mERROR\x1b[0m 09-01 10:00:00 [core.py:1] ",
    "syslog": "Sep  1 10:00:00 node0 vllm[7]: ",
    "sglang": "[2026-11-30 14:06:07 TP3] ",
    "nothing": "",
}
OTHERS = [
    "(Worker_TP1 pid=8) ERROR 09-01 09:00:00 [m.py:1] ValueError: somebody else's",
    '(APIServer pid=1) INFO:     192.0.2.1:1 - "GET /health HTTP/1.1" 200 OK',
    "n0:311:405 [0] NCCL INFO proxy.cc:1336 -> 2",
]


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("between", [0, 1], ids=["alone", "interleaved"])
def test_a_traceback_is_read_behind_every_engines_prefix(prefix, between):
    lines = [prefix + "step failed"] + [prefix + line for line in PLAIN]
    if between:
        lines = [part for line in lines for part in (line, *OTHERS)]
    trace = read_traceback("\r\n".join(lines), None)
    assert (trace.exc_type, trace.at, trace.code) == ("queue.Full", "push (io.py:3)", "q.put_nowait(x)")
    assert trace.chain == ("queue.Full",)


def test_a_logger_that_puts_its_prefix_before_the_first_line_only():
    text = "\n".join(["[2026-11-30 14:06:07 TP0] Scheduler hit an exception: " + PLAIN[0], *PLAIN[1:4], OTHERS[1], *PLAIN[4:]])
    assert read_traceback(text, None).at == "push (io.py:3)"


def test_blanks_that_a_terminal_left_behind_the_lines():
    text = "\n".join((PREFIXES["vllm"] + line).ljust(200) for line in PLAIN)
    assert read_traceback(text, 7).exc_type == "queue.Full"


def test_of_a_container_the_lines_of_the_other_stream_are_not_its():
    err, out = "2026-09-01T10:00:00.1Z stderr F ", "2026-09-01T10:00:00.1Z stdout F "
    text = "\n".join(part for line in PLAIN for part in (err + line, out + "ValueError: printed by somebody else"))
    assert read_traceback(text, None).chain == ("queue.Full",)


def test_a_record_of_json_holds_the_whole_traceback():
    record = {
        "asctime": "2026-09-01 10:00:00,1",
        "levelname": "ERROR",
        "name": "vllm.core",
        "process": 7,
        "message": "x",
        "exc_info": "\n".join(PLAIN),
    }
    assert read_traceback(json.dumps(record) + "\n" + OTHERS[0], 7).exc_type == "queue.Full"


def test_a_chain_whose_first_exception_has_several_lines_and_notes():
    text = "\n".join(
        [
            *PLAIN[:3],
            "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
            "CUDA kernel errors might be asynchronously reported at some other API call.",
            "step 12",
            "",
            "The above exception was the direct cause of the following exception:",
            "",
            *PLAIN[:3],
            "RuntimeError: later",
        ]
    )
    trace = read_traceback(text, None)
    assert trace.chain == ("torch.AcceleratorError", "RuntimeError")
    assert trace.notes[-1] == "step 12"


def test_of_a_group_the_first_member_counts():
    text = "\n".join(
        [
            "  + Exception Group Traceback (most recent call last):",
            '  |   File "x.py", line 1, in main',
            '  |     raise ExceptionGroup("eg", excs)',
            "  | ExceptionGroup: eg (2 sub-exceptions)",
            "  +-+---------------- 1 ----------------",
            "    | Traceback (most recent call last):",
            '    |   File "y.py", line 2, in task',
            "    |     1 / 0",
            "    | ZeroDivisionError: division by zero",
            "    +---------------- 2 ----------------",
            "    | TypeError: two",
            "    +------------------------------------",
        ]
    )
    trace = read_traceback(text, None)
    assert (trace.exc_type, trace.at, trace.code) == ("ZeroDivisionError", "task (y.py:2)", "1 / 0")
    assert trace.chain == ("ZeroDivisionError", "TypeError", "ExceptionGroup")


def test_what_ray_carried_over_is_named_by_what_it_carried():
    text = "\n".join(
        [
            *PLAIN[:3],
            "ray.exceptions.RayTaskError(ValueError): ray::Engine.step() (pid=1, ip=192.0.2.1)",
            '  File "/opt/site-packages/acme/step.py", line 9, in step',
            "    raise bad",
            "ValueError: bad",
        ]
    )
    assert (read_traceback(text, None).exc_type, read_traceback(text, None).at) == ("ValueError", "step (step.py:9)")


def test_the_same_traceback_many_times_is_one_with_a_count():
    assert read_traceback("\n".join(PLAIN * 5), None).count == 5
    other = [*PLAIN[:-1], "KeyError: 1"]
    once = read_traceback("\n".join(PLAIN + other), None)
    assert (once.exc_type, once.count, once.chain) == ("queue.Full", 1, ("queue.Full",))


def test_what_is_cut_before_its_exception_is_none_and_what_is_cut_behind_it_says_so():
    assert read_traceback("\n".join(PLAIN[:-1]), None) is None
    text = "\n".join([*PLAIN, "", "The above exception was the direct cause of the following exception:", "", *PLAIN[:3]])
    trace = read_traceback(text, None)
    assert trace.exc_type == "queue.Full"
    assert trace.cut


def test_lines_of_native_code_between_the_frames_are_no_exception():
    text = "\n".join([*PLAIN[:3], "Failed: Cuda error /w/all_reduce.cuh:455 'an illegal memory access'", *PLAIN[4:]])
    assert read_traceback(text, None).exc_type == "queue.Full"


@LOOSE
@given(
    st.lists(
        st.sampled_from(
            [*PLAIN, *PREFIXES.values(), *OTHERS, "\r", "  | ", "  +-+---- 1 ----", "ExceptionGroup: x", "x: y", "{}", '{"a":']
        ),
        max_size=40,
    ),
    st.sampled_from(["\n", ""]),
)
def test_no_pieces_break_it(parts, glue):
    for pid in (None, 7):
        read_traceback(glue.join(parts), pid)


@LOOSE
@given(st.text(max_size=500))
def test_no_text_breaks_it(text):
    read_traceback(PLAIN[0] + "\n" + text, None)
    read_traceback(text + "\n" + PLAIN[1] + "\n" + text, 3)
