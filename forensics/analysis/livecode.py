"""Whether a function runs what its module's file says: a monkeypatch at run time shows in no file, and in no line of a log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from forensics.model import CodePlace, FunctionReading, Grade


class Runs(Enum):
    """What a process runs under a function's name."""

    AS_ON_DISK = "as its file says"
    """Its code is what the file compiles to."""
    OWN_FILE = "code of its own file"
    """It lies in the module's file; what the file compiles to was not compared (another Python, or nobody asked)."""
    OTHER_FILE = "code of another file"
    """The module's file defines it, plainly, and what runs was defined elsewhere: replaced at run time."""
    DIFFERS = "other code than its file compiles to"
    """It claims to lie in the module's file, which compiles to something else."""
    STALE = "what its file said before it changed"
    """The file was written after the process started, and compiles to something else now."""
    WRAPPED = "what a decorator made of it"
    """The file itself decorates it, or its class: what runs may lie anywhere."""
    UNCLEAR = "code whose origin cannot be told"
    """The file gives the name more than one meaning, does not define it, or could not be read."""
    NOT_IMPORTED = "nothing: the module is not imported"
    NOT_THERE = "nothing: there is no such function"
    UNREADABLE = "code that could not be read"


REPLACED = (Runs.OTHER_FILE, Runs.DIFFERS)


@dataclass(frozen=True)
class Verdict:
    """What one process runs under the name, where that lies, and how sure that is."""

    runs: Runs
    place: CodePlace | None = None
    grade: Grade = Grade.ESTABLISHED
    why: str = ""

    @property
    def where(self) -> str:
        """ "file:line" of what runs, "" where it was not read."""
        return f"{self.place.file}:{self.place.line}" if self.place else ""


def changed_since(reading: FunctionReading) -> bool:
    """Whether the module's file was written after the process's image was started: what it ran before, nobody can see."""
    return reading.changed_ns is not None and reading.image_started_ns is not None and reading.changed_ns > reading.image_started_ns


def verdict(reading: FunctionReading) -> Verdict:
    """Compare the code in memory with what the file on disk says. Of a file that changed since, nothing is established."""
    if reading.status == "not-imported":
        return Verdict(Runs.NOT_IMPORTED)
    if reading.status == "not-there":
        return Verdict(Runs.NOT_THERE)
    if not reading.chain:
        return Verdict(Runs.UNREADABLE, why=reading.error or "its code is not Python's")
    place = reading.chain[0]
    if reading.inherited_from:
        return Verdict(Runs.UNCLEAR, place, why=f"inherited from {reading.inherited_from}")
    if place.own_file:
        return _of_own_file(reading, place)
    if place.own_file is None:
        return Verdict(Runs.UNCLEAR, place, why="its code was frozen into the interpreter, or its module has no file")
    if not reading.definitions:
        return Verdict(Runs.UNCLEAR, place, why=reading.error or "its file does not define it: it is imported, or made at run time")
    if any(d.decorated for d in reading.definitions):
        return Verdict(Runs.WRAPPED, place)
    if reading.rebound:
        return Verdict(Runs.UNCLEAR, place, why=f"the module's file itself gives the name another meaning on line {reading.rebound[0]}")
    if changed_since(reading):
        return Verdict(Runs.OTHER_FILE, place, Grade.POSSIBLE, "the module's file changed after the process started")
    return Verdict(Runs.OTHER_FILE, place)


def _of_own_file(reading: FunctionReading, place: CodePlace) -> Verdict:
    compiled = [d for d in reading.definitions if d.sha256]
    if not reading.compiled or not compiled or not place.sha256:
        why = reading.error or ("" if reading.compiled or not reading.asked else f"another Python ({reading.python}): not compiled here")
        return Verdict(Runs.OWN_FILE, place, why=why)
    if place.sha256 in {d.sha256 for d in compiled}:
        return Verdict(Runs.AS_ON_DISK, place)
    if len(compiled) < len(reading.definitions):
        return Verdict(Runs.OWN_FILE, place, why="one of its definitions could not be compiled here")
    if changed_since(reading):
        return Verdict(Runs.STALE, place, Grade.SUPPORTED, "the file changed after the process started")
    # a bug fix release may compile the same text to other instructions
    grade = Grade.SUPPORTED if reading.same_python else Grade.POSSIBLE
    return Verdict(Runs.DIFFERS, place, grade)
