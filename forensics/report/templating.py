"""The one Jinja environment. Everything printed is escaped twice: for HTML (autoescape) and for the eye (`visible`)."""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from forensics.report import times
from forensics.report.safe import bounded, one_line, visible

if TYPE_CHECKING:
    from importlib.abc import Traversable  # importlib.resources.abc begins with 3.11


def render(name: str, **context: Any) -> str:
    """The template `name` with `context`. An unknown variable is an error, not an empty place."""
    return environment().get_template(name).render(**context)


@functools.cache
def environment() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters["line"] = one_line
    env.filters["bounded"] = bounded
    env.filters["iso"] = lambda ns: times.iso(ns) or "?"
    env.filters["range_words"] = times.range_words
    env.filters["px"] = lambda number: f"{number:.1f}"
    return env


def source(name: str) -> str:
    """The text of one of our files, unrendered (the style sheet). Raises jinja2.TemplateNotFound."""
    text = _source(name)
    if text is None:
        raise jinja2.TemplateNotFound(name)
    return text


def trusted(text: str) -> Markup:
    """Mark our own text as not to be escaped. Never for anything that came out of evidence."""
    return Markup(text)


def template_names() -> list[str]:
    """Every template that ships, by the name that `render` and `include` take."""
    return sorted(_walk(_root(), ""))


def _walk(folder: Traversable, prefix: str) -> list[str]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif not entry.name.startswith("."):
            found.append(prefix + entry.name)
    return found


def _finalize(value: Any) -> Any:
    """Runs on every value that a template prints: no field can be forgotten. Line ends and tabs are harmless in HTML."""
    return value if isinstance(value, Markup) else visible(value, keep="\n\t")


def _root() -> Traversable:
    """The templates in the wheel, or those of the source tree next to the package."""
    shipped = resources.files("forensics") / "_templates"
    return shipped if shipped.is_dir() else Path(__file__).resolve().parents[2] / "templates"


def _source(name: str) -> str | None:
    entry = _root()
    for part in name.split("/"):
        entry = entry / part
    try:
        return entry.read_text(encoding="utf-8")
    except OSError:
        return None
