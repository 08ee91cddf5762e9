"""Whoever reads a frozen snapshot sees what is wrong with it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from replitree.client.change.change_results import Frozen
from replitree.storage.parts.encode import stage_table
from replitree.storage.schema.definition import define_table
from tests.faults.workload import SCHEMA, rows
from tests.shared.aside import check_frozen

DEFINITION = define_table("t", SCHEMA, order_by="id", partition_by="writer", table_id="0" * 32)


@dataclass(frozen=True)
class Made:
    """A frozen snapshot of two parts with ten rows each."""

    path: Path

    def part(self, partition: int, first: int) -> None:
        stage_table(rows(range(first, first + 10), (partition,)), DEFINITION, self.path, sync=False)

    @property
    def told(self) -> Frozen:
        return Frozen(name="f", index=2, parts=2, rows=20, bytes=1, path=str(self.path), replica="r1")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    made = Made(tmp_path / "f")
    made.part(1, 0)
    made.part(2, 10)
    return made


def test_what_is_whole_is_read(made: Made) -> None:
    check_frozen(made.told)


def test_a_part_that_is_missing_is_told(made: Made) -> None:
    shutil.rmtree(made.path / "2")
    with pytest.raises(AssertionError, match="1 parts"):
        check_frozen(made.told)


def test_rows_that_are_missing_are_told(made: Made) -> None:
    with pytest.raises(AssertionError, match="20 rows"):
        check_frozen(msgspec.structs.replace(made.told, rows=21))


def test_rows_that_are_there_twice_are_told(made: Made) -> None:
    shutil.rmtree(made.path / "2")
    made.part(2, 5)
    with pytest.raises(AssertionError, match=r"twice: \[5, 6"):
        check_frozen(made.told)
