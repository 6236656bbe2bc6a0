"""Folders of such files through the whole analysis: nodes, times and joins that no parser can know alone."""

from __future__ import annotations

import pytest

from forensics.analysis import analyze
from forensics.analysis.ingest import node_of, read_inputs
from forensics.analysis.placing import machines, place
from forensics.model import ConfigValue, GpuProcess, GpuSample, KernelEvent, KernelSpan, LogSpan, MappedLibrary, Outcome, RankPlace
from forensics.model.times import iso
from tests.analysis.inputs import samples as s

ENGINE_LOG = "".join(
    f"(EngineCore pid=7100) INFO 03-02 16:{m:02d}:00 [core.py:58] Initializing a V1 LLM engine (v0.12.0) 2026-03-02\n" for m in range(3)
)


def folder(tmp_path, files: dict[str, str]):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return read_inputs([tmp_path])


@pytest.mark.parametrize(
    ("names", "name", "node"),
    [
        (["node4.log", "env.txt"], "env.txt", "node4"),
        (["node4.log", "dmesg.log"], "dmesg.log", "node4"),
        (["serve.log", "rank0.maps.txt"], "rank0.maps.txt", "serve"),
        (["node4-head.log", "node5-worker.log", "env.txt"], "env.txt", "env"),
        (["node4.log", "node5.gpu.csv"], "node5.gpu.csv", "node5"),
        (["worker-0.log", "worker-0.top.txt"], "worker-0.top.txt", "worker-0"),
        (["node4.log.2.gz", "node4.log.1", "worker.pyspy.txt"], "worker.pyspy.txt", "node4"),
        (["env.txt"], "env.txt", "env"),
    ],
)
def test_a_file_that_names_no_machine_is_of_the_only_one(names, name, node):
    assert place(name, machines(names, node_of), node_of) == node


def test_everything_of_a_mailed_folder_lands_on_its_machine(tmp_path):
    case = folder(
        tmp_path,
        {"node4.log": ENGINE_LOG, "env.txt": s.ENV, "rank3.maps.txt": s.MAPS, "notes.txt": "it hung again\n"},
    )
    assert {c.node for c in case.of(ConfigValue)} == {"node4"} == {m.node for m in case.of(MappedLibrary)}
    assert any("notes.txt" in line and "not recognised" in line for line in case.unread)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("node4.uptime.txt", "2026-03-02 16:18:51\n"),
        ("node4.stat.txt", "cpu  1 0 1 1\nbtime 1772468331\n"),
        ("node4.kernel.log", s.JOURNAL),
    ],
)
def test_lines_that_count_from_boot_are_dated_by_whatever_tells_the_boot(tmp_path, name, text):
    case = folder(tmp_path, {"node4.log": ENGINE_LOG, "node4.dmesg.txt": s.DMESG, name: text})
    (event,) = [e for e in case.of(KernelEvent) if e.since_boot_ns is not None and "Xid" in e.text]
    assert event.at is not None and event.at.earliest_ns <= 1772468431_500_000_000 <= event.at.latest_ns + 1_000_000_000
    assert all(span.at is not None for span in case.of(KernelSpan))


def test_without_a_boot_they_stay_undated(tmp_path):
    case = folder(tmp_path, {"node4.log": ENGINE_LOG, "node4.dmesg.txt": s.DMESG})
    assert {e.at for e in case.of(KernelEvent)} == {None}


def test_the_present_boot_does_not_date_the_one_before(tmp_path):
    case = folder(tmp_path, {"node4.previous-boot.dmesg.txt": s.DMESG, "node4.uptime.txt": "2026-03-02 16:18:51\n"})
    assert {e.at for e in case.of(KernelEvent)} == {None}


def test_two_words_on_the_boot_that_disagree_date_nothing(tmp_path):
    case = folder(
        tmp_path, {"node4.dmesg.txt": s.DMESG, "node4.uptime.txt": "2026-03-02 16:18:51\n", "node4.boot.txt": "2026-02-02 16:18:51\n"}
    )
    assert {e.at for e in case.of(KernelEvent)} == {None}


def test_ranks_processes_and_gpus_are_joined(tmp_path):
    case = folder(
        tmp_path,
        {
            "node4.gpu.csv": s.GPU_CSV,
            "node4.apps.csv": s.COMPUTE_APPS,
            "node4.ranks.txt": "rank 1 pid 7121\nrank 0 pid 7122\nrank 7 pid 1\n",
        },
    )
    assert {(p.pid, p.index) for p in case.of(GpuProcess)} == {(7121, 1), (7122, 0)}
    assert {g.index: g.pids for g in case.of(GpuSample)} == {0: (7122,), 1: (7121,)}
    assert {p.rank: (p.pci, p.gpu) for p in case.of(RankPlace)} == {1: ("0000:3b:00.0", 1), 0: ("0000:19:00.0", 0), 7: ("", None)}


def test_a_gpu_listing_of_one_node_is_no_reading_of_another(tmp_path):
    for node in ("node4", "node5"):
        (tmp_path / f"{node}.log").write_text(ENGINE_LOG)
    (tmp_path / "node4.gpu.csv").write_text(s.GPU_CSV)
    words = {(c.node, c.outcome) for c in analyze([tmp_path]).coverage.cells if c.source == "gpu"}
    assert ("node5", Outcome.OK) not in words


@pytest.mark.parametrize(("parser", "name", "text"), s.SAMPLES, ids=[f"{p}-{n}" for p, n, _ in s.SAMPLES])
def test_each_input_beside_a_log_ends_in_a_report(tmp_path, parser, name, text):
    """An analysis of one log and one such file ends in a report, whatever the file is."""
    (tmp_path / "node4.log").write_text(ENGINE_LOG)
    (tmp_path / f"node4.{name}").write_text(text)
    report = analyze([tmp_path])
    assert not [line for line in report.unread if "gave up" in line]


def test_a_date_that_only_a_gpu_listing_has_gives_the_logs_their_year(tmp_path):
    log = ENGINE_LOG.replace("2026-03-02", "today")
    for name, text in (("node4.gpu.csv", s.GPU_CSV.replace("2026/", "2025/")), ("node4.smi.txt", s.GPU_TABLE.replace("2026", "2025"))):
        folder_ = tmp_path / name
        folder_.mkdir()
        case = folder(folder_, {"node4.log": log, name: text})
        (span,) = case.of(LogSpan)
        assert iso(span.first_ns)[:10] == "2025-03-02"


def test_what_lies_beyond_the_bound_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("forensics.analysis.ingest.TEXT_BYTES", 100)
    case = folder(tmp_path, {"node4.df.txt": s.DF_H})
    assert any("node4.df.txt: only its first" in line for line in case.unread)
