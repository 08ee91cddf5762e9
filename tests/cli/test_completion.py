"""A shell asks `replitree` for the words that may continue a line."""

from __future__ import annotations

from contextlib import suppress

import pytest

from replitree.cli.main import COMPLETION, main


class Shell:
    """Asks as bash does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch = monkeypatch
        self._capsys = capsys

    def ask(self, line: str, instruction: str = "complete_bash") -> str:
        """Return what it is told."""
        self._patch.setenv(COMPLETION, instruction)
        self._patch.setenv("COMP_WORDS", line)
        self._patch.setenv("COMP_CWORD", str(max(0, len(line.split()) - 1)))
        with suppress(SystemExit):
            main()
        said = self._capsys.readouterr()
        assert said.err == ""
        return said.out


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("replitree ser", ["server"]),
        ("replitree server --c", ["--config", "--check"]),
        ("replitree table cr", ["create"]),
        ("replitree nothing x", []),
    ],
)
def test_commands_and_options_are_completed(shell: Shell, line: str, words: list[str]) -> None:
    assert shell.ask(line).split() == words


def test_a_command_that_is_not_installed_completes_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replitree.cli.plugins._found", lambda _group: {})
    assert shell.ask("replitree bench x --y").strip() == ""


def test_the_script_for_the_shell_names_the_program(shell: Shell) -> None:
    assert "complete -o default -F _replitree_completion replitree" in shell.ask("", "source_bash")
