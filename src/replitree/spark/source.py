"""The data source: ``format("replitree")`` for reading and writing tables, in batches and as streams.

::

    spark.read.format("replitree").option("url", "zk://…").load("events")
    df.write.format("replitree").option("url", "zk://…").option("table", "events").mode("append").save()
    df.writeStream.format("replitree").option("table", "events").option("checkpointLocation", "…").start()
    spark.readStream.format("replitree").option("startingVersion", "snapshot").load("events")

Options (any case; all are text):

==========================  ============================================================================================
``table``                   the table's name; ``load("events")`` says it too
``url``                     ``zk://…`` or a folder made by `up`; by default ``REPLITREE_URL``, then ``REPLITREE_DIR``
``tokenfile``               file with the cluster's token; by default as `replitree.connect` finds it
``replica``                 read or write at this replica only
``columns``                 read: names, separated by commas
``where``                   read: Spark SQL condition over the table's columns, pushed down to parts and files
``minindex``                read: the insert at this log index must be included
``level``                   read: ``eventual`` (the default), ``sequential`` or ``linearizable``
``asof``                    read: exactly what the log has below this index, or the name of a tag; also ``versionasof``
``timestampasof``           read: the log up to the last entry that was written at or before this time: ISO 8601, in UTC
                            when it names no zone
``final``                   read: ``true`` applies the table's policy first, as a merge of everything would
``readchangefeed``          read: ``true`` reads the change feed in place of rows, from the entry of the log that
                            ``startingversion`` says up to ``endingversion``, both included; by default up to the end.
                            Of a stream: all changes with the feed's columns, and not only the rows that come
``startingversion``         stream: where a query without a checkpoint begins: ``snapshot`` (the default: what the table has,
                            then what comes), ``earliest``, ``latest``, an index, or a tag; or ``startingtimestamp``: a time
``skipchangecommits``       stream: ``true`` passes entries by that change or delete rows; ``ignoredeletes`` those that delete
``maxpartspertrigger``      stream: parts of one batch; also ``maxfilespertrigger``, ``maxbytespertrigger``,
                            ``maxrowspertrigger``, ``maxentriespertrigger``
``failondataloss``          stream: ``false`` goes on behind rows that are not kept any more
``pollwait``                stream: for how many milliseconds a replica waits for something new; by default 100
``consumer``                stream: the consumer of the feed that holds what the stream has not read
``partitions``              read: how many tasks to pack the files into
``lease``                   read: for how many seconds the parts are kept after a task of the read last said that it
                            needs them; by default 600, at most 3600
``through``                 how tasks read and write what is in an object store: ``store``, there, with credentials from the
                            executors' environment; ``replica``; by default there if that works, else through a replica
``inserttoken``             write: names the insert; a job that is run again with the same token inserts nothing twice.
``txnappid``                write: names a stream, and ``txnversion`` the number of this write in it; a write whose
                            number the stream has, or a higher one, inserts nothing.  Of a stream: its name, by default
                            the id of the query
``newcheckpoint``           stream: ``true`` takes the stream over from a query with another checkpoint
``partitionoverwritemode``  write with ``mode("overwrite")``: ``static`` replaces the whole table, ``dynamic`` the
                            partitions that the rows belong to; by default what the session has in
                            ``spark.sql.sources.partitionOverwriteMode``, then ``static``
``quorum``                  write: how many replicas must have the rows: a number, ``majority`` or ``all``
``quorumtimeout``           write: for how many seconds that is waited for, by default 10
``mergeschema``             write: ``true`` adds the columns that the rows have and the table has not, and widens others
``record``                  write: a history, as an absolute path on the driver's machine, to which each insert is written
                            down before it is asked for (`replitree.spark.recorded`)
``recordkey``               write: the column that numbers the rows there; by default the first one of the order key
``timeout``                 seconds to wait for replicas
==========================  ============================================================================================

Guarantees: a frame is one snapshot, fixed when it is first used; its parts are kept by a lease that every task renews, and
a task that finds the lease lost fails and says so.  A write is all or nothing and takes place once: tasks only stage,
under names that no other attempt has, and the driver commits; ``mode("overwrite")`` removes the old rows in the same
commit.  Without ``inserttoken`` a job that is run again is a new insert.

Where Spark has the catalog's jar, a read with none but ``table``, ``url``, ``tokenfile``, ``columns``, ``minindex``,
``level``, ``asof``, ``timestampasof``, ``final`` and ``timeout`` is Spark's own scan of one snapshot (`NamedSource.scala`),
with filters pushed down; its parts are kept as those of a frame of `to_df`.  This module does all other reads.

Absent on purpose: ``pushFilters``.  On Spark 4.3 it returns wrong rows when one relation is used twice, because filters
of one use prune the other.  ``where`` is for that.

This module imports little: Spark imports every `pyspark_*` module in a process of its own before it plans anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from typing_extensions import override

from replitree.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from replitree.spark.read.feed_read import FeedPlan
    from replitree.spark.read.source_read import ReadPlan
    from replitree.spark.stream.stream_read import TableStream
    from replitree.spark.write.source_write import WritePlan


OF_FEED = frozenset({"readchangefeed", "startingversion", "endingversion"})
"""Options of a read of the change feed; what reads it is loaded only then."""

ONLY_STREAMS = (
    *("maxentriespertrigger", "maxpartspertrigger", "maxbytespertrigger", "maxrowspertrigger"),
    *("startingtimestamp", "skipchangecommits", "ignoredeletes", "failondataloss", "pollwait", "consumer"),
)
"""Options that batch reads do not have."""


class ReplitreeSource(DataSource):
    """Spark's way to tables.  Made by Spark, from the options of a read or a write."""

    @classmethod
    @override
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "replitree"

    @override
    def schema(self) -> StructType:
        """Return the schema of a read: the table's, or the columns asked for.

        Raises
        ------
        BadInput
            Spark's own catalog asks for it, and would forget the options with the next statement.
        """
        from replitree.spark.read.source_read import read_schema
        from replitree.spark.session.options import OF_CATALOG, WITHOUT_JAR

        # Where the jar is, `NamedSource` answers Spark's catalog, and asks this one without that option.
        if OF_CATALOG in {str(key).lower() for key in self.options}:
            raise BadInput(WITHOUT_JAR)
        options = self._options()
        # Whether a batch or a stream is read, Spark does not say here: `reader` looks at the others.
        if "readchangefeed" not in options:
            return read_schema(options)
        from replitree.spark.read.feed_read import feed_schema
        from replitree.spark.session.options import flag

        return feed_schema(options) if flag(options, "readchangefeed") else read_schema(options)

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader; the snapshot is taken, or the range of the feed, when Spark asks for the partitions."""
        from replitree.spark.read.source_read import plan_read

        options = self._options()
        if name := next((each for each in ONLY_STREAMS if each in options), None):
            raise BadInput(f"option {name} is of streams, spark.readStream: a batch read has none")
        if "record" in options:
            raise BadInput("option record is of writes: replitree.spark.recorded records reads")
        if OF_FEED.intersection(options):
            from replitree.spark.read.feed_read import plan_feed, reads_feed

            if reads_feed(options):
                return FeedReader(plan_feed(options, schema))
        return ReplitreeReader(plan_read(options, schema))

    @override
    def writer(self, schema: StructType, overwrite: bool) -> ReplitreeWriter:
        """Return a writer for rows of this schema.

        Raises
        ------
        SchemaMismatch
            The rows' columns do not fit the table.
        """
        from replitree.spark.write.source_write import plan_write

        return ReplitreeWriter(plan_write(self._options(), schema, overwrite=overwrite))

    @override
    def streamReader(self, schema: StructType) -> ReplitreeStreamReader:
        """Return a reader of a stream; Spark makes one for the query, and another one for its tasks.

        Raises
        ------
        BadInput
            An option is wrong.
        """
        from replitree.spark.stream.stream_read import TableStream

        return ReplitreeStreamReader(TableStream(self._options(), schema))

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> ReplitreeStreamWriter:
        """Return a writer for the batches of a stream; Spark asks for one several times for each batch."""
        from replitree.spark.stream.stream_write import check_stream

        options = self._options()
        check_stream(options, overwrite=overwrite)
        return ReplitreeStreamWriter(options, schema, overwrite=overwrite)

    def _options(self) -> dict[str, str]:
        """Return the options by their names in lower case.  Raises `BadInput` for one that is unknown."""
        from replitree.spark.session.option_names import known_options

        return known_options(dict(self.options))


class ReplitreeReader(DataSourceReader):
    """Reads one snapshot.  Only the plan travels to the executors, and every task gets its own files."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan

    @override
    def __repr__(self) -> str:
        return f"<ReplitreeReader {self._plan}>"

    @override
    def partitions(self) -> list[InputPartition]:
        """Take the snapshot, and pack its files into a few tasks: one task per part would be fatal."""
        from replitree.spark.read.source_read import plan_partitions

        self._plan, partitions = plan_partitions(self._plan)
        return list(partitions)

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's files; an empty table has one task without any."""
        from replitree.spark.read.source_read import read_partition

        yield from read_partition(partition)


class FeedReader(DataSourceReader):
    """Reads a range of the change feed."""

    def __init__(self, plan: FeedPlan) -> None:
        self._plan = plan

    @override
    def __repr__(self) -> str:
        return f"<FeedReader {self._plan}>"

    @override
    def partitions(self) -> list[InputPartition]:
        """Ask for the range, and pack what has its rows into a few tasks."""
        from replitree.spark.read.feed_read import plan_feed_partitions

        return plan_feed_partitions(self._plan)

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's changes."""
        from replitree.spark.read.feed_read import read_feed

        yield from read_feed(partition)


class ReplitreeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table as a stream: see `replitree.spark.stream.stream_read`."""

    def __init__(self, stream: TableStream) -> None:
        self._stream = stream

    @override
    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins: always the same."""
        return self._stream.initial()

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit if the options have one: Spark passes it back unless a trigger reads everything at once."""
        # Which limits there are the options say: Spark has one limit, and no kind for some of ours.
        return ReadMaxFiles(self._stream.limits.parts or 1) if self._stream.limits.any else ReadAllAvailable()

    @override
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends; `start` itself, if there is nothing new."""
        from replitree.spark.stream.admission import Limits

        return self._stream.latest(start, Limits() if isinstance(limit, ReadAllAvailable) else self._stream.limits)

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end where the log ends now."""
        self._stream.fix_end()

    @override
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return how far the feed goes, for the progress that Spark shows."""
        return self._stream.newest()

    @override
    def commit(self, end: dict[str, Any]) -> None:
        """Take note that everything up to an offset was read."""
        self._stream.commit(end)

    @override
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch."""
        return self._stream.partitions(start, end)

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's rows."""
        from replitree.spark.read.feed_read import FeedPartition, read_feed
        from replitree.spark.read.source_read import read_partition
        from replitree.spark.stream.snapshot_batch import MarkedPartition, read_marked

        match partition:
            case FeedPartition():
                yield from read_feed(partition)
            case MarkedPartition():
                yield from read_marked(partition)
            case _:
                yield from read_partition(partition)

    @override
    def stop(self) -> None:
        """End the connection."""
        self._stream.close()


class ReplitreeWriter(DataSourceArrowWriter):
    """Writes one insert.  Spark runs `write` on copies of it in the executors, `commit` or `abort` on the driver."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    @override
    def __repr__(self) -> str:
        return f"<ReplitreeWriter {self._plan}>"

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one task attempt's rows."""
        from replitree.spark.write.source_write import stage_rows

        return stage_rows(self._plan.job, iterator)

    @override
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make everything that was staged one insert."""
        from replitree.spark.write.source_write import commit_job

        commit_job(self._plan, messages)

    @override
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was staged, unless it may be part of the table."""
        from replitree.spark.write.source_write import abort_job

        abort_job(self._plan)


class ReplitreeStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream.  Spark makes one to plan a batch, runs `write` on copies, and makes another to commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._options, self._schema, self._overwrite = options, schema, overwrite
        self._plan: WritePlan | None = None

    @override
    def __getstate__(self) -> dict[str, Any]:
        """Open an upload: only the writer that plans is pickled, for the tasks."""
        from replitree.spark.stream.stream_write import plan_batch

        # Spark pickles it twice: into the function of the tasks, and by itself.
        if self._plan is None:
            self._plan = plan_batch(self._options, self._schema, overwrite=self._overwrite)
        return dict(vars(self))

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one task attempt's rows."""
        from replitree.spark.stream.stream_write import stage_batch

        assert self._plan is not None, "a writer with which tasks write was pickled"
        return stage_batch(self._plan, iterator)

    @override
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make everything that was staged the insert of the batch, unless the table has the batch."""
        from replitree.spark.stream.stream_write import commit_batch

        commit_batch(self._options, messages, batchId, overwrite=self._overwrite)

    @override
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what was staged, unless it may be part of the table."""
        from replitree.spark.stream.stream_write import abort_batch

        abort_batch(messages)


def register(spark: Any) -> None:
    """Make ``format("replitree")`` known to a session that does not find it by itself."""
    spark.dataSource.register(ReplitreeSource)
