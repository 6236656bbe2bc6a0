"""Reads the objects of a running CPython (3.10 to 3.14) in its memory: nothing is stopped, signalled or executed in the target.

    process = attach(pid)                              # raises Denied, Gone, NotPython, Unsupported
    held = roots(process, "/usr/bin/py-spy")           # objects that frames hold in their local variables
    evaluate(process, "Scheduler.running", held)       # Found(address, value, type, torn, …)
    process.lock(address)                              # LockState

Addresses are those of objects (PyObject *). They are good for one look: the program goes on and frees what they point to.
"""

from collectors._cpython._errors import (
    BadExpression,
    Denied,
    Gone,
    Nonsense,
    NoRoots,
    NotFound,
    NotPython,
    OutOfBounds,
    PeekError,
    Unreadable,
    Unsupported,
)
from collectors._cpython._expression import candidates, evaluate, parse
from collectors._cpython._frames import Entry, Frames, Running
from collectors._cpython._process import Process, attach
from collectors._cpython._records import Bounds, Found, LockState, Root, Snapshot
from collectors._cpython._roots import parse_dump, roots
from collectors._cpython._threads import thread_ids

__all__ = [
    "BadExpression",
    "Bounds",
    "Denied",
    "Entry",
    "Found",
    "Frames",
    "Gone",
    "LockState",
    "NoRoots",
    "Nonsense",
    "NotFound",
    "NotPython",
    "OutOfBounds",
    "PeekError",
    "Process",
    "Root",
    "Running",
    "Snapshot",
    "Unreadable",
    "Unsupported",
    "attach",
    "candidates",
    "evaluate",
    "parse",
    "parse_dump",
    "roots",
    "thread_ids",
]
