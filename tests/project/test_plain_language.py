"""Sentences have an actor: docstrings and the pages of the repository name a replica or a client, and not 'nobody' or 'who'."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.project.source import CHECKER, PACKAGE, ROOT, modules

NO_ACTOR = re.compile(r"\b(?:nobody|somebody|anybody|everybody)\b", re.IGNORECASE)
WHO = re.compile(
    r"(?:(?<=[.;:] )|(?<=\n)|^)\s*(?:Who|Whoever)\s+(?!(?:is|are|was|asks)\b[^.?]*\?)[a-z]+"
    r"|\b(?:to|of|for|by|from|with|than|where|if|when|before|because|that|and) who(?:ever)? [a-z]+"
)
"""A clause about an actor without a name.  A question, and 'Who' as an attribute's text, may stay."""

MOST = {PACKAGE: (0, 0), CHECKER: (0, 0)}
"""How often each may stand in the docstrings of a distribution; the numbers only fall."""

PAGES = (
    *(ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "docs/ARCHITECTURE.md", ROOT / "docs/GLOSSARY.md"),
    *(ROOT / "docs/start.md", ROOT / "docs/glossary-m-z.md", ROOT / "docs/operations.md"),
    *sorted(
        path for kind in ("architecture", "changes", "concept", "task") for path in (ROOT / "docs").glob(f"{kind}-*.md")
    ),
)


def docstrings(root: Path) -> str:
    """Return the docstrings of all modules below a folder."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = (node for module in modules(root) for node in ast.walk(module.tree))
    found = (ast.get_docstring(node) for node in nodes if isinstance(node, kinds))
    return "\n\n".join(text for text in found if text)


@pytest.mark.parametrize("root", MOST, ids=lambda root: root.name)
def test_docstrings_name_their_actors(root: Path) -> None:
    text = docstrings(root)
    assert (len(NO_ACTOR.findall(text)), len(WHO.findall(text))) == MOST[root], "name the actor, or lower the number"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_their_actors(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert NO_ACTOR.findall(text) == []
    assert WHO.findall(text) == []


@pytest.mark.parametrize("text", ["Nobody waits.", "A claim of who makes it.", "It stays.  Who was away learns it."])
def test_the_patterns_find_what_they_are_for(text: str) -> None:
    assert NO_ACTOR.search(text) or WHO.search(text)
