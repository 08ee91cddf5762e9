"""Creation of a sharded table: its own nodes, and a table for each shard; other processes find all of it or nothing.

One commit creates everything if it is small enough::

    Create(tables/<D>)                               takes the name from all tables
    Create(sharded/<D>, metadata, columns, life, placement, tokens, joint, commands),
    for each shard: the nodes of a table,
    Create(map)                                      the table is there

If it is not, `life` says ``making`` first, and has the map::

    1. Create(tables/<D>), Create(sharded/<D>, …, life: making, …)
    2. Check(life @ 0), the nodes of some shards         again and again, until all are there
    3. Set(life @ 0: made), Create(map)

A table exists when it has a ``map``: from then on it is listed, read and inserted into.  Before that it is only a name that is
taken.

*Resumed.*  Step 1 has written down all that steps 2 and 3 need, the incarnations of the shards included.  Any process may do
these at any time, also several at once: commits that create the same shard are equal, and the second one is refused.  A
creation that was cut off is finished by a process that creates the same table again (`finish_creation`), or is dropped.

*Fenced.*  The version of ``life`` is 0 in step 2, and step 3 ends that; so does a drop.  Its name has the incarnation of the
table, so a late commit never adds a shard to another table of the name.

*Unknown.*  Steps 2 and 3 are sent again: they take place once.  After step 1, or the one commit, the node ``sharded/<D>`` shows
whether it took place, for its value is the incarnation, which no other creation has.  If it is not there, it may still come:
the caller hears "unsettled".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import encode_log
from replitree.protocol.membership.table import table_nodes
from replitree.protocol.sharded import places
from replitree.protocol.sharded.command import commands
from replitree.protocol.sharded.life import MADE, Life, decode_life, encode_life
from replitree.protocol.sharded.shard_map import Shard, ShardMap, encode_map

COMMIT_BYTES_MAX = 512 * 1024
"""Bytes of a commit: half of what ZooKeeper takes by default in one request (``jute.maxbuffer``)."""

OPERATION_BYTES = 64
"""Bytes of an operation of a commit beside its path and its value, at most."""

ATTEMPTS_MAX = 8
"""How often a commit without an answer is sent again, or what another process has done meanwhile is looked at."""

FIRST_VERSION = fx.Version(0)


@dataclass(frozen=True, slots=True)
class NewShard:
    """A shard to create: its number, the values of its nodes, and what else is created with it."""

    shard: Shard
    metadata: bytes
    columns: bytes
    more: tuple[fx.Create, ...] = ()


@dataclass(frozen=True, slots=True)
class NewSharded:
    """A sharded table to create.

    Attributes
    ----------
    root, name
        Where the cluster's nodes are, and the table's name.
    incarnation
        One that no sharded table has ever had.
    metadata, columns, placement
        Values of its nodes.
    map
        Which shard has which rows.
    shards
        Every shard of the map.
    """

    root: str
    name: str
    incarnation: str
    metadata: bytes
    columns: bytes
    placement: bytes
    map: ShardMap
    shards: tuple[NewShard, ...]

    def __post_init__(self) -> None:
        assert tuple(each.shard for each in self.shards) == self.map.shards
        assert self.incarnation

    @property
    def place(self) -> str:
        """The path of its own node."""
        return layout.sharded(self.root, self.name)

    @property
    def life(self) -> str:
        """The path of the node that says how far it is."""
        return places.life(self.place, self.incarnation)

    def table_of(self, shard: NewShard) -> TablePlace:
        """Return the place of a shard."""
        return places.shard_place(self.root, self.name, shard.shard, self.incarnation)


class Creation(Enum):
    """What became of a creation.

    DONE
        The table is there, or was: it was dropped again since.
    TAKEN, EXISTS, HALF_MADE, RESTORING, DROPPING
        Certainly nothing was created: a table that is not sharded has the name; or a sharded one, which is there, or whose
        creation, restore or drop was cut off or is under way.
    DROPPED
        Another process has dropped the table while it was being made.
    UNSETTLED
        It is not known whether the table is there, or will be.
    """

    DONE = "done"
    TAKEN = "taken"
    EXISTS = "exists"
    HALF_MADE = "half-made"
    RESTORING = "restoring"
    DROPPING = "dropping"
    DROPPED = "dropped"
    UNSETTLED = "unsettled"


def create_sharded(new: NewSharded, bytes_max: int = COMMIT_BYTES_MAX) -> fx.Procedure[Creation]:
    """Create a sharded table.

    Parameters
    ----------
    new
        What is created.  The parents of all tables and of all sharded tables must be there.
    bytes_max
        How large a commit may be.
    """
    whole = (
        *own_nodes(new, MADE),
        *(operation for shard in new.shards for operation in _shard_nodes(new, shard)),
        fx.Create(layout.shard_map(new.place), encode_map(new.map)),
    )
    is_small = bytes_of(whole) <= bytes_max
    outcome: fx.Committed = yield fx.Commit(*(whole if is_small else own_nodes(new, Life("making", new.map))))
    match outcome:
        case fx.Applied():
            pass
        case fx.Refused():
            return (yield from _name_of(new))
        case fx.Unknown():
            yield fx.Sync(new.place)
            found = yield fx.Get(new.place)
            # Without its node the commit has not taken place, and may come yet.  With it, it has, and the rest is as below.
            if found is None or found.value != new.incarnation.encode():
                return Creation.UNSETTLED
    return Creation.DONE if is_small else (yield from finish_creation(new, bytes_max))


def finish_creation(new: NewSharded, bytes_max: int = COMMIT_BYTES_MAX) -> fx.Procedure[Creation]:
    """Create the shards of a sharded table that are missing, and let it be there.

    Parameters
    ----------
    new
        What is created, with the incarnation that is there.
    bytes_max
        How large a commit may be.  A shard goes into one commit, whatever its size.

    Returns
    -------
    `DONE`, `DROPPED` or `UNSETTLED`.
    """
    unfinished = fx.Check(new.life, FIRST_VERSION)
    for _ in range(ATTEMPTS_MAX):
        yield fx.Sync(new.place)
        life, *shards = (yield fx.GetMany((new.life, *(new.table_of(each).path for each in new.shards)))).nodes
        if life is None:
            return Creation.DROPPED
        stage = decode_life(life.value, new.life).stage
        if stage != "making":
            return Creation.DONE if stage == "made" else Creation.DROPPED
        missing = [shard for shard, node in zip(new.shards, shards, strict=True) if node is None]
        for batch in _batches(new, missing, bytes_max):
            made: fx.Committed = yield fx.Commit(unfinished, *batch)
            if not isinstance(made, fx.Applied):
                # Another process, or an earlier try, has created one of them, or the drop has begun; or the answer was lost.
                break
        else:
            revealed: fx.Committed = yield fx.Commit(
                fx.Set(new.life, encode_life(MADE), FIRST_VERSION),
                fx.Create(layout.shard_map(new.place), encode_map(new.map)),
            )
            if isinstance(revealed, fx.Applied):
                return Creation.DONE
    return Creation.UNSETTLED


def bytes_of(operations: Sequence[fx.Operation]) -> int:
    """Return how large a commit is at most, in bytes."""
    return sum(len(each.path) + len(getattr(each, "value", b"")) + OPERATION_BYTES for each in operations)


def own_nodes(new: NewSharded, life: Life) -> tuple[fx.Create, ...]:
    """Return what creates the nodes that a sharded table has beside its shards and its map; the name comes first."""
    return (
        fx.Create(places.reserved(new.root, new.name), new.incarnation.encode()),
        fx.Create(new.place, new.incarnation.encode()),
        fx.Create(new.life, encode_life(life)),
        fx.Create(places.metadata(new.place), new.metadata),
        fx.Create(places.columns(new.place), new.columns),
        fx.Create(places.placement(new.place), new.placement),
        fx.Create(layout.joint_tokens(new.place)),
        fx.Create(layout.joint_inserts(new.place)),
        fx.Create(commands(new.place)),
    )


def _shard_nodes(new: NewSharded, shard: NewShard) -> tuple[fx.Create, ...]:
    table = new.table_of(shard)
    return *table_nodes(table, shard.metadata, shard.columns, encode_log(table)), *shard.more


def _batches(new: NewSharded, shards: Sequence[NewShard], bytes_max: int) -> Iterator[tuple[fx.Create, ...]]:
    """Give what creates shards, as much in each commit as fits."""
    batch: tuple[fx.Create, ...] = ()
    for shard in shards:
        nodes = _shard_nodes(new, shard)
        if batch and bytes_of((*batch, *nodes)) > bytes_max:
            yield batch
            batch = ()
        batch += nodes
    if batch:
        yield batch


def _name_of(new: NewSharded) -> fx.Procedure[Creation]:
    """Return why the name is not free."""
    yield fx.Sync(new.place)
    found = yield fx.Get(new.place)
    if found is None:
        # A sharded table that was dropped in between had the name, or a table that is not sharded has it.
        is_there = yield fx.Exists(places.reserved(new.root, new.name))
        return Creation.TAKEN if is_there else Creation.DROPPING
    path = places.life(new.place, found.value.decode())
    node = yield fx.Get(path)
    if node is None:
        return Creation.DROPPING
    of_stage = {
        "making": Creation.HALF_MADE,
        "restoring": Creation.RESTORING,
        "made": Creation.EXISTS,
        "dropping": Creation.DROPPING,
    }
    return of_stage[decode_life(node.value, path).stage]
