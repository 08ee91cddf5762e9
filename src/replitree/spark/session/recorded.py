"""`recorded`: Spark's own ways to tables, written down in a history: SQL, the catalog, ``format("replitree")`` and streams.

*Reads.*  A frame of Spark's takes a snapshot when it runs, and the next run may take another one.  So a recorded read runs
once, and the frame that the caller gets has the rows of that run.  The plan that has run says which snapshot it has read: its
index and its replica are in the history with the numbers of the rows.  A read shows every row of one table; the caller filters
and joins the frame.

*Writes* are written down by the data source itself (`replitree.spark.write.recording`), whichever statement or stream asks
for them: this module sets the options ``record`` and ``recordKey``.

Absent on purpose: reads of the change feed, final reads, and statements that change or remove rows.  Under Spark Connect there
are no plans to be looked at.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.java_collections import JavaArray  # type: ignore[import-untyped]  # it has no types
from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import cloudpickle
from pyspark.sql.types import IntegralType
from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import BadInput
from replitree.protocol.sharded.cut import parse_cut
from replitree.spark.session.columns import quoted
from replitree.spark.session.option_names import known_options
from replitree.spark.session.options import open_connection, table_name
from replitree.wire.history_format import LEVELS, Level, check_numbers
from replitree.wire.history_recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, DataFrameWriter, DataFrameWriterV2, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

WHOLE = ("Project", "SubqueryAlias", "RelationTimeTravel")
"""Steps of a query that leave every row there."""

SCANS = ("BatchScanExec", "RowDataSourceScanExec")
"""Steps of a plan that read the table itself."""

LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
SCANNED = re.compile(r"replitree \S+ at (\d+) of ([^\s,]+)")
"""What scans of the jar say of their snapshot (`scala/Table.scala`, `LoadedSnapshot.description`)."""


class TakenSnapshot(NamedTuple):
    """The snapshot that a plan has read: its index and its replica; None: the plan does not say."""

    at: int | None
    replica: str | None


class Relation(NamedTuple):
    """What a query reads: the table, the column that numbers its rows, the level, and the index that it names itself.

    `is_sharded`: of several shards, whose plan does not say the cut.
    """

    table: str
    key: str
    level: Level
    at: int | None
    is_sharded: bool = False


class RecordedSession:
    """A session whose reads and writes of tables are recorded: see `recorded`.

    Parameters
    ----------
    spark
        A session with a JVM of its own.
    recorder
        Where to.

    Raises
    ------
    BadInput
        The session is one of Spark Connect.
    """

    def __init__(self, spark: SparkSession, recorder: Recorder) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise BadInput(
                "under Spark Connect the plan of a read is not known here: record with the table's own methods,"
                " replitree.connect(url, record=…)"
            )
        self._spark, self._recorder = spark, recorder
        # There is no other way to plans than through the session's JVM.
        self._jvm: Any = spark._jvm  # noqa: SLF001
        self._session: Any = spark._jsparkSession  # noqa: SLF001
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001

    @override
    def __repr__(self) -> str:
        return f"<RecordedSession into {self._recorder.file}>"

    # --- reads ---

    @check_arguments
    def sql(self, statement: str) -> DataFrame:
        """Run a query that shows every row of one table, or ``INSERT INTO``.

        Parameters
        ----------
        statement
            ``SELECT … FROM replitree.default.<table>``, also with ``VERSION AS OF`` or ``WITH (level = '…')``; or
            ``INSERT INTO replitree.default.<table> …``.

        Returns
        -------
        DataFrame
            Of a query: its rows, which stay as they are.

        Raises
        ------
        BadInput
            It does something else.
        """
        parsed = self._session.sessionState().sqlParser().parsePlan(statement)
        if self._is(parsed, "InsertIntoStatement"):
            return self._insert(parsed)
        if self._is(parsed, "Command") or any(self._is(each, "InsertIntoStatement") for each in _below(parsed)):
            raise BadInput(
                "a recorded session runs a query of one table, or a statement that begins with INSERT INTO: run others by the"
                " session itself"
            )
        return self._read(lambda: self._spark.sql(statement))

    @check_arguments
    def table(self, name: str, **options: Any) -> DataFrame:
        """Read a table of the catalog: ``spark.read.options(…).table(name)``.

        Parameters
        ----------
        name
            ``replitree.default.<table>``.
        options
            Of the read, such as ``level="linearizable"``.

        Raises
        ------
        BadInput
            The read does not show every row of a table.
        """
        return self._read(lambda: self._spark.read.options(**options).table(name))

    @check_arguments
    def load(self, name: str, **options: Any) -> DataFrame:
        """Read a table by the data source: ``spark.read.format("replitree").options(…).load(name)``.

        Parameters
        ----------
        name
            The table.
        options
            Of the read, such as ``url``, ``level``, ``asOf`` or ``replica``.

        Raises
        ------
        BadInput
            The read does not show every row of a table.
        """
        return self._read(lambda: self._spark.read.format("replitree").options(**options).load(name))

    # --- writes ---

    def write(self, frame: DataFrame) -> DataFrameWriter:
        """Return ``frame.write.format("replitree")``, whose insert is recorded."""
        return frame.write.format("replitree").options(**self.options)

    def write_to(self, frame: DataFrame, table: str) -> DataFrameWriterV2:
        """Return ``frame.writeTo(table)`` for a table of the catalog; what it appends is recorded."""
        return frame.writeTo(table).options(**self.options)

    def write_stream(self, frame: DataFrame) -> DataStreamWriter:
        """Return ``frame.writeStream.format("replitree")``; each batch is recorded, also with ``toTable``.

        A driver that goes on from a checkpoint records the batch that it repeats as the same insert.
        """
        return frame.writeStream.format("replitree").options(**self.options)

    @property
    def options(self) -> dict[str, str]:
        """The options with which any other write is recorded, too."""
        key = self._recorder.key
        return {"record": os.fspath(self._recorder.file)} | ({} if key is None else {"recordKey": key})

    def _insert(self, parsed: Any) -> DataFrame:
        """Run ``INSERT INTO`` with these options beside its own."""
        from pyspark.sql import DataFrame

        relation = parsed.table()
        if not relation.getClass().getName().endswith("UnresolvedRelation"):
            raise BadInput("INSERT INTO names a table of the catalog replitree")
        said = dict(relation.options()) | self.options
        options = self._jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(said)
        named = _with(relation, relation.options(), options)
        statement = _with(parsed, relation, named)
        made = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._session, statement)
        return DataFrame(made, self._spark)

    # --- how a read is recorded ---

    def _read(self, make: Callable[[], DataFrame]) -> DataFrame:
        # Which table it is, and at which level, only the frame says; the call is from before it was made.
        call = time.monotonic_ns()
        frame = make()
        relation = self._relation(frame)
        with self._recorder.read(relation.table, relation.level, index=relation.at, call=call) as asked:
            # Rows that stay: another run of this frame may read another snapshot.
            kept = frame.localCheckpoint(eager=True)
            numbers = kept.select(quoted(relation.key)).toArrow().column(0).to_pylist()
            check_numbers(numbers, relation.key, relation.table)
            plan = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - there is no other way
            taken = _taken(plan, is_sharded=relation.is_sharded)
            if relation.level == "as_of" and relation.at is None and taken.at is None:
                raise BadInput(f"{relation.table} was empty then, and the plan does not say its index: name an index")
            asked.show(numbers, index=taken.at, replica=taken.replica)
        return kept

    def _relation(self, frame: DataFrame) -> Relation:
        """Return what a frame reads.

        Raises
        ------
        BadInput
            It does not show every row of one table, each with its number.
        """
        analyzed: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - there is no other way
        leaf = analyzed
        while (children := _items(leaf.children())) and len(children) == 1 and _name(leaf) in WHOLE:
            (leaf,) = children
        if _name(leaf) != "DataSourceV2Relation":
            raise BadInput(
                f"a recorded read shows every row of one table, and this one has {_name(leaf)}: read all of it, and do the"
                " rest with the frame that you get"
            )
        options = {str(key).lower(): str(value) for key, value in dict(leaf.options()).items()}
        identifier = leaf.identifier()
        if identifier.isDefined():
            space = _items(identifier.get().namespace())
            table, catalog = str(identifier.get().name()), str(leaf.catalog().get().name())
            if len(space) != 1 or not leaf.table().getClass().getName().endswith(".ReplitreeTable"):
                raise BadInput(f"{catalog}.{'.'.join(map(str, space))}.{table} is not a table of a replitree catalog")
            if level := self._spark.conf.get(f"spark.sql.catalog.{catalog}.level", None):
                options.setdefault("level", level)
        else:
            options = known_options(options)
            table = table_name(options)
        for name in ("final", "readchangefeed", "where"):
            if options.get(name, "false").lower() != "false":
                raise BadInput(f"a recorded read shows every row of a table as it was inserted: option {name} does not")
        order_key, is_sharded = _described(leaf.table(), options)
        key = self._recorder.key or order_key
        of_table = next((each for each in _items(leaf.output()) if str(each.name()) == key), None)
        same = [
            each
            for each in _items(analyzed.output())
            if of_table is not None and each.exprId().equals(of_table.exprId())
        ]
        if not same or str(same[0].name()) != key:
            raise BadInput(
                f"a recorded read shows column {key} as it is in {table}: it numbers the rows in the history"
            )
        if not isinstance(frame.schema[key].dataType, IntegralType):
            raise BadInput(f"column {key} of {table} has no whole numbers: record with Recorder(file, key=…)")
        named = options.get("asof", options.get("versionasof", ""))
        position = int(named) if named.isdecimal() else parse_cut(named).zxid + 1 if "@" in named else None
        return Relation(table, key, _level(frame, leaf, options, is_sharded=is_sharded), position, is_sharded)

    def _is(self, plan: Any, name: str) -> bool:
        """Tell whether a plan is one of Spark's of this name."""
        return bool(is_instance_of(self._gateway, plan, f"{LOGICAL}.{name}"))


@check_arguments
def recorded(spark: SparkSession, recorder: Recorder) -> RecordedSession:
    """Return a session whose reads and writes of tables are written down, for `replitree verify history`.

    Parameters
    ----------
    spark
        A session with a JVM of its own.
    recorder
        Where to; of a connection that records, its own one.

    Raises
    ------
    BadInput
        The session is one of Spark Connect.

    Examples
    --------
    ::

        recorder = Recorder("history.jsonl")
        there = recorded(spark, recorder)
        there.sql("INSERT INTO replitree.default.events VALUES (1, 'a')")
        there.write(frame).option("url", url).option("quorum", 2).mode("append").save("events")
        events = there.table("replitree.default.events", level="linearizable")
        query = there.write_stream(stream).option("checkpointLocation", "…").toTable("replitree.default.events")
    """
    return RecordedSession(spark, recorder)


def _level(frame: DataFrame, leaf: Any, options: Mapping[str, str], *, is_sharded: bool) -> Level:
    """Return what a read is promised.

    Raises
    ------
    BadInput
        Nothing of a sharded table: it may show an insert in one shard and not yet in another.
    """
    try:
        travels = leaf.timeTravelSpec().isDefined()
    except Py4JError:
        # An earlier Spark does not keep it in the relation, only in the statement.
        travels = "TimeTravel" in frame._jdf.queryExecution().logical().toString()  # noqa: SLF001
    if travels or not {"asof", "versionasof", "timestampasof"}.isdisjoint(options):
        return "as_of"
    asked = options.get("level", "consistent" if is_sharded else "eventual").lower()
    if is_sharded and asked == "eventual":
        raise BadInput(
            "a history has no eventual read of a sharded table: read it at the level consistent or linearizable"
        )
    # As `replitree.client.recorded_shards` has it.
    return "sequential" if asked == "consistent" else next(level for level in LEVELS if level == asked)


def _described(table: Any, options: Mapping[str, str]) -> tuple[str, bool]:
    """Return the first column of a table's order key, "" when it has none, and whether the table is sharded."""
    if table.getClass().getName().endswith(".ReplitreeTable"):
        properties = dict(table.properties())
        return str(properties.get("order_by", "")).split(", ")[0], "shard_by" in properties
    with open_connection(options) as connection:
        found = connection.table(table_name(options))
        order = found.definition.order_by
        return order[0] if order else "", isinstance(found, ShardedTable)


def _taken(plan: Any, *, is_sharded: bool) -> TakenSnapshot:
    """Return the snapshot that a plan has read which has run; of a sharded table the plan does not say the cut.

    Raises
    ------
    BadInput
        It has read a cache of Spark's.
    """
    (leaf,) = _items(plan.collectLeaves())
    if is_sharded and _name(leaf) in SCANS:
        return TakenSnapshot(None, None)
    if _name(leaf) == "BatchScanExec" and _name(leaf.scan()) == "PythonScan":
        for each in _items(leaf.inputPartitions()):
            task = cloudpickle.loads(bytes(each.pickedPartition())).value
            if task is not None:
                return TakenSnapshot(task.plan.index, task.plan.replica or None)
        # Of an empty table there is no task, and the plan does not say more.
        return TakenSnapshot(None, None)
    if _name(leaf) not in SCANS:
        raise BadInput(
            f"a recorded read reads the table itself, and Spark took the rows from elsewhere ({_name(leaf)}): is the table"
            " cached? UNCACHE TABLE first"
        )
    text = leaf.scan().fileIndex().toString() if _name(leaf) == "BatchScanExec" else leaf.relation().toString()
    found = SCANNED.match(text)
    assert found is not None, f"the jar names a snapshot in another way: {text}"
    return TakenSnapshot(int(found[1]), found[2])


def _with(made: Any, old: Any, new: Any) -> Any:
    """Return a copy of one of Spark's values, with one field exchanged: which fields there are differs between versions."""
    fields = [made.productElement(at) for at in range(made.productArity())]
    return made.copy(*[new if field is not None and old.equals(field) else field for field in fields])


def _items(sequence: Any) -> list[Any]:
    """Return the items of a sequence of Scala's, or of an array."""
    if isinstance(sequence, JavaArray):
        return list(sequence)
    return [sequence.apply(at) for at in range(sequence.length())]


def _below(plan: Any) -> Iterator[Any]:
    """Give every step below a plan."""
    for each in _items(plan.children()):
        yield each
        yield from _below(each)


def _name(value: Any) -> str:
    return str(value.getClass().getSimpleName())


__all__ = ["RecordedSession", "recorded"]
