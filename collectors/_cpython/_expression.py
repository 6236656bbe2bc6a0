"""Expressions over the objects of a process: parsed with `ast` here, walked through its memory, never evaluated there.

EngineCoreProc.scheduler.running      the object of that class which some frame holds, then attributes
len(EngineCoreProc.input_queue.queue) a length, from the container's header
mypkg.mod.TABLE["key"][-1]            a global of a module, then a key, then an index
batch                                 a local variable of some frame
os.environ["VLLM_LOGGING_LEVEL"]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from collectors._cpython import _lookup
from collectors._cpython._errors import BadExpression, NotFound
from collectors._cpython._process import Process
from collectors._cpython._records import DEFAULT_BOUNDS, Bounds, Found, Root

if TYPE_CHECKING:
    import ast

LENGTH_LIMIT = 1000
"""Characters of an expression."""
STEPS_LIMIT = 64
TEACH = "an expression is Name.attribute, Name[index], Name['key'] or len(…) of those"
_NAMES_SHOWN = 12

Step = tuple[str, Any]
"""("attribute", name) or ("item", constant)"""


class Parsed:
    """An expression in the order in which it is walked."""

    def __init__(self, name: str, steps: list[Step], length: bool) -> None:
        self.name = name
        self.steps = steps
        self.length = length

    @property
    def names(self) -> tuple[str, ...]:
        """The first name, then attributes and keys: under which the value would stand, and be redacted, in what holds it."""
        steps = [value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value for _, value in self.steps]
        return self.name, *(value for value in steps if isinstance(value, str))

    @property
    def last_name(self) -> str:
        """The last attribute or key, of text or bytes."""
        return self.names[-1]


def parse(expr: str) -> Parsed:
    """Take an expression apart. Raises BadExpression with what can be asked for instead."""
    import ast

    if len(expr) > LENGTH_LIMIT:
        raise BadExpression(f"the expression is longer than {LENGTH_LIMIT} characters", TEACH)
    try:
        node: ast.AST = ast.parse(expr.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadExpression(f"not an expression: {getattr(error, 'msg', error)}", TEACH) from None
    length = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"
    if isinstance(node, ast.Call) and length:
        if len(node.args) != 1 or node.keywords:
            raise BadExpression("len() takes one thing", TEACH)
        node = node.args[0]
    steps: list[Step] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            steps.append(("attribute", node.attr))
            node = node.value
        elif isinstance(node, ast.Subscript):
            steps.append(("item", _constant(node.slice)))
            node = node.value
        else:
            raise _refuse(node)
        if len(steps) > STEPS_LIMIT:
            raise BadExpression(f"more than {STEPS_LIMIT} steps", TEACH)
    return Parsed(node.id, steps[::-1], length)


def evaluate(process: Process, expr: str, roots: Sequence[Root] = (), bounds: Bounds = DEFAULT_BOUNDS) -> Found:
    """What `expr` comes to. Raises BadExpression, NotFound, and what Process raises.

    The first name is looked for among the classes of what frames hold (subclasses included), then modules, then local variables;
    the first of these from which every step can be taken counts. `Found.torn` covers the way to the object as well as its value.
    """
    parsed = parse(expr)
    process.heap.forget()
    with process.memory.limited(bounds.nbytes, bounds.seconds):
        found, torn = process.consistently(lambda: _walk_any(process, parsed, roots, bounds))
    return found._replace(torn=torn)


def candidates(process: Process, name: str, roots: Iterable[Root]) -> list[Root]:
    """The distinct objects that frames hold and that are of the class `name` ("Scheduler", "mypkg.Scheduler", or a base of theirs)."""
    out: dict[int, Root] = {}
    for root in roots:
        if root.address not in out and _lookup.is_named(root.type, name):
            out[root.address] = root
    if not out:
        for root in roots:
            if root.address not in out and any(_lookup.is_named(base, name) for base in _lookup.bases_of(process, root.address)):
                out[root.address] = root
    return list(out.values())


def _walk_any(process: Process, parsed: Parsed, roots: Sequence[Root], bounds: Bounds) -> Found:
    failed: NotFound | None = None
    for address, steps, how in _starts(process, parsed, roots):
        try:
            return _walk(process, address, steps, parsed.length, bounds, how)
        except NotFound as error:
            failed = failed or error
    if failed:
        raise failed
    classes = sorted({root.type.rpartition(".")[2] for root in roots if "." in root.type})
    raise NotFound(
        f"nothing is called {parsed.name!r}: no class of an object that a frame holds, no module, no local variable",
        "classes that frames hold: " + _some(classes) if classes else "give the full name of a module, or look with py-spy dump --locals",
    )


def _starts(process: Process, parsed: Parsed, roots: Sequence[Root]) -> Iterator[tuple[int, list[Step], str]]:
    """(address, remaining steps, how it was found) of everything that the first name may mean, in the order in which it is tried."""
    yield from _one_of(process, parsed.name, candidates(process, parsed.name, roots), parsed.steps)
    attributes = [value for _, value in takewhile(lambda step: step[0] == "attribute", parsed.steps)]
    names = [".".join((parsed.name, *attributes[:taken])) for taken in range(len(attributes) + 1)]
    modules = process.modules(names)
    for taken, dotted in reversed([*enumerate(names)]):  # the longest name wins
        held = {root.address: root for root in roots if root.type == dotted} if taken else {}
        yield from _one_of(process, dotted, list(held.values()), parsed.steps[taken:])
        if dotted in modules:
            yield modules[dotted], parsed.steps[taken:], f"module {dotted}"
            break
    here = {root.address: root for root in reversed(roots) if root.name == parsed.name}
    yield from _one_of(process, parsed.name, list(here.values())[::-1], parsed.steps)


def _one_of(process: Process, name: str, found: list[Root], steps: list[Step]) -> Iterator[tuple[int, list[Step], str]]:
    if len(found) > 1:
        where = "; ".join(f"{root.address:#x} {root.type}, {_place(root)}" for root in found[:_NAMES_SHOWN])
        raise BadExpression(f"{name!r} may be {len(found)} objects: {where}", "choose one with --at ADDRESS, or narrow it with --thread")
    for root in found:
        if process.type_name(root.address) != root.type:
            raise NotFound(f"{root.name!r} of {root.frame} is another object by now: the frame has gone on", "try again")
        yield root.address, steps, f"{root.type} at {root.address:#x}, {_place(root)}"


def _place(root: Root) -> str:
    place = f"{root.frame} ({root.file.rpartition('/')[2]}:{root.line}) of thread {root.thread_name or root.thread_ident}"
    return f"held by {root.name!r} in {place}"


def _walk(process: Process, address: int, steps: list[Step], length: bool, bounds: Bounds, how: str) -> Found:
    variable = None
    for kind, wanted in steps:
        of_environment = kind == "item" and isinstance(wanted, (str, bytes)) and _lookup.is_environment(process, address)
        variable = wanted if of_environment else None
        step = _lookup.attribute if kind == "attribute" else _lookup.item
        address = step(process, address, wanted)
    if length:
        return Found(None, process.length(address), "int", root=how)
    snapshot = process.decode(address, bounds)
    value = snapshot.value
    if variable is not None:
        if isinstance(value, dict):
            value = value.get("data", value.get("head", ""))
        name = variable.decode("utf-8", "backslashreplace") if isinstance(variable, bytes) else variable
        value = {"environ": {name: value}}  # keeps its name, for the redaction to go by
    return Found(address, value, snapshot.type, False, snapshot.cut, how)


def _constant(node: ast.AST) -> Any:
    import ast

    if isinstance(node, ast.Slice):
        raise BadExpression("a slice is not read", "read one element, X[0], or the whole: it is cut where it is long")
    try:
        value = ast.literal_eval(node)
        hash(value)
    except (ValueError, TypeError, RecursionError):
        raise BadExpression("an index or key must be a constant: [0], [-1], ['name']", TEACH) from None
    return value


def _refuse(node: ast.AST) -> BadExpression:
    import ast

    if isinstance(node, ast.Call):
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        instead = {"qsize": "len(X)", "__len__": "len(X)", "locked": "X: its value says whether it is locked", "is_set": "X._flag"}
        return BadExpression(
            f"{method + '()' if method else 'a call'} would have to run in the process, and nothing is run there",
            f"read {instead[method]} instead" if method in instead else f"len() is the only function; {TEACH}",
        )
    if isinstance(node, ast.Constant):
        return BadExpression("a constant needs no process", TEACH)
    return BadExpression(f"{type(node).__name__} is not read here: nothing is computed, only looked up", TEACH)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else "")
