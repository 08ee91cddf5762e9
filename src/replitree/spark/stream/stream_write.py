"""Writing a stream through the data source: tasks stage the rows of a batch, and the driver commits them as that batch.

Order of one batch.  Spark makes a writer in each of three Python workers, which share no memory:

1. *plan*     a writer is made and pickled for the tasks: this opens an upload                  an empty upload
2. *stage*    each task attempt stages its rows (`replitree.spark.write.write_tasks`)           garbage beside the upload
3. *commit*   a new writer gets what the tasks say, and commits (`spark.write.write_commit`)    the insert
   *abort*    in its place after a failure, or after it: the staged files go                    nothing

Only the first writer is pickled, so the upload is opened there, and the writer of step 3 opens none.  It learns the upload and
the query from the tasks.  If every task fails, it learns nothing: the replica removes that upload after the driver has ended.

*Exactly once.*  The commit names the stream (``txnAppId``, by default the query's id), the query and the batch's number.  Spark
repeats a batch with the same number after any failure; the table takes it once (`replitree.protocol.insert.stream`).

*Abort* comes after a commit that has raised, too.  `abort_job` removes no upload that a commit may have begun to take.

The output mode ``complete`` replaces everything that is in the table, in the commit of the batch.  The catalog's tables
(``toTable``) say so by an option, too, which is the one of batch writes.  Spark refuses ``update`` for sources in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from replitree.client.insert.terms import TIMEOUT_S, InsertResult
from replitree.errors import BadInput
from replitree.spark.session.options import flag, open_connection, open_table, seconds
from replitree.spark.write.source_write import WritePlan, abort_job, commit_job, plan_write, stage_rows
from replitree.wire.sent_batch import SentBatch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from replitree.spark.write.sharded_write import ShardedMessage
    from replitree.spark.write.write_tasks import StagedMessage

QUERY = "sql.streaming.queryId"
"""The local property in which Spark tells the tasks and the threads of a query its id, which the checkpoint keeps."""

NOT_OF_STREAMS = {
    "inserttoken": "each batch has its number instead; txnAppId names the stream",
    "txnversion": "the number of each batch is its version; txnAppId alone names the stream",
    "partitionoverwritemode": 'outputMode("complete") replaces everything, outputMode("append") nothing',
}
"""Options of batch writes that a stream has not, and what there is instead."""


class BatchMessage(WriterCommitMessage):
    """What one task attempt has staged of a batch.

    Attributes
    ----------
    plan
        The job that it belongs to.
    query
        The id of the streaming query; empty if Spark does not tell it.
    staged
        The files.
    """

    def __init__(self, plan: WritePlan, query: str, staged: StagedMessage | ShardedMessage) -> None:
        self.plan, self.query, self.staged = plan, query, staged


def check_stream(options: Mapping[str, str], *, overwrite: bool) -> None:
    """Check the options of a stream.

    Parameters
    ----------
    options
        By their names in lower case.
    overwrite
        The output mode is ``complete``.

    Raises
    ------
    BadInput
        One is for batch writes only.
    """
    for name, instead in NOT_OF_STREAMS.items():
        # The catalog writes `complete` as an overwrite of everything, whose mode is "static".
        said_by_catalog = overwrite and name == "partitionoverwritemode" and options.get(name) == "static"
        if name in options and not said_by_catalog:
            raise BadInput(f"a stream has no option {name}: {instead}")
    flag(options, "newcheckpoint")


def plan_batch(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> WritePlan:
    """Check the columns, and open an upload for a batch.  Parameters and errors as of `plan_write`."""
    # Not the session's mode: `complete` brings everything that is to be in the table.
    mode = {"partitionoverwritemode": "static"} if overwrite else {}
    job = {name: text for name, text in options.items() if name not in ("txnappid", "newcheckpoint")}
    return plan_write(job | mode, schema, overwrite=overwrite)


def stage_batch(plan: WritePlan, rows: Iterator[pa.RecordBatch]) -> BatchMessage:
    """Stage the rows of one task attempt."""
    context = TaskContext.get()
    query = context.getLocalProperty(QUERY) if context is not None else None
    return BatchMessage(plan, query or "", stage_rows(plan.job, rows))


def commit_batch(
    options: Mapping[str, str], messages: Sequence[WriterCommitMessage | None], number: int, *, overwrite: bool
) -> None:
    """Make what the chosen attempts have staged the insert of a batch, unless the table has it.

    Raises
    ------
    StreamReplaced
        The stream belongs to another query, and ``newCheckpoint`` is not set.
    OutcomeUnknown
        It may be in the table; Spark repeats the batch when the query starts again.
    """
    staged = [message for message in messages if isinstance(message, BatchMessage)]
    if not staged:
        # A batch without a task has no rows.
        if overwrite:
            with open_connection(options) as connection:
                open_table(connection, options).emptied(
                    InsertResult(None, 0, "empty", None), seconds(options, TIMEOUT_S)
                )
        return
    first = staged[0]
    if not first.query:
        raise BadInput(
            "Spark does not tell the id of the streaming query: write with foreachBatch and replitree.spark.into"
        )
    stream = options.get("txnappid") or first.query
    batch = SentBatch(stream, number, first.query, takes_over=flag(options, "newcheckpoint"))
    commit_job(replace(first.plan, token=None, batch=batch), [message.staged for message in staged])


def abort_batch(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Remove what the tasks of a batch have staged, unless a commit may have begun."""
    for plan in {
        message.plan.job.upload: message.plan for message in messages if isinstance(message, BatchMessage)
    }.values():
        abort_job(plan)


__all__ = ["QUERY", "BatchMessage", "abort_batch", "check_stream", "commit_batch", "plan_batch", "stage_batch"]
