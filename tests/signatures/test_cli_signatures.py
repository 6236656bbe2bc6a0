"""`forensics signatures` and `analyze --signatures`: folders as operators make them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from forensics.analysis import analyze
from forensics.analysis.signature_check import problems
from forensics.analysis.signatures import in_force, load_folder, load_signature, shipped, signatures, using
from forensics.cli.analyze import INCOMPLETE, OK, USAGE, analyze_command
from forensics.cli.signatures import FOUND, NOTHING, list_command, show_command
from forensics.cli.signatures import test_command as check_command

OWN = {
    "id": "mykv-store-lost",
    "feeds": "kv-transfer-peer-gone",
    "engine": "any",
    "role": "root",
    "source": "mykv 2.4 store.py",
    "literal": "mykv: store unreachable",
    "pattern": r"mykv: store unreachable after (?P<seconds>[\d.]+)s",
    "examples": ["mykv: store unreachable after 30s, giving up"],
    "counter_examples": ["mykv: set MYKV_TIMEOUT if the store is unreachable"],
}


def toml(values: dict) -> str:
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items()) + "\n"


def write(folder: Path, extra: str = "", **changed) -> Path:
    folder.mkdir(exist_ok=True)
    values = {**OWN, **changed}
    (folder / f"{values['id']}.toml").write_text(toml(values) + extra)
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def test_a_good_folder_has_no_problem(tmp_path, capsys):
    folder = write(tmp_path / "own", 'fields = { seconds = "seconds" }\nlimit = "seconds"\n')
    assert check_command(folder) == OK
    out, err = capsys.readouterr()
    assert out == "" and "1 signature(s) tested, 0 problem(s)" in err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"examples": ["mykv: store gone"]}, "does not stand in the example"),
        ({"examples": ["mykv: store unreachable at all"]}, "does not match the example"),
        ({"counter_examples": ["mykv: store unreachable after 1s"]}, "counter-example matches"),
        ({"examples": []}, "there is no example"),
        ({"literal": "mykv"}, "shorter than 6"),
        ({"source": " "}, "source is empty"),
        ({"feeds": "Lost Store"}, "no id of a finding"),
        ({"role": "boss"}, "role must be one of"),
        ({"pattern": "(unclosed"}, "unterminated"),
        ({"colour": "red"}, "unknown field"),
        ({"limit": "seconds"}, "neither a number of seconds nor a field"),
        ({"engine": "vllm", "literal": "Worker proc ", "pattern": "Worker proc .* died", "examples": ["Worker proc VllmWorker-1 died unexpectedly"]}, "vllm-worker-died claims"),
        ({"literal": "CUDA_LAUNCH_BLOCKING", "pattern": "CUDA_LAUNCH", "examples": ["CUDA_LAUNCH_BLOCKING"]}, "only advises"),
        ({"pattern": r"mykv: store unreachable after (?:\w+\s?)+!", "examples": ["mykv: store unreachable after aaaa aaaa!"]}, "holds the pattern up"),
    ],
)  # fmt: skip
def test_each_kind_of_fault_is_one_line(tmp_path, capsys, changed, said):
    folder = write(tmp_path / "own", **changed)
    assert check_command(folder) == FOUND
    lines = capsys.readouterr().out.splitlines()
    assert any(said in line for line in lines), lines
    assert all("mykv-store-lost" in line for line in lines)


def test_a_field_that_is_not_of_its_type_is_said(tmp_path, capsys):
    folder = write(tmp_path / "own", 'fields = { seconds = "int" }\n', examples=["mykv: store unreachable after 1.5s"])
    assert check_command(folder) == FOUND
    assert "field seconds" in capsys.readouterr().out


def test_files_that_are_no_toml_or_called_otherwise_are_said(tmp_path, capsys):
    folder = write(tmp_path / "own")
    (folder / "broken.toml").write_text("id = ")
    (folder / "binary.toml").write_bytes(b"\xff\xfe\0")
    (folder / "other-name.toml").write_text(
        toml({**OWN, "id": "mykv-other", "literal": "mykv: other line", "pattern": "mykv: other line", "examples": ["mykv: other line"]})
    )
    assert check_command(folder) == FOUND
    out = capsys.readouterr().out
    assert "broken.toml" in out and "binary.toml" in out and "mykv-other.toml: a file is called" in out


def test_no_folder_and_an_empty_one(tmp_path, capsys):
    assert check_command(tmp_path / "nowhere") == USAGE
    (tmp_path / "empty").mkdir()
    assert check_command(tmp_path / "empty") == NOTHING


@pytest.mark.parametrize("signature", shipped(), ids=lambda s: s.id)
def test_what_ships_has_no_problem(signature):
    same = [s for s in shipped() if s.engine == signature.engine]
    assert list(problems(signature, same)) == []


def test_a_runaway_pattern_is_stopped(tmp_path):
    bad = load_signature(
        toml({**OWN, "literal": "mykv: (", "pattern": r"mykv: \((a|aa|a?)*\)$", "examples": ["mykv: (aaaa)"], "counter_examples": []})
    )
    began = time.process_time()
    assert any("holds the pattern up" in p for p in problems(bad))
    assert time.process_time() - began < 30


# ---- in the analysis

LINE = "(EngineCore pid=7) ERROR 09-01 10:00:30 [mykv.py:1] mykv: store unreachable after 30s, giving up\n"
READY = "(EngineCore pid=7) INFO 09-01 10:00:00 [core.py:1] init engine (profile, create kv cache, warmup model) took 1.00 s\n"


def log(tmp_path: Path) -> Path:
    folder = tmp_path / "mailed"
    folder.mkdir()
    (folder / "node0.log").write_text(READY + LINE)
    return folder


def test_an_operators_line_is_heard_and_the_report_says_so(tmp_path):
    own = write(tmp_path / "own")
    assert not [e for e in analyze([log(tmp_path)]).timeline if "mykv" in e.what]
    report = analyze([tmp_path / "mailed"], signature_folders=[own])
    assert [e.finding for e in report.timeline if "mykv" in e.what] == ["kv-transfer-peer-gone"]
    assert "mykv-store-lost" in report.meta["signatures"]
    assert in_force().own == () and signatures() is shipped()


def test_an_operators_signature_stands_in_the_place_of_a_shipped_one(tmp_path, capsys):
    own = write(tmp_path / "own", id="vllm-init-took", engine="vllm", feeds="startup-completed")
    report = analyze([log(tmp_path)], signature_folders=[own])
    assert "in the place of shipped ones: vllm-init-took" in report.meta["signatures"]
    assert not [e for e in report.timeline if "init engine" in e.what]
    with using([own]) as known:
        assert sum(s.id == "vllm-init-took" for s in known.known) == 1
    assert show_command("vllm-init-took", [own]) == OK
    assert "in the place of the shipped one" in capsys.readouterr().out


def test_a_later_folder_wins(tmp_path):
    one, two = write(tmp_path / "one"), write(tmp_path / "two", feeds="kv-sender-failed")
    with using([one, two]) as known:
        assert next(s for s in known.known if s.id == OWN["id"]).feeds == "kv-sender-failed"


def test_a_broken_file_is_a_line_of_the_report_and_the_others_are_used(tmp_path, capfd):
    own = write(tmp_path / "own")
    (own / "broken.toml").write_text("id = ")
    assert analyze_command([str(log(tmp_path))], None, "json", None, [own]) == INCOMPLETE
    out, err = capfd.readouterr()
    report = json.loads(out)
    assert any("broken.toml" in line for line in report["unread"])
    assert "mykv-store-lost" in report["meta"]["signatures"]
    assert "broken.toml" in err and "mykv-store-lost" in err


def test_the_folder_at_home_is_always_in_force(tmp_path, home, capfd):
    home.mkdir()
    (home / "forensics").mkdir()
    write(home / "forensics" / "signatures")
    assert analyze_command([str(log(tmp_path))], None, "json", None) == OK
    assert "mykv-store-lost" in json.loads(capfd.readouterr().out)["meta"]["signatures"]


def test_a_folder_that_is_not_there_is_wrong_usage(tmp_path, capfd):
    assert analyze_command([str(log(tmp_path))], None, "json", None, [tmp_path / "nowhere"]) == USAGE
    assert list_command("", [tmp_path / "nowhere"]) == USAGE


def test_list_and_show(tmp_path, capsys):
    own = write(tmp_path / "own")
    assert list_command("", [own]) == OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(shipped()) + 1
    assert any(line.startswith("mykv-store-lost*") for line in lines)
    assert list_command("no-such-engine", []) == NOTHING
    assert show_command("vllm-worker", []) == USAGE
    assert "vllm-worker-died" in capsys.readouterr().err
    assert show_command("vllm-worker-died", []) == OK
    assert "Worker proc VllmWorker-1 died" in capsys.readouterr().out


def test_a_folder_of_many_kinds_of_names_loads_what_is_toml(tmp_path):
    own = write(tmp_path / "own")
    (own / "README.md").write_text("notes")
    (own / "copy.toml").write_text(toml(OWN))
    found, broken = load_folder(own)
    assert [s.id for s in found] == ["mykv-store-lost"] and len(broken) == 1
