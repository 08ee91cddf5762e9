"""Views: every table of a cluster as a temporary view of a Spark session, for SQL.

Guarantees: each view is one snapshot, taken when `sql_views` is called; call it again for fresh ones.  Views of tables
that are gone are left alone.

Absent on purpose: a catalog.  Spark's Python sources can't be one.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from replitree.client.table import LEASE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replitree.client.connection import Connection


def sql_views(
    spark: SparkSession,
    connection: Connection,
    tables: tuple[str, ...] | None = None,
    *,
    held: ExitStack | None = None,
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

    Returns
    -------
    tuple
        The names of the views.
    """
    names = connection.tables() if tables is None else tables
    for name in names:
        table = connection.table(name)
        frame = table.to_df(spark) if held is None else held.enter_context(table.snapshot(lease_s=LEASE_S)).to_df(spark)
        frame.createOrReplaceTempView(name)
    return names
