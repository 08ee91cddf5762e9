"""A shell asks `replitree` for the words that may continue a line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from replitree.cli.main import COMPLETION


def ask(line: str, instruction: str = "complete_bash") -> subprocess.CompletedProcess[str]:
    """Ask as bash does."""
    asked = {COMPLETION: instruction, "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    command = [sys.executable, "-m", "replitree.cli.main"]
    return subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("replitree ser", ["server"]),
        ("replitree server --c", ["--config", "--check"]),
        ("replitree table cr", ["create"]),
    ],
)
def test_commands_and_options_are_completed(line: str, words: list[str]) -> None:
    assert ask(line).stdout.split() == words


@pytest.mark.parametrize("line", ["replitree nothing x", "replitree bench x --y"])
def test_a_line_that_can_not_be_completed_says_nothing(line: str) -> None:
    ran = ask(line)
    assert (ran.stdout.strip(), ran.stderr) == ("", "")


def test_the_script_for_the_shell_names_the_program() -> None:
    assert "complete -o default -F _replitree_completion replitree" in ask("", "source_bash").stdout
