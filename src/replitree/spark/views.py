"""Views: every table of a cluster as a temporary view of a Spark session, for SQL.

Guarantees: each view is one snapshot, taken when `sql_views` is called; call it again for fresh ones.  Views of tables
that are gone are left alone.

Absent on purpose: a catalog.  Spark's Python sources can't be one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from replitree.client.lease import keep_for_frame
from replitree.client.table import FRAME_LEASE_S, LEASE_S, SNAPSHOT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replitree.client.connection import Connection
    from replitree.protocol.read import ReadLevel


def sql_views(
    spark: SparkSession,
    connection: Connection,
    tables: tuple[str, ...] | None = None,
    *,
    held: ExitStack | None = None,
    level: ReadLevel | None = None,
    min_index: Mapping[str, int] | None = None,
    as_of: Mapping[str, int] | None = None,
    timeout_s: float = SNAPSHOT_S,
) -> tuple[str, ...]:
    """Register a temporary view for each table.

    Parameters
    ----------
    spark
        The session that gets the views.
    connection
        The cluster.
    tables
        Only these; all by default.
    held
        Keeps the snapshots' parts until it ends; by default they stay as long as those of any frame.
    level, timeout_s
        As `Table.snapshot`.
    min_index, as_of
        As `Table.snapshot`, by the table's name; a table in `as_of` has no level.

    Returns
    -------
    tuple
        The names of the views.
    """
    names = connection.tables() if tables is None else tables
    for name in names:
        table, then = connection.table(name), (as_of or {}).get(name)
        found = table.snapshot(
            (min_index or {}).get(name),
            level=level if then is None else None,
            as_of=then,
            lease_s=FRAME_LEASE_S if held is None else LEASE_S,
            timeout_s=timeout_s,
        )
        if held is not None:
            held.enter_context(found)
        elif found.lease is not None:
            keep_for_frame(found.lease, table.http)
        found.to_df(spark).createOrReplaceTempView(name)
    return names
