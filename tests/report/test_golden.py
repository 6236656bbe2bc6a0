"""Every sample in every form, against files that a person has read."""

from __future__ import annotations

import re

import pytest

from forensics.report import render

from .samples import SAMPLES

HTML = ("stalled", "dead", "two_engines", "one_node_unseen", "unknown")


@pytest.mark.parametrize("name", SAMPLES)
def test_terminal(name, golden):
    golden(f"{name}.txt", render(SAMPLES[name](), "terminal"))


@pytest.mark.parametrize("name", SAMPLES)
def test_markdown(name, golden):
    golden(f"{name}.md", render(SAMPLES[name](), "markdown"))


@pytest.mark.parametrize("name", [n for n in SAMPLES if n != "many_ranks"])  # 64 ranks: 8,000 lines that nobody would read
def test_json(name, golden):
    golden(f"{name}.json", render(SAMPLES[name](), "json"))


@pytest.mark.parametrize("name", HTML)
def test_html(name, golden):
    # without the style sheet, so that a new colour does not rewrite every file
    text = re.sub(r"<style>.*?</style>", "<style/>", render(SAMPLES[name](), "html"), flags=re.DOTALL)
    golden(f"{name}.html", re.sub(r"sha256-[A-Za-z0-9+/=]+", "sha256-", text))


def test_rendering_is_repeatable():
    for name, make in SAMPLES.items():
        for fmt in ("terminal", "json", "markdown", "html"):
            assert render(make(), fmt) == render(make(), fmt), (name, fmt)
