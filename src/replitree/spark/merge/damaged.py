"""Damaged parts that tasks of a merge find: the driver reports them to the replica that has planned the merge.

A task that finds one does not fail: Spark would try it again, and then the part may be whole, after other tasks of the merge
have read it as it was.  Only the task of the first range compares all bytes.  So the task says what it has found, nothing is
merged, and the error says to run it again.

Absent on purpose: the repair, which is that of every damaged part; it goes on when this process is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from replitree.client.change.planned import MergePlan
from replitree.client.insert.upload import Upload
from replitree.client.read.part_cache import PartCache
from replitree.client.read.snapshot import SnapshotPart
from replitree.errors import CorruptPart

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Damaged:
    """Parts of which a task has found one damaged, and the reason."""

    parts: tuple[str, ...]
    reason: str


def or_damaged(sources: Sequence[SnapshotPart], do: Callable[[], R]) -> R | Damaged:
    """Return what reading parts gives, or which of them are damaged."""
    try:
        return do()
    except CorruptPart as error:
        reason = str(error)
        # A name may be the beginning of another one: a replica checks a part that is whole in vain.
        named = tuple(source.part for source in sources if source.part in reason)
        return Damaged(named or tuple(source.part for source in sources), reason)


def check_damage(plan: MergePlan, upload: Upload, told: Iterable[object]) -> None:
    """Do nothing if no task has found damage.

    Parameters
    ----------
    plan, upload
        The merges, and the upload of one: both are at the replica whose parts the tasks have read.
    told
        What tasks have returned.

    Raises
    ------
    CorruptPart
        One has; its replica has been asked to check these parts, and fetches what is damaged again.
    """
    damaged = [each for each in told if isinstance(each, Damaged)]
    if not damaged:
        return
    cache = PartCache(plan.table.http, plan.table.name, (), owner=upload.replica.address)
    parts = tuple(dict.fromkeys(part for each in damaged for part in each.parts))
    for part in parts:
        cache.report(part)
    raise CorruptPart(
        f"{damaged[0].reason}: nothing was merged; replica {upload.replica.name} repairs {', '.join(parts)}, then run it again"
    )


__all__ = ["Damaged", "check_damage", "or_damaged"]
