"""Which parts are to move, and where: a function of the storage policy, of what is here, and of the room on the disk.

Source: ClickHouse's storage policies with ``TTL … TO VOLUME`` and ``move_factor``, by age and room alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from replitree.storage.schema.storage_policy import StorageKind, StoragePolicy


@dataclass(frozen=True, slots=True)
class Placed:
    """A registered part of this replica.

    Attributes
    ----------
    part
        Its name.
    share
        The share in which its rows are; None: they are on the disk.
    bytes
        Of its data files.
    since
        When its manifest was written here, in seconds since the epoch.
    """

    part: str
    share: str | None
    bytes: int
    since: float


def to_move(policy: StoragePolicy, placed: Iterable[Placed], now: float, free_bytes: int) -> tuple[Placed, ...]:
    """Return the parts that are not where they belong; what has lain on the disk longest first.

    Parameters
    ----------
    policy
        The table's.
    placed
        What this replica has.
    now
        Seconds since the epoch, by the clock of this disk.
    free_bytes
        The room on the disk.
    """
    oldest_first = sorted(placed, key=lambda each: (each.since, each.part))
    here = tuple(each for each in oldest_first if each.share is None)
    match policy.kind:
        case StorageKind.LOCAL:
            return tuple(each for each in oldest_first if each.share is not None)
        case StorageKind.SHARED:
            return here
    older_s = policy.older_s
    old = tuple(each for each in here if older_s is not None and now - each.since >= older_s)
    # Younger parts follow until the disk has the free room that the policy asks for.
    count, lacking_bytes = len(old), policy.free_bytes - free_bytes - sum(each.bytes for each in old)
    while lacking_bytes > 0 and count < len(here):
        lacking_bytes -= here[count].bytes
        count += 1
    return here[:count]


__all__ = ["Placed", "to_move"]
