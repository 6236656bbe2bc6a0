"""The report for programs: schema "forensics.report/1". Every key is always present; what is unknown is null, never missing.

Keys may be added, none is ever removed, renamed or given another meaning under the same schema number.
"""

from __future__ import annotations

import json
import re
from typing import Any

from forensics.model import (
    Alignment,
    Build,
    Coverage,
    CoverageCell,
    EngineReport,
    EvidenceRef,
    Finding,
    Hypothesis,
    LedgerEntry,
    Phase,
    Report,
    Root,
    RuleResult,
    SeenBefore,
    Setting,
    StackGroup,
    StackNode,
    StackOutlier,
    StatedShape,
    TimelineEvent,
    TimeRange,
    Verdict,
    Wait,
)
from forensics.report import times, view, waitwords

SCHEMA = "forensics.report/1"


def to_json(report: Report) -> bytes:
    """UTF-8 JSON, indented, with a final newline. Safe to print on a terminal: see `_spell`."""
    text = json.dumps(as_dict(report), ensure_ascii=False, allow_nan=False, indent=1)
    return (_UNPRINTED.sub(_spell, text) + "\n").encode("utf-8")


def as_dict(report: Report) -> dict[str, Any]:
    """The same as plain dicts and lists, keys in documented order."""
    return {
        "schema": SCHEMA,
        "verdict": _verdict(report.verdict),
        "root": _root(report.root),
        "engines": [_engine(e, report) for e in report.engines],
        "findings": [_finding(f) for f in report.findings],
        "hypotheses": [_hypothesis(h) for h in report.hypotheses],
        "first_event": _first(report.first_event),
        "coverage": _coverage(report.coverage, report),
        "clocks": [_clock(c) for c in report.clocks],
        "timeline": [_event(e) for e in report.timeline],
        "phases": [_phase(p) for p in report.phases],
        "stacks": [_stack(s) for s in report.stacks],
        "stack_tree": [_node(n) for n in report.stack_tree],
        "outliers": [_outlier(o) for o in report.outliers],
        "waits": [_wait(w) for w in report.waits],
        "waits_sentence": waitwords.story(report.waits, report.waits_whole),
        "rules": [_rule(r) for r in report.rules],
        "inputs": list(report.inputs),
        "unread": list(report.unread),
        "seen_before": _seen_before(report.seen_before) if report.seen_before else None,
        "meta": dict(report.meta),
    }


def _seen_before(seen: SeenBefore) -> dict[str, Any]:
    return {
        "fingerprint": seen.fingerprint,
        "times": seen.times,
        "last": times.iso(seen.last_ns),
        "other_versions": seen.other_versions,
        "other_last": times.iso(seen.other_last_ns),
    }


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "engine": phase.engine,
        "name": phase.name,
        "from": times.begin(phase.since),
        "to": times.begin(phase.until),
        "seconds": phase.seconds,
        "ended_by": phase.ended_by,
        "source": phase.ref.source if phase.ref else None,
        "locator": phase.ref.locator if phase.ref else None,
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {"state": verdict.state, "sentence": verdict.sentence}


def _root(root: Root) -> dict[str, Any]:
    return {
        "finding": root.finding,
        "grade": root.grade.value if root.grade else None,
        "node": root.node,
        "rank": root.rank,
        "pid": root.pid,
        "since": times.iso(root.since_ns),
        "candidates": list(root.candidates),
    }


def _engine(engine: EngineReport, report: Report) -> dict[str, Any]:
    return {
        "id": engine.id,
        "kind": engine.kind,
        "version": engine.version or None,
        "nodes": list(engine.nodes),
        "verdict": _verdict(engine.verdict),
        "root": _root(engine.root),
        "coverage": _coverage(engine.coverage, report),
        "processes": [
            {
                "node": p.info.node or None,
                "pid": p.pid,
                "role": p.role.value,
                "rank": p.rank.rank if p.rank else None,
                "label": p.label,
                "title": p.info.title,
            }
            for p in engine.processes
        ],
        "builds": [build_record(b) for b in engine.builds],
        "config": [_setting(s) for s in engine.config],
    }


def _setting(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "value": setting.value or None,
        "via": setting.via,
        "default": setting.default or None,
        "stated": setting.stated,
        "risk": setting.risk,
        "disagreement": setting.disagreement,
        "disagreeing": [_ref(r) for r in setting.disagreeing],
        "readings": [
            {
                "value": r.value,
                "via": r.via,
                "asked": r.asked,
                "node": r.node or None,
                "ranks": list(r.ranks),
                "pids": list(r.pids),
                **_ref(r.ref),
            }
            for r in setting.readings
        ],
    }


def build_record(build: Build) -> dict[str, Any]:
    return {
        "component": build.component,
        "version": build.version or None,
        "build_id": build.build_id or None,
        "path": build.path or None,
        "via": build.via,
        "nodes": list(build.nodes),
        "ranks": list(build.ranks),
        "pids": list(build.pids),
    }


def _finding(f: Finding) -> dict[str, Any]:
    return {
        "id": f.id,
        "grade": f.grade.value,
        "severity": f.severity.value,
        "role": f.role.value,
        "engine": f.engine or None,
        "nodes": list(f.nodes),
        "ranks": list(f.ranks),
        "pids": list(f.pids),
        "from": times.begin(f.since),
        "to": times.end(f.until),
        "since": _range(f.since),
        "until": _range(f.until),
        "title": f.title,
        "because": [_ref(r) for r in f.because],
        "against": [_ref(r) for r in f.against],
        "does_not_show": f.does_not_show,
        "would_settle": list(f.would_settle),
        "next_steps": list(f.next_steps),
        "origin": f.origin or None,
    }


def _hypothesis(h: Hypothesis) -> dict[str, Any]:
    return {
        "name": h.name,
        "engine": h.engine or None,
        "asked": h.asked,
        "claim": h.claim,
        "verdict": h.verdict.value,
        "sentence": h.sentence,
        "nodes": [{"node": n.node or None, "verdict": n.verdict.value, "said": list(n.said)} for n in h.nodes],
        "for": [_entry(e) for e in h.supporting],
        "against": [_entry(e) for e in h.against],
        "not_looked_at": [_entry(e) for e in h.unread],
        "does_not_show": h.does_not_show,
    }


def _entry(entry: LedgerEntry) -> dict[str, Any]:
    return {
        "node": entry.node or None,
        "part": entry.part,
        "text": entry.text,
        "decides": entry.decides,
        "finding": entry.finding or None,
        "source": entry.ref.source if entry.ref else None,
        "locator": entry.ref.locator if entry.ref else None,
        "quote": entry.ref.quote if entry.ref else None,
    }


def _ref(ref: EvidenceRef) -> dict[str, Any]:
    return {"source": ref.source, "locator": ref.locator, "quote": ref.quote}


def _range(when: TimeRange | None) -> dict[str, Any] | None:
    if when is None:
        return None
    return {"earliest": times.iso(when.earliest_ns), "latest": times.iso(when.latest_ns), "basis": when.basis}


def _first(event: TimelineEvent | None) -> dict[str, Any] | None:
    if event is None:
        return None
    head = {"at": times.begin(event.at), "source": event.ref.source, "locator": event.ref.locator}
    return {**head, "node": event.node, "what": event.what, "quote": event.ref.quote}


def _coverage(coverage: Coverage, report: Report) -> dict[str, Any]:
    return {
        "sentence": view.coverage_sentence(coverage),
        "complete": coverage.complete,
        "expected": [{"node": e.node, "rank": e.rank, "seen": e.seen} for e in view.expected(coverage, report)],
        "ranks_stated": coverage.ranks_stated,
        "stated": [_stated(s) for s in coverage.stated],
        "disagreements": list(coverage.disagreements),
        "cells": [_cell(c) for c in coverage.cells],
    }


def _stated(shape: StatedShape) -> dict[str, Any]:
    sizes = {"world_size": shape.world_size, "replicas": shape.replicas, "nodes": shape.nodes, "node_rank": shape.node_rank}
    return {"where": shape.where, **sizes, "source": shape.ref.source, "locator": shape.ref.locator}


def _cell(cell: CoverageCell) -> dict[str, Any]:
    return {
        "node": cell.node,
        "rank": cell.rank,
        "pid": cell.pid,
        "source": cell.source,
        "outcome": cell.outcome.value,
        "reason": cell.reason,
        "cure": cell.cure,
    }


def _clock(clock: Alignment) -> dict[str, Any]:
    return {
        "node": clock.node,
        "offset_ns": clock.offset_ns,
        "bound_ns": clock.bound_ns,
        "method": clock.method,
        "utc_offset_s": clock.utc_offset_s,
    }


def _event(event: TimelineEvent) -> dict[str, Any]:
    return {
        "at": times.begin(event.at),
        "until": times.iso(event.at.latest_ns),
        "basis": event.at.basis,
        "node": event.node,
        "engine": event.engine or None,
        "rank": event.rank,
        "what": event.what,
        "finding": event.finding or None,
        "count": event.count,
        **_ref(event.ref),
    }


def _stack(group: StackGroup) -> dict[str, Any]:
    return {
        "engine": group.engine or None,
        "thread": group.thread,
        "frames": list(group.frames),
        "processes": list(group.processes),
        "ranks": list(group.ranks),
        "samples": group.samples,
        "moved": group.moved,
        "motion": group.motion,
    }


def _node(node: StackNode) -> dict[str, Any]:
    return {
        "engine": node.engine or None,
        "depth": node.depth,
        "frames": list(node.frames),
        "stacks": node.stacks,
        "threads": node.threads,
        "steady": node.steady,
        "samples": node.samples,
        "names": list(node.names),
        "present": [
            {
                "role": p.role,
                "group": p.group,
                "count": p.count,
                "has": p.has,
                "lacks": p.lacks,
                "unread": p.unread,
                "processes": list(p.processes),
                "stacks": p.stacks,
            }
            for p in node.present
        ],
        "outliers": node.outliers,
        "left_out": node.left_out,
    }


def _outlier(o: StackOutlier) -> dict[str, Any]:
    return {
        "engine": o.engine or None,
        "role": o.role,
        "group": o.group,
        "thread": o.thread,
        "ranks": list(o.ranks),
        "processes": list(o.processes),
        "stands": o.stands,
        "shared": o.shared or None,
        "next": o.next or None,
        "majority": o.majority,
        "majority_ranks": o.majority_ranks,
        "unread": o.unread,
        "samples": o.samples,
        **_ref(o.ref),
    }


def _wait(wait: Wait) -> dict[str, Any]:
    return {
        "waiter": wait.waiter,
        "waits_for": wait.waits_for,
        "via": wait.via,
        "detail": wait.detail,
        "grade": wait.grade.value,
        "waiter_rank": wait.waiter_rank,
        "target_rank": wait.target_rank,
        **_ref(wait.ref),
    }


def _rule(result: RuleResult) -> dict[str, Any]:
    return {
        "rule": result.rule,
        "status": result.status.value,
        "engine": result.engine or None,
        "reason": result.reason,
        "missing": list(result.missing),
        "origin": result.origin or None,
        "seconds": None if result.seconds is None else round(result.seconds, 6),
    }


_UNPRINTED = re.compile(r"[^\x20-\x7e\n]")


def _spell(found: re.Match[str]) -> str:
    """Escape what json.dumps leaves raw and a terminal would obey: C1 controls, bidi overrides, lone surrogates.

    In JSON text such characters stand only inside strings, where \\uXXXX means the same: nothing is lost.
    """
    char = found.group()
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
