"""What sharing asks of a replica's process, its disk and its store, and whose shares they are.

Performed by `replitree.replica.parts.sharing`, and in the models by their disks.  What is asked when:
`protocol.shares.sharing`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from replitree.protocol.core.effects import Effect, Epoch, StagingId
from replitree.protocol.core.layout import Replica
from replitree.protocol.shares.share import ShareId, ShareOwner


@dataclass(frozen=True, slots=True)
class NameShares(Effect):
    """Give each staged part that is to go into the store a share.  Outcome: their names; none where nothing is to be put."""

    staging: StagingId


@dataclass(frozen=True, slots=True)
class PutShares(Effect):
    """Put the objects of the named shares, durably, and note in the staged parts where they are.

    Outcome: `ObjectsThere`, or `ObjectsInDoubt`: some may be there, or come to be there.
    """

    staging: StagingId


@dataclass(frozen=True, slots=True)
class SharesOf(Effect):
    """Outcome: a `SharedPart` for each of these published parts whose data files are in a share."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SharedPart:
    """A published part, its share, and whether this process wrote that and has not registered it yet, as far as it knows."""

    part: str
    share: ShareId
    is_new: bool


@dataclass(frozen=True, slots=True)
class SharesSettled(Effect):
    """Note that this process writes these shares no more: they are owned, or were never begun.  Outcome: None."""

    shares: tuple[ShareId, ...]


@dataclass(frozen=True, slots=True)
class ForgetParts(Effect):
    """Put published parts out of the way whose shares are gone; they were not registered.  Outcome: None."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SharesHere(Effect):
    """Outcome: the names of all shares that something on this disk has, or that this process is writing, ascending."""


@dataclass(frozen=True, slots=True)
class HasPart(Effect):
    """Outcome: whether a part of this name is published here, wherever its rows are."""

    part: str


@dataclass(frozen=True, slots=True)
class SharesInDoubt(Effect):
    """An answer about these shares was lost: their notes are not worked off before this replica has a newer epoch.

    Outcome: None; the replica activates again.
    """

    shares: tuple[ShareId, ...]


LocalShareEffect: TypeAlias = (
    NameShares | PutShares | SharesOf | SharesSettled | ForgetParts | SharesHere | HasPart | SharesInDoubt
)
_T = TypeVar("_T")
LocalSharing: TypeAlias = Generator[Effect | LocalShareEffect, Any, _T]
"""A procedure of a replica that has shares: yields effects on coordination and on the replica's own process, disk and store."""


@dataclass(frozen=True, slots=True)
class Sharer:
    """Whose shares they are: a replica, and which one of this name."""

    replica: Replica
    incarnation: str

    @property
    def signature(self) -> bytes:
        """Value of the nodes of its attempts."""
        return f"{self.replica.name}~{self.incarnation}".encode()

    def mark(self, part: SharedPart) -> str:
        """Return the path of a part's mark on its share."""
        return ShareOwner(self.replica, Epoch(0), self.incarnation, part.part).mark(part.share)


__all__ = [
    "ForgetParts",
    "HasPart",
    "LocalShareEffect",
    "LocalSharing",
    "NameShares",
    "PutShares",
    "SharedPart",
    "Sharer",
    "SharesHere",
    "SharesInDoubt",
    "SharesOf",
    "SharesSettled",
]
