"""Two captures beside each other: the direction of each change, whether the load was alike, and what may then be believed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forensics.analysis.compare import Arm, compare, compare_arms, read_arm
from forensics.analysis.compare.asymmetric import judge_load
from forensics.analysis.compare.changes import compare_figures
from forensics.model import Comparison, Direction, Figure, Grade
from forensics.report.comparison import as_dict, render
from tests.analysis.scene import CORE, WORKER, Scene


@pytest.fixture
def make(tmp_path):
    """make(name, change, **options): a bundle of the scene that `change` changed."""

    def call(name: str, change=lambda scene: None, **options) -> Path:
        scene = Scene(tmp_path / name, **options)
        change(scene)
        return scene.bundle()

    return call


def loaded(running: float, waiting: float = 0, steps=(100, 160, 190)):
    def change(scene: Scene) -> None:
        scene.metrics = [Scene._metrics(n, running, waiting) for n in steps]

    return change


def hung(running: float = 4):
    def change(scene: Scene) -> None:
        scene.hang(1, ["Condition.wait (threading.py)"])
        scene.still(running)

    return change


def direction(made: Comparison, topic: str, what: str, where: str = "") -> Direction:
    found = [c for c in made.changes if c.topic == topic and what in c.what and where in c.where]
    assert len(found) == 1, [(c.where, c.what) for c in made.changes if c.topic == topic]
    return found[0].direction


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((10, 9, 11), (12, 11, 13), Direction.SAME),
        ((10, 9, 11), (13, 12, 14), Direction.UP),
        ((13, 12, 14), (10, 9, 11), Direction.DOWN),
        ((10, 10, 10), (10.4, 10.4, 10.4), Direction.SAME),
        ((10, 10, 10), (10.6, 10.6, 10.6), Direction.UP),
    ],
)
def test_ranges_of_samples_that_touch_are_the_same(a, b, expected):
    figures = [Figure(value=v, low=low, high=high) for v, low, high in (a, b)]
    assert compare_figures(*figures, resolution=0.5) is expected


def test_two_captures_of_one_state_differ_in_nothing(make):
    made = compare([make("a")], [make("b")])
    assert {c.direction for c in made.changes} == {Direction.SAME}
    assert not made.findings and not made.unmatched and made.captured
    assert "comparable" in made.load


def test_the_direction_of_each_topic(make):
    def before(scene: Scene) -> None:
        scene.cpu[WORKER, WORKER] = [0, 1, 7]
        scene.meminfo = "MemTotal: 100000000 kB\nMemAvailable: 60000000 kB\n"

    def after(scene: Scene) -> None:
        hung()(scene)
        scene.cpu[WORKER, WORKER] = [0, 2, 15]
        scene.meminfo = "MemTotal: 100000000 kB\nMemAvailable: 20000000 kB\n"
        scene.lines[0] = scene.lines[0].replace("'/m'", "'/m', 'enforce_eager': True")

    a, b = make("a", before), make("b", after)
    there, back = compare([a], [b]), compare([b], [a])
    for made, up, down, new, old in (
        (there, Direction.UP, Direction.DOWN, Direction.APPEARED, Direction.GONE),
        (back, Direction.DOWN, Direction.UP, Direction.GONE, Direction.APPEARED),
    ):
        assert direction(made, "cpu", "CPU", "rank 0") is up
        assert direction(made, "cpu", "CPU", "rank 1") is Direction.SAME
        assert direction(made, "thread", "thread", "rank 0") is up
        assert direction(made, "memory", "host available") is down
        assert direction(made, "progress", "generated tokens") is down
        assert direction(made, "state", "engine-stalled") is new
        assert direction(made, "wait", "for alpha7 rank 1", "rank 0") is new
        assert old not in {c.direction for c in made.changes}


def test_ranks_are_matched_by_node_and_rank_and_never_by_pid(make, monkeypatch):
    before = make("a", lambda s: s.cpu.update({(WORKER, WORKER): [0, 1, 7]}))
    monkeypatch.setattr("tests.analysis.scene.WORKER", WORKER + 1000)
    monkeypatch.setattr("tests.analysis.scene.CORE", CORE + 1000)
    after = make("b", lambda s: s.cpu.update({(WORKER + 1000, WORKER + 1000): [0, 2, 15]}))
    made = compare([before], [after])
    assert direction(made, "cpu", "CPU", "rank 0") is Direction.UP
    assert not made.unmatched
    assert not any(str(pid) in c.where + c.what for c in made.changes for pid in (WORKER, WORKER + 1000, CORE, CORE + 1000))


def test_what_one_side_did_not_look_at_is_no_change(make):
    made = compare([make("a", lambda s: s.unread.update({5100, CORE, WORKER, WORKER + 1}))], [make("b", hung())])
    assert direction(made, "wait", "for alpha7 rank 1", "rank 0") is Direction.ONLY_AFTER
    back = compare([make("c", hung())], [make("d", lambda s: s.denied.update({"metrics": "not permitted"}))])
    assert direction(back, "progress", "generated tokens") is Direction.ONLY_BEFORE
    assert "not known" in back.load and "Neither direction" in back.believe and not back.findings


def test_nodes_and_ranks_of_one_side_only_are_named(make):
    made = compare([make("a", ranks=3)], [make("b", ranks=2)])
    assert made.unmatched == ("alpha7 rank 2: seen only before",)
    elsewhere = compare([make("c")], [make("d", node="beta3")])
    assert elsewhere.unmatched[:2] == ("node alpha7 was seen only before", "node beta3 was seen only after")


# ---- load


CASES = [
    # before, after: relation, and what is said of the result
    (loaded(4), loaded(4), "comparable", "in either direction may be believed"),
    (loaded(10), loaded(11), "comparable", "in either direction may be believed"),  # less than a fifth
    (hung(4), loaded(12), "more", "as an improvement that may be believed"),
    (hung(12), loaded(4), "less", "as an improvement that may not be believed"),
    (loaded(4), hung(12), "more", "as a worsening that may not be believed"),
    (loaded(12), hung(4), "less", "as a worsening that may be believed"),
    (loaded(4), loaded(12), "more", "A better result of the side after"),
    (hung(12), hung(4), "less", "A better result of the side before"),
]


@pytest.mark.parametrize(("before", "after", "relation", "words"), CASES)
def test_which_direction_of_a_result_may_be_believed(make, before, after, relation, words):
    arms: list[Arm] = [read_arm([make("a", before)]), read_arm([make("b", after)])]
    load = judge_load(*arms)
    assert load.relation == relation and words in load.believe
    findings = compare_arms(*arms).findings
    assert [f.id for f in findings] == ([] if relation == "comparable" else ["comparison-asymmetric"])
    for finding in findings:
        # of an engine that stands still the gauges are those of its last step
        still = any(a.standing for a in arms)
        assert finding.grade is (Grade.SUPPORTED if still else Grade.ESTABLISHED) and finding.because and finding.next_steps


def test_the_pair_rule_is_in_the_catalogue_and_says_nothing_of_one_capture(make):
    from forensics.analysis import analyze
    from forensics.analysis.catalogue import find

    entry = find("comparison-asymmetric")
    assert entry and entry.status == "IMPLEMENTED" and entry.text and entry.text.says
    assert not any(f.id == "comparison-asymmetric" for f in analyze([make("a")]).findings)


# ---- the command


def forensics(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "forensics", *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_the_screen_fits_80_columns_and_nothing_acts_on_it(make):
    evil = "\x1b[31m\u202e" + "x" * 200

    def hostile(scene: Scene) -> None:
        hung()(scene)
        scene.log(-5, "Worker_TP1", WORKER + 1, "ERROR", evil)
        scene.lines[0] = scene.lines[0].replace("'/m'", f"'{evil}'")

    made = compare([make("a", loaded(10))], [make("b", hostile)])
    for fmt in ("terminal", "markdown"):
        text = render(made, fmt)
        assert "\x1b" not in text and "\u202e" not in text
    assert max(map(len, render(made, "terminal").splitlines())) <= 80
    assert "comparison-asymmetric" in render(made, "markdown")
    assert json.loads(render(made, "json"))["changes"]


def test_exit_codes(make, tmp_path):
    bundle = str(make("a"))
    assert forensics("diff", bundle, str(tmp_path / "nowhere")).returncode == 2
    assert forensics("diff", bundle, bundle, "--format", "xml").returncode == 2
    (tmp_path / "empty").mkdir()
    assert forensics("diff", bundle, str(tmp_path / "empty")).returncode == 4
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "alpha7.log").write_text("(EngineCore pid=5200) INFO 09-01 10:00:00 [core.py:1] init engine took 9.20 s\n")
    done = forensics("diff", bundle, str(tmp_path / "bare"), "--format", "json")
    assert done.returncode == 3 and json.loads(done.stdout)["captured"] is False
    assert "not both sides are captures" in forensics("diff", bundle, str(tmp_path / "bare")).stdout


def outstanding_now(engine) -> float:
    return sum(map(float, re.findall(r"^\w+:?num_requests_(?:running|waiting)\S* (\S+)$", engine.get("/metrics")[1], re.M)))


def test_a_real_engine_before_and_after_a_fault_under_other_load(tmp_path):
    from forensics.cli.demo import STALL_S, START_S, _capture, _engine

    with _engine(tmp_path) as engine:
        engine.load(2)
        engine.wait(engine.progresses, START_S, "the first tokens")
        before = _capture(tmp_path / "before", engine.pid, 1.0)
        engine.load(6)
        engine.wait(lambda: outstanding_now(engine) >= 8, START_S, "eight requests")
        engine.post("/fault", {"mode": "stop", "rank": 1})
        engine.wait(engine.stands, STALL_S, "the stall")
        after = _capture(tmp_path / "after", engine.pid, 4.0)
    made = compare([before.path], [after.path])
    told = as_dict(made)
    assert (told["before"]["state"], told["after"]["state"], told["after"]["rank"]) == ("healthy", "stalled", 1)
    assert direction(made, "progress", "generated tokens") is Direction.DOWN
    assert direction(made, "state", "engine-stalled") is Direction.APPEARED
    assert direction(made, "version", "python") is Direction.SAME
    outstanding = next(c for c in made.changes if c.topic == "load" and c.what == "requests outstanding")
    assert isinstance(outstanding.before, Figure) and isinstance(outstanding.after, Figure)
    assert (outstanding.before.value, outstanding.after.value) == (2, 8)
    assert [(f.id, f.grade) for f in made.findings] == [("comparison-asymmetric", Grade.SUPPORTED)]
    assert "as a worsening that may not be believed" in made.believe
    assert not any(str(engine.pid) in c.where for c in made.changes)
    assert max(map(len, render(made, "terminal").splitlines())) <= 80
