"""Write: a DataFrame becomes one insert, by the JVM's own Parquet writer.

Order; a crash or a failure before step 5 leaves an upload that nobody refers to:

1. *open*     an upload at a replica on this machine
2. *write*    Spark sorts each task's rows by partition and order key and writes Parquet into a scratch folder beside it;
              a task that is repeated replaces its own files, as in any Spark job
3. *adopt*    each partition's files become a part: one pass for sortedness, statistics and content hash
4. *tidy*     the scratch folder goes
5. *commit*   once, here on the driver, with the token: all rows or none; when it overwrites, the same commit removes what
              it takes the place of

Where Spark can't write into a replica's folder (another machine), `replitree.spark.source` is the way; it is slower.

Absent on purpose: deduplication of rows.  A job that is run again is another insert, unless it has the same token or
content.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.client.insert import TIMEOUT_S, InsertResult
from replitree.client.quorum import Quorum
from replitree.client.upload import Overwrite, Upload, discard_upload
from replitree.errors import BadInput
from replitree.spark.columns import conformed, partition_columns, quoted
from replitree.spark.located import is_local
from replitree.spark.nested import with_stored_names
from replitree.spark.read import session_conf
from replitree.storage.adopt import adopt_files
from replitree.storage.definition import TableDefinition
from replitree.storage.manifest import PartManifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client.table import Table

SCRATCH_SUFFIX = "_scratch"
"""A folder beside an upload, on the same disk, which the replica sweeps with the uploads when nobody else removes
it."""

TASKS_UNSHUFFLED_MAX = 8
"""Up to so many tasks may write every partition each; more would make too many small files."""

SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""What files of a table must be written with."""


def insert_df(
    table: Table,
    frame: DataFrame,
    *,
    token: str | None = None,
    deduplicate: bool = True,
    overwrite: Overwrite | None = None,
    timeout_s: float = TIMEOUT_S,
    shuffle: bool | None = None,
    quorum: Quorum | None = None,
) -> InsertResult:
    """Insert the rows of a Spark DataFrame, all or none.

    Parameters
    ----------
    table
        From `Connection.table`.
    frame
        Its columns are found by name; missing ones have their defaults, or are null.
    token, deduplicate, overwrite, timeout_s, quorum
        As `Table.insert`; the time of the Spark job does not count.
    shuffle
        Bring the rows of each partition together first, so that it gets few files.  By default only when a partitioned
        table is written by many tasks.

    Raises
    ------
    SchemaMismatch
        Columns or types do not fit, or a column that may not be null has nulls; nothing was inserted.
    Unavailable
        Nothing was inserted; try again later.
    OutcomeUnknown
        It may have been inserted; insert it again with the error's token.
    """
    token = table.inserter.check_token(token, deduplicate=deduplicate, overwrite=overwrite)
    spark, definition = frame.sparkSession, table.definition
    rows = with_stored_names(conformed(frame, definition), definition)
    upload = table.inserter.open_upload(timeout_s)
    try:
        folder = _shared_folder(upload, spark)
        with scratch_folder(folder) as scratch:
            _write_files(rows, definition.stored, scratch / "files", shuffle=shuffle)
            manifests = _adopt(definition, scratch / "files", folder)
    except BaseException:
        discard_upload(upload, table.http)
        raise
    if not manifests:
        discard_upload(upload, table.http)
        nothing = InsertResult(None, 0, "empty", token)
        return table.emptied(nothing, timeout_s) if overwrite == "all" else nothing
    return table.inserter.commit(upload, manifests, token, timeout_s=timeout_s, overwrite=overwrite, quorum=quorum)


def _shared_folder(upload: Upload, spark: SparkSession) -> Path:
    folder = upload.folder
    if folder is None or not is_local(spark):
        raise BadInput(
            f"Spark and replica {upload.replica.name} do not share a disk; write through the data source instead:"
            f' df.write.format("replitree").option("table", "{upload.table}").mode("append").save()'
        )
    return folder


@contextmanager
def scratch_folder(upload: Path) -> Iterator[Path]:
    """Make the scratch folder of an upload, and remove it in the end."""
    scratch = upload.with_name(upload.name + SCRATCH_SUFFIX)
    try:
        scratch.mkdir()
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


# --- the files --------------------------------------------------------------------------------------------------------


def _write_files(rows: DataFrame, definition: TableDefinition, folder: Path, *, shuffle: bool | None) -> None:
    """Have Spark write sorted files: one folder per partition, none without partitions."""
    groups = partition_columns(definition)
    ready = rows.withColumns(groups) if groups else rows
    if groups and (_has_many_tasks(rows) if shuffle is None else shuffle):
        ready = ready.hint("rebalance", *groups)
    keys = [*groups, *(quoted(name) for name in definition.order_by)]
    ready = ready.sortWithinPartitions(*keys) if keys else ready
    writer = ready.write.mode("errorifexists").options(**_options(definition))
    if groups:
        writer = writer.partitionBy(*groups)
    with session_conf(rows.sparkSession, SETTINGS):
        writer.parquet(str(folder))


def _options(definition: TableDefinition) -> dict[str, str]:
    return {
        "compression": "zstd",
        "parquet.compression.codec.zstd.level": str(definition.settings.compression_level),
        "parquet.block.row.count.limit": str(definition.settings.row_group_rows),
        # A column with many values gives its dictionary up early, in every row group: 13 % less work on TPC-H's lineitem.
        "parquet.dictionary.page.size": str(64 << 10),
        # Histograms of sizes that no reader of ours looks at: another 5 %.
        "parquet.size.statistics.enabled": "false",
        "maxRecordsPerFile": "0",
    }


def _has_many_tasks(rows: DataFrame) -> bool:
    """Tell whether a frame has more tasks than may write all partitions each, without running any of it."""
    plan = rows._jdf.queryExecution()  # noqa: SLF001 - Spark tells it nowhere else
    if "AdaptiveSparkPlan" in plan.executedPlan().nodeName():  # it shuffles, and decides on the way
        return True
    return bool(plan.toRdd().getNumPartitions() > TASKS_UNSHUFFLED_MAX)


def _adopt(definition: TableDefinition, source: Path, upload: Path) -> tuple[PartManifest, ...]:
    """Turn Spark's files into parts, several at once."""
    groups = part_files(source)
    limit = definition.settings.partitions_per_insert_max
    if len(groups) > limit:
        raise BadInput(
            f"the rows belong to {len(groups)} partitions, and one insert may write to {limit}: insert in slices"
        )
    with ThreadPoolExecutor(os.cpu_count() or 1, "adopt") as pool:
        manifests = list(pool.map(lambda files: adopt_files(files, definition, upload), groups))
    return tuple(sorted(manifests, key=lambda manifest: manifest.partition))


def part_files(folder: Path) -> list[Sequence[Path]]:
    """Return the files with rows that Spark wrote, by folder, in the order of its tasks."""
    import pyarrow.parquet as pq

    groups: dict[Path, list[Path]] = {}
    for path in sorted(folder.rglob("part-*.parquet")):
        if pq.read_metadata(path).num_rows:
            groups.setdefault(path.parent, []).append(path)
    return list(groups.values())
