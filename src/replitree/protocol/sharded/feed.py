"""The change feed of a sharded table: what an entry of a shard feeds there, and which transaction it is of.

The feed of a sharded table between two cuts is that of its shards between the positions of the cuts in their logs, in the order
of the transactions.  All that one commit has appended, to however many logs, is one version of the sharded table.

A row that moves from shard to shard is neither inserted nor deleted.  A move shows a batch by one commit
(`protocol.sharded.moves.batch`), and both kinds of its entries say of themselves that they are a move's:

==================  ===============================================  =======================================================
entry               in the log of                                    how it is known
==================  ===============================================  =======================================================
``settle``          the target: the rows are shown there             the staging id of the insert (`moved_group`)
``mutate``          the source: it deletes the rows there            its id begins with `REMOVAL`
==================  ===============================================  =======================================================

No client can make up either: staging ids are chosen by replicas, and commands of users have other ids (`is_reserved_id`).

Guarantees: F1 to F7 of `protocol.feed.definition` hold between cuts of a sharded table, through moves (D8).  What commands
change while a batch is on its way is fed once: at the source, where the rows are visible; at the target they are open.
"""

from __future__ import annotations

from collections.abc import Sequence

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, MutateEntry, SettleEntry
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.stamps import BEFORE_ALL, GetStamped, Stamped, Zxid
from replitree.protocol.feed.definition import EMPTY, EntryFeed, OpenInserts, Step, advance
from replitree.protocol.sharded.places import is_shard_name

REMOVAL = "move-"
"""How the ids of the mutations begin that delete rows at the source of a move."""

STAMPS_AT_ONCE = 256
"""Entries whose transactions are read in one request."""


def moved_group(incarnation: str, number: int) -> fx.StagingId:
    """Return the name under which a replica stages rows that move.

    >>> moved_group("5f0c", 3), is_moved(fx.StagingId("5f0c-m3.0")), is_moved(fx.StagingId("5f0c-j3.0"))
    ('5f0c-m3', True, False)
    """
    return fx.StagingId(f"{incarnation}-m{number}")


def is_moved(staging: fx.StagingId) -> bool:
    """Whether rows that move were staged under this id."""
    return staging.rpartition("-")[2].startswith("m")


def is_reserved_id(command_id: str) -> bool:
    """Whether no command of a user may have this id."""
    return command_id.startswith(REMOVAL)


def is_of_move(table: TablePlace, entry: Entry) -> bool:
    """Whether an entry of a table shows rows at the target of a move, or deletes them at its source."""
    if not is_shard_name(table.name):
        # Its users may give a command any id.
        return False
    match entry:
        case SettleEntry(insert=staging):
            return is_moved(staging)
        case MutateEntry(id=command_id):
            return is_reserved_id(command_id)
    return False


def advance_shard(before: OpenInserts, step: Step, *, of_move: bool) -> tuple[OpenInserts, EntryFeed]:
    """Return the open inserts after an entry of a shard, and what the entry feeds; all else as of `advance`.

    `of_move`: what `is_of_move` says of the entry.
    """
    after, feed = advance(before, step)
    return after, EMPTY if of_move else feed


def read_transactions(table: TablePlace, indexes: Sequence[fx.LogIndex]) -> fx.Procedure[tuple[Zxid, ...]]:
    """Return which transactions have appended some entries of a log; `BEFORE_ALL` for one that is not there any more.

    Parameters
    ----------
    table
        The shard.
    indexes
        The indexes of the entries.
    """
    found: list[Zxid] = []
    for first in range(0, len(indexes), STAMPS_AT_ONCE):
        paths = tuple(layout.log_entry(table, index) for index in indexes[first : first + STAMPS_AT_ONCE])
        stamped: Stamped = yield GetStamped(paths)
        found += (BEFORE_ALL if node is None else node.created for node in stamped.nodes)
    return tuple(found)


__all__ = [
    "REMOVAL",
    "advance_shard",
    "is_moved",
    "is_of_move",
    "is_reserved_id",
    "moved_group",
    "read_transactions",
]
