"""Final reads with Spark: what a merge of everything would leave, as a frame.

The table's policy needs the rows of a partition side by side in the order of their inserts, which Parquet files do not tell
the JVM.  So the merging is done here, by the code that merges parts, in bounded memory; the result is written into
Parquet files of a temporary folder, which is removed when this process ends, and Spark reads these.

Guarantees: the same rows as `Snapshot.to_arrow(final=True)`, filtered by Spark's own ``WHERE``.

Absent on purpose: a window over the keys in SQL.  It would shuffle the table, and could not tell which of two rows with the
same version came last.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from replitree.client.snapshot import Snapshot
from replitree.spark.columns import quoted
from replitree.spark.read import check_local, filtered, pushed, read_files
from replitree.spark.types import spark_schema
from replitree.storage.durable import store_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_ROWS = 1_000_000
"""Rows of one file: several make several tasks."""


def final_df(
    snapshot: Snapshot, spark: SparkSession, columns: Sequence[str] | None = None, where: str | None = None
) -> DataFrame:
    """Give to Spark what the table's policy leaves of a snapshot.

    Parameters
    ----------
    snapshot
        From `Table.snapshot`.
    columns
        Names, in the order wanted; all by default.
    where
        Spark SQL condition over the table's columns.

    Raises
    ------
    BadInput
        A column is unknown, Spark can't read `where`, or its executors run elsewhere.
    SnapshotExpired
        Parts of the snapshot are gone.
    StoreError
        The temporary folder is full.
    """
    definition = snapshot.definition
    check_local(spark, definition.name)
    wanted = spark_schema(definition, columns).names
    predicate, problem = pushed(definition, spark, where)
    needed = None if where is not None and predicate is None else wanted  # what Spark looks at, it alone knows
    if predicate is not None:
        needed = list(dict.fromkeys([*wanted, *predicate.columns]))
    batches = snapshot.batches(needed, where if predicate is not None else None, final=True)
    files = _write(batches, snapshot.schema_of(needed))
    schema = spark_schema(definition, needed)
    frame = read_files(spark, schema, [str(file) for file in files]) if files else spark.createDataFrame([], schema)
    if where is not None:
        frame = filtered(frame, where, problem)
    return frame.select(*[quoted(name) for name in wanted])


def _write(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[Path]:
    """Write batches into files of a folder that lasts as long as this process."""
    import pyarrow.parquet as pq

    folder = Path(tempfile.mkdtemp(prefix="replitree-final-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    files: list[Path] = []
    writer: pq.ParquetWriter | None = None
    rows = 0
    with store_errors(f"write the rows of a final read to {folder}"):
        try:
            for batch in batches:
                if writer is None or rows >= FILE_ROWS:
                    if writer is not None:
                        writer.close()
                    files.append(folder / f"final-{len(files)}.parquet")
                    writer, rows = pq.ParquetWriter(files[-1], schema, compression="zstd"), 0
                writer.write_batch(batch)
                rows += batch.num_rows
        finally:
            if writer is not None:
                writer.close()
    return files
