"""What must hold of parts that move, in simulated runs: while they do, and when nothing is left to do.

======== =======================================================================================================================
SINGLE   a part that replicas have moved into the store is there once, unless a claim ended early, or a replica had the part and
         had not registered it yet
SETTLES  at rest nothing is noted or claimed, and every part is where it belongs
======== =======================================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.fold import maximal
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import parse_part
from replitree_verify.rules.stored_shares import claims
from replitree_verify.world.model import TABLE
from replitree_verify.world.moves import Place
from replitree_verify.world.shared_disk import SharedDisk

EARLY_ENDS = ("session ended", "crash", "mover closed", "move in doubt", "move broken off")
"""Probes of what ends a claim before the part has moved, or its activation takes it back."""


def left_to_move(tree: Tree, disks: Mapping[str, SharedDisk], places: Mapping[str, Place]) -> str:
    """Say what is claimed, or not where it belongs; empty when nothing is.

    Parameters
    ----------
    tree, disks
        Coordination, and the disks of the replicas.
    places
        Where parts belong, as each replica has heard.
    """
    for claim in claims(tree, TABLE):
        return f"{claim} is claimed"
    for name, place in places.items():
        disk = disks[name]
        registered = map(parse_part, tree.children(layout.parts(Replica(TABLE, name))) or ())
        for part in (each.name for each in maximal(registered)):  # what others cover goes with the next start
            if (disk.share_of(part) is None) is not (place is Place.DISK):
                return f"{name} has not moved {part}"
    return ""


def moved_twice(tree: Tree, disks: Mapping[str, SharedDisk]) -> Iterator[str]:
    """Yield the parts that lie in more than one share into which they were moved."""
    found: dict[str, set[str]] = {}
    for name in tree.children(layout.replicas(TABLE)) or ():
        for part, share in disks[name].shares:
            if "-moved-" in share and tree.exists(layout.part(Replica(TABLE, name), part)):
                found.setdefault(part, set()).add(share)
    yield from (part for part, shares in sorted(found.items()) if len(shares) > 1)
