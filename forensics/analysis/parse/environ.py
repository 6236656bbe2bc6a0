"""Environments: `env`, `/proc/PID/environ`, `export -p`. A secret in them is dropped here, for a mailed file was redacted by nobody."""

from __future__ import annotations

import re

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import body, sheets
from forensics.bundle._keys import ENV_ALLOW, env_value_allowed
from forensics.bundle.redact import Redactor
from forensics.model import ConfigValue

_LINE = re.compile(r"^\s*(?:(?:export|declare -x|set)\s+|- )?([A-Za-z_][A-Za-z0-9_]{0,100})(=)(.*)$", re.S)
VALUE_CHARS = 2000
MOST = 5000


def parse(inp: Input, sink: Sink) -> None:
    redact = Redactor()
    for sheet in sheets(inp, inp.text(4 * 1024 * 1024).replace("\0", "\n")):
        for number, line in list(sheet.lines())[:MOST]:
            m = _LINE.match(line)
            if m is None:
                continue
            name, value = m[1], m[3].strip()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            if not env_value_allowed(name, value):
                continue
            value = plain(redact.text(value), VALUE_CHARS)
            sink.add(
                ConfigValue(
                    node=sheet.inp.node,
                    at=sheet.inp.at,
                    ref=inp.ref(f"line {number}", f"{name}={value}"),
                    pid=sheet.inp.pid,
                    name=name,
                    value=value,
                    via="environ",
                )
            )


def recognise(name: str, head: str) -> bool:
    lines = body(head.replace("\0", "\n"), 200)
    if len(head) >= 8000:
        lines = lines[:-1]
    found = [m[1] for line in lines if (m := _LINE.match(line))]
    if not found or len(found) < 0.9 * len(lines):
        return False
    return "env" in name.lower() or any(ENV_ALLOW.fullmatch(n) for n in found)


PARSER = Parser("environ", ("environ",), recognise, parse, binary=True)
