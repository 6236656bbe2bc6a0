"""A process ran out of file descriptors, or somebody removed the IPC objects of a running program."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.analysis.rules._contract import Rule, Text
from forensics.analysis.rules._machine import grave, outlived, part
from forensics.analysis.view import View
from forensics.model import Finding, FindingRole, Grade, LogHit, Severity, TimeRange


def evaluate(view: View) -> Iterator[Finding]:
    limits = [h for h in view.feeding("fd-exhausted") if h.role == "context"]
    failed = [h for h in view.feeding("fd-exhausted") if h.role != "context"]
    if failed:
        survived = all(h.at and outlived(view, h.at) for h in failed)
        at = next((h.at for h in failed if h.at), None)
        role = FindingRole.CONTEXT if survived else part(view, at)
        limit = next((h.fields["limit"] for h in limits if h.fields.get("limit")), "")
        yield view.finding(
            "fd-exhausted",
            Grade.ESTABLISHED,
            title=f"A process ran out of file descriptors{f' (limit {limit})' if limit else ''}: {failed[0].text[:100]}",
            because=[h.ref for h in (*failed[:6], *limits[:1])],
            severity=Severity.CRITICAL if grave(role) else Severity.WARNING,
            role=role,
            nodes=list(dict.fromkeys(h.node for h in failed)),
            since=at,
            does_not_show="what the descriptors are: connections of clients, or ones that were never closed",
            would_settle=["ls -l /proc/PID/fd of that process", "its limits file"],
        )
    gone = [h for h in view.feeding("ipc-objects-removed") if h.role == "root"]
    semaphores = [
        h
        for h in view.hits
        if "FileNotFoundError" in h.fields.get("exc_type", "")
        and "SemLock" in f"{h.fields.get('exc_code', '')} {h.fields.get('exc_at', '')}"
    ]
    told = sorted([*gone, *semaphores], key=lambda h: h.at.earliest_ns if h.at else 0)
    marks = [h for h in view.feeding("ipc-objects-removed") if h.role != "root"]
    if told:
        at = next((h.at for h in told if h.at), None)
        role = _part(view, at)
        after = role is FindingRole.TEARDOWN  # a parent that ended takes its objects with it
        yield view.finding(
            "ipc-objects-removed",
            Grade.ESTABLISHED if not after else Grade.POSSIBLE,
            title=f"Shared objects of a running program were gone: {_what(told[0])}",
            because=[h.ref for h in (*told[:6], *marks[:2])],
            severity=Severity.CRITICAL if grave(role) else Severity.WARNING,
            role=role,
            nodes=list(dict.fromkeys(h.node for h in told)),
            since=at,
            does_not_show="who removed them: logind (RemoveIPC) when the user's last session ends, a cleaner, or a parent that ended",
            would_settle=["logind's RemoveIPC and Linger of that user", "whether a session of that user ended at that moment"],
        )


def _part(view: View, at: TimeRange | None) -> FindingRole:
    ends: list[LogHit] = [h for h in view.events("fatal", "worker-death", "stop", "start-failed") if h.at]
    if at is not None and any(h.at and h.at.before(at) for h in ends):
        return FindingRole.TEARDOWN
    return part(view, at)


def _what(hit: LogHit) -> str:
    return hit.fields.get("path") or "a semaphore, when a child process looked it up"


TEXTS = {
    "fd-exhausted": Text(
        says="A process of the engine ran out of file descriptors.",
        establishes="Its own error (Too many open files), and the limit where it was read.",
        next_steps=(
            "raise LimitNOFILE or ulimit -n of the service",
            "count what is open (ls /proc/PID/fd): a leak comes back at any limit",
        ),
    ),
    "ipc-objects-removed": Text(
        says="Semaphores or shared memory were removed while the program used them, usually by logind when a user's last session ended.",
        establishes="FileNotFoundError from SemLock or shared memory of a running parent, together with what removed them.",
        lower="Supported: the objects are gone, but not by whose hand.",
        next_steps=("loginctl enable-linger USER, or RemoveIPC=no",),
    ),
}

RULE = Rule(
    name="descriptors",
    texts=TEXTS,
    about="File descriptors ran out, or semaphores and shared memory were removed under a running program.",
    requires=("log",),
    evaluate=evaluate,
    false_positives="vLLM's warning about a low ulimit is advice; objects that vanish after the parent ended belong to its end.",
    references=("CPython Lib/multiprocessing/synchronize.py", "systemd logind.conf RemoveIPC"),
)
