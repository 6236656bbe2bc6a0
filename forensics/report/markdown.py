"""The report for a ticket. Whatever a ticket system makes of Markdown, no text of the evidence can become markup in it.

There is no escaping by backslash here: renderers disagree about it, and none protects from mentions and links. A word that
holds anything special stands in a code span as a whole, quotations stand in code spans or fences that are longer than any
run of backticks inside, and nothing from the evidence ever stands in a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from forensics.model import EvidenceRef, Finding, Report, RuleStatus
from forensics.report import grid, stackwords, times, view, waitwords
from forensics.report.buildwords import build_words
from forensics.report.safe import bounded, one_line, visible

MOST_EVENTS, MOST_STACK_LINES, MOST_OUTLIERS, MOST_SETTINGS = 40, 120, 12, 40
"""A ticket is for reading: the rest is counted here and stands in the JSON and HTML reports."""
_QUOTE_CHARS = 600

# everything that some Markdown dialect or ticket system acts on: emphasis, code, links, images, HTML, entities, tables,
# mathematics, mentions (@name), references (#12, !12, PROJ-12), addresses, emoji (:name:)
_SPECIAL = re.compile(r"[`*_\[\]<>|~$&\\{}^]|@\w|[#!]\w|://|www\.|\w@|mailto:|:[A-Za-z]\w*:|\b[A-Z]{2,}-\d|\bGH-\d")
# and what only means something at the beginning of a line
_LEADING = re.compile(r"(?:[-+#=:>!]|\d+[.)])")
_TRAILING = ".,;:)?"
_SPAN = re.compile(r"(?<![`\\])`([^`]+)`(?!`)")


def to_markdown(report: Report) -> str:
    """The report as Markdown (CommonMark, no extension needed)."""
    return "\n".join(_document(report)).rstrip("\n") + "\n"


def prose(value: object) -> str:
    """Text of ours that may carry words of the evidence, on one line, with every special word in a code span."""
    out = []
    for i, part in enumerate(_SPAN.split(one_line(value))):
        if i % 2:  # what was between two backticks: already meant as code
            out.append(code(part))
        else:
            out.append(" ".join(_word(word, first=i == 0 and at == 0) for at, word in enumerate(part.split(" "))))
    return "".join(out)


def _word(word: str, *, first: bool) -> str:
    if not _SPECIAL.search(word) and not (first and _LEADING.match(word)):
        return word
    body = word.rstrip(_TRAILING) or word
    return code(body) + word[len(body) :]


def code(value: object) -> str:
    """A code span of one line; its fence is longer than any run of backticks inside."""
    text = one_line(value) or " "
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def block(text: str, indent: str = "") -> Iterator[str]:
    """A fenced block, line by line."""
    body = visible(text.replace("\r\n", "\n").replace("\t", "    "), keep="\n").strip("\n")
    fence = "`" * max(3, max(map(len, re.findall("`+", body)), default=0) + 1)
    yield f"{indent}{fence}text"
    yield from (f"{indent}{line}".rstrip() for line in body.split("\n"))
    yield f"{indent}{fence}"


def _document(report: Report) -> Iterator[str]:
    yield f"**Seen:** {prose(view.coverage_sentence(report.coverage))}"
    yield ""
    yield f"# {prose(report.verdict.state.upper())}: {prose(report.verdict.sentence or 'nothing can be said from what was given')}"
    yield ""
    yield from _head(report)
    yield from _section("Next steps", (f"{i}. {prose(s)}" for i, s in enumerate(view.next_steps(report), 1)))
    yield from _section("Who waits for whom", _waits(report))
    yield from _section("Findings", (line for f in view.claims(report) for line in _finding(f, report)))
    yield from _section("Ruled out", (line for f in view.refuted(report) for line in _finding(f, report)))
    yield from _section("Hypotheses", _hypotheses(report))
    yield from _section("What nobody could see", _unseen(report))
    yield from _section("Configuration", _config(report))
    yield from _section("Builds", _builds(report))
    yield from _section("Coverage", _coverage(report))
    yield from _section("Timeline (UTC)", _timeline(report))
    yield from _section("Stacks", _stacks(report))
    yield from _section("Rules", _rules(report))
    yield from _section("Clocks", _clocks(report))
    yield from _section("Inputs", (f"- {code(name)}" for name in report.inputs))


def _section(title: str, body: Iterable[str]) -> Iterator[str]:
    lines = list(body)
    if lines:
        yield from ("", f"## {title}", "", *lines)


def _head(report: Report) -> Iterator[str]:
    lost = [view.rank_words(view.unseen_ranks(report.coverage)), ", ".join(view.unseen_nodes(report.coverage))]
    if report.coverage.unseen_node_count:
        lost.append(f"{report.coverage.unseen_node_count} more of unknown name")
    if any(lost):
        yield f"- **Not seen:** {prose(', '.join(part for part in lost if part))}"
    if report.coverage.disagreements:
        yield f"- **Sizes disagree:** {prose('; '.join(report.coverage.disagreements))}"
    root = report.root
    if root.finding or root.node or root.rank is not None:
        grade = f" ({root.grade.value})" if root.grade else ""
        yield f"- **Root:** {code(root.finding or 'unknown cause')}{grade}: {prose(' · '.join(view.root_parts(report, root)))}"
    else:
        yield f"- **Root:** {prose(view.no_root_words(report))}"
    if said := view.seen_before_words(report):
        yield f"- **History:** {prose(said)}"
    if report.first_event:
        event = report.first_event
        yield f"- **First sign:** {times.begin(event.at) or '?'} {prose(event.what)} ({_place(event.ref)})"
    for engine in report.engines:
        many = f": {engine.verdict.state.upper()}, {engine.verdict.sentence}" if len(report.engines) > 1 else ""
        yield f"- **Engine:** {prose(view.engine_words(engine) + many)}"
    for key, value in report.meta.items():
        yield f"- **{prose(key.capitalize())}:** {prose(value)}"


def _place(ref: EvidenceRef) -> str:
    return " ".join(part for part in (code(ref.source), prose(ref.locator)) if part)


def _ref(ref: EvidenceRef, label: str) -> Iterator[str]:
    quote = bounded(ref.quote, _QUOTE_CHARS)
    if "\n" in quote.strip():
        yield f"  - {label}: {_place(ref)}"
        yield ""
        yield from block(quote, "    ")
        yield ""
    else:
        yield f"  - {label}: {_place(ref)}" + (f": {code(quote)}" if quote.strip() else "")


def _finding(f: Finding, report: Report) -> Iterator[str]:
    yield f"- **{prose(f.title)}**"
    since = f"since {times.begin(f.since)}" if f.since else ""
    until = f"until {times.end(f.until)}" if f.until else ""
    engine = f.engine if len(report.engines) > 1 else ""
    facts = " · ".join(part for part in (view.role_word(f, report), f.severity.value, engine, view.where_words(f), since, until) if part)
    yield f"  {code(f.id)} · **{f.grade.value}** · {prose(facts)}"
    for ref in f.because:
        yield from _ref(ref, "because")
    for ref in f.against:
        yield from _ref(ref, "against")
    if f.does_not_show:
        yield f"  - does not show: {prose(f.does_not_show)}"
    yield from (f"  - would settle it: {prose(s)}" for s in f.would_settle)
    yield from (f"  - next: {prose(s)}" for s in f.next_steps)


def _hypotheses(report: Report) -> Iterator[str]:
    """One line each for what is always answered; what was asked for with its whole ledger."""
    for h in view.ledgers(report):
        engine = f" ({prose(h.engine)})" if len(report.engines) > 1 and h.engine else ""
        yield f"- {code(h.name)}{engine} · **{h.verdict.value}** · {prose(h.sentence)}"
        if not h.asked:
            continue
        yield f"  - claim: {prose(h.claim)}"
        for side, entries in view.ledger_sides(h):
            for e in entries:
                where = f"{prose(e.node)}: " if e.node and len(h.nodes) > 1 else ""
                grounds = f" ({_place(e.ref)})" if e.ref else ""
                yield f"  - {side}: {where}{prose(e.text)}{' **decides**' if e.decides else ''}{grounds}"
        if h.does_not_show:
            yield f"  - does not show: {prose(h.does_not_show)}"


def _config(report: Report) -> Iterator[str]:
    """What matters of it here, with both sides of a disagreement, then what the operator set."""
    for engine in report.engines:
        whose = f"{prose(engine.id)}: " if len(report.engines) > 1 else ""
        for s in view.notable(engine):
            yield f"- {whose}{prose(view.setting_words(s))}"
            yield from (line for r in (s.disagreeing or [s.readings[0].ref]) for line in _ref(r, "read"))
        if set_here := view.stated(engine):
            shown = ", ".join(code(f"{s.name}={s.value}") for s in set_here[:MOST_SETTINGS])
            more = f" and {len(set_here) - MOST_SETTINGS} more in the JSON report" if len(set_here) > MOST_SETTINGS else ""
            yield f"- {whose}set by the operator: {shown}{more}"


def _builds(report: Report) -> Iterator[str]:
    for engine in report.engines:
        whose = f"{prose(engine.id)}: " if len(report.engines) > 1 else ""
        yield from (f"- {whose}{prose(build_words(b))}" for b in engine.builds)


def _waits(report: Report) -> Iterator[str]:
    if report.waits:
        yield from (prose(waitwords.story(report.waits, report.waits_whole)), "")
    for w in waitwords.wait_lines(report.waits):
        alike = f" and {w.count - 1} more alike" if w.count > 1 else ""
        quote = f": {code(bounded(w.ref.quote, _QUOTE_CHARS))}" if w.ref.quote else ""
        yield f"- {prose(w.waiters)} → {prose(w.target)} ({prose(w.via)}, {w.grade.value}): {_place(w.ref)}{quote}{alike}"


def _unseen(report: Report) -> Iterator[str]:
    for f in view.unseen(report):
        yield from _finding(f, report)
    for g in view.cell_groups(view.all_cells(report)):
        if g.outcome.blind:
            why = ". ".join(prose(part) for part in (g.reason, f"Cure: {g.cure}" if g.cure else "") if part)
            yield f"- {prose(g.source)} of {prose(g.who)}: **{g.outcome.value}** {why}".rstrip()
    for r in view.sorted_rules(report.rules):
        if r.status in (RuleStatus.INCONCLUSIVE, RuleStatus.ERRORED):
            missing = f" (missing: {prose(', '.join(r.missing))})" if r.missing else ""
            yield f"- {code(r.rule)} could not decide: {prose(r.reason)}{missing}"
    yield from (f"- not read: {prose(name)}" for name in report.unread)


def _coverage(report: Report) -> Iterator[str]:
    """The grid as aligned text in a fence: the one form of a table that every ticket system shows alike."""
    rows: list[list[str]] = []
    for table in grid.grids(report):
        rows.append([one_line(table.heading or "nodes"), *map(one_line, table.sources)])
        for row in table.rows:
            who = row.who if not table.heading or row.who == row.node else f"{row.node} {row.who}"
            marks = [o.value if o else "·" for o in row.outcomes] if row.seen else ["NOT SEEN"]
            rows.append(["  " + one_line(who), *marks])
    if not rows:
        return
    widths = [max(len(r[i]) for r in rows if len(r) > i) for i in range(max(map(len, rows)))]
    yield from block("\n".join("  ".join(cell.ljust(width) for cell, width in zip(r, widths, strict=False)).rstrip() for r in rows))


def _timeline(report: Report) -> Iterator[str]:
    for p in report.phases:
        ended = f", ended by: {prose(p.ended_by)}" if p.ended_by else ""
        yield f"- phase: {prose(view.phase_words(p))}{ended}{f' ({_place(p.ref)})' if p.ref else ''}"
    if report.phases:
        yield ""
    shown = report.timeline[:MOST_EVENTS]
    for i, e in enumerate(shown):
        unsure = " (order against the line above unknown)" if i and view.order_unknown(shown[i - 1], e) else ""
        rank = f" rank {e.rank}" if e.rank is not None else ""
        many = f" ×{e.count}" if e.count > 1 else ""
        latest = f" to {times.clock(e.at.latest_ns)}" if times.iso(e.at.latest_ns) != times.begin(e.at) else ""
        yield f"- {times.begin(e.at) or '?'}{latest} {prose(e.node)}{rank}: {prose(e.what)}{many} ({_place(e.ref)}){unsure}"
    if len(report.timeline) > len(shown):
        yield f"- … {len(report.timeline) - len(shown)} more events in the JSON report"


def _stacks(report: Report) -> Iterator[str]:
    """Who is apart from its peers, then the merged stacks as a tree of text, outermost frame first."""
    for o in report.outliers[:MOST_OUTLIERS]:
        w = stackwords.outlier_words(o, report)
        parted = f", parted after {code(o.shared)}" if o.shared and o.next else ""
        yield f"- {prose(w.who)}: {code(w.where)}; {prose(w.others)}: {code(w.others_where)}{parted} ({prose(', '.join(w.detail))})"
    if len(report.outliers) > MOST_OUTLIERS:
        yield f"- … {len(report.outliers) - MOST_OUTLIERS} more places of ranks that are apart in the JSON report"
    if report.outliers:
        yield ""
    lines: list[str] = []
    for node in report.stack_tree:
        frames = [one_line(f) for f in stackwords.frame_lines(node.frames) or [stackwords.no_frames(node)]]
        lines += [f"{'  ' * node.depth}{' ' if i else '-'} {frame}" for i, frame in enumerate(frames)]
        who = [stackwords.apart_words(node).upper(), *stackwords.node_words(node)]
        lines[-1] += f"  <- {one_line(' · '.join(part for part in who if part))}"
    if lines:
        yield from block("\n".join(lines[:MOST_STACK_LINES]))
    if len(lines) > MOST_STACK_LINES:
        yield f"- … {len(lines) - MOST_STACK_LINES} more lines of the merged stacks in the JSON and HTML reports"


def _rules(report: Report) -> Iterator[str]:
    by_status: dict[str, list[str]] = {}
    for r in view.sorted_rules(report.rules):
        by_status.setdefault(r.status.value, []).append(r.rule)
    for status, rules in by_status.items():
        yield f"- {status.replace('_', ' ')}: " + ", ".join(code(rule) for rule in dict.fromkeys(rules))


def _clocks(report: Report) -> Iterator[str]:
    for c in report.clocks:
        bound = "by an unknown bound" if c.bound_ns is None else f"give or take {c.bound_ns / 1e9:.3f} s"
        zone = "zone of its logs not recorded, UTC assumed" if c.utc_offset_s is None else f"logs in UTC{c.utc_offset_s / 3600:+g} h"
        yield f"- {prose(c.node)}: offset {c.offset_ns / 1e9:+.3f} s, {bound} ({prose(c.method)}); {zone}"
