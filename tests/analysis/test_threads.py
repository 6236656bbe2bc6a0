"""One thread as several readers see it: kernel waits, pystack's text, native frames; joined, classified, and told to move or not."""

from __future__ import annotations

import json
import time

import pytest

from forensics.analysis import parse
from forensics.analysis.case import Case
from forensics.analysis.parse import Input, Sink
from forensics.analysis.parse._names import FRAMES_MAX, NAME_CHARS, plain
from forensics.analysis.stacks import classify, motion, threads
from forensics.analysis.times import Calendar
from forensics.analysis.unite import unite
from forensics.engines import FramePattern
from forensics.engines._generic_frames import FRAMES
from forensics.model import CoreFile, CpuSample, EvidenceRef, Frame, ThreadStack, ThreadWait, TimeRange

S = 1_000_000_000
REF = EvidenceRef(source="x", locator="y")


def read(text: str | bytes, kind: str = "", **about: object) -> Sink:
    raw = text.encode() if isinstance(text, str) else text
    parser = parse.find(kind, "x.txt", raw[:8192].decode("utf-8", "replace"))
    assert parser is not None, "not recognised"
    sink = Sink()
    parser.parse(Input(name="x", node="n", data=raw, kind=kind, calendar=Calendar(reference_ns=S), **about), sink)  # type: ignore[arg-type]
    return sink


def of(sink: Sink, kind):
    return [o for o in sink.observations if isinstance(o, kind)]


# ---- what the kernel says


def wait(syscall: str, wchan: str = "futex_do_wait", stat: str = "8 (worker) S 1", **more: str) -> ThreadWait:
    files = {"stat": stat + " 0" * 49, "wchan": wchan, "syscall": syscall, **more}
    shot = {"at_ns": 5, "files": {f"/proc/7/task/8/{name}": text for name, text in files.items()}, "links": {}, "errors": {}}
    (found,) = of(read(json.dumps(shot), "fileset", sample=2), ThreadWait)
    return found


@pytest.mark.parametrize(
    ("syscall", "wchan", "futex"),
    [
        ("202 0x565545ae51d0 0x189 0x0 0x0 0x0 0xffffffff 0x7f7e 0x7f7e\n", "futex_do_wait", 0x565545AE51D0),
        ("98 0xaaaac001d0 0x189 0x0 0x0 0x0 0xffffffff 0x7f7e 0x7f7e\n", "futex_wait_queue", 0xAAAAC001D0),
        ("202 0x565545ae51d0 0x80 0x2 0x0 0x0 0x0 0x7f7e 0x7f7e\n", "0", 0x565545AE51D0),  # whose wchan we may not see
        ("202 0x565545ae51d0 0x81 0x1 0x0 0x0 0x0 0x7f7e 0x7f7e\n", "0", None),  # FUTEX_WAKE
        ("202 0x7 0x0 0x0 0x0 0x0 0x0 0x7f7e 0x7f7e\n", "0", None),  # accept of descriptor 7, on aarch64
        ("202 0xffff0000aa00 0x0 0x0 0x0 0x0 0x0 0x7f7e 0x7f7e\n", "inet_csk_accept", None),
        ("230 0x1 0x1 0x7f7e0e770ab0 0x0 0x0 0x7f7e1014e6e8 0x7f7e 0x7f7e\n", "hrtimer_nanosleep", None),
        ("running\n", "0", None),
        ("-1 0x7ffe 0x7f7e\n", "0", None),
        ("", "0", None),
        ("202\n", "futex_do_wait", None),
        ("202 nonsense 0x189\n", "futex_do_wait", None),
    ],
)
def test_where_a_futex_wait_is_told(syscall: str, wchan: str, futex: int | None) -> None:
    found = wait(syscall, wchan)
    assert (found.futex, found.state, found.thread, found.tid, found.pid, found.sample) == (futex, "S", "worker", 8, 7, 2)
    assert found.syscall == (int(syscall.split(maxsplit=1)[0]) if syscall[:1].isdigit() else None)


def test_the_way_into_the_kernel() -> None:
    stack = "[<0>] futex_do_wait+0x46/0x90\n[<0>] uvm_ioctl+0x1/0x2 [nvidia_uvm]\n[<ffffffff81234567>] do_syscall_64+0x71/0x280\n[<0>] 0xffffffffffffffff\n"
    found = wait("running", stack=stack)
    assert found.kernel_stack == ("futex_do_wait", "uvm_ioctl [nvidia_uvm]", "do_syscall_64", "0xffffffffffffffff")


def test_a_name_with_the_look_of_the_file_does_not_lead_astray() -> None:
    found = wait("running", stat="8 (k\n) R \x1b[31m) S 1")
    assert (found.thread, found.state) == ("k\\x0a) R \\x1b[31m", "S")


@pytest.mark.parametrize(
    ("status", "inner"), [("NSpid:\t17342\t16\n", 16), ("NSpid:\t17342\t5\t1\n", 1), ("NSpid:\t17342\n", None), ("", None)]
)
def test_the_inner_id(status: str, inner: int | None) -> None:
    assert wait("running", status=status).inner == inner


def test_a_fileset_without_system_calls_gives_no_waits() -> None:
    shot = {"at_ns": 5, "files": {"/proc/7/task/8/stat": "8 (x) S" + " 0" * 49, "/proc/7/status": "NSpid:\t7\n"}}
    assert not of(read(json.dumps(shot), "fileset"), ThreadWait)


# ---- pystack

PYSTACK = """Traceback for thread 12 (pt_nccl_watchdg) [] (most recent call last):
    (C) File "???", line 0, in __clone3 (/usr/lib/libc.so.6)
    (C) File "src/watchdog.cpp", line 77, in c10d::Watchdog::run(int, char (*) [3]) (/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so)

Traceback for thread 11 (python) [Has the GIL,Garbage collecting] (most recent call last):
    (C) File "Modules/main.c", line 734, in Py_BytesMain (/usr/lib/libpython3.11.so.1.0)
    (Python) File "/srv/serve.py", line 3, in <module>
        run("Traceback for thread 99 (most recent call last):")
    (Python) File "/opt/venv/lib/python3.11/site-packages/vllm/v1/core.py", line 40, in step
        Locals:
        secret: 1
    (Python) File "/usr/lib/python3.11/threading.py", line 327, in wait
        waiter.acquire()
    (C) File "nptl/futex.c", line 57, in futex_wait (inlined) (/usr/lib/libc.so.6)
The frame stack for thread 13 is empty
"""


def test_pystacks_text() -> None:
    native, main = of(read(PYSTACK, "pystack-text", pid=11, sample=3), ThreadStack)
    assert (native.pid, native.tid, native.name, native.frames, native.reader, native.sample) == (
        11,
        12,
        "pt_nccl_watchdg",
        (),
        "pystack",
        3,
    )
    assert native.mixed[0] == Frame(name="c10d::Watchdog::run(int, char (*) [3])", file="libtorch_cuda.so", line=77, native=True)
    assert native.path and native.gil is False
    assert (main.gil, main.tags) == (True, ("Has the GIL", "Garbage collecting"))
    assert [(f.name, f.file, f.line) for f in main.frames] == [
        ("wait", "threading.py", 327),
        ("step", "vllm/v1/core.py", 40),
        ("<module>", "/srv/serve.py", 3),
    ]
    assert [f.name for f in main.mixed] == ["futex_wait (inlined)", "wait", "step", "<module>", "Py_BytesMain"]
    assert main.shown == main.mixed and main.path == tuple((f.name, f.file, f.line) for f in main.frames)


def test_pystacks_text_is_known_without_a_manifest() -> None:
    assert len(of(read(PYSTACK), ThreadStack)) == 2


def test_a_thread_name_of_line_ends_and_brackets() -> None:
    (found,) = of(
        read('Traceback for thread 5 (a)\n [x] (b) [] (most recent call last):\n    (Python) File "a.py", line 1, in f\n'), ThreadStack
    )
    assert (found.name, found.tid, len(found.frames)) == ("a)\\x0a [x] (b", 5, 1)


def test_several_interpreters_in_one_process() -> None:
    text = """Traceback for thread 5 (x) (most recent call last):
  In the main interpreter [Has the GIL]
    (Python) File "a.py", line 1, in f
  In interpreter 1 []
    (Python) File "b.py", line 2, in g
"""
    (found,) = of(read(text, "pystack-text", pid=5), ThreadStack)
    assert [f.name for f in found.frames] == ["g", "f"] and found.gil is True


def test_a_core_file_is_no_sample_of_the_living() -> None:
    head = "Using executable found in the core file: /usr/bin/python3\n\n    Core file information:\n    state: R zombie: True niceness: 0\n    pid: 5927 ppid: 1 sid: 1\n\n"
    found = of(read(head + PYSTACK, "pystack-text"), ThreadStack)
    assert {(s.reader, s.pid) for s in found} == {("core", 5927)}
    assert not threads(found, ())


def test_the_list_of_core_files() -> None:
    core = {
        "path": "/var/c\nore",
        "size_bytes": 9,
        "mtime_ns": 7,
        "executable": "python",
        "pid": 3,
        "signal": 11,
        "compression": "",
        "error": "",
    }
    (found,) = of(read(json.dumps({"core_pattern": "|/x", "looked": [], "cores": [core]}), "cores"), CoreFile)
    assert (found.path, found.pid, found.signal, found.written_ns, found.executable) == ("/var/c\\x0aore", 3, 11, 7, "python")
    assert found.at and found.at.basis == "file time"


# ---- py-spy with native frames


def dump(*frames: dict, **thread: object) -> str:
    filled = [
        {"name": "f", "filename": "/x/a.py", "short_filename": "a.py", "module": None, "line": 1, "locals": None, **f} for f in frames
    ]
    return json.dumps(
        [{"pid": 7, "thread_id": 1, "thread_name": "t", "os_thread_id": 8, "active": False, "owns_gil": False, "frames": filled, **thread}]
    )


def test_native_frames_of_py_spy_stand_beside_the_python_frames() -> None:
    libc = {"module": "/usr/lib/libc.so.6", "filename": "/usr/lib/libc.so.6", "short_filename": "libc.so.6", "line": 0}
    text = dump({**libc, "name": "clock_nanosleep"}, {**libc, "name": "0x7f1234"}, {"name": "Loop.run", "line": 5})
    (found,) = of(read(text, "pyspy-json"), ThreadStack)
    assert found.frames == (Frame(name="Loop.run", file="a.py", line=5),)
    assert [(f.name, f.file, f.native) for f in found.mixed] == [
        ("clock_nanosleep", "libc.so.6", True),
        ("???", "libc.so.6", True),  # an address is another one in every process
        ("Loop.run", "a.py", False),
    ]
    (plainly,) = of(read(dump({"name": "Loop.run", "line": 5}), "pyspy-json"), ThreadStack)
    assert plainly.mixed == () and plainly.path == found.path and plainly.shown == plainly.frames


def test_a_stack_that_ran_away_keeps_both_ends() -> None:
    frames = [{"name": f"f{n}"} for n in range(10_000)]
    (found,) = of(read(dump(*frames), "pyspy-json"), ThreadStack)
    assert len(found.frames) == FRAMES_MAX + 1
    assert (found.frames[0].name, found.frames[-1].name) == ("f0", "f9999")
    assert [f.name for f in found.frames if not f.file] == ["… 7952 frames …"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("waiter-3", "waiter-3"),
        ("Wärter", "Wärter"),
        ("a\nb\x1b[31m\x00", "a\\x0ab\\x1b[31m\\x00"),
        ("\u202eevil", "\\x202eevil"),
        ("x" * 300, "x" * (NAME_CHARS - 1) + "…"),
    ],
)
def test_names_are_spelled_out_and_bounded(name: str, shown: str) -> None:
    assert plain(name) == shown
    (found,) = of(read(dump({"name": name}, thread_name=name).encode("utf-8"), "pyspy-json"), ThreadStack)
    assert found.frames[0].name == shown == found.name


def test_half_a_character_is_spelled_out() -> None:
    assert plain("\ud800") == "\\xd800"


# ---- joined


def stack(
    reader: str = "", tid: int = 8, sample: int = 1, names: tuple[str, ...] = ("Q.get", "main"), native: str = "", **more
) -> ThreadStack:
    python = tuple(Frame(name=n.rpartition(".")[2] if reader else n, file="q.py", line=i + 1) for i, n in enumerate(names))
    mixed = (Frame(name=native, file="libc.so.6", native=True), *python) if native else ()
    at = TimeRange(earliest_ns=sample * 2 * S, latest_ns=sample * 2 * S, basis="sampled")
    return ThreadStack(node="n", ref=REF, at=at, pid=7, tid=tid, reader=reader, sample=sample, frames=python, mixed=mixed, **more)


def joined(*observations) -> list[ThreadStack]:
    case = Case()
    case.add(observations)
    unite(case)
    return case.of(ThreadStack)


@pytest.mark.parametrize("order", [1, -1])
def test_two_readers_of_one_thread_make_one_stack(order: int) -> None:
    both = [stack(name="loop", active=False), stack("pystack", name="python", native="futex_wait", tags=("Waiting for the GIL",))]
    (one,) = joined(*both[::order])
    assert (one.name, one.active, one.reader, one.tags) == ("loop", False, "", ("Waiting for the GIL",))
    assert [f.name for f in one.frames] == ["Q.get", "main"]
    assert [f.name for f in one.mixed] == ["futex_wait", "Q.get", "main"]


def test_readers_that_disagree_saw_two_moments() -> None:
    (one,) = joined(stack(name="loop"), stack("pystack", names=("Q.put", "main"), native="futex_wait", tags=("Garbage collecting",)))
    assert (one.mixed, one.tags, one.frames[0].name) == ((), (), "Q.get")


def test_a_thread_seen_by_pystack_alone_keeps_the_name_that_others_gave_it() -> None:
    known = ThreadWait(node="n", ref=REF, pid=7, tid=8, state="R", sample=2)
    first, second, native = joined(
        stack(name="loop", sample=1), stack("pystack", name="python", sample=2), stack("pystack", tid=9, names=(), native="poll"), known
    )
    assert (first.name, second.name, second.active, second.reader) == ("loop", "loop", True, "pystack")
    assert (native.tid, native.frames, native.active) == (9, (), None)
    (view, _) = threads([first, second, native], ())["n", 7]
    assert len(view.samples) == 2


def test_inner_ids_become_ours() -> None:
    waits = [ThreadWait(node="n", ref=REF, pid=7, tid=1000 + n, inner=n, state="R" if n == 2 else "S", sample=1) for n in (1, 2)]
    one, two, unknown = joined(*(stack(tid=n, active=True, name=f"t{n}") for n in (1, 2, 3)), *waits)
    assert [(s.tid, s.active) for s in (one, two, unknown)] == [(1001, False), (1002, True), (3, None)]


def test_bare_dumps_without_sample_numbers_are_all_kept() -> None:
    found = joined(*(stack(sample=0) for _ in range(3)), stack("pystack", sample=0, native="x"))
    assert len(found) == 3 and [bool(s.mixed) for s in found] == [True, False, False]


# ---- classified


def test_patterns_look_at_python_frames_unless_they_ask_for_native_ones() -> None:
    seen = stack(names=("Event.wait", "main"), native="ncclGroupEnd", active=False)
    assert classify(seen, [FramePattern("event", r"\AEvent\.wait", within=1)]) == ("event", "")
    assert classify(seen, [FramePattern("collective", r"^ncclGroupEnd \(libc", within=1, native=True)])[0] == "collective"
    alone = stack("pystack", names=(), native="ncclGroupEnd")
    assert classify(alone, [FramePattern("event", "ncclGroupEnd")])[0] == "unknown"
    assert classify(alone, [FramePattern("collective", "ncclGroupEnd", native=True)])[0] == "collective"


@pytest.mark.parametrize("name", ["Event.wait", "Condition.wait", "wait"])
def test_a_wait_is_known_with_and_without_its_class(name: str) -> None:
    seen = ThreadStack(node="n", ref=REF, pid=1, active=False, frames=(Frame(name=name, file="threading.py", line=1),))
    assert classify(seen, FRAMES)[0] == "event"


# ---- in motion or not


def cpu(sample: int, seconds: float, tid: int = 8) -> CpuSample:
    at = TimeRange(earliest_ns=sample * 2 * S, latest_ns=sample * 2 * S, basis="sampled")
    return CpuSample(node="n", ref=REF, at=at, pid=7, tid=tid, cpu_seconds=seconds, sample=sample)


def view(*samples: ThreadStack):
    (found,) = threads(samples, ())["n", 7]
    return found


STILL = [stack(sample=n) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("samples", "times", "said"),
    [
        (STILL, [cpu(1, 5.0), cpu(3, 5.01)], "stuck"),
        (STILL, [cpu(1, 5.0), cpu(3, 8.9)], "spinning"),
        (STILL, [cpu(1, 5.0), cpu(3, 5.5)], "spinning"),  # its share of a saturated host
        (STILL, [cpu(1, 5.0), cpu(3, 8.9, tid=9)], None),  # of another thread
        (STILL, [cpu(1, 5.0), cpu(9, 90.0)], None),  # of another time
        (STILL, [], None),
        (STILL[:1], [cpu(1, 5.0), cpu(3, 5.0)], None),
        ([*STILL[:2], stack(sample=3, names=("Q.put", "main"))], [cpu(1, 5.0), cpu(3, 5.0)], "moving"),
        ([STILL[0], stack(sample=2, native="futex")], [cpu(1, 5.0), cpu(2, 5.0)], "stuck"),  # native frames in one sample only
        ([stack(sample=n, active=False) for n in (1, 2)], [], "stuck"),
        ([stack(sample=n, active=True) for n in (1, 2)], [], "spinning"),
        ([stack(sample=1, active=True), stack(sample=2, active=False)], [], None),
    ],
)
def test_motion(samples: list[ThreadStack], times: list[CpuSample], said: str | None) -> None:
    assert motion(view(*samples), times) == said


def test_two_looks_within_a_moment_prove_nothing() -> None:
    at = TimeRange(earliest_ns=S, latest_ns=S, basis="sampled")
    close = ThreadStack(node="n", ref=REF, at=at, pid=7, tid=8, active=False, frames=STILL[0].frames)
    assert motion(view(close, close)) is None


# ---- what native frames add to a Python line that tells nothing


def two_looks(native: list[str]) -> list[ThreadStack]:
    python = (Frame(name="Kernel.launch", file="engine/ops.py", line=7),)
    below = tuple(Frame(name=name, file="lib.so", native=True) for name in native)
    common = {"node": "n", "ref": REF, "pid": 1, "tid": 1, "active": False, "frames": python}
    return [ThreadStack(**common, sample=1), ThreadStack(**common, sample=3, mixed=(*below, *python))]


@pytest.mark.parametrize(
    ("native", "state"),
    [
        (["ioctl", "cuEventSynchronize"], "gpu-sync"),
        (["poll", "cudaStreamSynchronize"], "gpu-sync"),
        (["epoll_wait", "gloo::transport::tcp::UnboundBuffer::waitRecv(int*, std::chrono::duration<long>)"], "collective"),
        (["sched_yield", "ncclGroupEndInternal"], "collective"),
        (["pthread_mutex_lock", "something_else"], "lock"),
        (["0x7f00"], "lock"),
    ],
)
def test_native_frames_tell_what_a_line_waits_for_also_in_the_looks_that_did_not_show_them(native, state):
    ((view,),) = threads(two_looks(native), FRAMES).values()
    assert view.states == (state, state) and view.steady


def test_another_place_in_an_earlier_look_is_judged_by_itself():
    first, last = two_looks(["cuEventSynchronize"])
    first = ThreadStack(node="n", ref=REF, pid=1, tid=1, active=False, frames=(Frame(name="f", file="x.py"),), sample=1)
    ((view,),) = threads([first, last], FRAMES).values()
    assert view.states == ("lock", "gpu-sync")


@pytest.mark.parametrize(
    "line",
    ['    (C) File "' + '", line 1, in x (' * 3000, '    (Python) File "' + '", line 1, in x' * 3000, "    f " + "(a:" * 9000],
    ids=["native", "python", "py-spy"],
)
def test_a_hostile_line_is_cut_before_it_is_searched(line):
    head = "Traceback for thread 7 (x) [] (most recent call last):"
    began = time.process_time()
    read("\n".join([head, *[line] * 20]), "pystack-text", pid=7)
    read("\n".join(["Process 7: x", "Thread 7 (idle)", *[line] * 20]), "pyspy-text")
    assert time.process_time() - began < 20, "a search that grows with the cube of a line would take hours"
