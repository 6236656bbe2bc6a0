"""Builds and installed files in a report: found, clear, and not to be told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forensics.analysis import analyze
from forensics.report.json import as_dict
from tests.analysis.scene import API, CORE, T0, WORKER, Scene

SITE = "/opt/env/lib/python3.12/site-packages"
EVERYBODY = (API, CORE, WORKER, WORKER + 1)


def process(
    pid: int, vllm: str = "0.32.0", torch: str = "2.13.0", nccl: tuple[str, str] = ("2.27.5", "aa11"), **more: Any
) -> dict[str, Any]:
    def package(name: str, version: str) -> dict[str, Any]:
        return {"package": name, "folder": SITE, "version": version, "commit": "", "changed_ns": T0 - 10**15, "owners": [name], **more}

    library = {"path": f"{SITE}/nvidia/nccl/lib/libnccl.so.2", "deleted": False, "version": nccl[0], "build_id": nccl[1]}
    body = {"pid": pid, "python": "3.12", "process_started_ns": T0 - 10**12, "image_started_ns": T0 - 10**12, "driver": "570.86.15"}
    return {**body, "packages": [package("vllm", vllm), package("torch", torch)], "libraries": [library]}


def check(name: str = "vllm", **more: Any) -> dict[str, Any]:
    usual = {"version": "0.32.0", "folder": SITE, "named": 3000, "hashed": 3000, "sources": 2600, "sources_hashed": 2600}
    return {"distribution": name, **usual, "modified": [], "missing": [], "added": [], "differing": 0, "walked": True, "cut": "", **more}


def file(path: str, changed_ns: int = T0 - 10**15) -> dict[str, Any]:
    return {"path": path, "mtime_ns": changed_ns, "ctime_ns": changed_ns, "size": 1}


def add(scene: Scene, processes: list[dict[str, Any]], checks: list[dict[str, Any]], pids: tuple[int, ...] = EVERYBODY) -> Scene:
    for told in processes:
        scene.extra.append(("builds", f"builds/pid-{told['pid']}.json", f"builds|{json.dumps(told)}", told["pid"]))
    body = json.dumps({"pids": pids, "folders": [SITE], "distributions": [], "checks": checks})
    scene.extra.append(("builds", "builds/environment-1.json", f"environment|{body}", None))
    return scene


def everybody(**more: Any) -> list[dict[str, Any]]:
    return [process(pid, **more) for pid in EVERYBODY]


def test_the_same_builds_everywhere_and_no_file_touched(scene, tell):
    told = tell(add(scene(), everybody(), [check()]))
    assert told.rule("version_skew") == "CLEAR" and told.rule("installed_code") == "CLEAR"
    builds = {b["component"]: b for b in as_dict(told.report)["engines"][0]["builds"]}
    assert list(builds)[:2] == ["vllm", "torch"]
    assert (builds["vllm"]["version"], builds["vllm"]["pids"], builds["vllm"]["ranks"]) == ("0.32.0", list(EVERYBODY), [0, 1])
    assert (builds["nccl"]["version"], builds["nccl"]["build_id"], builds["nccl"]["via"]) == ("2.27.5", "aa11", "maps")
    assert builds["nvidia.ko"]["version"] == "570.86.15"


def test_files_that_differ_from_the_record_are_listed_with_who_has_them(scene, tell):
    differing = check(modified=[file("vllm/v1/core.py")], added=[file("vllm/hotfix.py")], missing=[file("vllm/README.md")], differing=3)
    told = tell(add(scene(), everybody(), [differing]))
    found = told.by_id["installed-code-modified"]
    assert found.grade.value == "established" and found.ranks == (0, 1) and set(found.pids) == set(EVERYBODY)
    assert "1 modified (vllm/v1/core.py), 1 added (vllm/hotfix.py)" in found.title and "README" not in found.title
    assert "older text" not in found.does_not_show
    assert any("vllm/v1/core.py" in ref.quote for ref in found.because)


def test_a_file_that_changed_after_the_start_may_not_be_what_runs(scene, tell):
    told = tell(add(scene(), everybody(), [check(modified=[file("vllm/v1/core.py", T0 - 10**11)], differing=1)]))
    found = told.by_id["installed-code-modified"]
    assert "vllm/v1/core.py changed at 2026-09-01T09:58:20Z, after they started" in found.does_not_show


@pytest.mark.parametrize(
    ("checks", "pids", "why"),
    [
        ([], EVERYBODY, "no record"),
        ([check(sources_hashed=900, hashed=900, cut="no bytes left")], EVERYBODY, "900 of 2600 sources compared: no bytes left"),
        ([check(walked=False)], EVERYBODY, "compared"),
        ([check(), check("torch", hashed=0, sources_hashed=0, cut="no time left")], EVERYBODY, "torch"),
        ([check()], EVERYBODY[:3], "rank 1"),
    ],
    ids=["nothing", "cut", "not walked", "torch cut", "one rank not read"],
)
def test_what_was_not_compared_is_not_called_unmodified(scene, tell, checks, pids, why):
    told = tell(add(scene(), everybody(), checks, pids))
    (result,) = [r for r in told.report.rules if r.rule == "installed_code"]
    assert result.status.value == "INCONCLUSIVE" and why in result.reason, result
    assert "installed-code-modified" not in told.by_id


def test_a_missing_document_or_library_that_is_not_loaded_is_no_modified_code(scene, tell):
    assert "installed-code-modified" not in tell(add(scene(), everybody(), [check(missing=[file("vllm/LICENSE")], differing=1)])).by_id


def test_a_library_that_conda_has_moved_is_not_modified_by_anybody(scene, tell):
    moved = [file("vllm/_C.abi3.so")]
    assert "installed-code-modified" not in tell(add(scene(), everybody(), [check(modified=moved, installer="conda", differing=1)])).by_id
    assert "installed-code-modified" in tell(add(scene(), everybody(), [check(modified=moved, installer="pip", differing=1)])).by_id


def test_without_the_collector_nobody_can_tell(scene, tell):
    assert tell(scene()).rule("installed_code") == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("odd", "component", "said"),
    [
        ({"vllm": "0.31.0"}, "vllm", ("0.31.0 on rank 1", "0.32.0 on rank 0")),
        ({"torch": "2.12.0"}, "torch", ("2.12.0 on rank 1", "2.13.0 on rank 0")),
        ({"nccl": ("2.26.2", "bb22")}, "nccl", ("2.26.2 on rank 1", "2.27.5 on rank 0")),
        ({"nccl": ("2.27.5", "bb22")}, "nccl", ("2.27.5 build bb22 on rank 1", "2.27.5 build aa11 on rank 0")),
    ],
    ids=["engine", "torch", "nccl", "another build of the same version"],
)
def test_one_rank_with_another_build(scene, tell, odd, component, said):
    told = tell(add(scene(), [*(process(pid) for pid in EVERYBODY[:3]), process(WORKER + 1, **odd)], [check()]))
    found = told.by_id["version-skew"]
    assert (
        found.grade.value == "established"
        and found.title.startswith(f"{component} is not the same")
        and all(s in found.title for s in said)
    )
    assert len([b for b in told.report.engines[0].builds if b.component == component]) == 2
    assert told.root == (None, None), "a difference is no cause"


def test_a_process_that_holds_two_versions_shares_one_of_them(scene, tell):
    both = process(WORKER + 1)
    both["libraries"].append({"path": "/opt/nccl/libnccl.so.2", "version": "2.26.2", "build_id": "bb22"})
    assert "version-skew" not in tell(add(scene(), [*(process(pid) for pid in EVERYBODY[:3]), both], [check()])).by_id


def test_a_package_that_was_replaced_after_the_start_does_not_tell_what_runs(scene, tell):
    odd = process(WORKER + 1, vllm="0.33.0", changed_ns=T0 - 10**10)
    found = tell(add(scene(), [*(process(pid) for pid in EVERYBODY[:3]), odd], [check()])).by_id["version-skew"]
    assert found.grade.value == "possible" and "replaced after the start" in found.does_not_show


def test_a_guessed_folder_is_not_enough_to_establish(scene, tell):
    odd = process(WORKER + 1, vllm="0.31.0", inferred=True)
    assert tell(add(scene(), [*(process(pid) for pid in EVERYBODY[:3]), odd], [check()])).grade("version-skew") == "supported"


def test_a_process_whose_build_was_not_read_leaves_it_open(scene, tell):
    told = tell(add(scene(), everybody()[:3], [check()]))
    (result,) = [r for r in told.report.rules if r.rule == "version_skew"]
    assert result.status.value == "INCONCLUSIVE" and "rank 1" in result.reason


def test_the_clear_word_needs_the_whole_engine(scene, tell):
    """The start-up line names two nodes, of which one was captured."""
    whole = scene()
    whole.lines[0] = whole.lines[0].replace("'tensor_parallel_size': 2", "'tensor_parallel_size': 2, 'nnodes': 2")
    told = tell(add(whole, everybody(), [check()]))
    assert not told.report.coverage.complete
    assert told.rule("installed_code") == told.rule("version_skew") == "INCONCLUSIVE"


# from logs alone

CONFIG = "config: model='/m', tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1"


def logs(tmp_path, head: list[str], follower: list[str]):
    folder = tmp_path / "logs"
    folder.mkdir()
    for node, lines in (("node0", head), ("node1", follower)):
        texts = [
            f"({who}) INFO 09-01 10:00:0{i} [x.py:1] {text}\n" for i, (who, _, text) in enumerate(line.partition(": ") for line in lines)
        ]
        (folder / f"{node}.log").write_text("".join(texts))
    return analyze([folder])


def skew(report) -> list[Any]:
    return [f for f in report.findings if f.id == "version-skew"]


PLACES = "world_size=2 rank={0} local_rank=0 distributed_init_method=tcp://192.0.2.1:29501 backend=nccl"


HEAD = [f"EngineCore pid=200: Initializing a V1 LLM engine (v0.32.0) with {CONFIG}", f"Worker_TP0 pid=201: {PLACES.format(0)}"]
FOLLOWER = [f"Worker_TP1 pid=300: {PLACES.format(1)}"]


def test_nodes_whose_logs_name_two_versions_of_nccl(tmp_path):
    head = [*HEAD, "Worker_TP0 pid=201: vLLM is using nccl==2.27.5"]
    (found,) = skew(logs(tmp_path, head, [*FOLLOWER, "Worker_TP1 pid=300: vLLM is using nccl==2.26.2"]))
    assert found.grade.value == "supported" and "2.27.5 on rank 0 (node0)" in found.title and "2.26.2 on rank 1 (node1)" in found.title


def test_nodes_whose_logs_name_the_same(tmp_path):
    head = [*HEAD, "Worker_TP0 pid=201: vLLM is using nccl==2.27.5"]
    report = logs(tmp_path, head, [*FOLLOWER, "Worker_TP1 pid=300: vLLM is using nccl==2.27.5"])
    assert not skew(report)
    builds = {(b.component, b.version, b.via, b.nodes) for b in report.engines[0].builds}
    assert builds == {("vllm", "0.32.0", "log", ("node0",)), ("nccl", "2.27.5", "log", ("node0", "node1"))}


def test_two_engines_of_different_versions_on_one_host_are_no_skew(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, pid, version in (("a", 100, "0.32.0"), ("b", 900, "0.31.0")):
        lines = f"(EngineCore pid={pid}) INFO 09-01 10:00:00 [core.py:1] Initializing a V1 LLM engine (v{version}) with config: model='/m', tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1\n"
        (folder / f"{name}.log").write_text(lines)
    assert not skew(analyze([folder]))


def test_nccl_says_itself_that_versions_differ(tmp_path):
    said = "Worker_TP0 pid=201: node0:201:201 [0] init.cc:1043 NCCL WARN Mismatched NCCL version detected : rank 1 version 22707 rank 0 version 23007"
    (found,) = skew(logs(tmp_path, [*HEAD, said], FOLLOWER))
    assert found.grade.value == "established" and found.ranks == (1, 0) and "22707 and 23007" in found.title
