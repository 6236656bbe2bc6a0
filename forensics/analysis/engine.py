"""Run the rules, choose the root, say the verdict: observations in, one Report out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from forensics.analysis import builds, coverage, hypotheses, phases, settings, stackreport, stacks, timeline, waits
from forensics.analysis.case import Case
from forensics.analysis.merge import merge
from forensics.analysis.peers import peers_of
from forensics.analysis.roots import SYMPTOMS, choose_root, of_its_peers
from forensics.analysis.rules import Rule, rules
from forensics.analysis.rules.crashes import CRASHES
from forensics.analysis.run import run_rule, run_rules
from forensics.analysis.times import iso
from forensics.analysis.view import View
from forensics.engines import PROFILES
from forensics.model import (
    Coverage,
    EngineInstance,
    EngineReport,
    Finding,
    FindingRole,
    Grade,
    Hypothesis,
    Report,
    Root,
    RuleResult,
    Severity,
    StackNode,
    StackOutlier,
    ThreadStack,
    TimelineEvent,
    TimeRange,
    Verdict,
)

_WORST = ("dead", "stalled", "degraded", "unknown", "starting", "stopped", "healthy")


HOST_GONE = ("kernel-panic", "host-stopped-logging")
"""Findings after which nothing runs on the machine any more."""
WHILE_IT_RUNS = ("healthy-serving", "idle-healthy", "slow-progress", "long-prefill", "startup-in-progress")
"""States that end with the machine."""
PROCESS_GONE = (
    *("sigsegv", "native-crash", "cuda-illegal-access", "cuda-device-assert", "gpu-oom", "shm-exhausted", "host-oom-kill"),
    *("ray-oom-kill", "ray-actor-died", "worker-process-died", "worker-exception-fatal"),
)
"""Roots that a process does not survive."""
OUTLIVED_NS = 20 * 10**9
UNEASY = ("transient-stall-recovered", "long-prefill", "slow-progress", "engine-alive-not-progressing")
"""States in which nothing broke, and which look from outside as if something had."""
START_FAILED = ("worker-start-failed", "rendezvous-peer-missing", "address-in-use")
"""Findings after which a start that was not completed is over."""
LIVES_BACK = 8
"""How many earlier lives of an engine are searched for one that broke."""


@dataclass
class _Judged:
    """One engine on its way to a report."""

    view: View
    findings: list[Finding]
    results: list[RuleResult]
    seen: Coverage
    before: list[Finding]
    """Findings of an earlier life that broke."""
    report: EngineReport = field(init=False)
    first: TimelineEvent | None = None


def judge(case: Case, asked: Sequence[str] = ()) -> Report:
    """Judge every engine of a case and put the worst one's verdict and root on top. `asked`: hypotheses to answer besides."""
    judged = [_examine(View(case, engine)) for engine in case.engines]
    hosts = _hosts(case)
    case.judged = {j.view.engine.id: [*j.findings, *j.before] for j in judged}
    across = [r for r in _rules(case) if r.across]
    for j in judged:
        made, results = run_rules(j.view, across)
        j.findings, j.results = [*j.findings, *made], [*j.results, *results]
    for j in judged:
        _conclude(j, [f for other in judged if other is not j for f in other.findings] + hosts[0])
    groups, edges, stretches = [], [], []
    ledgers = [h for j in judged for h in _ledgers(j, asked)] or _machines(case, hosts[0], asked)
    whole = True
    tree: list[StackNode] = []
    apart: list[StackOutlier] = []
    for j in judged:
        view = j.view
        groups += stacks.groups(_placed(view), view.engine.id)
        told, outliers = stackreport.of_tree(merge(view.of(ThreadStack)), peers_of(view.engine), view.engine.id)
        tree, apart = [*tree, *told], [*apart, *outliers]
        edges += view.waits
        whole = whole and waits.whole(view, j.seen)
        stretches += phases.of_engine(view, j.findings)
    worst = min(judged, key=lambda j: (_WORST.index(j.report.verdict.state), j.report.root.finding is None), default=None)
    return Report(
        verdict=worst.report.verdict if worst else Verdict(state="unknown", sentence="No engine was recognised in the inputs."),
        root=worst.report.root if worst else choose_root(hosts[0]),
        engines=tuple(j.report for j in judged),
        findings=tuple(sorted((*(f for j in judged for f in j.findings), *hosts[0]), key=_order)),
        hypotheses=tuple(ledgers),
        first_event=worst.first if worst else _first_event(hosts[0], choose_root(hosts[0])),
        coverage=coverage.join([j.seen for j in judged]) if judged else Coverage(),
        clocks=tuple(case.clocks),
        timeline=tuple(timeline.build(case, [j.view for j in judged])),
        phases=tuple(stretches),
        stacks=tuple(groups),
        stack_tree=tuple(tree),
        outliers=tuple(apart),
        waits=tuple(edges),
        waits_whole=whole,
        rules=(*(r for j in judged for r in j.results), *hosts[1]),
        inputs=tuple(case.inputs),
        unread=tuple(case.unread),
        meta=case.meta,
    )


def _rules(case: Case) -> tuple[Rule, ...]:
    return (*rules(), *case.own_rules)


def _placed(view: View) -> Iterator[stacks.Placed]:
    for p in view.engine.processes:
        for t in view.threads_of(p):
            yield stacks.Placed(t, p.label or p.role.value, p.rank.rank if p.rank else None, view.cpu_of(p, t.tid))


def _ledgers(judged: _Judged, asked: Sequence[str]) -> list[Hypothesis]:
    """What the evidence of one engine says to each suspicion, about the time at which its trouble began."""
    report, first = judged.report, judged.first
    well = report.verdict.state in ("healthy", "starting", "stopped") and report.root.finding is None
    onset = first.at if first else judged.view.stall.since if judged.view.stall else None
    root = report.root.finding or ""
    # something that passed is asked about at its own time, too
    return hypotheses.answers(judged.view, judged.findings, judged.seen, asked, onset=onset, troubled=not well or bool(onset), root=root)


def _machines(case: Case, findings: Sequence[Finding], asked: Sequence[str]) -> list[Hypothesis]:
    """The same of machines on which no engine was recognised."""
    root = choose_root(findings)
    first = _first_event(findings, root)
    nobody = View(case, EngineInstance(id="", kind=PROFILES[-1].name, nodes=tuple(case.nodes)))
    seen = Coverage(expected_nodes=nobody.nodes, seen_nodes=nobody.nodes)
    onset = first.at if first else None
    troubled = any(f.severity is not Severity.INFO and f.grade.strength > 0 for f in findings)
    return hypotheses.answers(nobody, findings, seen, asked, onset=onset, troubled=troubled, root=root.finding or "")


def _hosts(case: Case) -> tuple[list[Finding], list[RuleResult]]:
    """What may be said of machines on which no engine was recognised: memory, CPU, heat, the kernel's log."""
    bare = tuple(n for n in case.nodes if not any(n in e.nodes for e in case.engines))
    if not bare:
        return [], []
    # no processes and no name: only rules that ask about machines look at it
    nobody = EngineInstance(id="", kind=PROFILES[-1].name, nodes=bare)
    return run_rules(View(case, nobody), [r for r in _rules(case) if r.of_nodes])


def _examine(view: View) -> _Judged:
    findings, results = run_rules(view, [r for r in _rules(view.case) if not r.across])
    seen = view.coverage
    return _Judged(view, [_with_coverage(f, seen) for f in findings], results, seen, _broken_before(view))


def _conclude(judged: _Judged, elsewhere: Sequence[Finding]) -> None:
    """The state of one engine is that of its last life; an earlier life that broke is told beside it, and explains nothing of it."""
    judged.findings = [_with_host(f, judged.findings) for f in judged.findings]
    view, engine, findings, seen = judged.view, judged.view.engine, judged.findings, judged.seen
    told = [*findings, *of_its_peers(findings, elsewhere)]
    root = choose_root(told)
    verdict = verdict_of(view, told, root, seen)
    if before := judged.before:
        if root.finding is None and not root.candidates and verdict.state not in ("dead", "stalled", "degraded"):
            told, root = before, choose_root(before)
            verdict = _up_again(view, verdict, before, root)
        present = {f.id for f in findings}
        crashed = any(f.id in CRASHES for f in before)  # of the whole log it may then not be said that there is none
        kept = [f for f in findings if not (crashed and f.id == "no-crash-found")]
        judged.findings = [*kept, *(f for f in before if f.severity is not Severity.INFO or f.id not in present)]
    judged.report = EngineReport(
        id=engine.id,
        kind=engine.kind,
        version=engine.version,
        nodes=engine.nodes,
        verdict=verdict,
        root=root,
        coverage=seen,
        processes=engine.processes,
        builds=builds.of_engine(view),
        config=settings.of_engine(view),
    )
    judged.first = _first_event(told, root, view)


def _broken_before(view: View) -> list[Finding]:
    """Findings of the newest earlier life that did not end well, as far as logs tell; each ended with that life at the latest."""
    for life in range(view.life - 1, max(-1, view.life - 1 - LIVES_BACK), -1):
        past = View(view.case, view.engine, life)
        of_logs = [r for r in _rules(view.case) if "log" in (*r.requires, *r.any_of) and not r.across]
        made = [f for rule in of_logs for f in run_rule(rule, past)[0]]
        if any(f.severity is Severity.CRITICAL and f.grade.strength >= Grade.SUPPORTED.strength for f in made):
            end = past.replaced_ns
            until = TimeRange(earliest_ns=end, latest_ns=end, basis="logged") if end is not None else None
            return [f if f.until else msgspec.structs.replace(f, until=until) for f in made]
    return []


def _up_again(view: View, verdict: Verdict, before: Sequence[Finding], root: Root) -> Verdict:
    by_id = {f.id: f for f in reversed(before)}
    worst = by_id.get("engine-died") or by_id.get("engine-stalled") or next(f for f in before if f.severity is Severity.CRITICAL)
    broke = f" {first}" if (first := _titled(by_id, root)) else ""
    return Verdict(
        state=verdict.state, sentence=f"{verdict.sentence} Started again at {iso(view.begun_ns)}; before that: {_sentence(worst)}{broke}"
    )


def _with_coverage(finding: Finding, seen: Coverage) -> Finding:
    """An all-clear covers only what was seen: with a rank or node unseen it is lowered."""
    if finding.id in ("idle-healthy", "host-stable") and finding.grade is Grade.ESTABLISHED and not seen.complete:
        gap = coverage.gap(seen)
        return msgspec.structs.replace(finding, grade=Grade.SUPPORTED, does_not_show=gap)
    return finding


def _with_host(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """What an engine did to the end of its logs ended with its machines."""
    if finding.id not in WHILE_IT_RUNS or finding.until is not None:
        return finding
    gone = [f for f in findings if f.id in HOST_GONE and f.role is FindingRole.ROOT and f.until is None and f.grade.strength >= 2]
    if not set(finding.nodes) <= {n for f in gone for n in f.nodes}:
        return finding
    end = next((f.since for f in gone if f.since and set(f.nodes) & set(finding.nodes)), None)
    return msgspec.structs.replace(finding, until=end) if end else finding


def verdict_of(view: View, findings: Sequence[Finding], root: Root, seen: Coverage) -> Verdict:
    """The state at the end of the evidence, in one sentence that also says who broke first."""
    by_id = {f.id: f for f in findings}
    ongoing = {f.id for f in findings if f.until is None and f.grade.strength >= 2}
    died, stalled, stopped = by_id.get("engine-died"), by_id.get("engine-stalled"), by_id.get("orderly-shutdown")
    who = f" {_titled(by_id, root)}" if root.finding else " Which rank broke first cannot be told." if died or stalled else ""
    if root.candidates and not root.finding:
        who = f" Several claims tie: {'; '.join(root.candidates)}."
    failed = next((by_id[i] for i in START_FAILED if i in by_id and "startup-completed" not in by_id), None)
    if died and died.until is None:
        state, sentence = "dead", _sentence(died)
    elif gone := next((by_id[i] for i in HOST_GONE if i in ongoing and by_id[i].role is FindingRole.ROOT), None):
        state, sentence = "dead", _sentence(gone)
    elif failed and failed.until is None and not view.progress.measured:
        # what failed first is a deeper reason of the same start, told beside it
        state, sentence = "dead", f"The start failed{' at ' + iso(failed.since.earliest_ns) if failed.since else ''}."
    elif "comm-init-stuck" in ongoing and "startup-completed" not in by_id:
        state, sentence = "stalled", "The start stands still."
    elif stalled and stalled.until is None and stalled.grade.strength >= 2:
        state, sentence = "stalled", _sentence(stalled)
    elif "engine-alive-not-progressing" in ongoing:
        state, sentence = "stalled", _sentence(by_id["engine-alive-not-progressing"])
    elif "startup-in-progress" in ongoing:
        state, sentence = "starting", _sentence(by_id["startup-in-progress"])
    elif stopped and stopped.until is None:
        state, sentence = "stopped", _sentence(stopped)
    elif root.finding in PROCESS_GONE and root.finding in ongoing and not _moved_after(view, root) and "healthy-serving" not in by_id:
        state, sentence = "dead", "A process of the engine was lost, and nothing shows that it went on."
    elif root.finding and root.finding in ongoing:
        state, sentence = "degraded", "No standstill was seen, but the engine is not sound."
    elif "slow-progress" in by_id:
        state, sentence = "degraded", _sentence(by_id["slow-progress"])
    elif stalled and stalled.until:
        state, sentence = "unknown", _sentence(stalled)
    elif good := next((by_id[i] for i in ("healthy-serving", "long-prefill", "idle-healthy") if i in by_id), None):
        state, sentence = "healthy", _sentence(good)
    else:
        state, sentence = "unknown", "The evidence does not tell whether the engine advances."
    hole = f" {coverage.gap(seen)}." if not seen.complete else ""
    return Verdict(state=state, sentence=sentence + who + hole)


def _moved_after(view: View, root: Root) -> bool:
    since = root.since_ns
    moved = [i for i in (*view.progress.log, *view.progress.metrics) if i.moved]
    return any(since is None or i.since_ns is None or i.since_ns > since + OUTLIVED_NS for i in moved)


def _sentence(finding: Finding) -> str:
    """A finding's title as a sentence; one that quotes an exception may end in a full stop already."""
    return finding.title.rstrip(".") + "."


def _titled(by_id: dict[str, Finding], root: Root) -> str:
    finding = by_id.get(root.finding or "")
    return f"First to break: {_sentence(finding)}" if finding else ""


def _first_event(findings: Sequence[Finding], root: Root, view: View | None = None) -> TimelineEvent | None:
    """The earliest moment of the incident: the root's, else that of the earliest grave finding, else of what looked like one."""
    mine = [f for f in findings if f.since and f.grade.strength >= 2]
    chosen = [f for f in mine if f.id == root.finding and (root.rank is None or root.rank in f.ranks)]
    if not chosen:
        chosen = [f for f in mine if f.severity is Severity.CRITICAL or f.id.startswith(SYMPTOMS)]
    if not any(f.severity is Severity.CRITICAL or f.id == root.finding for f in chosen):
        # nothing broke: a slow stretch that explains a symptom comes before it, and a symptom counts from its own line
        slow = [f for f in mine if f.id in UNEASY]
        if not slow and view is not None and (told := _first_line(view, chosen)):
            return told
        chosen = slow or chosen
    if not chosen:
        return None
    first = min(chosen, key=lambda f: f.since.earliest_ns if f.since else 0)
    assert first.since
    return TimelineEvent(
        at=first.since,
        node=first.nodes[0] if first.nodes else "",
        what=first.title,
        ref=first.because[0],
        engine=first.engine,
        finding=first.id,
    )


def _first_line(view: View, symptoms: Sequence[Finding]) -> TimelineEvent | None:
    """The first line of a symptom in an engine that is well: what it says began, began as ordinary work."""
    lines = [h for h in view.feeding(*(f.id for f in symptoms)) if h.at]
    if not lines or lines[0].at is None:
        return None
    return TimelineEvent(
        at=lines[0].at, node=lines[0].node, what=lines[0].text[:200], ref=lines[0].ref, engine=view.engine.id, finding=lines[0].feeds
    )


_ROLE_ORDER = (FindingRole.ROOT, FindingRole.CASCADE, FindingRole.AMPLIFIER, FindingRole.CONTEXT, FindingRole.TEARDOWN)


def _order(f: Finding) -> tuple[str, int, int, str]:
    return f.engine, _ROLE_ORDER.index(f.role), -f.grade.strength, f.id
