"""What users write stands in request logs, and is no observation: people ask models about their crashed engines."""

from __future__ import annotations

import json

import pytest

from forensics.analysis.logs import peel
from forensics.analysis.logs.spoken import without_spoken
from forensics.analysis.signatures import shipped

FRONT = "(APIServer pid=100) INFO 04-02 09:12:11 [logger.py:39] "
FORMS = (
    FRONT + "Received request cmpl-1: prompt: {!r}, params: SamplingParams(n=1), prompt_token_ids: [1, 2], lora_request: None.",
    FRONT + "Request cmpl-1 details: prompt: {!r}, prompt_token_ids: [1], prompt_embeds shape: None.",
    FRONT + "Generated response cmpl-1: output: {!r}, output_token_ids: [1], finish_reason: stop",
    "INFO 10-31 03:10:00 logger.py:36] Received request cmpl-1: prompt: {!r}, params: SamplingParams(n=1)",
    "[2026-04-02 09:12:11 TP0] Receive: obj=GenerateReqInput(rid='a', text={!r}, input_ids=None)",
    FRONT + "Request cmpl-1 JSON body: {{'messages': [{{'role': 'user', 'content': {!r}}}]}}",
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("quote", ["", "it's said: ", 'he said "it\'s": '])
def test_no_signature_hears_what_a_user_quotes(form, quote):
    claims = []
    for signature in shipped():
        for example in signature.examples[:2]:
            message = peel(form.format(f"{quote}why does it say\n{example}\nplease help")).message
            claims += [s.id for s in shipped() if s.literal and s.literal in message and s.regex.search(message)]
        if len(claims) > 3:
            break
    assert not claims


def test_a_json_body_in_a_line():
    body = json.dumps({"messages": [{"role": "user", "content": 'say "EngineCore encountered a fatal error." again'}], "n": 1})
    message = peel(f"{FRONT}body: {body}").message
    assert "fatal" not in message and '"n": 1' in message


@pytest.mark.parametrize(
    "line",
    [
        "EngineCore encountered a fatal error.",
        "RuntimeError: Worker failed with error 'CUDA error', please check the stack trace above for the root cause",
        "non-default args: {'model_tag': '/models/m', 'tensor_parallel_size': 2}",
        "Traceback (most recent call last):",
        "{\"content\": \"EngineCore encountered a fatal error.\"",
        "TimeoutError: RPC call to execute_model timed out.",
    ],
)  # fmt: skip
def test_an_engines_own_words_stay(line):
    assert without_spoken(line) == line


def test_a_quote_that_the_lines_end_cuts_off_ends_there():
    assert without_spoken("Received request a: prompt: 'so it says EngineCore encountered a fatal") == "Received request a: prompt: ''"


def test_long_hostile_texts_take_no_time():
    for text in ("prompt: '" + "\\" * 60_001, "prompt: '" * 8_000, 'text="' + "a'b\"" * 15_000, "text=[" * 10_000):
        without_spoken(text)
