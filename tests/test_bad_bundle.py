"""Hostile and damaged input to `analyze`, `verify` and `show`, through the command's own entry: cut, bombed, poisoned, mislabelled.

Most of it runs in this process (hundreds of runs, and an exception that escapes is a failure by itself); what could eat the machine
runs in a child whose memory is bounded.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from forensics.bundle import BundleWriter, NullRedactor
from forensics.capture.session import ORDER
from forensics.cli import main
from forensics.model import Attempt, Origin, Outcome, ProcessInfo
from tests.analysis.scene import IN_STEP, T0, Scene

MEMORY_BYTES = 1 << 30
EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp\r\b\x7f\u2066"
COMMANDS = ("analyze", "verify", "show")


class Done:
    """How a run of the command ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        assert "Traceback" not in err, err

    @property
    def report(self) -> dict[str, Any]:
        return json.loads(self.out)  # type: ignore[no-any-return]

    @property
    def both(self) -> str:
        return self.out + self.err


def forensics(*arguments: object) -> Done:
    """Run the command line in this process. Whatever escapes from it fails the test."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    before, handler, limits = sys.argv, signal.getsignal(signal.SIGTERM), resource.getrlimit(resource.RLIMIT_AS)
    sys.argv = ["forensics", *map(str, arguments)]
    code: Any = 0
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY_BYTES, limits[1]))  # what runs away fails here, and not the machine
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = end.code
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        sys.argv = before
        signal.signal(signal.SIGTERM, handler)
    told = []
    for stream in (out, err):
        stream.flush()
        told.append(stream.buffer.getvalue().decode("utf-8"))  # type: ignore[attr-defined]
    return Done(code or 0, *told)


def in_a_child(*arguments: object, prefix: tuple[str, ...] = (), **more: Any) -> Done:
    """Run it in a child with bounded memory."""

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    command = [*prefix, sys.executable, "-m", "forensics", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, timeout=100, check=False, preexec_fn=bound, **more)
    return Done(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole bundle with a rank that hangs: sealed, packed as capture packs it."""
    scene = Scene(tmp_path_factory.mktemp("whole"))
    scene.hang(1, IN_STEP)
    scene.log(-1, "EngineCore", 5200, "ERROR", "RPC call to execute_model timed out.")
    scene.bundle()
    return scene.writer.pack(ORDER, keep=True)


def test_a_whole_bundle_is_whole(packed: Path) -> None:
    for path in (packed, packed.with_name(packed.name.removesuffix(".tar.gz"))):
        assert forensics("verify", path).code == 0
        assert forensics("show", path).code == 0
        assert forensics("analyze", path, "--format", "json").report["root"]["rank"] == 1


# cut, damaged


def look_at(path: Path) -> tuple[Done, Done, Done]:
    """All three commands on one path: each ends as documented and says so in words."""
    done = forensics("analyze", path, "--format", "json"), forensics("verify", path), forensics("show", path)
    for name, one in zip(COMMANDS, done, strict=True):
        assert one.code in (0, 3, 4), f"{name}: {one.code} {one.err}"
        assert one.code == 0 or one.both.strip(), name
    return done


def cut_to(path: Path, where: Path, size: int) -> Path:
    target = where / path.name
    target.write_bytes(path.read_bytes()[:size])
    return target


def test_cut_at_every_percent(packed: Path, tmp_path: Path) -> None:
    size = packed.stat().st_size
    kept = 0
    for percent in range(0, 100, 4):
        cut = cut_to(packed, tmp_path, size * percent // 100)
        report, verified, shown = look_at(cut)
        assert verified.code != 0 and shown.code != 0, f"{percent} %: a cut bundle is not whole"
        assert "cut" in shown.both or "empty" in shown.both or "not a bundle" in verified.err, f"{percent} %: {shown.both}"
        if report.code != 4:
            assert report.code == 3 and any("cut" in line for line in report.report["unread"]), f"{percent} %"
        evidence = [line for line in shown.out.splitlines() if line.startswith("evidence ")]
        now = int(evidence[0].split()[1]) if evidence else 0
        assert now >= kept, f"{percent} %: less is read of more"
        kept = now
    assert kept > 20


def content(raw: bytes) -> bytes | None:
    """What an archive says, None where it says nothing whole. The time in a member's gzip header is no part of it."""
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error):
        return None


def test_a_bit_of_a_gzip_header_s_time_changes_nothing(packed: Path, tmp_path: Path) -> None:
    raw = bytearray(packed.read_bytes())
    raw[7] ^= 0x80
    target = tmp_path / packed.name
    target.write_bytes(raw)
    _, verified, _ = look_at(target)
    assert verified.code == 0


@settings(
    max_examples=12, deadline=None, phases=(Phase.explicit, Phase.generate), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_cut_or_damaged_anywhere(packed: Path, tmp_path: Path, data: st.DataObject) -> None:
    raw = bytearray(packed.read_bytes())
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
    for _ in range(data.draw(st.integers(0, 3))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    target = tmp_path / packed.name
    target.write_bytes(raw)
    changed = content(bytes(raw)) != content(packed.read_bytes())
    _, verified, _ = look_at(target)
    assert not changed or verified.code != 0 or bytes(raw[-32:]) != packed.read_bytes()[-32:]


def test_an_uncompressed_archive_cut_in_the_middle(packed: Path, tmp_path: Path) -> None:
    raw = gzip.decompress(packed.read_bytes())
    target = tmp_path / packed.name.removesuffix(".gz")
    for part in (3, 2):
        target.write_bytes(raw[: len(raw) // part])
        report, verified, shown = look_at(target)
        assert {report.code, verified.code, shown.code} == {3} and report.report["findings"]


def test_a_folder_that_lost_files(packed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "node"
    shutil.copytree(packed.with_name(packed.name.removesuffix(".tar.gz")), folder)
    for name in ("stacks/pid-5301.1.json", "manifest.json"):
        (folder / name).unlink()
        report, verified, shown = look_at(folder)
        assert {report.code, verified.code, shown.code} == {3}, name
        assert name in verified.out or "manifest" in verified.out
        assert name in shown.out or "manifest" in shown.out
    (folder / "attempts.jsonl").write_bytes(b'{"collector": \xff NaN\n' * 3 + b"[" * 100_000)
    look_at(folder)


# names, links, bombs


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for info, content in members:
            info.size = len(content) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(content))
    return path


def entry(name: str, content: bytes | str = b"", **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(info, key, value)
    return info, content.encode() if isinstance(content, str) else content


LOG = "(EngineCore pid=7) ERROR 09-01 10:00:00 [core.py:1] RPC call to execute_model timed out.\n"


@pytest.mark.parametrize("ours", [True, False], ids=["as a bundle", "as somebody's archive"])
def test_names_and_links_that_would_escape(tmp_path: Path, ours: bool) -> None:
    secret = tmp_path / "secret.log"
    secret.write_text(LOG.replace("timed out", "planted-secret"))
    members = [
        entry("b/rpclogs/good.log", LOG),
        entry("../../../../../../tmp/escaped.log", LOG),
        entry("b/../../escaped.log", LOG),
        entry(str(tmp_path / "absolute.log"), LOG),
        entry("C:\\escaped.log", LOG),
        entry("b/link.log", type=tarfile.SYMTYPE, linkname=str(secret)),
        entry("b/hard.log", type=tarfile.LNKTYPE, linkname=str(secret)),
        entry("b/null.log", type=tarfile.CHRTYPE, devmajor=1, devminor=5),
        entry("b/disk.log", type=tarfile.BLKTYPE, devmajor=8, devminor=0),
        entry("b/fifo.log", type=tarfile.FIFOTYPE),
        entry(f"b/{EVIL}.log", LOG),
        entry("b/rpclogs/good.log", LOG),
        entry("b/" + "x/" * 300 + "deep.log", LOG),
    ]
    if ours:
        records = [
            {"path": p, "collector": "rpclogs", "kind": "log", "size_bytes": len(LOG), "sha256": "0" * 64}
            for p in ("rpclogs/good.log", "../../escaped.log", str(secret))
        ]
        members.insert(0, entry("b/manifest.json", json.dumps({"schema": "forensics.bundle/1", "node": "../n", "evidence": records})))
        members.append(entry("b/manifest-sha256.txt", f"{'0' * 64}  ../../escaped.log\n{'0' * 64}  {secret}\n"))
    path = archive(tmp_path / "in" / "b.tar.gz" if (tmp_path / "in").mkdir() is None else tmp_path, *members)
    before = sorted(p for p in tmp_path.rglob("*"))
    for command in COMMANDS:
        done = forensics(command, path)
        assert done.code in (3, 4), done.both
        assert "planted-secret" not in done.both
        assert clean(done.both)
        if command == "show":
            for word in (
                "symbolic link",
                "hard link",
                "character device",
                "block device",
                "named pipe",
                "outside the bundle",
                "occurs twice",
            ):
                assert word in done.out, word
    assert sorted(p for p in tmp_path.rglob("*")) == before and not Path("/tmp/escaped.log").exists()


def clean(text: str) -> bool:
    """Whether nothing in it acts on a terminal."""
    return all(c == "\n" or c.isprintable() for c in text)


def zeros(size: int) -> Iterator[bytes]:
    """A gzip member of `size` zero bytes (in MiB steps), made at no cost."""
    press = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = press.compress(bytes(1 << 20)) + press.flush(zlib.Z_FULL_FLUSH)
    yield b"\x1f\x8b\x08\0\0\0\0\0\0\x03"
    for _ in range(size >> 20):
        yield block
    yield b"\x03\0" + bytes(8)


def test_a_log_that_is_a_bomb(tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text(LOG)
    with (tmp_path / "bomb.log.gz").open("wb") as file:
        file.write(gzip.compress(LOG.encode() * 200))
        file.writelines(zeros(4 << 30))
    done = in_a_child("analyze", tmp_path, "--format", "json")
    assert done.code == 3 and any("bomb" in line for line in done.report["unread"]), done.err
    assert {name for engine in done.report["engines"] for name in engine["nodes"]} == {"good", "bomb"}, "what came before is kept"


def test_an_archive_that_is_a_bomb(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    good, _ = entry("b/good.log", LOG)
    good.size = len(LOG)
    huge, _ = entry("b/huge.log")
    huge.size = 4 << 30
    with path.open("wb") as file:
        file.write(gzip.compress(good.tobuf() + LOG.encode() + bytes(-len(LOG) % 512)))
        file.write(gzip.compress(huge.tobuf()))
        file.writelines(zeros(4 << 30))
    for command in COMMANDS:
        done = in_a_child(command, path)
        assert done.code in (3, 4) and (command == "verify" or "bomb" in done.both), done.both


def test_sizes_that_lie(tmp_path: Path) -> None:
    info, _ = entry("b/huge.log")
    info.size = 8**11 - 1
    path = tmp_path / "b.tar"
    path.write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + LOG.encode())
    done = in_a_child("analyze", path, "--format", "json")
    assert done.code in (3, 4) and "bytes are there" in done.both
    nested = in_a_child(
        "analyze", archive(tmp_path / "c.tar.gz", entry("a.tar.gz", path.read_bytes()), entry("x.log", LOG)), "--format", "json"
    )
    assert nested.code in (0, 3)


# wrong words in right places


@pytest.fixture
def bundle(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """`bundle((kind, content), …)`: a sealed directory with this evidence, its content untouched by redaction."""
    count = itertools.count()

    def build(*evidence: tuple[str, bytes], attempts: tuple[Attempt, ...] = (), **head: Any) -> Path:
        with BundleWriter(tmp_path, f"n1-{next(count)}", redactor=NullRedactor(), head={"node": "n1", "started_ns": T0, **head}) as writer:
            for number, (kind, content) in enumerate(evidence):
                writer.add(f"any/{number}-{kind}.pid-7.1.dat", kind, content, collector="any", at_ns=T0, pid=7, sample=1, source="here")
            for attempt in attempts:
                writer.attempt(attempt)
            writer.seal(ended_ns=T0 + 10**9, utc_offset_s=0)
        return writer.path

    yield build


def samples(packed: Path) -> dict[str, bytes]:
    """One honest content of every kind."""
    folder = packed.with_name(packed.name.removesuffix(".tar.gz"))
    records = json.loads((folder / "manifest.json").read_bytes())["evidence"]
    found = {record["kind"]: (folder / record["path"]).read_bytes() for record in records}
    found["nvml"] = b'{"index": 0, "uuid": "GPU-1", "name": "X", "power_mw": 1000, "temperature_c": 40, "processes": [{"pid": 7}]}'
    found["clock"] = (
        b'{"wall_ns": 5, "boottime_ns": 3, "zone": "UTC", "utc_offset_s": 0, "adjtimex": {"synchronised": true, "maxerror_us": 5}}'
    )
    found["patch-witness"] = b'[{"patch": "p", "pid": 7, "path": "/x.py", "exists": true, "mtime_ns": 5, "contains": true}]'
    found["patch-live"] = (
        b'{"python": "3.11.7", "image_started_ns": 9, "code": [{"module": "m", "function": "f", "status": "read", "chain": [{"file": "/x.py", '
        b'"line": 3, "own_file": false}], "disk": {"defined": [{"line": 3}]}}], "constants": [{"patch": "p", "object": "C.x", "status": "read", '
        b'"readings": [{"value": 1, "equal": true}]}]}'
    )
    found["patches-toml"] = b'[[patch]]\nname = "p"\nlog_marker = "live"\n'
    return found


NONSENSE: dict[str, bytes] = {
    "empty": b"",
    "nul": bytes(5000),
    "random": random.Random(7).randbytes(20_000),
    "high": bytes(range(128, 256)) * 40,
    "nan": b'{"a": NaN, "b": [Infinity, -Infinity]}',
    "nan list": b"[NaN]",
    "number": b"7",
    "null": b"null",
    "list of null": b"[null, null]",
    "huge number": b'{"at_ns": ' + b"9" * 400 + b"}",
    "deep list": b"[" * 200_000,
    "deep object": b'{"files":' * 100_000,
    "closed deep": b"[" * 50_000 + b"]" * 50_000,
    "one endless line": b"x" * 3_000_000,
    "newlines": b"\n" * 300_000,
    "surrogates": b'{"url": "\\ud800", "files": {"\\udc00": "\\ud800"}}',
    "bom": b"\xef\xbb\xbf[]",
    "utf-16": "(EngineCore pid=7) ERROR hello\n".encode("utf-16"),
    "html": b"<html><body>502 Bad Gateway</body></html>",
    "cut json": b'[{"pid": 7, "thread_name": "Main',
    "negative": b'[{"pid": -1, "os_thread_id": -5, "frames": [{"line": -1}]}]',
    "nan metrics": b"vllm:num_requests_running NaN\nvllm:iteration_tokens_total_count +Inf\nvllm:num_requests_waiting -Inf\nvllm:generation_tokens_total 1e999\n",
    "wrong stat": json.dumps({"at_ns": 1, "files": {f"/proc/7/{n}": "x ) y" for n in ("stat", "status", "wchan", "task/7/stat", "net/tcp", "net/tcp6")} | {"/proc/meminfo": "MemTotal: x kB", "/proc/loadavg": "a", "/proc/pressure/cpu": "some avg10=x", "/proc/stat": "cpu x"}, "links": {"/proc/7/fd/x": "socket:[x]"}}).encode(),
    "empty files": json.dumps({"at_ns": 1, "files": dict.fromkeys(["/proc/7/stat", "/proc/7/status", "/proc/meminfo", "/proc/7/net/tcp", "/proc/stat", "/proc/7/task/7/stat", "/proc/loadavg", "/sys/class/thermal/thermal_zone0/temp", "/proc/7/cgroup"], "")}).encode(),
    "huge stat": json.dumps({"at_ns": 2**70, "files": {"/proc/7/stat": "7 (x) S " + " ".join(["9" * 60] * 50), "/proc/meminfo": "MemTotal: " + "9" * 400 + " kB\n"}}).encode(),
}  # fmt: skip


def test_evidence_that_is_not_what_its_kind_says(packed: Path, bundle: Callable[..., Path]) -> None:
    good = samples(packed)
    for kind in [*good, "pyspy-text", "", "no-such-kind", EVIL]:
        contents = [*NONSENSE.values(), *(content for other, content in good.items() if other != kind)]
        path = bundle(*((kind, content) for content in contents))
        done = forensics("analyze", path, "--format", "json")
        assert done.code in (0, 3, 4), f"{kind}: {done.err}"
        if done.code != 4:
            about = [line for line in done.report["unread"] if "gave up" in line or "not recognised" in line]
            assert len({line.partition(":")[0] for line in about}) == len(about), f"{kind}: more than one line for a file"
            # a rule that broke over nonsense is a defect of the rule
            assert not [rule for rule in done.report["rules"] if rule["status"] == "ERRORED"], kind
        for command in ("show", "verify"):
            assert forensics(command, path).code == 0


def test_good_evidence_beside_nonsense_is_still_read(packed: Path, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.hang(1, IN_STEP)
    for kind in samples(packed):
        for name in ("deep list", "random", "nan"):
            scene.extra.append(("any", f"any/{kind}-{name}.dat", f"{kind}|{NONSENSE[name].decode('latin-1')}", 5301))
    done = forensics("analyze", scene.bundle(), "--format", "json")
    assert done.code == 3 and done.report["root"]["rank"] == 1, done.err


ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, -(2**63), 2**63 - 1, 2**64 - 1, 10**30, 1e308, -0.5, "", "0", "-1", "x" * 3000, EVIL, "\0", [], [None], {}, {"": ""}, [[[]]], "9" * 50,
)  # fmt: skip


def wreck(value: Any, chance: random.Random, rate: float) -> Any:
    """A copy of a JSON value in which some leaves and branches have become something else."""
    if chance.random() < rate:
        return chance.choice(ODD)
    if isinstance(value, dict):
        return {key: wreck(one, chance, rate) for key, one in value.items()}
    if isinstance(value, list):
        return [wreck(one, chance, rate) for one in value]
    return value


def wrecked(content: bytes, chance: random.Random) -> bytes:
    try:
        value = json.loads(content)
    except ValueError:
        words = content.decode().split(" ")
        for _ in range(chance.randrange(6)):
            words[chance.randrange(len(words))] = str(chance.choice(ODD))
        return " ".join(words).encode("utf-8", "surrogatepass")
    return json.dumps(wreck(value, chance, chance.choice((0.02, 0.1, 0.3)))).encode()


# a failing seed says all there is to say: to shrink it would take minutes and tell no more
@settings(
    max_examples=40, deadline=None, phases=(Phase.explicit, Phase.generate), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_right_shapes_with_wrong_values(packed: Path, bundle: Callable[..., Path], seed: int) -> None:
    chance = random.Random(seed)
    evidence = [(kind, wrecked(content, chance)) for kind, content in samples(packed).items() for _ in range(2)]
    head = {key: wreck(value, chance, 0.1) for key, value in (("utc_offset_s", 0), ("started_ns", T0), ("ended_ns", T0), ("node", "n1"))}
    path = bundle(*evidence)
    manifest = json.loads((path / "manifest.json").read_bytes())
    (path / "manifest.json").write_text(json.dumps({**manifest, **head}))
    done = forensics("analyze", path, "--format", "json")
    assert done.code in (0, 3, 4)
    if done.code != 4:
        assert not [(rule["rule"], rule["reason"]) for rule in done.report["rules"] if rule["status"] == "ERRORED"]
    for command in ("show", "verify"):
        assert forensics(command, path).code in (0, 3)


@pytest.mark.parametrize(
    "manifest",
    [b"", b"{", b"[]", b"null", b"NaN", b'{"started_ns": NaN}', b'{"started_ns": 1e400, "node": 7}', b"[" * 500_000, b'{"a":' * 200_000,
     b'{"evidence": {}, "attempts": 7}', b'{"evidence": [null, [], {"path": 7}], "attempts": [{"outcome": "NICE"}]}',
     b'{"started_ns": ' + b"9" * 5000 + b"}", b'{"utc_offset_s": 99999999999999999, "ended_ns": -9223372036854775808, "started_ns": 9223372036854775807}',
     b'{"started_ns": 9223372036854775807, "ended_ns": 9223372036854775807}', b'{"redactions": {"a": -1e9}, "engines": [[[NaN]]]}',
     b"\xff\xfe{}", b'{"node": "\\ud800\\u001b[2J"}', random.Random(3).randbytes(5000)],
    ids=lambda raw: raw[:24].decode("ascii", "backslashreplace"),
)  # fmt: skip
def test_manifests_that_are_none(packed: Path, tmp_path: Path, manifest: bytes) -> None:
    folder = tmp_path / "node"
    shutil.copytree(packed.with_name(packed.name.removesuffix(".tar.gz")), folder)
    (folder / "manifest.json").write_bytes(manifest)
    report, verified, shown = look_at(folder)
    assert verified.code == 3 and shown.code == 3 and clean(shown.both) and clean(verified.both)
    assert report.code == 3 and report.report["unread"], "what is wrong is said"


def test_nothing_that_is_shown_can_act_on_the_terminal(tmp_path: Path) -> None:
    scene = Scene(tmp_path, node=f"n1{EVIL}")
    scene.writer.redactor = NullRedactor()
    scene.everywhere(5301, [f"fn{EVIL} (file{EVIL}.py)"], thread=f"Main{EVIL}")
    scene.log(-1, "EngineCore", 5200, "ERROR", f"RPC call to execute_model timed out. {EVIL}")
    scene.kernel += f"[    3.0] Out of memory: Killed process 5301 ({EVIL})\n"
    scene.extra.append(("any", f"any/{EVIL}.log", f"log|{EVIL}", 7))
    scene.extra.append(("any", "any/odd.dat", f"{EVIL}|{EVIL}", 7))
    odd = ProcessInfo(pid=5301, ppid=5200, node=scene.node, title=f"VLLM::Worker_TP1{EVIL}", argv=(f"VLLM::Worker_TP1{EVIL}",), state="T")
    scene.extra.append(
        (
            "any",
            "any/table.json",
            "process-table|"
            + json.dumps([{"pid": odd.pid, "ppid": 5200, "title": odd.title, "argv": [odd.title], "state": EVIL, "node": EVIL}]),
            None,
        )
    )
    hostile = Attempt(collector=f"stacks{EVIL}", target=EVIL, outcome=Outcome.DENIED, reason=EVIL, cure=EVIL, origin=Origin(node=EVIL))
    scene.writer.attempt(hostile)
    scene.bundle()
    packed = scene.writer.pack(ORDER, keep=True)
    renamed = packed.rename(packed.with_name(f"evil{EVIL}.tar.gz"))
    for command in COMMANDS:
        done = forensics(command, renamed)
        assert done.code in (0, 3) and clean(done.both), command
    for fmt in ("markdown", "html"):
        done = forensics("analyze", renamed, "--format", fmt)
        assert all(c in "\n\t" or c.isprintable() for c in done.out) and clean(done.err), fmt
    done = forensics("analyze", renamed, "--format", "json")
    assert "\x1b" not in done.out and clean(done.err)
    for command in COMMANDS:
        gone = forensics(command, tmp_path / f"gone{EVIL}")
        assert gone.code in (2, 1, 4) and clean(gone.both), command


# folders and pipes


def test_nothing_to_work_on(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "odd").write_bytes(random.Random(5).randbytes(4000))
    for name in ("empty", "file", "odd"):
        done = forensics("analyze", tmp_path / name)
        assert done.code == 4 and not done.out and name in done.err
    assert forensics("show", tmp_path / "empty").code == 4
    assert forensics("verify", tmp_path / "empty").code == 4
    assert forensics("verify", tmp_path / "odd").code == 4


@pytest.mark.parametrize("arguments", [["analyze"], ["analyze", "/nonexistent"], ["analyze", "--format", "x", "/"], ["analyze", "--fail-on", "x", "/"],
                                       ["verify"], ["show"], ["show", "a", "b"], ["analyze", "--nope", "/"], ["collect", "stacks", "--samples", "0"],
                                       ["capture", "--deadline", "nan"], ["capture", "--deadline", "inf"], ["capture", "--window", "-1"],
                                       ["capture", "--deadline", "0.5"], ["capture", "--window", "nan"], ["capture", "--pid", "-5"],
                                       ["demo", "--fault", "nope"], ["nope"]], ids=" ".join)  # fmt: skip
def test_wrong_usage(arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    done = forensics(*arguments)
    assert done.code == 2 and done.err.strip() and not list(tmp_path.iterdir())


def test_through_a_pipe(packed: Path) -> None:
    raw = packed.read_bytes()
    whole = in_a_child("analyze", "-", "--format", "json", input=raw)
    assert whole.report["root"]["rank"] == 1, whole.err
    cut = in_a_child("analyze", "-", "--format", "json", input=raw[: len(raw) * 2 // 3])
    assert cut.code == 3 and any("cut" in line for line in cut.report["unread"])
    log = in_a_child("analyze", "-", "--format", "json", input=LOG.encode())
    assert log.code in (0, 3) and log.report["inputs"] == ["stdin"]
    assert in_a_child("analyze", "-", input=b"").code == 4


def test_a_folder_with_things_that_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text(LOG)
    os.mkfifo(tmp_path / "fifo.log")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "dangling.log").symlink_to(tmp_path / "gone")
    (tmp_path / "outside.log").symlink_to("/etc/passwd")
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(tmp_path)  # the path of a socket is short
        listener.bind("socket.log")
        os.chdir(before)
        done = forensics("analyze", tmp_path, "--format", "json")
        assert done.code == 3
        for name in ("fifo.log", "socket.log", "outside.log"):
            assert any(line.startswith(name) for line in done.report["unread"]), name
        assert "root:" not in done.out
        for name in ("socket.log",):
            refused = forensics("analyze", tmp_path / name)
            assert refused.code == 4 and "neither a file nor a directory" in refused.err
        assert forensics("show", tmp_path).code == 3


needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv: to every other user a mode is enough"
)


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text(LOG)
    (tmp_path / "closed").mkdir()
    for name in ("closed.log", "closed"):
        path = tmp_path / name
        path.touch() if name.endswith("log") else None
        path.chmod(0)
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root reads everything, and there is no setpriv to give that up")
        # root without its privilege over files is an ordinary user who does not own these
        prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
        for name in ("closed.log", "closed"):
            os.chown(tmp_path / name, 65534, 65534)
    done = in_a_child("analyze", tmp_path, "--format", "json", prefix=prefix)
    (tmp_path / "closed").chmod(0o700)
    assert done.code == 3, done.err
    for name in ("closed.log", "closed"):
        assert any(line.startswith(name) and ("ermi" in line or "denied" in line) for line in done.report["unread"]), done.report["unread"]
        assert name in done.err
    alone = in_a_child("analyze", tmp_path / "closed.log", prefix=prefix)
    assert alone.code == 4 and "may not be read" in alone.err
    shown = in_a_child("show", tmp_path, prefix=prefix)
    assert shown.code == 3 and "good.log" in shown.out


def test_ten_thousand_files(tmp_path: Path) -> None:
    for number in range(10_000):
        (tmp_path / f"n{number % 5}.{number}.log").write_text(LOG)
    done = in_a_child("analyze", tmp_path, "--format", "json")
    assert done.code in (0, 3) and len(done.report["unread"]) == 0, done.err
    assert in_a_child("show", tmp_path).code == 0


def processes(*argvs: str) -> bytes:
    """A process table: the first is the parent of the others."""
    table = [
        {
            "pid": 100 + n,
            "ppid": 100 if n else 1,
            "argv": argv.split(),
            "title": argv,
            "exe": "/usr/bin/python3",
            "comm": "python3",
            "state": "S",
        }
        for n, argv in enumerate(argvs)
    ]
    table[0]["listening_ports"] = [8000]
    return json.dumps(table).encode()


BOTTOMLESS = {
    "a rank that is a date": (
        "process-table",
        processes("python3 front.py", "python3 rank.py --rank 20260901", "python3 rank.py --rank 1"),
    ),
    "a world without end": ("process-table", processes("python3 front.py", "python3 rank.py --rank 0 --world-size 999999999")),
    "a tensor that is parallel without end": (
        "process-table",
        processes("python3 vllm serve /m --tensor-parallel-size 999999999", "VLLM::EngineCore", "VLLM::Worker_TP0"),
    ),
    "a logged world without end": (
        "log",
        b"(Worker pid=7) INFO 09-01 10:00:00 [parallel_state.py:1] rank 0 in world size 9999999999 is assigned as "
        b"DP rank 0, PP rank 0, PCP rank 0, TP rank 0, EP rank N/A\n",
    ),
}


@pytest.mark.parametrize("name", BOTTOMLESS)
def test_nobody_counts_to_a_number_because_it_was_written_down(name: str, bundle: Callable[..., Path]) -> None:
    done = in_a_child("analyze", bundle(BOTTOMLESS[name]), "--format", "json")
    assert done.code in (0, 3), done.err
    assert len(done.report["coverage"]["cells"]) < 200_000
