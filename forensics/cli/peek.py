"""forensics peek: the live objects of a Python process, read in its memory. Nothing there is stopped, signalled or executed.

Credentials, prompts and environment variables are recognised by name and by form and replaced; any other text is shown as it is,
and only a long one needs to be asked for.

Exit status:
  0  done (a long value is cut at its bounds, and says where)
  2  the expression asks for something that is not read here; the message says what can be
  3  not permitted, a Python that is not known, or a value that changed while it was read (it is printed all the same)
  4  no such process, no Python in it, or no such name
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collectors._cpython import Bounds, Found, Process, Root
    from forensics.bundle.redact import Redacting

OK, INCOMPLETE = 0, 3
SCHEMA = "forensics.peek/1"
READ_BYTES, READ_SECONDS = 64 << 20, 5.0
"""More than a collector may spend: somebody waits for this one answer, and the target is not held up."""
LONG_TEXT = 200
"""Characters. A longer text is hardly a name or a state, and may be what somebody wrote."""
_SEQUENCES = frozenset({"list", "tuple"})
_OUR_WORDS = frozenset({"$type", "$at", "$cut"})
_OF_THE_PROGRAM = frozenset({"entries", "named", "environ", "attributes"})
"""Objects whose keys are names of the program."""


def peek_command(
    pid: int,
    expr: str,
    *,
    as_json: bool = False,
    at: int | None = None,
    thread: str = "",
    depth: int | None = None,
    items: int | None = None,
    text: bool = False,
    py_spy: str = "",
) -> int:
    """Print what `expr` comes to in process `pid`, or, without one, the objects whose classes an expression may begin with.

    `text` shows texts longer than LONG_TEXT too, as far as they are no recognised secret.
    """
    from collectors._cpython import Bounds, PeekError, attach
    from forensics.bundle.redact import Redactor

    redactor = Redactor.from_environment()
    bounds = Bounds(nbytes=READ_BYTES, seconds=READ_SECONDS)
    bounds = bounds._replace(depth=bounds.depth if depth is None else depth, items=bounds.items if items is None else items)
    try:
        with attach(pid) as process:
            roots = _roots(process, py_spy, redactor)
            chosen = [root for root in roots if _is_chosen(root, at, thread)]
            if not expr:
                return _list(process, chosen, as_json, redactor)
            return _show(process, expr, chosen, bounds, as_json, redactor, text)
    except PeekError as error:
        _say(redactor.text(str(error)), redactor.text(error.cure))
        return error.exit_code


def _roots(process: Process, py_spy: str, redactor: Redacting) -> list[Root]:
    """What frames hold; without py-spy nothing, which is said: names of modules can be read all the same."""
    from collectors import _pyspy
    from collectors._cpython import Denied, NoRoots, roots

    try:
        return roots(process, _pyspy.find(py_spy) or "")
    except (NoRoots, Denied) as error:
        _say(redactor.text(f"only names of modules can be read: {error}"), redactor.text(error.cure))
        return []


def _is_chosen(root: Root, at: int | None, thread: str) -> bool:
    if at is not None and root.address != at:
        return False
    return not thread or thread in (root.thread_name, str(root.os_thread_id), str(root.thread_ident))


def _show(process: Process, expr: str, roots: Sequence[Root], bounds: Bounds, as_json: bool, redactor: Redacting, text: bool) -> int:
    from collectors._cpython import evaluate

    found = evaluate(process, expr, roots, bounds)
    record = {
        "schema": SCHEMA,
        "pid": process.pid,
        "python": "{}.{}".format(*process.version),
        "expr": expr,
        "root": found.root,
        "type": found.type,
        "address": None if found.address is None else hex(found.address),
        "torn": found.torn,
        "cut": found.cut,
        "value": redacted(found, expr, redactor) if text else without_long_texts(redacted(found, expr, redactor)),
    }
    record["root"], record["expr"] = redactor.text(found.root), redactor.text(expr)
    if as_json:
        _print(json.dumps(record, ensure_ascii=True, indent=2))
    else:
        for line in human(found, record):
            _print(line)
    if not process.verified:
        _say(f"the layouts of CPython {record['python']} are taken from its sources and were not checked on a running one")
    if found.torn:
        _say("it changed while it was read, three times over: parts of it may never have been there together", "try again")
        return INCOMPLETE
    return OK


def redacted(found: Found, expr: str, redactor: Redacting) -> Any:
    """The value without what is secret. It is redacted under all names on the way to it, as it would be inside what holds it."""
    from collectors._cpython import parse

    whole = found.value
    names = parse(expr).names[::-1]
    for name in names:
        whole = {name: whole}
    clean: Any = json.loads(redactor.redact(json.dumps(whole, ensure_ascii=True, separators=(",", ":")).encode(), "live-json", "")[0])
    for _ in names:
        if not isinstance(clean, dict):
            return clean  # what holds it is hidden as a whole
        clean = next(iter(clean.values()))
    return _with_our_words(clean, found.value)


def _with_our_words(clean: Any, value: Any, ours: bool = True) -> Any:
    """ "$type", "$at" and "$cut" as they were: our own words are no secret, whatever they stand under (`ours`: not keys of the program)."""
    if isinstance(clean, list) and isinstance(value, list) and len(clean) == len(value):
        return [_with_our_words(one, was) for one, was in zip(clean, value, strict=True)]
    if not isinstance(clean, dict) or not isinstance(value, dict):
        return clean
    tagged = ours and "$type" in value
    out = {}
    for name, one in clean.items():
        was = value.get(name)
        out[name] = was if ours and name in _OUR_WORDS else _with_our_words(one, was, not (tagged and name in _OF_THE_PROGRAM))
    return out


def without_long_texts(value: Any, name: str = "") -> Any:
    """The value with a note in place of every long text. Environment variables went by allow-list already; digits are no text."""
    if isinstance(value, str) and len(value) > LONG_TEXT and name != "hex":
        return f"<text of {len(value)} characters: --text shows it>"
    if isinstance(value, list):
        return [without_long_texts(one) for one in value]
    if isinstance(value, dict) and name != "environ":
        return {key: without_long_texts(one, key) for key, one in value.items()}
    return value


def human(found: Found, record: dict[str, Any]) -> Iterator[str]:
    """Lines for a person; nothing in them can act on a terminal."""
    from forensics.report.safe import visible

    value = record["value"]
    length = f", {len(value)} elements" if found.type in _SEQUENCES and isinstance(value, list) else ""
    place = f" at {record['address']}" if record["address"] else ""
    yield visible(f"{record['expr']}: {found.type}{length}{place}")
    yield visible(f"  from {record['root']}")
    text = json.dumps(value, ensure_ascii=False, indent=2) if isinstance(value, (dict, list)) else json.dumps(value, ensure_ascii=False)
    for line in text.split("\n"):
        yield visible(line)
    if found.cut:
        yield '  cut where it says "$cut" or where length exceeds the items shown: --depth and --items show more'


def _list(process: Process, roots: Sequence[Root], as_json: bool, redactor: Redacting) -> int:
    """The objects of classes of their own that frames hold, each once, at the innermost frame that has it."""
    from forensics.report.safe import visible

    held: dict[int, Root] = {}
    for root in roots:
        if "." in root.type:
            held.setdefault(root.address, root)
    if as_json:
        rows = [{**root._asdict(), "address": hex(root.address)} for root in held.values()]
        raw = json.dumps({"schema": SCHEMA, "pid": process.pid, "roots": rows}, ensure_ascii=True).encode()
        _print(json.dumps(json.loads(redactor.redact(raw, "live-json", "")[0]), ensure_ascii=True, indent=2))
        return OK
    _print(f"CPython {process.version[0]}.{process.version[1]}, process {process.pid}: {len(held)} objects that frames hold")
    for root in held.values():
        where = f"{root.frame} ({root.file.rpartition('/')[2]}:{root.line}), thread {root.thread_name or root.thread_ident}"
        _print(visible(redactor.text(f"  {root.type} at {root.address:#x}: {root.name} in {where}")))
    return OK


def _print(line: str) -> None:
    from forensics.report.terminal import encodable

    sys.stdout.write(encodable(line, sys.stdout.encoding or "ascii") + "\n")


def _say(message: str, cure: str = "") -> None:
    from forensics.cli import complain
    from forensics.report.safe import one_line
    from forensics.report.terminal import encodable

    encoding = sys.stderr.encoding or "ascii"
    complain(encodable(one_line(message), encoding), encodable(one_line(cure), encoding))
