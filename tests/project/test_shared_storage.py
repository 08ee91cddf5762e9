"""`docs/shared-storage.md` names a test for what it promises: each of them exists, and every number has its row."""

from __future__ import annotations

import ast
import re

import pytest

from replitree.verify.merging import models as merging_models
from replitree.verify.merging import mutants as merging_mutants
from replitree.verify.moving import models as moving_models
from replitree.verify.moving import mutants as moving_mutants
from replitree.verify.prepared import models as prepared_models
from replitree.verify.prepared import mutants as prepared_mutants
from replitree.verify.shared_tables import models as shared_models
from replitree.verify.shared_tables import mutants as shared_mutants
from replitree.verify.sharing import models, mutants
from tests.project.source import ROOT, functions

TEXT = (ROOT / "docs" / "shared-storage.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)(?:\[([\w-]+)\])?`")
ROW = re.compile(r"^\| (I?[\d, ]+) \|", re.MULTILINE)
CASES = {
    "tests/verify/sharing/test_sharing.py": {
        *(model.name for model in models.MODELS),
        *(mutant.name for mutant in mutants.MUTANTS),
    },
    "tests/verify/merging/test_merging.py": {
        *(model.name for model in merging_models.MODELS),
        *(mutant.name for mutant in merging_mutants.MUTANTS),
    },
    "tests/verify/moving/test_moving.py": {
        *(model.name for model in moving_models.MODELS),
        *(mutant.name for mutant in moving_mutants.MUTANTS),
    },
    "tests/verify/prepared/test_prepared.py": {
        *(model.name for model in prepared_models.MODELS),
        *(mutant.name for mutant in prepared_mutants.MUTANTS),
    },
    "tests/verify/shared_tables/test_shared_tables.py": {
        *(model.name for model in shared_models.MODELS),
        *(mutant.name for mutant in shared_mutants.MUTANTS),
    },
}
"""Names of the models and mutants that these tests run through."""


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
    assert numbers == [f"I{number}" for number in range(1, 14)] + [str(number) for number in range(1, 37)]


def test_every_row_names_a_test_or_says_that_there_is_none() -> None:
    rows = [line for line in TEXT.splitlines() if ROW.match(line)]
    silent = [line for line in rows if not NAMED.search(line) and not re.search(r"none yet|not offered", line)]
    assert silent == []
