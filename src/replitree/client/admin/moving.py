"""Moves of buckets, as an operator sees them: what moves, how far it is, and since when nothing has happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from replitree.errors import Unavailable

if TYPE_CHECKING:
    from replitree.client.transport.catalog import Catalog
    from replitree.protocol.sharded.moves.course import MovesFound


class BucketMove(msgspec.Struct, frozen=True):
    """How many buckets move from one shard to another."""

    source: int
    target: int
    buckets: int


class MovingTable(msgspec.Struct, frozen=True, kw_only=True):
    """A sharded table in which buckets move.

    Attributes
    ----------
    buckets, moves
        How many move, together and from shard to shard.
    batches, rows, bytes
        What has arrived since the moves began.
    rows_on_their_way
        Rows that lie at their target, and are shown at their source still.
    idle_s
        Seconds since the last progress, by coordination's clock: since a batch was laid, shown or refused, or the moves began.
    refused, reason
        Batches that were refused because their rows differed from those of the source, since the last one that arrived, and how
        the last one differed.
    """

    name: str
    buckets: int
    moves: tuple[BucketMove, ...] = ()
    batches: int = 0
    rows: int = 0
    bytes: int = 0
    rows_on_their_way: int = 0
    idle_s: float = 0.0
    refused: int = 0
    reason: str = ""


def moving_tables(catalog: Catalog, only: str | None = None) -> tuple[MovingTable, ...]:
    """Return the sharded tables in which buckets move, by name.

    Parameters
    ----------
    only
        Only the table of this name.

    Raises
    ------
    CoordinationUnavailable
        Coordination can't be asked.
    """
    return tuple(moving_table(catalog, name, found) for name, found in catalog.moving() if only in (None, name))


def moving_table(catalog: Catalog, name: str, found: MovesFound) -> MovingTable:
    """Return how far the moves of one table are."""
    moves = tuple(BucketMove(each.source, each.target, len(each.buckets)) for each in found.map.moves)
    buckets, progress = sum(each.buckets for each in moves), found.progress
    if progress is None:
        return MovingTable(name=name, buckets=buckets, moves=moves)
    try:
        # Coordination's own time: this machine's clock may be another one.  It costs a write, and only while buckets move.
        idle_s = max(0.0, (catalog.now_ms() - found.changed_ms) / 1000)
    except Unavailable:
        idle_s = 0.0
    return MovingTable(
        name=name,
        buckets=buckets,
        moves=moves,
        batches=progress.batches,
        rows=progress.rows,
        bytes=progress.arrived_bytes,
        rows_on_their_way=0 if found.batch is None else found.batch.rows,
        idle_s=round(idle_s, 1),
        refused=progress.refused.times if progress.refused else 0,
        reason=progress.refused.reason if progress.refused else "",
    )


__all__ = ["BucketMove", "MovingTable", "moving_table", "moving_tables"]
