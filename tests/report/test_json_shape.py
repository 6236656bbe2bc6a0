"""The JSON report has the documented shape: every key always there, null where unknown."""

from __future__ import annotations

import json
import re

import pytest

from forensics.model import Coverage, Finding, FindingRole, Grade, Report, Root, Severity, TimeRange, Verdict
from forensics.report import times
from forensics.report.json import to_json

from .hostile import PAYLOADS, poisoned
from .samples import SAMPLES, at, ref

TEXT, MAYBE, COUNT, MAYBE_COUNT, FLAG = str, (str, type(None)), int, (int, type(None)), bool
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")
REF = {"source": TEXT, "locator": TEXT, "quote": TEXT}
RANGE = {"earliest": "time", "latest": "time", "basis": TEXT}
VERDICT = {"state": TEXT, "sentence": TEXT}
ROOT = {
    "finding": MAYBE,
    "grade": MAYBE,
    "node": MAYBE,
    "rank": MAYBE_COUNT,
    "pid": MAYBE_COUNT,
    "since": "time?",
    "candidates": [TEXT],
}
CELL = {"node": TEXT, "rank": MAYBE_COUNT, "pid": MAYBE_COUNT, "source": TEXT, "outcome": TEXT, "reason": TEXT, "cure": TEXT}
STATED = {
    "where": TEXT,
    "world_size": MAYBE_COUNT,
    "replicas": MAYBE_COUNT,
    "nodes": MAYBE_COUNT,
    "node_rank": MAYBE_COUNT,
    "source": TEXT,
    "locator": TEXT,
}
COVERAGE = {
    "sentence": TEXT,
    "complete": FLAG,
    "expected": [{"node": MAYBE, "rank": MAYBE_COUNT, "seen": FLAG}],
    "ranks_stated": FLAG,
    "stated": [STATED],
    "disagreements": [TEXT],
    "cells": [CELL],
}
PROCESS = {"node": MAYBE, "pid": COUNT, "role": TEXT, "rank": MAYBE_COUNT, "label": TEXT, "title": TEXT}
BUILD = {
    "component": TEXT,
    "version": MAYBE,
    "build_id": MAYBE,
    "path": MAYBE,
    "via": TEXT,
    "nodes": [TEXT],
    "ranks": [COUNT],
    "pids": [COUNT],
}
ENTRY = {
    "node": MAYBE,
    "part": TEXT,
    "text": TEXT,
    "decides": FLAG,
    "finding": MAYBE,
    "source": MAYBE,
    "locator": MAYBE,
    "quote": MAYBE,
}
SETTING = {
    "name": TEXT,
    "value": MAYBE,
    "via": TEXT,
    "default": MAYBE,
    "stated": FLAG,
    "risk": TEXT,
    "disagreement": TEXT,
    "disagreeing": [REF],
    "readings": [{"value": TEXT, "via": TEXT, "asked": FLAG, "node": MAYBE, "ranks": [COUNT], "pids": [COUNT], **REF}],
}
SHAPE = {
    "schema": TEXT,
    "verdict": VERDICT,
    "root": ROOT,
    "engines": [
        {
            "id": TEXT,
            "kind": TEXT,
            "version": MAYBE,
            "nodes": [TEXT],
            "verdict": VERDICT,
            "root": ROOT,
            "coverage": COVERAGE,
            "processes": [PROCESS],
            "builds": [BUILD],
            "config": [SETTING],
        }
    ],
    "findings": [
        {
            "id": TEXT,
            "grade": TEXT,
            "severity": TEXT,
            "role": TEXT,
            "engine": MAYBE,
            "nodes": [TEXT],
            "ranks": [COUNT],
            "pids": [COUNT],
            "from": "time?",
            "to": "time?",
            "since": ("null", RANGE),
            "until": ("null", RANGE),
            "title": TEXT,
            "because": [REF],
            "against": [REF],
            "does_not_show": TEXT,
            "would_settle": [TEXT],
            "next_steps": [TEXT],
            "origin": MAYBE,
        }
    ],
    "hypotheses": [
        {
            "name": TEXT,
            "engine": MAYBE,
            "asked": FLAG,
            "claim": TEXT,
            "verdict": TEXT,
            "sentence": TEXT,
            "nodes": [{"node": MAYBE, "verdict": TEXT, "said": [TEXT]}],
            "for": [ENTRY],
            "against": [ENTRY],
            "not_looked_at": [ENTRY],
            "does_not_show": TEXT,
        }
    ],
    "first_event": ("null", {"at": "time?", "source": TEXT, "locator": TEXT, "node": TEXT, "what": TEXT, "quote": TEXT}),
    "coverage": COVERAGE,
    "clocks": [{"node": TEXT, "offset_ns": COUNT, "bound_ns": MAYBE_COUNT, "method": TEXT, "utc_offset_s": MAYBE_COUNT}],
    "timeline": [
        {
            "at": "time?",
            "until": "time?",
            "basis": TEXT,
            "node": TEXT,
            "engine": MAYBE,
            "rank": MAYBE_COUNT,
            "what": TEXT,
            "finding": MAYBE,
            "count": COUNT,
            **REF,
        }
    ],
    "phases": [
        {
            "engine": TEXT,
            "name": TEXT,
            "from": "time?",
            "to": "time?",
            "seconds": (int, float, type(None)),
            "ended_by": TEXT,
            "source": MAYBE,
            "locator": MAYBE,
        }
    ],
    "stacks": [
        {
            "engine": MAYBE,
            "thread": TEXT,
            "frames": [TEXT],
            "processes": [TEXT],
            "ranks": [COUNT],
            "samples": COUNT,
            "moved": (bool, type(None)),
            "motion": TEXT,
        }
    ],
    "stack_tree": [
        {
            "engine": MAYBE,
            "depth": COUNT,
            "frames": [TEXT],
            "stacks": COUNT,
            "threads": COUNT,
            "steady": COUNT,
            "samples": COUNT,
            "names": [TEXT],
            "present": [
                {
                    "role": TEXT,
                    "group": TEXT,
                    "count": COUNT,
                    "has": TEXT,
                    "lacks": TEXT,
                    "unread": TEXT,
                    "processes": [TEXT],
                    "stacks": COUNT,
                },
            ],
            "outliers": TEXT,
            "left_out": COUNT,
        }
    ],
    "outliers": [
        {
            "engine": MAYBE,
            "role": TEXT,
            "group": TEXT,
            "thread": TEXT,
            "ranks": [COUNT],
            "processes": [TEXT],
            "stands": TEXT,
            "shared": MAYBE,
            "next": MAYBE,
            "majority": TEXT,
            "majority_ranks": TEXT,
            "unread": TEXT,
            "samples": COUNT,
            **REF,
        }
    ],
    "waits": [
        {
            "waiter": TEXT,
            "waits_for": TEXT,
            "via": TEXT,
            "detail": TEXT,
            "grade": TEXT,
            "waiter_rank": MAYBE_COUNT,
            "target_rank": MAYBE_COUNT,
            **REF,
        }
    ],
    "waits_sentence": TEXT,
    "rules": [
        {"rule": TEXT, "status": TEXT, "engine": MAYBE, "reason": TEXT, "missing": [TEXT], "origin": MAYBE, "seconds": (float, type(None))}
    ],
    "inputs": [TEXT],
    "unread": [TEXT],
    "seen_before": ("null", {"fingerprint": TEXT, "times": COUNT, "last": "time?", "other_versions": COUNT, "other_last": "time?"}),
    "meta": dict,
}


def check(value, shape, where="report"):
    if isinstance(shape, dict):
        assert list(value) == list(shape), where
        for key, inner in shape.items():
            check(value[key], inner, f"{where}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), where
        for i, item in enumerate(value):
            check(item, shape[0], f"{where}[{i}]")
    elif isinstance(shape, tuple) and shape[0] == "null":
        if value is not None:
            check(value, shape[1], where)
    elif isinstance(shape, str):
        assert (value is None and shape.endswith("?")) or TIME.fullmatch(value), (where, value)
    else:
        assert isinstance(value, shape) and not (isinstance(value, bool) and shape in (COUNT, MAYBE_COUNT)), (where, value)


@pytest.mark.parametrize("name", SAMPLES)
def test_shape(name):
    report = json.loads(to_json(SAMPLES[name]()))
    check(report, SHAPE)
    assert report["schema"] == "forensics.report/1"


def test_nothing_known_is_null_and_never_missing():
    report = json.loads(to_json(Report(verdict=Verdict(), root=Root())))
    check(report, SHAPE)
    assert report["root"] == {"finding": None, "grade": None, "node": None, "rank": None, "pid": None, "since": None, "candidates": []}
    assert report["first_event"] is None
    assert report["verdict"]["state"] == "unknown"


def test_rank_zero_and_pid_zero_are_values():
    root = json.loads(to_json(Report(verdict=Verdict(), root=Root(finding="x", rank=0, pid=0, since_ns=0))))["root"]
    assert (root["rank"], root["pid"], root["since"]) == (0, 0, "1970-01-01T00:00:00Z")


def test_the_worst_engine_is_on_top_and_each_engine_has_its_own():
    report = json.loads(to_json(SAMPLES["two_engines"]()))
    assert report["verdict"]["state"] == "dead"
    assert [e["verdict"]["state"] for e in report["engines"]] == ["healthy", "dead"]
    assert report["root"]["candidates"] == ["worker-process-died rank 0", "worker-process-died rank 1"]


def test_expected_lists_the_unseen_too():
    coverage = json.loads(to_json(SAMPLES["one_node_unseen"]()))["coverage"]
    assert coverage["sentence"] == "4 of 8 ranks, 1 of 3 nodes seen"
    assert coverage["complete"] is False
    unseen = [(e["node"], e["rank"]) for e in coverage["expected"] if not e["seen"]]
    assert unseen == [("gpu-b", None), (None, None), (None, 4), (None, 5), (None, 6), (None, 7)]
    assert {"node": "gpu-a", "rank": 2, "seen": True} in coverage["expected"]


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_text_survives_unchanged_and_harmless(payload):
    raw = to_json(poisoned(SAMPLES["stalled"](), payload)).decode("utf-8")
    assert all(c == "\n" or c.isprintable() or c in "\u00a0\u2007" for c in raw)
    report = json.loads(raw)
    check(report, SHAPE)
    assert report["findings"][0]["because"][0]["quote"] == payload
    assert report["meta"] == {payload: payload}


def test_times():
    assert times.iso(at("10:02:00")) == "2026-09-01T10:02:00Z"
    assert times.iso(at("10:02:00", 7)) == "2026-09-01T10:02:00.007Z"
    assert times.iso(at("10:02:00") + 999) == "2026-09-01T10:02:00Z"
    assert times.iso(at("10:02:00") - 1) == "2026-09-01T10:01:59.999Z"
    assert times.iso(-1) == "1969-12-31T23:59:59.999Z"
    assert times.iso(None) is None
    # a damaged bundle may hold any integer
    assert times.iso(2**63) == "2262-04-11T23:47:16.854Z"
    assert times.iso(10**30) is None
    assert times.iso(-(10**30)) is None


def test_from_and_to_enclose_the_state_and_ongoing_has_no_end():
    def finding(since, until):
        f = Finding(
            id="x",
            grade=Grade.POSSIBLE,
            severity=Severity.INFO,
            role=FindingRole.CONTEXT,
            title="",
            because=(ref("a", "b"),),
            since=since,
            until=until,
        )
        return json.loads(to_json(Report(verdict=Verdict(), root=Root(), findings=(f,), coverage=Coverage())))["findings"][0]

    ranged = TimeRange(earliest_ns=at("10:00:00"), latest_ns=at("10:00:09"), basis="sampled")
    logged = TimeRange(earliest_ns=at("10:00:00"), latest_ns=at("10:00:00", 999), basis="logged")
    assert (finding(ranged, None)["from"], finding(ranged, None)["to"]) == ("2026-09-01T10:00:00Z", None)
    assert finding(ranged, ranged)["to"] == "2026-09-01T10:00:09Z"
    assert finding(logged, logged)["to"] == "2026-09-01T10:00:00Z"
    assert finding(None, None)["from"] is None
