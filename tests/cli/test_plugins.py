"""Commands of other distributions: found where these are installed, and named with what to do where they are not."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

import pytest

from replitree.cli.main import main
from replitree.errors import BadInput
from replitree_verify import registry


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that takes one entry-point group away."""

    def take_away(group: str) -> None:

        def others(**asked: str) -> object:
            return () if asked["group"] == group else entry_points(**asked)

        monkeypatch.setattr("importlib.metadata.entry_points", others)

    return take_away


def test_help_lists_commands_of_installed_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "\n  verify " in shown
    assert "\n  bench " in shown


def test_help_of_the_product_alone_has_no_checker(
    alone: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    alone("replitree.commands")
    assert main(["--help"]) == 0
    assert "\n  verify " not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("group", "arguments", "told"),
    [
        ("replitree.commands", ["verify", "list"], "pip install 'replitree[verify]'"),
        ("replitree.commands", ["bench", "inserts"], "clone the repository"),
        ("replitree.verify.commands", ["verify", "bridge", "pull_gap"], "clone the repository"),
    ],
)
def test_command_that_is_not_installed_says_what_to_install(
    group: str,
    arguments: list[str],
    told: str,
    alone: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone(group)
    assert main(arguments) == 2
    assert told in capsys.readouterr().err


def test_checker_works_without_the_published_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_published", lambda: None)
    assert registry.list_packed() == []
    with pytest.raises(BadInput, match="clone the repository"):
        registry.explore_published("published/truncate-log")
    assert registry.explore("pull_gap").violations == ()
