"""What the platform says of containers: `kubectl get pod -o yaml/json` (or excerpts), `kubectl describe pod`, `kubectl get events`,
bare "TIME Type Reason message" lines, and `docker inspect`.

YAML is read by its lines, not as YAML: what is mailed is an excerpt more often than a document, and only a few keys matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from forensics.analysis.parse._base import Input, Parser, Sink
from forensics.analysis.parse._names import plain
from forensics.analysis.parse._sheets import Sheet, body, sheets
from forensics.model import ContainerStatus, PlatformEvent, TimeRange

_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_BARE = re.compile(rf"^({_STAMP})\s+(Normal|Warning)\s+([A-Z][A-Za-z0-9]{{2,60}})\s+(.*)$")
_TABLE_HEAD = re.compile(r"^\s*(?:NAMESPACE\s+)?LAST SEEN\s+(?:COUNT\s+)?TYPE\s+REASON\s+OBJECT\s+.*MESSAGE")
_TABLE = re.compile(r"^\s*(?:[a-z0-9][\w.-]*\s+)??(\d\S*|<unknown>)\s+(Normal|Warning)\s+(\w{2,60})\s+(\w+/\S+)\s+(.*)$")
_DESCRIBE_HEAD = re.compile(r"^\s+Type\s+Reason\s+Age\s+From\s+Message")
_DESCRIBE = re.compile(
    r"^\s+(Normal|Warning)\s+(\w{2,60})\s+((?:\d+[smhdy]){1,4}|<unknown>|<invalid>)(?: \(x(\d+) over \S+\))?\s+(\S+)\s+(.*)$"
)
_KEYS = (
    "restartCount|startedAt|finishedAt|exitCode|reason|podCreated|creationTimestamp|name|containerID|state|lastState|status|running|terminated|waiting"
    "|Restart Count|Exit Code|Reason|Started|Finished|State|Last State|Start Time|Name|Containers"
)
_KEY = re.compile(rf"^(\s*)(?:- )?({_KEYS}):\s*(.*)$")
_STRONG = re.compile(r"^\s*(?:- )?(?:restartCount|startedAt|finishedAt|podCreated|lastState|Restart Count|Last State|containerStatuses):")
_ITEM = re.compile(r"^( *)- \S|^  ([a-z0-9][a-z0-9-]{0,62}):\s*$")
"""Where another container begins: an item of a YAML list, or its name in `kubectl describe`."""
_CREATED = re.compile(r"^(?:podCreated|creationTimestamp|Start Time)$")
OUT_OF_MEMORY = "OOMKilled"


def parse(inp: Input, sink: Sink) -> None:
    head = bytes(inp.data[:64]).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if head in (b"{", b"["):
        raw = msgspec.json.decode(inp.document())
        for found in _documents(inp, raw):
            sink.add(found)
        return
    for sheet in sheets(inp):
        for number, line in sheet.lines():
            if event := _event(inp, sheet, number, line):
                sink.add(event)
        for status in _statuses(inp, sheet):
            sink.add(status)


def _event(inp: Input, sheet: Sheet, number: int, line: str) -> PlatformEvent | None:
    node, ref = sheet.inp.node, inp.ref(f"line {number}", line)
    if m := _BARE.match(line):
        at = inp.calendar.parse(m[1])
        about, text = "", m[4]
        if first := re.match(r"(?:(\w+/[\w.-]+)\s+)?(.*)$", text):  # --show-kind: the object stands before the message
            about, text = first[1] or "", first[2]
        return PlatformEvent(
            node=node, at=at, ref=ref, reason=m[3], text=plain(text.strip(), 400), warning=m[2] == "Warning", about=plain(about)
        )
    if m := _DESCRIBE.match(line):
        return PlatformEvent(
            node=node,
            at=sheet.aged(m[3]),
            ref=ref,
            reason=m[2],
            text=plain(m[6].strip(), 400),
            warning=m[1] == "Warning",
            count=min(int((m[4] or "1")[:9]), 1 << 30),
        )
    if m := _TABLE.match(line):
        return PlatformEvent(
            node=node,
            at=sheet.aged(m[1]),
            ref=ref,
            reason=m[3],
            text=plain(m[5].strip(), 400),
            warning=m[2] == "Warning",
            about=plain(m[4]),
        )
    return None


class _Status:
    def __init__(self, line: int, quote: str) -> None:
        self.line, self.quote = line, quote
        self.name = self.reason = ""
        self.restarts: int | None = None
        self.exit_code: int | None = None
        self.started: TimeRange | None = None
        self.ended: TimeRange | None = None


def _statuses(inp: Input, sheet: Sheet) -> Iterator[ContainerStatus]:
    created: TimeRange | None = None
    found: list[_Status] = []
    now: _Status | None = None
    last = False
    """Whether what is read is of the container before the present one."""
    last_indent = 0
    items: int | None = None
    called = ""
    for number, line in sheet.lines():
        if item := _ITEM.match(line):
            indent = len(item[1]) if item[1] is not None else 2
            if now is None or items is None or indent <= items:
                now, last, items, called = None, False, indent, item[2] or ""
        m = _KEY.match(line)
        if m is None:
            continue
        indent, key, value = len(m[1]), m[2], m[3].strip().strip("\"'")
        if _CREATED.match(key):
            created = created or _moment(inp, value)
            continue
        if key in ("lastState", "Last State"):
            last, last_indent = True, indent
        elif indent <= last_indent:
            last = False
        if now is None or (key in ("restartCount", "Restart Count") and now.restarts is not None):
            if key in ("name", "Name", "state", "status", "State", "Containers", "running", "reason", "waiting", "containerID"):
                continue
            now = _Status(number, line)
            now.name = called
            found.append(now)
        if key in ("restartCount", "Restart Count") and value.isdigit():
            now.restarts, now.quote, now.line = int(value[:9]), line, number
        elif key in ("startedAt", "Started") and not last:
            now.started = now.started or _moment(inp, value)
        elif key in ("finishedAt", "Finished"):
            now.ended = now.ended or _moment(inp, value)
        elif key in ("exitCode", "Exit Code") and re.fullmatch(r"-?\d{1,9}", value):
            now.exit_code = int(value) if now.exit_code is None else now.exit_code
        elif key in ("reason", "Reason") and (last or now.exit_code is not None or not now.reason):
            now.reason = now.reason or plain(value)
        elif key == "name" and now.restarts is None and not now.name:
            now.name = plain(value)
    if not found and created is not None:
        found.append(_Status(1, "created"))
    for status in found:
        yield ContainerStatus(
            node=sheet.inp.node,
            at=sheet.inp.at,
            ref=inp.ref(f"line {status.line}", status.quote),
            name=status.name,
            restarts=status.restarts,
            started=status.started,
            created=created,
            ended=status.ended,
            exit_code=status.exit_code,
            reason=status.reason,
        )


def _moment(inp: Input, value: Any) -> TimeRange | None:
    if not isinstance(value, str) or value.startswith("0001-"):  # docker's word for never
        return None
    from_kubectl = re.sub(r"^[A-Z][a-z]{2}, (\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) (\d\d:\d\d:\d\d)", _iso, value[:64])
    return inp.calendar.parse(from_kubectl)


def _iso(m: re.Match[str]) -> str:
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    return f"{m[3]}-{months.index(m[2]) + 1 if m[2] in months else 0:02d}-{int(m[1]):02d} {m[4]}"


def _documents(inp: Input, raw: Any) -> Iterator[ContainerStatus | PlatformEvent]:
    for doc in raw if isinstance(raw, list) else [raw]:
        if not isinstance(doc, dict):
            continue
        for item in [d for d in _list(doc.get("items")) if isinstance(d, dict)] or [doc]:
            if isinstance(item.get("State"), dict):
                yield _docker(inp, item)
            elif item.get("kind") == "Event" or "involvedObject" in item:
                yield _event_document(inp, item)
            else:
                yield from _pod(inp, item)


def _pod(inp: Input, item: dict[str, Any]) -> Iterator[ContainerStatus]:
    meta, status = _dict(item.get("metadata")), _dict(item.get("status"))
    created = _moment(inp, meta.get("creationTimestamp"))
    for container in [c for c in _list(status.get("containerStatuses")) if isinstance(c, dict)]:
        state, before = _dict(container.get("state")), _dict(container.get("lastState"))
        ended = _dict(before.get("terminated")) or _dict(state.get("terminated"))
        yield ContainerStatus(
            node=inp.node,
            at=inp.at,
            ref=inp.ref(f"containerStatuses {plain(_text(container.get('name')))}", f"restartCount {container.get('restartCount')}"[:80]),
            name=plain(_text(container.get("name"))),
            restarts=_int(container.get("restartCount")),
            started=_moment(inp, _dict(state.get("running")).get("startedAt")),
            created=created,
            ended=_moment(inp, ended.get("finishedAt")),
            exit_code=_int(ended.get("exitCode")),
            reason=plain(_text(ended.get("reason")) or _text(_dict(state.get("waiting")).get("reason"))),
        )


def _event_document(inp: Input, item: dict[str, Any]) -> PlatformEvent:
    about = _dict(item.get("involvedObject")) or _dict(item.get("regarding"))
    first, last = (_moment(inp, item.get(key)) for key in ("firstTimestamp", "lastTimestamp"))
    at = last or first or _moment(inp, item.get("eventTime"))
    text = plain(_text(item.get("message")) or _text(item.get("note")), 400)
    return PlatformEvent(
        node=inp.node,
        at=at,
        ref=inp.ref(f"event {plain(_text(_dict(item.get('metadata')).get('name')))}", text),
        reason=plain(_text(item.get("reason"))),
        text=text,
        warning=item.get("type") == "Warning",
        about=plain("/".join(filter(None, (_text(about.get("kind")).lower(), _text(about.get("name")))))),
        count=min(max(_int(item.get("count")) or 1, 1), 1 << 30),
    )


def _docker(inp: Input, item: dict[str, Any]) -> ContainerStatus:
    state = _dict(item.get("State"))
    running = state.get("Running") is True
    reason = (
        OUT_OF_MEMORY if state.get("OOMKilled") is True else _text(state.get("Error")) or ("" if running else _text(state.get("Status")))
    )
    return ContainerStatus(
        node=inp.node,
        at=inp.at,
        ref=inp.ref("State", f"{_text(state.get('Status'))} exit {state.get('ExitCode')} OOMKilled {state.get('OOMKilled')}"[:120]),
        name=plain(_text(item.get("Name")).lstrip("/")),
        restarts=_int(item.get("RestartCount")),
        started=_moment(inp, state.get("StartedAt")),
        created=_moment(inp, item.get("Created")),
        ended=None if running else _moment(inp, state.get("FinishedAt")),
        exit_code=None if running else _int(state.get("ExitCode")),
        reason=plain(reason),
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value[:1000] if isinstance(value, str) else ""


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 40 else None


def recognise(name: str, head: str) -> bool:
    stripped = head.lstrip()
    if stripped[:1] in ("{", "["):
        kube = re.search(r'"kind"\s*:\s*"(?:Pod|PodList|Event|EventList|List)"', head) and '"apiVersion"' in head
        docker = re.search(r'"State"\s*:\s*\{', head) and ('"OOMKilled"' in head or '"ExitCode"' in head)
        return bool(kube or docker)
    lines = body(head, 300)
    if any(_TABLE_HEAD.match(line) or _DESCRIBE_HEAD.match(line) for line in lines):
        return True
    events = sum(bool(_BARE.match(line) or _TABLE.match(line) or _DESCRIBE.match(line)) for line in lines)
    if events and events * 2 >= len(lines):
        return True
    if re.search(r"(?m)^kind: Pod\s*$", head) and re.search(r"(?m)^apiVersion: v1", head):
        return True
    strong = sum(bool(_STRONG.match(line)) for line in lines)
    shaped = sum(bool(re.match(r"^\s*(?:- )?[\w ./-]{1,60}:(?:\s|$)|^\s*- ", line)) for line in lines)
    return strong > 0 and shaped == len(lines)


PARSER = Parser("pods", ("pod",), recognise, parse)
