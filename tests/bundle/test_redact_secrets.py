"""Every kind of secret in every kind of quoting disappears, and the words around it stay."""

from __future__ import annotations

import json
import re

import pytest

from forensics.bundle import Redactor

HF = "hf_" + "QwErTyUiOpAsDfGhJkLzXcVbNm12345678"
GH = "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
AWS = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
PW = "correct-horse-7"

# (line, what must be gone, what must stay)
CREDENTIALS: list[tuple[str, list[str], list[str]]] = [
    (f"INFO loading with {HF} from the hub", [HF], ["INFO loading with ", " from the hub"]),
    (f"fatal: could not read from https://{GH}@github.com/o/r.git", [GH], ["fatal: could not read from https://", "@github.com/o/r.git"]),
    ("key sk-proj-abcDEF1234567890abcDEF in use", ["sk-proj-abcDEF1234567890abcDEF"], ["key ", " in use"]),
    ("github_pat_11ABCDEFG0abcdefghijklmn_opqrstuvwxyz0123456789", ["github_pat_11ABCDEFG"], []),
    ("AKIAIOSFODNN7EXAMPLE used", ["AKIAIOSFODNN7EXAMPLE"], [" used"]),
    (f"creds AKIAIOSFODNN7EXAMPLE:{AWS} ok", [AWS, "AKIAIOSFODNN7"], ["creds ", " ok"]),
    (f"aws_secret_access_key = {AWS}", [AWS], ["aws_secret_access_key = "]),
    (f'{{"SecretAccessKey": "{AWS}", "Region": "eu"}}', [AWS], ["Region", "eu"]),
    (f"jwt {JWT} end", [JWT, JWT.split(".")[2]], ["jwt ", " end"]),
    (f"Authorization: Bearer {PW}", [PW], ["Authorization: Bearer "]),
    (f"'authorization': 'Bearer {PW}', 'x': 1", [PW], ["'authorization': 'Bearer ", "', 'x': 1"]),
    (f"headers=[(b'authorization', b'Bearer {PW}'), (b'host', b'x')]", [PW], ["(b'host', b'x')"]),
    (f"headers=[(b'x-api-key', b'{PW}'), (b'host', b'x')]", [PW], ["(b'host', b'x')"]),
    ("Authorization: Basic dXNlcjpodW50ZXIy", ["dXNlcjpodW50ZXIy"], ["Authorization: Basic "]),
    (f"curl -H 'Authorization: Bearer {PW}' http://127.0.0.1:8000/v1/models", [PW], ["http://127.0.0.1:8000/v1/models"]),
    (f"got bearer {PW} from client", [PW], ["got bearer ", " from client"]),
    (f"api_key={PW}, port=8000", [PW], ["api_key=", ", port=8000"]),
    (f"api_key='{PW}', port=8000", [PW], ["', port=8000"]),
    (f"non-default args: {{'api_key': ['{PW}', 'second-key-9'], 'port': 8000}}", [PW, "second-key-9"], ["'port': 8000"]),
    (f'{{"apiKey": "{PW}"}}', [PW], ["apiKey"]),
    (f"vllm serve m --api-key {PW} --port 8000", [PW], ["vllm serve m --api-key ", " --port 8000"]),
    (f"vllm serve m --api-key {PW} other-key --port 8000", [PW, "other-key"], [" --port 8000"]),
    (f"vllm serve m --api-key={PW} --port 8000", [PW], [" --port 8000"]),
    (f'cmd ["vllm", "serve", "--api-key", "{PW}", "--port", "8000"]', [PW], ['"--port", "8000"]']),
    (f"cmd ['vllm', '--hf-token', '{PW}', '--port', '8000']", [PW], ["'--port', '8000']"]),
    (f"vllm\0serve\0--api-key\0{PW}\0two words\0--port\x008000", [PW, "two words"], ["--port\x008000"]),
    (f"mysql --password {PW} -h db", [PW], [" -h db"]),
    (f"password = {PW}", [PW], ["password = "]),
    (f'password: "{PW}"', [PW], ["password: "]),
    ("password: hunter", ["hunter"], ["password: "]),
    ("DB_PASSWORD=hunter2", ["hunter2"], ["DB_PASSWORD="]),
    ("export HF_TOKEN=abc def ghi", ["abc", "ghi"], ["export HF_TOKEN="]),
    ("passphrase: correct horse battery staple", ["horse", "staple"], ["passphrase: "]),
    (f'client_secret => "{PW}"', [PW], ["client_secret => "]),
    (f"token='{PW}'", [PW], ["token="]),
    ("token=abc123def456", ["abc123def456"], ["token="]),
    (f"auth=('user', '{PW}')", [PW], ["auth="]),
    (f"\\\"api_key\\\": \\\"{PW}\\\", \\\"port\\\": 1", [PW], ["port"]),
    (f"postgresql://svc:{PW}@db.internal:5432/x", [PW], ["postgresql://svc:", "@db.internal:5432/x"]),
    ("redis://:p%40ss-word9@10.0.0.1/0", ["p%40ss"], ["@10.0.0.1/0"]),
    (
        "GET https://b.s3.amazonaws.com/k?X-Amz-Credential=AKIA1/2026&X-Amz-Signature=deadbeef01&X-Amz-Expires=60 200",
        ["deadbeef01", "AKIA1"],
        ["https://b.s3.amazonaws.com/k?", "X-Amz-Expires=60 200"],
    ),
    ("https://a.blob.core.windows.net/c?sv=2022&sr=b&sig=ab%2Fcd%3D&se=1", ["ab%2Fcd"], ["sv=2022&sr=b&sig=", "&se=1"]),
    ("AccountName=a;AccountKey=Zm9vYmFyYmF6cXV4==;EndpointSuffix=x", ["Zm9vYmFy"], ["AccountName=a;AccountKey=", ";EndpointSuffix=x"]),
    ("xoxb-123456789012-abcdefghijkl posted", ["xoxb-123456789012"], [" posted"]),
    ("AIzaSyA1234567890abcdefghijklmnopqrstu used", ["AIzaSyA123"], [" used"]),
    ("Cookie: session=abc; csrftoken=def", ["abc", "def"], ["Cookie: "]),
    ("X-Api-Key: plainkey", ["plainkey"], ["X-Api-Key: "]),
    ("glpat-abcdefghij0123456789 nvapi-ABCDEFGHIJKLMNOPQRSTUVWXYZ012345", ["glpat-abc", "nvapi-ABC"], []),
    ("nested error: Invalid token\\nhf_QwErTyUiOpAsDfGhJkLzXcVb", ["hf_QwEr"], ["nested error: "]),
    ("-----BEGIN RSA PRIVATE KEY-----\\nMIIEabc123\\n-----END RSA PRIVATE KEY-----", ["MIIEabc123"], ["BEGIN RSA", "END RSA"]),
]

CONTENT: list[tuple[str, list[str], list[str]]] = [
    (
        "(APIServer pid=7) INFO 01-02 03:04:05 [logger.py:39] Received request cmpl-0a1b2c3d4e5f6071-0: prompt: 'the patient said \\'no\\'', "
        "params: SamplingParams(n=1, max_tokens=16), prompt_token_ids: [101, 2023, 3793, 102], lora_request: None.",
        ["patient", "0a1b2c3d4e5f6071", "2023", "3793"],
        ["(APIServer pid=7) INFO 01-02 03:04:05 [logger.py:39] Received request cmpl-", "max_tokens=16", " x4]", "lora_request: None."],
    ),
    ('Request cmpl-x9: details: prompt: "it\'s \\"odd\\" weather", prompt_token_ids: None', ["weather", "odd"], ["prompt_token_ids: None"]),
    (
        "NewRequestData(req_id=cmpl-feedc0de00000001-0-12ab34cd,prompt_token_ids=[1, 2, 3],prompt_token_ids_len=3,num_computed_tokens=7,"
        "block_ids=([2, 3],))",
        ["feedc0de00000001", "1, 2, 3"],
        ["prompt_token_ids_len=3", "num_computed_tokens=7", "block_ids=([2, 3],)", "-0-12ab34cd", " x3]"],
    ),
    (
        "SchedulerOutput(num_scheduled_tokens={chatcmpl-user-mail@corp: 5}, finished_req_ids={'chatcmpl-user-mail@corp'}, total=5)",
        ["mail@corp"],
        ["num_scheduled_tokens={chatcmpl-", ": 5}", "total=5)"],
    ),
    ("request_id='trace of Bob', rid='9f8e7d6c5b4a', n=3", ["Bob", "9f8e7d6c5b4a"], ["n=3"]),
    ("X-Request-Id: customer-77-abc", ["customer-77"], ["X-Request-Id: "]),
    ("[(b'x-request-id', b'customer-77-abc'), (b'host', b'h')]", ["customer-77"], ["(b'host', b'h')"]),
    ("Added request 3f2504e0-4f89-11d3-9a0c-0305e82c3301.", ["3f2504e0-4f89"], ["Added request "]),
    ('body: {"model": "m", "messages": [{"role": "user", "content": "my diagnosis"}], "n": 2}', ["diagnosis"], ['"model": "m"', '"n": 2']),
    ('{"model":"m","prompt":["first secret text","second one"],"max_tokens":5}', ["first secret", "second one"], ["max_tokens", "5"]),
    ('{"input":[[1,2,3],[4,5]],"model":"m"}', ["[1,2,3]"], ["x5", "model"]),
    ("GenerateReqInput(rid='0123456789abcdef', text='tell me all', input_ids=[9, 8, 7], image_data=None)", ["tell me", "9, 8", "0123456789abcdef"], ["image_data=None"]),
    ("out={'text': 'a long answer', 'output_ids': [5, 6], 'meta_info': {'finish_reason': 'stop'}}", ["long answer", "5, 6"], ["'finish_reason': 'stop'"]),
    ("StructuredOutputsParams(json={'type': 'object', 'properties': {'iban': {}}}, regex=None)", ["iban"], ["regex=None"]),
    ("guided_json='{\"title\": \"Claim\"}', n=1", ["Claim"], ["n=1"]),
    ("guided_regex='[A-Z]{3}-secret', n=1", ["[A-Z]{3}"], ["n=1"]),
    ("failed to compile grammar: root ::= \"salary\" digits", ["salary"], ["failed to compile grammar: "]),
    ("structured_outputs=StructuredOutputsParams(choice=['merger', 'buyout']), n=1", ["merger"], ["n=1"]),
    (
        "1 validation error: messages.0 [type=string_type, input_value={'role': 'user', 'content':...ecret plan'}, input_type=dict]",
        ["ecret plan"],
        ["input_type=dict]"],
    ),
    ("received prompt: tell me about the layoffs", ["layoffs"], ["received prompt: "]),
    ('{"log":"(EngineCore pid=9) ERROR x: prompt: \'it\\\\\'s our plan\', n=1\\n","stream":"stdout"}', ["our plan"], ["(EngineCore pid=9) ERROR", "stdout"]),
]


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
