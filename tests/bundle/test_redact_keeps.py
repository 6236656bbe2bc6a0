"""What a diagnosis needs survives byte for byte; a redactor that destroys the evidence is no redactor."""

from __future__ import annotations

import json

import pytest
from bundle_samples import ENGINE_LOG, KERNEL_AND_PROC

from forensics.bundle import Redactor


@pytest.mark.parametrize("line", [*ENGINE_LOG, *KERNEL_AND_PROC])
def test_an_ordinary_line_is_untouched(line: str) -> None:
    out, counts = Redactor().redact(line.encode(), "log", "x")
    # source lines of a traceback are recognised by the line above them, so they are tested with it below
    if "func(*args" in line:
        return
    assert (out.decode(), counts) == (line, {})


def test_a_whole_log_is_untouched() -> None:
    text = "\r\n".join([*ENGINE_LOG, *KERNEL_AND_PROC]) + "\n"
    out, counts = Redactor().redact(text.encode(), "log", "x")
    assert (out.decode(), counts) == (text, {})


def test_stacks_and_filesets_without_secrets_are_untouched() -> None:
    frame = {"name": "Worker.execute_model", "filename": "/v/vllm/v1/worker.py", "module": None, "short_filename": "worker.py", "line": 12}
    thread = {"pid": 4243, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 4243, "active": True, "owns_gil": False}
    stacks = json.dumps([{**thread, "frames": [{**frame, "locals": None, "is_entry": True}]}], indent=2)
    files = {"at_ns": 5, "files": {"/proc/4243/status": "\n".join(KERNEL_AND_PROC), "/proc/4243/cmdline": "VLLM::Worker_TP1\0   \0"}}
    table = [{"pid": 4243, "argv": ["python", "-m", "x", "--max-num-batched-tokens", "8192", "--tokenizer", "/m"], "env": {"VLLM_X": "1"}}]
    for kind, raw in (("pyspy-json", stacks), ("fileset", json.dumps(files)), ("process-table", json.dumps(table))):
        out, counts = Redactor().redact(raw.encode(), kind, "x")
        assert (out.decode(), counts) == (raw, {})


def test_bytes_that_are_not_text_are_untouched() -> None:
    raw = bytes(range(256)) * 64
    assert Redactor().redact(raw, "log", "x") == (raw, {})
    assert Redactor().redact(b"", "log", "x") == (b"", {})


def test_only_ids_prompts_and_token_ids_change_in_a_dump() -> None:
    line = (
        "(EngineCore pid=1) ERROR 11-30 14:19:13 [dump_input.py:79] Dumping scheduler output for model execution: SchedulerOutput("
        "scheduled_new_reqs=[], scheduled_cached_reqs=CachedRequestData(req_ids=['cmpl-00000000000000aa-0-11111111'],resumed_req_ids=set(),"
        "num_computed_tokens=[1791],num_output_tokens=[1784]), num_scheduled_tokens={cmpl-00000000000000aa-0-11111111: 1}, "
        "total_num_scheduled_tokens=1, finished_req_ids=[], has_structured_output_requests=false)"
    )
    out, counts = Redactor().redact(line.encode(), "log", "x")
    mark = Redactor().placeholder("request", b"00000000000000aa").decode()
    assert out.decode() == line.replace("00000000000000aa", mark)
    assert counts == {"request": 2}
