"""What lines prove: each test marks the lines of one small source, so that what is claimed can be read beside it."""

from __future__ import annotations

import ast
import os
import textwrap
import time
from pathlib import Path

import pytest

from collectors import _withblocks
from collectors._withblocks import Refused, Source, Sources

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


def said(blocks: list[_withblocks.Block]) -> list[str]:
    return [ast.unparse(block.expr) for block in blocks]


@pytest.mark.parametrize(
    ("name", "line", "inside"),
    [
        ("plain", 3, []),
        ("plain", 4, []),  # entering or leaving: not told
        ("plain", 5, ["a"]),
        ("plain", 6, ["a"]),
        ("plain", 7, ["a"]),  # still the head of the inner one
        ("plain", 8, ["a", "b", "c"]),
        ("plain", 13, ["a", "b", "c"]),  # a line that begins left of its block
        ("plain", 16, ["a", "b", "c"]),
        ("plain", 17, []),
        ("plain.<locals>.later", 10, []),  # runs whenever it is called
        ("one_line", 19, []),
        ("one_line", 20, []),
        ("Box.size", 29, ["self.__lock"]),
        ("Box.run", 32, []),
        ("<module>", 34, ["a"]),
        ("<module>", 33, []),
        ("<module>", 3, []),
    ],
)
def test_blocks_around_a_line(name: str, line: int, inside: list[str]) -> None:
    position = Source(NESTED.encode()).position(name, line)
    assert position is not None
    assert said(position.blocks()) == inside


@pytest.mark.parametrize(("name", "line"), [("plain", 10), ("other", 5), ("later", 5), ("<module>", 8), ("<lambda>", 32), ("plain", 999)])
def test_a_frame_that_the_source_does_not_know(name: str, line: int) -> None:
    assert Source(NESTED.encode()).position(name, line) is None


def test_a_block_that_releases_half_way_is_not_certain() -> None:
    source = Source(NESTED.encode())
    for name, line, certain in (("loose", 23, False), ("plain", 5, True)):
        position = source.position(name, line)
        assert position is not None
        assert [block.certain for block in position.blocks()] == [certain]


def test_what_a_line_takes_and_calls() -> None:
    source = Source(NESTED.encode())
    plain, size = source.position("plain", 7), source.position("Box.size", 29)
    assert plain and size
    assert [[ast.unparse(e) for e in items] for items in plain.entering()] == [["b", "c"]]
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
    file.write_text("x = '\\d'\n")  # would warn
    sources, now = Sources(10), time.time_ns()
    assert sources.load(os.getpid(), str(file), now).tree
    with pytest.raises(Refused, match="changed after"):
        sources.load(os.getpid(), str(file), now - 10**9)
    for text, why in (("x = (\n", "cannot parse"), ("\0", "cannot parse"), ("#" * (_withblocks.SOURCE_LIMIT_BYTES + 1), "larger than")):
        file.write_text(text)
        with pytest.raises(Refused, match=why):
            sources.load(os.getpid(), str(file), time.time_ns())
    for path in ("<string>", "relative.py", "/x/y.so"):
        with pytest.raises(Refused, match="no source"):
            sources.load(os.getpid(), path, now)
    with pytest.raises(FileNotFoundError):
        sources.load(os.getpid(), "/nonexistent/x.py", now)
    with pytest.raises(Refused, match="not a file"):
        os.mkfifo(tmp_path / "fifo.py")
        sources.load(os.getpid(), str(tmp_path / "fifo.py"), time.time_ns())
    file.write_text("y = 1\n")
    with pytest.raises(Refused, match="lack of time"):
        Sources(0).load(os.getpid(), str(file), time.time_ns())
