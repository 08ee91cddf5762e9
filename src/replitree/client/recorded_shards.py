"""A sharded table that writes down what is asked of it, for the command `verify history`.

Recorded are inserts, and reads of the whole table by `to_arrow`.  What a history calls the position of a read is here the
transaction of its cut: all shards have it in common, as the shards of a joint insert have that of its commit.

=================  ================  =========================================================================================
read at the level  in the history    because
=================  ================  =========================================================================================
``consistent``     ``sequential``    cuts are positions in one line, and those of a client never go back
``linearizable``   ``linearizable``
a cut, ``as_of``   ``as_of``
``eventual``       not recorded      it may show an insert in one shard and not yet in another
=================  ================  =========================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from typing_extensions import override

from replitree.client.insert.terms import InsertResult, Terms
from replitree.client.read.scan import LEASE_S
from replitree.client.recorded import check_inserted, key_column, least_quorum, numbers_in
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.table import SNAPSHOT_S
from replitree.client.transport.frames import is_frame
from replitree.protocol.sharded.cut import parse_cut
from replitree.wire.history_format import Level, check_numbers
from replitree.wire.history_recorder import Recorder


class RecordedShardedTable(ShardedTable):
    """A sharded table of a connection that records: see `replitree.connect`.

    Parameters
    ----------
    parts
        What a sharded table is made of.
    recorder
        Where to.
    """

    def __init__(self, *parts: Any, recorder: Recorder) -> None:
        super().__init__(*parts)
        self._recorder = recorder

    @property
    def number_column(self) -> str:
        """The column that numbers the rows.

        Raises
        ------
        BadInput
            There is none.
        """
        return key_column(self.name, self.schema, self._definition.order_by, self._recorder.key)

    @override
    def insert_on_terms(self, data: Any, terms: Terms, *, merge_schema: bool = False) -> InsertResult:
        if is_frame(data) or merge_schema or terms.overwrite is not None or terms.batch is not None:
            # Refused, with the reason.
            return super().insert_on_terms(data, terms, merge_schema=merge_schema)
        key = self.number_column
        found = numbers_in(data, key)
        check_inserted(found, key, self.name)
        if not found:
            return super().insert_on_terms(data, terms)
        quorum = least_quorum(None if terms.quorum is None else terms.quorum.size)
        with self._recorder.insert(self.name, found, token=terms.token, quorum=quorum):
            return super().insert_on_terms(data, terms)

    @override
    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        min_index: int | None = None,
        *,
        level: Any = None,
        as_of: Any = None,
        final: bool = False,
        timeout_s: float = SNAPSHOT_S,
    ) -> pa.Table:
        key = self.number_column
        # A history has no read that leaves rows out, or their numbers.
        is_partly = where is not None or (columns is not None and key not in columns) or final
        if is_partly or level == "eventual":
            return super().to_arrow(
                columns, where, min_index, level=level, as_of=as_of, final=final, timeout_s=timeout_s
            )
        promised: Level = "as_of" if as_of is not None else "linearizable" if level == "linearizable" else "sequential"
        with (
            self._recorder.read(self.name, promised) as asked,
            self.snapshot(min_index, level=level, as_of=as_of, lease_s=LEASE_S, timeout_s=timeout_s) as snapshot,
        ):
            found = snapshot.to_arrow(columns)
            numbers = found.column(key).to_pylist()
            check_numbers(numbers, key, self.name)
            # Everything up to the cut's transaction is shown.
            asked.show(numbers, index=None if snapshot.cut is None else parse_cut(snapshot.cut).zxid + 1)
        return found
