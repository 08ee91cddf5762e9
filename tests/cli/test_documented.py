"""Every command in a code block of the documents is one that the command line understands: names, options and values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import pytest

from replitree.cli.main import command_line
from tests.project.source import ROOT

BLOCK = re.compile(r"^```[a-z]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def commands(text: str) -> Iterator[str]:
    """Give the commands of a document's code blocks; several may stand on a line."""
    for block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            found = line.removeprefix("$ ")
            if found.startswith("replitree "):
                yield from re.split(r"; (?=replitree )", found)


DOCUMENTED = sorted({command for document in DOCUMENTS for command in commands(document.read_text())})


def understand(words: list[str]) -> None:
    """Parse a command line as `replitree` does, and do nothing of it."""
    command: Any = command_line()
    name, arguments = "replitree", words
    while hasattr(command, "list_commands"):
        name, *arguments = arguments
        known = command.list_commands(None)
        assert name in known, f"no command {name}; there are {', '.join(known)}"
        command = command.get_command(None, name)
    command.make_context(name, arguments).close()


@pytest.mark.parametrize("command", DOCUMENTED)
def test_documented_command_is_understood(command: str) -> None:
    # The shell takes what stands behind `>`.
    understand([*takewhile(">".__ne__, shlex.split(command, comments=True)[1:])])


def test_commands_are_found_and_wrong_ones_are_noticed() -> None:
    assert len(DOCUMENTED) > 20
    with pytest.raises(Exception, match="No such option"):
        understand(["table", "list", "--colour"])
    with pytest.raises(AssertionError, match="no command fly"):
        understand(["table", "fly"])
