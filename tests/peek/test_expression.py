"""Expressions: what may be asked, what is refused and with which advice, and how the first name is understood."""

from __future__ import annotations

import pytest

from collectors._cpython import BadExpression, NotFound, PeekError, Root, candidates, evaluate
from collectors._cpython._expression import parse

from .conftest import Child

PROGRAM = """
import queue
class Scheduler:
    limit = 17
    def __init__(self):
        self.running, self.waiting, self._name = [1, 2, 3], {}, "s"
        self.q = queue.Queue(4); self.q.put("a"); self.q.put("b")
    @property
    def name(self): return self._name
class AsyncScheduler(Scheduler): pass
class Core:
    def __init__(self):
        self.scheduler = AsyncScheduler()
        self.table = {"k": [1, {2: "z"}], 3: 4, (1, "a"): 5, b"x": 6, None: 7, True: 8, 2.5: 9}
        self.items = rotated(range(200), 70)
core = Core()
"""


def root(child: Child, name: str, source: str, **how: object) -> Root:
    address = child.make(source)
    fields = {"thread_ident": 1, "thread_name": "MainThread", "frame": "run", "line": 7, "file": "/srv/engine.py"}
    return Root(name=name, type=child.process.type_name(address), address=address, **{**fields, **how})  # type: ignore[arg-type]


@pytest.fixture
def held(child: Child) -> list[Root]:
    child.make(PROGRAM)
    return [root(child, "self", "core"), root(child, "batch", "[5, 6]"), root(child, "q", "core.scheduler.q")]


FOUND = [
    ("Core.scheduler.running", [1, 2, 3]),
    ("shapes.Core.scheduler.running", [1, 2, 3]),
    ("len(Core.scheduler.running)", 3),
    ("len(Core.scheduler.q.queue)", 2),
    ("len(Core.scheduler.q)", 2),
    ("Core.scheduler.q.maxsize", 4),
    ("Core.scheduler.q.queue[-1]", "b"),
    ("Core.scheduler.limit", 17),
    ("Queue.maxsize", 4),
    ("batch[0]", 5),
    ("batch[-2]", 5),
    ("Core.table['k'][1][2]", "z"),
    ("Core.table[3]", 4),
    ("Core.table[1, 'a']", 5),
    ("Core.table[b'x']", 6),
    ("Core.table[None]", 7),
    ("Core.table[True]", 8),
    ("Core.table[2.5]", 9),
    ("Core.items[0]", 130),
    ("Core.items[199]", 129),
    ("__main__.names['shapes']", {"$type": "module", "name": "shapes"}),
    ("shapes.Color.RED", {"$type": "shapes.Color", "name": "RED", "value": 1}),
    ("collections.abc", {"$type": "module", "name": "collections.abc"}),
    ("  batch  ", [5, 6]),
]


@pytest.mark.parametrize(("expr", "value"), FOUND)
def test_what_an_expression_comes_to(child: Child, held: list[Root], expr: str, value: object) -> None:
    found = evaluate(child.process, expr, held)
    assert found.value == value and not found.torn
    assert (found.address is None) == expr.startswith("len(")


def test_it_says_where_the_first_name_came_from(child: Child, held: list[Root]) -> None:
    assert evaluate(child.process, "Core", held).root.endswith("held by 'self' in run (engine.py:7) of thread MainThread")
    assert evaluate(child.process, "os.environ", held).root == "module os"


def test_a_variable_of_the_environment_keeps_its_name(child: Child, held: list[Root]) -> None:
    """Because the redaction goes by names."""
    child.make("import os; os.environ['PEEK_TOKEN'] = 'abc'")
    assert evaluate(child.process, "os.environ['PEEK_TOKEN']", held).value == {"environ": {"PEEK_TOKEN": "abc"}}


def test_keys_of_bytes_are_names_too() -> None:
    assert parse("a.b[0][b'token']").last_name == parse("a.b['token'][0]").last_name == "token"
    assert parse("a.b['c'][b'd'][(1, 2)]").names == ("a", "b", "c", "d")


HIDDEN = """
class Hiding:
    __slots__ = ('slot', 'empty', '__dict__')
    asked = property(lambda self: 'of the property')
    cached = __import__('functools').cached_property(lambda self: 'never called')
    class Setting:
        def __get__(self, of, kind): return 'of the descriptor'
        def __set__(self, of, value): pass
    class Derived(Setting): pass
    class Getting:
        def __get__(self, of, kind): return 'of the descriptor'
    setting, derived, getting, plain = Setting(), Derived(), Getting(), 'of the class'
    def __init__(self):
        self.slot = 'of the slot'
        for name in ('slot', 'empty', 'asked', 'cached', 'setting', 'derived', 'getting', 'plain', 'own'):
            self.__dict__[name] = 'of the dict'
hiding = Hiding()
"""


def test_what_python_would_ask_a_descriptor_for_is_unknown(child: Child) -> None:
    """A dict below a property, a slot or another data descriptor is not what the program sees."""
    child.make(HIDDEN)
    held = [root(child, "hiding", "hiding")]
    for name, kind in (("asked", "property"), ("empty", "member_descriptor"), ("setting", "Setting"), ("derived", "Derived")):
        with pytest.raises(NotFound, match=kind):
            evaluate(child.process, f"hiding.{name}", held)
    assert evaluate(child.process, "hiding.slot", held).value == "of the slot"
    for name in ("cached", "getting", "plain", "own"):
        assert evaluate(child.process, f"hiding.{name}", held).value == "of the dict", name
    assert evaluate(child.process, "hiding.__init__", held).type == "function"
    child.make("del hiding.__dict__['getting']")
    with pytest.raises(NotFound, match="Getting"):
        evaluate(child.process, "hiding.getting", held)


MISSING = [
    ("Core.schedule", "scheduler"),
    ("Core.scheduler.name", "._name"),
    ("Core.table['nope']", "'k'"),
    ("Core.scheduler.running[3]", ""),
    ("Core.scheduler.running[-4]", ""),
    ("Core.scheduler.running['a']", ""),
    ("Core.scheduler[0]", "attributes"),
    ("len(Core.scheduler)", "len("),
    ("Nothing.here", "Core"),
    ("os.path.nope", ""),
]


@pytest.mark.parametrize(("expr", "cure"), MISSING)
def test_what_is_not_there_is_said_with_what_is(child: Child, held: list[Root], expr: str, cure: str) -> None:
    with pytest.raises(NotFound) as caught:
        evaluate(child.process, expr, held)
    assert cure in caught.value.cure and str(caught.value)


REFUSED = [
    ("Core.q.qsize()", "len(X)"),
    ("Core.lock.locked()", "its value"),
    ("print(1)", "len() is the only function"),
    ("len(a, b)", "expression is"),
    ("len()", "expression is"),
    ("a + b", "expression is"),
    ("a if b else c", "expression is"),
    ("[x for x in y]", "expression is"),
    ("lambda: 0", "expression is"),
    ("__import__('os').system('true')", "len() is the only function"),
    ("a[1:2]", "one element"),
    ("a[b]", "constant"),
    ("a[[1]]", "constant"),
    ("a[f'{x}']", "constant"),
    ("17", "expression is"),
    ("'text'.upper", "expression is"),
    ("(a := b)", "expression is"),
    ("", "expression is"),
    ("a b", "expression is"),
    ("a.", "expression is"),
    ("import os", "expression is"),
    ("a" + ".b" * 100, "expression is"),
    ("(" * 300 + "a" + ")" * 300, "expression is"),
    ("a" * 2000, "expression is"),
    ("a\0b", "expression is"),
    ("await a", "expression is"),
]


@pytest.mark.parametrize(("expr", "cure"), REFUSED)
def test_everything_else_is_refused_with_what_can_be_asked(expr: str, cure: str) -> None:
    with pytest.raises(BadExpression) as caught:
        parse(expr)
    assert cure in f"{caught.value} {caught.value.cure}"


def test_a_class_is_found_by_its_bases_when_no_object_is_of_just_that_class(child: Child, held: list[Root]) -> None:
    held = [root(child, "s", "core.scheduler"), *held]
    assert evaluate(child.process, "AsyncScheduler.limit", held).value == 17
    assert evaluate(child.process, "Scheduler.limit", held).value == 17
    held = [root(child, "other", "Scheduler()"), *held]
    assert [one.name for one in candidates(child.process, "Scheduler", held)] == ["other"], "the class itself comes first"


def test_a_root_whose_place_another_object_has_taken(child: Child, held: list[Root]) -> None:
    """As it happens when a frame goes on between the dump and the read."""
    with pytest.raises(NotFound, match="is another object by now"):
        evaluate(child.process, "batch", [root(child, "batch", "[5]")._replace(type="shapes.Core")])


def test_two_objects_of_a_class_are_not_chosen_between(child: Child, held: list[Root]) -> None:
    child.make("other = Core()")
    two = [*held, root(child, "peer", "other", thread_name="T-2"), root(child, "again", "core")]
    with pytest.raises(BadExpression, match=r"may be 2 objects.*T-2") as caught:
        evaluate(child.process, "Core.scheduler", two)
    assert "--at" in caught.value.cure
    assert evaluate(child.process, "Core.scheduler.limit", [one for one in two if one.address == two[-2].address]).value == 17


def test_a_local_variable_that_is_called_like_a_module(child: Child) -> None:
    child.make("import queue")
    local = root(child, "queue", "queue.Queue(9)")
    assert evaluate(child.process, "queue.maxsize", [local]).value == 9, "the module has no such name"
    assert evaluate(child.process, "queue.Empty", [local]).type == "type"
    assert evaluate(child.process, "queue.Queue", [local]).type == "queue.Queue", "an object of that class comes before the class"


def test_modules_need_no_frame(child: Child) -> None:
    modules = child.process.modules()
    assert {"sys", "builtins", "__main__", "shapes"} <= modules.keys()
    assert child.process.value(modules["shapes"]) == {"$type": "module", "name": "shapes"}
    assert evaluate(child.process, "shapes.Color.BLUE", ()).value["name"] == "BLUE"


def test_free_variables_of_a_function(child: Child) -> None:
    make = "(lambda shared, other, unused: (lambda first: lambda own: (own, first, shared, other))([7]))('seven', 49, 0)"
    bound = child.process.closure_of(child.make(make))
    assert {name: child.process.value(at) for name, at in bound.items()} == {"first": [7], "shared": "seven", "other": 49}
    assert child.process.closure_of(child.make("churned")) == {}
    cell = child.make("(lambda shared: (lambda: shared))('seven').__closure__[0]")
    assert child.process.value(child.process.content_of(cell)) == "seven"
    number = child.make("12345")
    assert child.process.content_of(number) == number
    with pytest.raises(PeekError):
        child.process.closure_of(child.make("len"))


def test_globals_of_a_function(child: Child) -> None:
    for source in ("churned", "Plain({}).__init__"):
        names = {child.process.value(key) for key, _ in child.process.pairs(child.process.globals_of(child.make(source)))}
        assert {"Plain", "Color", "__name__"} <= names
    with pytest.raises(PeekError):
        child.process.globals_of(child.make("len"))
