"""Coordination has lost a table on an object store: it is made anew from one disk, and the other replica joins again."""

from __future__ import annotations

from dataclasses import replace

from replitree.coordination.tree import Tree
from replitree.protocol.core.effects import ListParts
from replitree.protocol.core.parts import parse_part
from replitree.protocol.rescue.restore import Restored, restore
from replitree.protocol.rescue.restore_shared import RestoredShares
from replitree.protocol.shares.share_effects import NameShares, SharedPart, SharesOf, SharesSettled
from replitree_verify.shared_tables.memory import AwaitActive
from replitree_verify.shared_tables.world import (
    CONTENT,
    INCARNATION,
    PIECES,
    STAGING,
    STORE_ID,
    Disk,
    Shares,
    World,
    replica_of,
)
from replitree_verify.world.kernel import Running

RUNS_MAX = 3


def wiped(world: World, part: str, shares: Shares, replicas: int) -> World:
    """Return the world in which coordination has nothing, and the first replicas have a part of these shares on their disks."""
    disk = Disk(parts=((part, shares),))
    seats = tuple(replace(seat, disk=disk) if number < replicas else seat for number, seat in enumerate(world.seats))
    objects = frozenset((share, piece) for share in shares for piece in range(PIECES))
    return replace(world, tree=Tree.of({}), objects=objects, seats=seats, stray=frozenset(shares))


def restore_table(name: str) -> Running:
    """Make the table of what is on this replica's disk, as an operator does whose server does not run."""
    for _ in range(RUNS_MAX):
        (run,) = yield NameShares(STAGING)  # a name that no other run has
        yield SharesSettled((run,))
        parts: tuple[str, ...] = yield ListParts()
        found: tuple[SharedPart, ...] = yield SharesOf(parts)
        shares = {part: tuple(each.share for each in found if each.part == part) for part in parts}
        contents = {parse_part(part): CONTENT for part in parts}
        known = RestoredShares(STORE_ID, INCARNATION, shares)
        if isinstance((yield from restore(replica_of(name), run.encode(), b"", b"", contents, known)), Restored):
            return


def rejoin() -> Running:
    """Become active: the life thread joins the table if it is there, and recovers from a good replica."""
    yield AwaitActive()


__all__ = ["rejoin", "restore_table", "wiped"]
