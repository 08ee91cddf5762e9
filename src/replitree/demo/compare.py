"""Comparisons: do all replicas have the same rows, and are they the rows that went in.

Two independent looks.  *Replicas*: every replica is asked for its own parts, the rows are read from its own disk, and their
number and content hash are compared.  *Source*: Spark computes one number from the rows that went in, in any order, and
the same number from the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client import Table


@dataclass(frozen=True, slots=True)
class Content:
    """What one replica has.

    Attributes
    ----------
    replica
        Its name.
    index
        Everything below is in it.
    parts, rows
        How many.
    content_hash
        Of all rows, in the order of the parts.
    """

    replica: str
    index: int
    parts: int
    rows: int
    content_hash: str

    def same_rows(self, other: Content) -> bool:
        """Whether the rows are the same."""
        return (self.rows, self.content_hash) == (other.rows, other.content_hash)


@dataclass(frozen=True, slots=True)
class Sum:
    """The number of some rows and a sum of hashes of them, whatever their order."""

    rows: int
    hashes: int


def content(table: Table, replica: str, tail: int) -> Content:
    """Read what one replica has on its own disk.

    Parameters
    ----------
    table
        Any handle of the table.
    replica
        Whose disk.
    tail
        Wait until the replica has executed everything below this index.
    """
    from replitree.storage.parts.content_hash import content_hash

    snapshot = table.replica(replica).snapshot(tail - 1, timeout_s=120)
    rows = snapshot.to_arrow()
    return Content(replica, snapshot.index, len(snapshot.parts), rows.num_rows, content_hash(rows, table.schema))


def all_same(contents: Sequence[Content]) -> bool:
    """Whether all replicas have the same rows."""
    return all(other.same_rows(contents[0]) for other in contents)


def sum_of(frame: DataFrame, columns: Iterable[str]) -> Sum:
    """Let Spark sum up the rows of a frame.

    Parameters
    ----------
    frame
        Any rows.
    columns
        In which order to look at them.
    """
    from pyspark.sql import functions as f

    names = list(columns)
    maps = any(kind.startswith("map") or "map<" in kind for _, kind in frame.dtypes)
    values = [f.to_json(f.struct(*_quoted(names)))] if maps else [f.col(name) for name in _quoted(names)]
    hashed = f.xxhash64(*values).cast("decimal(38,0)")
    rows, hashes = frame.select(hashed.alias("h")).agg(f.count("*"), f.coalesce(f.sum("h"), f.lit(0))).collect()[0]
    return Sum(int(rows), int(hashes))


def sum_of_files(spark: SparkSession, files: Sequence[Path], columns: Iterable[str]) -> Sum:
    """Sum up the rows of Parquet files."""
    return sum_of(spark.read.parquet(*map(str, files)), columns)


def _quoted(names: Iterable[str]) -> list[str]:
    return ["`" + name.replace("`", "``") + "`" for name in names]
