"""Consumers of the change feed of a sharded table: each stands at a cut, and holds what it has not read in every shard.

A consumer is a named cut (`protocol.upkeep.named_cuts`).  In each shard it has a node ``consumers/<name>``, by which the
replicas of the shard hold what comes from its index on, as for a consumer of any table (`protocol.upkeep.consumers`).

==========  ============================================================================================================
change      commit
==========  ============================================================================================================
made        as any named cut; the map is checked at its version, so no shard has come meanwhile
moved       Set(sharded/<D>/consumers @ version), Set(sharded/<D>/consumers/<name>); of each shard in the map
            Set(consumers @ version), Set(consumers/<name>): all shards at once
new shard   Set(sharded/<D>/consumers @ version) | Create(sharded/<D>/consumers); of the shard Create(consumers),
            Create(consumers/<name>) of each consumer, in the commit that puts the shard into the map
expired     in one shard, by a replica of it; that ends the hold of the whole consumer, as readers see it
dropped     as any named cut
==========  ============================================================================================================

Guarantees:

* Every shard in the map holds what the consumer has not read, until a shard has marked that its hold has ended.
* A consumer is moved forward only, in each shard, too.  It is moved in all shards or in none.
* A new shard holds everything: it has no entry yet.

A move reads the version of ``sharded/<D>/consumers``, then the map, then the nodes of the shards.  So a shard that comes, and a
consumer that is dropped or moved by another client, refuse its commit; a mark of a replica does so by the version in its shard.

Moves of buckets change nothing here: the feed does not have them (`protocol.sharded.feed`).  A shard leaves the map only when
every consumer stands behind the changes that only this shard has (`protocol.upkeep.shard_removal`).
"""

from __future__ import annotations

from collections.abc import Mapping
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
from replitree.protocol.sharded.cut import Cut, parse_cut
from replitree.protocol.sharded.shard_map import decode_map
from replitree.protocol.upkeep.consumers import (
    HOLD_BYTES_MAX,
    HOLD_S,
    ConsumerValue,
    decode_consumer,
    encode_consumer,
)
from replitree.protocol.upkeep.named_cuts import (
    GONE,
    SHARDS_CHANGED,
    CutName,
    CutOutcome,
    CutThere,
    CutTorn,
    KeptShard,
    NamedCuts,
)
from replitree.protocol.upkeep.named_nodes import BUSY, TRIES_MAX, NotChanged

CUT_CONSUMER_FORMAT = 1


class CutConsumerValue(msgspec.Struct, frozen=True):
    """Value of a consumer's node.

    Attributes
    ----------
    cut
        Everything up to there was read, as text.
    id
        The id of the command that made it.
    shards
        Where the cut lies in the log of each shard.
    hold_s, bytes_max
        Its limits in each shard, as of `replitree.protocol.upkeep.consumers.ConsumerValue`.
    snapshot
        Whether it reads the table at the cut first, and has not done that yet.
    """

    cut: str
    id: fx.EntryId
    shards: tuple[KeptShard, ...]
    hold_s: float = HOLD_S
    bytes_max: int = HOLD_BYTES_MAX
    snapshot: bool = False
    format: int = CUT_CONSUMER_FORMAT


_decode = json_decoder(CutConsumerValue).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_cut_consumer(value: CutConsumerValue) -> bytes:
    """Return the bytes of a consumer's node."""
    return _encode(value)


def decode_cut_consumer(raw: bytes, where: str) -> CutConsumerValue:
    """Read a consumer's node.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode, raw, where, CUT_CONSUMER_FORMAT)


CUT_CONSUMERS = NamedCuts(
    *(layout.consumers, layout.consumer, encode_cut_consumer, decode_cut_consumer, decode_consumer), is_of_all=True
)


@dataclass(frozen=True, slots=True)
class HoldOver:
    """Nothing was changed: the hold of the consumer has ended in this shard, for this reason."""

    value: CutConsumerValue
    shard: str
    why: str


ConsumerMove: TypeAlias = CutOutcome[CutConsumerValue] | HoldOver
"""What became of a move: a consumer that stands at the cut, or above it; it was not moved back then."""


def move_cut_consumer(
    at: CutName[CutConsumerValue], cut: Cut, positions: Mapping[str, int]
) -> fx.Procedure[ConsumerMove]:
    """Say that a consumer has read everything up to a cut, and its snapshot, in all shards at once.

    Parameters
    ----------
    at
        The name.
    cut
        Where it is to stand.
    positions
        Where the cut lies in the log of each shard, by its name.  `SHARDS_CHANGED`: the map has another shard.
    """
    parent, path, map_path = at.parent, at.path, layout.shard_map(at.place.path)
    for _ in range(TRIES_MAX):
        yield fx.Sync(parent)
        # In this order: a shard that comes after the version was read raises it.
        counted, known, node = (yield fx.GetMany((parent, map_path, path))).nodes
        if known is None:
            return GONE
        if counted is None or node is None:
            return CutThere(None)
        value, shards = decode_cut_consumer(node.value, path), decode_map(known.value, map_path).shards
        names = [places.shard_name(at.table, shard) for shard in shards]
        if not positions.keys() >= set(names):
            return SHARDS_CHANGED
        stands, sets = parse_cut(value.cut).zxid, list[fx.Operation]()
        for name in names:
            its_parent, its_path = at.of_shard(name)
            above, its_node = (yield fx.GetMany((its_parent, its_path))).nodes
            held = None if its_node is None else decode_consumer(its_node.value, its_path)
            is_back = held is not None and held.index > positions[name] and stands <= cut.zxid
            if above is None or held is None or held.id != value.id or is_back:
                return CutTorn(name)
            if held.expired:
                return HoldOver(value, name, held.expired)
            moved = msgspec.structs.replace(held, index=positions[name], snapshot=None, parts=())
            sets += (
                fx.Set(its_parent, b"", above.version),
                fx.Set(its_path, encode_consumer(moved), fx.ANY_VERSION),
            )
        if stands > cut.zxid or (stands == cut.zxid and not value.snapshot):
            return CutThere(value)
        kept = tuple(KeptShard(name, positions[name]) for name in names)
        after = msgspec.structs.replace(value, cut=str(cut), shards=kept, snapshot=False)
        counts = fx.Set(parent, b"", counted.version)
        committed = yield fx.Commit(counts, fx.Set(path, encode_cut_consumer(after), fx.ANY_VERSION), *sets)
        match committed:
            case fx.Applied():
                return CutThere(after)
            case fx.Unknown(is_sent=False):
                return NotChanged(NOT_SENT)
            case fx.Unknown():
                return fx.InDoubt()
    return BUSY


def hold_in_new_shard(root: str, table: str, shard: str) -> fx.Procedure[tuple[fx.Operation, ...]]:
    """Return what makes the consumers of a sharded table hold in a new shard, which has no entry yet.

    The operations belong into the commit that puts the shard into the map.

    Parameters
    ----------
    root, table
        Below which path the cluster lies, and the sharded table's name.
    shard
        The new shard's name.
    """
    whole, own = TablePlace(layout.sharded(root, table)), TablePlace(places.hosted_path(root, shard))
    parent = layout.consumers(whole)
    yield fx.Sync(parent)
    counted: fx.Node | None = yield fx.Get(parent)
    if counted is None:
        # Of the first consumer the version tells nothing: it comes with this node.
        return (fx.Create(parent),)
    # The version is read before the list: a change in between refuses the commit.
    names: tuple[str, ...] = (yield fx.Children(parent)) or ()
    many: fx.Many = yield fx.GetMany(tuple(layout.consumer(whole, name) for name in names))
    creates: list[fx.Operation] = [fx.Create(layout.consumers(own))] if names else []
    for name, node in zip(names, many.nodes, strict=True):
        if node is not None:
            value = decode_cut_consumer(node.value, layout.consumer(whole, name))
            holds = ConsumerValue(0, value.id, "", value.hold_s, value.bytes_max)
            creates.append(fx.Create(layout.consumer(own, name), encode_consumer(holds)))
    return (fx.Set(parent, b"", counted.version), *creates)


__all__ = [
    "CUT_CONSUMERS",
    "ConsumerMove",
    "CutConsumerValue",
    "HoldOver",
    "decode_cut_consumer",
    "encode_cut_consumer",
    "hold_in_new_shard",
    "move_cut_consumer",
]
