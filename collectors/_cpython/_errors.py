"""What can keep us from reading a process. Each class carries its cure, its outcome word and the exit code of a command."""

from __future__ import annotations

from collectors._contract import PTRACE_CURE


class PeekError(Exception):
    """`outcome` is a word of forensics.model.Outcome, `cure` one sentence, `exit_code` what a command ends with."""

    outcome = "FAILED"
    exit_code = 1
    cure = ""

    def __init__(self, message: str, cure: str = "") -> None:
        super().__init__(message)
        self.cure = cure or self.cure


class Denied(PeekError):
    """The kernel does not let us read this process."""

    outcome = "DENIED"
    exit_code = 3
    cure = PTRACE_CURE


class Gone(PeekError):
    """The process has ended: before the read began, or under it."""

    outcome = "ABSENT"
    exit_code = 4


class NotPython(PeekError):
    """The process runs no CPython that we can find."""

    outcome = "ABSENT"
    exit_code = 4
    cure = "name the process that runs Python itself, not its launcher: forensics collect process lists them"


class Unsupported(PeekError):
    """A CPython whose layouts we do not know: too old, too new, free-threaded, or not what it says it is."""

    outcome = "UNSUPPORTED"
    exit_code = 3
    cure = "use py-spy dump for its stacks; objects are read in CPython 3.10 to 3.14 with a GIL"


class Unreadable(PeekError):
    """No readable memory at an address: a pointer that is none, or an object that went away under us."""

    outcome = "PARTIAL"
    exit_code = 3

    def __init__(self, address: int, size: int) -> None:
        super().__init__(
            f"no readable memory at {address:#x} ({size} bytes)", "the object was gone or changed while it was read: try again"
        )
        self.address = address


class Nonsense(Unreadable):
    """There is memory at the address, and it does not hold what was looked for."""

    def __init__(self, address: int, what: str) -> None:
        PeekError.__init__(self, f"no {what} at {address:#x}", "the object was gone or changed while it was read: try again")
        self.address = address


class OutOfBounds(PeekError):
    """The read reached its bound of bytes or of time."""

    outcome = "PARTIAL"
    exit_code = 3
    cure = "ask for a smaller part, or raise the bound"


class BadExpression(PeekError):
    """The expression asks for something that is not read here; the message says what can be asked for."""

    outcome = "SKIPPED"
    exit_code = 2


class NotFound(PeekError):
    """The expression is fine, and the process holds no such name, attribute, key or index."""

    outcome = "EMPTY"
    exit_code = 4


class NoRoots(PeekError):
    """py-spy did not say what the frames hold. Names of modules can be read all the same."""

    outcome = "PARTIAL"
    exit_code = 3
