"""What is live in memory: verdicts on code, the four witnesses of a patch, their contradictions, and a failure with the patch live."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from forensics.analysis.livecode import Runs, verdict
from forensics.analysis.patched import Witness
from forensics.analysis.rules.patch import _failed_with
from forensics.model import CodePlace, EngineProcess, EvidenceRef, FunctionReading, Grade, ProcessInfo, Role

from .scene import API, CORE, IN_STEP, WORKER

SITE, PLUGIN = "/site/vllm/x.py", "/plug/tuning.py"
OWN = CodePlace(file=SITE, line=40, name="Spin.wait", sha256="a" * 64, own_file=True)
OTHER = CodePlace(file=PLUGIN, line=8, name="wait", sha256="b" * 64, own_file=False)
DEFINED = CodePlace(file=SITE, line=40, sha256="a" * 64)


def reading(*chain: CodePlace, **about: Any) -> FunctionReading:
    about = {"status": "read", "definitions": (DEFINED,), "compiled": True, "asked": True, "same_python": True, "python": "3.11.7"} | about
    about |= {"node": "n", "ref": EvidenceRef(source="x", locator="y"), "module": "vllm.x", "function": "Spin.wait", "chain": chain}
    return FunctionReading(**({"changed_ns": 5, "image_started_ns": 9} | about))


@pytest.mark.parametrize(
    ("seen", "runs", "grade"),
    [
        (reading(OWN), Runs.AS_ON_DISK, Grade.ESTABLISHED),
        (reading(OTHER), Runs.OTHER_FILE, Grade.ESTABLISHED),
        (reading(OTHER, OWN), Runs.OTHER_FILE, Grade.ESTABLISHED),
        # another Python compiles nothing: what file the code names needs no compiler
        (reading(OTHER, compiled=False, definitions=(msgspec.structs.replace(DEFINED, sha256=""),)), Runs.OTHER_FILE, Grade.ESTABLISHED),
        (reading(OWN, compiled=False), Runs.OWN_FILE, Grade.ESTABLISHED),
        (reading(msgspec.structs.replace(OWN, sha256="c" * 64)), Runs.DIFFERS, Grade.SUPPORTED),
        # a bug fix release may compile the same text to other instructions
        (reading(msgspec.structs.replace(OWN, sha256="c" * 64), same_python=False), Runs.DIFFERS, Grade.POSSIBLE),
        # what the file was like when the process read it is unknown
        (reading(msgspec.structs.replace(OWN, sha256="c" * 64), changed_ns=50), Runs.STALE, Grade.SUPPORTED),
        (reading(OTHER, changed_ns=50), Runs.OTHER_FILE, Grade.POSSIBLE),
        (reading(msgspec.structs.replace(OWN, sha256="")), Runs.OWN_FILE, Grade.ESTABLISHED),
        # the file itself gives a reason for code of another file
        (reading(OTHER, OWN, definitions=(msgspec.structs.replace(DEFINED, decorated=True),)), Runs.WRAPPED, Grade.ESTABLISHED),
        (reading(OTHER, rebound=(12,)), Runs.UNCLEAR, Grade.ESTABLISHED),
        (reading(OTHER, definitions=()), Runs.UNCLEAR, Grade.ESTABLISHED),
        (reading(OTHER, inherited_from="vllm.y.Base"), Runs.UNCLEAR, Grade.ESTABLISHED),
        (reading(msgspec.structs.replace(OTHER, own_file=None)), Runs.UNCLEAR, Grade.ESTABLISHED),
        (reading(status="not-imported"), Runs.NOT_IMPORTED, Grade.ESTABLISHED),
        (reading(status="not-there"), Runs.NOT_THERE, Grade.ESTABLISHED),
        (reading(status="not-python"), Runs.UNREADABLE, Grade.ESTABLISHED),
    ],
)
def test_what_runs(seen: FunctionReading, runs: Runs, grade: Grade) -> None:
    told = verdict(seen)
    assert (told.runs, told.grade) == (runs, grade)
    assert told.where == (f"{seen.chain[0].file}:{seen.chain[0].line}" if seen.chain else "")


def test_one_of_two_definitions_is_enough_and_one_that_was_not_compiled_leaves_it_open() -> None:
    second = msgspec.structs.replace(DEFINED, line=80, sha256="c" * 64)
    assert verdict(reading(OWN, definitions=(second, DEFINED))).runs is Runs.AS_ON_DISK
    assert verdict(reading(OWN, definitions=(second, msgspec.structs.replace(DEFINED, sha256="")))).runs is Runs.OWN_FILE


def code(replaced: bool = False, **about: Any) -> dict[str, Any]:
    chain = {"name": "wait", "file": PLUGIN, "line": 8, "sha256": "b" * 64, "own_file": False}
    if not replaced:
        chain = {"name": "Spin.wait", "file": SITE, "line": 40, "sha256": "a" * 64, "own_file": True}
    disk = {"path": SITE, "changed_ns": 5, "defined": [{"line": 40, "decorated": False, "code_sha256": "a" * 64}], "compiled": True}
    return {"module": "vllm.x", "function": "Spin.wait", "status": "read", "module_file": SITE, "chain": [chain], "disk": disk} | about


def value(*values: float, **about: Any) -> dict[str, Any]:
    read = [{"value": one, "type": "float", "equal": one == 0.002, "count": 1} for one in values]
    return {"patch": "spin", "object": "Spin.busy_s", "status": "read", "readings": read, "searched": True} | about


def put(s, live: dict[int, dict[str, Any]], patches: str = "", files: dict[int, dict[str, Any]] | None = None) -> None:
    """What the collector read in each process: "code" and "constants" in memory, and the file."""
    if patches:
        s._add("patches", "patches/patches.toml", "patches-toml", patches)
    for pid, found in live.items():
        whole = {"python": "3.11.7", "ours": "3.11.7", "image_started_ns": 9, **found}
        s._add("patches", f"patches/live-{pid}.json", "patch-live", json.dumps(whole), pid=pid)
    for pid, row in (files or {}).items():
        row = {"patch": "spin", "path": SITE, "exists": True, "mtime_ns": 5, "ctime_ns": 5, "image_started_ns": 9, "contains": True} | row
        s._add("patches", f"patches/pid-{pid}.json", "patch-witness", json.dumps([row]), pid=pid)


def test_a_replaced_function_is_named_with_its_place_and_its_rank(scene, tell):
    s = scene()
    put(s, {WORKER: {"code": [code()]}, WORKER + 1: {"code": [code(replaced=True)]}})
    told = tell(s)
    found = told.by_id["function-monkeypatched"]
    assert (found.grade, found.ranks, found.pids) == (Grade.ESTABLISHED, (1,), (WORKER + 1,))
    assert f"{PLUGIN}:8" in found.title and "not replaced in rank 0" in found.title
    assert found.severity.value == "info" and found.role.value == "context"
    assert told.rule("monkeypatch") == "FIRED" and told.rule("patch") == "NOT_APPLICABLE"


def test_functions_of_their_own_files_are_no_finding(scene, tell):
    s = scene()
    put(s, {WORKER: {"code": [code()]}, WORKER + 1: {"code": [code(disk=None)]}, CORE: {"code": [code(status="not-imported", chain=[])]}})
    told = tell(s)
    assert told.rule("monkeypatch") == "CLEAR" and told.grade("function-monkeypatched") is None


def test_without_a_look_into_memory_nobody_can_tell(scene, tell):
    s = scene()
    s.denied["patches"] = "not permitted to read the memory of the process"
    assert tell(s).rule("monkeypatch") == "INCONCLUSIVE"


HASH = '[[patch]]\nname = "spin"\nmodule = "vllm.x"\nfunction = "Spin.wait"\ncode_sha256 = "%s"\n'
CONTAINS = '[[patch]]\nname = "spin"\nmodule = "vllm.x"\nfunction = "Spin.wait"\ncontains = "busy"\n'
VALUE = '[[patch]]\nname = "spin"\nmodule = "vllm.x"\nlive = { object = "Spin.busy_s", equals = 0.002 }\n'
RANKS = (WORKER, WORKER + 1)


def test_the_hash_of_the_code_in_memory(scene, tell):
    s = scene()
    put(s, {WORKER: {"code": [code()]}, WORKER + 1: {"code": [code(replaced=True)]}}, HASH % ("b" * 64))
    told = tell(s)
    assert told.by_id["patch-live"].ranks == (1,) and told.by_id["patch-absent"].ranks == (0,)
    assert "function: live in rank 1; absent in rank 0" in told.by_id["patch-inconsistent"].title


def test_one_of_several_hashes_is_enough_and_a_wrapped_function_counts(scene, tell):
    s = scene()
    wrapped = code(replaced=True)
    wrapped["chain"].append(code()["chain"][0])
    patches = (HASH % "x").replace('code_sha256 = "x"', f'code_sha256 = ["{"c" * 64}", "{"a" * 64}"]')
    put(s, {WORKER: {"code": [code()]}, WORKER + 1: {"code": [wrapped]}}, patches)
    told = tell(s)
    assert set(told.by_id["patch-live"].ranks) == {0, 1} and told.grade("patch-absent") is None


def test_code_that_could_not_be_hashed_is_unreadable_and_not_absent(scene, tell):
    s = scene()
    hidden = code()
    hidden["chain"][0] |= {"sha256": "", "why": "a debugger has changed its instructions"}
    put(s, {WORKER: {"code": [hidden]}}, HASH % ("b" * 64))
    told = tell(s)
    assert told.grade("patch-absent") is None and "debugger" in told.by_id["patch-unreadable"].title


def test_a_file_that_holds_the_patch_beside_a_process_that_runs_something_else(scene, tell):
    s = scene()
    live = {WORKER: {"code": [code()]}, WORKER + 1: {"code": [code(replaced=True)]}}
    put(s, live, CONTAINS, {pid: {} for pid in RANKS})
    told = tell(s)
    title = told.by_id["patch-inconsistent"].title
    assert "its witnesses disagree in rank 1: file live, function absent" in title
    assert told.by_id["patch-absent"].ranks == (1,) and told.grade("function-monkeypatched") == "established"


def test_the_file_is_stale_and_memory_holds_what_was_there_before(scene, tell):
    s = scene()
    old = code()
    old["disk"] = {**old["disk"], "changed_ns": 50, "defined": [{"line": 40, "code_sha256": "c" * 64}]}
    put(s, {WORKER: {"code": [old]}}, CONTAINS, {WORKER: {"ctime_ns": 50}})
    told = tell(s)
    assert told.by_id["patch-stale"].ranks == (0,) and told.grade("patch-live") is None
    assert "file stale, function absent" in told.by_id["patch-inconsistent"].title
    assert told.grade("function-monkeypatched") is None, "nobody replaced it: the file did"


def test_a_patch_that_was_taken_back_on_disk_may_still_be_in_memory(scene, tell):
    s = scene()
    old = code()
    old["disk"] = {**old["disk"], "changed_ns": 50, "defined": [{"line": 40, "code_sha256": "c" * 64}]}
    put(s, {WORKER: {"code": [old]}}, CONTAINS, {WORKER: {"ctime_ns": 50, "contains": False}})
    told = tell(s)
    assert told.by_id["patch-stale"].ranks == (0,) and not {"patch-live", "patch-absent", "patch-inconsistent"} & set(told.by_id)


def test_values_of_objects(scene, tell):
    s = scene()
    put(s, {WORKER: {"constants": [value(0.002, 0)]}, WORKER + 1: {"constants": [value(1)]}}, VALUE)
    told = tell(s)
    # a class may have objects that rightly differ, and objects that nobody found: neither is established
    assert (told.by_id["patch-live"].ranks, told.grade("patch-live")) == ((0,), "supported")
    assert (told.by_id["patch-absent"].ranks, told.grade("patch-absent")) == ((1,), "supported")
    assert "0.002 (in 1), 0 (in 1)" in told.by_id["patch-live"].title
    assert told.grade("patch-inconsistent") == "supported"


def test_a_constant_of_a_module_is_established(scene, tell):
    s = scene()
    put(s, {pid: {"constants": [value(0.002, searched=False)]} for pid in RANKS}, VALUE)
    told = tell(s)
    assert told.grade("patch-live") == "established" and told.grade("patch-inconsistent") is None


@pytest.mark.parametrize("status", ["not-imported", "not-there"])
def test_a_process_without_the_object_says_nothing_unless_nobody_has_it(scene, tell, status):
    none = value(status=status, readings=[], error="no frame leads to a Spin")
    s = scene()
    put(s, {WORKER: {"constants": [value(0.002, searched=False)]}, API: {"constants": [none]}}, VALUE)
    told = tell(s)
    assert told.by_id["patch-live"].ranks == (0,) and not {"patch-absent", "patch-unreadable", "patch-inconsistent"} & set(told.by_id)
    s = scene()
    put(s, {pid: {"constants": [none]} for pid in (WORKER, API)}, VALUE)
    assert set(tell(s).by_id["patch-unreadable"].pids) == {WORKER, API}, "the name may be misspelt"


def test_a_search_that_was_cut_short_is_unreadable(scene, tell):
    s = scene()
    put(s, {WORKER: {"constants": [value(status="not-searched", readings=[], error="not found within 0.4 s of looking")]}}, VALUE)
    told = tell(s)
    assert "0.4 s" in told.by_id["patch-unreadable"].title and told.grade("patch-absent") is None


def test_a_failure_is_held_against_the_patch_only_where_it_was_live(scene, tell):
    for absent_in, expected in ((None, "established"), (WORKER, None)):
        s = scene()
        s.hang(1, IN_STEP)
        s.states[WORKER + 1, 0] = "T"
        put(s, {pid: {"code": [code(replaced=pid != absent_in)]} for pid in RANKS}, HASH % ("b" * 64))
        told = tell(s)
        assert told.grade("patch-live-and-failed") == expected
    assert "may still be a good change" in msgspec.json.encode(tell_failed(scene, tell)).decode()


def tell_failed(scene, tell):
    s = scene()
    s.hang(1, IN_STEP)
    s.states[WORKER + 1, 0] = "T"
    put(s, {pid: {"code": [code(replaced=True)]} for pid in RANKS}, HASH % ("b" * 64))
    found = tell(s).by_id["patch-live-and-failed"]
    assert set(found.pids) == set(RANKS) and found.role.value == "context"
    return found


def test_a_healthy_engine_with_the_patch_live_has_not_failed(scene, tell):
    s = scene()
    put(s, {pid: {"code": [code(replaced=True)]} for pid in RANKS}, HASH % ("b" * 64))
    told = tell(s)
    assert told.grade("patch-live") == "established" and told.grade("patch-live-and-failed") is None


def test_only_the_replica_that_stands_still_is_asked_whether_it_had_the_patch() -> None:
    """One data-parallel replica stalls, the other serves: what that one has says nothing of the failure."""
    ref = EvidenceRef(source="x", locator="y")
    stuck, serving = (EngineProcess(info=ProcessInfo(pid=pid, node="n"), role=Role.WORKER) for pid in (1, 2))
    stall = SimpleNamespace(grade=Grade.ESTABLISHED, because=[ref])
    view: Any = SimpleNamespace(events=lambda *names: [], stall=stall, standing=(stuck,))

    def failed(in_stuck: str, in_serving: str) -> list[int] | None:
        said = ((stuck, in_stuck), (serving, in_serving))
        found = _failed_with(view, [Witness("function", status, "", "n", process, ref) for process, status in said])
        return found and [w.process.pid for w in found[0] if w.process]

    assert failed("live", "absent") == [1] and failed("live", "live") == [1]
    assert failed("absent", "live") is None and failed("unreadable", "live") is None
