"""Redaction of chunks, keys of placeholders, and time that grows no faster than the text."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from bundle_samples import CONTENT, CREDENTIALS, ENGINE_LOG, HF
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.bundle import NullRedactor, Redactor, redact

PEM = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n" * 3 + "-----END PRIVATE KEY-----"
LINES = [*(line for line, _, _ in [*CREDENTIALS, *CONTENT]), *ENGINE_LOG, PEM, "", "\r", "prompt: [\n 'a b',\n 'c d'\n]"]


def _stream(chunks: list[bytes], kind: str = "log") -> tuple[bytes, dict[str, int]]:
    stream = Redactor().stream(kind, "x")
    out = b"".join([stream.feed(chunk) for chunk in chunks])
    return out + stream.finish(), stream.counts


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=12), st.lists(st.integers(0, 3000), max_size=8), st.booleans())
def test_chunks_cut_anywhere_give_what_the_whole_gives(lines: list[str], cuts: list[int], newline: bool) -> None:
    whole = "\n".join(lines).encode() + (b"\n" if newline else b"")
    edges = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    chunks = [whole[a:b] for a, b in pairwise(edges)] or [whole]
    for kind in ("log", "fileset"):
        assert _stream(chunks, kind) == Redactor().redact(whole, kind, "x")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_redacted_without_an_error_and_line_by_line(raw: bytes) -> None:
    out, _ = Redactor().redact(raw, "log", "x")
    assert out.count(b"\n") == raw.count(b"\n")
    assert _stream([raw[i : i + 1] for i in range(len(raw))])[0] == out


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet="\"'\\{}[](),:= \nabk", max_size=60), st.sampled_from(["prompt", "api_key", "messages", "prompt_token_ids", "text"])
)
def test_no_quoting_confuses_the_scanner(noise: str, name: str) -> None:
    out, _ = Redactor().redact(f"{noise} {name}='zqzq-secret-1 zqzq' tail".encode(), "log", "x")
    line = out.decode().rsplit("\n", 1)[-1]
    assert "zqzq-secret-1" not in line or name == "prompt_token_ids"


def test_a_line_of_ten_megabytes() -> None:
    prompt = "lorem 'ipsum' \\ " * 650_000
    line = f"Received request cmpl-ab12: prompt: {prompt!r}, params: SamplingParams(n=1), prompt_token_ids: [{'1, ' * 9}1], api_key={HF}".encode()
    out, counts = _stream([line[i : i + 65536] for i in range(0, len(line), 65536)])
    assert len(line) > 10_000_000
    assert len(out) < 400
    assert b"lorem" not in out and HF.encode() not in out
    assert b"params: SamplingParams(n=1)" in out and b" x10]" in out
    assert counts == {"prompt": 1, "token-ids": 1, "secret": 1, "request": 1}


def test_beyond_the_longest_line_nothing_is_written_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "LINE_LIMIT_BYTES", 1000)
    stream = Redactor().stream("log", "x")
    out = b"".join(
        [
            stream.feed(b"before\n"),
            stream.feed(b"a" * 900),
            stream.feed(b" password=hun"),
            stream.feed(b"x" * 500),
            stream.feed(b"ter2\nafter\n"),
        ]
    )
    out += stream.finish()
    assert stream.truncated
    assert out.startswith(b"before\n" + b"a" * 900)
    assert out.endswith(b" bytes of an overlong line>\nafter\n")
    assert b"ter2" not in out


def test_a_document_too_large_to_parse_is_redacted_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "DOCUMENT_LIMIT_BYTES", 200)
    raw = b'{"files": {"/a": "' + b"x" * 300 + b'", "/b": "api_key=hunter2-long\\nnext"}}'
    out, counts = _stream([raw[i : i + 50] for i in range(0, len(raw), 50)], "fileset")
    assert b"hunter2" not in out and counts == {"secret": 1}


def _mark(redactor: Redactor, secret: str, kind: str = "secret") -> str:
    return redactor.placeholder(kind, secret.encode()).decode()


def test_placeholders_agree_between_nodes_and_not_between_incidents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(redact.KEY_VARIABLE, raising=False)
    assert re.fullmatch(r"<redacted:secret:[0-9a-f]{8}>", _mark(Redactor(), HF))
    assert _mark(Redactor.from_environment(), HF) == _mark(Redactor(), HF)
    assert _mark(Redactor.from_environment("INC-1"), HF) == _mark(Redactor(incident="INC-1"), HF)
    assert len({_mark(Redactor(), HF), _mark(Redactor(incident="INC-1"), HF), _mark(Redactor(incident="INC-2"), HF)}) == 3
    monkeypatch.setenv(redact.KEY_VARIABLE, "a private text")
    assert _mark(Redactor.from_environment("INC-1"), HF) == _mark(Redactor(key=b"a private text"), HF)


def test_what_could_be_guessed_gives_away_eight_bits_at_most() -> None:
    """A dictionary cannot tell which of many candidates it was: they share 256 placeholders. Long random ones keep all 32 bits."""
    words = [f"password{i}" for i in range(2000)]
    assert len({_mark(Redactor(), word) for word in words}) <= 256
    assert len({_mark(Redactor(incident="INC-1"), word) for word in words}) <= 256
    assert len({_mark(Redactor(), f"question number {i}?", "prompt") for i in range(20_000)}) <= 4096
    assert len({_mark(Redactor(), HF + str(i)) for i in range(2000)}) == 2000
    assert len({_mark(Redactor(key=b"private"), word) for word in words}) == 2000


def test_the_null_redactor_changes_nothing() -> None:
    raw = HF.encode()
    stream = NullRedactor().stream("log", "x")
    assert stream.feed(raw) + stream.finish() == raw
    assert NullRedactor().redact(raw, "log", "x") == (raw, {}) and NullRedactor().text(HF) == HF


UNITS = [
    b"token=", b'"query": {', b"--api-key x ", b"--api-key ", b"prompt: '", b"prompt=[", b"\\", b'"', b"'\\", b'{"a":', b"password=\\\\",
    b"req_id=(", b"request 1a2b3c4d ", b"x", b"://a@", b"HF_TOKEN=a ", b"eyJaaaaaaaa.", b"cmpl-", b"input_value=", b"a::=",
    b"-----BEGIN PRIVATE KEY-----", b"prompt_token_ids=[1, ", b"text='", b"bearer ", b"?key=", b"'it\\\\'s ", b"--", b"AKIAAAAAAAAAAAAA:",
    b"password=(((", b"\x00--api-key\x00",
]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_time_grows_no_faster_than_the_line(unit: bytes) -> None:
    def seconds(size: int) -> float:
        data = b"prompt=[" * (size % 2) + unit * (size // len(unit))
        began = time.process_time()
        Redactor().redact(data, "log", "x")
        return time.process_time() - began

    seconds(1000)
    small, large = min(seconds(20_000), seconds(20_000)), seconds(160_000)
    # eight times the text; a quadratic one would take 64 times as long
    assert large < 30 * max(small, 0.002)
