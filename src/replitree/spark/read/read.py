"""Read: a snapshot becomes a Spark DataFrame, through the JVM's own Parquet reader where the executors reach the files.

What is in an object store they read there (`replitree.spark.store.located`).

Guarantees: the frame is one snapshot, whatever is inserted later and however often it is used.  `where` keeps the rows
that Spark's own ``WHERE`` keeps; parts are left out only when their statistics prove that they have none of them.

Parts of older schema versions are read each with the columns that they have; the frame is the union of one relation for each
layout (see `replitree.storage.schema.layout`), and the one relation as long as no column was altered.  The files of all shards
of a sharded table are in the same relations, so whatever Spark does with the frame, it does with the rows of all shards.  On a
cluster each shard has relations of its own, because its files are opened with a ticket of its own.

A missing or damaged file fails the query, whatever the session says about ignoring such files.  Files of this machine are
verified before the JVM gets their paths, or by the JVM as it reads them (`replitree.storage.parts.verified`).  Of what
it reads in a bucket the JVM compares the checksums of pages.

Absent on purpose: SQL.  The catalog has it (`replitree.spark.catalog`), and `read.views.sql_views` where there is none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StructField, StructType

from replitree.client.arguments import check_arguments
from replitree.client.read.snapshot import Snapshot, SnapshotPart
from replitree.client.sharded.union import ShardedSnapshot, newest_definition, shards_of
from replitree.errors import BadInput
from replitree.spark.session.columns import literal, quoted
from replitree.spark.session.nested import reshaped
from replitree.spark.session.types import spark_schema, spark_type
from replitree.spark.store.located import SnapshotPlace, located
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.layout import Layout, Origin, is_plain, layouts_of, stored_schema
from replitree.storage.schema.types import parse_type
from replitree.storage.sql.predicate import Predicate
from replitree.storage.sql.predicate_parser import parse_predicate

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from replitree.client.table import Table

DISCOVERY = "spark.sql.sources.parallelPartitionDiscovery.threshold"
PATHS_MAX = "1000000"
LOCALITY = "spark.sql.sources.ignoreDataLocality"
"""Without it Spark asks for the hosts of each file; at a gateway all are the same."""

TIME_ZONE = "spark.sql.session.timeZone"
_UTC = ("utc", "etc/utc", "gmt", "z", "+00:00", "gmt+00:00", "utc+00:00")

_conf_lock = threading.RLock()


def to_df(
    table: Table,
    spark: SparkSession,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    min_index: int | None = None,
) -> DataFrame:
    """Give one snapshot of a table to Spark: see `Table.to_df`."""
    return table.to_df(spark, columns, where, min_index)


@check_arguments
def snapshot_df(
    snapshot: Snapshot | ShardedSnapshot,
    spark: SparkSession,
    columns: Sequence[str] | None = None,
    where: str | None = None,
) -> DataFrame:
    """Give a snapshot to Spark.

    Parameters
    ----------
    snapshot
        From `Table.snapshot`.
    columns
        Names, in the order wanted; all by default.
    where
        Spark SQL condition over the table's columns.

    Raises
    ------
    BadInput
        A column is unknown, Spark can't read `where`, or its executors run elsewhere.
    SnapshotExpired
        Parts of the snapshot are gone.
    """
    shards, definition = shards_of(snapshot), newest_definition(snapshot)
    schema = spark_schema(definition)
    # A wrong name is found out before anything is read.
    wanted = spark_schema(definition, columns).names
    predicate, problem = pushed(definition, spark, where)
    frames = []
    for (layout, opened_with), some in _relations(shards, definition, spark, predicate).items():
        # With the columns that the files have: Spark would show a column that they lack as null, not as its default.
        stored = StructType([StructField(f.name, spark_type(f.type)) for f in stored_schema(layout)])
        files = read_files(spark, stored, [path for each in some for path in each.paths], dict(opened_with))
        for each in some:
            each.place.read_by(files)
        frames.append(files if is_plain(layout) else files.select(*[_column(origin) for origin in layout]))
    frame = reduce(DataFrame.union, frames) if frames else spark.createDataFrame([], schema)
    if where is not None:
        frame = filtered(frame, where, problem)
    if columns is not None or wanted != frame.columns:
        frame = frame.select(*[quoted(name) for name in wanted])
    return frame


class _ShardFiles(NamedTuple):
    """Files of one shard, or of a table that is not sharded, that one relation reads."""

    place: SnapshotPlace
    paths: list[str]


def _relations(
    shards: Sequence[Snapshot], definition: TableDefinition, spark: SparkSession, predicate: Predicate | None
) -> dict[tuple[Layout, tuple[tuple[str, str], ...]], list[_ShardFiles]]:
    """Return what each relation reads: those with other columns in their files, or opened with other options, are apart."""
    found: dict[tuple[Layout, tuple[tuple[str, str], ...]], list[_ShardFiles]] = {}
    for shard in shards:
        shard.require(predicate)
        # A condition that only Spark understands prunes no part.
        parts = shard.parts
        if predicate is not None:
            parts = tuple(part for part in parts if predicate.may_match(part.manifest))
        place = located(shard, spark, parts)
        layouts = layouts_of(definition, (part.manifest.schema_version for part in parts))
        groups: dict[Layout, list[SnapshotPart]] = {}
        for part in parts:
            groups.setdefault(layouts[part.manifest.schema_version], []).append(part)
        for layout, some in groups.items():
            files = _ShardFiles(place, place.paths(some))
            found.setdefault((layout, tuple(sorted(place.options.items()))), []).append(files)
    return found


def pushed(
    definition: TableDefinition, spark: SparkSession, where: str | None
) -> tuple[Predicate | None, BadInput | None]:
    """Return what of a condition may be decided here; None when it means something else to Spark, or only it understands it.

    Parameters
    ----------
    definition
        The table.
    where
        Spark SQL condition.

    Returns
    -------
    tuple
        The condition, and why it could not be read.
    """
    if where is None:
        return None, None
    try:
        predicate = parse_predicate(where, definition)
    except BadInput as error:
        # Spark understands more conditions than ours do; this reason is raised only if Spark does not understand it either.
        return None, error
    zoned = any(definition.column(name).type.startswith("timestamp") for name in predicate.columns)
    # Spark reads the condition's times in the session's zone.
    if zoned and (spark.conf.get(TIME_ZONE) or "").lower() not in _UTC:
        return None, None
    return predicate, None


def _column(origin: Origin) -> Column:
    column = origin.column
    if origin.stored_type is None:
        return literal(column.initial_scalar).alias(column.name)
    values = F.col(quoted(column.stored_name))
    if origin.is_reshaped:
        values = reshaped(values, *map(parse_type, (origin.stored_type, column.stored_type, column.type)))
    elif origin.stored_type != column.type:
        values = values.cast(spark_type(column.arrow_type))
    return values.alias(column.name)


def read_files(
    spark: SparkSession, schema: StructType, files: Sequence[str], options: Mapping[str, str] | None = None
) -> DataFrame:
    """Read Parquet files; one that is missing or damaged fails the query.

    Parameters
    ----------
    schema
        Of the files.
    files
        Their paths or URLs, at least one.
    options
        What the JVM must know to open them.
    """
    reader = (
        spark.read.schema(schema)
        .options(**(options or {}))
        .option("mergeSchema", "false")
        .option("ignoreMissingFiles", "false")
        .option("ignoreCorruptFiles", "false")
        .option("datetimeRebaseMode", "CORRECTED")
    )
    settings = {DISCOVERY: PATHS_MAX} | ({LOCALITY: "true"} if options else {})
    with session_conf(spark, settings):
        return reader.parquet(*[escaped(path) for path in files])


def filtered(frame: DataFrame, where: str, problem: BadInput | None) -> DataFrame:
    """Keep the rows that Spark's own ``WHERE`` keeps.

    Parameters
    ----------
    problem
        What our parser has to say about the condition, for the case that Spark can't read it either.

    Raises
    ------
    BadInput
        Spark can't read it.
    """
    try:
        return frame.where(where)
    except (AnalysisException, ParseException) as error:
        first = str(error).splitlines()[0]
        raise problem or BadInput(f"Spark can't read the condition {where!r}: {first}") from error


def escaped(path: str | Path) -> str:
    r"""Return a path for Spark's readers, which take ``* ? [ ] { } \`` for patterns.

    Examples
    --------
    >>> print(escaped("/data/[a]/b*"))
    /data/\[a\]/b\*
    """
    return "".join(f"\\{c}" if c in "*?[]{}\\" else c for c in str(path))


@contextmanager
def session_conf(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Change settings of a session for a moment.  Nothing happens when they are so already, as `spark_session` sets them."""
    if all(spark.conf.get(key, None) == value for key, value in settings.items()):
        yield
        return
    # A setting is the session's, not the thread's: two at once would put back each other's values.
    with _conf_lock:
        before = {key: spark.conf.get(key, None) for key in settings}
        try:
            for key, value in settings.items():
                spark.conf.set(key, value)
            yield
        finally:
            for key, old in before.items():
                if old is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, old)
