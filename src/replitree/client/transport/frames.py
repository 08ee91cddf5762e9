"""Frames: how the client hands tables to Spark, and takes rows from it.

Spark is a layer above the client and an extra of the distribution.  `replitree.spark` registers itself by an entry point of the
group ``replitree.frames``; the client asks for it when a caller names a session or brings a DataFrame, and not before.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from replitree.errors import SparkMissing

if TYPE_CHECKING:
    import pyarrow as pa

GROUP = "replitree.frames"
"""The entry-point group."""


class Frames(Protocol):
    """What the client asks of Spark.

    Tables, snapshots, sessions and DataFrames have no types here: those of the first two are above this room, and those of the
    others are PySpark's.
    """

    def arrow_schema(self, frame: Any) -> pa.Schema:
        """Return the schema of a DataFrame."""

    def insert(self, table: Any, frame: Any, terms: Any) -> Any:
        """Insert the rows of a DataFrame, all or none; return an `InsertResult`."""

    def include_written(self, table: Any, spark: Any) -> None:
        """Let later reads of the table include what jobs of this session's application have written."""

    def note_written(self, table: Any, index: int | None, *, is_mutation: bool) -> None:
        """Let later reads by Spark's jobs and SQL in this process include the entry at a log index, and all before it."""

    def read(self, snapshot: Any, spark: Any, columns: Sequence[str] | None, where: str | None, *, final: bool) -> Any:
        """Return the rows of a snapshot, of one table or of all shards, as a DataFrame; after the table's policy if `final`."""

    def understood(self, table: Any, spark: Any, where: str | None) -> str | None:
        """Return a condition if it means the same here as in the session; None: there is none, or only Spark decides it."""

    def optimize(self, table: Any, spark: Any, partition: str | None, *, final: bool, timeout_s: float) -> Any:
        """Merge parts with executors of this session; return an `OptimizeResult`."""


def is_frame(data: Any) -> bool:
    """Tell whether these rows are a DataFrame of PySpark, without importing it."""
    return type(data).__module__.startswith("pyspark.")


def note_for_frames(table: Any, index: int | None, *, is_mutation: bool = False) -> None:
    """Tell Spark of a new log entry, where this process has begun to use it: SQL of the same program then shows it."""
    if "pyspark.core.context" in sys.modules:
        frames().note_written(table, index, is_mutation=is_mutation)


@cache
def frames() -> Frames:
    """Return what hands tables to Spark.

    Raises
    ------
    SparkMissing
        PySpark is not installed.
    """
    # Most clients make no frames, and what reads entry points takes long to import.
    from importlib.metadata import entry_points

    for found in entry_points(group=GROUP):
        registered: Frames = found.load()
        return registered
    raise SparkMissing("replitree has no Spark here: pip install 'replitree[spark]'")
