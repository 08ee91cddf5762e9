"""A table that writes down what is asked of it, for the command `verify history`.

Recorded are inserts of rows that can be read twice, those of Spark's frames and of streams by `replitree.spark.into` among
them, and reads of the whole table by `to_arrow` and `to_df`.  A frame is calculated for the history when it is made.  What
else a table can do is done and not recorded.  SQL and Spark's data source are recorded by `replitree.spark.recorded`; a program
that reads in other ways says what it saw with `replitree.wire.history_recorder.Recorder.read`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import override

from replitree.client.insert.terms import InsertResult, Terms
from replitree.client.read.read_options import ReadOptions
from replitree.client.read.scan import Scan
from replitree.client.read.snapshot import Snapshot
from replitree.client.table import SNAPSHOT_S, Table
from replitree.client.transport.frames import is_frame
from replitree.errors import BadInput
from replitree.wire.history_format import Level, check_numbers
from replitree.wire.history_recorder import OpenOperation, Recorder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class RecordedTable(Table):
    """A table of a connection that records: see `replitree.connect`.

    Parameters
    ----------
    parts
        What a table is made of.
    recorder
        Where to.
    """

    def __init__(self, *parts: Any, recorder: Recorder) -> None:
        super().__init__(*parts)
        self._recorder = recorder

    @override
    def replica(self, name: str) -> RecordedTable:
        return RecordedTable(self._definition, self._catalog, self._http, self._written, name, recorder=self._recorder)

    @override
    def insert_on_terms(self, data: Any, terms: Terms, *, merge_schema: bool = False) -> InsertResult:
        if terms.overwrite is not None:
            raise BadInput("a history is of tables from which nothing is removed: overwrite without recording")
        if not is_frame(data):
            return self._insert_recorded(data, numbers_in(data, self._key()), terms, merge_schema=merge_schema)
        # The numbers are calculated before the insert: kept, its rows are the same ones.
        kept = data.persist()
        try:
            found = kept.select(self._key()).toArrow().column(0).to_pylist()
            return self._insert_recorded(kept, found, terms, merge_schema=merge_schema)
        finally:
            kept.unpersist()

    def _insert_recorded(self, data: Any, found: list[Any], terms: Terms, *, merge_schema: bool) -> InsertResult:
        check_inserted(found, self._key(), self.name)
        if not found:
            return super().insert_on_terms(data, terms, merge_schema=merge_schema)
        quorum = least_quorum(None if terms.quorum is None else terms.quorum.size)
        batch = terms.batch
        token = terms.token if batch is None else f"{batch.stream}/{batch.batch}"
        with self._recorder.insert(self.name, found, token=token, replica=self._pinned, quorum=quorum) as asked:
            result = super().insert_on_terms(data, terms, merge_schema=merge_schema)
            asked.settle(index=result.index, settled=result.settled)
        return result

    @override
    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        min_index: int | None = None,
        **options: Any,
    ) -> pa.Table:
        if self._is_partly(columns, where, options):
            return super().to_arrow(columns, where, min_index, **options)
        final = options.pop("final", False)
        with self._reading(options) as asked:
            snapshot = self.snapshot(min_index, **options)
            found = snapshot.to_arrow(columns, final=final)
            self._show(asked, found, snapshot)
        return found

    @override
    def to_df(
        self,
        spark: SparkSession,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        min_index: int | None = None,
        **options: Any,
    ) -> DataFrame:
        if self._is_partly(columns, where, options):
            return super().to_df(spark, columns, where, min_index, **options)
        taken: list[Snapshot] = []

        def take(read: ReadOptions) -> Snapshot:
            taken.append(self._snapshot(read))
            return taken[-1]

        with self._reading(options) as asked:
            through, as_of = options.pop("through", None), self._index_of(options.pop("as_of", None))
            read = ReadOptions(min_index=min_index, as_of=as_of, **{"timeout_s": SNAPSHOT_S} | options)
            frame = Scan(replace(self._source(), take=take), columns, read).to_df(spark, through=through)
            self._show(asked, frame.select(self._key()).toArrow(), taken[-1])
        return frame

    def _is_partly(self, columns: Sequence[str] | None, where: str | None, options: Mapping[str, Any]) -> bool:
        """Whether a read leaves rows out, or their numbers: a history has no such read."""
        key = self._key()
        return where is not None or (columns is not None and key not in columns) or options.get("final", False)

    def _reading(self, options: Mapping[str, Any]) -> AbstractContextManager[OpenOperation]:
        """Record the read that is done inside, at the level that its options name."""
        level: Level = options.get("level") or ("eventual" if options.get("as_of") is None else "as_of")
        return self._recorder.read(self.name, level, replica=self._pinned)

    def _show(self, asked: OpenOperation, found: pa.Table, snapshot: Snapshot) -> None:
        """Take down the numbers of the rows that a read of a snapshot has found."""
        key = self._key()
        numbers = found.column(key).to_pylist()
        check_numbers(numbers, key, self.name)
        asked.show(numbers, index=snapshot.index, replica=snapshot.replica)

    def _key(self) -> str:
        """Return the column that numbers the rows.

        Raises
        ------
        BadInput
            There is none.
        """
        return key_column(self.name, self.schema, self._definition.order_by, self._recorder.key)


def numbers_in(data: Any, key: str) -> list[Any]:
    """Return the numbers of rows in memory.

    Raises
    ------
    BadInput
        They can't be read twice, or have no such column.
    """
    try:
        if isinstance(data, pa.Table | pa.RecordBatch):
            return list(data.column(key).to_pylist())
        if isinstance(data, Mapping):
            return list(data[key])
        if isinstance(data, list):
            return [row[key] for row in data]
    except KeyError as error:
        raise BadInput(f"the rows have no column {key}, which numbers them in the history") from error
    raise BadInput(
        "a recorded insert takes rows that can be read twice: an Arrow table, a dict of columns, a list of dicts, or a"
        " DataFrame of Spark"
    )


def check_inserted(found: Sequence[Any], key: str, table: str) -> None:
    """Do nothing if rows of these numbers can be inserted and recorded.

    Raises
    ------
    BadInput
        A history can't have one of them, or one is there twice.
    """
    check_numbers(found, key, table)
    if len(set(found)) < len(found):
        twice = next(number for number, count in Counter(found).items() if count > 1)
        raise BadInput(
            f"column {key} of table {table} numbers the rows of a history, each once; {twice} is there twice"
        )


def key_column(table: str, schema: pa.Schema, order_by: Sequence[str], key: str | None) -> str:
    """Return the column that numbers the rows of a table in a history.

    Parameters
    ----------
    table, schema, order_by
        The table's name, columns and order key.
    key
        The column that was asked for; None: the first one of the order key.

    Raises
    ------
    BadInput
        There is none, or it has no whole numbers.
    """
    name = key or (order_by[0] if order_by else None)
    if name is None or name not in schema.names or not pa.types.is_integer(schema.field(name).type):
        raise BadInput(f"rows of {table} have no number: record with Recorder(file, key=…), an integer column")
    return name


def least_quorum(size: int | str | None) -> int:
    """Return how many replicas a quorum means at least.

    >>> least_quorum(None), least_quorum("3"), least_quorum("majority")
    (1, 3, 2)
    """
    # A client does not know how many replicas there are; "majority" and "all" mean two or more.
    if isinstance(size, str) and not size.isdecimal():
        return 2
    return int(size or 1)
