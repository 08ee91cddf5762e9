"""Definitions of the catalog: columns, partition transforms and table properties of ``CREATE TABLE`` and ``ALTER TABLE``."""

from __future__ import annotations

import msgspec

from replitree.client.connection import Connection
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.spark.catalog.requests import PlannerRequest
from replitree.storage.schema.definition import TableSettings
from replitree.storage.schema.merge_policy import PLAIN
from replitree.storage.schema.storage_policy import LOCAL

FROM_SPARK = frozenset({"provider", "owner"})
"""Properties that Spark adds, and that say nothing of a table here."""

CLUSTER = "cluster_by("
"""How Spark hands over the columns of ``CLUSTER BY``."""

DEFINITION = ("bloom", "feed", "keep", "order_by", "policy", "shard_by", "storage", "ttl")

CHANGED = ("bloom", "feed", "keep", "storage", "ttl")
"""Properties of `DEFINITION` that can be changed."""

OF_SHARDED = ("buckets", "replicas", "shards")
"""Whole numbers that a sharded table has beside ``shard_by``."""


def create(connection: Connection, request: PlannerRequest) -> None:
    """Create a table: its columns are Spark's DDL, its partition transforms as Spark writes them (``bucket(16, k)``).

    Properties are ``bloom``, ``feed``, ``keep``, ``order_by``, ``policy``, ``storage``, ``ttl``, and settings of
    `TableSettings`; of a sharded table also ``shard_by``, ``shards``, ``buckets`` and ``replicas``.

    Raises
    ------
    BadInput
        A property is unknown or has a wrong value, a default is no constant, or the definition makes no sense.
    TableExists
        There is a table of this name.
    """
    settings = {field.name for field in msgspec.structs.fields(TableSettings)}
    given = {key: value for key, value in request.properties.items() if key not in FROM_SPARK}
    for key, value in given.items():
        if key not in settings and key not in DEFINITION and key not in OF_SHARDED:
            known = ", ".join([*DEFINITION, *OF_SHARDED, *sorted(settings)])
            raise BadInput(f"a table has no property {key!r}; it has {known}")
        if (key in settings or key in OF_SHARDED) and not value.isdecimal():
            raise BadInput(f"property {key} is a whole number, not {value!r}")
    for transform in request.partition_by:
        if transform.startswith(CLUSTER):
            keys = transform.removeprefix(CLUSTER).rstrip(")")
            raise BadInput(
                f"CLUSTER BY is not known here; parts are sorted by the order key: TBLPROPERTIES (order_by = '{keys}')"
            )
    connection.create_table(
        request.table,
        request.columns,
        order_by=given.get("order_by", ""),
        partition_by=list(request.partition_by),
        policy=given.get("policy", PLAIN.text),
        storage=given.get("storage", LOCAL),
        keep=given.get("keep"),
        feed=given.get("feed"),
        ttl=given.get("ttl"),
        bloom=given.get("bloom", ""),
        settings={key: int(value) for key, value in given.items() if key in settings} or None,
        defaults=request.defaults,
        shard_by=given.get("shard_by", ()),
        **{key: int(given[key]) for key in OF_SHARDED if key in given},
    )


def alter(table: Table, request: PlannerRequest) -> None:
    """Change a table's properties, each by one entry of the log, or its columns; an empty property is as if it were not given.

    Raises
    ------
    BadInput
        A property is none of `CHANGED`, or a property or the change of a column is wrong.
    """
    for key in request.properties:
        if key not in CHANGED:
            raise BadInput(f"property {key!r} can't be changed, {', '.join(CHANGED)} can: fill another table")
    if "bloom" in request.properties:
        table.set_bloom(request.properties["bloom"])
    if "feed" in request.properties:
        table.set_feed(request.properties["feed"])
    if "keep" in request.properties:
        table.set_keep(request.properties["keep"])
    if "storage" in request.properties:
        table.set_storage(request.properties["storage"] or LOCAL)
    if "ttl" in request.properties:
        table.set_ttl(request.properties["ttl"])
    if request.sql:
        table.alter(request.sql)
