"""Every kind of secret in every kind of quoting disappears, and the words around it stay."""

from __future__ import annotations

import json
import re

import pytest
from bundle_samples import CONTENT, CREDENTIALS, PW

from forensics.bundle import Redactor


def _redact(text: str, kind: str = "log") -> str:
    return Redactor().redact(text.encode(), kind, "x")[0].decode()


@pytest.mark.parametrize(("line", "gone", "stays"), [*CREDENTIALS, *CONTENT])
def test_the_secret_goes_and_the_rest_stays(line: str, gone: list[str], stays: list[str]) -> None:
    out = _redact(line)
    assert "<redacted:" in out
    assert [secret for secret in gone if secret in out] == []
    assert [part for part in stays if part not in out] == []


@pytest.mark.parametrize(("line", "gone", "stays"), [*CREDENTIALS, *CONTENT])
def test_redacting_twice_changes_nothing(line: str, gone: list[str], stays: list[str]) -> None:
    once = _redact(line)
    assert _redact(once) == once


@pytest.mark.parametrize(("line", "gone", "stays"), [*CREDENTIALS, *CONTENT])
@pytest.mark.parametrize("wrap", ["fileset", "http", "cut"])
def test_no_escape_of_json_hides_a_secret(line: str, gone: list[str], stays: list[str], wrap: str) -> None:
    if wrap == "fileset":
        raw = json.dumps({"at_ns": 1, "files": {"/x": f"first\n{line}\nlast"}, "links": {}, "errors": {}})
    elif wrap == "http":
        raw = json.dumps({"url": "http://h/", "status": 200, "body": json.dumps({"detail": line}), "headers": {}})
    else:  # the child died in the middle: no longer JSON, only text with escapes in it
        raw = json.dumps({"files": {"/x": line}})[:-1]
    out = _redact(raw, "fileset")
    assert [secret for secret in gone if secret in out or json.dumps(secret)[1:-1] in out] == []
    if wrap != "cut":
        assert json.loads(out)


def test_private_key_over_several_lines() -> None:
    body = ["MIIEowIBAAKCAQEA" + "x" * 48, "a" * 64, "Zm9v=="]
    pem = "\n".join(["-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----"])
    prefixed = "\n".join(f"(EngineCore pid=1) ERROR 01-02 03:04:05 [x.py:1] {line}" for line in pem.split("\n"))
    for text in (pem, prefixed):
        out = _redact(f"before\n{text}\nafter the key INFO 5")
        assert [line for line in body if line in out] == []
        assert out.startswith("before\n")
        assert out.endswith("\nafter the key INFO 5")
        assert out.count("\n") == text.count("\n") + 2


def test_text_behind_a_key_that_never_ends_survives() -> None:
    ordinary = "INFO 01-02 03:04:05 [core.py:1] Engine 000: Running: 3 reqs, Waiting: 0 reqs"
    out = _redact("-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n" + (ordinary + "\n") * 400)
    assert out.count(ordinary) == 400


def test_a_printed_tensor_and_pretty_json_over_several_lines() -> None:
    tensor = "input_ids=tensor([[ 101, 7592],\n        [2088,  102]], dtype=torch.int64)\nINFO next line 7"
    out = _redact(tensor)
    assert "7592" not in out and "2088" not in out
    assert out.endswith("\nINFO next line 7")
    pretty = '"prompt": [\n    "the first text",\n    "the second text"\n  ],\n  "max_tokens": 5\nINFO go on'
    out = _redact(pretty)
    assert "first text" not in out and "second text" not in out
    assert '"max_tokens": 5\nINFO go on' in out


def test_an_open_bracket_does_not_swallow_the_log() -> None:
    following = "\n".join(f"(Worker pid={i}) INFO 01-02 03:04:05 [x.py:{i}] step {i}" for i in range(50))
    out = _redact("prompt_token_ids=[1, 2, 3,\n" + following)
    assert out.endswith(following)


def test_equal_secrets_get_equal_placeholders_wherever_they_stand() -> None:
    places = [
        f"--api-key {PW} --x",
        f"Authorization: Bearer {PW}",
        f"api_key='{PW}'",
        f"password={PW}",
        f"https://u:{PW}@h/",
        f'{{"client_secret":"{PW}"}}',
        json.dumps({"argv": ["a", "--api-key", PW]}),
        json.dumps({"env": {"MY_PASSWORD": PW}}),
    ]
    marks = {re.search(r"<redacted:secret:\w{8}>", _redact(place, "http"))[0] for place in places}  # type: ignore[index]
    assert len(marks) == 1


def test_a_request_keeps_its_identity_between_front_end_and_engine() -> None:
    out = _redact("Received request cmpl-00aa11bb22cc33dd\nreq_id=cmpl-00aa11bb22cc33dd-0-99887766,\nX-Request-Id: 00aa11bb22cc33dd\n")
    marks = re.findall(r"<redacted:request:\w{8}>", out)
    assert len(marks) == 3 and len(set(marks)) == 1
    assert "-0-99887766," in out


def test_the_same_prompt_in_a_log_and_in_json_is_recognised_as_the_same() -> None:
    prompt = 'It\'s "late"\nin Zürich 😀'
    log = _redact(f"Received request cmpl-1: prompt: {prompt!r}, params: x")
    body = _redact(json.dumps({"prompt": prompt}), "http")
    marks = [re.search(r"<redacted:prompt:\w{8}>", text)[0] for text in (log, body)]  # type: ignore[index]
    assert marks[0] == marks[1]


def test_environment_by_allow_list() -> None:
    block = "VLLM_LOGGING_LEVEL=DEBUG\0CORP_SETTING=blue whale\0HF_TOKEN=abc\0RPC_TIMEOUT=45\0EMPTY=\0PATH=/usr/bin"
    raw = json.dumps({"files": {"/proc/7/environ": block}, "links": {}, "errors": {}})
    out = json.loads(_redact(raw, "fileset"))["files"]["/proc/7/environ"].split("\0")
    assert out[0] == "VLLM_LOGGING_LEVEL=DEBUG"
    assert out[1].startswith("CORP_SETTING=<redacted:env:")
    assert out[2].startswith("HF_TOKEN=<redacted:secret:")
    assert out[3:] == ["RPC_TIMEOUT=45", "EMPTY=", "PATH=/usr/bin"]


@pytest.mark.parametrize("part", ["environ", "entries", "named"])
def test_an_environment_one_level_below_its_name(part: str) -> None:
    """As the live reader writes an attribute `env` that holds a copy of os.environ."""
    raw = json.dumps({"attributes": {"env": {"$type": "dict", "length": 2, part: {"MY_PW": "hunter2hunter2", "VLLM_X": "some value"}}}})
    out = json.loads(_redact(raw, "live-json"))["attributes"]["env"]
    assert out[part]["MY_PW"].startswith("<redacted:env:") and out[part]["VLLM_X"] == "some value" and out["length"] == 2


def test_locals_of_frames_lose_their_strings_and_keep_their_quantities() -> None:
    frames = [
        {
            "frames": [
                {
                    "name": "get_response",
                    "filename": "/a/b.py",
                    "line": 440,
                    "locals": [
                        {"name": "dequeue_timeout", "repr": "299.9998"},
                        {"name": "method", "repr": "'execute_model'"},
                        {"name": "path", "repr": "'/models/llama'"},
                        {"name": "prompt", "repr": "'hello'"},
                        {"name": "data", "repr": "{'body': 'please translate this'}"},
                        {"name": "ids", "repr": "[101, 2023, 3793, 102, 5, 6]"},
                        {"name": "api_key", "repr": "'hunter2'"},
                    ],
                }
            ]
        }
    ]
    out = json.loads(_redact(json.dumps(frames), "pyspy-json"))
    frame = out[0]["frames"][0]
    values = {local["name"]: local["repr"] for local in frame["locals"]}
    assert (frame["name"], frame["filename"], frame["line"]) == ("get_response", "/a/b.py", 440)
    assert values["dequeue_timeout"] == "299.9998"
    assert values["method"] == "'execute_model'"
    assert values["path"] == "'/models/llama'"
    for name in ("prompt", "data", "ids", "api_key"):
        assert "<redacted:" in values[name]
    assert not re.search("hello|translate|2023|hunter2", json.dumps(out))


def test_hostile_documents_fall_back_to_text() -> None:
    for raw in ('{"password": ' + "[" * 100_000, '{"a": 1' + "0" * 5000 + ', "password": "hunter2"}', '{"password": "hunter2", "x": NaN}'):
        out = _redact(raw, "http")
        assert "hunter2" not in out
