"""The documents say the truth: the commands they name exist, and the glossary is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project.source import ROOT

DOCUMENTS = ("README.md", "CHANGELOG.md", "docs/ARCHITECTURE.md", "docs/GLOSSARY.md")
ARCHITECTURE_LINES_MAX = 300

TARGET = re.compile(r"^([a-z][a-z-]*):(?!=)", re.MULTILINE)
COMMAND = re.compile(r"(?:^|`|\$ )make ([a-z][a-z-]*)", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
TERM = re.compile(r"^\* \*\*(?P<terms>[^*]+)\*\*", re.MULTILINE)


def read(name: str) -> str:
    """Text of a file of the checkout."""
    return (ROOT / name).read_text(encoding="utf-8")


def targets() -> set[str]:
    """What `make` can be asked for."""
    return set(TARGET.findall(read("Makefile")))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_in_document_exist(document: str) -> None:
    assert set(COMMAND.findall(read(document))) <= targets()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_in_document_lead_somewhere(document: str) -> None:
    folder = (ROOT / document).parent
    broken = [link for link in LINK.findall(read(document)) if not (folder / link).exists()]
    assert broken == []


def test_every_target_that_is_no_file_is_phony() -> None:
    makefile = read("Makefile")
    phony = {name for line in re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE) for name in line.split()}
    assert targets() <= phony


def test_ci_runs_what_a_person_runs() -> None:
    run = ROOT / ".ci" / "run"
    assert "make test" in run.read_text(encoding="utf-8")
    assert run.stat().st_mode & 0o111


def test_architecture_can_be_read_in_one_sitting() -> None:
    assert read("docs/ARCHITECTURE.md").count("\n") <= ARCHITECTURE_LINES_MAX


def test_glossary_is_alphabetical_and_says_each_word_once() -> None:
    words = [term.strip().lower() for found in TERM.finditer(read("docs/GLOSSARY.md")) for term in [found["terms"]]]
    assert words == sorted(words)
    assert len(words) == len(set(words))
    assert words


def test_glossary_has_one_line_a_word() -> None:
    lines = [line for line in read("docs/GLOSSARY.md").splitlines() if line.startswith("* ")]
    assert all(TERM.match(line) for line in lines)
    assert Path(ROOT / "docs" / "GLOSSARY.md").exists()
