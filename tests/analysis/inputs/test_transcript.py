"""What somebody copied out of a terminal: several commands in one file."""

from __future__ import annotations

import pytest

from forensics.analysis import parse
from forensics.model import FileSystemUse, GpuFault, GpuSample, MemorySample, ProcessState, ShmSegment, ThreadWait
from tests.analysis.inputs import samples as s
from tests.analysis.inputs.test_machine import of, read, when


@pytest.mark.parametrize(
    "prompt", ["$ {}", "root@gpu-a:~# {}", "[root@gpu-a ~]# {}", "+ {}", "=== {} ===", "--- {} ---", "##### {} #####", "> {}"]
)
def test_each_output_goes_to_its_parser(prompt):
    parts = [
        ("date", "Mon Mar  2 16:20:31 UTC 2026\n"),
        ("df -h /dev/shm", s.DF_H),
        ("ls -la /dev/shm", s.SHM),
        ("nvidia-smi", s.GPU_FAULT),
    ]
    parts += [("cat /proc/7121/stack", s.STACK), ("free -h", s.FREE), ("ps aux", s.PS_AUX), ("lscpu", "Model name: a CPU\n")]
    text = "".join(prompt.format(command) + "\n" + output for command, output in parts)
    sink = read(text, "session.txt")
    assert [len(of(sink, k)) for k in (FileSystemUse, ShmSegment, GpuFault, MemorySample, ProcessState, ThreadWait)] == [3, 2, 1, 1, 3, 1]
    assert {when(o) for o in sink.observations} == {"2026-03-02T16:20:31Z"}
    assert of(sink, ThreadWait)[0].pid == 7121
    fault = of(sink, GpuFault)[0]
    number = int(fault.ref.locator.removeprefix("line "))
    assert "Unable to determine" in text.split("\n")[number - 1], "lines are counted in the file"
    assert ["lscpu" in note and "not recognised" in note for note in sink.notes] == [True]


def test_one_tool_asked_twice_gives_two_samples():
    sink = read(f"$ ps aux\n{s.PS_AUX}$ sleep 5\n$ ps aux\n{s.PS_AUX}", "x.txt")
    assert [p.sample for p in of(sink, ProcessState) if p.pid == 7121] == [0, 1]


def test_files_that_tail_names():
    text = f"==> /proc/meminfo <==\n{s.MEMINFO}\n==> /proc/7121/limits <==\n{s.LIMITS}"
    sink = read(text, "x.txt")
    assert len(of(sink, MemorySample)) == 1 and len(sink.observations) == 4


@pytest.mark.parametrize(
    "text",
    [
        "# free text about the incident\nit hung\n",
        "=== Running tests ===\n2026-03-02 10:00:00 INFO ok\n",
        "$ vllm serve model\nINFO 03-02 10:00:00 [api_server.py:1] x\n",
        "## for the record\n",
    ],
)
def test_headings_of_other_texts_are_none(text):
    found = parse.find("", "a.txt", text)
    assert found is None or found.name != "transcript"


@pytest.mark.parametrize(("parser", "name", "text"), s.SAMPLES)
def test_one_output_is_no_transcript(parser, name, text):
    assert not parse.TRANSCRIPT.recognise(name, text[:8192])


def test_a_damaged_output_costs_none_of_the_others():
    damaged = '$ kubectl get pods -o json\n{"apiVersion": "v1", "kind": "PodList", "items": [\n$ df -h /dev/shm\n'
    sink = read(damaged + s.DF_H, "session.txt")
    assert len(of(sink, FileSystemUse)) == 3
    assert [n.startswith("session.txt: pods parser gave up") for n in sink.notes] == [True]


def test_ranges_of_lines_are_counted_in_the_file():
    sink = read(f"$ uptime\n\n$ nvidia-smi\n{s.GPU_TABLE}", "session.txt")
    lines = f"$ uptime\n\n$ nvidia-smi\n{s.GPU_TABLE}".split("\n")
    first, last = of(sink, GpuSample)[0].ref.locator.removeprefix("lines ").split("-")
    assert "00000000:" in lines[int(first) - 1] and "MiB" in lines[int(last) - 1]
