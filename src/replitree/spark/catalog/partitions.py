"""Partitions as statements of Spark's SQL name them: ``ALTER TABLE t DROP PARTITION (at_month = '2024-01')``.

Each partition transform is a column of these statements, and its values are texts: ``2024-01`` for a month, ``17`` for a
bucket, null for null.  A column that is a transform by itself has its own name.

Guarantees: the partitions are those of one snapshot; equal texts are equal partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa

from replitree.client.change.command import COMMAND_S
from replitree.client.change.rewrite import begun_rewrite
from replitree.client.read.partitions import partitions_of
from replitree.client.read.snapshot import Snapshot
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.storage.schema.definition import TableDefinition, TransformKind
from replitree.storage.schema.partition import value_text


class NamedPartition(NamedTuple):
    """A partition: its id, and the texts of its values."""

    partition: str
    values: tuple[str | None, ...]


def partition_columns(definition: TableDefinition) -> list[str]:
    """Return the names of a table's transforms as columns.

    Examples
    --------
    >>> from replitree.storage.schema.definition import define_table
    >>> partition_columns(define_table("t", "p int, d date, k int", partition_by="p, month(d), bucket(4,k), bucket(8,k)"))
    ['p', 'd_month', 'k_bucket', 'k_bucket_8']
    """
    names = list[str]()
    for each in definition.partition_by:
        name = each.column if each.kind is TransformKind.IDENTITY else f"{each.column}_{each.kind.value}"
        names.append(f"{name}_{each.argument}" if name in names else name)
    return names


def named_partitions(snapshot: Snapshot) -> list[NamedPartition]:
    """Return the partitions of a snapshot that have rows, by id."""
    definition, found = snapshot.definition, list[NamedPartition]()
    kinds = [(each, definition.column(each.column).arrow_type) for each in definition.partition_by]
    for each in partitions_of(snapshot.parts):
        # What a rewrite has emptied leaves a part without rows and values, until a merge takes it away.
        if not each.rows:
            continue
        if len(each.values) == len(kinds):
            texts = [value_text(kind, arrow, value) for (kind, arrow), value in zip(kinds, each.values, strict=True)]
        else:
            # Of parts that keep no values the id says most.
            texts = [each.partition, *[None] * (len(kinds) - 1)]
        found.append(NamedPartition(each.partition, tuple(texts)))
    return found


def plain_values(
    definition: TableDefinition, names: Sequence[str], values: Sequence[str | None]
) -> tuple[str | None, ...]:
    """Return values of partition columns as `named_partitions` writes them; a statement may write ``2`` for ``2.00``.

    Parameters
    ----------
    definition
        The table.
    names
        Columns, as `partition_columns` has them.
    values
        What a statement says about each.

    Examples
    --------
    >>> from replitree.storage.schema.definition import define_table
    >>> prices = define_table("t", "p decimal(5,2), s string, k int", partition_by="p, s, k")
    >>> plain_values(prices, ["k", "p", "s"], ["007", "2", "2"])
    ('7', '2.00', '2')
    """
    transforms = dict(zip(partition_columns(definition), definition.partition_by, strict=True))
    found = list[str | None]()
    for name, value in zip(names, values, strict=True):
        arrow = definition.column(transforms[name].column).arrow_type
        is_number = pa.types.is_integer(arrow) or pa.types.is_decimal(arrow)
        text = value
        if value is not None and is_number and transforms[name].kind is TransformKind.IDENTITY:
            # What is no number is the value of no partition.
            with suppress(pa.ArrowInvalid):
                text = str(pa.scalar(value).cast(arrow).as_py())
        found.append(text)
    return tuple(found)


def matching(snapshot: Snapshot, names: Sequence[str], values: Sequence[str | None]) -> list[tuple[str | None, ...]]:
    """Return the texts of the partitions that have these values in these columns."""
    columns = partition_columns(snapshot.definition)
    places, wanted = [columns.index(name) for name in names], plain_values(snapshot.definition, names, values)
    return [
        each.values
        for each in named_partitions(snapshot)
        if all(each.values[place] == value for place, value in zip(places, wanted, strict=True))
    ]


def partition_with(snapshot: Snapshot, values: Sequence[str | None]) -> str:
    """Return the id of the partition that has these values.

    Raises
    ------
    BadInput
        There is none; says how to find those that are there.
    """
    columns = partition_columns(snapshot.definition)
    wanted = plain_values(snapshot.definition, columns, values)
    for each in named_partitions(snapshot):
        if each.values == wanted:
            return each.partition
    named = ", ".join(f"{name} = {value!r}" for name, value in zip(columns, values, strict=True))
    raise BadInput(
        f"table {snapshot.definition.name} has no partition ({named}): SHOW PARTITIONS names those that it has"
    )


def drop_partitions(table: Table, snapshot: Snapshot, partitions: Sequence[Sequence[str | None]]) -> int | None:
    """Remove what is in partitions now, by one entry of the log; return its index, or None when nothing is there any more.

    Parameters
    ----------
    table, snapshot
        The table, and the snapshot of it that names the partitions.
    partitions
        The texts of the values of each.

    Raises
    ------
    BadInput
        A partition is not there, none is named, or they have more parts than one entry takes.
    ConcurrentChange
        Others have changed what is there; nothing was removed.
    """
    names = [partition_with(snapshot, values) for values in partitions]
    if not names:
        # Of TRUNCATE TABLE with some of the columns; Spark has asked which partitions have these values.
        raise BadInput(
            f"table {table.name} has no partition with these values: SHOW PARTITIONS names those that it has"
        )
    if len(names) == 1:
        return table.drop_partition(names[0]).index
    # One entry drops one partition; a rewrite takes the rows from all parts that it names, or from none.
    with begun_rewrite(table, partitions=names, timeout_s=COMMAND_S) as plan:
        results = {source.part: None for source in plan.sources}
        return plan.commit(results, (), timeout_s=COMMAND_S).index if results else None


__all__ = [
    "NamedPartition",
    "drop_partitions",
    "matching",
    "named_partitions",
    "partition_columns",
    "partition_with",
    "plain_values",
]
