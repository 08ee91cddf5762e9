"""Named cuts of a sharded table: its tags and its consumers, each with a node in every shard.

The node in a shard keeps what the shard has there, as a tag or a consumer of any table does; the node of the whole table,
``sharded/<D>/<kind>/<name>``, is the one that readers find.  A named cut is made in this order (`make_named_cut`):

1. a snapshot of all shards at one cut, or where the cut lies in the log of each
2. the node in each shard, by one of its replicas
3. one commit of the client (`put_named_cut`)::

       Check(life-<incarnation>), Check(map), Set(sharded/<D>/<kind> @ version) | Create(sharded/<D>/<kind>),
       Create(sharded/<D>/<kind>/<name>)

The version of ``sharded/<D>/<kind>`` is read first, then the map and the nodes of all shards.  Whatever changes one of these
raises that version in the same commit, but for a replica that ends the hold of a consumer.  So what readers find is kept by all
its shards.  A shard that was removed meanwhile is not in the map (`protocol.upkeep.shard_removal`): a new cut is taken.

*New shards.*  A tag needs the shards that its cut has.  A consumer needs every shard that comes later, too: the version of the
map is read before step 1 and checked in step 3 (`NamedCuts.is_of_all`).

*Deleting* (`delete_named_cut`) is one commit, too: it deletes the node of the table and those of all shards.  What a client has
left that was cut off between 2 and 3 is deleted the same way, when the name is given or deleted the next time; that commit
proves by the version of ``sharded/<D>/<kind>`` that nothing of the name has come meanwhile.

*Doubt.*  A client has no epoch, so a commit whose answer is lost may come later.  It proves everything that it relies on, so it
does no harm.  The client repeats its call: the id tells what it has made from what another one has.

Absent on purpose: the removal of what was left, by anything but the next call with the name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import NOT_SENT
from replitree.protocol.sharded import places
from replitree.protocol.sharded.shard_map import decode_map
from replitree.protocol.upkeep.named_nodes import BUSY, TRIES_MAX, NotChanged


class KeptShard(msgspec.Struct, frozen=True):
    """What a named cut has of one shard.

    Attributes
    ----------
    shard
        The shard's name.
    index
        What its log has below this index is in the cut, and nothing else.
    replica
        The replica that had it when the name was given; "": any.
    """

    shard: str
    index: int
    replica: str = ""


class CutValue(Protocol):
    """The value of the node that readers find."""

    @property
    def id(self) -> fx.EntryId:
        """The id of the command that made it."""

    @property
    def shards(self) -> tuple[KeptShard, ...]:
        """All shards that the table had at the cut."""


class ShardNode(Protocol):
    """The value of the node of a shard."""

    @property
    def id(self) -> fx.EntryId:
        """The id of the command that made it."""

    @property
    def index(self) -> int:
        """Where it stands in the log of the shard."""


Value = TypeVar("Value", bound=CutValue)


@dataclass(frozen=True, slots=True)
class NamedCuts(Generic[Value]):
    """A kind of named cuts.

    Attributes
    ----------
    parent, path
        Return the node above all of them, and that of one name, of the whole table or of a shard.
    encode, decode
        Write and read a node of the whole table.
    decode_shard
        Reads a node of a shard.
    is_of_all
        Whether a cut needs a node in every shard that the table has, not only in those of its own.
    """

    parent: Callable[[TablePlace], str]
    path: Callable[[TablePlace, str], str]
    encode: Callable[[Value], bytes]
    decode: Callable[[bytes, str], Value]
    decode_shard: Callable[[bytes, str], ShardNode]
    is_of_all: bool


@dataclass(frozen=True, slots=True)
class CutName(Generic[Value]):
    """A name of a sharded table: which kind, below which path the cluster lies, the table's name, and the name."""

    kind: NamedCuts[Value]
    root: str
    table: str
    name: str

    @property
    def place(self) -> TablePlace:
        """Where the nodes of the whole table are."""
        return TablePlace(layout.sharded(self.root, self.table))

    @property
    def parent(self) -> str:
        """The node above that of the whole table."""
        return self.kind.parent(self.place)

    @property
    def path(self) -> str:
        """The node of the whole table, which readers find."""
        return self.kind.path(self.place, self.name)

    def of_shard(self, shard: str) -> tuple[str, str]:
        """Return the node above that of a shard, and that of the shard."""
        place = TablePlace(places.hosted_path(self.root, shard))
        return self.kind.parent(place), self.kind.path(place, self.name)


@dataclass(frozen=True, slots=True)
class TakeCut(fx.Effect):
    """Choose a cut, whose parts stay for a while.  Outcome: the value of the node that readers are to find."""


@dataclass(frozen=True, slots=True)
class KeepShard(fx.Effect):
    """Have a replica of a shard keep what a cut has there, by a node of the shard.  Outcome: None.

    A client that can't have it ends: what it has left is deleted by the next call with the name.
    """

    shard: KeptShard


@dataclass(frozen=True, slots=True)
class CutThere(Generic[Value]):
    """What has the name now; None: nothing.  It is this command's own when it has its id."""

    value: Value | None


@dataclass(frozen=True, slots=True)
class CutTorn:
    """Nothing was changed: this shard does not keep what the cut has there; another client has changed that meanwhile."""

    shard: str


CutOutcome: TypeAlias = CutThere[Value] | CutTorn | NotChanged | fx.InDoubt
"""After `InDoubt` the change may have taken place, or takes place later."""

GONE = NotChanged("the sharded table is being dropped")
SHARDS_CHANGED = NotChanged("buckets or shards of the table have changed meanwhile; try again")


def make_named_cut(
    at: CutName[Value], incarnation: str, known_as: fx.EntryId, shards: Sequence[str]
) -> fx.Procedure[CutOutcome[Value]]:
    """Give a cut a name, in the three steps; one of this name with the same id is the answer.

    Parameters
    ----------
    at, incarnation
        As of `put_named_cut`.
    known_as
        The id of the command.
    shards
        The names of the shards that there are.
    """
    outcome: CutOutcome[Value] = BUSY
    for _ in range(TRIES_MAX):
        left = yield from delete_named_cut(at, shards, only_left=True)
        if left != CutThere(None):
            return left
        version = fx.ANY_VERSION
        if at.kind.is_of_all:
            # Before the cut is chosen: a shard that comes from here on is noticed.
            known: fx.Node | None = yield fx.Get(layout.shard_map(at.place.path))
            if known is None:
                return GONE
            version = known.version
        value: Value = yield TakeCut()
        assert value.id == known_as
        for each in value.shards:
            yield KeepShard(each)
        outcome = yield from put_named_cut(at, incarnation, value, version)
        if outcome is not SHARDS_CHANGED:
            return outcome
    return outcome


def put_named_cut(
    at: CutName[Value], incarnation: str, value: Value, map_version: fx.Version = fx.ANY_VERSION
) -> fx.Procedure[CutOutcome[Value]]:
    """Give a name to a cut that all its shards keep already; one of this name with the same id is the answer.

    Parameters
    ----------
    at, value
        The name, and what it is to have.
    incarnation
        Which table of the name it is.
    map_version
        Of the map that has just the shards of the cut.
    """
    parent, path = at.parent, at.path
    is_there = fx.Check(places.life(at.place.path, incarnation), fx.ANY_VERSION)
    has_map = fx.Check(layout.shard_map(at.place.path), map_version)
    for _ in range(TRIES_MAX):
        yield fx.Sync(parent)
        counted, node = (yield fx.GetMany((parent, path))).nodes
        if node is not None:
            return CutThere(at.kind.decode(node.value, path))
        map_path = layout.shard_map(at.place.path)
        paths = tuple(at.of_shard(each.shard)[1] for each in value.shards)
        known, *kept = (yield fx.GetMany((map_path, *paths))).nodes
        if known is None:
            return GONE
        there = {places.shard_name(at.table, shard) for shard in decode_map(known.value, map_path).shards}
        if any(each.shard not in there for each in value.shards):
            return SHARDS_CHANGED
        for each, its_path, its in zip(value.shards, paths, kept, strict=True):
            found = None if its is None else at.kind.decode_shard(its.value, its_path)
            if found is None or (found.id, found.index) != (value.id, each.index):
                return CutTorn(each.shard)
        # Whatever deletes one of these nodes raises this version, too.
        counts = fx.Create(parent) if counted is None else fx.Set(parent, b"", counted.version)
        committed = yield fx.Commit(is_there, has_map, counts, fx.Create(path, at.kind.encode(value)))
        match committed:
            case fx.Applied():
                return CutThere(value)
            case fx.Refused(operation=operation, reason=reason) if operation in (is_there, has_map):
                return SHARDS_CHANGED if reason is fx.Reason.BAD_VERSION else GONE
            case fx.Unknown(is_sent=False):
                return NotChanged(NOT_SENT)
            case fx.Unknown():
                return fx.InDoubt()
    return BUSY


def delete_named_cut(
    at: CutName[Value], shards: Sequence[str], *, only_left: bool = False
) -> fx.Procedure[CutOutcome[Value]]:
    """Delete a name, and what shards keep for it; return what it was.

    Parameters
    ----------
    at
        The name.
    shards
        The names of the shards that there are.
    only_left
        Delete what a client has left that was cut off; what has the name stays, and is the answer.

    Returns
    -------
    `CutThere` without a value: there was nothing of the name, and nothing is left of it.
    """
    parent, path = at.parent, at.path
    for _ in range(TRIES_MAX):
        yield fx.Sync(parent)
        counted, node = (yield fx.GetMany((parent, path))).nodes
        value = None if node is None else at.kind.decode(node.value, path)
        if value is not None and only_left:
            return CutThere(value)
        deletes: list[fx.Operation] = [] if node is None else [fx.Delete(path, fx.ANY_VERSION)]
        # After the version was read: a shard that came before that is in the map, and a later one refuses the commit.
        known: fx.Node | None = (yield fx.Get(layout.shard_map(at.place.path))) if at.kind.is_of_all else None
        there = () if known is None else decode_map(known.value, path).shards
        others = (places.shard_name(at.table, shard) for shard in there)
        for each in sorted({*shards, *others, *(() if value is None else (its.shard for its in value.shards))}):
            its_parent, its_path = at.of_shard(each)
            above, kept = (yield fx.GetMany((its_parent, its_path))).nodes
            # A shard that was removed since has nothing left.
            if above is not None and kept is not None:
                deletes.append(fx.Set(its_parent, b"", above.version))
                deletes.append(fx.Delete(its_path, fx.ANY_VERSION))
        if not deletes:
            return CutThere(None)
        # A node of this name that was deleted and made again may look like the one that was read: the parents' versions tell.
        counts = fx.Create(parent) if counted is None else fx.Set(parent, b"", counted.version)
        committed = yield fx.Commit(counts, *deletes)
        match committed:
            case fx.Applied():
                return CutThere(value)
            case fx.Unknown(is_sent=False):
                return NotChanged(NOT_SENT)
            case fx.Unknown():
                return fx.InDoubt()
            case fx.Refused(operation=fx.Create(path=refused), reason=fx.Reason.NO_NODE) if refused == parent:
                return GONE
    return BUSY


__all__ = [
    "GONE",
    "SHARDS_CHANGED",
    "CutName",
    "CutOutcome",
    "CutThere",
    "CutTorn",
    "CutValue",
    "KeepShard",
    "KeptShard",
    "NamedCuts",
    "TakeCut",
    "delete_named_cut",
    "make_named_cut",
    "put_named_cut",
]
