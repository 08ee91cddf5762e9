"""Partitions: what one snapshot has in each of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import msgspec

from replitree.client.read.snapshot import SnapshotPart
from replitree.protocol.core.parts import parse_part
from replitree.storage.schema.bounds import Scalar


class PartitionInfo(msgspec.Struct, frozen=True):
    """One partition of a table.

    Attributes
    ----------
    partition
        Its id, as in the names of its parts.
    values
        What the table's partition transforms give for its rows.
    parts, rows, bytes
        How much is in it.
    level
        The most merges that are behind one of its parts.
    block_min, block_max
        Log indexes of the first and the last insert whose rows may be in it.
    """

    partition: str
    values: tuple[Scalar, ...]
    parts: int
    rows: int
    bytes: int
    level: int
    block_min: int
    block_max: int


def partitions_of(parts: Iterable[SnapshotPart]) -> tuple[PartitionInfo, ...]:
    """Return the partitions that have parts, by id.

    Parameters
    ----------
    parts
        Of one snapshot.
    """
    ordered = sorted(parts, key=lambda part: parse_part(part.part))
    groups = groupby(ordered, key=lambda part: parse_part(part.part).partition)
    found: list[PartitionInfo] = []
    for name, group in groups:
        members = tuple(group)
        names = [parse_part(part.part) for part in members]
        found.append(
            PartitionInfo(
                partition=name,
                values=next((part.manifest.partition_values for part in members if part.manifest.partition_values), ()),
                parts=len(members),
                rows=sum(part.manifest.rows for part in members),
                bytes=sum(part.manifest.bytes for part in members),
                level=max(part.level for part in names),
                block_min=min(part.block_min for part in names),
                block_max=max(part.block_max for part in names),
            )
        )
    return tuple(found)
