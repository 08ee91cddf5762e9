"""What a process is told at once: what it asks of its own memory and of its own disk, which no other process changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.program.stages import AwaitIdle, CurrentSharer, Quieten, ReportTrouble
from replitree.protocol.shares.share_effects import Sharer, SharesHere
from replitree_verify.sharing.checking import OnDisk
from replitree_verify.sharing.world import INCARNATION, Seat, World, replica_of


def remembered(world: World, seat: Seat, effect: Any) -> tuple[Any, Seat] | None:
    """Return the outcome of an effect on a process's memory or disk, and its seat after it; None for all other effects."""
    match effect:
        case fx.CurrentEpoch():
            return seat.epoch, seat
        case fx.AdoptEpoch(epoch):
            return None, replace(seat, epoch=epoch)
        case fx.ListStaging():  # what is staged is on the disk like a part
            return (), seat
        case CurrentSharer():
            return Sharer(replica_of(seat.replica), INCARNATION), seat
        case OnDisk(replica):
            return tuple(each[1:] for each in sorted(world.disks) if each[0] == replica.name), seat
        case SharesHere():
            return tuple(sorted({share for name, _, share in world.disks if name == seat.replica})), seat
        case Quieten():
            return None, replace(seat, has_trouble=False)
        case ReportTrouble():
            return None, replace(seat, has_trouble=True)
        case AwaitIdle():  # a process does one thing at a time
            return None, seat
    return None


__all__ = ["remembered"]
