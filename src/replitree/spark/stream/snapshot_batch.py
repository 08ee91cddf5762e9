"""The first batch of a stream: what the table has at one index, read as a snapshot.

Tasks read it as they read any snapshot (`replitree.spark.read.source_read`).  Where the stream has the columns of the feed, the
rows of the snapshot are inserts of the entry before its index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from replitree.client.read.feed import FEED_SCHEMA
from replitree.spark.read.source_read import Task, exactly, plan_partitions, plan_read, read_task

OF_SNAPSHOTS = ("table", "url", "tokenfile", "replica", "where", "final", "partitions", "lease", "through", "timeout")
"""Options of a stream that its snapshot has, too."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MarkedTask:
    """The input of one task whose rows are shown as inserts of an entry at a time, in microseconds since 1970."""

    task: Task
    schema: StructType = field(repr=False)
    version: int
    us: int


class MarkedPartition(InputPartition):
    """The files of one task; its value is a `MarkedTask`."""


def snapshot_partitions(
    options: Mapping[str, str], columns: StructType, schema: StructType, index: int | str, marks: tuple[int, int] | None
) -> list[InputPartition]:
    """Return the tasks that read what the table has at an index.

    Parameters
    ----------
    options
        Of the stream.
    columns, schema
        The table's columns that are wanted, and all that the rows get.
    index
        What the log has below it is read; of a sharded table a cut.
    marks
        The entry of which the rows are inserts, and its time in microseconds since 1970; None: they have no such columns.

    Raises
    ------
    SnapshotExpired
        Parts are not kept any more.
    """
    asked = {name: options[name] for name in OF_SNAPSHOTS if name in options} | {"asof": str(index)}
    _, found = plan_partitions(plan_read(asked, columns))
    if marks is None:
        return list(found)
    return [MarkedPartition(MarkedTask(each.value, schema, *marks)) for each in found]


def read_marked(partition: MarkedPartition) -> Iterator[pa.RecordBatch]:
    """Read one task's files, and mark its rows; errors as `read_task`."""
    task: MarkedTask = partition.value
    at = _EPOCH + timedelta(microseconds=task.us)
    for batch in read_task(task.task):
        rows = batch.num_rows
        values = [
            pa.repeat(pa.scalar(each, kind.type), rows)
            for each, kind in zip(("insert", task.version, at), FEED_SCHEMA, strict=True)
        ]
        shown = pa.RecordBatch.from_arrays([*batch.columns, *values], names=[*batch.schema.names, *FEED_SCHEMA.names])
        yield from exactly([shown], task.schema)


__all__ = ["MarkedPartition", "read_marked", "snapshot_partitions"]
