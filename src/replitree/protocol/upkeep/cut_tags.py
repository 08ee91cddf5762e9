"""Tags of a sharded table: each names a cut, and keeps what the cut has in every shard.

A tag has one node in each shard, which keeps the parts of that shard as any tag of a table does
(`protocol.upkeep.tags`), and one node ``sharded/<D>/tags/<name>``, which readers find.  In this order:

1. a snapshot of all shards at one cut, with leases
2. ``tags/<name>`` in each shard, by the replica that has the snapshot, for the index that the cut has there
3. one commit of the client (`put_cut_tag`)::

       Check(life-<incarnation>), Check(map), Set(sharded/<D>/tags @ version) | Create(sharded/<D>/tags),
       Create(sharded/<D>/tags/<name>)

The version of ``sharded/<D>/tags`` is read first, then the nodes of all shards.  Whatever deletes one of these raises that
version in the same commit.  So a tag that readers find is kept by all its shards.

*Deleting* (`delete_cut_tag`) is one commit, too: it deletes the node of the table and those of all shards.  What a client has
left that was cut off between 2 and 3 is deleted the same way, when the name is given or deleted the next time; that commit
proves by the version of ``sharded/<D>/tags`` that no tag of the name has come meanwhile.

*Doubt.*  A client has no epoch, so a commit whose answer is lost may come later.  It proves everything that it relies on, so it
does no harm.  The client repeats its call: the id tells its own tag from another one.

Absent on purpose: the removal of what was left, by anything but the next call with the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from replitree.decoding import json_decoder
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import NOT_SENT
from replitree.protocol.core.values import decode_value
from replitree.protocol.sharded import places
from replitree.protocol.upkeep.named_nodes import BUSY, TRIES_MAX, NotChanged
from replitree.protocol.upkeep.tags import decode_tag

CUT_TAG_FORMAT = 1


class TaggedShard(msgspec.Struct, frozen=True):
    """What a tag has of one shard.

    Attributes
    ----------
    shard
        The shard's name.
    index
        Exactly what its log has below this index.
    replica
        The replica that had it when the tag was made.
    """

    shard: str
    index: int
    replica: str


class CutTagValue(msgspec.Struct, frozen=True):
    """Value of a tag's node.

    Attributes
    ----------
    cut
        The cut, as text.
    id
        The id of the command that made it.
    shards
        All shards that the table had at the cut.
    parts, rows, bytes
        Of all shards together; bytes of data files.
    """

    cut: str
    id: fx.EntryId
    shards: tuple[TaggedShard, ...]
    parts: int = 0
    rows: int = 0
    bytes: int = 0
    format: int = CUT_TAG_FORMAT


_decode = json_decoder(CutTagValue).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_cut_tag(value: CutTagValue) -> bytes:
    """Return the bytes of a tag's node.

    >>> encode_cut_tag(CutTagValue("5f0c@7", fx.EntryId("c"), (TaggedShard("d~0", 3, "r1"),)))
    b'{"cut":"5f0c@7","id":"c","shards":[{"shard":"d~0","index":3,"replica":"r1"}],"parts":0,"rows":0,"bytes":0,"format":1}'
    """
    return _encode(value)


def decode_cut_tag(raw: bytes, where: str) -> CutTagValue:
    """Read a tag's node.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode, raw, where, CUT_TAG_FORMAT)


@dataclass(frozen=True, slots=True)
class TakeCut(fx.Effect):
    """Take a snapshot of all shards at one cut, whose parts stay for a while.  Outcome: the tag, as `CutTagValue`."""


@dataclass(frozen=True, slots=True)
class KeepShard(fx.Effect):
    """Have the replica that has the snapshot of a shard keep its parts, under a tag of the shard.  Outcome: None.

    A client that can't have it ends: what it has left is deleted by the next call with the name.
    """

    shard: TaggedShard


@dataclass(frozen=True, slots=True)
class CutTagThere:
    """What has the name now; None: nothing.  It is this command's own when it has its id."""

    value: CutTagValue | None


@dataclass(frozen=True, slots=True)
class CutTagTorn:
    """Nothing was changed: this shard does not keep what the tag says; another client has deleted that meanwhile."""

    shard: str


CutTagOutcome: TypeAlias = CutTagThere | CutTagTorn | NotChanged | fx.InDoubt
"""After `InDoubt` the change may have taken place, or takes place later."""

GONE = NotChanged("the sharded table is being dropped")


def make_cut_tag(
    root: str, table: str, incarnation: str, name: str, known_as: fx.EntryId, shards: Sequence[str]
) -> fx.Procedure[CutTagOutcome]:
    """Make a tag, in the three steps; one of this name with the same id is the answer.

    Parameters
    ----------
    root, table, incarnation, name
        As of `put_cut_tag`.
    known_as
        The id of the command.
    shards
        The names of the shards that there are.
    """
    left = yield from delete_cut_tag(root, table, name, shards, only_left=True)
    if left != CutTagThere(None):
        return left
    value: CutTagValue = yield TakeCut()
    assert value.id == known_as
    for each in value.shards:
        yield KeepShard(each)
    return (yield from put_cut_tag(root, table, incarnation, name, value))


def put_cut_tag(root: str, table: str, incarnation: str, name: str, value: CutTagValue) -> fx.Procedure[CutTagOutcome]:
    """Make a tag that all its shards keep already; one of this name with the same id is the answer.

    Parameters
    ----------
    root, table, incarnation
        Below which path the cluster lies, the sharded table's name, and which table of the name it is.
    name, value
        The tag.
    """
    place = layout.sharded(root, table)
    parent, path = layout.tags(TablePlace(place)), layout.tag(TablePlace(place), name)
    there = fx.Check(places.life(place, incarnation), fx.ANY_VERSION), fx.Check(layout.shard_map(place), fx.ANY_VERSION)
    for _ in range(TRIES_MAX):
        yield fx.Sync(parent)
        counted, node = (yield fx.GetMany((parent, path))).nodes
        if node is not None:
            return CutTagThere(decode_cut_tag(node.value, path))
        paths = tuple(layout.tag(TablePlace(places.hosted_path(root, each.shard)), name) for each in value.shards)
        kept = (yield fx.GetMany(paths)).nodes
        for each, at, its in zip(value.shards, paths, kept, strict=True):
            tag = None if its is None else decode_tag(its.value, at)
            if tag is None or (tag.id, tag.index) != (value.id, each.index):
                return CutTagTorn(each.shard)
        # Whatever deletes one of these nodes raises this version, too.
        counts = fx.Create(parent) if counted is None else fx.Set(parent, b"", counted.version)
        committed = yield fx.Commit(*there, counts, fx.Create(path, encode_cut_tag(value)))
        match committed:
            case fx.Applied():
                return CutTagThere(value)
            case fx.Refused(operation=operation) if operation in there:
                return GONE
            case fx.Unknown(is_sent=False):
                return NotChanged(NOT_SENT)
            case fx.Unknown():
                return fx.InDoubt()
    return BUSY


def delete_cut_tag(
    root: str, table: str, name: str, shards: Sequence[str], *, only_left: bool = False
) -> fx.Procedure[CutTagOutcome]:
    """Delete a tag, and what its shards keep for it; return what it was.

    Parameters
    ----------
    root, table, name
        As `put_cut_tag`.
    shards
        The names of the shards that there are.
    only_left
        Delete what a client has left that was cut off; a tag of the name stays, and is the answer.

    Returns
    -------
    `CutTagThere` without a value: there was no such tag, and nothing is left of one.
    """
    place = TablePlace(layout.sharded(root, table))
    parent, path = layout.tags(place), layout.tag(place, name)
    for _ in range(TRIES_MAX):
        yield fx.Sync(parent)
        counted, node = (yield fx.GetMany((parent, path))).nodes
        value = None if node is None else decode_cut_tag(node.value, path)
        if value is not None and only_left:
            return CutTagThere(value)
        deletes: list[fx.Operation] = [] if node is None else [fx.Delete(path, fx.ANY_VERSION)]
        for each in sorted({*shards, *(() if value is None else (its.shard for its in value.shards))}):
            shard = TablePlace(places.hosted_path(root, each))
            above, kept = (yield fx.GetMany((layout.tags(shard), layout.tag(shard, name)))).nodes
            # A shard that was removed since has nothing left.
            if above is not None and kept is not None:
                deletes.append(fx.Set(layout.tags(shard), b"", above.version))
                deletes.append(fx.Delete(layout.tag(shard, name), fx.ANY_VERSION))
        if not deletes:
            return CutTagThere(None)
        # A node of this name that was deleted and made again may look like the one that was read: the parents' versions tell.
        counts = fx.Create(parent) if counted is None else fx.Set(parent, b"", counted.version)
        committed = yield fx.Commit(counts, *deletes)
        match committed:
            case fx.Applied():
                return CutTagThere(value)
            case fx.Unknown(is_sent=False):
                return NotChanged(NOT_SENT)
            case fx.Unknown():
                return fx.InDoubt()
            case fx.Refused(operation=fx.Create(path=refused), reason=fx.Reason.NO_NODE) if refused == parent:
                return GONE
    return BUSY


__all__ = [
    "CutTagOutcome",
    "CutTagThere",
    "CutTagTorn",
    "CutTagValue",
    "KeepShard",
    "TaggedShard",
    "TakeCut",
    "decode_cut_tag",
    "delete_cut_tag",
    "encode_cut_tag",
    "make_cut_tag",
    "put_cut_tag",
]
