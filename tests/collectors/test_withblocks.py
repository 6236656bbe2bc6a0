"""What lines say: each test marks the lines of one small source, so that what is claimed can be read beside it."""

from __future__ import annotations

import argparse
import ast
import os
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from collectors._sourcefile import PARSE_LIMIT_BYTES, Source
from collectors._sources import PARSED_LIMIT_BYTES, SOURCE_LIMIT_BYTES, Refused, Sources

NESTED = textwrap.dedent(
    """\
    import threading                                        # 1
    a, b = threading.Lock(), threading.Lock()
    def plain(c):
        with a:
            x = 1                                           # 5
            with (b,
                  c):
                x = 2
                def later():
                    return x                                # 10
                try:
                    x = [
    3
                    ]
                finally:                                    # 15
                    x = later()
        return x
    def one_line():
        with a: pass
        return 1                                            # 20
    def loose():
        with a:
            a.release()
            a.acquire()
    class Box:                                              # 25
        @property
        def size(self):
            with self.__lock:
                return self.q.get(timeout=1)
        async def run(self):                                # 30
            async with self.lock:
                return (lambda: 1)()
    with a:
        plain(b)
    """
)


def said(expressions: list[ast.expr]) -> list[str]:
    return [ast.unparse(expr) for expr in expressions]


@pytest.mark.parametrize(
    ("name", "line", "taken"),
    [
        ("plain", 3, []),
        ("plain", 4, ["a"]),
        ("plain", 5, []),
        ("plain", 6, ["b", "c"]),
        ("plain", 7, ["b", "c"]),
        ("plain", 8, []),
        ("plain.<locals>.later", 10, []),
        ("one_line", 19, ["a"]),
        ("Box.size", 28, ["self.__lock"]),
        ("Box.run", 31, []),
        ("<module>", 33, ["a"]),
        ("<module>", 34, []),
    ],
)
def test_what_a_with_statement_takes_on_a_line(name: str, line: int, taken: list[str]) -> None:
    position = Source(NESTED.encode()).position(name, line)
    assert position is not None
    assert said(position.entering()) == taken


@pytest.mark.parametrize(("name", "line"), [("plain", 10), ("other", 5), ("later", 5), ("<module>", 8), ("<lambda>", 32), ("plain", 999)])
def test_a_frame_that_the_source_does_not_know(name: str, line: int) -> None:
    assert Source(NESTED.encode()).position(name, line) is None


@pytest.mark.parametrize(
    ("body", "owners"),
    [
        ("a.b.release()", ["a.b"]),
        ("go = a.release; b.release()", ["a", "b"]),
        ("a.release = 1; b.acquire()", ["a"]),
        ("getattr(a, 'release')(); b.release()", []),
        ("def inner(): a.release()", []),
        ("a.lock", []),
    ],
)
def test_whose_release_a_function_speaks_of(body: str, owners: list[str]) -> None:
    position = Source(f"def f():\n {body}\n return 1\n".encode()).position("f", 3)
    assert position is not None
    assert sorted(said(position.owners("release", "__exit__"))) == owners


def test_what_a_line_takes_and_calls() -> None:
    source = Source(NESTED.encode())
    size = source.position("Box.size", 29)
    assert size
    assert [ast.unparse(e) for e in size.calls("get", "put")] == ["self.q"]
    assert size.calls("put") == []
    other = source.position("Box.size", 28)
    assert other and other.calls("get") == [] and [ast.unparse(e) for e in other.anywhere("get")] == ["self.q"]
    assert size.private("__lock") == "_Box__lock" and size.private("lock") == "lock"


def test_which_names_are_the_modules() -> None:
    source = Source(
        b"def outer(p):\n    global g\n    g = v = 1\n    import os.path as o, sys\n    for i, (j, *k) in p: pass\n"
        b"    def inner():\n        nonlocal v\n        v = 2\n        return i\n    return inner\n"
    )
    inner, outer = source.position("outer.<locals>.inner", 9), source.position("outer", 5)
    assert inner and outer
    assert [name for name in ("g", "v", "o", "sys", "os", "i", "j", "k", "p", "inner", "x") if outer.is_global(name)] == ["g", "os", "x"]
    assert [name for name in ("g", "v", "i", "p", "x") if inner.is_global(name)] == ["g", "x"]


def test_a_source_is_refused_when_it_may_not_be_what_runs(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text("def f():\n    x = '\\d'\n")  # would warn
    sources, now = Sources(10), time.time_ns()

    def position(path: object, started_ns: int = 0, sources: Sources = sources) -> object:
        return sources.position(os.getpid(), str(path), started_ns or time.time_ns(), "f", 2)

    assert position(file)
    with pytest.raises(Refused, match="changed after"):
        position(file, now - 10**9)
    for text, why in (("def f():\n  x = (\n", "cannot parse"), ("\0", "cannot parse"), ("#" * (SOURCE_LIMIT_BYTES + 1), "larger than")):
        file.write_text(text)
        with pytest.raises(Refused, match=why):
            position(file)
    for path in ("<string>", "relative.py", "/x/y.so"):
        with pytest.raises(Refused, match="no source"):
            position(path)
    with pytest.raises(FileNotFoundError):
        position("/nonexistent/x.py")
    os.mkfifo(tmp_path / "fifo.py")
    with pytest.raises(Refused, match="not a file"):
        position(tmp_path / "fifo.py")
    file.write_text("def f():\n    y = 1\n")
    with pytest.raises(Refused, match="lack of time"):
        position(file, 0, Sources(0))


def test_what_is_parsed_is_bounded_by_its_size(tmp_path: Path) -> None:
    """One piece, and all together: a dense text takes hundreds of times its size as a tree. Each function is parsed once."""
    now, pid = time.time_ns() + 10**10, os.getpid()
    file = tmp_path / "large.py"
    small = "def f():\n    x = 1\ndef outer():\n    def inner():\n        y = 1\n"
    file.write_text(small + "a = [" + "1," * (PARSE_LIMIT_BYTES // 2) + "]\n")
    sources = Sources(10)
    assert sources.position(pid, str(file), now, "f", 2), "cut out of it"
    with pytest.raises(Refused, match="too large"):
        sources.position(pid, str(file), now, "outer.<locals>.inner", 5)
    file.write_text(small + "def g():\n    a = [" + "1,\n" * (PARSE_LIMIT_BYTES // 3) + "]\n    return a\n")
    with pytest.raises(Refused, match="too large"):
        sources.position(pid, str(file), now, "g", 9)

    piece, read = "def f():\n    x = '" + "x" * (PARSE_LIMIT_BYTES - 1000) + "'\n    return x\n", 0
    for number in range(100):
        other = tmp_path / f"{number}.py"
        other.write_text(piece)
        try:
            assert [sources.position(pid, str(other), now, "f", line) is not None for line in (2, 3)] == [True, True]
        except Refused as why:
            assert "lack of memory" in str(why)
            break
        read += 1
    assert 1 <= read <= PARSED_LIMIT_BYTES // (PARSE_LIMIT_BYTES - 2000) + 1


CUT = textwrap.dedent(
    """\
    class Box:
        # comment
      # left of its class
        def long(
            self,
        ) -> int:
            '''
    def long(self): with wrong:
        text at the left
            '''
            with self.a:  # comment
                x = [
      1
    ]
            return 1
        def after(self):
            with self.b:
                return 2

    if True:
        def guarded():
            with c:
                return 3
    def outer():
        lock = 1
        def inner():
            with lock:
                return 4
        return inner
    def plain():
        with d:
            return 5
    """
)


@pytest.mark.parametrize(
    ("name", "line", "taken", "cut"),
    [
        ("long", 11, ["self.a"], False),
        ("long", 15, [], False),
        ("after", 17, ["self.b"], False),
        ("guarded", 22, ["c"], False),
        ("inner", 27, ["lock"], False),
        ("outer", 29, [], True),
        ("plain", 31, ["d"], True),
    ],
)
def test_a_function_is_cut_out_or_its_file_is_parsed(name: str, line: int, taken: list[str], cut: bool) -> None:
    source = Source(CUT.encode())
    position, whole = source.position(name, line), source.in_whole(name, line)
    assert position and whole
    assert said(position.entering()) == said(whole.entering()) == taken
    assert position.private("__x") == whole.private("__x") == ("_Box__x" if name in ("long", "after") else "__x")
    assert position.is_global("lock") == whole.is_global("lock") == (name not in ("inner", "outer"))
    assert (source.alone(name, line) is not None) == cut


def test_cut_out_or_not_every_line_of_a_library_says_the_same() -> None:
    """Every function of large modules of the standard library, on every line: what is cut out is what is there."""
    for module in (argparse, tempfile):
        text = Path(str(module.__file__)).read_bytes()
        source, whole, alone = Source(text), Source(text), 0
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1, 3):
                    one, other = source.alone(node.name, line), whole.in_whole(node.name, line)
                    if one is not None:
                        alone += 1
                        assert other is not None and said(one.entering()) == said(other.entering())
                        assert [ast.dump(e) for e in one.calls("get", "join")] == [ast.dump(e) for e in other.calls("get", "join")]
        assert alone > 50
