"""A table that writes down what is asked of it, for the command `verify history`.

Recorded are `insert` of rows in memory and `to_arrow` of the whole table.  What else a table can do is done and not recorded; a
program that reads in other ways says what it saw with `replitree.wire.history_recorder.Recorder.read`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from typing_extensions import override

from replitree.client.insert.terms import InsertResult
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.wire.history_format import NUMBER_MAX, Level
from replitree.wire.history_recorder import Recorder


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
    def insert(self, data: Any, token: str | None = None, replica: str | None = None, **options: Any) -> InsertResult:
        if replica is not None and replica != self._pinned:
            return self.replica(replica).insert(data, token, **options)
        if options.get("overwrite") is not None:
            raise BadInput("a history is of tables from which nothing is removed: overwrite without recording")
        key = self._key()
        try:
            if isinstance(data, pa.Table | pa.RecordBatch):
                found: list[Any] = data.column(key).to_pylist()
            elif isinstance(data, Mapping):
                found = list(data[key])
            elif isinstance(data, list):
                found = [row[key] for row in data]
            else:
                raise BadInput(
                    "a recorded insert takes rows in memory: an Arrow table, a dict of columns, or a list of dicts"
                )
        except KeyError as error:
            raise BadInput(f"the rows have no column {key}, which numbers them in the history") from error
        check_numbers(found, key, self.name)
        if len(set(found)) < len(found):
            twice = next(number for number, count in Counter(found).items() if count > 1)
            raise BadInput(
                f"column {key} of table {self.name} numbers the rows of a history, each once; {twice} is there twice"
            )
        if not found:
            return super().insert(data, token, **options)
        quorum = least_quorum(options.get("quorum"))
        with self._recorder.insert(self.name, found, token=token, replica=self._pinned, quorum=quorum) as asked:
            result = super().insert(data, token, **options)
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
        key = self._key()
        partly = where is not None or (columns is not None and key not in columns) or options.get("final", False)
        if partly:
            return super().to_arrow(columns, where, min_index, **options)
        final = options.pop("final", False)
        level: Level = options.get("level") or ("eventual" if options.get("as_of") is None else "as_of")
        with self._recorder.read(self.name, level, replica=self._pinned) as asked:
            snapshot = self.snapshot(min_index, **options)
            found = snapshot.to_arrow(columns, final=final)
            numbers = found.column(key).to_pylist()
            check_numbers(numbers, key, self.name)
            asked.show(numbers, index=snapshot.index, replica=snapshot.replica)
        return found

    def _key(self) -> str:
        """Return the column that numbers the rows.

        Raises
        ------
        BadInput
            There is none.
        """
        order = self._definition.order_by
        name = self._recorder.key or (order[0] if order else None)
        if name is None or not pa.types.is_integer(self.schema.field(name).type):
            raise BadInput(f"rows of {self.name} have no number: record with Recorder(file, key=…), an integer column")
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


def check_numbers(found: Sequence[Any], key: str, table: str) -> None:
    """Do nothing if a history can have rows of these numbers.

    Raises
    ------
    BadInput
        One of them is null, negative or too high; names table, column and number.
    """
    for wrong in found:
        if isinstance(wrong, int) and 0 <= wrong <= NUMBER_MAX:
            continue
        raise BadInput(
            f"column {key} of table {table} has {wrong}; it numbers the rows of a history, with whole numbers from 0 to"
            f" {NUMBER_MAX}: record with Recorder(file, key=…), another column"
        )
