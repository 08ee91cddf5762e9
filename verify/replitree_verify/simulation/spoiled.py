"""What goes wrong on a disk: an effect is cut off, or done by another version of a library; files rot."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import Any

from replitree.protocol.core.effects import Made, Merge, Mutate, Publish, Stage
from replitree.protocol.execute.making import MAKING
from replitree_verify.outcomes.local import Done
from replitree_verify.world.disk import Disk, Folder, requests_in
from replitree_verify.world.memory import Memory


def with_other_bytes(effect: Any, done: Done, which: str) -> tuple[Any, Disk, Memory]:
    """Return what a merge or a mutation makes with another version or another library: not the same at every try."""
    content = f"{done.outcome.content_hash}?{which}"
    folder = done.disk.folder(effect.staging)
    assert folder is not None
    parts = tuple((partition, content) for partition, _ in folder.parts)
    return Made(content), done.disk.with_folder(replace(folder, parts=parts)), done.memory


def rotted(disk: Disk, partition: str, requests: Container[int], *, takes_copies: bool) -> Disk:
    """Return a disk on which nothing has the rows of some requests in a partition, but maybe copies that are kept aside.

    A result that is being made keeps them: it can't be registered once they are declared lost, because that takes all epochs.
    """

    def is_rotten(content: str) -> bool:
        return content.startswith(f"{partition}:") and any(request in requests for request in requests_in(content))

    disk = disk.without_parts(*(name for name, content in disk.parts if is_rotten(content)))
    for folder in (each for each in disk.folders if not each.staging.startswith(MAKING)):
        left = tuple(each for each in folder.parts if not is_rotten(each[1]))
        if left != folder.parts:
            disk = disk.with_folder(replace(folder, parts=left))
    return replace(disk, aside=tuple(each for each in disk.aside if not (takes_copies and is_rotten(each))))


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
