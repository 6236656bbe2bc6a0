"""What the source of a running function says of one line: which `with` blocks it lies in, what it takes there, what it calls.

Lines are all that a stack gives, so only what a line proves is told. A `with` line itself proves nothing: the block is
entered and left there (from 3.10 on its `__exit__` runs under that line). The text is read and parsed here and never leaves.
"""

from __future__ import annotations

import ast
import os
import stat
import time
import warnings
from collections.abc import Iterator

from collectors._contract import read_bounded, resolve_in_root

SOURCE_LIMIT_BYTES = 2 * 1024 * 1024
CLOCK_SLACK_NS = 50_000_000
"""A start is known to 10 ms, and a launcher writes its script just before it runs it."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Refused(Exception):
    """Why nothing may be concluded from this source. The text is for people."""


def own(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below `node` that runs in its own frame: what nested functions and classes do runs in theirs."""
    todo = list(ast.iter_child_nodes(node))
    while todo:
        child = todo.pop()
        yield child
        if not isinstance(child, _SCOPES):
            todo += ast.iter_child_nodes(child)


class Block:
    """One `with X:` whose body holds the line."""

    def __init__(self, node: ast.With, item: int) -> None:
        self.expr, self.line = node.items[item].context_expr, node.lineno
        # a block that lets go of something half-way holds for certain only what it names, not when
        self.certain = not any(isinstance(n, ast.Attribute) and n.attr == "release" for part in node.body for n in ast.walk(part))


class Position:
    """One line of one function that is running."""

    def __init__(self, function: Function | ast.Module, enclosing: list[Function], owner: str, line: int) -> None:
        self.function, self.line = function, line
        self._enclosing, self._owner = enclosing, owner
        self._nodes = list(own(function))

    def blocks(self) -> list[Block]:
        """The `with` blocks whose body the line is inside of, outermost first."""
        found = []
        for node in self._nodes:
            if isinstance(node, ast.With) and node.body[0].lineno > _header_end(node):
                first = min([node.body[0].lineno, *(d.lineno for d in getattr(node.body[0], "decorator_list", ()))])
                if first <= self.line <= (node.body[-1].end_lineno or 0):
                    found += [Block(node, item) for item in range(len(node.items))]
        return sorted(found, key=lambda block: block.line)

    def entering(self) -> list[list[ast.expr]]:
        """For each `with` statement whose head holds the line: what it takes, in this order."""
        return [
            [item.context_expr for item in node.items]
            for node in self._nodes
            if isinstance(node, ast.With) and node.lineno <= self.line <= _header_end(node)
        ]

    def calls(self, *methods: str) -> list[ast.expr]:
        """X of every X.method(…) that lies on the line."""
        return [receiver for receiver, first, last in self._calls(methods) if first <= self.line <= last]

    def anywhere(self, *methods: str) -> list[ast.expr]:
        """X of every X.method(…) in the whole function."""
        return [receiver for receiver, _, _ in self._calls(methods)]

    def _calls(self, methods: tuple[str, ...]) -> Iterator[tuple[ast.expr, int, int]]:
        for node in self._nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
                yield node.func.value, node.lineno, node.end_lineno or node.lineno

    def private(self, attribute: str) -> str:
        """An attribute as the compiler names it: `self.__lock` in class C is `_C__lock`."""
        if self._owner and attribute.startswith("__") and not attribute.endswith("__"):
            return f"_{self._owner.lstrip('_')}{attribute}"
        return attribute

    def is_global(self, name: str) -> bool:
        """Whether this function means the module's variable when it says `name`."""
        if isinstance(self.function, ast.Module):
            return True
        if name in _declared(self.function, ast.Global):
            return True
        return not any(name in _bound(scope) for scope in (self.function, *self._enclosing))


def _header_end(node: ast.With) -> int:
    parts = [part for item in node.items for part in (item.context_expr, item.optional_vars) if part is not None]
    return max(part.end_lineno or node.lineno for part in parts)


def _declared(function: Function, kind: type[ast.Global | ast.Nonlocal]) -> set[str]:
    return {name for node in own(function) if isinstance(node, kind) for name in node.names}


def _bound(function: Function) -> set[str]:
    """Names that are local to a function (an import or a nested definition binds one too)."""
    args = function.args
    names = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg) if a is not None}
    for node in own(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            names.add(node.rest)
    return names - _declared(function, ast.Global)


class Source:
    """One parsed file."""

    def __init__(self, text: bytes) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the program's author should know, and not our reader
            self.tree = ast.parse(text)
        self._functions: list[tuple[int, int, Function, list[Function], str]] = []
        self._collect()

    def _collect(self) -> None:
        todo: list[tuple[ast.AST, list[Function], str]] = [(self.tree, [], "")]
        while todo:
            node, enclosing, owner = todo.pop()
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                    self._functions.append((first, child.end_lineno or first, child, enclosing, owner))
                    todo.append((child, [child, *enclosing], owner))
                else:
                    todo.append((child, enclosing, child.name if isinstance(child, ast.ClassDef) else owner))

    def position(self, name: str, line: int) -> Position | None:
        """Where a frame called `name` (qualified or not) stands; None when the source knows no such function on that line."""
        name = name.rpartition(".")[2]
        around = sorted((f for f in self._functions if f[0] <= line <= f[1]), key=lambda f: -f[0])
        if name == "<module>":
            return Position(self.tree, [], "", line) if not around or line < around[-1][2].body[0].lineno else None
        for _, _, function, enclosing, owner in around:
            if function.name == name:
                return Position(function, enclosing, owner, line)
            if line >= function.body[0].lineno:
                return None  # the line belongs to a function of another name: this is not the source that runs
        return None


class Sources:
    """Source files as one process sees them, parsed once for all processes and samples, within a budget of time."""

    def __init__(self, budget_s: float) -> None:
        self._left_s = budget_s
        self._parsed: dict[tuple[int, int, int], Source | str] = {}

    def load(self, pid: int, path: str, started_ns: int) -> Source:
        """The source of `path` in the root of `pid`. Raises Refused when it may not be what runs, OSError when it cannot be read."""
        if not path.startswith("/") or not path.endswith(".py"):
            raise Refused("no source file of its own")
        real = resolve_in_root(f"/proc/{pid}/root", path)
        about = os.stat(real)
        if not stat.S_ISREG(about.st_mode):
            raise Refused("not a file")
        # ctime too: a file may be moved into place with an old mtime
        if max(about.st_mtime_ns, about.st_ctime_ns) > started_ns + CLOCK_SLACK_NS:
            raise Refused("changed after the process started")
        key = about.st_dev, about.st_ino, about.st_mtime_ns
        if key not in self._parsed:
            if self._left_s <= 0:
                raise Refused("not read for lack of time")
            began = time.monotonic()
            self._parsed[key] = self._parse(real)
            self._left_s -= time.monotonic() - began
        found = self._parsed[key]
        if isinstance(found, str):
            raise Refused(found)
        return found

    def _parse(self, path: str) -> Source | str:
        raw, cut = read_bounded(path, SOURCE_LIMIT_BYTES)
        if cut:
            return f"larger than {SOURCE_LIMIT_BYTES} bytes"
        try:
            return Source(raw)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # of a newer Python than ours, or not Python
            return "this interpreter cannot parse it"
