"""One source file: the function that a frame runs, cut out of it where that is certain, because parsing a whole module is slow.

A module of 300 KB takes 0.1 s to parse, one function of it 2 ms.
"""

from __future__ import annotations

import ast
import gc
import re
import warnings

from collectors._withblocks import Function, Position, Scope

PARSE_LIMIT_BYTES = 320 << 10
"""Of text that is parsed in one piece. The densest text takes 500 times its size in memory: 160 MiB."""
Found = tuple[int, int, Function, list[Function], str]
"""(first line, last line, function, functions around it, class around it)"""


class TooLarge(Exception):
    """A piece of source that is not parsed, because its tree would not fit into the memory that a collector may use."""


class Source:
    """One file. Raises TooLarge, SyntaxError, ValueError, RecursionError or MemoryError where it must be parsed and cannot be."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._lines = raw.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
        self._scopes: dict[int, Scope] = {}
        self._whole: tuple[ast.Module, list[Found]] | None = None
        self.parsed_bytes = 0
        """Of all pieces so far; their trees are kept."""

    def position(self, name: str, line: int) -> Position | None:
        """Where a frame called `name` (qualified or not) stands; None when the source knows no such function on that line."""
        name = name.rpartition(".")[2]
        if not name.isidentifier() and name != "<module>":
            return None  # a lambda or a comprehension: several may share a line
        return self.alone(name, line) or self.in_whole(name, line)

    def alone(self, name: str, line: int) -> Position | None:
        """The function cut out by its indentation; None where it is not certain to be all of it, and in nothing but classes."""
        first = self._head(name, line)
        if not first:
            return None
        if first not in self._scopes:
            scope = self._cut(first)
            if scope is None:
                return None
            self._scopes[first] = scope
        function = self._scopes[first].function
        around = [n for n in self._scopes[first].functions if n.lineno <= line <= (n.end_lineno or 0)]
        return Position(self._scopes[first], line) if around == [function] else None

    def _head(self, name: str, line: int) -> int:
        """The nearest line, upwards, on which a function of that name begins; 0 if there is none."""
        head = re.compile(rf"[ \t]*(?:async[ \t]+)?def[ \t]+{name}\b")
        return next((number for number in range(min(line, len(self._lines)), 0, -1) if head.match(self._lines[number - 1])), 0)

    def _cut(self, first: int) -> Scope | None:
        indent = _indent(self._lines[first - 1])
        owner = self._owner(first, indent)
        if owner is None:
            return None
        ends = (number for number in range(first + 1, len(self._lines) + 1) if _starts(self._lines[number - 1], indent + 1))
        text = self._lines[first - 1 : next(ends, len(self._lines) + 1) - 1]
        # in front of it as many lines as in the file, so that numbers stay; the last opens a block where it is indented
        before = ["" for _ in range(first - 2)] + ["if 1:"] if indent else ["" for _ in range(first - 1)]
        try:
            body = self._parse("\n".join([*before, *text, ""]), len(before)).body
        except SyntaxError:  # cut in the middle of a string, or of brackets
            return None
        body = body[0].body if indent and isinstance(body[0], ast.If) else body
        if len(body) != 1 or not isinstance(body[0], (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        return Scope(body[0], [], owner)

    def _owner(self, first: int, indent: int) -> str | None:
        """The class around a function, "" where there is none; None where something else is, which may be another function."""
        owner = ""
        for text in reversed(self._lines[: first - 1]):
            if not indent:
                break
            if _starts(text, indent):
                found = re.match(r"[ \t]*class[ \t]+(\w+)", text)
                if not found:
                    return None
                indent, owner = _indent(text), owner or found[1]
        return None if indent else owner

    def in_whole(self, name: str, line: int) -> Position | None:
        """The same by parsing all of the file."""
        if self._whole is None:
            module = self._parse(self._raw)
            self._whole = module, _functions(module)
        module, functions = self._whole
        around = sorted((f for f in functions if f[0] <= line <= f[1]), key=lambda f: -f[0])
        if name == "<module>":
            inside = around and line >= around[-1][2].body[0].lineno
            return None if inside else Position(self._scopes.setdefault(0, Scope(module, [], "")), line)
        for _, _, function, enclosing, owner in around:
            if function.name == name:
                return Position(self._scopes.setdefault(-function.lineno, Scope(function, enclosing, owner)), line)
            if line >= function.body[0].lineno:
                return None  # the line belongs to a function of another name: this is not the source that runs
        return None

    def _parse(self, text: str | bytes, before: int = 0) -> ast.Module:
        """`before`: how many of its bytes stand for lines that are left out."""
        if len(text) - before > PARSE_LIMIT_BYTES:
            raise TooLarge
        self.parsed_bytes += len(text) - before
        collecting = gc.isenabled()
        gc.disable()  # a tree of 100,000 nodes holds no garbage to look for
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what the program's author should know, and not our reader
                return ast.parse(text)
        finally:
            if collecting:
                gc.enable()


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _starts(text: str, below: int) -> bool:
    """Whether a line that is indented by less than `below` begins a statement, as far as one line tells."""
    return bool(text.strip()) and _indent(text) < below and text.lstrip()[0] not in ")]}#"


def _functions(tree: ast.Module) -> list[Found]:
    """Every function of a module. Only statements hold statements: expressions are not looked into."""
    found: list[Found] = []
    todo: list[tuple[ast.AST, list[Function], str]] = [(tree, [], "")]
    while todo:
        node, enclosing, owner = todo.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                found.append((first, child.end_lineno or first, child, enclosing, owner))
                todo.append((child, [child, *enclosing], owner))
            elif isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                todo.append((child, enclosing, child.name if isinstance(child, ast.ClassDef) else owner))
    return found
