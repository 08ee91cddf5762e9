"""The inventory as a data source of Spark: its workers walk the machine and hand over Arrow batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from typing_extensions import override

from replitree.demo import inventory

NAME = "replitree_inventory"
PIECES_PER_TASK = 100
"""Folders dealt out to each task: many small ones make tasks alike in size."""

_DDL = "path string, owner string, size bigint, modified timestamp, kind string, suffix string, walk int"


class Pieces(InputPartition):
    """Folders that one task walks."""

    def __init__(self, folders: Sequence[tuple[str, bool]]) -> None:
        super().__init__(tuple(folders))


class InventoryReader(DataSourceReader):
    """Divides the machine among tasks and walks."""

    def __init__(self, root: str, number: int, tasks: int, rows_max: int, skipped: frozenset[str]) -> None:
        self._root, self._number, self._tasks, self._skipped = root, number, tasks, skipped
        self._limits = inventory.WalkLimits(rows_max=rows_max)

    @override
    def partitions(self) -> Sequence[InputPartition]:
        """Deal the pieces out in turn: neighbours are often alike in size."""
        pieces = inventory.starting_points(self._root, self._skipped, wanted=PIECES_PER_TASK * self._tasks)
        return [Pieces(pieces[i :: self._tasks]) for i in range(self._tasks) if pieces[i :: self._tasks]]

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Walk the folders of one task."""
        return inventory.batches(iter(partition.value), self._skipped, self._number, self._limits)


class InventorySource(DataSource):
    """``spark.read.read.format("replitree_inventory")`` with the options root, walk, tasks, rows and skip.

    `rows` is the limit of one task, `skip` a JSON list of folders that are not entered.
    """

    @classmethod
    @override
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    @override
    def schema(self) -> str:
        """Return the columns."""
        return _DDL

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader that the options describe."""
        skipped = frozenset(json.loads(self.options.get("skip", "[]")))
        number, tasks = int(self.options.get("walk", "1")), int(self.options.get("tasks", "4"))
        rows_max = int(self.options.get("rows", inventory.WalkLimits().rows_max))
        return InventoryReader(self.options.get("root", "/"), number, tasks, rows_max, skipped)
