"""A port was taken: the engine's own, which ends its start, or that of NCCL's status service, which does not matter to it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.analysis.rules._advice import TOGETHER
from forensics.analysis.rules._contract import Rule, Text, grade
from forensics.analysis.rules._lived_on import served_after
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, LogHit, Severity

_OTHER_FILE = re.compile(r"\s(?!ras/)[\w/]+\.cc:\d+ (?:\([^)]*\) )?NCCL WARN ")
"""NCCL names the file in front of a warning: only those of ras/ speak for the status service."""


def evaluate(view: View) -> Iterator[Finding]:
    if taken := [h for h in view.feeding("nccl-ras-port-taken") if not _OTHER_FILE.search(h.ref.quote)]:
        address = next((h.fields["addr"] for h in taken if h.fields.get("addr")), "its port")
        yield view.finding(
            "nccl-ras-port-taken",
            grade(observed=True),
            title=f"NCCL's status service could not listen at {address}: another job on this host has it",
            because=[h.ref for h in taken[:4]],
            role=FindingRole.CONTEXT,
            nodes=dict.fromkeys(h.node for h in taken),
            since=taken[0].at,
            does_not_show="anything about this job's health: it runs without the service, and a query at that port tells of the other job",
        )
    refused = [h for h in view.feeding("address-in-use") if h.role == "root"]
    # what went on after it found another port
    last = [h for h in refused if not served_after(view, h)]
    if last:
        first = last[0]
        port = _port(last)
        yield view.finding(
            "address-in-use",
            grade(observed=True),
            title=f"{first.process or 'A process'} could not listen{f' at port {port}' if port else ''}: the address is in use",
            because=[h.ref for h in [*last, *(h for h in view.hits_of("c10d-bind-failed"))][:6]],
            severity=Severity.CRITICAL,
            role=FindingRole.ROOT,
            nodes=[first.node],
            since=first.at,
            does_not_show="who has it: often what is left of the previous run, or a second job that was given the same port",
            would_settle=["ss -ltnp on that node"],
        )


def _port(hits: list[LogHit]) -> str:
    for hit in hits:
        if port := hit.fields.get("port") or hit.fields.get("addr", "").rpartition(":")[2]:
            return port
    return ""


TEXTS = {
    "address-in-use": Text(
        says="A process of the engine could not bind the port that it needs, and the start ended with it.",
        establishes="The bind error of the engine's own process (EADDRINUSE of c10d's store, of ZMQ or of the HTTP server).",
        lower="Supported: the error is there, but not which process printed it.",
        next_steps=("ss -ltnp on that node: who holds the port", "end what is left of the previous run, then start again"),
        over_nodes=(TOGETHER,),
    ),
    "nccl-ras-port-taken": Text(
        says="NCCL's status port was taken by another job on the node. NCCL goes on without it: the engine is not harmed.",
        establishes="NCCL's own line about its RAS port.",
        next_steps=("NCCL_RAS_ADDR gives this job a port of its own",),
        references=("NCCL user guide, RAS: default localhost:28028",),
    ),
}

RULE = Rule(
    name="address_in_use",
    texts=TEXTS,
    about="A process of the engine could not have the port that it needs.",
    requires=("log",),
    of_nodes=True,
    evaluate=evaluate,
    false_positives="A launcher that tries the next port: the engine becomes ready. NCCL's status port is not the engine's.",
    references=("torch c10d socket.cpp", "pyzmq", "NCCL ras/client_support.cc"),
)
