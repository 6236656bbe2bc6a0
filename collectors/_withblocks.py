"""What the source of a running function says of one line: what a `with` statement takes there, what is called.

It names what was found in memory, and nothing more is concluded from it. The text is read and parsed here and never leaves.
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


class Scope:
    """A function with what must be known of it, whatever line of it is asked for."""

    def __init__(self, function: Function | ast.Module, enclosing: list[Function], owner: str) -> None:
        self.function, self.owner = function, owner
        self.functions = [n for n in ast.walk(function) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        """It and those inside it."""
        nodes = list(own(function))
        self.withs = [node for node in nodes if isinstance(node, ast.With)]
        self.calls: dict[str, list[tuple[ast.Call, ast.expr]]] = {}
        """Name of a method to (X.method(…), X)."""
        self.attributes: dict[str, list[ast.expr]] = {}
        """Name of an attribute to the X of every X.attribute, called or not."""
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                self.calls.setdefault(node.func.attr, []).append((node, node.func.value))
            elif isinstance(node, ast.Attribute):
                self.attributes.setdefault(node.attr, []).append(node.value)
        self.texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
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

    def entering(self) -> list[ast.expr]:
        """What the `with` statements take whose head holds the line, in this order."""
        heads = [node for node in self._scope.withs if node.lineno <= self.line <= _header_end(node)]
        return [item.context_expr for node in heads for item in node.items]

    def calls(self, *methods: str) -> list[ast.expr]:
        """X of every X.method(…) that lies on the line."""
        found = [call for method in methods for call in self._scope.calls.get(method, ())]
        return [owner for node, owner in found if node.lineno <= self.line <= (node.end_lineno or 0)]

    def anywhere(self, *methods: str) -> list[ast.expr]:
        """X of every X.method(…) in the whole function."""
        return [owner for method in methods for _, owner in self._scope.calls.get(method, ())]

    def owners(self, *attributes: str) -> list[ast.expr]:
        """X of every X.attribute in the whole function, called or not; [] where such a name is also a text, as for getattr."""
        if self._scope.texts & set(attributes):
            return []
        return [owner for attribute in attributes for owner in self._scope.attributes.get(attribute, ())]

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
