"""The page is whole in itself: no request, no script, every section, its own style sheet and no other."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import struct
import subprocess

import pytest

from forensics.report import render, templating

from .hostile import PAYLOADS, poisoned
from .samples import SAMPLES
from .test_escaping import Page

SECTIONS = (
    *(
        "verdict",
        "root",
        "next",
        "coverage",
        "waits",
        "findings",
        "ruled-out",
        "not-seen",
        "timeline",
        "stacks",
        "rules",
        "clocks",
        "inputs",
    ),
)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_section_is_there_and_every_link_lands(name):
    page = Page(render(SAMPLES[name](), "html"))
    ids = [value for _, attrs in page.tags for key, value in attrs if key == "id"]
    assert set(SECTIONS) <= set(ids)
    assert len(ids) == len(set(ids))
    targets = {value.removeprefix("#") for _, attrs in page.tags for key, value in attrs if key == "href"}
    assert targets <= set(ids)


@pytest.mark.parametrize("name", SAMPLES)
def test_nothing_is_loaded_and_nothing_runs(name):
    text = render(SAMPLES[name](), "html")
    page = Page(text)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base", "video", "audio", "use"}
    for tag, attrs in page.tags:
        for key, value in attrs:
            if key not in ("xmlns", "content"):
                assert "://" not in (value or ""), (tag, key, value)
    assert not re.search(r"url\((?!#)|@import|expression\(", page.style)


def test_only_its_own_style_sheet_may_apply():
    page = Page(render(SAMPLES["stalled"](), "html"))
    policy = next(
        dict(attrs)["content"] for tag, attrs in page.tags if tag == "meta" and dict(attrs).get("http-equiv") == "Content-Security-Policy"
    )
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert not any(key == "style" for _, attrs in page.tags for key, _ in attrs)


def test_outcomes_and_grades_are_words_and_not_only_colours():
    text = "".join(Page(render(SAMPLES["one_node_unseen"](), "html")).text)
    for word in ("OK", "DENIED", "TIMEOUT", "NOT SEEN", "not assessable", "INCONCLUSIVE", "4 of 8 ranks, 1 of 3 nodes seen"):
        assert word in text, word


def test_what_the_findings_rest_on_is_shown_in_full():
    report = SAMPLES["stalled"]()
    text = " ".join("".join(Page(render(report, "html")).text).split())
    for f in report.findings:
        for ref in (*f.because, *f.against):
            assert " ".join(ref.quote.split()) in text
        for words in (f.title, f.does_not_show, *f.would_settle, *f.next_steps):
            assert words in text
    for w in report.waits:
        assert w.via in text


def test_waits_have_a_text_alternative():
    text = render(SAMPLES["stalled"](), "html")
    assert 'role="img" aria-labelledby="waits-title waits-text"' in text
    assert "ranks 0-1,3 waits for worker TP2 (collective, established)." in text


def test_every_template_compiles_and_is_used():
    names = templating.template_names()
    assert {"report.html.j2", "report/style.css"} <= set(names)
    used = {"report.html.j2", "report/style.css"}
    for name in names:
        source = templating.source(name)
        assert "|safe" not in source.replace(" ", "") and "autoescape" not in source
        if name.endswith(".j2"):
            templating.environment().get_template(name)
        used |= set(re.findall(r'(?:include|from|import) "([^"]+)"', source))
    assert used == {n for n in names if not n.startswith("jira")}


def test_an_unknown_variable_is_an_error():
    import jinja2

    with pytest.raises(jinja2.UndefinedError):
        templating.environment().from_string("{{ nobody }}").render()


CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here to show the page in")
@pytest.mark.parametrize("hostile", [False, True], ids=["clean", "hostile"])
def test_a_browser_shows_it_without_complaint(tmp_path, hostile):
    report = SAMPLES["stalled"]()
    if hostile:
        report = poisoned(report, PAYLOADS["script"] + PAYLOADS["image"] + PAYLOADS["attribute"])
    page = tmp_path / "report.html"
    page.write_text(render(report, "html"), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", f"--user-data-dir={tmp_path}/profile"]
    shot = tmp_path / "page.png"
    done = subprocess.run(
        [CHROMIUM, *flags, "--enable-logging=stderr", "--window-size=1180,900", f"--screenshot={shot}", page.as_uri()],
        check=False,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert struct.unpack(">II", shot.read_bytes()[16:24]) == (1180, 900)
