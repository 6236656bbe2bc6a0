"""Secrets planted in every kind of evidence, in every record: none in any output, wherever one looks."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from bundle_samples import CONTENT, CREDENTIALS, HF, PW

from forensics.bundle import BundleWriter, open_source
from forensics.model import Attempt, Outcome

ALL = [*CREDENTIALS, *CONTENT]
LINES = [line for line, _, _ in ALL]
# short fragments ("abc", "def") occur in any compressed file and in words of the manifest by chance
GONE = [*sorted({secret for _, gone, _ in ALL for secret in gone if len(secret) >= 7}), HF, PW]
TEXT = "\n".join(LINES)


def _evidence() -> dict[str, str]:
    process = {
        "pid": 7,
        "argv": ["vllm", "serve", "--api-key", PW, HF, "--port", "8"],
        "title": f"vllm --api-key {PW}",
        "env": {"HF_TOKEN": HF},
    }
    frame = {"name": "f", "filename": "x.py", "line": 1, "locals": [{"name": "api_key", "repr": f"'{PW}'"}, {"name": "x", "repr": TEXT}]}
    fileset = {
        "at_ns": 1,
        "files": {"/proc/7/environ": f"A=b\0DB_PASSWORD={PW}\0", "/proc/7/cmdline": f"vllm\0--api-key\0{PW}\0", "/x": TEXT},
        "links": {"/proc/7/fd/1": f"/logs/{HF}.log"},
        "errors": {},
        "truncated": [],
    }
    http = {
        "url": f"http://u:{PW}@127.0.0.1/health?key={PW}",
        "status": 500,
        "body": json.dumps({"detail": TEXT}),
        "headers": {"set-cookie": PW},
    }
    return {
        "process-table": json.dumps([process]),
        "pyspy-json": json.dumps([{"pid": 7, "thread_id": 1, "frames": [frame]}], indent=2),
        "fileset": json.dumps(fileset),
        "prometheus": f'# HELP a b\na{{key="{HF}"}} 1.0\n{TEXT}\n',
        "http": json.dumps(http),
        "log": TEXT + "\n" + "\n".join(json.dumps({"log": line, "stream": "stdout"}) for line in LINES),
        "kernel-log": TEXT,
        "patches-toml": f'[[patch]]\nname = "x"\ncontains = "{HF}"\n' + TEXT,
        "patch-live": json.dumps({"code": [{"module": "m", "function": TEXT}], "constants": [{"patch": "x", "token": HF}]}),
        "patch-witness": json.dumps([{"patch": "x", "reading": TEXT, "token": HF}]),
        "nvml": json.dumps({"gpus": [], "note": TEXT}),
        "clock": json.dumps({"files": {"/etc/chrony.conf": TEXT}}),
        "a-kind-of-the-future": TEXT,
    }


@pytest.fixture(scope="module", params=["whole", "chunks"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    head = {"node": "n", "reason": f"watchdog saw token={HF}", "trigger": f"x --api-key {PW}"}
    with BundleWriter(tmp_path_factory.mktemp("planted"), "b", head=head) as writer:
        for kind, text in _evidence().items():
            source = f"http://u:{PW}@h/{HF}"
            if request.param == "whole":
                writer.add(f"c/{kind}-{HF}.txt", kind, text, collector="c", source=source)
            else:
                with writer.stream(f"c/{kind}-{HF}.txt", kind, collector="c", source=source) as stream:
                    for start in range(0, len(text), 97):
                        stream.write(text.encode()[start : start + 97] if text.isascii() else b"")
                    if not text.isascii():
                        stream.write(text.encode())
        writer.attempt(Attempt(collector="c", target=f"https://x:{PW}@h/", outcome=Outcome.FAILED, reason=TEXT, cure=f"--api-key {PW}"))
        writer.seal(engines=[{"argv": ["--api-key", PW], "note": TEXT}])
        return writer.path, writer.pack(keep=True)


def test_no_secret_in_any_file_of_the_directory(bundle: tuple[Path, Path]) -> None:
    folder, _ = bundle
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == len(_evidence()) + 3
    found = {}
    for path in files:
        raw = path.read_bytes()
        forms = raw + str(path.relative_to(folder)).encode()
        if hits := [secret for secret in GONE if secret.encode() in forms or json.dumps(secret)[1:-1].encode() in forms]:
            found[path.name] = hits
    assert found == {}


def test_no_secret_in_the_archive(bundle: tuple[Path, Path]) -> None:
    _, archive = bundle
    raw = gzip.decompress(archive.read_bytes())  # headers, names and comments included
    assert [secret for secret in GONE if secret.encode() in raw or json.dumps(secret)[1:-1].encode() in raw] == []


def test_every_kind_was_redacted_and_counted(bundle: tuple[Path, Path]) -> None:
    with open_source(bundle[1]) as source:
        assert source.manifest
        counts = source.manifest.redactions
        assert min(counts[kind] for kind in ("secret", "prompt", "token-ids", "schema", "request", "env")) > 0
        for item in source.items():
            assert item.evidence and item.evidence.redactions > 0
            if item.evidence.kind in ("process-table", "pyspy-json", "fileset", "http", "nvml", "clock", "patch-witness", "patch-live"):
                json.loads(item.read())
            placeholder = re.search(rb"<redacted:secret:\w{8}>", item.read())
            assert placeholder


def test_one_secret_has_one_placeholder_in_all_files(bundle: tuple[Path, Path]) -> None:
    with open_source(bundle[1]) as source:
        by_option = {}
        for item in source.items():
            text = item.read().decode()
            if match := re.search(r"--(?:hf-token|api-key)\W{1,12}(?:u0000)?(<redacted:secret:\w{8}>)", text):
                by_option[item.name] = match[1]
    assert len(by_option) >= 8
    assert len(set(by_option.values())) == 1


def test_sha256sum_and_tar_accept(bundle: tuple[Path, Path], tmp_path: Path) -> None:
    folder, archive = bundle
    check = subprocess.run(["sha256sum", "--strict", "-c", "manifest-sha256.txt"], cwd=folder, capture_output=True, text=True, check=False)
    assert (check.returncode, check.stderr) == (0, "")
    listed = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {"manifest-sha256.txt"}
    assert {line.removesuffix(": OK") for line in check.stdout.splitlines()} == listed
    listing = subprocess.run(["tar", "tzf", str(archive)], capture_output=True, text=True, check=False)
    assert (listing.returncode, listing.stderr) == (0, "")
    assert {f"b/{name}" for name in [*listed, "manifest-sha256.txt"]} == set(listing.stdout.split())
    unpacked = subprocess.run(["tar", "xzf", str(archive), "-C", str(tmp_path)], capture_output=True, text=True, check=False)
    assert (unpacked.returncode, unpacked.stderr) == (0, "")
    for name in listed:
        assert (tmp_path / "b" / name).read_bytes() == (folder / name).read_bytes()
    with tarfile.open(archive) as tar:  # and so does Python
        assert len(tar.getmembers()) == len(listed) + 1


def test_the_package_is_cheap_to_import() -> None:
    code = "import sys, forensics.bundle; print([m for m in sys.modules if m.startswith('forensics.') or m in ('msgspec', 'tarfile')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['forensics.bundle']"
