"""The table of mutations in `docs/tablet-mutations.md` names mutants and tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

from replitree_verify.patches.patch import read_patches

ROOT = Path(__file__).parents[3]
NAMES = {
    "": {each.name for each in read_patches("tablets")},
    "L ": {f"L {each.name}" for each in read_patches("leases")},
}


def section() -> str:
    """Return the page with the table."""
    return (ROOT / "docs" / "tablet-mutations.md").read_text(encoding="utf-8")


def noticed_by() -> list[str]:
    """Return what is named in the second column."""
    rows = [line.strip("| ").split(" | ") for line in section().splitlines() if line.startswith("| ")][2:]
    assert all(len(row) == 2 for row in rows)
    return [name for _, second in rows for name in re.split(r"[,;] ", second) if ": see below" not in name]


def test_everything_that_the_table_names_is_there() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    unknown = [
        name
        for name in noticed_by()
        if name not in NAMES["L " if name.startswith("L ") else ""] and f"def {name.strip('`')}(" not in tests
    ]
    assert unknown == []
    assert len(noticed_by()) > 30


def test_every_mutant_that_changes_nothing_is_explained() -> None:
    explained = section().partition("\nThese change nothing")[2]
    assert [each.name for each in read_patches("tablets_equivalent") if f"({each.name})" not in explained] == []
