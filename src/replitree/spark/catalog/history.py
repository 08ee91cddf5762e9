"""The rows of the table `history` that the catalog has beside each table: the entries of its log."""

from __future__ import annotations

from datetime import timedelta

from replitree.client.read.table_log import EPOCH, HISTORY_MAX
from replitree.client.table import Table


def history_rows(table: Table) -> list[tuple[object, ...]]:
    """Return the entries of a table's history, the newest first, each as a row of `scala/AnswerRows.scala`.

    Raises
    ------
    TableNotFound
        The table is gone.
    """
    return [
        (
            each.index,
            None if each.time is None else (each.time - EPOCH) // timedelta(microseconds=1),
            each.kind,
            each.replica,
            each.rows,
            each.bytes,
            each.ids,
            each.command,
            each.duration_s,
        )
        for each in table.history(HISTORY_MAX)
    ]
