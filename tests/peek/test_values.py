"""Values of every kind, on every CPython of the machine, as the snapshot writes them."""

from __future__ import annotations

import json

import pytest

from collectors._cpython import Bounds

from .conftest import EVERYTHING, Child

PLAIN = [
    "None",
    "True",
    "False",
    *("0", "1", "-1", "2**29", "2**30 - 1", "2**30", "-(2**30)", "2**60", "2**64 - 1", "-(2**63)", "10**100", "-(10**100)"),
    *("0.0", "-2.5", "1e300", "5e-324"),
    *(
        "''",
        "'a'",
        "'plain'",
        "'\\xe9'",
        "'\\u65e5\\u672c'",
        "'\\U0001f600 mixed'",
        "'x' * 5000",
        "'\\x1b[31m'",
        "'\\ud800'",
        "'\\ud83d' + '\\ude00'",
    ),
    *("[]", "()", "{}", "[1, [2, [3, []]]]", "(1, (2,))", "list(range(1000))"),
    *("{'a': 1, 'b': {'c': None}}", "{str(i): i for i in range(1000)}", "dict.fromkeys('abc')"),
    "[[], {}, '', 0, None, False]",
]


def listed(value: object) -> object:
    """With lists for tuples, as JSON has it."""
    return [listed(one) for one in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("source", PLAIN)
def test_plain_data_is_itself(child: Child, source: str) -> None:
    value = eval(source)
    assert child.read(source) == listed(value)
    assert type(child.read(source)) is (list if isinstance(value, tuple) else type(value))


TAGGED = [
    ("b''", {"$type": "bytes", "length": 0, "data": ""}),
    ("b'a\\x00\\xff'", {"$type": "bytes", "length": 3, "data": "a\\x00\\xff"}),
    ("bytearray(b'xyz')", {"$type": "bytearray", "length": 3, "data": "xyz"}),
    ("bytearray()", {"$type": "bytearray", "length": 0, "data": ""}),
    ("float('nan')", {"$type": "float", "value": "nan"}),
    ("float('-inf')", {"$type": "float", "value": "-inf"}),
    ("2**2000", {"$type": "int", "bits": 2001, "hex": hex(2**2000)}),
    ("{7}", {"$type": "set", "length": 1, "items": [7]}),
    ("set()", {"$type": "set", "length": 0, "items": []}),
    ("frozenset(['a'])", {"$type": "frozenset", "length": 1, "items": ["a"]}),
    ("{1: 'a', 'b': 2}", {"$type": "dict", "length": 2, "entries": {"b": 2}, "items": [[1, "a"]]}),
    ("{'$type': 1}", {"$type": "dict", "length": 1, "entries": {"$type": 1}}),
    ("{b'HOME': b'/'}", {"$type": "dict", "length": 1, "environ": {"HOME": "/"}}),
    ("{b'K': 1, 'b': 2}", {"$type": "dict", "length": 2, "entries": {"b": 2}, "named": {"K": 1}}),
    ("{'PATH': '/', 'PWD': '/', 'K': 'v'}", {"$type": "dict", "length": 3, "environ": {"PATH": "/", "PWD": "/", "K": "v"}}),
    ("{'A': 'x', 'PATH': '/', 'HOME': 1}", {"A": "x", "PATH": "/", "HOME": 1}),
    ("collections.deque()", {"$type": "collections.deque", "length": 0, "maxlen": None, "items": []}),
    ("collections.deque([1], 5)", {"$type": "collections.deque", "length": 1, "maxlen": 5, "items": [1]}),
    ("Color.BLUE", {"$type": "shapes.Color", "name": "BLUE", "value": "blue"}),
    ("Level.LOW", {"$type": "shapes.Level", "name": "LOW", "value": 10}),
    ("Point(1, 'y')", {"$type": "shapes.Point", "entries": {"x": 1, "y": "y"}}),
    ("Count(-5)", {"$type": "shapes.Count", "value": -5}),
    ("Count(2**40)", {"$type": "shapes.Count", "value": 2**40}),
    ("Text('\\u65e5')", {"$type": "shapes.Text", "head": "日"}),
    ("Text('plain')", {"$type": "shapes.Text", "head": "plain"}),
    ("Bag(a=1)", {"$type": "shapes.Bag", "length": 1, "entries": {"a": 1}}),
    ("Plain", {"$type": "type", "name": "shapes.Plain"}),
    ("dict", {"$type": "type", "name": "dict"}),
    ("collections", {"$type": "module", "name": "collections"}),
    ("churned", {"$type": "function", "name": "shapes.churned"}),
]


@pytest.mark.parametrize(("source", "expected"), TAGGED)
def test_other_values_name_their_type(child: Child, source: str, expected: object) -> None:
    assert child.read(source) == expected


def test_attributes_of_subclasses_of_containers_are_there_too(child: Child) -> None:
    child.make("def marked(x, **names): x.__dict__.update(names); return x")
    assert child.read("marked(Count(2**70), unit='s')") == {"$type": "shapes.Count", "value": 2**70, "attributes": {"unit": "s"}}
    assert child.read("marked(Text('t'), a=1)") == {"$type": "shapes.Text", "head": "t", "attributes": {"a": 1}}
    assert child.read("marked(Bag(), a=1)") == {"$type": "shapes.Bag", "length": 0, "attributes": {"a": 1}}
    child.make("class Pair(tuple): pass")
    pair = child.read("marked(Pair((1, 2, 3)), a=1)")
    assert pair["items"] == [1, 2, 3] and pair["attributes"] == {"a": 1}


def test_an_ordered_dict_keeps_its_own_order(child: Child) -> None:
    child.make("od = collections.OrderedDict((c, i) for i, c in enumerate('abcde')); od.move_to_end('b'); od.move_to_end('e', last=False)")
    assert list(child.read("od")["entries"]) == ["e", "a", "c", "d", "b"]
    assert child.read("od")["entries"] == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}


INSTANCES = [
    ("Plain({'a': 1, 'b': [2]})", {"a": 1, "b": [2]}),
    ("Plain({})", None),
    ("Plain({'a': 1, 'b': 2}, ['a'])", {"b": 2}),
    ("Plain({f'n{i}': i for i in range(100)})", {f"n{i}": i for i in range(100)}),
    ("Opened({'a': 1, 'b': 'x'})", {"a": 1, "b": "x"}),
    ("Slotted(1, 'r')", {"left": 1, "right": "r"}),
    ("Mixed([], {}, more=3)", {"left": [], "right": {}, "more": 3}),
    ("Record('n', 5)", {"name": "n", "value": 5, "tags": []}),
]


@pytest.mark.parametrize(("source", "attributes"), INSTANCES)
def test_instances_show_their_attributes(child: Child, source: str, attributes: dict[str, object] | None) -> None:
    value = child.read(source)
    assert value["$type"] == "shapes." + source.partition("(")[0]
    assert value.get("attributes") == attributes


def test_many_instances_of_a_class_that_share_their_keys(child: Child) -> None:
    """Whatever the order and the gaps in which attributes came: split dicts, inline values, and those that had to give them up."""
    child.make("import random; random.seed(5)")
    child.make("class Shared: pass")
    child.make(
        "def several():\n"
        "    out = []\n"
        "    for i in range(60):\n"
        "        one = Shared()\n"
        "        names = random.sample('abcdefghij', random.randrange(10))\n"
        "        for name in names: setattr(one, name, i)\n"
        "        for name in names[:i % 3]: delattr(one, name)\n"
        "        if i % 4 == 0: one.__dict__\n"
        "        if i % 7 == 0: one.__dict__ = dict(one.__dict__)\n"
        "        out.append((one, dict(vars(one)) if i % 4 == 0 else {n: i for n in names[i % 3:]}))\n"
        "    return out\n"
    )
    pairs = child.read("several()")
    assert len(pairs) == 60
    for instance, expected in pairs:
        assert instance.get("attributes", {}) == expected


def test_an_unset_slot_is_not_there(child: Child) -> None:
    assert child.read("Slotted.__new__(Slotted)").get("attributes") is None


def test_exceptions_show_their_arguments(child: Child) -> None:
    value = child.read("ValueError('bad', 7)")
    assert value["$type"] == "ValueError" and value["args"] == ["bad", 7]
    child.make("class Mine(RuntimeError):\n    def __init__(self, x): super().__init__('m'); self.x = x")
    value = child.read("Mine(3)")
    assert value["$type"] == "shapes.Mine" and value["args"] == ["m"] and value["attributes"] == {"x": 3}


def test_a_bound_method_names_its_function_and_its_object(child: Child) -> None:
    value = child.read("Plain({'a': 1}).__init__")
    assert value["name"] == "shapes.Plain.__init__" and value["self"]["attributes"] == {"a": 1}


def test_the_environment_is_marked_as_one(child: Child) -> None:
    child.make("import os; os.environ['PEEK_TEST'] = 'caf\\xe9'")
    value = child.read("os.environ")
    assert value["$type"] == "os._Environ" and value["environ"]["PEEK_TEST"] == "caf\\xc3\\xa9"


def test_module_qualified_names_of_types(child: Child) -> None:
    child.make("import queue, functools")
    names = {
        source: child.process.type_name(child.make(source))
        for source in ("{}", "collections.deque()", "queue.Queue()", "queue.SimpleQueue()", "Plain", "Color", "functools.partial(int)")
    }
    assert names == {
        "{}": "dict",
        "collections.deque()": "collections.deque",
        "queue.Queue()": "queue.Queue",
        "queue.SimpleQueue()": "_queue.SimpleQueue",
        "Plain": "type",
        "Color": "enum.EnumMeta" if child.version == (3, 10) else "enum.EnumType",
        "functools.partial(int)": "functools.partial",
    }


def test_bounds_are_marked_where_they_cut(child: Child) -> None:
    few = Bounds(depth=2, items=3, text=4)
    assert child.read("list(range(10))", few) == {"$type": "list", "length": 10, "items": [0, 1, 2]}
    assert child.read("'abcdefgh'", few) == {"$type": "str", "length": 8, "head": "abcd"}
    assert child.read("b'abcdefgh'", few) == {"$type": "bytes", "length": 8, "data": "abcd"}
    assert child.read("{i: i for i in range(9)}", few)["length"] == 9
    deep = child.read("[1, [2, [3, [4]]]]", few)
    assert deep[:1] == [1] and deep[1][1][1]["$cut"] == "depth" and deep[1][1][1]["$type"] == "list"
    snapshot = child.process.snapshot(child.make("[[i] for i in range(3000)]"), EVERYTHING._replace(objects=100))
    assert snapshot.cut and snapshot.value[-1] == {"$cut": "objects"}
    for bounds in (EVERYTHING._replace(nbytes=10_000), EVERYTHING._replace(seconds=0.001)):
        snapshot = child.process.snapshot(child.make("[str(i) for i in range(20000)]"), bounds)
        assert snapshot.cut and not snapshot.torn and "bound" in json.dumps(snapshot.value)


def test_a_cycle_ends_where_it_closes(child: Child) -> None:
    child.make("cycle = [1]; cycle.append({'back': cycle, 'self': Plain({'to': cycle})})")
    value = child.read("cycle")
    assert value[0] == 1 and value[1]["back"]["$cut"] == "cycle" and value[1]["self"]["attributes"]["to"]["$cut"] == "cycle"
    shared = child.read("(lambda x: [x, x])([5])")
    assert shared == [[5], [5]], "what is only shared is no cycle"


def test_a_deep_structure_is_bounded(child: Child) -> None:
    child.make("deep = []")
    child.make("for _ in range(50000): deep = [deep]")
    snapshot = child.process.snapshot(child.make("deep"), EVERYTHING._replace(depth=10_000))
    assert snapshot.cut and json.dumps(snapshot.value).count("[") == 65


def test_a_huge_dict_costs_only_what_is_asked_for(child: Child) -> None:
    address = child.make("{i: str(i) for i in range(500_000)}")
    before = child.process.memory.bytes_read
    snapshot = child.process.snapshot(address, Bounds(items=10))
    assert snapshot.cut and snapshot.value["length"] == 500_000 and len(snapshot.value["items"]) == 10
    assert child.process.memory.bytes_read - before < 64 * 1024
    assert child.process.length(address) == 500_000


def test_lengths_items_and_pairs(child: Child) -> None:
    process = child.process
    for source, length in (
        ("[1, 2]", 2),
        ("(1,)", 1),
        ("{1, 2, 3}", 3),
        ("{1: 2}", 1),
        ("'abc'", 3),
        ("b'ab'", 2),
        ("rotated(range(99), 7)", 99),
    ):
        assert process.length(child.make(source)) == length, source
    for source in ("[5, 6, 7]", "(5, 6, 7)", "collections.deque([5, 6, 7])", "{5: 0, 6: 0, 7: 0}"):
        assert [process.value(item) for item in process.items(child.make(source))] == [5, 6, 7]
    pairs = process.pairs(child.make("{'a': 1, 'b': 2}"))
    assert [(process.value(key), process.value(value)) for key, value in pairs] == [("a", 1), ("b", 2)]
