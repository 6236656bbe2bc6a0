"""What Ray's own files of a machine tell of the actors that an engine lost: they lie beside it, and no engine prints them."""

from __future__ import annotations

from forensics.analysis.view import View
from forensics.model import LogHit


def of_lost_actors(view: View, *feeds: str) -> list[LogHit]:
    """Lines on machines without an engine that speak of an actor of this one that died: by its address, or as its process."""
    lost = [h for h in view.feeding("ray-actor-died") if h.role == "cascade"]
    if not lost or view.past:
        return []
    ips = {ip for h in lost if (ip := h.fields.get("actor_ip") or h.fields.get("ip"))}
    pids = {pid for h in lost if (pid := h.fields.get("actor_pid") or h.fields.get("worker_pid"))}
    taken = {n for e in view.case.engines for n in e.nodes}
    beside = [h for h in view.case.of(LogHit) if h.feeds in feeds and h.node not in taken]
    return [h for h in beside if h.fields.get("ip") in ips or (h.pid is not None and str(h.pid) in pids)]
