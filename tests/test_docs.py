"""What the README shows exists: every command with its options, every make target, every file."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
CODE = [*re.findall(r"^```(?:sh|console|bash)\n(.*?)^```", README, re.M | re.S), *re.findall(r"`([^`\n]+)`", README)]


def shown_commands() -> list[str]:
    """`forensics …` as it stands in code, one command each, without what follows a pipe or a comment."""
    found = []
    for block in CODE:
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"\||&&|;|\s#", line):
                words = part.strip().removeprefix("$ ").removeprefix("sudo ")
                if re.match(r"forensics(\s|$)", words):
                    found.append(words)
    return sorted(set(found))


@cache
def help_of(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "forensics", *command, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def test_the_readme_shows_commands() -> None:
    assert len(shown_commands()) > 5


@pytest.mark.parametrize("shown", shown_commands())
def test_command_exists(shown: str) -> None:
    words = shlex.split(shown)[1:]
    command = list(words[:1]) if words and re.fullmatch(r"[a-z]+", words[0]) else []
    text = help_of(*command)
    known = set(re.findall(r"--?[a-z][\w-]*", text))
    for word in words[len(command) :]:
        if word.startswith("-") and word != "-":
            assert word.partition("=")[0] in known, f"{shown}: no {word} in its help"


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z][\w-]*)", "\n".join(CODE)))))
def test_make_target_exists(target: str) -> None:
    assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.M)


def test_the_two_commands_of_a_fresh_machine_are_there() -> None:
    for command in ("make demo", "make test"):
        assert command in README


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\((?!https?:|#)([^)#]+)", README))))
def test_link_leads_somewhere(path: str) -> None:
    assert (ROOT / path).exists()
