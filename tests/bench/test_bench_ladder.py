"""The stack ladder against py-spy itself: what the look at /proc, the kernel waits and the bookkeeping add to it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from test_bench import PROCESSES, Targets, dumps, result

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

ROUNDS = 6


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    targets = Targets()
    yield targets
    targets.close()


def ladder(ranks: list[int], **options: object) -> float:
    """Seconds that the stacks collector takes for one sample of all ranks, the start of its child included."""
    request = json.dumps({"targets": [{"pid": pid} for pid in ranks], "samples": 1, "options": options}).encode()
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-I", "-m", "collectors", "stacks"], input=request, capture_output=True, timeout=120, check=True)
    seconds = time.monotonic() - began
    assert done.stdout.count(b'"outcome":"OK"') >= len(ranks)
    return seconds


def start() -> float:
    """Seconds that a child needs to come up and find that it has nothing to do."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-I", "-m", "collectors", "stacks"], input=b"{}", capture_output=True, timeout=120, check=True)
    return time.monotonic() - began


def test_first_rung(targets: Targets) -> None:
    """Eight processes of 100 threads, 20 frames deep."""
    theirs, ours, starting = [], [], []
    for _ in range(ROUNDS):
        theirs.append(dumps(targets.ranks))
        ours.append(ladder(targets.ranks))
        starting.append(start())
    details = f"{min(ours) * 1e3:.0f} ms and {min(theirs) * 1e3:.0f} ms; {min(starting) * 1e3:.0f} ms of it are the start of the child"
    result(
        f"stacks and kernel waits of {PROCESSES} processes / as many py-spy dumps", min(ours) / min(theirs), 1.2, limit=2.5, details=details
    )


def test_one_process(targets: Targets) -> None:
    """One at a time, without the start of the collector: the rung itself."""
    theirs, ours, starting = [], [], []
    one = targets.ranks[:1]
    for _ in range(3 * ROUNDS):
        theirs.append(dumps(one))
        ours.append(ladder(one))
        starting.append(start())
    value = (min(ours) - min(starting)) / min(theirs)
    details = f"{(min(ours) - min(starting)) * 1e3:.1f} ms and {min(theirs) * 1e3:.1f} ms"
    result("stacks and kernel waits of one process / one py-spy dump", value, 1.2, limit=2.5, details=details)


def test_added_pause(targets: Targets) -> None:
    """The longest time for which a rank was kept from running."""
    theirs, ours = [], []
    for _ in range(ROUNDS):
        targets.gaps()
        dumps(targets.ranks)
        theirs.append(targets.gaps()[0])
        ladder(targets.ranks)
        ours.append(targets.gaps()[0])
    details = f"{min(ours) * 1e3:.1f} ms and {min(theirs) * 1e3:.1f} ms"
    result("pause of a process by the ladder / by py-spy", min(ours) / min(theirs), 1.2, limit=3.0, details=details)
