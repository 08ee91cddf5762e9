"""The change feed through the data source: ``format("replitree").option("readChangeFeed", "true")``.

The driver asks for the range when Spark asks for the partitions, and packs its units into tasks; a task reads the parts of its
units, or what differs between two of them, as `replitree.client.read.feed` does.  The parts are kept as those of other reads:
every task renews the lease of its page.

Absent on purpose: order.  Rows come as the tasks come; `_commit_version` says the entry.  A preimage and its postimage are in
one task, one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from replitree.client.read.feed import FEED_SCHEMA, Changes, FeedBody, FeedPage, FeedUnit
from replitree.client.read.part_cache import PartCache, ReplicaAccess
from replitree.client.read.snapshot import Snapshot
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.transport.http import HttpClient
from replitree.client.transport.lease import LeaseHandle
from replitree.client.transport.stored import stored_parts, through_of
from replitree.errors import BadInput
from replitree.protocol.sharded.cut import parse_cut
from replitree.spark.read.final_units import pack
from replitree.spark.read.source_read import LEASE_S, TASK_BYTES, exactly, leased, read_schema, task_folder
from replitree.spark.session.options import flag, number, open_connection, open_table, seconds
from replitree.storage.rewrite.read import Piece
from replitree.storage.schema.definition import decode_definition
from replitree.storage.sql.predicate_parser import parse_predicate

OF_SNAPSHOTS = ("asof", "timestampasof", "level", "minindex", "final")
"""Options that say which snapshot a read shows: the feed has no snapshot."""

PIECE_ROWS_MIN = 262_144
"""A unit is cut into pieces of at least so many rows: a task costs as much as reading some ten thousand."""

FEED_FIELDS = StructType(
    [
        StructField(FEED_SCHEMA.names[0], StringType(), nullable=True),
        StructField(FEED_SCHEMA.names[1], LongType(), nullable=True),
        StructField(FEED_SCHEMA.names[2], TimestampType(), nullable=True),
    ]
)


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """The plan of a read of the feed: its options, the schema that Spark was told, and the table's columns in it.

    The three columns of the feed follow them in the schema, or are left out.
    """

    options: Mapping[str, str]
    schema: StructType = field(repr=False)
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FeedTask:
    """The input of one task: some units of a page, or a piece of one, and what it needs to read them."""

    plan: FeedPlan
    definition: tuple[bytes, bytes] = field(repr=False)
    body: FeedBody = field(repr=False)
    access: ReplicaAccess = field(repr=False)
    lease: LeaseHandle | None
    piece: Piece = (0, 1)


class FeedPartition(InputPartition):
    """The units of one task; its value is a `FeedTask`."""


def reads_feed(options: Mapping[str, str]) -> bool:
    """Return whether a read is one of the change feed.

    Raises
    ------
    BadInput
        Options of both kinds of reads are given.
    """
    is_feed = flag(options, "readchangefeed")
    others = [name for name in OF_SNAPSHOTS if name in options]
    if is_feed and others:
        raise BadInput(f"option {others[0]} is of a snapshot, and readChangeFeed reads changes: leave one of them out")
    ranges = [name for name in ("startingversion", "endingversion") if name in options]
    if ranges and not is_feed:
        raise BadInput(f"option {ranges[0]} is of the change feed: set readChangeFeed to true")
    return is_feed


def feed_schema(options: Mapping[str, str]) -> StructType:
    """Return the schema of a read of the feed: the table's columns, or those asked for, and the three of the feed."""
    return StructType([*read_schema(options).fields, *FEED_FIELDS.fields])


def check_feed_schema(schema: StructType) -> None:
    """Check that Spark was told the columns of the feed, after those of the table.

    Raises
    ------
    BadInput
        It was not: the user has told others, or a catalog those of the table alone.
    """
    names = FEED_FIELDS.names
    if schema.names[-len(names) :] != names:
        raise BadInput(
            f"changes have the columns {', '.join(names)} last, and Spark was told others: leave schema(…) out. Of a table that"
            " the catalog names read spark.read.changes(t), spark.readStream.changes(t) or t CHANGES FROM VERSION …: Spark 4.2"
            " does not pass readChangeFeed to it, and a version of a table has no changes"
        )


def plan_feed(options: Mapping[str, str], schema: StructType) -> FeedPlan:
    """Plan a read of the feed.

    Raises
    ------
    BadInput
        There is no start, or the schema is not the feed's.
    """
    if _version(options, "startingversion") is None:
        raise BadInput(
            "changes need startingVersion: the index of the first entry of the log; of a sharded table a cut"
        )
    check_feed_schema(schema)
    through_of(options.get("through"))
    return FeedPlan(dict(options), schema, tuple(schema.names[: -len(FEED_FIELDS.names)]))


def plan_feed_partitions(plan: FeedPlan) -> list[InputPartition]:
    """Ask for the range, and pack its units into tasks."""
    options = plan.options
    start, last = _version(options, "startingversion"), _version(options, "endingversion")
    assert start is not None, "`plan_feed` has checked that"
    lease_s, wanted = lease_of(options), tasks_of(options)
    with open_connection(options) as connection:
        table = open_table(connection, options)
        terms: dict[str, Any] = {"columns": plan.columns, "where": options.get("where")}
        terms |= {"timeout_s": seconds(options), "lease_s": lease_s}
        if isinstance(table, ShardedTable):
            # A cut is behind the transactions that are in it.
            changes = table.changes(start, last, **terms).plain
        elif isinstance(start, str) or isinstance(last, str):
            raise BadInput(
                f"table {table.name} is not sharded: startingVersion and endingVersion are indexes of its log"
            )
        else:
            # Both ends are included, as in Delta Lake and in Spark's CHANGES.
            changes = table.changes(start, None if last is None else last + 1, **terms)
        return feed_partitions(plan, changes, [page.body.units for page in changes.pages], wanted)


def _version(options: Mapping[str, str], name: str) -> int | str | None:
    """Return an end of a range: an index of the log, or a cut of a sharded table.  Raises `BadInput` for what is neither."""
    text = options.get(name, "")
    return str(parse_cut(text)) if "@" in text else number(options, name)


def lease_of(options: Mapping[str, str]) -> int:
    """Return for how long the parts are kept after each renewal, in seconds.  Raises `BadInput` for what is no number."""
    return LEASE_S if (asked := number(options, "lease")) is None else asked


def tasks_of(options: Mapping[str, str]) -> int | None:
    """Return how many tasks a read shall have, or None.

    Raises
    ------
    BadInput
        Fewer than one.
    """
    wanted = number(options, "partitions")
    if wanted is not None and wanted < 1:
        raise BadInput(f"option partitions is at least 1, not {wanted}")
    return wanted


def feed_partitions(
    plan: FeedPlan, changes: Changes, wanted: Sequence[Sequence[FeedUnit]], tasks: int | None
) -> list[InputPartition]:
    """Pack units of the feed into tasks.

    Parameters
    ----------
    plan, changes
        What is read.
    wanted
        The units that are read of each page.
    tasks
        How many tasks for each page; None: as many as the cores, and the bytes, ask for.
    """
    found = list[InputPartition]()
    for page, units in zip(changes.pages, wanted, strict=True):
        # Of a sharded table each page is that of a shard.
        its = page.snapshot.definition
        encoded = (its.encode_metadata(), its.encode_columns())
        lease = page.snapshot.lease.hand_over() if page.snapshot.lease is not None else None
        manifests = {part.part: part.manifest for part in page.snapshot.parts}
        sizes = [sum(manifests[name].bytes for name in (unit.part, unit.before) if name) for unit in units]
        count = tasks or max(os.cpu_count() or 1, -(-sum(sizes) // TASK_BYTES))
        # Spark makes rows of what a task reads in one thread: where cores would have no task, large units are cut.
        shares = count // max(1, len(units))
        pieces = [
            1 if unit.before else max(1, min(shares, manifests[unit.part].rows // PIECE_ROWS_MIN)) for unit in units
        ]
        if max(pieces, default=1) > 1:
            # No more than there are tasks, so each is a task by itself.
            packed = [([unit], (n, of)) for unit, of in zip(units, pieces, strict=True) for n in range(of)]
        else:
            packed = [(some, (0, 1)) for some in (pack(units, sizes, count) if units else [])]
        for some, piece in packed:
            names = {name for unit in some for name in (unit.part, unit.before)}
            parts = tuple(part for part in page.body.parts if part.part in names)
            sorted_units = tuple(sorted(some, key=lambda unit: unit.index))
            body = msgspec.structs.replace(page.body, units=sorted_units, parts=parts)
            found.append(FeedPartition(FeedTask(plan, encoded, body, page.snapshot.source.access(), lease, piece)))
    return found


def read_feed(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read one task's units; errors as `replitree.spark.read.source_read.read_task`."""
    task: FeedTask | None = partition.value
    # Spark makes a partition of nothing when there are no changes.
    if task is None:
        return
    options, body, definition = task.plan.options, task.body, decode_definition(*task.definition)
    with task_folder() as folder:
        http = HttpClient(task.access.ticket, task.access.tls)
        stored = None if through_of(options.get("through")) == "replica" else stored_parts(definition)
        addresses = task.access.addresses
        source = PartCache(http, definition.name, addresses, folder, stored, addresses[0] if addresses else "")
        snapshot = Snapshot(definition, body.index, body.replica, body.parts, body.machine, source, stored=stored)
        where = parse_predicate(options["where"], definition) if options.get("where") else None
        page, plan = FeedPage(body, snapshot), task.plan
        # A stream of appended rows does not want the feed's columns: making them took longer than reading the rows.
        is_marked = len(plan.schema.fields) > len(plan.columns)
        changes = Changes(
            definition, body.start, body.end, body.origin, (page,), plan.columns, where, is_marked, task.piece
        )
        with leased(task.lease, http) as check:
            for batch in changes.batches():
                check()
                yield from exactly([batch], plan.schema)


__all__ = [
    "FEED_FIELDS",
    "FeedPartition",
    "FeedPlan",
    "check_feed_schema",
    "feed_partitions",
    "feed_schema",
    "lease_of",
    "plan_feed",
    "plan_feed_partitions",
    "read_feed",
    "reads_feed",
    "tasks_of",
]
