"""Consumers: named readers of the change feed, for which replicas keep what they have not read yet.

A consumer is a node ``consumers/<name>`` with the first index of the log that it has not read.  It is no entry of the log: each
replica reads the nodes before it deletes what the feed needs, as it reads tags (`replitree.protocol.upkeep.tags`).

=========  =============================================================================================================
change     commit
=========  =============================================================================================================
made       `Create`; the replica that makes it holds the feed from its index on until the commit is done
moved      compare-and-set, forward only: an index below that of the node is refused, and so is an expired consumer
expired    compare-and-set of a mark, if its node is still the one by which its hold was found to be over
dropped    `Delete`, by compare-and-set as well
=========  =============================================================================================================

Guarantee F7: entries and feed parts at or above a consumer's index are kept until its hold ends, and its hold ends visibly: by
the mark, or because it was dropped.  The replica that made the consumer gives it, and so does every replica whose table lost
the part after that.  The order that does it:

========  ===========================================================  =======================================================
who       order                                                        why
========  ===========================================================  =======================================================
consumer  hold the feed, check that it is here, commit, end the hold   what was chosen before the hold is not chosen any more
removal   choose parts and lines, read the consumers, delete what is   a consumer that is committed after the read has its
          still chosen and what no consumer keeps                      hold before
expiry    judge, mark by compare-and-set; a later removal deletes      nothing goes while the node says that it holds
========  ===========================================================  =======================================================

A consumer that begins with a snapshot keeps the parts of that version, too, until it moves: a move to its own index says that
the snapshot is read.

Its hold is over when it has not moved for `hold_s` although there was something to read, by coordination's clock, or when one
replica keeps more than `bytes_max` for it alone.  `replitree.replica.table.consuming` judges that.

Absent on purpose: rows, and the process that reads them.  Two readers of one name move one index, which is never behind what
one of them has reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from replitree.decoding import json_decoder
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.values import decode_value
from replitree.protocol.membership.activate import Replaced
from replitree.protocol.upkeep.named_nodes import (
    NODE_BYTES_MAX,
    NodeChange,
    NodeThere,
    NotChanged,
    change_node,
    check_node_name,
    delete_node,
    list_nodes,
    make_node,
)

CONSUMER_FORMAT = 1

CONSUMERS_MAX = 100
"""Consumers that a table has at most: each replica reads all of them when one has changed."""

HOLD_S = 7 * 24 * 3600.0
"""For how long a consumer holds by default when it does not move, in seconds."""

HOLD_BYTES_MAX = 64 << 30
"""Bytes of parts that a replica keeps by default for one consumer alone."""

NO_FLOOR = LogIndex((1 << 63) - 1)
"""The lowest index that is held, where none is."""


def check_consumer_name(name: str) -> str:
    """Return `name` if a consumer may have it.

    Raises
    ------
    InvalidName
        It is not a letter followed by letters, digits, ``_``, ``.`` and ``-``, or is too long.

    >>> check_consumer_name("nightly-etl")
    'nightly-etl'
    """
    return check_node_name(name, "a consumer")


class ConsumerValue(msgspec.Struct, frozen=True):
    """Value of a consumer's node.

    Attributes
    ----------
    index
        The first entry that it has not read.
    id
        The id of the command that made it.
    replica
        The replica that made it.
    hold_s, bytes_max
        Its limits: for how long it holds when it does not move, and how many bytes of parts for it alone.
    snapshot
        The version that it reads first, if that is not read yet; its index is the same.
    parts
        The names of the snapshot's parts on the replica that made it, ascending.
    expired
        Why its hold has ended; "": it holds.
    """

    index: int
    id: fx.EntryId
    replica: str
    hold_s: float = HOLD_S
    bytes_max: int = HOLD_BYTES_MAX
    snapshot: int | None = None
    parts: tuple[str, ...] = ()
    expired: str = ""
    format: int = CONSUMER_FORMAT


_decode = json_decoder(ConsumerValue).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_consumer(value: ConsumerValue) -> bytes:
    """Return the bytes of a consumer's node."""
    return _encode(value)


def decode_consumer(raw: bytes, where: str) -> ConsumerValue:
    """Read a consumer's node.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode, raw, where, CONSUMER_FORMAT)


@dataclass(frozen=True, slots=True)
class ConsumerNode:
    """A consumer as it was read; `moved_ms` is when its node was written last, by coordination's clock."""

    name: str
    value: ConsumerValue
    version: fx.Version
    moved_ms: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Consumers:
    """The consumers of a table, ascending, when the node ``consumers`` had this version; None: no such node, or not read."""

    version: fx.Version | None = None
    all: tuple[ConsumerNode, ...] = ()

    @property
    def holding(self) -> tuple[ConsumerNode, ...]:
        """Those whose hold has not ended."""
        return tuple(each for each in self.all if not each.value.expired)

    @property
    def floor(self) -> LogIndex:
        """The lowest index that one of them holds; `NO_FLOOR`: none does."""
        return LogIndex(min((each.value.index for each in self.holding), default=NO_FLOOR))

    @property
    def parts(self) -> frozenset[str]:
        """The names of the parts of all snapshots that they have not read yet."""
        return frozenset(part for each in self.holding for part in each.value.parts)


NO_CONSUMERS = Consumers()


def read_consumers(table: TablePlace, known: Consumers = NO_CONSUMERS) -> fx.Procedure[Consumers]:
    """Read the consumers as they are now; `known` are those that were read before."""
    # No sync is needed, as for tags: the session has read that the part left the table, or the entry after that of a line.
    listed = yield from list_nodes(layout.consumers(table), known.version)
    if listed is None:
        return known
    return Consumers(
        listed.version, tuple(_consumer(layout.consumer(table, name), node) for name, node in listed.nodes)
    )


def read_consumer(table: TablePlace, name: str) -> fx.Procedure[ConsumerNode | None]:
    """Return the consumer of a name; None: there is none."""
    path = layout.consumer(table, name)
    yield fx.Sync(layout.consumers(table))
    node: fx.Node | None = yield fx.Get(path)
    return None if node is None else _consumer(path, node)


def _consumer(path: str, node: fx.Node) -> ConsumerNode:
    name = path.rpartition("/")[2]
    return ConsumerNode(name, decode_consumer(node.value, path), node.version, node.changed_ms)


@dataclass(frozen=True, slots=True)
class ConsumerChanged:
    """The consumer is made, moved, marked or dropped: it is this one, or was it before it was dropped."""

    value: ConsumerValue


@dataclass(frozen=True, slots=True)
class OtherConsumer:
    """Nothing was changed: the consumer is this one; None: there is none of this name.

    Another one has the name, or it has expired, or stands above the index that it was to be moved to, or has moved since its
    hold was judged.
    """

    value: ConsumerValue | None


ConsumerOutcome: TypeAlias = ConsumerChanged | OtherConsumer | NotChanged | Replaced | fx.InDoubt
"""After `InDoubt` the consumer may be changed until the replica has another epoch."""


def put_consumer(
    replica: Replica, me: bytes, epoch: fx.Epoch, name: str, value: ConsumerValue
) -> fx.Procedure[ConsumerOutcome]:
    """Make a consumer; one of this name with the same id is the answer.

    Parameters
    ----------
    replica, me, epoch
        The replica that makes it, the process that acts for it, and its epoch.
    name, value
        The consumer; what it keeps is on this replica's disk, and stays there until this has ended.
    """
    table, encoded = replica.table, encode_consumer(value)
    path = layout.consumer(table, name)
    if len(encoded) > NODE_BYTES_MAX:
        return NotChanged(
            f"the snapshot has {len(value.parts):,} parts, whose names do not fit into one node; merge first"
            f" (replitree optimize {table.name} --final)"
        )
    outcome = yield from make_node(replica, me, epoch, path, value, encoded, decode_consumer)
    if isinstance(outcome, NodeThere):
        # It may have moved since an earlier try made it.
        made = outcome.value
        return ConsumerChanged(made) if made is not None and made.id == value.id else OtherConsumer(made)
    return outcome


def move_consumer(
    replica: Replica, me: bytes, epoch: fx.Epoch, name: str, index: LogIndex
) -> fx.Procedure[ConsumerOutcome]:
    """Say that a consumer has read everything below an index, and its snapshot; parameters as `put_consumer`."""
    path = layout.consumer(replica.table, name)

    def decide(node: fx.Node | None, tried: fx.Node | None) -> NodeChange[ConsumerOutcome]:
        value = None if node is None else decode_consumer(node.value, path)
        if node is None or value is None or value.expired:
            return NodeChange(None, OtherConsumer(value))
        if value.index > index:
            # Another call may have moved it on after a commit of this one.
            return NodeChange(None, OtherConsumer(value) if tried is None else ConsumerChanged(value))
        if value.index == index and value.snapshot is None:
            return NodeChange(None, ConsumerChanged(value))
        moved = msgspec.structs.replace(value, index=index, snapshot=None, parts=(), expired="")
        return NodeChange(fx.Set(path, encode_consumer(moved), fx.ANY_VERSION), ConsumerChanged(moved))

    return (yield from change_node(replica, me, epoch, path, decide))


def expire_consumer(
    replica: Replica, me: bytes, epoch: fx.Epoch, seen: ConsumerNode, why: str
) -> fx.Procedure[ConsumerOutcome]:
    """Mark that the hold of a consumer has ended, unless it has moved since it was judged.

    Parameters
    ----------
    replica, me, epoch
        As `put_consumer`.
    seen
        The consumer by which its hold was found to be over.
    why
        The reason, as its reader shall hear it.
    """
    path = layout.consumer(replica.table, seen.name)

    def decide(node: fx.Node | None, _: fx.Node | None) -> NodeChange[ConsumerOutcome]:
        value = None if node is None else decode_consumer(node.value, path)
        if node is None or value is None:
            return NodeChange(None, OtherConsumer(None))
        if value.expired:
            return NodeChange(None, ConsumerChanged(value))
        if node.version != seen.version or value.id != seen.value.id:
            return NodeChange(None, OtherConsumer(value))
        marked = msgspec.structs.replace(value, parts=(), expired=why)
        return NodeChange(fx.Set(path, encode_consumer(marked), fx.ANY_VERSION), ConsumerChanged(marked))

    return (yield from change_node(replica, me, epoch, path, decide))


def drop_consumer(replica: Replica, me: bytes, epoch: fx.Epoch, name: str) -> fx.Procedure[ConsumerOutcome]:
    """Drop a consumer, whether it holds or has expired; parameters as `put_consumer`."""
    outcome = yield from delete_node(replica, me, epoch, layout.consumer(replica.table, name), decode_consumer)
    if isinstance(outcome, NodeThere):
        return OtherConsumer(None) if outcome.value is None else ConsumerChanged(outcome.value)
    return outcome


__all__ = [
    "CONSUMERS_MAX",
    "HOLD_BYTES_MAX",
    "HOLD_S",
    "NO_CONSUMERS",
    "NO_FLOOR",
    "ConsumerChanged",
    "ConsumerNode",
    "ConsumerOutcome",
    "ConsumerValue",
    "Consumers",
    "OtherConsumer",
    "check_consumer_name",
    "decode_consumer",
    "drop_consumer",
    "encode_consumer",
    "expire_consumer",
    "move_consumer",
    "put_consumer",
    "read_consumer",
    "read_consumers",
]
