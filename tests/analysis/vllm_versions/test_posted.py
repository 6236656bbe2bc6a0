"""Logs as people post them: cut at both ends, without times, several processes in one file."""

from __future__ import annotations

from pathlib import Path

from tests.analysis.vllm_versions.test_versions import causes, report, strong

REFUSED = """\
(EngineCore_DP0 pid=8201) ERROR 02-11 06:40:12 [core.py:718]   File "/opt/vllm/v1/worker/gpu_worker.py", line 180, in init_device
(EngineCore_DP0 pid=8201) ERROR 02-11 06:40:12 [core.py:718]     raise ValueError(
(EngineCore_DP0 pid=8201) ERROR 02-11 06:40:12 [core.py:718] ValueError: Free memory on device (11.2/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.
(EngineCore_DP0 pid=8201) Process EngineCore_DP0:
(EngineCore_DP0 pid=8201) Traceback (most recent call last):
"""
OUT_OF_MEMORY = """\
(EngineCore pid=8201) ERROR 02-11 06:40:12 [core.py:1136]     return torch.ops._C.repack(
(EngineCore pid=8201) ERROR 02-11 06:40:12 [core.py:1136] RuntimeError: CUDA driver error: out of memory
(EngineCore pid=8201) Traceback (most recent call last):
(EngineCore pid=8201)   File "/usr/lib/python3.12/multiprocessing/process.py", line 314, in _bootstrap
"""


def test_a_refused_device_is_a_failed_start_though_the_line_that_says_so_was_cut_off(tmp_path: Path) -> None:
    told = report(tmp_path, node0__log=REFUSED)
    assert told.verdict.state == "dead"
    assert causes(told) == {"gpu-oom"}


def test_a_log_that_is_cut_after_an_allocation_failed_does_not_say_that_the_engine_went_on(tmp_path: Path) -> None:
    told = report(tmp_path, node0__log=OUT_OF_MEMORY)
    (found,) = strong(told, "gpu-oom")
    assert "went on" not in found.title
