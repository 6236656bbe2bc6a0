"""No text of the evidence can act on whoever reads the report, in any form of it, from any field."""

from __future__ import annotations

import io
import re
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from forensics.report import markdown, render, safe
from forensics.report.terminal import print_report

from .hostile import PAYLOADS, poisoned
from .samples import SAMPLES

EVERY_PAYLOAD = pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
RICH = ("stalled", "dead", "two_engines", "one_node_unseen")


def harmless(text: str, keep: str = "\n") -> bool:
    return all(c in keep or c.isprintable() or unicodedata.category(c) == "Zs" for c in text)


@EVERY_PAYLOAD
@pytest.mark.parametrize("name", RICH)
def test_terminal(name, payload):
    report = poisoned(SAMPLES[name](), payload)
    plain = render(report, "terminal")
    assert harmless(plain)
    assert all(safe.display_width(line) <= 100 for line in plain.splitlines())
    out = io.StringIO()
    print_report(report, console=Console(file=out, width=100))
    assert out.getvalue() == plain


@EVERY_PAYLOAD
def test_on_a_real_terminal_only_our_own_colours_are_sent(payload):
    out = io.StringIO()
    print_report(
        poisoned(SAMPLES["stalled"](), payload), console=Console(file=out, width=100, force_terminal=True, color_system="standard")
    )
    assert harmless(re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()))
    assert "\x1b[" in out.getvalue()
    assert "\x1b]8" not in out.getvalue()  # no hyperlinks


class Page(HTMLParser):
    """The structure of a page: its tags with their attributes, and its text."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input", "rect", "path"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.style = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, tuple(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.text.append(data)


# all that our templates write; anything else came out of the evidence
PAGE_TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "header", "footer", "nav", "section", "article", "div", "span", "p", "a"),
    *("h1", "h2", "h3", "small", "strong", "code", "pre", "q", "ul", "ol", "li", "dl", "dt", "dd", "table", "tr", "th", "td"),
    *("details", "summary", "svg", "desc", "defs", "marker", "path", "g", "rect", "text"),
}


@EVERY_PAYLOAD
@pytest.mark.parametrize("name", RICH)
def test_html(name, payload):
    text = render(poisoned(SAMPLES[name](), payload), "html")
    assert harmless(text, "\n\t")
    page = Page(text)
    assert not page.open
    for tag, attrs in page.tags:
        assert tag in PAGE_TAGS, tag
        for key, value in attrs:
            assert not key.startswith("on") and key not in ("src", "style", "action", "formaction", "xlink:href"), (tag, key)
            if key == "href":
                assert value and value.startswith("#"), value
    # and it is still there to be read
    assert safe.one_line(payload)[:200] in "".join(page.text)


def md_tokens(text: str):
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    for token in parser.parse(text):
        yield token
        yield from token.children or ()


INERT = {
    *("inline", "text", "code_inline", "fence", "softbreak", "strong_open", "strong_close", "heading_open", "heading_close"),
    *("paragraph_open", "paragraph_close", "bullet_list_open", "bullet_list_close", "ordered_list_open", "ordered_list_close"),
    *("list_item_open", "list_item_close"),
}


@EVERY_PAYLOAD
@pytest.mark.parametrize("name", RICH)
def test_markdown(name, payload):
    text = render(poisoned(SAMPLES[name](), payload), "markdown")
    assert harmless(text)
    clean = [t.type for t in md_tokens(render(poisoned(SAMPLES[name](), "quiet"), "markdown")) if t.type.startswith(("heading", "strong"))]
    tokens = list(md_tokens(text))
    assert {t.type for t in tokens} <= INERT
    assert [t.type for t in tokens if t.type.startswith(("heading", "strong"))] == clean
    for token in tokens:
        if token.type == "text":
            assert not any(mark in token.content for mark in ("@e", "@o", "r@", "<", "http", "www.", "#1", "!4", "GH-", "PROJ-", ":tada"))


@given(st.text(max_size=60) | st.text(alphabet="`*_[]()<>|~$&\\{}^@#!:/-+=1.) ax\n", max_size=40))
def test_any_prose_is_one_paragraph_of_text_and_code(text):
    shown = markdown.prose(text)
    tokens = list(md_tokens(f"- {shown}\n"))
    if safe.one_line(text).strip():
        assert [t.type for t in tokens if not t.type.endswith(("text", "code_inline"))] == [
            *("bullet_list_open", "list_item_open", "paragraph_open", "inline", "paragraph_close", "list_item_close", "bullet_list_close")
        ]
        said = "".join(t.content for t in tokens if t.type in ("text", "code_inline"))
        assert "".join(said.split()).replace("`", "") == "".join(safe.one_line(text).split()).replace("`", "")


@given(st.text(max_size=80), st.integers(4, 40))
def test_safe_text_never_raises_and_never_acts(text, width):
    assert harmless(safe.visible(text), "")
    assert harmless(safe.one_line(text), "")
    assert safe.display_width(safe.clip(safe.one_line(text), width)) <= width


def test_what_is_escaped_is_spelled_out():
    assert safe.visible("\x1b[2J") == "\\x1b[2J"
    assert safe.visible("a\u202eb") == "a\\u202eb"
    assert safe.visible("\x00\n\t\udc80\U000e0041") == "\\x00\\n\\t\\udc80\\U000e0041"
    assert safe.visible("Größe 漢字 · → 🚀") == "Größe 漢字 · → 🚀"
    assert safe.one_line("  a\tb\r\nc\n") == "a b ⏎ c"
    assert safe.visible(None) == "None"


def test_a_quote_is_bounded_where_people_read_and_whole_in_json():
    report = poisoned(SAMPLES["stalled"](), "B" * 50_000)
    assert "more characters" in render(report, "html")
    assert "B" * 5000 not in render(report, "terminal")
    assert "B" * 50_000 in render(report, "json")
