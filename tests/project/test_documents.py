"""The documents say the truth: the commands and files that they name exist, and the glossary is one."""

from __future__ import annotations

import fnmatch
import re
from functools import cache
from pathlib import Path

import pytest

from tests.project.source import ROOT, SOURCES, modules
from tools.pages import site

DOCUMENTS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
)
ARCHITECTURE_LINES_MAX = 300
WORDS_MAX = 1_500
"""Words of a page of the site: it serves one reader with one purpose."""

CHANGES = "docs/changes-"
GLOSSARY = ("docs/GLOSSARY.md", "docs/glossary-m-z.md")
"""The glossary in alphabetical order; the first page has the words below the second one's name."""

SECOND_HALF = "m"

TARGET = re.compile(r"^([a-z][a-z-]*):(?!=)", re.MULTILINE)
COMMAND = re.compile(r"(?:^|`|\$ )make ([a-z][a-z-]*)", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
NAMED = re.compile(r"(?<![\w/.-])((?:[\w{},*-]+/)*[\w{},*-]+\.py)(?:::(\w+))?")
"""A file as documents name it, from some folder on; `{a,b}` and `*` are as in a shell; `::` goes before a function of it."""

TERMS_MAX = 80
"""Terms that all of the product shares; what belongs to one part of it stands on that part's page."""

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
    generated = {ROOT / "docs" / place for place in site.names()}  # they are made with the site
    broken = [
        link for link in LINK.findall(read(document)) if not (folder / link).exists() and folder / link not in generated
    ]
    assert broken == []


@cache
def files() -> tuple[str, ...]:
    """Every Python file, from the root of the checkout."""
    return tuple(f"/{module.place}" for module in modules(*SOURCES, ROOT / "tests", ROOT / "tools"))


def meant(name: str) -> list[str]:
    """Return the names that one with braces stands for."""
    head, brace, rest = name.partition("{")
    inside, _, tail = rest.partition("}")
    return [head + each + tail for each in inside.split(",")] if brace else [name]


def missing(text: str) -> list[str]:
    """Return the files, and the functions in them, that a text names and that do not exist."""
    found = []
    plain = re.sub(r"^(?:--- a|\+\+\+ b)/", "", text, flags=re.MULTILINE)  # the heads of a patch
    own = re.findall(r"Save \w+ as `(\w+\.py)`", text)  # the programs of a tutorial
    for name, function in NAMED.findall(plain):
        for each in set(meant(name)) - set(own):
            there = [path for path in files() if fnmatch.fnmatchcase(path, f"*/{each}")]
            if not there or (function and not any(f"def {function}(" in read(path[1:]) for path in there)):
                found.append(f"{each}::{function}" if function else each)
    return found


PRESENT = [document for document in DOCUMENTS if document != "CHANGELOG.md" and not document.startswith(CHANGES)]
"""What a change of earlier days named need not be there any more."""


@pytest.mark.parametrize("document", PRESENT)
def test_files_that_a_document_names_exist(document: str) -> None:
    assert missing(read(document)) == []


def test_what_is_not_there_is_noticed() -> None:
    assert missing("`cli/{main,fly}.py`, `client/admin/doctor_*.py`, `nowhere/*.py`") == ["cli/fly.py", "nowhere/*.py"]
    here = "tests/project/test_documents.py"
    assert missing(f"`{here}::missing`, `{here}::vanished`") == [f"{here}::vanished"]


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


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if name != "README.md"])
def test_a_page_is_short(document: str) -> None:
    """What a page has too much is another page; of a changelog that is full, the older lines go to `docs/changes-*.md`."""
    assert len(read(document).split()) <= WORDS_MAX


def test_every_page_is_named_by_another_page() -> None:
    named = {Path(link).name for document in DOCUMENTS for link in LINK.findall(read(document))}
    assert {Path(document).name for document in DOCUMENTS if document.startswith("docs/")} <= named


def terms(page: str) -> list[str]:
    """Return the terms of a page of the glossary."""
    return [found["terms"].strip().lower() for found in TERM.finditer(read(page))]


def test_glossary_is_alphabetical_and_says_each_word_once() -> None:
    first, second = map(terms, GLOSSARY)
    words = first + second
    assert words == sorted(words)
    assert len(words) == len(set(words))
    assert first[-1] < SECOND_HALF <= second[0]


@pytest.mark.parametrize("page", GLOSSARY)
def test_glossary_has_one_line_a_word(page: str) -> None:
    assert all(TERM.match(line) for line in read(page).splitlines() if line.startswith("* "))


def test_glossary_is_short_enough_to_be_read() -> None:
    assert sum(len(terms(page)) for page in GLOSSARY) <= TERMS_MAX
