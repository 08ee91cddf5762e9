"""Final reads with Spark: what a merge of everything would leave, as a frame.

The table's policy needs the rows of a partition side by side in the order of their inserts, which Parquet files do not tell
the JVM.  So tasks do the merging, by the code that merges parts, in bounded memory: each takes some partitions, or a range
of the order key of a large one.  What they leave is written into Parquet files of a temporary folder, which is removed when
this process ends, and Spark reads these.

Executors of a cluster have no folder in common, nor have this process and a server of Spark Connect.  There the frame's rows
are those that the tasks merge, without files, each time that it is read.  A task opens the parts that it finds, and fetches the
others.

Guarantees: the same rows as `Snapshot.to_arrow(final=True)`, filtered by Spark's own ``WHERE``.

``format("replitree").option("final", "true")`` does the same without the files, each time that the frame is read.

Absent on purpose: a window over the keys in SQL.  It would shuffle the table, and could not tell which of two rows with the
same version came last.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from replitree.client.read.final import final_groups
from replitree.client.read.snapshot import Snapshot, SnapshotPart
from replitree.client.sharded.union import ShardedSnapshot
from replitree.errors import ReplitreeError
from replitree.spark.read.final_units import TASK_BYTES, FinalUnit, cut_group, pack, read_units
from replitree.spark.read.read import filtered, pushed, read_files, snapshot_df
from replitree.spark.read.source_read import final_tasks, read_task
from replitree.spark.session.columns import quoted
from replitree.spark.session.tasks import made_in_tasks, run_tasks
from replitree.spark.session.types import spark_schema
from replitree.spark.store.located import is_own_local
from replitree.storage.files.durable import store_errors
from replitree.storage.parts.verified import CheckedPart
from replitree.storage.schema.definition import TableDefinition, decode_definition
from replitree.storage.schema.merge_policy import PLAIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class _Task:
    """The units of one task, and what is wanted of them: columns, condition, and where the rows go."""

    definition: tuple[bytes, bytes]
    units: tuple[FinalUnit, ...]
    columns: tuple[str, ...]
    where: str | None
    folder: str


def final_df(
    snapshot: Snapshot | ShardedSnapshot,
    spark: SparkSession,
    columns: Sequence[str] | None = None,
    where: str | None = None,
) -> DataFrame:
    """Give to Spark what the table's policy leaves of a snapshot.  Parameters and errors as `spark.read.read.snapshot_df`.

    Raises
    ------
    Unavailable
        A task failed: the temporary folder is full, or a part can't be read.
    """
    definition = snapshot.definition
    # A plain policy leaves no row out: there is nothing to make final.
    if definition.policy == PLAIN:
        return snapshot_df(snapshot, spark, columns, where)
    if isinstance(snapshot, ShardedSnapshot):
        # Rows with equal keys lie in one shard: the shard key consists of columns of the order key.
        frames = [final_df(each, spark, columns, where) for each in snapshot.shards]
        return reduce(DataFrame.union, frames) if frames else snapshot_df(snapshot, spark, columns, where)
    wanted = spark_schema(definition, columns).names
    predicate, problem = pushed(definition, spark, where)
    # All columns, unless the condition was understood: only Spark knows what else it looks at.
    needed = definition.arrow_schema.names
    if where is None or predicate is not None:
        needed = list(dict.fromkeys([*wanted, *(predicate.columns if predicate is not None else ())]))
    snapshot.require(predicate)
    condition = where if predicate is not None else None
    schema = spark_schema(definition, needed)
    if is_own_local(spark):
        groups = final_groups(snapshot.parts, definition, predicate)
        files = _written(snapshot, spark, list(groups), needed, condition)
        frame = read_files(spark, schema, files) if files else spark.createDataFrame([], schema)
    else:
        # Files of a task would be on its own machine, where other tasks don't find them.
        frame = made_in_tasks(spark, final_tasks(snapshot, schema, condition), read_task, schema)
    if where is not None:
        frame = filtered(frame, where, problem)
    return frame.select(*[quoted(name) for name in wanted])


# --- files ------------------------------------------------------------------------------------------------------------


def _written(
    snapshot: Snapshot,
    spark: SparkSession,
    groups: Sequence[tuple[SnapshotPart, ...]],
    columns: Sequence[str],
    where: str | None,
) -> list[str]:
    """Have tasks write the rows of all groups; when a task fails because a part is damaged, once more with good copies."""
    definition = snapshot.definition

    def units(parts_of: Callable[[Sequence[SnapshotPart]], list[CheckedPart]]) -> list[FinalUnit]:
        return [unit for group in groups for unit in cut_group(parts_of(group), definition)]

    try:
        return _write(spark, definition, snapshot.good(lambda: units(snapshot.checked)), columns, where)
    except ReplitreeError:
        # Once more only if a part was read elsewhere meanwhile: the same files would fail in the same way.
        before = dict(snapshot.others)
        repaired = units(snapshot.whole)
        if snapshot.others == before:
            raise
    return _write(spark, definition, repaired, columns, where)


def _write(
    spark: SparkSession,
    definition: TableDefinition,
    units: Sequence[FinalUnit],
    columns: Sequence[str],
    where: str | None,
) -> list[str]:
    """Have tasks write the rows of all units into files of a folder that lasts as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="replitree-final-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    encoded = (definition.encode_metadata(), definition.encode_columns())
    sizes = [unit.bytes for unit in units]
    packed = pack(units, sizes, max(os.cpu_count() or 1, -(-sum(sizes) // TASK_BYTES)))
    tasks = [_Task(encoded, tuple(some), tuple(columns), where, str(folder)) for some in packed]
    return [name.decode() for name in run_tasks(spark, tasks, _write_task) if name]


def _write_task(task: _Task) -> bytes:
    """Write the rows of one task; return the file's path, empty when there are none."""
    import pyarrow.parquet as pq

    definition = decode_definition(*task.definition)
    batches = read_units(task.units, definition, task.columns, task.where)
    # A task that Spark repeats has a file of its own.
    path = Path(task.folder) / f"final-{secrets.token_hex(8)}.parquet"
    with store_errors(f"write the rows of a final read to {task.folder}"):
        first = next(batches, None)
        if first is None:
            return b""
        with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
    return str(path).encode()
