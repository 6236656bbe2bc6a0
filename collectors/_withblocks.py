"""What the source of a running function says of one line: which `with` blocks it lies in, what it takes there, what it calls.

Lines are all that a stack gives, so only what a line proves is told. A `with` line itself proves nothing: the block is
entered and left there (from 3.10 on its `__exit__` runs under that line). The text is read and parsed here and never leaves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


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
        body = [n for part in node.body for n in ast.walk(part)]
        taken = {ast.unparse(n) for n in ast.walk(self.expr) if isinstance(n, (ast.Name, ast.Attribute))}
        changed = {ast.unparse(n) for n in body if isinstance(getattr(n, "ctx", None), (ast.Store, ast.Del))}
        # a block that lets go of something half-way, or gives its name to something else, may no longer hold what it took
        self.certain = not (taken & changed or any(isinstance(n, ast.Attribute) and n.attr == "release" for n in body))


class Scope:
    """A function with what must be known of it, whatever line of it is asked for."""

    def __init__(self, function: Function | ast.Module, enclosing: list[Function], owner: str) -> None:
        self.function, self.owner = function, owner
        self.functions = [n for n in ast.walk(function) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        """It and those inside it."""
        nodes = list(own(function))
        self.withs = [node for node in nodes if isinstance(node, ast.With)]
        self.calls = [(n, n.func) for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
        self._global = _declared(nodes, ast.Global)
        self._enclosing = enclosing

    @cached_property
    def bound(self) -> set[str]:
        """Names that are local to it or to a function around it."""
        return {name for each in (self.function, *self._enclosing) if not isinstance(each, ast.Module) for name in _bound(each)}

    def is_global(self, name: str) -> bool:
        return isinstance(self.function, ast.Module) or name in self._global or name not in self.bound


class Position:
    """One line of one function that is running."""

    def __init__(self, scope: Scope, line: int) -> None:
        self._scope, self.line = scope, line

    def blocks(self) -> list[Block]:
        """The `with` blocks whose body the line is inside of, outermost first."""
        found = []
        for node in self._scope.withs:
            if node.body[0].lineno > _header_end(node):
                first = min([node.body[0].lineno, *(d.lineno for d in getattr(node.body[0], "decorator_list", ()))])
                if first <= self.line <= (node.body[-1].end_lineno or 0):
                    found += [Block(node, item) for item in range(len(node.items))]
        return sorted(found, key=lambda block: block.line)

    def entering(self) -> list[list[ast.expr]]:
        """For each `with` statement whose head holds the line: what it takes, in this order."""
        heads = [node for node in self._scope.withs if node.lineno <= self.line <= _header_end(node)]
        return [[item.context_expr for item in node.items] for node in heads]

    def calls(self, *methods: str) -> list[ast.expr]:
        """X of every X.method(…) that lies on the line."""
        here = [func for node, func in self._scope.calls if node.lineno <= self.line <= (node.end_lineno or 0)]
        return [func.value for func in here if func.attr in methods]

    def anywhere(self, *methods: str) -> list[ast.expr]:
        """X of every X.method(…) in the whole function."""
        return [func.value for _, func in self._scope.calls if func.attr in methods]

    def private(self, attribute: str) -> str:
        """An attribute as the compiler names it: `self.__lock` in class C is `_C__lock`."""
        owner = self._scope.owner.lstrip("_")
        return f"_{owner}{attribute}" if owner and attribute.startswith("__") and not attribute.endswith("__") else attribute

    def is_global(self, name: str) -> bool:
        """Whether this function means the module's variable when it says `name`."""
        return self._scope.is_global(name)


def _header_end(node: ast.With) -> int:
    parts = [part for item in node.items for part in (item.context_expr, item.optional_vars) if part is not None]
    return max(part.end_lineno or node.lineno for part in parts)


def _declared(nodes: list[ast.AST], kind: type[ast.Global | ast.Nonlocal]) -> set[str]:
    return {name for node in nodes if isinstance(node, kind) for name in node.names}


def _bound(function: Function) -> set[str]:
    """Names that are local to a function (an import or a nested definition binds one too)."""
    args, nodes = function.args, list(own(function))
    names = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg) if a is not None}
    for node in nodes:
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
    return names - _declared(nodes, ast.Global)
