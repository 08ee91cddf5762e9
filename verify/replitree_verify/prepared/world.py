"""What is, beside what is in a model of merges: the uploads that the disks of replicas have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import override

from replitree.protocol.shares.share import ShareId
from replitree_verify.merging import world as merging


@dataclass(frozen=True, slots=True)
class World(merging.World):
    """One moment.

    Attributes
    ----------
    uploads
        The shares of uploads, with the numbers of the seats that have them on their disks.
    kept
        The share with a result of the merge that the process of each seat has, by the seat's number.
    """

    uploads: tuple[tuple[int, ShareId], ...] = ()
    kept: tuple[tuple[int, ShareId], ...] = ()

    @property
    @override
    def key(self) -> tuple[Any, ...]:
        """What tells worlds apart."""
        return (*merging.World.key.__get__(self), self.uploads, self.kept)

    def uploads_of(self, number: int) -> tuple[ShareId, ...]:
        """Return the shares of the uploads of a seat's disk."""
        return tuple(share for seat, share in self.uploads if seat == number)

    def with_upload(self, number: int, share: ShareId) -> World:
        """Return the world in which a seat's disk has one upload more."""
        return replace(self, uploads=(*self.uploads, (number, share)))

    def without_upload(self, share: ShareId) -> World:
        """Return the world in which no disk has an upload any more."""
        return replace(self, uploads=tuple(each for each in self.uploads if each[1] != share))

    def kept_by(self, number: int) -> ShareId | None:
        """Return the share with a result that a seat's process has."""
        return dict(self.kept).get(number)

    def with_kept(self, number: int, share: ShareId | None) -> World:
        """Return the world in which a seat's process has a result in another share, or none."""
        others = tuple(each for each in self.kept if each[0] != number)
        return replace(self, kept=others if share is None else (*others, (number, share)))


__all__ = ["World"]
