"""Writing into a sharded table: tasks split their rows by shard, and the driver commits once for all shards.

Order, and what is left behind when it ends there:

1. *plan*     the map of the table is read; an upload is opened at a replica of each shard        empty uploads
2. *stage*    each task splits its rows by the map, and stages those of each shard for its upload  garbage beside the uploads
3. *gather*   the files of the attempts that Spark chose become one part per shard and partition   garbage in the uploads
4. *commit*   each upload is prepared at its replica, and one commit takes all of them             the insert

Steps 2 and 3 are those of a table that is not sharded, for each shard (`write_tasks`, `write_commit`).  Step 4 carries the
version of the map of step 1.  If the map has changed since, nothing is inserted, and the rows have to be split again:
`insert_sharded` does so by running the job again.

Which shard gets a row decides `split_by_shard` in the task, by the hash with which reads leave out shards.  Before that, a job
with many tasks brings the rows of each shard together: by Spark's own ``xxhash64``, which is the same function.

Of a table in an object store the tasks that reach the store put the files of each shard there, into the objects of that shard.

A job that overwrites takes the place of what all shards have, in step 4; a shard without new rows loses its own.

Absent on purpose: changes of columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from msgspec import UNSET
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.datasource import WriterCommitMessage

from replitree import private
from replitree.client.insert.stored_upload import Tags
from replitree.client.insert.terms import Terms
from replitree.client.insert.upload import Upload, discard_upload, renewed
from replitree.client.sharded.insert.joint import JointInsertResult
from replitree.client.sharded.insert.split_rows import FilledUpload
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.table import Table
from replitree.client.transport.stored import Through
from replitree.decoding import msgpack_decoder
from replitree.errors import BadInput, OutcomeUnknown, ReplitreeError, SchemaMismatch, Unavailable
from replitree.protocol.sharded.places import shard_number
from replitree.protocol.sharded.shard_map import Shard, ShardMap, decode_map, encode_map
from replitree.spark.session.columns import conformed, quoted
from replitree.spark.session.tasks import run_over_rows
from replitree.spark.write.shuffle import has_many_tasks, with_groups
from replitree.spark.write.store_write import offered
from replitree.spark.write.task_insert import is_in_reach
from replitree.spark.write.write_commit import MARK, discard_job, gathered, remove_scratch
from replitree.spark.write.write_tasks import StagedMessage, WriteJob, job_of, session_mode, write_task
from replitree.storage.parts.manifest import decode_manifest
from replitree.storage.rewrite.slices import cut
from replitree.storage.schema.definition import TableDefinition, decode_definition
from replitree.storage.schema.row_buckets import shard_key, split_by_shard
from replitree.wire.errors_http import error_from
from replitree.wire.upload_life import Writer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OPENED_AT_ONCE = 8
"""Uploads opened at once."""

MAPS_MAX = 5
"""How often a job is run again because the map has changed while it ran."""

SHARD_COLUMN = "__replitree_shard"


@dataclass(frozen=True, slots=True)
class ShardedJob:
    """The part of a job that every task gets.

    Attributes
    ----------
    definition
        The sharded table, as it is encoded.
    names
        The table's names of the columns that the rows have, in the rows' order.
    map, map_version
        Which shard has which rows, as it is encoded, and the version of that.
    jobs
        Where the rows of each shard go.
    number_by
        The column that numbers the rows in a history; None: the job is not recorded.
    """

    definition: tuple[bytes, bytes] = field(repr=False)
    names: tuple[str, ...]
    map: bytes = field(repr=False)
    map_version: int
    jobs: Mapping[Shard, WriteJob] = field(repr=False)
    number_by: str | None = None

    @property
    def table(self) -> TableDefinition:
        """The sharded table."""
        return decode_definition(*self.definition)

    @property
    def shard_map(self) -> ShardMap:
        """Which shard has which rows."""
        return decode_map(self.map, "map")

    @property
    def upload(self) -> str:
        """Names the job: the upload of its first shard."""
        return self.jobs[min(self.jobs)].upload


class ViewsNeedRows(BadInput):
    """The table has materialised views, which are computed where all rows of an insert are: not by tasks."""


class ShardedMessage(WriterCommitMessage):
    """What one task attempt has staged: some messages for each shard, one after the other.

    `session_mode`: as of `StagedMessage`, also of an attempt without rows.
    """

    def __init__(self, staged: Sequence[tuple[Shard, StagedMessage]]) -> None:
        self.staged = tuple(staged)
        self.session_mode = session_mode()


def staged_in(message: WriterCommitMessage | None) -> Sequence[StagedMessage]:
    """Return what one attempt's message, of any job, says that it has staged."""
    if isinstance(message, ShardedMessage):
        return [each for _, each in message.staged]
    return [message] if isinstance(message, StagedMessage) else []


# --- plan -----------------------------------------------------------------------------------------------------------------


def plan_sharded(
    table: ShardedTable,
    names: Sequence[str],
    timeout_s: float,
    writer: Writer | None = None,
    through: Through | None = None,
    number_by: str | None = None,
) -> ShardedJob:
    """Read the map, and open an upload in each shard.

    Parameters
    ----------
    table, names
        The table, and its names of the columns that the rows have.
    timeout_s
        How long a replica may take to open an upload, in seconds.
    writer
        The process that will commit; this one by default.
    through
        As of `replitree.spark.write.write.insert_df`.
    number_by
        As of `ShardedJob`.

    Raises
    ------
    TableNotFound
        The table was dropped.
    ViewsNeedRows
        The table has materialised views.
    BadInput
        The rows have to go into an object store, and a shard takes nothing from one.
    Unavailable
        No replica of a shard takes an upload; nothing stays open.
    """
    table.refresh()
    # After the map: a view that comes later changes it, and the commit is refused.
    if table.info.map.views is not UNSET and table.views():
        raise ViewsNeedRows(
            f"table {table.name} is sharded and has materialised views, which Spark's tasks can't compute: insert the frame"
            " with table.insert(frame), whose rows then go through the driver; nothing was inserted"
        )
    info, shards = table.info, {shard_number(each.name): each for each in table.find(None).all}

    def open_one(shard: Shard) -> tuple[Shard, Upload | ReplitreeError]:
        try:
            return shard, shards[shard].inserter.open_upload(timeout_s, writer)
        except ReplitreeError as error:
            return shard, error

    # A task may have rows of any shard.
    with ThreadPoolExecutor(OPENED_AT_ONCE, "replitree-open") as pool:
        found = list(pool.map(open_one, info.map.shards))
    opened = {at: each for at, each in found if isinstance(each, Upload)}
    columns = [column.name for column in table.definition.columns]
    try:
        for _, each in found:
            if isinstance(each, ReplitreeError):
                raise each
        jobs = {
            at: job_of(
                shards[at].definition,
                columns,
                table.http,
                upload,
                store=offered(upload, through),
                through=through,
                number_by=number_by,
            )
            for at, upload in opened.items()
        }
    except ReplitreeError:
        for upload in opened.values():
            discard_upload(upload, table.http)
        raise
    for job in jobs.values():
        if job.scratch is not None:
            private.make_folder(job.scratch)
    encoded = (table.definition.encode_metadata(), table.definition.encode_columns())
    return ShardedJob(encoded, tuple(names), encode_map(info.map), info.map_version, jobs, number_by)


# --- stage ----------------------------------------------------------------------------------------------------------------


def stage_by_shard(job: ShardedJob, batches: Iterator[pa.RecordBatch]) -> ShardedMessage:
    """Stage one attempt's rows, those of each shard for its upload.  Raises as `write_task`."""
    definition, shard_map = job.table, job.shard_map
    first = next(batches, None)
    if first is None:
        return ShardedMessage(())
    # Under the table's own column names.
    schema = pa.schema([field_.with_name(name) for field_, name in zip(first.schema, job.names, strict=True)])
    renamed = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in chain((first,), batches))
    rows = pa.RecordBatchReader.from_batches(schema, renamed)
    return ShardedMessage(
        [
            (piece.shard, write_task(job.jobs[piece.shard], iter(piece.rows.to_batches())))
            for some in cut(rows, definition)
            for piece in split_by_shard(some.rows, definition, shard_map)
        ]
    )


# --- commit ---------------------------------------------------------------------------------------------------------------


def commit_by_shard(
    job: ShardedJob, table: ShardedTable, messages: Sequence[WriterCommitMessage | None], terms: Terms
) -> JointInsertResult | None:
    """Make what the chosen attempts staged one insert; None: the map has changed meanwhile, and nothing was inserted.

    Raises
    ------
    OutcomeUnknown
        It may have been inserted; run the job again with its token.
    """
    staged: dict[Shard, list[StagedMessage]] = {}
    for message in messages:
        for shard, each in message.staged if isinstance(message, ShardedMessage) else ():
            if each.manifests:
                staged.setdefault(shard, []).append(each)
    for shard, own in job.jobs.items():
        if shard not in staged:
            discard_job(own, table.http)
    if not staged:
        nothing = JointInsertResult(None, 0, "empty", terms.token)
        return table.emptied(nothing, terms.timeout_s) if terms.overwrite == "all" else nothing
    filled = {
        shard: FilledUpload(*gathered(job.jobs[shard], table.http, some)) for shard, some in sorted(staged.items())
    }
    is_taken = True
    try:
        result = table.joint.commit_uploads(filled, job.map_version, terms)
        is_taken = result is not None and result.outcome == "inserted"
    except OutcomeUnknown:
        # The uploads stay: replicas may be about to take them.
        raise
    except ReplitreeError:
        is_taken = False
        raise
    finally:
        for shard in filled:
            if not is_taken:
                discard_upload(job.jobs[shard].opened, table.http)
            remove_scratch(job.jobs[shard])
    return result


def abort_by_shard(job: ShardedJob) -> None:
    """Remove what was staged, unless a commit may have begun."""
    for own in job.jobs.values():
        if own.scratch is None or not (own.scratch / MARK).exists():
            discard_job(own, own.http)
        remove_scratch(own)


def map_changed(name: str) -> Unavailable:
    """Return the error of a job whose rows were split by a map that is not the table's any more."""
    return Unavailable(
        f"buckets of table {name!r} were moved to other shards while the job ran: nothing was inserted, run the job again"
    )


# --- a frame --------------------------------------------------------------------------------------------------------------


class _TaskPieces(msgspec.Struct, frozen=True):
    """A task's message to its driver: shard, folder, manifests and tags of each piece, or why its rows can't be inserted."""

    pieces: tuple[tuple[int, str, tuple[bytes, ...], Tags | None], ...] = ()
    problem: dict[str, str] = {}


def insert_sharded(table: ShardedTable, frame: DataFrame, terms: Terms) -> JointInsertResult:
    """Insert the rows of a Spark DataFrame into all shards that they belong to, all or none: see `insert_df`.

    The job runs again when buckets were moved to other shards meanwhile.  With materialised views the rows go through the
    driver, which holds all of them.
    """
    rows = conformed(frame, table.definition)
    for _ in range(MAPS_MAX):
        try:
            job = plan_sharded(table, rows.columns, terms.timeout_s, through=terms.through)
        except ViewsNeedRows:
            return table.joint.insert(rows.toArrow(), terms)
        with ExitStack() as stack:
            for own in job.jobs.values():
                stack.enter_context(renewed(own.opened, table.http))
                stack.callback(remove_scratch, own)
            try:
                job = _in_reach(frame.sparkSession, job)
                result = commit_by_shard(job, table, _staged_rows(rows, table, job, shuffle=terms.shuffle), terms)
            except OutcomeUnknown:
                # Not discarded: replicas may be about to take the uploads.
                raise
            except BaseException:
                for own in job.jobs.values():
                    discard_upload(own.opened, table.http)
                raise
        if result is not None:
            return result
    raise map_changed(table.name)


def _in_reach(spark: SparkSession, job: ShardedJob) -> ShardedJob:
    """Return a job whose tasks put nothing into the object store if Spark's workers do not reach it; a log says why.

    Errors as of `is_in_reach`.
    """
    # All shards lie in one store, and credentials are those of the workers.
    first = job.jobs[min(job.jobs)]
    if not first.store or is_in_reach(spark, first.table, replace(first.opened, store=first.store), first.through):
        return job
    return replace(job, jobs={shard: replace(own, store="") for shard, own in job.jobs.items()})


def _staged_rows(rows: DataFrame, table: Table, job: ShardedJob, *, shuffle: bool | None) -> list[ShardedMessage]:
    """Have Spark's tasks stage the rows; return what they say, in their order."""
    if has_many_tasks(rows) if shuffle is None else shuffle:
        ready, groups = with_groups(
            rows.withColumn(SHARD_COLUMN, shard_column(table.definition, job.shard_map)),
            table.definition,
            shuffle=False,
        )
        rows = ready.hint("rebalance", SHARD_COLUMN, *groups).drop(SHARD_COLUMN, *groups)
    messages = []
    for each in map(msgpack_decoder(_TaskPieces).decode, run_over_rows(rows, partial(_told, job))):
        if each.problem:
            raise error_from(each.problem)
        messages.append(
            ShardedMessage(
                [
                    (Shard(shard), StagedMessage(folder, tuple(map(decode_manifest, manifests)), tags))
                    for shard, folder, manifests, tags in each.pieces
                ]
            )
        )
    return messages


def shard_column(definition: TableDefinition, shard_map: ShardMap) -> Column:
    """Return the shard of each row as Spark computes it, of a frame with the table's columns."""
    key = [F.col(quoted(column.name)) for column in shard_key(definition, shard_map.key)]
    bucket = F.pmod(F.xxhash64(*key), F.lit(shard_map.buckets)).cast("int")
    owners = ",".join(str(run.shard) for run in shard_map.owner for _ in range(run.buckets))
    # One text, of which Spark makes an array once: a literal for each bucket takes a call of the JVM each.
    return F.element_at(F.split(F.lit(owners), ","), bucket + 1).cast("int")


def _told(job: ShardedJob, batches: Iterator[pa.RecordBatch]) -> bytes:
    """Stage one attempt's rows; return the message for the driver."""
    try:
        message = stage_by_shard(job, batches)
    except (BadInput, SchemaMismatch) as error:
        # Not raised here: Spark would try the task again, with the same end.
        told = _TaskPieces(problem={"error": type(error).__name__, "message": str(error)})
    else:
        told = _TaskPieces(tuple((shard, each.folder, each.manifests, each.tags) for shard, each in message.staged))
    return msgspec.msgpack.encode(told)


__all__ = [
    "ShardedJob",
    "ShardedMessage",
    "abort_by_shard",
    "commit_by_shard",
    "insert_sharded",
    "map_changed",
    "plan_sharded",
    "shard_column",
    "stage_by_shard",
    "staged_in",
]
