"""Ray's driver, which repeats what its actors print behind their name, pid and address."""

from __future__ import annotations

import re

from forensics.analysis.logs._format import Format, Peeled


def _take(out: Peeled, m: re.Match[str]) -> None:
    if m["ip"]:
        out.host = m["ip"]  # the actor's machine: nearer to the line than whose log this is
    if m["own"]:
        out.engine, out.process = "ray", m["own"]
    elif not m["process"]:
        out.process = ""


FORMAT = Format(
    name="ray-driver",
    wrapper=True,
    starts="(",
    pattern=re.compile(
        r"\((?:(?P<process>[A-Za-z_][^\n,]{0,160}?) pid=|pid=)(?P<pid>\d{1,9})(?:, ip=(?P<ip>[^)\s]{1,64}))?\) ?"
        r"|\((?P<own>raylet|autoscaler|scheduler|gcs_server)(?:, ip=[^)\s]{1,64}| \+[\w.]{1,20})?\) ?"
    ),
    take=_take,
    order=20,
    samples=(
        "(RayWorkerWrapper pid=1202, ip=192.0.2.118) INFO 03-08 17:27:28 [worker.py:12] x",
        "(MapWorker(MapBatches(Engine)) pid=1202, ip=192.0.2.118) print",
        "(ServeReplica:app:Deployment pid=77) x [repeated 3x across cluster]",
        "(pid=4711) x",
        "(raylet) A worker died or was killed while executing a task by an unexpected system error.",
        "(autoscaler +1m2s) Tip: use `ray status`",
    ),
    negatives=("(most recent call last):", "(a pid=b) x", "(gcs) x", "(raylet died) x", "pid=4711) x"),
)
