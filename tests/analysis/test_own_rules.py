"""Rules of an operator: from a folder that was named, or from a folder that nobody else can have written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from forensics.analysis import analyze, ownrules
from forensics.analysis.rules import rules
from forensics.cli.analyze import INCOMPLETE, OK, USAGE, analyze_command
from forensics.cli.rules import explain_command, rules_command

OWN = """
from forensics.analysis.rules import Rule, Text
from forensics.model import FindingRole, Grade, Severity

def evaluate(view):
    for hit in view.hits[:1]:
        yield view.finding({id!r}, Grade.SUPPORTED, title="Our store was slow", because=[hit.ref],
                           severity=Severity.WARNING, role=FindingRole.CONTEXT)

RULE = Rule(
    name={name!r},
    texts={{{id!r}: Text(says="Our own store was slow at that moment.", establishes="Its line.", next_steps=("ask the store team",))}},
    about="Whether the store was slow.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="None known.",
)
"""


def write(folder, file="store_slow", id="our-store-slow", name="store_slow", text=OWN):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file}.py"
    path.write_text(text.format(id=id, name=name) if text is OWN else text)
    path.chmod(0o600)
    folder.chmod(0o700)
    return folder


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "forensics" / "rules"


def test_a_rule_of_a_folder_makes_findings_that_say_whose_they_are(tmp_path, scene, capsys):
    folder, bundle = write(tmp_path / "own"), scene().bundle()
    analyze_command([str(bundle)], None, "json", None, rules=[folder])
    out, err = capsys.readouterr()
    report = json.loads(out)
    found = next(f for f in report["findings"] if f["id"] == "our-store-slow")
    assert found["origin"] == str(folder / "store_slow.py")
    assert found["title"] == "Our store was slow (by your own rule store_slow)"
    assert found["next_steps"] == ["ask the store team"]
    assert all(f["origin"] is None for f in report["findings"] if f["id"] != "our-store-slow")
    assert "rules of your own: store_slow" in err


def test_nothing_is_run_that_nobody_asked_for(tmp_path, scene):
    write(tmp_path / "own")
    assert "our-store-slow" not in {f.id for f in analyze([scene().bundle()]).findings}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("RULE = 1\n", "it defines no RULE"),
        ("import no_such_module_of_ours\n", "ModuleNotFoundError"),
        ("def f(:\n", "SyntaxError"),
        ("raise SystemExit(0)\n", "SystemExit"),
        ("def f(): return f()\nf()\n", "RecursionError"),
        (OWN.format(id="engine-stalled", name="mine"), "another rule, or the catalogue, has the finding engine-stalled"),
        (OWN.format(id="shared-event-reuse", name="mine"), "has the finding shared-event-reuse"),
        (OWN.format(id="evidence-missing:log", name="mine"), "has the finding evidence-missing:log"),
        (OWN.format(id="evidence-missing:tape", name="mine"), "evidence-missing:tape"),
        (OWN.format(id="our-store-slow", name="patch"), "another rule is called patch"),
    ],
)
def test_a_file_that_is_no_rule_is_told_and_ends_nothing(tmp_path, scene, capsys, text, why):
    folder = write(tmp_path / "own")
    write(folder, file="zz_broken", text=text)
    bundle = scene().bundle()
    code = analyze_command([str(bundle)], None, "json", None, rules=[folder])
    out, err = capsys.readouterr()
    report = json.loads(out)
    broken = [r for r in report["rules"] if r["status"] == "ERRORED"]
    assert [r["origin"] for r in broken] == [str(folder / "zz_broken.py")] and why in broken[0]["reason"]
    assert code == INCOMPLETE and "zz_broken.py broke: not used" in err
    assert "our-store-slow" in {f["id"] for f in report["findings"]}
    assert len(report["rules"]) == len(rules()) + 2


def test_of_two_own_rules_with_one_finding_the_second_is_refused(tmp_path):
    folder = write(write(tmp_path / "own"), file="twice", name="twice")
    own = ownrules.load([folder])
    assert [r.name for r in own.rules] == ["store_slow"] and "our-store-slow" in own.broken[0].reason


def test_a_rule_that_breaks_while_it_runs_is_errored_under_its_file(tmp_path, scene):
    folder = write(tmp_path / "own", text=OWN.format(id="our-store-slow", name="store_slow").replace("view.hits[:1]", "view.no_such_thing"))
    report = analyze([scene().bundle()], own_rules=ownrules.load([folder]))
    broken = [r for r in report.rules if r.status.value == "ERRORED"]
    assert {r.origin for r in broken} == {str(folder / "store_slow.py")} and report.verdict.state == "healthy"


def test_the_standing_folder_is_used_when_it_is_the_user_s_alone(home, tmp_path):
    write(home).parent.chmod(0o700)
    assert [r.name for r in ownrules.load([], ownrules.home_folder()).rules] == ["store_slow"]


@pytest.mark.parametrize("loose", ["folder", "file", "parent"])
def test_a_standing_folder_that_others_may_write_is_left_alone_and_that_is_said(home, scene, capsys, loose):
    write(home).parent.chmod(0o700)
    {"folder": home, "file": home / "store_slow.py", "parent": home.parent}[loose].chmod(0o722 | 0o050)
    own = ownrules.load([], ownrules.home_folder())
    assert not own.rules and "may be written by others" in own.notes[0]
    analyze_command([str(scene().bundle())], None, "json", None)
    out, err = capsys.readouterr()
    assert "were not run" in err and "our-store-slow" not in out


def test_a_standing_folder_of_another_user_is_left_alone(home, monkeypatch):
    write(home).parent.chmod(0o700)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert "belongs to another user" in ownrules.load([], home).notes[0]


def test_a_link_from_the_standing_folder_to_where_others_write_is_not_followed(home, tmp_path):
    shared = write(tmp_path / "shared")
    shared.chmod(0o777)
    home.mkdir(parents=True)
    home.chmod(0o700)
    home.parent.chmod(0o700)
    (home / "store_slow.py").symlink_to(shared / "store_slow.py")
    own = ownrules.load([], home)
    assert not own.rules and "lies where others may write" in own.notes[0]


def test_the_commands_list_and_explain_them(tmp_path, capsys):
    folder = write(tmp_path / "own")
    assert rules_command([], [folder], "text") == OK
    assert f"your own: {folder / 'store_slow.py'}" in capsys.readouterr().out
    assert explain_command("our-store-slow", [folder], "text") == OK
    assert "ask the store team" in capsys.readouterr().out
    assert explain_command("our-store-slow", [], "text") == USAGE


def test_a_folder_that_is_not_there_is_wrong_usage(tmp_path, capsys):
    assert rules_command([], [tmp_path / "no"], "text") == USAGE
    assert analyze_command([str(tmp_path)], None, "json", None, rules=[tmp_path / "no"]) == USAGE
    assert "--rules: no such directory" in capsys.readouterr().err


def test_the_rule_that_the_readme_shows_is_one_and_fires_on_its_signature(tmp_path, scene):
    from forensics.analysis.signatures import load_folder

    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text()
    (text,) = [block for block in re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S) if "RULE" in block]
    own = ownrules.load([write(tmp_path / "own", text=text)])
    assert not own.broken
    signature = {"id": "store-slow", "feeds": "our-store-slow", "engine": "any", "role": "context", "source": "ours"}
    signature |= {"literal": "store was slow", "pattern": "store was slow", "examples": ["store was slow"]}
    lines = (tmp_path / "signatures", [f"{name} = {json.dumps(value)}" for name, value in signature.items()])
    lines[0].mkdir()
    (lines[0] / "store-slow.toml").write_text("\n".join(lines[1]) + "\n")
    assert not load_folder(lines[0])[1]
    s = scene()
    s.log(-5, "APIServer", 5100, "WARNING", "our store was slow today")
    report = analyze([s.bundle()], own_rules=own, signature_folders=[lines[0]])
    assert "our-store-slow" in {f.id for f in report.findings}
