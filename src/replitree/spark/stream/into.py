"""`into`: a function for ``foreachBatch`` that inserts each batch of a query once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from replitree.client.arguments import check_arguments
from replitree.client.insert.quorum import quorum_of
from replitree.client.insert.terms import TIMEOUT_S, Overwrite, Terms
from replitree.errors import BadInput
from replitree.spark.stream.stream_write import QUERY
from replitree.wire.sent_batch import SentBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from replitree.client.table import Table

Via: TypeAlias = Literal["executors", "driver"]
"""Where the rows of a batch go through: Spark's tasks write them, or the driver collects them."""


@check_arguments
def into(
    table: Table,
    stream: str | None = None,
    *,
    via: Via = "executors",
    new_checkpoint: bool = False,
    overwrite: Overwrite | None = None,
    quorum: int | str | None = None,
    quorum_timeout_s: float | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that inserts each batch exactly once.

    Parameters
    ----------
    table
        From `Connection.table`.
    stream
        Names the stream; by default the id of the query, which its checkpoint keeps.  Under Spark Connect, where the id is not
        known, it is required, and each checkpoint needs one of its own.
    via
        ``"executors"``: tasks write the rows; ``"driver"``: the driver collects and sends them, which is faster for small ones.
    new_checkpoint
        Take the stream over from a query with another checkpoint, which has been stopped for good.
    overwrite, quorum, quorum_timeout_s, timeout_s
        As `Table.insert`.

    Raises
    ------
    BadInput
        An option is wrong.  The function raises as `Table.insert`, and `StreamReplaced` if the stream belongs to another query.

    Examples
    --------
    ::

        stream.writeStream.foreachBatch(into(table)).option("checkpointLocation", "…").start()
    """
    if via not in ("executors", "driver"):
        raise BadInput(f'via is "executors" or "driver", not {via!r}')
    required = quorum_of(quorum, quorum_timeout_s)
    Terms(None, timeout_s, overwrite, required)

    def insert(rows: DataFrame, number: int) -> None:
        query = _query_of(rows)
        name = stream or query
        if not name:
            raise BadInput("under Spark Connect a query's id is not known: name the stream, into(table, stream=…)")
        batch = SentBatch(name, number, query, takes_over=new_checkpoint)
        terms = Terms(None, timeout_s, overwrite, required, batch=batch)
        table.insert_on_terms(rows if via == "executors" else rows.toArrow(), terms)

    return insert


def _query_of(rows: DataFrame) -> str:
    """Return the id of the query whose thread this is; empty under Spark Connect, where only the server knows it."""
    context = getattr(rows.sparkSession, "_sc", None)
    return "" if context is None else context.getLocalProperty(QUERY) or ""


__all__ = ["into"]
