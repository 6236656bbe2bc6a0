"""Reports whose every text field holds something that would like to act on the reader's screen."""

from __future__ import annotations

import enum
from typing import Any, TypeVar

import msgspec

PAYLOADS = {
    "script": "</script><script>alert(1)</script>",
    "style": "</style><style>*{display:none}</style>",
    "image": '"><img src=x onerror=alert(1)>',
    "attribute": "' onmouseover='alert(1)' style='position:fixed",
    "comment": "--><!-- <iframe src=//evil.example>",
    "entity": "&lt;b&gt; &#60;img&#62; &colon;",
    "jinja": "{{ 7 * 7 }}{% raw %}{# x #}",
    "ansi": "\x1b[2J\x1b]0;owned\x07\x1b[31m",
    "c1": "\x9b31m\x90q\x85",
    "bidi": "user\u202egnp.exe\u2066\u2069\u200f",
    "zero_width": "ad\u200bmin\ufeff\u00ad\U000e0041",
    "nul": "a\x00b\x07\x08\x7f",
    "surrogate": "x\udc80y\ud800",
    "lines": "one\r\ntwo\n# three\n\n- four\n\x0b\x0c\u2028\u2029five",
    "backticks": "```\n``` `x` ```` `",
    "pipes": "| a | b |\n|---|---|\n| \\| |",
    "mention": "@everyone @org/team user@example.com #123 !45 GH-6 PROJ-7 :tada:",
    "link": "[click](http://evil.example) ![](http://evil.example/x.png) <http://evil.example> http://evil.example www.evil.example",
    "reference": "[x]: http://evil.example\n[x]",
    "emphasis": "**bold** __under__ ~~gone~~ *it* $x$ $$y$$",
    "block": "# head",
    "quote": "> quoted",
    "list": "1. one",
    "ruler": "--- ===",
    "indent": "        code",
    "rich": "[bold red]x[/bold red] [link=http://evil.example]y[/link]",
    "long": "A" * 20000,
    "wide": "漢字" * 300,
}

T = TypeVar("T")


def poisoned(record: T, payload: str) -> T:
    """`record` with every string in it, at any depth, replaced by `payload`."""
    return _poison(record, payload)


def _poison(value: Any, payload: str) -> Any:
    if isinstance(value, enum.Enum):
        return value
    if isinstance(value, str):
        return payload
    if isinstance(value, tuple):
        return tuple(_poison(v, payload) for v in value)
    if isinstance(value, dict):
        return {payload: payload} if value else {}
    if isinstance(value, msgspec.Struct):
        return type(value)(**{name: _poison(getattr(value, name), payload) for name in value.__struct_fields__})
    return value
