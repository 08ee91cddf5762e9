"""`docs/shared-storage*.md` name a test for what they promise: each of them exists, and every number has its row."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

import pytest

from replitree_verify.engine.small_search import Named
from replitree_verify.models import MODELS as EXPLORED
from replitree_verify.models import rejoined
from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.patches.patch import read_patches
from replitree_verify.pins import PINS
from tests.project.source import ROOT, functions

TEXT = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("shared-storage*.md")))
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)(?:\[([\w-]+)\])?`")
ROW = re.compile(r"^\| (I?[\d, ]+) \|", re.MULTILINE)
CASES: dict[str, set[str]] = {
    "tests/verify/test_models.py": set(EXPLORED),
    "tests/verify/test_mutants.py": set(MUTANTS),
}
"""Names of the models and mutants that these tests run through."""


VERIFICATION = (ROOT / "docs" / "verification-storage.md").read_text(encoding="utf-8")
KNOWN_BUGS = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("known-bugs*.md")))
SUITES: dict[str, tuple[Sequence[Named], Sequence[Named]]] = {
    "Replicas that join again": (rejoined.MODELS, read_patches("rejoined")),
    "A lost disk": (
        [each for name, each in EXPLORED.items() if name.startswith("stored_found_")],
        [each for each in read_patches("stored") if each.name.startswith("own-")],
    ),
    "Uploads": (
        [each for name, each in EXPLORED.items() if name.startswith(("upload", "merge_prepared"))],
        read_patches("uploads"),
    ),
}


def told(paragraph: str, what: str) -> list[int]:
    """Return the numbers that a paragraph of `docs/verification-storage.md` tells where a pattern finds them."""
    (text,) = (each for each in VERIFICATION.split("\n\n") if each.startswith(f"*{paragraph}"))
    (found,) = re.finditer(what, text)
    return [int(number.replace(",", "")) for number in found.groups()]


@pytest.mark.parametrize("suite", SUITES)
def test_there_are_as_many_models_and_mutants_and_states_as_is_said(suite: str) -> None:
    every_model, every_mutant = SUITES[suite]
    states = [PINS[model.name].states for model in every_model]
    models = told(suite, r"(\d+)\smodels\sof\s([\d,]+)\sto\s([\d,]+)\sstates")
    assert models == [len(every_model), min(states), max(states)]
    assert told(suite, r"(\d+)\smutants\b") == [len(every_mutant)]


def test_the_model_of_leases_has_as_many_states_as_is_said() -> None:
    assert told("Tablets", r"([\d,]+)\sstates") == [PINS["lease"].states]


def test_every_mutant_is_a_known_bug() -> None:
    every = [each.name for suite in SUITES.values() for each in suite[1]] + [
        each.name for room in ("stored", "moved") for each in read_patches(room)
    ]
    assert [name for name in every if f"`{name}`" not in KNOWN_BUGS] == []


def names_in(path: str) -> set[str]:
    return {function.name for function in functions(ast.parse((ROOT / path).read_text(encoding="utf-8")))}


@pytest.mark.parametrize("path", sorted({found[0] for found in NAMED.findall(TEXT)}))
def test_every_named_test_exists(path: str) -> None:
    named = {name for where, name, _ in NAMED.findall(TEXT) if where == path}
    assert named - names_in(path) == set()


@pytest.mark.parametrize("path", sorted(CASES))
def test_every_named_model_and_mutant_exists(path: str) -> None:
    assert {case for where, _, case in NAMED.findall(TEXT) if where == path and case} - CASES[path] == set()


def test_every_invariant_and_every_failure_has_a_row() -> None:
    numbers = [number for row in ROW.findall(TEXT) for number in row.split(", ")]
    assert sorted(numbers) == sorted(
        [f"I{number}" for number in range(1, 14)] + [str(number) for number in range(1, 37)]
    )


def test_every_row_names_a_test_or_says_that_there_is_none() -> None:
    rows = [line for line in TEXT.splitlines() if ROW.match(line)]
    silent = [line for line in rows if not NAMED.search(line) and not re.search(r"none yet|not offered", line)]
    assert silent == []
