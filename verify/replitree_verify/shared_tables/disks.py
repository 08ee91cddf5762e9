"""What processes look up on their disks, and what they change there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.shares.share_effects import ForgetParts, HasPart
from replitree_verify.shared_tables.replicas import HasLeft, ListLeaving
from replitree_verify.shared_tables.world import CONTENT, STAGING, Disk, World
from replitree_verify.world.kernel import ProcedureFailed

SILENT = object()
"""Stands for the outcome of an effect that has to be a step."""


def seen_on(disk: Disk, effect: Any) -> Any:
    """Return the outcome of an effect that only looks at a disk."""
    match effect:
        case HasPart(part):
            return disk.has(part)
        case fx.FindPart(part):
            return CONTENT if disk.has(part) else None
        case fx.ListStaging():
            return (STAGING,) if disk.staged else ()
        case ListLeaving():
            return disk.leaving
        case fx.ListParts():
            return tuple(part for part, _ in disk.parts)
    return SILENT


def on_disk(world: World, number: int, effect: Any) -> tuple[str, World, Any]:
    """Return what becomes of a disk that a process changes."""
    disk = world.seats[number].disk
    outcome: Any = None
    match effect:
        case fx.Stage():
            disk, outcome = replace(disk, staged=(None,)), fx.Staged((fx.StagedPart("all", 1, 1, CONTENT),))
        case fx.Publish(names=((_, part),)):
            if disk.staged:
                disk = replace(disk.with_part(part, disk.staged_shares), staged=())
            outcome = fx.Published()
        case fx.RemoveStaging():
            disk = disk.left("", disk.staged_shares) if disk.staged_shares else disk
            disk = replace(disk, staged=())
        case fx.RemovePart(part):
            disk = _taken_out(disk, part)
        case fx.Detach():
            pass  # a copy is kept aside, with rows of its own
        case ForgetParts(parts):
            for part in parts:
                disk = _taken_out(disk, part)
        case HasLeft(part, shares):
            disk = replace(disk, leaving=tuple(each for each in disk.leaving if each != (part, shares)))
        case _:
            raise ProcedureFailed(f"no part of the model performs {effect}")
    return "done", world.with_disk(number, disk), outcome


def _taken_out(disk: Disk, part: str) -> Disk:
    shares, without = disk.shares_of(part), disk.without_part(part)
    return without.left(part, shares) if shares else without


__all__ = ["SILENT", "on_disk", "seen_on"]
