"""What a source file says of one of its functions: its definitions, and what each compiles to here. Compiled, never run."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import warnings
from collections.abc import Iterator
from types import CodeType
from typing import Any

from collectors._cpython._code import compiled_body, digest

Json = dict[str, Any]
UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What a file raises that is no Python source, or none of this version of Python."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Source:
    """One file. Raises SyntaxError, ValueError, RecursionError or MemoryError where it cannot be parsed."""

    def __init__(self, raw: bytes) -> None:
        self.text = importlib.util.decode_source(raw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the program's author should know, and not our reader
            self.tree = ast.parse(self.text)
        self._compiled: dict[int, CodeType] = {}

    def function(self, name: str) -> Json:
        """{"name", "found", "source_sha256"} of the last definition `name` ("f", "Class.method")."""
        found = [found[-1] for found in self._paths(name)]
        text = ast.get_source_segment(self.text, found[-1]) if found else None
        sha256 = None if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return {"name": name, "found": text is not None, "source_sha256": sha256}

    def definitions(self, name: str, optimize: int | None = None) -> list[Json]:
        """[{"line": of its first decorator or `def`, "decorated": it or a class around it, "code_sha256"}] of every definition.

        A class with keywords counts as decorated: a metaclass may make anything of its methods.

        `optimize`: the level of -O to compile with; None: not compiled, and code_sha256 is null.
        """
        out = []
        for path in self._paths(name):
            if not isinstance(path[-1], ast.ClassDef):
                line = min([path[-1].lineno, *(one.lineno for one in path[-1].decorator_list)])
                sha256 = None if optimize is None else self._sha256(name, line, optimize)
                out.append(
                    {
                        "line": line,
                        "decorated": any(one.decorator_list or getattr(one, "keywords", ()) for one in path),
                        "code_sha256": sha256,
                    }
                )
        return out

    def rebound(self, name: str) -> list[int]:
        """Lines on which the file itself may give the name (or a class around it) another meaning: an import, an assignment."""
        parts = name.split(".")
        names = {".".join(parts[: n + 1]) for n in range(len(parts))}
        lines = [line for line, bound in _bindings(self.tree) if bound == "*" or bound in names]
        for path in self._paths(".".join(parts[:-1])) if parts[1:] else ():
            lines += [line for line, bound in _bindings(path[-1]) if bound == parts[-1]]
        return sorted(set(lines))

    def _paths(self, name: str) -> list[tuple[Definition, ...]]:
        """Every definition of that name, with the classes around it."""
        paths: list[tuple[Definition, ...]] = [()]
        for part in name.split("."):
            inner = ((path, definitions(path[-1] if path else self.tree)) for path in paths)
            paths = [(*path, node) for path, nodes in inner for node in nodes if node.name == part]
        return paths

    def _sha256(self, name: str, line: int, optimize: int) -> str | None:
        if optimize not in self._compiled:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._compiled[optimize] = compile(self.tree, "<source>", "exec", dont_inherit=True, optimize=optimize)
        found = [self._compiled[optimize]]
        for part in name.split("."):
            found = [one for code in found for one in code.co_consts if isinstance(one, CodeType) and one.co_name == part]
        mine = [code for code in found if code.co_firstlineno == line]
        return digest(compiled_body(mine[0])).hex() if len(mine) == 1 else None


def definitions(outer: ast.AST) -> Iterator[Definition]:
    """Functions and classes of one scope, those under `if` and `try` included."""
    for node in ast.iter_child_nodes(outer):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node
        else:
            yield from definitions(node)


def _bindings(scope: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of what a scope binds by other means than a definition: "f", or "Class.f" where an attribute is assigned."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((node.lineno, (alias.asname or alias.name).partition(".")[0]) for alias in node.names)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node.lineno, ast.unparse(node)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _bindings(node)
