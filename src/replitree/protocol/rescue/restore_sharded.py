"""Restore a sharded table whose nodes coordination has lost: first its own nodes, then each shard, then the map.

::

    1. *begin*   Create(tables/<D>), Create(sharded/<D>, life: restoring, …)     the name is taken, no client finds the table
    2. *shards*  each shard is restored from one disk as any table (`protocol.rescue.restore`), with
                 Check(life @ 0)                            in the commit that creates its nodes
                 Check(life @ 0), Create(restored-<n>)      in the commit that ends its restore
    3. *show*    Set(life @ 0: made), Create(map), Delete(restored-<n>) for every shard

Step 2 is done where the disks are, so a table on several machines is restored by several processes, one after the other or
at once.  The one that finds all shards restored does step 3.

*One cut.*  A shard's disk has the state of the moment at which its replica stopped.  If the replica of one shard had executed a
joint insert, and that of another shard had not, the table would have the insert in part.  Each disk notes for which
transactions of the lost ensemble its parts were all that the shard had (`Standing`).  Step 3 takes place only if one
transaction is in the standings of all shards (`common_cut`), or if an operator has accepted a table that may be torn.

*Resumed.*  Step 1 writes down the map and the incarnation, so each step may be done again, by any process.  A shard is restored
again only as long as `restored-<n>` is missing.

*Fenced.*  The version of `life` is 0 until step 3; a drop ends it, too.  A late commit of step 2 is refused then.

*Unknown.*  After each commit without an answer the procedure looks what is there, and goes on from that.

Not restored: ids of inserts and last batches of streams, tags, consumers, materialised views, moves of buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
from msgspec import UNSET

from replitree.decoding import json_decoder
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.values import decode_value
from replitree.protocol.rescue.restore import ATTEMPTS_MAX, NotRestored, ShardBond
from replitree.protocol.sharded import places
from replitree.protocol.sharded.creation import FIRST_VERSION, NewSharded, own_nodes
from replitree.protocol.sharded.life import MADE, Life, decode_life, encode_life
from replitree.protocol.sharded.shard_map import Shard, ShardMap, encode_map

STANDING_FORMAT = 1


class Standing(msgspec.Struct, frozen=True):
    """At which cuts a shard was what the parts on a disk are: its replica had executed the whole log, and nothing was open.

    Attributes
    ----------
    ensemble
        The id of the lost ensemble; empty: it is not known where the parts stand.
    first, last
        The first and the last transaction of these cuts.
    """

    ensemble: str = ""
    first: int = 0
    last: int = 0


UNKNOWN_STANDING = Standing()
"""The replica has executed more than its last note says, or has never made one."""


class RestoredShard(msgspec.Struct, frozen=True):
    """Value of the node ``restored-<n>``: from the disk of which replica the shard is restored, and where that stands."""

    replica: str
    standing: Standing
    format: int = STANDING_FORMAT


@dataclass(frozen=True, slots=True)
class Restoring:
    """A sharded table that is being restored, as step 1 has written it down.

    Attributes
    ----------
    place, incarnation
        The path of its own node, and its incarnation.
    metadata, columns
        Its definition.
    map
        The map that it gets.
    """

    place: str
    incarnation: str
    metadata: bytes
    columns: bytes
    map: ShardMap

    @property
    def life(self) -> str:
        """The path of the node that says that it is being restored."""
        return places.life(self.place, self.incarnation)


@dataclass(frozen=True, slots=True)
class Shown:
    """The table is there: all its shards are restored."""


@dataclass(frozen=True, slots=True)
class ShardsMissing:
    """These shards are not restored yet."""

    shards: tuple[Shard, ...]


@dataclass(frozen=True, slots=True)
class NotOneCut:
    """All shards are restored, and no cut is known at which all of them stood; by shard: the replica and the standing."""

    shards: tuple[tuple[Shard, RestoredShard], ...]


ShowOutcome: TypeAlias = Shown | ShardsMissing | NotOneCut | NotRestored

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = json_decoder(RestoredShard).decode


def encode_restored(value: RestoredShard) -> bytes:
    """Return the bytes of a node ``restored-<n>``.

    >>> encode_restored(RestoredShard("r1", UNKNOWN_STANDING))
    b'{"replica":"r1","standing":{"ensemble":"","first":0,"last":0},"format":1}'
    """
    return _encode(value)


def decode_restored(raw: bytes, where: str) -> RestoredShard:
    """Read a node ``restored-<n>``.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode, raw, where, STANDING_FORMAT)


def common_cut(standings: Sequence[Standing]) -> int | None:
    """Return the last transaction at which all shards stood; None: there is none, or one of them is not known.

    >>> common_cut([Standing("e", 3, 7), Standing("e", 5, 9)]), common_cut([Standing("e", 3, 4), Standing("e", 5, 9)])
    (7, None)
    >>> common_cut([Standing("e", 3, 7), Standing("f", 5, 9)]), common_cut([Standing("e", 3, 7), UNKNOWN_STANDING])
    (None, None)
    """
    first, last = max(each.first for each in standings), min(each.last for each in standings)
    # Transactions of two ensembles can't be compared.
    is_known = len({each.ensemble for each in standings}) == 1 and bool(standings[0].ensemble)
    return last if is_known and first <= last else None


def shard_bond(restoring: Restoring, shard: Shard, replica: str, standing: Standing) -> ShardBond:
    """Return what the restore of a shard has in its commits beside its own nodes.

    Parameters
    ----------
    restoring, shard
        Which shard of which table.
    replica, standing
        From the disk of which replica, and where its parts stand.
    """
    return ShardBond(
        fx.Check(restoring.life, FIRST_VERSION),
        fx.Create(places.restored_shard(restoring.place, shard), encode_restored(RestoredShard(replica, standing))),
    )


def begin_restore(new: NewSharded) -> fx.Procedure[Restoring | NotRestored]:
    """Write down that a sharded table is being restored, or find what another process has written down.

    Parameters
    ----------
    new
        The table, with the map that it gets, and an incarnation that none has ever had.  The parents of all tables and of all
        sharded tables must be there.
    """
    found = yield from find_restoring(new.root, new.name)
    if found is not None:
        return found
    # Once only: a commit that comes late, after a drop, would let the same incarnation be there again.
    created: fx.Committed = yield fx.Commit(*own_nodes(new, Life("restoring", new.map)))
    found = yield from find_restoring(new.root, new.name)
    if found is not None:
        return found
    if isinstance(created, fx.Refused) and (yield fx.Exists(places.reserved(new.root, new.name))):
        return NotRestored(f"a table {new.name!r} that is not sharded is there")
    return NotRestored(_NOT_HEARD, again=True)


def find_restoring(root: str, name: str) -> fx.Procedure[Restoring | NotRestored | None]:
    """Find a sharded table that is being restored; None: there is no table of the name.

    `NotRestored`: there is one, and it is not being restored.
    """
    place = layout.sharded(root, name)
    for _ in range(ATTEMPTS_MAX):
        yield fx.Sync(place)
        node = yield fx.Get(place)
        if node is None:
            return None
        incarnation = node.value.decode()
        path = places.life(place, incarnation)
        paths = (path, places.metadata(place), places.columns(place))
        life, metadata, columns = (yield fx.GetMany(paths)).nodes
        if life is None or metadata is None or columns is None:
            # The table was dropped in between, and another one may have the name.
            continue
        found = decode_life(life.value, path)
        if found.stage == "restoring" and found.map is not UNSET:
            return Restoring(place, incarnation, metadata.value, columns.value, found.map)
        return NotRestored(_WHY_NOT[found.stage].format(name))
    return NotRestored(_NOT_HEARD, again=True)


_NOT_HEARD = "coordination did not say in time what it has done; repeat it"

_WHY_NOT = {
    "making": "the creation of a sharded table {0!r} was cut off or is under way: drop that one first",
    "restoring": "the node of its life has no map",
    "made": "table {0!r} is there, and is not being restored: replicas join and recover by themselves",
    "dropping": "a sharded table {0!r} is being dropped: drop it again to finish",
}


def restored_shards(restoring: Restoring) -> fx.Procedure[dict[Shard, RestoredShard]]:
    """Return the shards that are restored."""
    yield fx.Sync(restoring.place)
    paths = tuple(places.restored_shard(restoring.place, shard) for shard in restoring.map.shards)
    nodes = (yield fx.GetMany(paths)).nodes
    return {
        shard: decode_restored(node.value, path)
        for shard, path, node in zip(restoring.map.shards, paths, nodes, strict=True)
        if node is not None
    }


def show_restored(restoring: Restoring, *, torn: bool = False) -> fx.Procedure[ShowOutcome]:
    """Let a table be there when all its shards are restored and stand at one cut.

    Parameters
    ----------
    restoring
        The table.
    torn
        An operator accepts that an insert or a command is in some shards only.
    """
    for _ in range(ATTEMPTS_MAX):
        # The life after the shards: if it still says "restoring", none of them has gone because the table was shown.
        shards = yield from restored_shards(restoring)
        life = yield fx.Get(restoring.life)
        stage = "dropping" if life is None else decode_life(life.value, restoring.life).stage
        if stage != "restoring":
            return Shown() if stage == "made" else NotRestored("the table was dropped while it was being restored")
        missing = tuple(shard for shard in restoring.map.shards if shard not in shards)
        if missing:
            return ShardsMissing(missing)
        if common_cut([each.standing for each in shards.values()]) is None and not torn:
            return NotOneCut(tuple(shards.items()))
        shown: fx.Committed = yield fx.Commit(
            fx.Set(restoring.life, encode_life(MADE), FIRST_VERSION),
            fx.Create(layout.shard_map(restoring.place), encode_map(restoring.map)),
            *(fx.Delete(places.restored_shard(restoring.place, each), fx.ANY_VERSION) for each in shards),
        )
        if isinstance(shown, fx.Applied):
            return Shown()
    return NotRestored(_NOT_HEARD, again=True)


__all__ = [
    "UNKNOWN_STANDING",
    "NotOneCut",
    "RestoredShard",
    "Restoring",
    "ShardsMissing",
    "ShowOutcome",
    "Shown",
    "Standing",
    "begin_restore",
    "common_cut",
    "decode_restored",
    "encode_restored",
    "find_restoring",
    "restored_shards",
    "shard_bond",
    "show_restored",
]
