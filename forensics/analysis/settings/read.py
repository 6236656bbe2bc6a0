"""Where settings are read: command lines, environments, start-up lines, live objects. One reading for each process that says it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from forensics.analysis.settings.pairs import pairs
from forensics.analysis.view import View
from forensics.bundle._keys import Holds, env_value_allowed, holds
from forensics.bundle.redact import Redactor
from forensics.engines import options
from forensics.model import ConfigValue, EvidenceRef, LiveValue, LogHit, Role

VALUE_CHARS = 200
_SHELL = re.compile(
    r"_|PATH|PWD|OLDPWD|HOME|USER|LOGNAME|SHELL|SHLVL|TERM|LANG|TZ|HOSTNAME|TMPDIR|CC|CXX|LC_\w+|XDG_\w+|VIRTUAL_ENV\w*|CONDA_\w+"
    r"|KUBERNETES_SERVICE_\w+|PYTEST_\w+|FORENSICS_\w+"
)
"""What every shell has: no configuration of an engine."""
_WORKS = (Role.API, Role.LAUNCHER, Role.CORE, Role.COORDINATOR, Role.WORKER)
_HIDDEN = (Holds.SECRET, Holds.MAYBE_SECRET, Holds.PROMPT, Holds.TOKENS, Holds.ENVIRONMENT)


@dataclass(frozen=True)
class Read:
    """What one place says of one setting."""

    name: str
    value: str
    via: str
    ref: EvidenceRef
    node: str = ""
    pid: int | None = None
    rank: int | None = None
    asked: bool = False
    stated: bool = False


def readings(view: View) -> Iterator[Read]:
    """Everything that is said of any setting of this engine."""
    yield from _logged(view)
    if not view.past:
        yield from _live(view)
        yield from _command_lines(view)
        yield from _environments(view)


def plain(value: str) -> str:
    """One spelling of a value: "True" and "true", '"x"' and "x", "300.0" and "300"."""
    text = value.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    if text.lower() in ("true", "false"):
        return text.lower()
    if text in ("None", "null"):
        return "null"
    if re.fullmatch(r"-?\d{1,15}\.0+", text):
        return text.partition(".")[0]
    return text[:VALUE_CHARS]


def _live(view: View) -> Iterator[Read]:
    newest: dict[tuple[str, int, str], LiveValue] = {}
    for v in view.of(LiveValue):
        if v.name in view.profile.settings and not v.torn:
            kept = newest.setdefault((v.node, v.pid, v.name), v)
            newest[v.node, v.pid, v.name] = v if v.sample >= kept.sample else kept
    for (node, pid, name), v in newest.items():
        # of an object that is no value its class tells: "AsyncScheduler"
        value = plain(v.value) if v.value not in ("", "null") else v.type.rpartition(".")[2]
        if value and value != "NoneType":
            yield Read(view.profile.settings[name], value, "live object", v.ref, node, pid, view.rank_of(node, pid))


def _logged(view: View) -> Iterator[Read]:
    redact = Redactor()
    for hit in view.events("start", "core-start"):
        # what was asked for stands in args, what came of it in config
        for kind in ("args", "config"):
            for name, value in pairs(hit.fields.get(kind, "")):
                if read := _line(view, hit, name, redact.text(value), asked=kind == "args"):
                    yield read


def _line(view: View, hit: LogHit, name: str, value: str, *, asked: bool) -> Read | None:
    if holds(name) in _HIDDEN:
        return None
    name = view.profile.setting_names.get(name, name)
    quote = EvidenceRef(source=hit.ref.source, locator=hit.ref.locator, quote=f"{name}={value[:VALUE_CHARS]}")
    stated = asked and hit.signature in _ONLY_STATED
    return Read(name, plain(value), "log", quote, hit.node, hit.pid, view.rank_of(hit.node, hit.pid), asked, stated)


_ONLY_STATED = ("vllm-startup-args",)
"""Lines that leave out what is at its default."""


def _command_lines(view: View) -> Iterator[Read]:
    redact = Redactor()
    for process in view.engine.processes:
        if process.role not in (Role.API, Role.LAUNCHER):
            continue
        for name, value in options(process.info):
            if holds(name) in _HIDDEN:
                continue
            value = redact.text(value)
            known = view.profile.setting_names.get(name, name)
            ref = EvidenceRef(
                source="process table", locator=f"pid {process.pid}", quote=f"--{name.replace('_', '-')} {value}"[:VALUE_CHARS]
            )
            yield Read(known, plain(value), "command line", ref, process.info.node, process.pid, None, asked=True, stated=True)


def _environments(view: View) -> Iterator[Read]:
    seen: set[tuple[str, int | None, str]] = set()
    for process in view.engine.processes:
        if process.role not in _WORKS:
            continue
        node, pid, rank = process.info.node, process.pid, process.rank.rank if process.rank else None
        for name, value in process.info.env.items():
            if _setting(name, value):
                seen.add((node, pid, name))
                ref = EvidenceRef(source="process table", locator=f"pid {pid} environment", quote=f"{name}={value}"[:VALUE_CHARS])
                yield Read(name, plain(value), "environment", ref, node, pid, rank, asked=True, stated=_ours(name))
    owned = {n for e in view.case.engines for n in e.nodes}
    for c in view.case.of(ConfigValue):
        # a file that names no node of any engine speaks of all of them; one of another engine's process does not speak of this one
        mine = c.node in view.nodes or c.node not in owned
        strange = c.pid is not None and len(view.case.engines) > 1 and view.process(c.node, c.pid) is None
        if c.via == "environ" and mine and not strange and (c.node, c.pid, c.name) not in seen and _setting(c.name, c.value):
            node = c.node if c.node in view.nodes else ""
            yield Read(
                c.name, plain(c.value), "environment", c.ref, node, c.pid, view.rank_of(c.node, c.pid), asked=True, stated=_ours(c.name)
            )


def _setting(name: str, value: str) -> bool:
    return not _SHELL.fullmatch(name) and env_value_allowed(name, value)


def _ours(name: str) -> bool:
    """Whether somebody set it for an engine, rather than a launcher or an image for all that it starts."""
    return name.startswith(("VLLM_", "SGLANG_", "SGL_", "TLLM_", "TRTLLM_", "NCCL_", "TORCH_", "RAY_", "DYN_", "CUDA_", "UCX_", "GLOO_"))
