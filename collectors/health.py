"""Three questions that are not the same: does the port accept (liveness), does the health path answer (readiness), and
does work advance (progress). The third is not asked here: it is what the counters of `queues` say in two samples.

One evidence file a probe and port, with its latency. A probe that failed is evidence too. Asked once, whatever the
number of samples: a server that hangs would otherwise pile up our own requests.
"""

from __future__ import annotations

import time
from functools import partial

from collectors import _http
from collectors._contract import Emitter, Request, nothing_to_do

TIMEOUT_S = 3.0
BODY_LIMIT_BYTES = 64 * 1024


def collect(request: Request, emit: Emitter) -> None:
    """Options: `health_paths`, `version_paths`, `host` (loopback, or where the target listens), `timeout_s`."""
    if not request.targets:
        nothing_to_do(emit, "health")
        return
    paths = ["", *request.options.get("health_paths", ("/health",)), *request.options.get("version_paths", ("/version",))]
    timeout_s = float(request.options.get("timeout_s", TIMEOUT_S))
    asked = [(target, port, str(path)) for target, port in _http.unique_ports(request) for path in dict.fromkeys(paths)]
    began_ns = time.time_ns()
    replies = _http.at_once(partial(_http.ask, request, *one, timeout_s, BODY_LIMIT_BYTES) for one in asked)
    names: set[str] = set()
    for (target, port, path), reply in zip(asked, replies, strict=True):
        url = reply.url if reply else _http.url_of(_http.LOOPBACK, port, path, "http" if path else "tcp")
        with emit.attempt(url, pid=target.pid, started_ns=began_ns) as attempt:
            if reply is None:
                attempt.end(*_http.unasked(request, target))
                continue
            attempt.end(*reply.outcome())
            stem = f"{port}-{_http.slug(path) if path else 'connect'}"
            if stem in names:  # the same port in another network namespace
                stem += f"-pid-{target.pid}"
            names.add(stem)
            name = f"health/{stem}.json"
            emit.evidence(name, "http", reply.json(), pid=target.pid, source=url, at_ns=reply.at_ns, truncated=reply.truncated)
            attempt.evidence.append(name)
    if not asked:
        with emit.attempt("health") as attempt:
            attempt.end("ABSENT", "no target has a port to ask")
