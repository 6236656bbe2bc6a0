"""What a process has in its memory of functions and constants that patches touch, as the patches collector read it."""

from __future__ import annotations

from forensics.model.observations import Observation
from forensics.model.records import Record


class CodePlace(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A code object, or a definition in a file."""

    file: str = ""
    line: int = 0
    name: str = ""
    sha256: str = ""
    own_file: bool | None = None
    """Of a live one: whether it lies in its module's own file; None: cannot be told."""
    decorated: bool = False
    """Of a definition: it or a class around it."""


class FunctionReading(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """The code that a process holds under a function's name, beside what its module's source file says. What it means, a rule says."""

    module: str
    function: str
    status: str = ""
    """read | not-imported | not-there | not-python"""
    module_file: str = ""
    inherited_from: str = ""
    chain: tuple[CodePlace, ...] = ()
    """The function, then what it says it wraps, from outside to inside."""
    definitions: tuple[CodePlace, ...] = ()
    """What the file on disk says, compiled here where it could be."""
    rebound: tuple[int, ...] = ()
    """Lines on which the file itself may give the name another meaning."""
    asked: bool = False
    """The file was looked at."""
    compiled: bool = False
    """It was compiled, by the same minor version of Python and at the same level of -O."""
    python: str = ""
    """Of the process: "3.11.7"."""
    same_python: bool = False
    """The very release that compiled the file for comparison."""
    changed_ns: int | None = None
    """Of the file: the later of mtime and ctime."""
    image_started_ns: int | None = None
    error: str = ""


class ConstantReading(Observation, frozen=True, kw_only=True, omit_defaults=True):
    """What stood under a name that a patch sets, in every object of that name that the process was seen to hold."""

    patch: str
    object: str = ""
    status: str = ""
    """read | not-imported | not-there | not-searched"""
    values: tuple[str, ...] = ()
    """As JSON, each different one once; "…" where it may not leave the node."""
    equal: tuple[bool, ...] = ()
    """Whether each is what the patch sets."""
    asked: bool = False
    """The patch says what it should be."""
    counts: tuple[int, ...] = ()
    """In how many objects each stood."""
    searched: bool = False
    """Objects were looked for from what frames hold: there may be others."""
    error: str = ""

    @property
    def words(self) -> str:
        """ "0.002 (in 2 objects), 0 (in 1)"."""
        if not self.searched:
            return ", ".join(self.values)
        return ", ".join(f"{value} (in {count})" for value, count in zip(self.values, self.counts, strict=True))
