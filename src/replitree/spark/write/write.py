"""Write: a DataFrame becomes one insert.

Where the table's new parts go into an object store that Spark's workers reach, its tasks put the files there; where
executors are processes of their own, or a server's of Spark Connect, its tasks leave the files at a replica
(`replitree.spark.write.task_insert`).
Elsewhere the JVM's own Parquet writer does it, on the disk of a replica; order, and a crash or a failure before step 5
leaves an upload that no part refers to:

1. *open*     an upload at a replica on this machine
2. *write*    Spark sorts each task's rows by partition and order key and writes Parquet into a scratch folder beside it;
              a task that is repeated replaces its own files, as in any Spark job
3. *adopt*    each partition's files become a part: one pass for sortedness, statistics and content hash
4. *tidy*     the scratch folder goes
5. *commit*   once, here on the driver, with the token: all rows or none; when it overwrites, the same commit removes what
              it takes the place of

Absent on purpose: deduplication of rows.  A job that is run again is another insert, unless it has the same token or
content; content is the same when the same rows come in the same tasks, in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from replitree.client.arguments import check_arguments
from replitree.client.insert.insert import TableInserter
from replitree.client.insert.quorum import InsertQuorum
from replitree.client.insert.terms import TIMEOUT_S, InsertResult, Overwrite, Terms
from replitree.client.insert.upload import discard_upload
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.transport.stored import Through
from replitree.errors import BadInput
from replitree.spark.read.read import session_conf
from replitree.spark.session.columns import conformed, quoted
from replitree.spark.session.nested import with_stored_names
from replitree.spark.store.located import is_own_local
from replitree.spark.write.sharded_write import insert_sharded
from replitree.spark.write.shuffle import with_groups
from replitree.spark.write.task_insert import insert_by_tasks, is_in_reach
from replitree.spark.write.write_tasks import scratch_folder
from replitree.storage.files.folder_walk import below
from replitree.storage.parts.adopt import adopt_files
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from replitree.client.table import Table

SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Settings with which files of a table must be written."""


@check_arguments
def insert_df(  # noqa: PLR0913 - each is an option of one insert
    table: Table,
    frame: DataFrame,
    *,
    token: str | None = None,
    deduplicate: bool = True,
    overwrite: Overwrite | None = None,
    timeout_s: float = TIMEOUT_S,
    shuffle: bool | None = None,
    quorum: InsertQuorum | None = None,
    through: Through | None = None,
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
    through
        How rows get into the table's object store: ``"store"``, tasks put them there; ``"replica"``; by default there if
        Spark's workers reach it, else through a replica.

    Raises
    ------
    SchemaMismatch
        Columns or types do not fit, or a column that may not be null has nulls; nothing was inserted.
    Unavailable
        Nothing was inserted; try again later.
    OutcomeUnknown
        It may have been inserted; insert it again with the error's token.
    """
    token = TableInserter.check_token(token, deduplicate=deduplicate, overwrite=overwrite)
    terms = Terms(token, timeout_s, overwrite, quorum, shuffle=shuffle, through=through)
    # A sharded table refuses what it can't do.
    return table.insert_on_terms(frame, terms) if isinstance(table, ShardedTable) else insert_frame(table, frame, terms)


def insert_frame(table: Table, frame: DataFrame, terms: Terms) -> InsertResult:
    """Insert the rows of a Spark DataFrame, all or none: see `insert_df`."""
    if isinstance(table, ShardedTable):
        return insert_sharded(table, frame, terms)
    shuffle, through = terms.shuffle, terms.through
    rows = conformed(frame, table.definition)
    upload = table.inserter.open_upload(terms.timeout_s)
    try:
        is_stored = is_in_reach(frame.sparkSession, table.definition, upload, through)
    except BaseException:
        discard_upload(upload, table.http)
        raise
    folder = upload.folder
    # Spark's writer would make the folder anew on an executor that does not see it, and its rows would be lost.
    if is_stored or folder is None or not is_own_local(frame.sparkSession):
        store = upload.store if is_stored else ""
        return insert_by_tasks(table, rows, upload, terms, store=store, shuffle=shuffle, through=through)
    # The JVM writes the files into the replica's folder.
    definition = table.definition
    try:
        with scratch_folder(folder) as scratch:
            stored = definition.stored
            ready, groups = with_groups(with_stored_names(rows, definition), stored, shuffle=shuffle)
            keys = [*groups, *(quoted(name) for name in stored.order_by)]
            ready = ready.sortWithinPartitions(*keys) if keys else ready
            writer = ready.write.mode("errorifexists").options(**writer_options(stored))
            # One folder per partition; none without partitions.
            writer = writer.partitionBy(*groups) if groups else writer
            with session_conf(rows.sparkSession, SETTINGS):
                writer.parquet(str(scratch / "files"))
            manifests = _adopt(definition, scratch / "files", folder)
    except BaseException:
        discard_upload(upload, table.http)
        raise
    if not manifests:
        discard_upload(upload, table.http)
        nothing = InsertResult(None, 0, "empty", terms.token)
        return table.emptied(nothing, terms.timeout_s) if terms.overwrite == "all" else nothing
    return table.inserter.commit(upload, manifests, terms)


# --- the files --------------------------------------------------------------------------------------------------------


def writer_options(definition: TableDefinition) -> dict[str, str]:
    """Return the options with which Spark writes files that become those of a table as they are."""
    return {
        "compression": "zstd",
        "parquet.page.write-checksum.enabled": "true",
        "parquet.compression.codec.zstd.level": str(definition.settings.compression_level),
        "parquet.block.row.count.limit": str(definition.settings.row_group_rows),
        # A column with many values gives its dictionary up early, in every row group: 13 % less work on TPC-H's lineitem.
        "parquet.dictionary.page.size": str(64 << 10),
        # Histograms of sizes that no reader of ours looks at: another 5 %.
        "parquet.size.statistics.enabled": "false",
        "maxRecordsPerFile": "0",
        # As many values as a row group can have; Spark sizes the filters by this number.
        **{f"parquet.bloom.filter.enabled#{name}": "true" for name in definition.bloom},
        **{
            f"parquet.bloom.filter.expected.ndv#{name}": str(definition.settings.row_group_rows)
            for name in definition.bloom
        },
    }


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
    for path in sorted(below(folder)):
        if path.match("part-*.parquet") and pq.read_metadata(path).num_rows:
            groups.setdefault(path.parent, []).append(path)
    return list(groups.values())
