"""`into`: a function for ``foreachBatch`` that inserts each batch of a query once.

Under Spark Connect the server runs that function, in a process that has neither the table's connection nor the token.  So what
`into` returns does not travel: the server's copy says how to connect there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from typing_extensions import override

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
        From `Connection.table`.  Under Spark Connect the function that you give to ``foreachBatch`` connects, and calls what
        `into` returns: the server has no connection of this process.
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
        # Under Spark Connect only the server knows which query's thread this is.
        context = getattr(rows.sparkSession, "_sc", None)
        query = "" if context is None else context.getLocalProperty(QUERY) or ""
        name = stream or query
        if not name:
            raise BadInput("under Spark Connect a query's id is not known: name the stream, into(table, stream=…)")
        batch = SentBatch(name, number, query, takes_over=new_checkpoint)
        terms = Terms(None, timeout_s, overwrite, required, batch=batch)
        table.insert_on_terms(rows if via == "executors" else rows.toArrow(), terms)

    return BatchInsert(insert)


class BatchInsert:
    """What `into` returns; its copy in another process only says what to do instead."""

    def __init__(self, insert: Callable[[DataFrame, int], None]) -> None:
        self._insert = insert

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Insert a batch."""
        self._insert(rows, number)

    @override
    def __reduce__(self) -> tuple[type[partial[None]], tuple[Callable[[DataFrame, int], None]]]:
        return partial, (_refuse_copy,)


def _refuse_copy(_rows: DataFrame, _number: int) -> None:
    raise BadInput(
        "under Spark Connect the server runs the function of foreachBatch, and has no connection of the client: connect in it,"
        " def insert(rows, number): with replitree.connect(url, token_file=…) as there:"
        ' into(there.table("orders"), "stream of this checkpoint")(rows, number)'
    )


__all__ = ["into"]
