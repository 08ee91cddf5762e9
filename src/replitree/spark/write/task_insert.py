"""A DataFrame becomes an insert whose files its tasks write, and no row goes through the driver.

Order; what it leaves when it ends early, the replica of the upload removes:

1. *look*     of a table in an object store, one task finds out whether Spark's workers reach it; if not, a log says why
2. *stage*    each task leaves the files of its rows in the store, on the replica's disk or at the replica, whichever it reaches
              (`replitree.spark.write.write_tasks`)
3. *commit*   once, here on the driver (`replitree.spark.write.write_commit`)

Spark runs a task as often as it likes: only what the attempts say whose answers it has taken counts.

Absent on purpose: Spark's own Parquet writer.  It knows no credentials of ours, and a file that it writes would have to be
read again for its content hash.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from replitree.client.insert.stored_upload import Tags, reach
from replitree.client.insert.terms import InsertResult, Terms
from replitree.client.insert.upload import Upload, discard_upload, renewed
from replitree.client.transport.stored import Through
from replitree.decoding import msgpack_decoder
from replitree.errors import BadInput, NotAuthorized, OutcomeUnknown, SchemaMismatch, StoreError
from replitree.spark.session.tasks import run_over_rows, run_tasks
from replitree.spark.write.shuffle import with_groups
from replitree.spark.write.store_write import offered
from replitree.spark.write.write_commit import commit_staged
from replitree.spark.write.write_tasks import StagedMessage, WriteJob, job_of, scratch_folder, write_task
from replitree.storage.parts.manifest import decode_manifest
from replitree.storage.schema.definition import TableDefinition, decode_definition
from replitree.wire.errors_http import error_from

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client.table import Table

log = logging.getLogger(__name__)


class _TaskResult(msgspec.Struct, frozen=True):
    """A task's message to its driver: a `StagedMessage`, or why its rows can't be inserted."""

    folder: str = ""
    manifests: tuple[bytes, ...] = ()
    tags: Tags | None = None
    problem: dict[str, str] = {}


def is_in_reach(spark: SparkSession, table: TableDefinition, upload: Upload, through: Through | None = None) -> bool:
    """Whether tasks shall put into the store of an upload, and Spark's workers reach it; where they do not, a log says why.

    Raises
    ------
    BadInput, StoreError
        They shall, and there is none, or they do not reach it.
    Unavailable
        That could not be found out: the Spark job failed.
    """
    store = offered(upload, through)
    if not store:
        return False
    definition = (table.encode_metadata(), table.encode_columns())
    (why,) = run_tasks(spark, [(definition, store)], _why_not)
    if why and through == "store":
        raise StoreError(f"{why}; leave through out, and the rows go through a replica")
    if why:
        log.warning("%s: the rows for table %s go through replica %s", why, table.name, upload.replica.name)
    return not why


def _why_not(store: tuple[tuple[bytes, bytes], str]) -> str:
    definition, store_id = store
    try:
        reach(decode_definition(*definition), store_id)
    except (NotAuthorized, StoreError) as error:
        return str(error)
    return ""


def insert_by_tasks(
    table: Table,
    rows: DataFrame,
    upload: Upload,
    terms: Terms,
    *,
    store: str,
    shuffle: bool | None = None,
    through: Through | None = None,
) -> InsertResult:
    """Insert a frame whose tasks write their files.

    Parameters
    ----------
    rows
        With the table's columns, by their names and in their order.
    upload
        Open; it is discarded when nothing comes of it.
    terms
        How to insert.
    store
        Id of the object store that tasks put into; empty: into none.
    shuffle, through
        As `replitree.spark.write.write.insert_df`; errors, too.
    """
    job = job_of(table.definition, rows.columns, table.http, upload, store=store, through=through)
    with ExitStack() as stack:
        stack.enter_context(renewed(upload, table.http))
        if job.folder is not None:
            stack.enter_context(scratch_folder(job.folder))
        try:
            return commit_staged(job, table, _stage(rows, table, job, shuffle=shuffle), terms)
        except OutcomeUnknown:
            # Not discarded: the replica may be about to take it.
            raise
        except BaseException:
            discard_upload(upload, table.http)
            raise


def _stage(rows: DataFrame, table: Table, job: WriteJob, *, shuffle: bool | None) -> list[StagedMessage]:
    """Have Spark's tasks stage the rows; return what they say, in their order."""
    ready, groups = with_groups(rows, table.definition, shuffle=shuffle)
    told = run_over_rows(ready.drop(*groups), partial(_staged, job))
    messages = []
    for each in map(msgpack_decoder(_TaskResult).decode, told):
        if each.problem:
            raise error_from(each.problem)
        messages.append(StagedMessage(each.folder, tuple(map(decode_manifest, each.manifests)), each.tags))
    return messages


def _staged(job: WriteJob, batches: Iterator[pa.RecordBatch]) -> bytes:
    """Stage one attempt's rows; return the message for the driver."""
    try:
        message = write_task(job, batches)
    except (BadInput, SchemaMismatch) as error:
        # Not raised here: Spark would try the task again, with the same end.
        told = _TaskResult(problem={"error": type(error).__name__, "message": str(error)})
    else:
        told = _TaskResult(message.folder, message.manifests, message.tags)
    return msgspec.msgpack.encode(told)


__all__ = ["insert_by_tasks", "is_in_reach"]
