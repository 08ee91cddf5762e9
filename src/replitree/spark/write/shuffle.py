"""Whether the rows of each partition are brought together before they are written, so that it gets few files.

A few tasks may write every partition each: a shuffle of all rows costs more than some more files, which merges put together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replitree.spark.session.columns import partition_columns
from replitree.spark.session.tasks import is_connect
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASKS_UNSHUFFLED_MAX = 8
"""Up to so many tasks may write every partition each; more would make too many small files."""


def with_groups(rows: DataFrame, definition: TableDefinition, *, shuffle: bool | None) -> tuple[DataFrame, list[str]]:
    """Return the rows with a column more for each partition transform, brought together by them, and these columns' names.

    Parameters
    ----------
    rows, definition
        Columns of the frame have the names of the definition's.
    shuffle
        Whether to bring them together; by default when a partitioned table is written by many tasks.
    """
    groups = partition_columns(definition)
    if not groups:
        return rows, []
    ready = rows.withColumns(groups)
    if has_many_tasks(rows) if shuffle is None else shuffle:
        ready = ready.hint("rebalance", *groups)
    return ready, list(groups)


def has_many_tasks(rows: DataFrame) -> bool:
    """Tell whether a frame has more tasks than may write all partitions each, without running any of it.

    Of a frame of Spark Connect only its server knows: it may have.
    """
    if is_connect(rows.sparkSession):
        return True
    plan = rows._jdf.queryExecution()  # noqa: SLF001 - Spark tells it nowhere else
    # An adaptive plan shuffles, and decides the number of its tasks while it runs.
    if "AdaptiveSparkPlan" in plan.executedPlan().nodeName():
        return True
    return bool(plan.toRdd().getNumPartitions() > TASKS_UNSHUFFLED_MAX)


__all__ = ["TASKS_UNSHUFFLED_MAX", "has_many_tasks", "with_groups"]
