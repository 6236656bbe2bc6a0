"""What waits in queues that show from outside: socket buffers and backlogs, client connections, the engine's own gauges.

Each sample photographs the sockets *before* it asks the metrics endpoint, and every probe is closed before the next
photograph, so that our own connections are not counted as clients (TIME_WAIT is not ESTABLISHED). Where a hung server
holds one open all the same, or another collector probes at that moment, its address is `_http.PROBE_SOURCE`.
"""

from __future__ import annotations

import os
import time
from functools import partial

from collectors import _http
from collectors._contract import PTRACE_CURE, Emitter, FileSet, Request, Target, absence, nothing_to_do

TIMEOUT_S = 2.0
TABLE_LIMIT_BYTES = 2 * 1024 * 1024
"""About 14,000 connections. A longer table is cut and says so."""
DESCRIPTORS_MAX = 20_000
LOAD_LIMIT_BYTES = 64 * 1024


def sockets_of(photo: FileSet, target: Target, seen: set[str]) -> tuple[str, str, str]:
    """Add a target's network namespace (once each) and the sockets among its descriptors; returns its outcome."""
    gone = absence(target, photo.sysroot)
    if gone:
        return gone
    proc = f"/proc/{target.pid}"
    space = photo.link(f"{proc}/ns/net") or "unknown"
    if space not in seen:
        seen.add(space)
        for table in ("tcp", "tcp6", "unix"):
            photo.read(f"{proc}/net/{table}", TABLE_LIMIT_BYTES)
    numbers = photo.names(f"{proc}/fd")
    for number in numbers[:DESCRIPTORS_MAX]:
        path = f"{proc}/fd/{number}"
        try:
            link = os.readlink(photo.path(path))
        except OSError:
            continue  # closed since it was listed
        if link.startswith("socket:"):
            photo.links[path] = link
    refused = photo.errors.get(f"{proc}/fd")
    if refused in ("EACCES", "EPERM"):
        return "PARTIAL", f"not permitted: {proc}/fd, so its sockets cannot be told from others'", PTRACE_CURE
    if refused:
        return "PARTIAL", f"{refused} {proc}/fd", ""
    cut = len(numbers) > DESCRIPTORS_MAX
    return ("PARTIAL", f"only the first {DESCRIPTORS_MAX} descriptors", "") if cut else ("OK", "", "")


def photograph(request: Request, emit: Emitter, sample: int) -> None:
    """One fileset with the sockets of all targets; one attempt a target."""
    photo = FileSet(request.sysroot)
    seen: set[str] = set()
    outcomes = []
    for target in request.targets:
        started_ns = time.time_ns()
        outcomes.append((target, started_ns, sockets_of(photo, target, seen)))
    name = f"queues/sockets.{sample}.json"
    if photo.files or photo.links:
        cut = bool(photo.truncated)
        emit.evidence(name, "fileset", photo.json(), sample=sample, source="/proc/*/net, /proc/*/fd", at_ns=photo.at_ns, truncated=cut)
    for target, started_ns, outcome in outcomes:
        with emit.attempt(target.name, pid=target.pid, sample=sample, started_ns=started_ns) as attempt:
            attempt.end(*outcome)
            if outcome[0] != "ABSENT":
                attempt.evidence.append(name)


def probe(request: Request, emit: Emitter, sample: int) -> None:
    """Ask every endpoint at once, and deliver what came."""
    timeout_s = float(request.options.get("timeout_s", TIMEOUT_S))
    paths = [(str(path), "prometheus", _http.BODY_LIMIT_BYTES) for path in request.options.get("metrics_paths", ("/metrics",))]
    paths += [(str(path), "http", LOAD_LIMIT_BYTES) for path in request.options.get("load_paths", ("/load",))]
    asked = [(target, port, *path) for target, port in _http.unique_ports(request) for path in paths]
    began_ns = time.time_ns()
    replies = _http.at_once(partial(_http.ask, request, target, port, path, timeout_s, limit) for target, port, path, _, limit in asked)
    names: set[str] = set()
    for (target, port, path, kind, _), reply in zip(asked, replies, strict=True):
        url = reply.url if reply else _http.url_of(_http.LOOPBACK, port, path)
        with emit.attempt(url, pid=target.pid, sample=sample, started_ns=began_ns) as attempt:
            if reply is None:
                attempt.end(*_http.unasked(request, target))
                continue
            attempt.end(*reply.outcome())
            stem = f"{'metrics' if kind == 'prometheus' else 'load'}-{port}"
            if path not in ("/metrics", "/load"):
                stem += f"-{_http.slug(path)}"
            if stem in names:  # the same port in another network namespace
                stem += f"-pid-{target.pid}"
            names.add(stem)
            text: str | bytes = reply.body
            name = f"queues/{stem}.{sample}.prom"
            if kind == "http":
                text, name = reply.json(), f"queues/{stem}.{sample}.json"
            elif not reply.body or reply.status not in (200, None):
                continue  # an error page is no exposition; an answer that is not HTTP at all is kept for the reader to judge
            emit.evidence(name, kind, text, pid=target.pid, sample=sample, source=url, at_ns=reply.at_ns, truncated=reply.truncated)
            attempt.evidence.append(name)
    if not asked:
        with emit.attempt("metrics", sample=sample) as attempt:
            attempt.end("ABSENT", "no target has a port to ask")


def collect(request: Request, emit: Emitter) -> None:
    """Options: `metrics_paths`, `load_paths`, `host` (loopback, or where the target listens), `timeout_s`."""
    if not request.targets:
        nothing_to_do(emit, "queues")
        return
    for sample in request.sampling():
        photograph(request, emit, sample)
        probe(request, emit, sample)
