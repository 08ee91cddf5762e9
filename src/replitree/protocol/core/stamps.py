"""Stamps: reads that also tell in which transaction a node was created and written last, and what the session had been told.

Coordination numbers its transactions, and gives one number (ZooKeeper: zxid) to all that one commit changes, wherever in the
tree that is.  So the number of a transaction is a position in all logs at once: a *cut* (`protocol.sharded.cut`).

These effects are beside those of `effects`, because the procedures of one table need none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import NewType, TypeAlias

from replitree.protocol.core import effects as fx

Zxid = NewType("Zxid", int)
"""Number of a transaction of coordination: rising, with gaps; 0 is before all of them."""

BEFORE_ALL = Zxid(0)
"""Stands for "nothing is known": every transaction comes after it."""


@dataclass(frozen=True, slots=True)
class StampedNode:
    """A node, and when it was changed.

    Attributes
    ----------
    value, version
        As of `effects.Node`.
    created, changed
        The transactions that created it, and that wrote its value last.
    number
        The number that its next sequential child gets, as `effects.NextNumber` tells it.
    """

    value: bytes
    version: fx.Version
    created: Zxid
    changed: Zxid
    number: int = 0


@dataclass(frozen=True, slots=True)
class Stamped:
    """Outcome of `GetStamped`.

    Attributes
    ----------
    nodes
        A node, or None where there is none, for each path, in order.
    seen
        The highest transaction of which coordination had told, on this connection, *before* the request was sent.  No read of
        this request shows an older state: all that was committed up to there is seen.
    """

    nodes: tuple[StampedNode | None, ...]
    seen: Zxid


@dataclass(frozen=True, slots=True)
class GetStamped(fx.Effect):
    """Read some nodes with their stamps, one after the other in this order, in one request.  Outcome: `Stamped`.

    The reads are not one moment: a commit may take place between two of them.  None shows an older state than the one before.

    `Stamped.seen` is never taken from the answer itself: some versions of ZooKeeper write into it the transaction that is the
    last one *after* the read, and the read may lack it.
    """

    paths: tuple[str, ...]


Stamps: TypeAlias = MutableMapping[str, tuple[Zxid, Zxid]]
"""The transactions that created each node and that wrote it last, by path."""


def stamp(stamps: Stamps, operations: Iterable[fx.Operation], outcome: fx.Applied, zxid: Zxid) -> None:
    """Note in `stamps` what a commit has changed: all of it has the commit's own number.

    >>> stamps = {"/a": (1, 1), "/b": (2, 2)}
    >>> changed = (fx.Set("/a", b"", 0), fx.Delete("/b", 0), fx.Create("/c-", sequential=True), fx.Check("/a", 1))
    >>> stamp(stamps, changed, fx.Applied(("/c-0000000000",)), Zxid(7))
    >>> stamps
    {'/a': (1, 7), '/c-0000000000': (7, 7)}
    """
    created = iter(outcome.created)
    for operation in operations:
        match operation:
            case fx.Create():
                stamps[next(created)] = zxid, zxid
            case fx.Set(path):
                stamps[path] = stamps[path][0], zxid
            case fx.Delete(path):
                del stamps[path]
            case fx.Check():
                pass
