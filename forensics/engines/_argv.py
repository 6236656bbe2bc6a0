"""Reading command lines as their programs read them: which program, which options."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from forensics.engines._profile import Table
from forensics.model import ProcessInfo

WORLD_LIMIT = 16_384
"""Ranks of one replica. A larger number is no world: a date after --rank, a typing error, or somebody who wants us to count to it."""
ANCESTRY_LIMIT = 64
"""Parent chains longer than this are a loop in damaged data."""

_PYTHON = re.compile(r"^(?:python|pypy)[\d.]*(?:-?dbg|d|t)?$")
_OPTION = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?\Z", re.S)
_WITH_VALUE = frozenset({"-W", "-X", "-Q", "--check-hash-based-pycs"})


@dataclass(frozen=True)
class Program:
    """What a command line runs. kind is "module" (-m), "code" (-c), "script" or "" (nothing to tell it by)."""

    kind: str = ""
    name: str = ""
    arguments: tuple[str, ...] = ()
    python: bool = False


def command(info: ProcessInfo) -> tuple[str, ...]:
    """The command line; a `ps` listing gives it as one string."""
    return info.argv or tuple(info.title.split())


def retitled(info: ProcessInfo) -> bool:
    """Whether the process wrote its own title over its command line (setproctitle leaves a single argument)."""
    return len(info.argv) <= 1 and not info.title.startswith(("/", "python"))


def program(argv: Sequence[str]) -> Program:
    """Tell what a command line runs, skipping the interpreter and its own options."""
    if not argv:
        return Program()
    if not _PYTHON.match(_base(argv[0])):
        return Program("script", argv[0], tuple(argv[1:]))
    rest = list(argv[1:])
    while rest:
        word = rest.pop(0)
        if word in ("-m", "-c"):
            kind = "module" if word == "-m" else "code"
            if kind == "code" and len(rest) > 1 and rest[0] in ("from", "import"):
                rest = [" ".join(rest)]  # a listing lost the quotes: all that follows is the code
            return Program(kind, rest[0] if rest else "", tuple(rest[1:]), True)
        if word in _WITH_VALUE:
            rest = rest[1:]
        elif not word.startswith("-"):
            return Program("script", word, tuple(rest), True)
    return Program("", "", (), True)


def is_python(info: ProcessInfo) -> bool:
    """Whether this is a Python interpreter, by its executable or its command line."""
    argv = command(info)
    return bool(_PYTHON.match(_base(info.exe)) or _PYTHON.match(info.comm) or (argv and _PYTHON.match(_base(argv[0]))))


def option(argv: Sequence[str], *names: str) -> str | None:
    """Value of an option ("--name value", "--name=value"; "_" and "-" alike), the last one given; "" for a bare flag."""
    found = None
    for index, word in enumerate(argv):
        key, equals, value = word.partition("=")
        if not key.startswith("-") or key.replace("_", "-") not in names:
            continue
        if equals:
            found = value
        else:
            following = argv[index + 1] if index + 1 < len(argv) else ""
            found = "" if following.startswith("--") else following
    return found


def options(info: ProcessInfo) -> list[tuple[str, str]]:
    """Options of a command line by name, as its program reads them: "--a-b c", "--a-b=c", "--flag", "--no-flag" (false), "-tp 2".

    Of an option that is given twice the last counts. What follows an option up to the next is its value.
    """
    found: dict[str, str] = {}
    words = list(program(command(info)).arguments)
    whole = bool(info.argv)  # a `ps` line may be cut anywhere: its last word is not trusted
    for index, word in enumerate(words):
        m = _OPTION.match(word)
        if m is None or (not whole and index == len(words) - 1):
            continue
        name, value = m[1].replace("-", "_"), m[2]
        if value is None:
            following = list(itertools.takewhile(lambda w: not _OPTION.match(w), words[index + 1 :]))
            if not whole and index + 1 + len(following) == len(words):
                following = following[:-1]
                if not following:
                    continue
            value = " ".join(following) if following else "true"
            if not following and name.startswith("no_"):
                name, value = name.removeprefix("no_"), "false"
        found[name] = value
    return list(found.items())


def number(argv: Sequence[str], *names: str) -> int | None:
    """Value of an option that is a whole number, or None."""
    value = option(argv, *names)
    return int(value) if value and value.isascii() and value.isdigit() and len(value) < 10 else None


def ancestors(info: ProcessInfo, table: Table) -> list[ProcessInfo]:
    """Parents in the table, nearest first."""
    found: list[ProcessInfo] = []
    current = info
    while current.ppid is not None and len(found) < ANCESTRY_LIMIT:
        parent = table.get(current.ppid)
        if parent is None or parent.pid == info.pid:
            break
        found.append(parent)
        current = parent
    return found


def multiprocessing_helper(info: ProcessInfo) -> str:
    """Name of the part of multiprocessing that a child is ("resource tracker", …), or ""."""
    name = program(command(info)).name
    for module, label in (("resource_tracker", "resource tracker"), ("forkserver", "fork server"), ("spawn", "starting")):
        if f"multiprocessing.{module}" in name:
            return label
    return ""


def _base(path: str) -> str:
    return path.rpartition("/")[2]
