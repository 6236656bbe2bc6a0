"""Stacks of every target: one file a process and sample as `py-spy dump --json` prints them, beside what the kernel says of the
same threads at the same moment. With the option `native` also native frames, and the threads that never run Python.

How one target is read is in collectors._ladder; here, which ones are read when.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from collectors import _pyspy, _pystack
from collectors._contract import Emitter, Request, nothing_to_do, read_bounded
from collectors._ladder import Dump, NativeView
from collectors._probe import Probe, Tools
from collectors._spawn import Child, Pool, unstopped

TIMEOUT_S = 4.0
"""Bound of one py-spy. It takes 10 to 80 ms; without pausing, on a busy process, it has been seen to retry for 4.3 s."""
NATIVE_TIMEOUT_S = 8.0
PYSTACK_TIMEOUT_S = 10.0
"""It reads the symbols of every library of the target: seconds for one that maps all of CUDA."""
NATIVE_BUDGET_S = 30.0
"""Of all native readings of one sample together."""
PARALLEL_MAX = 4
PARALLEL_SATURATED = 8
"""On a saturated host each py-spy gets one task's share, so more of them end sooner: 8 x 100 threads on two processors beside
six spinners took 5.5 s one by one, 2.5 s by four, 1.3 s by eight."""


def side_by_side() -> int:
    """How many readers to run at once: one for every two processors, because one that shares its processor holds its target longer.

    Where the host is saturated and we could not raise our priority, many at once end sooner than one after the other.
    """
    processors = len(os.sched_getaffinity(0))
    try:
        running = int(read_bounded("/proc/loadavg", 256)[0].split()[3].split(b"/")[0])
    except (OSError, ValueError, IndexError):
        running = 0
    ahead = os.getpriority(os.PRIO_PROCESS, 0) < 0
    if running > 2 * processors and not ahead:
        return PARALLEL_SATURATED
    return max(1, min(PARALLEL_MAX, processors // 2))


def photograph(probes: Sequence[Probe], emit: Emitter) -> None:
    """Run all of them, a few at a time, and deliver each as soon as it is there."""
    waiting = list(probes)
    parallel = side_by_side()
    pool = Pool()
    running: dict[Child, Probe] = {}
    ready: list[Probe] = []
    try:
        while waiting or running or ready:
            while ready:  # not beside the next reader: what shares the processors with it makes it hold its target longer
                ready.pop(0).deliver(emit)
            while waiting and len(running) < parallel:
                probe = waiting.pop(0)
                with unstopped():
                    if probe.begin(pool) and probe.child:
                        running[probe.child] = probe
                    else:
                        ready.append(probe)
            for child in pool.wait():
                with unstopped():
                    probe = running.pop(child)
                    if probe.end(pool, child) or probe.child is None:
                        ready.append(probe)
                    else:
                        running[probe.child] = probe
    finally:  # told to stop in the middle: nothing of ours may go on holding a target
        for child in pool.close():
            if child in running:
                running[child].restore(child)


def _stop(signum: int, frame: object) -> None:
    raise SystemExit(128 + signum)


def collect(request: Request, emit: Emitter) -> None:
    """Options: `native` (true, or the pids concerned: native frames too, which hold a target for seconds; for what stands still).

    Paths of the programs: `py_spy`, `pystack`. Bounds in seconds: `timeout_s` of one py-spy, `native_timeout_s` of one
    `py-spy --native`, `pystack_timeout_s`, `native_budget_s` of all native readings of a sample.
    """
    targets = request.in_order()
    options = request.options
    signal.signal(signal.SIGTERM, _stop)
    if not targets:
        nothing_to_do(emit, "stacks")
        return
    if request.sysroot:
        for sample in request.sampling():
            for target in targets:
                with emit.attempt(target.name, pid=target.pid, sample=sample) as attempt:
                    attempt.end("ABSENT", "no live processes in a recorded tree")
        return
    asked = options.get("native", False)
    native = {target.pid for target in targets if asked is True or (isinstance(asked, list) and target.pid in asked)}
    tools = Tools(
        py_spy=_pyspy.find(str(options.get("py_spy", ""))),
        pystack_told=str(options.get("pystack", "")),
        native=False,
        timeout_s=float(options.get("timeout_s", TIMEOUT_S)),
        native_timeout_s=float(options.get("native_timeout_s", NATIVE_TIMEOUT_S)),
        pystack_timeout_s=float(options.get("pystack_timeout_s", PYSTACK_TIMEOUT_S)),
        native_until=0.0,
    )
    if native and not tools.pystack:
        with emit.attempt("native stacks") as attempt:
            attempt.end(*_pystack.NOT_FOUND)
    for sample in request.sampling():
        until = time.monotonic() + float(options.get("native_budget_s", NATIVE_BUDGET_S))
        dumps = [Dump(target, sample, tools._replace(native=target.pid in native, native_until=until)) for target in targets]
        photograph(dumps, emit)
        if native and tools.pystack:
            # only when every target has its stacks: the faster picture of all comes before the slower one of some
            photograph([NativeView(dump) for dump in dumps if dump.tools.native and not dump.hopeless], emit)
