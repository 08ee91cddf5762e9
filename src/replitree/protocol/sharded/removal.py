"""Drop of a sharded table: first the map goes, then the shards, then everything else.

::

    1. *begin*    Set(life @ version: dropping), Delete(map)     no insert and no shard comes any more, no reader finds it
    2. *shards*   each shard is dropped as any table             `protocol.membership.table`; replicas leave by themselves
    3. *end*      Check(life): tokens, joint inserts             in batches
                  Delete(life), Delete(the rest), Delete(tables/<D>)    the name is free

The shards are found by their names, after step 1: none comes later, for its creation needs a life that is being made.  Nothing
is removed in step 3 while one is left.

Any process may do any step at any time, and again: a drop that was cut off is finished by dropping again.  Every commit
names the life of this incarnation, or the mark of the shard's own drop, so a late one touches no other table of the name.

*Unknown.*  Each commit may be sent again.  `drop_step` looks first, and answers `UNSETTLED` when it can't tell: drop again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.membership.table import TableOutcome, mark_dropped, remove_table
from replitree.protocol.sharded import places
from replitree.protocol.sharded.creation import ATTEMPTS_MAX
from replitree.protocol.sharded.life import DROPPING, decode_life, encode_life

DELETE_BATCH = 100
"""Nodes deleted in one commit."""


class ShardedRemoval(Enum):
    """What became of a step of a drop.

    DONE
        Nothing of the table is left.
    MISSING
        There is no such sharded table.
    SHARDS_LEFT
        The drop has begun, and shards still have replicas: they leave by themselves, or the caller takes them out.  Or the
        caller has not noted yet what a shard has left in its object store.
    UNSETTLED
        It is not known how far it is: repeat it.
    """

    DONE = "done"
    MISSING = "missing"
    SHARDS_LEFT = "shards left"
    UNSETTLED = "unsettled"


@dataclass(frozen=True, slots=True)
class Dropping:
    """The drop of a sharded table that has begun.

    Attributes
    ----------
    root, name, incarnation
        Which table.
    version
        Of its life: no process changes it any more.
    """

    root: str
    name: str
    incarnation: str
    version: fx.Version

    @property
    def place(self) -> str:
        """The path of the table's own node."""
        return layout.sharded(self.root, self.name)

    @property
    def life(self) -> str:
        """The path of the node that says that it is being dropped."""
        return places.life(self.place, self.incarnation)


def begin_drop(
    root: str, name: str, map_version: fx.Version = fx.ANY_VERSION
) -> fx.Procedure[Dropping | ShardedRemoval]:
    """Begin the drop of a sharded table, or find that it has begun.

    Parameters
    ----------
    root, name
        Which table.
    map_version
        The version of its map with which nothing needs the table (`protocol.sharded.views`); with another one nothing begins.

    Returns
    -------
    Otherwise `MISSING` or `UNSETTLED`.
    """
    place = layout.sharded(root, name)
    for _ in range(ATTEMPTS_MAX):
        yield fx.Sync(place)
        found = yield fx.Get(place)
        if found is None:
            return ShardedRemoval.MISSING
        incarnation = found.value.decode()
        path = places.life(place, incarnation)
        node = yield fx.Get(path)
        if node is None:
            # The table was dropped in between, and another one may have the name.
            continue
        stage = decode_life(node.value, path).stage
        if stage == "dropping":
            return Dropping(root, name, incarnation, node.version)
        shown = (fx.Delete(layout.shard_map(place), map_version),) if stage == "made" else ()
        begun: fx.Committed = yield fx.Commit(fx.Set(path, encode_life(DROPPING), node.version), *shown)
        if isinstance(begun, fx.Applied):
            return Dropping(root, name, incarnation, fx.Version(node.version + 1))
    return ShardedRemoval.UNSETTLED


def shards_left(dropping: Dropping) -> fx.Procedure[tuple[TablePlace, ...]]:
    """Return the shards of a table whose drop has begun; none comes later."""
    names: tuple[str, ...] = (yield fx.Children(layout.tables(dropping.root))) or ()
    numbers = [
        places.shard_number(each)
        for each in names
        if places.is_shard_name(each) and places.sharded_name(each) == dropping.name
    ]
    return tuple(
        places.shard_place(dropping.root, dropping.name, number, dropping.incarnation) for number in sorted(numbers)
    )


def drop_step(dropping: Dropping, noted: Collection[str] | None = None) -> fx.Procedure[ShardedRemoval]:
    """Go on with a drop as far as it goes now.

    Replicas with a session leave a shard once its drop is marked; those without are taken out by the caller
    (`protocol.membership.table.leave_table`), and then this is repeated.

    Parameters
    ----------
    dropping
        Which drop.
    noted
        The shards whose nodes may go: the caller has noted what they have left in an object store.  None: all.
    """
    left = False
    for shard in (yield from shards_left(dropping)):
        marked = yield from mark_dropped(shard)
        if marked is TableOutcome.MISSING:
            # It is gone, or is that of a later table: then this drop has been ended by another process.
            continue
        if noted is not None and shard.name not in noted:
            left = True
            continue
        removed = yield from remove_table(shard)
        if TableOutcome.UNSETTLED in (marked, removed):
            return ShardedRemoval.UNSETTLED
        left = left or removed is not TableOutcome.DONE
    return ShardedRemoval.SHARDS_LEFT if left else (yield from _end(dropping))


def _end(dropping: Dropping) -> fx.Procedure[ShardedRemoval]:
    """Remove everything but the shards, of which none is left."""
    place, life = dropping.place, dropping.life
    dropped = fx.Check(life, dropping.version)
    names: tuple[str, ...] = (yield fx.Children(place)) or ()
    # The life is the last one: while it is there, all commits of this drop can prove it.
    others = tuple(f"{place}/{name}" for name in names if f"{place}/{name}" != life)
    for parent in others:
        children: tuple[str, ...] = (yield fx.Children(parent)) or ()
        for first in range(0, len(children), DELETE_BATCH):
            deletes = (
                fx.Delete(f"{parent}/{child}", fx.ANY_VERSION) for child in children[first : first + DELETE_BATCH]
            )
            deleted: fx.Committed = yield fx.Commit(dropped, *deletes)
            if not isinstance(deleted, fx.Applied):
                return _ended(deleted, life)
    ended: fx.Committed = yield fx.Commit(
        fx.Delete(life, dropping.version),
        *(fx.Delete(each, fx.ANY_VERSION) for each in others),
        fx.Delete(place, fx.ANY_VERSION),
        fx.Delete(places.reserved(dropping.root, dropping.name), fx.ANY_VERSION),
    )
    return _ended(ended, life)


def _ended(outcome: fx.Committed, life: str) -> ShardedRemoval:
    match outcome:
        case fx.Applied():
            return ShardedRemoval.DONE
        case fx.Refused(operation=fx.Check(path=path) | fx.Delete(path=path), reason=fx.Reason.NO_NODE) if path == life:
            # Another process has ended the drop, or an earlier try of this one has.
            return ShardedRemoval.DONE
    return ShardedRemoval.UNSETTLED
