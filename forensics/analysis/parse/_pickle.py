"""Plain data in pickle form, read without pickle: lists, dictionaries, texts and numbers. Whatever else it holds ends the reading.

A pickle is a program. `pickletools.genops` only takes it apart; the operations that build plain data are done here, and there are
none here that could import, call or build anything else.
"""

from __future__ import annotations

import pickletools
from typing import Any

OPS_MAX = 20_000_000
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset(
    {
        "BININT",
        "BININT1",
        "BININT2",
        "INT",
        "LONG",
        "LONG1",
        "LONG4",
        "BINFLOAT",
        "FLOAT",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "UNICODE",
        "BINSTRING",
        "SHORT_BINSTRING",
        "STRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
    }
)
_EMPTY: dict[str, type] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_MARK = object()


def plain_pickle(data: bytes) -> Any:
    """The value of a pickle of plain data. Raises ValueError where it is damaged or holds anything else."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for count, (op, arg, _) in enumerate(pickletools.genops(data)):
            if count > OPS_MAX:
                raise ValueError("a pickle of too many operations")
            if op.name == "STOP":
                return stack[-1]
            _do(op.name, arg, stack, memo)
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeDecodeError) as error:
        raise ValueError(f"a damaged pickle: {type(error).__name__}") from None
    raise ValueError("a pickle without an end")


def _do(name: str, arg: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    if name in _VALUES:
        stack.append(arg)
    elif name in _CONSTANTS:
        stack.append(_CONSTANTS[name])
    elif name in _EMPTY:
        stack.append(_EMPTY[name]())
    elif name == "MARK":
        stack.append(_MARK)
    elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
        memo[arg] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET", "GET"):
        stack.append(memo[arg])
    elif name == "SETITEM":
        value, key = stack.pop(), stack.pop()
        _into(stack[-1], dict)[_key(key)] = value
    elif name == "SETITEMS":
        items = _marked(stack)
        _into(stack[-1], dict).update((_key(key), value) for key, value in zip(items[::2], items[1::2], strict=True))
    elif name == "APPEND":
        value = stack.pop()
        _into(stack[-1], list).append(value)
    elif name == "APPENDS":
        items = _marked(stack)
        _into(stack[-1], list).extend(items)
    elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
        count = int(name[-1])
        stack[-count:] = [tuple(stack[-count:])]
    elif name == "TUPLE":
        stack.append(tuple(_marked(stack)))
    elif name == "LIST":
        stack.append(_marked(stack))
    elif name == "DICT":
        items = _marked(stack)
        stack.append({_key(key): value for key, value in zip(items[::2], items[1::2], strict=True)})
    elif name not in ("PROTO", "FRAME"):
        raise ValueError(f"a pickle of more than plain data ({name}): not read")


def _marked(stack: list[Any]) -> list[Any]:
    """What lies above the last mark, taken off the stack together with it."""
    at = len(stack) - 1
    while stack[at] is not _MARK:
        at -= 1
        if at < 0:
            raise ValueError("a damaged pickle: no mark")
    items = stack[at + 1 :]
    del stack[at:]
    return items


def _key(value: Any) -> Any:
    if type(value) not in (str, int, bytes):  # the hash of tuples that hold each other twice takes forever
        raise ValueError("a pickle with a key that is neither text nor number: not read")
    return value


def _into(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError("a damaged pickle: not a container")
    return value
