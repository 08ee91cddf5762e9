"""Clean results: forget what content results had that no replica will ever make again.

A node ``results/<part>`` is needed by every replica that may still make the part: while the part is in the table, and until
each replica has pulled the entry by which it left and has executed all that came before.  A slow replica would otherwise
make it differently, or do what a killed mutation was kept from.

A replica that is lost and inactive makes nothing any more: when it comes back it takes over what another one has, and needs
what that one needs.  So one that never comes back keeps no node for longer than the log keeps entries for it.  One that joins
while the log is whole pulls it from the beginning, and may make everything: the commit proves that none was added since.

Only the leader cleans; two at once are harmless.
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.parts import Part
from replitree.protocol.membership.table import NOT_LOST
from replitree.protocol.state.pull import Place

CLEAN_BATCH = 100
"""Nodes deleted in one commit."""


@dataclass(frozen=True, slots=True)
class Need:
    """The lowest index that some replica has not pulled or not executed, when the version of `replicas` was `added`."""

    lowest: fx.LogIndex
    added: fx.Version


def lowest_need(table: TablePlace) -> fx.Procedure[Need | None]:
    """Find out what replicas may still make; None while one is added or removed."""
    added: fx.Node | None = yield fx.Get(layout.replicas(table))
    names = (yield fx.Children(layout.replicas(table))) or ()
    replicas = tuple(Replica(table, name) for name in names)
    # The pointers are read before the queues: an entry that is pulled in between is still counted by its pointer.
    many: fx.Many = yield fx.GetMany(tuple(layout.log_pointer(replica) for replica in replicas))
    needs: list[int] = []
    for replica, pointer in zip(replicas, many.nodes, strict=True):
        queue = yield fx.Children(layout.queue(replica))
        if pointer is None or queue is None:
            return None
        needs.append(min((layout.pointer_index(pointer.value), *(layout.queue_index(name) for name in queue[:1]))))
    # This is read after the queues, and the lost marks after it: a replica that is left out takes over a later state of another
    # replica than the one that was read.
    active: fx.Many = yield fx.GetMany(tuple(layout.is_active(replica) for replica in replicas))
    lost: fx.Many = yield fx.GetMany(tuple(layout.is_lost(replica) for replica in replicas))
    counting = tuple(
        need
        for need, is_active, mark in zip(needs, active.nodes, lost.nodes, strict=True)
        if is_active is not None or mark is None or mark.value == NOT_LOST
    )
    return Need(fx.LogIndex(min(counting)), added.version) if counting and added is not None else None


def clean_results(replica: Replica, epoch: fx.Epoch, results: tuple[str, ...], added: fx.Version) -> fx.Procedure[int]:
    """Delete the nodes of results that are not needed, if no replica was added since the look (`Need.added`).

    Returns
    -------
    How many; a batch of which one node is gone already is left for the next turn.
    """
    cleaned = 0
    for first in range(0, len(results), CLEAN_BATCH):
        batch = results[first : first + CLEAN_BATCH]
        committed = yield fx.Commit(
            fx.Check(layout.host(replica), epoch),
            fx.Check(layout.replicas(replica.table), added),
            *(fx.Delete(layout.result(replica.table, name), fx.ANY_VERSION) for name in batch),
        )
        cleaned += len(batch) if isinstance(committed, fx.Applied) else 0
    return cleaned


def has_left(part: Part, place: Place) -> bool:
    """Whether a part was in the table and is not any more, in the log up to a place; False also when it is to come.

    What is to come has sources, and those are there.  What left is covered by a later form, or nothing is left in its place.
    """
    if part.block_max >= place.pointer.index or part in place.parts:
        return False
    around = place.parts.between(part.partition, part.block_min, part.block_max)
    return not around or place.parts.covering(part) is not None
