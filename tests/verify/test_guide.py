"""The guide "write a model in a page" tells the truth: its model holds, and its mutant is caught as the page shows it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from replitree_verify import effects, registry
from replitree_verify.models import MODELS
from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.mutants.mutant import Mutant, stages_with
from replitree_verify.patches.patch import read_patch
from replitree_verify.world.model import Model
from tests.project.source import ROOT

PAGE = (ROOT / "docs/write-a-model.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    """Add the model of the page to those that the command line knows."""
    names: dict[str, object] = {}
    exec(blocks("python")[0], names)
    found = names["MODEL"]
    assert isinstance(found, Model)
    monkeypatch.setitem(MODELS, found.name, found)
    return found


def test_the_model_of_the_page_holds_and_sees_what_it_is_for(model: Model) -> None:
    explored = registry.explore(model.name)
    assert explored.violations == ()
    assert explored.missing == ()
    assert 100 < explored.states < 1000, "the page says: a few hundred"


def test_the_mutant_of_the_page_is_caught_by_the_invariant_that_it_names(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = blocks("diff")
    (name,) = re.findall(r"patches/log/([\w-]+)\.patch", PAGE)
    patch = read_patch(name, text)
    assert patch.model == model.name
    mutant = Mutant(name, patch.description, patch.model, patch.invariant, stages_with(patch), patch)
    monkeypatch.setitem(MUTANTS, name, mutant)
    explored = registry.explore(model.name, name)
    assert [each["invariant"] for each in explored.violations] == [patch.invariant]
    (shown,) = blocks("text")
    assert list(explored.trace[: explored.trace.index("")]) == shown.splitlines()


def rows(source: str) -> list[str]:
    """Return the rows of effects in some code, as trees without places."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [ast.dump(each) for each in calls if isinstance(each.func, ast.Name) and each.func.id == "Row"]


def test_the_row_of_the_page_is_one_of_the_table() -> None:
    (row,) = rows(blocks("python")[1])
    table = [each for path in Path(*effects.__path__).glob("*.py") for each in rows(path.read_text(encoding="utf-8"))]
    assert row in table
