"""Effects on the disk that do not go as they should: cut off half-way, or done by another version of a library."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from replitree.protocol.core.effects import Made, Merge, Mutate, Publish, Stage
from replitree_verify.outcomes.local import Done
from replitree_verify.world.disk import Disk, Folder
from replitree_verify.world.memory import Memory


def with_other_bytes(effect: Any, done: Done, which: str) -> tuple[Any, Disk, Memory]:
    """Return what a merge or a mutation makes with another version or another library: not the same at every try."""
    content = f"{done.outcome.content_hash}?{which}"
    folder = done.disk.folder(effect.staging)
    assert folder is not None
    parts = tuple((partition, content) for partition, _ in folder.parts)
    return Made(content), done.disk.with_folder(replace(folder, parts=parts)), done.memory


def half_done(effect: Any, disk: Disk, partitions: tuple[str, ...]) -> Disk:
    """Return the disk after an effect that was cut off."""
    match effect:
        case Stage(staging):
            return disk.with_folder(Folder(staging, tuple((partition, "") for partition in partitions), torn=True))
        case Merge(staging) | Mutate(staging):
            return disk.with_folder(Folder(staging, (), torn=True))
        case Publish(staging, names) if len(names) > 1:
            return disk.rename(staging, *names[0]) or disk
    return disk
