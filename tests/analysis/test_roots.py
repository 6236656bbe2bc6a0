"""Who broke first: which of several claims is the root, when none may be named, and what another engine has to do with it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.analysis import analyze
from forensics.analysis.roots import SPECIFIC, WHO, choose_root
from forensics.analysis.rules import rules
from forensics.model import EvidenceRef, Finding, FindingRole, Grade, Severity, TimeRange

SECOND = 10**9


def claim(id, at=100, *, ranks=(), nodes=("n",), pids=(), grade=Grade.ESTABLISHED, role=FindingRole.ROOT):
    when = TimeRange(earliest_ns=at * SECOND, latest_ns=at * SECOND + SECOND - 1, basis="logged") if at is not None else None
    ref = EvidenceRef(source="a", locator="line 1")
    return Finding(
        id=id, grade=grade, severity=Severity.CRITICAL, role=role, title=id, because=(ref,), ranks=ranks, nodes=nodes, pids=pids, since=when
    )


def test_the_earlier_one_wins_whatever_its_kind():
    root = choose_root([claim("host-oom-kill", 105), claim("worker-exception-fatal", 100, ranks=(2,))])
    assert (root.finding, root.rank) == ("worker-exception-fatal", 2)


def test_at_one_moment_and_place_the_reason_wins_over_who():
    root = choose_root([claim("worker-process-died", ranks=(3,)), claim("host-oom-kill")])
    assert (root.finding, root.rank, root.node) == ("host-oom-kill", None, "n")
    root = choose_root([claim("worker-process-died", ranks=(3,)), claim("host-oom-kill", ranks=(3,))])
    assert (root.finding, root.rank) == ("host-oom-kill", 3)


@pytest.mark.parametrize(
    "pair",
    [
        (claim("worker-process-died", ranks=(3,)), claim("worker-exception-fatal", ranks=(1,))),
        (claim("worker-process-died", ranks=(3,), nodes=("a",)), claim("gpu-off-bus", nodes=("b",))),
        (claim("worker-process-died", pids=(7,)), claim("worker-process-died", pids=(8,))),
        (claim("gpu-off-bus", ranks=(3,)), claim("worker-process-died", ranks=(1,))),
    ],
)
def test_what_cannot_be_one_story_ties(pair):
    root = choose_root(pair)
    assert root.finding is None and root.rank is None and len(root.candidates) == 2


def test_symptoms_cascades_and_what_is_only_possible_never_win():
    able = [claim("symptom-rpc-timeout", 1, role=FindingRole.CASCADE), claim("fabric-fault", 2, grade=Grade.POSSIBLE)]
    assert choose_root(able).finding is None
    assert choose_root([*able, claim("process-stopped", 50, ranks=(1,))]).rank == 1


def test_every_root_that_a_rule_can_make_has_its_place_in_the_order():
    made = {id for rule in rules() for id in rule.emits}
    assert set(SPECIFIC) <= made | {"sigsegv"}, "an id that no rule makes"
    assert len(set(SPECIFIC)) == len(SPECIFIC) and WHO in SPECIFIC


IDS = (
    "host-oom-kill",
    "worker-process-died",
    "rank-not-responding",
    "gpu-xid",
    "ray-actor-died",
    "queue-at-capacity",
    "my-own",
    "my-other",
)
CLAIMS = st.builds(
    claim,
    st.sampled_from(IDS),
    st.one_of(st.none(), st.integers(100, 108)),
    ranks=st.sampled_from([(), (1,), (2,), (1, 2)]),
    nodes=st.sampled_from([(), ("a",), ("b",), ("a", "b")]),
    pids=st.sampled_from([(), (7,), (8,)]),
    grade=st.sampled_from([Grade.ESTABLISHED, Grade.SUPPORTED, Grade.POSSIBLE, Grade.REFUTED]),
    role=st.sampled_from(list(FindingRole)),
)


def weight(f):
    return f.role is FindingRole.ROOT and f.grade.strength >= Grade.SUPPORTED.strength


def certainly_before(a, b):
    return a.since and b.since and a.since.latest_ns < b.since.earliest_ns


@settings(max_examples=400, deadline=None)
@given(st.lists(CLAIMS, max_size=6), st.randoms(use_true_random=False))
def test_the_order_in_which_rules_spoke_decides_nothing(claims, random):
    shuffled = list(claims)
    random.shuffle(shuffled)
    assert choose_root(claims) == choose_root(shuffled)


@settings(max_examples=400, deadline=None)
@given(st.lists(CLAIMS, max_size=6))
def test_a_root_is_a_firm_claim_with_no_other_before_it_and_a_tie_names_who_ties(claims):
    root = choose_root(claims)
    firm = [f for f in claims if weight(f)]
    if root.finding is None:
        assert (root.node, root.rank, root.pid, root.since_ns) == (None,) * 4
        assert len(root.candidates) >= 2 if firm else not root.candidates
        assert {c.split(" (")[0] for c in root.candidates} <= {f.id for f in claims if f.role is FindingRole.ROOT}
        return
    mine = [f for f in firm if f.id == root.finding and f.grade is root.grade and (root.rank is None or f.ranks == (root.rank,))]
    assert any(not any(certainly_before(g, f) for g in firm) for f in mine)


@settings(max_examples=300, deadline=None)
@given(st.lists(CLAIMS, max_size=5), st.lists(CLAIMS, max_size=4))
def test_cascades_symptoms_and_what_came_later_take_nothing_from_the_root(claims, noise):
    import msgspec

    root = choose_root(claims)
    aside = [f for f in noise if f.role is not FindingRole.ROOT]
    loud = [
        claim(id, 1, ranks=(9,)) for id in ("symptom-rpc-timeout", "symptom-peer-loss", "nccl-watchdog-timeout", "heartbeat-monitor-abort")
    ]
    assert choose_root([*claims, *aside, *loud]) == root
    dated = [f for f in claims if weight(f)]
    if dated and all(f.since for f in dated):
        when = TimeRange(earliest_ns=500 * SECOND, latest_ns=500 * SECOND, basis="logged")
        later = [msgspec.structs.replace(f, since=when) for f in noise]
        assert choose_root([*claims, *later]) == root


def test_an_actor_s_death_is_no_root_while_something_earlier_is_only_possible():
    died = claim("ray-actor-died", 100, ranks=(1,))
    assert choose_root([died]).finding == "ray-actor-died"
    root = choose_root([died, claim("gpu-kernel-not-terminating", 50, ranks=(0,), grade=Grade.POSSIBLE)])
    assert root.finding is None and [c.split(" ")[0] for c in root.candidates] == ["gpu-kernel-not-terminating", "ray-actor-died"]


PREFILL = """\
[2026-03-05 09:20:03] pre-1:77:80 [0] transport/net_ib.cc:199 NCCL WARN NET/IB : mlx5_4:1 Got async error event: port error
(APIServer pid=1) INFO 03-05 09:20:01 [loggers.py:118] Engine 000: Avg prompt throughput: 910.4 tokens/s, \
Avg generation throughput: 0.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 11.0%, Prefix cache hit rate: 0.0%
"""
DECODE = """\
(APIServer pid=1) INFO 03-05 09:00:00 [api_server.py:1890] vLLM API server version 0.25.1
(EngineCore pid=40) INFO 03-05 09:00:12 [core.py:112] Initializing a V1 LLM engine (v0.25.1) with config: model='/m', tensor_parallel_size=2
(EngineCore pid=40) INFO 03-05 09:02:12 [core.py:281] init engine (profile, create kv cache, warmup model) took 84.20 s
(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) INFO 03-05 09:20:10 [loggers.py:118] Engine 000: Avg prompt throughput: 0.0 tokens/s, \
Avg generation throughput: 212.0 tokens/s, Running: 9 reqs, Waiting: 0 reqs, GPU KV cache usage: 31.0%, Prefix cache hit rate: 0.0%
(VllmWorker TP1 pid=51) ERROR 03-05 09:20:20 [multiproc_executor.py:602] WorkerProc hit an exception.
(VllmWorker TP1 pid=51) ERROR 03-05 09:20:20 [multiproc_executor.py:602] Traceback (most recent call last):
(VllmWorker TP1 pid=51) ERROR 03-05 09:20:20 [multiproc_executor.py:602]   File "/x/vllm/v1/worker/gpu_worker.py", line 3, in execute_model
(VllmWorker TP1 pid=51) ERROR 03-05 09:20:20 [multiproc_executor.py:602] nixl._bindings.nixlRemoteDisconnectError: NIXL_ERR_REMOTE_DISCONNECT
(EngineCore pid=40) ERROR 03-05 09:20:20 [core.py:700] EngineCore encountered a fatal error.
(EngineCore pid=40) ERROR 03-05 09:20:20 [core.py:700] RuntimeError: Worker failed with error 'NIXL_ERR_REMOTE_DISCONNECT', \
please check the stack trace above for the root cause
"""


def test_an_engine_that_lost_its_peer_has_its_root_on_the_peer_s_node(tmp_path):
    (tmp_path / "dec-0.log").write_text(DECODE)
    (tmp_path / "pre-1.log").write_text(PREFILL)
    report = analyze([tmp_path])
    assert (report.verdict.state, report.root.finding, report.root.node) == ("dead", "rdma-port-down", "pre-1")
    assert report.root.rank is None


def test_without_the_peer_s_log_nobody_is_named_for_what_happened_there(tmp_path):
    (tmp_path / "dec-0.log").write_text(DECODE)
    report = analyze([tmp_path])
    assert report.verdict.state == "dead" and report.root.rank is None and report.root.finding in (None, "kv-transfer-peer-gone")
