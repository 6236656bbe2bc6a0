from __future__ import annotations

import os
from pathlib import Path

import pytest

from forensics.capture import _priority
from forensics.capture.plan import PROMPT


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "autogroup"
    monkeypatch.setattr(_priority, "AUTOGROUP", file)
    return file


def test_the_session_s_group_is_raised_and_put_back(group: Path) -> None:
    group.write_text("/autogroup-7 nice 0\n")
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with _priority.Priority():
        assert group.read_text() == str(PROMPT)
    assert group.read_text() == "0"
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_between_two_samples_the_group_is_as_it_was(group: Path) -> None:
    group.write_text("/autogroup-7 nice 0\n")
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with _priority.Priority() as priority:
        priority.prompt(False)
        assert (group.read_text(), os.getpriority(os.PRIO_PROCESS, 0)) == ("0", before)
        priority.prompt(True)
        assert group.read_text() == str(PROMPT)


def test_a_group_that_is_ahead_already_is_left_alone(group: Path) -> None:
    group.write_text("/autogroup-7 nice -15\n")
    with _priority.Priority():
        assert group.read_text() == "/autogroup-7 nice -15\n"
    assert group.read_text() == "/autogroup-7 nice -15\n"


def test_without_groups_or_permission_nothing_is_said(group: Path) -> None:
    with _priority.Priority():
        assert not group.exists()


def test_two_captures_at_once_put_back_what_the_first_found(group: Path) -> None:
    group.write_text("/autogroup-7 nice 0\n")
    with _priority.Priority():
        group.write_text(f"/autogroup-7 nice {PROMPT}\n")  # as the kernel shows it
        with _priority.Priority():
            pass
        assert str(PROMPT) in group.read_text()
    assert group.read_text() == "0"
