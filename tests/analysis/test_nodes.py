"""Nodes on which no engine was recognised: what is known of the machine is said all the same."""

from __future__ import annotations

import json
from pathlib import Path

from forensics.analysis import analyze
from tests.analysis.conftest import Told


def test_a_kernel_log_alone_still_says_whether_the_machine_is_sound(tmp_path: Path) -> None:
    (tmp_path / "n4.kernel.log").write_text("Sep  1 08:00:00 n4 kernel: eth0: Link up\n")
    told = Told(analyze([tmp_path]))
    assert told.by_id["host-stable"].nodes == ("n4",)
    assert told.state == "unknown"
    assert told.root == (None, None)


def test_heat_is_told_without_an_engine(tmp_path: Path) -> None:
    base = "/sys/class/thermal/thermal_zone6"
    files = {
        f"{base}/type": "acpitz",
        f"{base}/temp": "103000",
        f"{base}/trip_point_0_type": "critical",
        f"{base}/trip_point_0_temp": "105000",
    }
    (tmp_path / "n4.json").write_text(json.dumps({"at_ns": 5, "files": files, "links": {}, "errors": {}}))
    told = Told(analyze([tmp_path]))
    assert told.grade("thermal-high") == "established"
    assert told.by_id["thermal-high"].engine == ""
