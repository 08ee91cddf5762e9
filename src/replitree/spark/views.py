"""Views: every table of a cluster as a temporary view of a Spark session, for SQL.

Guarantees: each view is one snapshot, taken when `sql_views` is called; call it again for fresh ones.  Views of tables
that are gone are left alone.

Absent on purpose: a catalog.  Spark's Python sources can't be one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replitree.spark.read import to_df

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replitree.client.connection import Connection


def sql_views(spark: SparkSession, connection: Connection, tables: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Register a temporary view for each table.

    Parameters
    ----------
    spark
        The session that gets the views.
    connection
        The cluster.
    tables
        Only these; all by default.

    Returns
    -------
    tuple
        The names of the views.
    """
    names = connection.tables() if tables is None else tables
    for name in names:
        to_df(connection.table(name), spark).createOrReplaceTempView(name)
    return names
