"""Partitions as statements of Spark's SQL name them: ``ALTER TABLE t DROP PARTITION (at_month = '2024-01')``.

Each partition transform is a column of these statements, and its values are texts: ``2024-01`` for a month, ``17`` for a
bucket, null for null.  A column that is a transform by itself has its own name.

Guarantees: the partitions are those of one snapshot; equal texts are equal partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
    """Return the partitions of a snapshot, by id."""
    definition, found = snapshot.definition, list[NamedPartition]()
    kinds = [(each, definition.column(each.column).arrow_type) for each in definition.partition_by]
    for each in partitions_of(snapshot.parts):
        if len(each.values) == len(kinds):
            texts = [value_text(kind, arrow, value) for (kind, arrow), value in zip(kinds, each.values, strict=True)]
        else:
            # Of parts that keep no values the id says most.
            texts = [each.partition, *[None] * (len(kinds) - 1)]
        found.append(NamedPartition(each.partition, tuple(texts)))
    return found


def matching(snapshot: Snapshot, names: Sequence[str], values: Sequence[str | None]) -> list[tuple[str | None, ...]]:
    """Return the texts of the partitions that have these values in these columns."""
    columns = partition_columns(snapshot.definition)
    places = [columns.index(name) for name in names]
    return [
        each.values
        for each in named_partitions(snapshot)
        if all(each.values[place] == value for place, value in zip(places, values, strict=True))
    ]


def partition_with(snapshot: Snapshot, values: Sequence[str | None]) -> str:
    """Return the id of the partition that has these values.

    Raises
    ------
    BadInput
        There is none; says how to find those that are there.
    """
    for each in named_partitions(snapshot):
        if each.values == tuple(values):
            return each.partition
    named = ", ".join(
        f"{name} = {value!r}" for name, value in zip(partition_columns(snapshot.definition), values, strict=False)
    )
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
        A partition is not there, or they have more parts than one entry takes.
    ConcurrentChange
        Others have changed what is there; nothing was removed.
    """
    names = [partition_with(snapshot, values) for values in partitions]
    if not names:
        # TRUNCATE TABLE with some of the columns: Spark has found no partition with these values.
        return None
    if len(names) == 1:
        return table.drop_partition(names[0]).index
    # One entry drops one partition; a rewrite takes the rows from all parts that it names, or from none.
    with begun_rewrite(table, partitions=names, timeout_s=COMMAND_S) as plan:
        results = {source.part: None for source in plan.sources}
        return plan.commit(results, (), timeout_s=COMMAND_S).index if results else None


__all__ = ["NamedPartition", "drop_partitions", "matching", "named_partitions", "partition_columns", "partition_with"]
