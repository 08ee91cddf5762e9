"""What happened to a sharded table: one line for each transaction, whichever shards it has concerned.

A transaction of coordination has one number in all logs, so the entries that a joint insert or a command has appended to
several logs are one line.  A merge concerns one shard.

Absent on purpose: what replicas remember of entries that have left coordination.  They remember no transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from replitree.client.read.table_log import HISTORY_MAX, HistoryEntry, read_history
from replitree.client.sharded.side_by_side import SideBySide
from replitree.client.transport.catalog import Catalog
from replitree.errors import BadInput, CoordinationUnavailable
from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.stamps import GetStamped, Stamped, Zxid
from replitree.protocol.sharded.cut import Cut, name_ensemble

if TYPE_CHECKING:
    from replitree.client.sharded.shard_table import ShardTable

STAMPS_AT_ONCE = 500
"""Entries whose transactions are read by one request."""


class ShardedHistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction that has appended to logs of a sharded table.

    Attributes
    ----------
    index
        Its number.
    cut
        ``as_of=cut`` is the table with it, while that is known.
    time, kind, replica, ids, command, duration_s
        As of `replitree.client.read.table_log.HistoryEntry`, of the first shard that has an entry of it.  A joint insert has no
        ids: its token is not in the logs.
    rows, bytes
        What it has written in all shards.  None: as there.
    shards
        (name of the shard, index of its entry) of each shard whose log has an entry of it still.
    """

    index: int
    cut: str
    time: datetime | None
    kind: str
    replica: str
    shards: tuple[tuple[str, int], ...]
    rows: int | None = None
    bytes: int | None = None
    ids: tuple[str, ...] = ()
    command: str = ""
    duration_s: float | None = None

    @property
    def version(self) -> str:
        """Where it is, as people copy it into commands."""
        return self.cut


def read_transactions(
    catalog: Catalog, name: str, shards: Sequence[ShardTable], beside: SideBySide, limit: int
) -> tuple[ShardedHistoryEntry, ...]:
    """Return the transactions that are in the logs, the newest first.

    Parameters
    ----------
    catalog, beside
        Where the logs are, and what asks several shards at once.
    name, shards
        The sharded table and its shards.
    limit
        Transactions to return at most, from 1 to `HISTORY_MAX`.

    Raises
    ------
    BadInput
        The limit is out of range.
    CoordinationUnavailable
        Coordination can't be read.
    """
    if not 1 <= limit <= HISTORY_MAX:
        raise BadInput(f"limit is 1 to {HISTORY_MAX:,} entries, not {limit:,}")
    ensemble = catalog.run(name_ensemble(catalog.root, uuid4().hex))
    if ensemble is None:
        raise CoordinationUnavailable("the id of the ensemble could not be read; try again")

    def read(shard: ShardTable) -> list[tuple[Zxid, HistoryEntry]]:
        place = catalog.place(shard.name)
        found = catalog.run(read_history(place, name, LogIndex(catalog.log_tail(shard.name)), limit))
        stamped: list[tuple[Zxid, HistoryEntry]] = []
        for first in range(0, len(found), STAMPS_AT_ONCE):
            some = found[first : first + STAMPS_AT_ONCE]
            paths = tuple(layout.log_entry(place, LogIndex(each.index)) for each in some)
            told: Stamped = catalog.perform(GetStamped(paths))
            # An entry may leave the log between the two reads.
            stamped += [(node.created, each) for node, each in zip(told.nodes, some, strict=True) if node is not None]
        return stamped

    by_number: dict[Zxid, list[tuple[str, HistoryEntry]]] = {}
    for shard, entries in zip(shards, beside.each(read, shards), strict=True):
        for zxid, entry in entries:
            by_number.setdefault(zxid, []).append((shard.name, entry))
    newest = sorted(by_number, reverse=True)[:limit]
    return tuple(_line(Cut(ensemble, zxid), by_number[zxid]) for zxid in newest)


def _line(cut: Cut, entries: Sequence[tuple[str, HistoryEntry]]) -> ShardedHistoryEntry:
    """Return what one transaction has done in several shards."""
    first = entries[0][1]
    rows = [entry.rows for _, entry in entries if entry.rows is not None]
    size = [entry.bytes for _, entry in entries if entry.bytes is not None]
    return ShardedHistoryEntry(
        index=cut.zxid,
        cut=str(cut),
        time=first.time,
        kind=first.kind,
        replica=first.replica,
        shards=tuple((name, entry.index) for name, entry in entries),
        rows=sum(rows) if rows else None,
        bytes=sum(size) if size else None,
        ids=first.ids,
        command=first.command,
        duration_s=first.duration_s,
    )


__all__ = ["ShardedHistoryEntry", "read_transactions"]
