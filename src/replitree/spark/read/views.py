"""Views: every table of a cluster as a temporary view of a Spark session, for SQL.

Guarantees: each view is one snapshot, taken when `sql_views` is called; call it again for fresh ones.  Views of tables
that are gone are left alone.

Absent on purpose: fresh rows at each action.  The catalog has them (`replitree.spark.catalog`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from replitree.client.arguments import check_arguments
from replitree.client.read.as_of import AsOf
from replitree.client.read.scan import FRAME_LEASE_S, LEASE_S
from replitree.client.sharded.union import shards_of
from replitree.client.table import SNAPSHOT_S
from replitree.client.transport.lease import keep_for_frame
from replitree.errors import ReplicaUnavailable
from replitree.protocol.state.read import ReadLevel
from replitree.spark.read.read import pushed
from replitree.spark.session import damage_reports
from replitree.spark.session.actions import ActionFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replitree.client.connection import Connection


@check_arguments
def sql_views(  # noqa: PLR0913 - what a query asks of each of its tables
    spark: SparkSession,
    connection: Connection,
    tables: tuple[str, ...] | None = None,
    *,
    held: ExitStack | None = None,
    level: ReadLevel | None = None,
    min_index: Mapping[str, int] | None = None,
    as_of: Mapping[str, AsOf] | None = None,
    verify: bool = False,
    timeout_s: float = SNAPSHOT_S,
    conditions: Sequence[str] = (),
) -> tuple[str, ...]:
    """Register a temporary view for each table.

    Parameters
    ----------
    spark
        The session that gets the views.
    connection
        The cluster.
    tables
        Only these; by default all.
    held
        Keeps the snapshots' parts until it ends; by default they stay as long as those of any frame.
    level, timeout_s
        As `Table.snapshot`.
    min_index, as_of
        As `Table.snapshot`, by the table's name; a table in `as_of` has no level.
    conditions
        Of the only query that the views are for: a view of a table that lacks parts has only the rows for which all of these
        are true, so that a query that needs none of those parts is answered.
    verify
        Read every byte of the tables' files first: what is damaged is reported and read from a good copy.  Without this, small
        files are verified first and blocks of large ones as Spark reads them, so that a query may fail.

    Returns
    -------
    tuple
        The names of the views.

    Raises
    ------
    ReplicaUnavailable
        No replica shows a table, or files of it are missing.
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
        else:
            keep_for_frame((each.lease for each in shards_of(found)), table.http)
        if verify:
            for each in shards_of(found):
                each.whole(each.parts)
        where = None
        if any(each.unread or any(part.lacking for part in each.parts) for each in shards_of(found)):
            # By the query's conditions parts may be left out, also some that can't be read.
            usable = [each for each in conditions if pushed(found.definition, spark, each)[0] is not None]
            where = " AND ".join(f"({each})" for each in usable) or None
        try:
            found.to_df(spark, where=where).createOrReplaceTempView(name)
        except PySparkException as error:
            first = " ".join(str(error).split("\n", 1)[0].split())
            raise ReplicaUnavailable(
                f"Spark can't open the files of table {name} ({first}): `replitree check {name}`, and of a table on an"
                f" object store `replitree fsck {name}`, say what is missing"
            ) from error
    return names


def is_damage(error: Exception) -> bool:
    """Tell whether Spark failed because bytes of a file do not have their checksum; it may do so in the middle of a query."""
    return isinstance(error, ActionFailed) or damage_reports.is_damage(str(error))
