"""The report on one screen. Yields styled lines and prints nothing: `plain` joins them, `terminal` colours them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

from forensics.model import EngineReport, EvidenceRef, Finding, Grade, Hypothesis, Report, Root, RuleStatus, Severity
from forensics.report import stackwords, times, view, waitwords
from forensics.report.safe import clip, display_width, one_line

Span = tuple[str, str]
"""(style, text). Styles are the keys of terminal.STYLES; text is already safe to show."""
Line = list[Span]

WIDTH = 100
_GUTTER = 11
_GRADE = 13
# How many of each fit on one screen of about 40 lines. What is left out is counted, never dropped silently.
_MANY_CLAIMS, _MANY_WAITS, _MANY_REFUTED, _MANY_UNSEEN, _MANY_STEPS = 7, 5, 3, 5, 3
_MANY_SOURCES, _MANY_APART, _MANY_ENTRIES, _MANY_SETTINGS = 6, 2, 3, 2
_MANY_CLAUSES, _STORY_ROWS = 12, 6
"""Up to which the graph is told as a sentence."""
_NO_LIMIT = 1_000_000


def plain(report: Report, *, width: int = WIDTH, verbose: bool = False) -> str:
    """The screen as text without any styling, ending in a newline."""
    return "".join("".join(text for _, text in line).rstrip() + "\n" for line in lines(report, width=width, verbose=verbose))


def lines(report: Report, *, width: int = WIDTH, verbose: bool = False) -> Iterator[Line]:
    """Coverage, verdict, root, waits, findings, what was ruled out, what nobody could see, what to do next."""
    for line in _screen(report, width, _NO_LIMIT if verbose else 1):
        yield _fit(line, width)


def _fit(line: Line, width: int) -> Line:
    """`line` in at most `width` columns: a name that nobody expected to be this long must not break the screen."""
    left = width
    fitted: Line = []
    for style, text in line:
        fitted.append((style, clip(text, left)))
        left -= display_width(text)
        if left <= 0:
            break
    return fitted


def _screen(report: Report, width: int, many: int) -> Iterator[Line]:
    yield from _coverage(report, width)
    yield from _verdict(report, width)
    yield from _root(report, report.root, width)
    if said := view.seen_before_words(report):
        yield from _block("history", _wrapped(one_line(said), width - _GUTTER, "bold"))
    yield from _began(report, width)
    yield from _phases(report, width)
    if len(report.engines) > 1:
        yield from _engines(report, width)
    yield from _waits(report, width, _MANY_WAITS * many)
    yield from _apart(report, width, _MANY_APART * many)
    yield from _claims(report, width, _MANY_CLAIMS * many)
    yield from _refuted(report, width, _MANY_REFUTED * many)
    yield from _config(report, width, _MANY_SETTINGS * many)
    yield from _hypotheses(report, width, _MANY_ENTRIES * many)
    yield from _unseen(report, width, _MANY_UNSEEN * many)
    yield from _next(report, width, _MANY_STEPS * many)


def _row(label: str, spans: Line) -> Line:
    return [("label", f"{label:<{_GUTTER}}"), *spans]


def _wrapped(text: str, width: int, style: str = "") -> list[Line]:
    """One line of text broken into lines. A single word that is too long is cut, not broken: paths stay recognisable."""
    parts = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [[(style, clip(part, width))] for part in parts]


def _block(label: str, broken: Iterable[Line]) -> Iterator[Line]:
    for i, spans in enumerate(broken):
        yield _row("" if i else label, spans)


def _coverage(report: Report, width: int) -> Iterator[Line]:
    coverage = report.coverage
    lost = [view.rank_words(view.unseen_ranks(coverage)), ", ".join(map(one_line, view.unseen_nodes(coverage)))]
    if coverage.unseen_node_count:
        lost.append(f"{coverage.unseen_node_count} more node(s) of unknown name")
    blind = view.blind_sources(report)
    said = view.coverage_sentence(coverage)
    if any(lost):
        said += "; not seen: " + ", ".join(part for part in lost if part)
    if blind:
        more = f" and {len(blind) - _MANY_SOURCES} more" if len(blind) > _MANY_SOURCES else ""
        said += f"; not read: {', '.join(map(one_line, blind[:_MANY_SOURCES]))}{more}"
    if coverage.disagreements:
        said += "; sources disagree on " + "; ".join(map(one_line, coverage.disagreements))
    yield from _block("seen", _wrapped(said, width - _GUTTER, "" if coverage.complete and not blind else "warn"))


def _verdict(report: Report, width: int) -> Iterator[Line]:
    state = one_line(report.verdict.state).upper()
    sentence = one_line(report.verdict.sentence)
    for i, spans in enumerate(_wrapped(f"{state}  {sentence}".strip(), width - _GUTTER)):
        text = spans[0][1]
        if i == 0:
            yield _row("verdict", [(f"state:{report.verdict.state}", text[: len(state)]), ("bold", text[len(state) :])])
        else:
            yield _row("", [("bold", text)])


def _root(report: Report, root: Root, width: int) -> Iterator[Line]:
    if root.finding is None and root.node is None and root.rank is None:
        yield from _block("root", _wrapped(one_line(view.no_root_words(report)), width - _GUTTER, "dim"))
        return
    grade = root.grade.value if root.grade else ""
    head: Line = [("bold", one_line(root.finding or "unknown cause")), ("", "  "), (f"grade:{grade}", grade)]
    where = one_line(" · ".join(view.root_parts(report, root)))
    if sum(display_width(text) for _, text in head) + display_width(where) + 2 <= width - _GUTTER:
        yield _row("root", [*head, ("", "  "), ("bold", where)])
    else:
        yield _row("root", head)
        yield from _block("", _wrapped(where, width - _GUTTER, "bold"))


def _began(report: Report, width: int) -> Iterator[Line]:
    event = report.first_event
    if event:
        when = times.begin(event.at) or "at an unknown time"
        place = one_line(f"{event.ref.source} {event.ref.locator}".strip())
        said = clip(f"{when}  {one_line(event.what)}", width - _GUTTER)
        room = width - _GUTTER - display_width(said) - 2
        yield _row("first sign", [("", said), ("dim", "  " + _tail(place, room) if room > 12 else "")])


def _phases(report: Report, width: int) -> Iterator[Line]:
    """Of the engine that the verdict is about; the others' are in the JSON report."""
    if phases := view.phases_of(report, view.told_engine(report)):
        yield from _block("phases", _wrapped(one_line(" · ".join(map(view.phase_words, phases))), width - _GUTTER))


def _engines(report: Report, width: int) -> Iterator[Line]:
    for i, engine in enumerate(report.engines):
        seen = view.coverage_sentence(engine.coverage)
        said = f"{view.engine_words(engine)}: {engine.verdict.state.upper()}  {engine.verdict.sentence}  ({seen}{_root_in_brief(engine)})"
        yield from _block("" if i else "engines", _wrapped(one_line(said), width - _GUTTER))


def _root_in_brief(engine: EngineReport) -> str:
    root = engine.root
    if root.finding is None:
        return ""
    return f"; root {root.finding}" + (f", rank {root.rank}" if root.rank is not None else "")


def _waits(report: Report, width: int, limit: int) -> Iterator[Line]:
    found = waitwords.wait_lines(report.waits)
    said = waitwords.story(report.waits, report.waits_whole) if 1 < len(found) <= _MANY_CLAUSES else ""
    if 0 < len(said) <= _STORY_ROWS * (width - _GUTTER):
        # one sentence says more than so many arrows
        weakest = min((w.grade for w in report.waits), key=lambda g: g.strength)
        said += "" if weakest is Grade.ESTABLISHED else f" The weakest link is {weakest.value}."
        yield from _block("waits", _wrapped(one_line(said), width - _GUTTER))
        return
    arrows = [clip(f"{one_line(w.waiters)} → {one_line(w.target)}", width - _GUTTER - 30) for w in found[:limit]]
    column = max(map(display_width, arrows), default=0)
    for i, (wait, arrow) in enumerate(zip(found, arrows, strict=False)):
        gap = " " * (column - display_width(arrow) + 3)
        yield _row("" if i else "waits", [("", arrow), ("dim", f"{gap}{one_line(wait.via)}, {wait.grade.value}")])
    yield from _more(len(found) - limit, "wait")


def _apart(report: Report, width: int, limit: int) -> Iterator[Line]:
    """Ranks that stand elsewhere than most of their peers: of an engine that works, ranks part all the time."""
    if report.verdict.state in ("healthy", "starting", "stopped"):
        return
    brief = stackwords.brief
    for i, o in enumerate(report.outliers[:limit]):
        w = stackwords.outlier_words(o, report)
        said = f"{w.who} in {brief(w.where)}, {w.others} in {brief(w.others_where)}"
        yield from _block("" if i else "apart", _wrapped(one_line(said), width - _GUTTER)[:2])
        detail = (f"parted {brief(w.parted)}" if w.parted else "", *w.detail)
        yield _row("", [("dim", f"  {one_line(' · '.join(part for part in detail if part))}")])
    yield from _more(len(report.outliers) - limit, "outlier")


def _claims(report: Report, width: int, limit: int) -> Iterator[Line]:
    found = view.claims(report)
    before = ""
    for f in found[:limit]:
        role = view.role_word(f, report)
        yield from _finding(f, role if role != before else "", width, len(report.engines) > 1)
        before = role
    yield from _more(len(found) - limit, "finding")


_TONE = {Severity.CRITICAL: "bad", Severity.WARNING: "warn", Severity.INFO: ""}


def _finding(f: Finding, label: str, width: int, name_engine: bool) -> Iterator[Line]:
    """The claim with its grade, then its id with what it rests on."""
    parts = _wrapped(one_line(f.title), width - _GUTTER - _GRADE, _TONE[f.severity])
    for i, spans in enumerate(parts[:2]):
        grade: Span = (f"grade:{f.grade.value}", f"{'' if i else f.grade.value:<{_GRADE}}")
        yield _row("" if i else label, [grade, *spans, ("", " …" if i and len(parts) > 2 else "")])
    name = f.id + (f" ({f.engine})" if name_engine and f.engine else "")
    yield _row("", _ground(name, f.because[0] if f.because else None, width - _GUTTER, len(f.because) - 1))


def _ground(name: str, ref: EvidenceRef | None, span: int, others: int = 0) -> Line:
    """`  name · source locator: "quote"` in one line; the quote gives way first, then the source from its left."""
    head = f"  {one_line(name)}"
    if ref is None:
        return [("dim", head)]
    more = f" (+{others})" if others > 0 else ""
    place = one_line(f"{ref.source} {ref.locator}".strip())
    place = _tail(place, max(20, (span - display_width(head)) * 2 // 3))
    room = span - display_width(head) - display_width(place) - len(more) - 7
    quote = f': "{clip(_without_head(one_line(ref.quote), room), room)}"' if ref.quote and room > 8 else ""
    return [("dim", f"{head} · {place}"), ("quote", quote), ("dim", more)]


# "(EngineCore pid=4231) ERROR 09-01 10:02:00 [core.py:1512] ", "2026-09-01T10:02:00.123Z ", "[2026-09-01 10:02:00] INFO: "
_LOG_HEAD = re.compile(
    r"""(?:\([^()]{1,40}\)\ )? (?:[A-Z]{4,8}:?\ )?
    \[? (?:\d{4}-)? \d\d-\d\d [\ T] \d\d:\d\d:\d\d [\d.,]* (?:Z|[+-]\d\d:?\d\d)? \]? :?\s*
    (?:[A-Z]{4,8}:?\s*)? (?:\[[^\[\]]{1,60}\]\ )?""",
    re.VERBOSE,
)


def _without_head(quote: str, room: int) -> str:
    """Where a log line does not fit, its message says more than the time and place in front of it."""
    if display_width(quote) <= room:
        return quote
    head = _LOG_HEAD.match(quote)
    return "…" + quote[head.end() :].lstrip() if head else quote


def _tail(text: str, width: int) -> str:
    """The end of a path says more than its beginning."""
    return text if display_width(text) <= width else clip(text[::-1], width)[::-1]


def _refuted(report: Report, width: int, limit: int) -> Iterator[Line]:
    found = view.refuted(report)
    for i, f in enumerate(found[:limit]):
        yield from _block("" if i else "ruled out", _wrapped(one_line(f.title), width - _GUTTER)[:2])
        yield _row("", _ground(f.id, view.contradiction(f), width - _GUTTER))
    yield from _more(len(found) - limit, "claim", " ruled out")


def _config(report: Report, width: int, limit: int) -> Iterator[Line]:
    """Settings of the engine that the verdict is about that matter here; all of them stand in the other reports."""
    told = view.told_engine(report)
    found = [s for e in report.engines if e.id == told for s in view.notable(e)]
    for i, s in enumerate(found[:limit]):
        yield from _block("" if i else "config", _wrapped(one_line(view.setting_words(s)), width - _GUTTER)[:2])
    yield from _more(len(found) - limit, "setting")


def _hypotheses(report: Report, width: int, limit: int) -> Iterator[Line]:
    """One line each for what is always answered, of the engine that the verdict is about; what was asked for with its ledger."""
    told = view.told_engine(report)
    shown = [h for h in view.ledgers(report) if h.asked or h.engine == told]
    many = len({h.engine for h in shown}) > 1
    column = max((display_width(_suspect(h, many)) for h in shown), default=0) + 2
    for i, h in enumerate(shown):
        grade: Span = (f"grade:{h.verdict.value}", f"{h.verdict.value:<16}")
        name = _suspect(h, many)
        room = max(20, width - _GUTTER - column - 16)
        said = _wrapped(one_line(h.sentence), room)
        if not h.asked and len(said) > 1:
            said = [[("", clip(one_line(h.sentence), room))]]
        for at, spans in enumerate(said):
            head: Line = [("dim" if at else "bold", f"{'' if at else name}{' ' * (column - (0 if at else display_width(name)))}")]
            yield _row("" if i or at else "suspects", [*head, grade if not at else ("", " " * 16), *spans])
        if h.asked:
            for side, entries in view.ledger_sides(h):
                for e in entries[:limit]:
                    yield _row("", _ground(f"{side}: {one_line(e.text)}", e.ref, width - _GUTTER))
                yield from _more(len(entries) - limit, "line", f" {side}")


def _suspect(h: Hypothesis, name_engine: bool) -> str:
    return one_line(h.name) + (f" ({h.engine})" if name_engine else "")


def _unseen(report: Report, width: int, limit: int) -> Iterator[Line]:
    said: list[str] = []
    for g in view.cell_groups(view.all_cells(report)):
        if g.outcome.blind:
            why = [g.outcome.value, g.reason, f"cure: {g.cure}" if g.cure else ""]
            said.append(f"{g.source} of {g.who}: " + " · ".join(part for part in why if part))
    said += [f"not read: {name}" for name in report.unread]
    said += [f"{f.title}  [{f.id}]" for f in view.unseen(report)]
    for status, words in ((RuleStatus.INCONCLUSIVE, "could not decide"), (RuleStatus.ERRORED, "broke (our defect)")):
        rules = sorted({r.rule for r in report.rules if r.status is status})
        if rules:
            said.append(f"rules that {words}: {', '.join(rules)}")
    for i, words in enumerate(said[:limit]):
        yield from _block("" if i else "blind to", _wrapped(one_line(words), width - _GUTTER)[:2])
    yield from _more(len(said) - limit, "gap")


def _next(report: Report, width: int, limit: int) -> Iterator[Line]:
    steps = view.next_steps(report) or [f"to settle: {s}" for s in view.would_settle(report)]
    for i, step in enumerate(steps[:limit]):
        yield from _block("" if i else "next", _wrapped(f"{i + 1}. {one_line(step)}", width - _GUTTER)[:2])
    yield from _more(len(steps) - limit, "step")


def _more(count: int, noun: str, what: str = "") -> Iterator[Line]:
    if count > 0:
        yield _row("", [("dim", f"… {count} more {noun}{'s' * (count > 1)}{what} in the JSON, Markdown and HTML reports")])
