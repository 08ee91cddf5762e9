"""Writing through the data source: tasks stage, the driver commits once.

Order, and what is left behind when it ends there:

1. *plan*     columns are checked; an upload is opened                                       an empty upload
2. *stage*    each task attempt writes part files under a name of its own                    garbage in scratch
3. *gather*   the files of the attempts that Spark chose become one part per partition       garbage in the upload
4. *mark*     a file says that a commit may have begun                                       the same
5. *commit*   with the job's token; a lost answer is settled by repeating it                 the insert

Step 2 is `replitree.spark.write.write_tasks`, steps 3 to 5 are `replitree.spark.write.write_commit`.

A job that overwrites does so in the commit: what was there is read until then, and by the job itself to its end.

What a job that overwrites takes the place of may be the session's to say; its tasks bring the answer.

`abort` comes when a task failed for good, and also when `commit` raised.  It removes the scratch folder; the upload
only when the mark of step 4 is not there, for otherwise it may be part of the table.  The replica
removes the rest, some minutes after the driver's process has ended (`replitree.wire.upload_life`).

A task that does not find the replica's disk sends its files to the replica, and the driver has manifests only.

Of a table in an object store, tasks put the files there (`replitree.spark.write.store_write`); step 3 then joins
manifests only, and the replica takes the objects over in step 5.  What no insert has, it deletes with the upload.

Absent on purpose: identity of a job beyond its token, or its number in a stream (``txnAppId``, ``txnVersion``).  Spark runs a
repeated job as a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from replitree import private
from replitree.client.insert.insert import TableInserter
from replitree.client.insert.quorum import InsertQuorum, quorum_of
from replitree.client.insert.terms import TIMEOUT_S, Overwrite, Terms
from replitree.client.insert.upload import discard_upload, fresh_token
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.transport.stored import through_of
from replitree.errors import BadInput
from replitree.spark.session.columns import check_columns
from replitree.spark.session.driver import driver_process
from replitree.spark.session.kept_connection import kept_connection
from replitree.spark.session.options import flag, number, open_table, seconds
from replitree.spark.session.written import note_inserted
from replitree.spark.write.recording import numbering_column, recorded_insert
from replitree.spark.write.sharded_write import (
    ShardedJob,
    ShardedMessage,
    abort_by_shard,
    commit_by_shard,
    map_changed,
    plan_sharded,
    stage_by_shard,
)
from replitree.spark.write.store_write import offered
from replitree.spark.write.write_commit import MARK, commit_staged, discard_job, remove_scratch
from replitree.spark.write.write_tasks import StagedMessage, WriteJob, job_of, write_task
from replitree.wire.sent_batch import SentBatch

OVERWRITE_MODES: Mapping[str, Overwrite] = {"static": "all", "dynamic": "partitions"}
"""Spark's names for the two kinds of overwrites."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """One job: what its tasks need, and what the driver's end does.  Spark keeps the same plan for `commit` and `abort`.

    `job` is a `WriteJob`, or a `ShardedJob`: callers know which table they write to.
    """

    options: Mapping[str, str]
    job: Any
    token: str | None
    overwrite: Overwrite | Literal["session"] | None = None
    batch: SentBatch | None = None

    @property
    def terms(self) -> Terms:
        """How its rows are inserted, once it is settled what they take the place of."""
        assert self.overwrite != "session"
        quorum = _quorum(self.options)
        return Terms(self.token, seconds(self.options, TIMEOUT_S), self.overwrite, quorum, batch=self.batch)


# --- plan -------------------------------------------------------------------------------------------------------------


def plan_write(options: Mapping[str, str], schema: StructType, *, overwrite: bool = False) -> WritePlan:
    """Check the columns and open an upload.

    Parameters
    ----------
    overwrite
        Take the place of what is in the table, or, with ``partitionoverwritemode=dynamic`` as an option or in the
        session, in the partitions that the rows belong to.

    Raises
    ------
    SchemaMismatch
        The rows' columns do not fit the table.
    BadInput
        An option is wrong, or the job has to go into an object store and can't; or it can't be recorded.
    """
    replaced: Overwrite | Literal["session"] | None = None
    if overwrite:
        # The option wins over the session's setting, which only tasks know.
        mode = options.get("partitionoverwritemode")
        replaced = "session" if mode is None else _mode(mode)
    through, batch = through_of(options.get("through")), _batch(options)
    if _quorum(options) is not None and overwrite:
        raise BadInput("a job that overwrites can't have a quorum: what it replaces would be gone if it failed")
    with kept_connection(options) as connection:
        table = open_table(connection, options)
        if flag(options, "mergeschema"):
            table.merge_schema(to_arrow_schema(schema, timezone="UTC"))
        names = check_columns(schema, table.definition)
        given = TableInserter.check_token(options.get("inserttoken"), deduplicate=True)
        token = None if batch is not None else given or fresh_token()
        if isinstance(table, ShardedTable):
            number_by = numbering_column(options, table, names, overwrite=overwrite)
            planned = plan_sharded(table, names, seconds(options, TIMEOUT_S), driver_process(), through, number_by)
            return WritePlan(dict(options), planned, token, replaced, batch)
        number_by = numbering_column(options, table, names, overwrite=overwrite)
        upload = table.inserter.open_upload(seconds(options, TIMEOUT_S), driver_process())
        try:
            store = offered(upload, through)
        except BadInput:
            discard_upload(upload, table.http)
            raise
        job = job_of(table.definition, names, table.http, upload, store=store, through=through, number_by=number_by)
        if job.scratch is not None:
            private.make_folder(job.scratch)
    return WritePlan(dict(options), job, token, replaced, batch)


def _mode(text: str) -> Overwrite:
    mode = OVERWRITE_MODES.get(text.lower())
    if mode is None:
        raise BadInput(f"option partitionOverwriteMode is static or dynamic, not {text!r}")
    return mode


def _batch(options: Mapping[str, str]) -> SentBatch | None:
    """Return the batch that the options of a job name by Delta's names for an application and the number of its write.

    Raises
    ------
    BadInput
        One of the two is missing, or there is a token as well.
    """
    application, version = options.get("txnappid"), options.get("txnversion")
    if "newcheckpoint" in options:
        raise BadInput("option newCheckpoint is for streams: a batch write has no checkpoint")
    if application is None and version is None:
        return None
    if application is None or version is None:
        raise BadInput("options txnAppId and txnVersion name a write together: give both, or insertToken")
    if "inserttoken" in options:
        raise BadInput("insertToken names the write already: leave txnAppId and txnVersion out")
    return SentBatch(application, number(options, "txnversion") or 0)


def _quorum(options: Mapping[str, str]) -> InsertQuorum | None:
    """Return the quorum that the options of a job ask for.  Raises as `quorum_of`."""
    timeout_s = seconds(options, option="quorumtimeout") if "quorumtimeout" in options else None
    return quorum_of(options.get("quorum"), timeout_s)


def stage_rows(job: WriteJob | ShardedJob, batches: Iterator[pa.RecordBatch]) -> StagedMessage | ShardedMessage:
    """Stage the rows of one task attempt.  Raises as `write_task`."""
    return stage_by_shard(job, batches) if isinstance(job, ShardedJob) else write_task(job, batches)


# --- the driver's end -------------------------------------------------------------------------------------------------


def commit_job(plan: WritePlan, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Make what the chosen attempts staged one insert.

    Raises
    ------
    OutcomeUnknown
        It may have been inserted; run the job again with its token as ``inserttoken``.
    """
    if plan.overwrite == "session":
        # Tasks have read the session's setting; a job without tasks has no rows, and leaves the table empty.
        told = (each for each in messages if isinstance(each, StagedMessage | ShardedMessage))
        modes = {message.session_mode for message in told} - {None}
        plan = replace(plan, overwrite=_mode(modes.pop() or "static") if modes else "all")
    with kept_connection(plan.options) as connection:
        table = open_table(connection, plan.options)
        if isinstance(plan.job, ShardedJob):
            if not isinstance(table, ShardedTable):
                raise BadInput(
                    f"table {table.name} was dropped and created again while the job ran: nothing was inserted"
                )
            # What a shard's log calls its position is none of the table: the history has no position of the insert.
            with recorded_insert(plan, messages):
                joint = commit_by_shard(plan.job, table, messages, plan.terms)
                if joint is None:
                    # Spark does not run tasks again after a commit that has failed.
                    raise map_changed(table.name)
            note_inserted(table, joint)
            return
        with recorded_insert(plan, messages) as asked:
            result = commit_staged(plan.job, table, messages, plan.terms)
            if asked is not None:
                asked.settle(index=result.index, settled=result.settled)
        note_inserted(table, result)


def abort_job(plan: WritePlan) -> None:
    """Remove what was staged, unless a commit may have begun: a replica discards no upload that it commits."""
    if isinstance(plan.job, ShardedJob):
        abort_by_shard(plan.job)
        return
    scratch = plan.job.scratch
    if scratch is None or not (scratch / MARK).exists():
        discard_job(plan.job, plan.job.http)
    remove_scratch(plan.job)


__all__ = ["OVERWRITE_MODES", "WritePlan", "abort_job", "commit_job", "plan_write", "stage_rows"]
