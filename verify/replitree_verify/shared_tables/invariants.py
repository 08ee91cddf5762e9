"""What must hold of tables on an object store at every moment, and when nothing more can happen."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.protocol.core import layout
from replitree.protocol.membership.table import DROPPED_HOST
from replitree.protocol.shares.share import ShareId
from replitree_verify.rules.stored_shares import marks_of, not_deleted, not_ended, of_shares
from replitree_verify.shared_tables.world import INCARNATION, TABLE, Shares, World, replica_of

DESCRIPTIONS = {
    "MARKED": "a registered part has a mark on every share that it has on the disk",
    "HELD": "a mark stands for a part on its replica's disk, or for one that has left it and is still to be let go of",
    "WHOLE": "the objects of every share that has a node are there",
    "OWNED": "a share's node has an owner",
    "ONCE": "a share is written, owned, or in the garbage: never two of these",
    "KNOWN": "objects are of shares that are written, owned or in the garbage, unless they came late",
    "SETTLES": "in the end nothing is being written or garbage, every mark has a registered part, every object an owner",
}


def violations(world: World, names: tuple[str, ...]) -> Iterator[str]:
    """Yield what does not hold, beginning with the name of the invariant.

    Parameters
    ----------
    names
        Of the seats; the first ones are those of the replicas.
    """
    marks = marks_of(world.tree, TABLE)
    yield from _of_replicas(world, names, marks)
    yield from of_shares(world, TABLE, marks)


def _of_replicas(world: World, names: tuple[str, ...], marks: set[tuple[str, str]]) -> Iterator[str]:
    """Yield what does not hold of marks and disks, of replicas that are not being dropped."""
    if world.tree.exists(layout.dropped(TABLE)):
        return  # its replicas release their marks before they leave
    for name, seat in zip(names, world.seats, strict=True):
        host = world.tree.get(layout.host(replica_of(name)))
        if host is None or host.value == DROPPED_HOST:
            continue
        registered = world.tree.children(layout.parts(replica_of(name))) or ()
        for part, share in _pairs(seat.disk.parts):
            if part in registered and (share, f"{name}~{INCARNATION}~{part}") not in marks:
                yield f"MARKED: {name} has {part} in {share} and no mark"
        here = _pairs((*seat.disk.parts, *seat.disk.leaving))
        known = {(share, f"{name}~{INCARNATION}~{part}") for part, share in here}
        for place, mark in sorted(marks):
            if mark.startswith(f"{name}~") and (place, mark) not in known:
                yield f"HELD: {place} is marked by {mark}, which is not there"


def _pairs(parts: tuple[tuple[str, Shares], ...]) -> Iterator[tuple[str, ShareId]]:
    """Yield every part with each of its shares."""
    return ((part, share) for part, shares in parts for share in shares)


def in_the_end(world: World, names: tuple[str, ...]) -> Iterator[str]:
    """Yield what does not hold where nothing more can happen."""
    tree = world.tree
    yield from not_ended(tree, TABLE)
    owned = set(tree.children(layout.shares(TABLE)) or ())
    for share in sorted(owned):
        for mark in tree.children(layout.share(TABLE, share)) or ():
            name, _, part = mark.split("~", 2)
            if tree.get(layout.part(replica_of(name), part)) is None:
                yield f"SETTLES: {mark} stays without a part"
    yield from not_deleted(world, TABLE)
    for name, seat in zip(names, world.seats, strict=True):
        if seat.disk.leaving and world.tree.get(layout.host(replica_of(name))) is not None:
            yield f"SETTLES: {name} has not let go of {seat.disk.leaving[0][0]}"


__all__ = ["DESCRIPTIONS", "in_the_end", "violations"]
