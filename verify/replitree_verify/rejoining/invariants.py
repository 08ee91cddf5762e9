"""What must hold of replicas that join again, at every moment."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.protocol.core import layout
from replitree.protocol.state.counted import decode_quorum
from replitree_verify.rejoining.world import INSERT, LATER, ONE, PART, TABLE, World, is_remade, replica_of
from replitree_verify.rules.stored_shares import marks_of

DESCRIPTIONS = {
    "COUNTED": "what the replica is counted for is on the disk of a process that has acted for it since it was last added to"
    " the table, as long as the insert is open",
    "HELD": "so is what the replica has registered",
    "OWN": "a mark of the replica is one of the process that was added last",
    "FENCED": "a process that was added before the replica was dropped, or the table was made anew, changes nothing in its name"
    " after that; what was begun to drop a table changes nothing in the next one",
}


def violations(world: World) -> Iterator[str]:
    """Yield what does not hold, beginning with the name of the invariant."""
    replica = replica_of(LATER) if world.tree.exists(layout.replica_path(replica_of(LATER))) else ONE
    node = world.tree.get(layout.replica_path(replica))
    added = "" if node is None else node.value.decode()
    is_dropped = world.tree.exists(layout.replica_dropped(replica))
    acting = [seat for seat in world.seats if seat.epoch is not None and seat.life == world.life]
    has_part = any(part == PART for seat in acting for part, _ in seat.disk)
    status = layout.quorum_status(TABLE, INSERT.insert)
    opened = world.tree.get(status)
    is_counted = opened is not None and ONE.name in decode_quorum(opened.value, status).replicas
    if is_counted and not has_part and not is_dropped:
        yield f"COUNTED: {replica.name}, which is {added}, has not what it is counted for"
    if world.tree.exists(layout.part(replica, PART)) and not has_part and not is_dropped:
        yield f"HELD: {replica.name}, which is {added}, has registered {PART}"
    for share, mark in sorted(marks_of(world.tree, TABLE)):
        of, incarnation, _ = mark.split("~", 2)
        if of == ONE.name and incarnation != added:
            yield f"OWN: {share} is marked by {mark}, and the replica is {added or 'gone'}"
    yield from (f"FENCED: {changed}" for changed in world.changed)
    if is_remade(world.tree) and world.tree.exists(layout.dropped(TABLE)):
        yield "FENCED: the table that was made anew is being dropped"


__all__ = ["DESCRIPTIONS", "violations"]
