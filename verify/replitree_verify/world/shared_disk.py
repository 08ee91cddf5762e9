"""The disk of a replica of a table on an object store, as a value: which parts have a share, and what has left and is noted.

As on the real disk (`storage.disk.shared`) nothing that has a share just vanishes: whatever removes it, or puts something else
in its place, notes it in `leaving`.  There it stays until its mark was let go of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from typing_extensions import override

from replitree.protocol.core.effects import StagingId
from replitree.protocol.shares.share import ShareId
from replitree_verify.world.disk import Disk, Folder


@dataclass(frozen=True, slots=True)
class Left:
    """Something that has left the disk: its number, the part that it was (empty: it was only staged), and its shares."""

    number: int
    part: str
    shares: tuple[ShareId, ...]


@dataclass(frozen=True, slots=True)
class SharedDisk(Disk):
    """A disk with shares.

    Attributes
    ----------
    shares
        The shares of published parts, by name: a part has its own share, and those that it borrows files of.
    staged
        The shares of staged parts: staging id, partition, share.
    leaving, count
        What has left, and how much ever did; among it what a move has noted.
    brought
        Of which parts the rows were brought here from which share, and may take its place.
    bare
        Parts without a share whose rows are gone: there must be none.
    uploads
        The shares of uploads that clients have begun here and that were not staged.
    files
        Parts whose files are others than those of most replicas, here or in the share, each with the replica that wrote them.
    detached
        Parts that were detached and have no rows of their own, each with its share, which it still owns: there must be none.
    """

    shares: tuple[tuple[str, ShareId], ...] = ()
    staged: tuple[tuple[StagingId, str, ShareId], ...] = ()
    leaving: tuple[Left, ...] = ()
    count: int = 0
    brought: tuple[tuple[str, ShareId], ...] = ()
    bare: tuple[str, ...] = ()
    detached: tuple[tuple[str, ShareId], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    uploads: tuple[ShareId, ...] = ()

    def share_of(self, part: str) -> ShareId | None:
        """Return the share of a published part; None when its rows are here, or it is not."""
        return next(iter(self.shares_of(part)), None)

    def shares_of(self, part: str) -> tuple[ShareId, ...]:
        """Return all shares of a published part, ascending."""
        return tuple(share for name, share in self.shares if name == part)

    @property
    def all_shares(self) -> frozenset[ShareId]:
        """All shares that something here has."""
        published = (share for _, share in self.shares)
        left = (share for each in self.leaving for share in each.shares)
        return frozenset((*published, *(each[2] for each in self.staged), *left, *self.uploads))

    def noting(self, staging: StagingId, partition: str, share: ShareId) -> SharedDisk:
        """Note what share a staged part has, if it is there."""
        folder = self.folder(staging)
        if folder is None or partition not in dict(folder.parts):
            return self
        return replace(self, staged=tuple(sorted((*self.staged, (staging, partition, share)))))

    def having(self, part: str, *shares: ShareId) -> SharedDisk:
        """Let a published part have shares; others that it had have left."""
        # What it had before is noted, and stays noted until its mark is released.
        bare = self if self.shares_of(part) in ((), shares) else self._left((part,))
        others = tuple(each for each in bare.shares if each[0] != part)
        return replace(bare, shares=tuple(sorted((*others, *((part, share) for share in shares)))))

    def without_left(self, number: int) -> SharedDisk:
        """Forget what has left: it was let go of."""
        return replace(self, leaving=tuple(each for each in self.leaving if each.number != number))

    def without_uploads(self, *shares: ShareId) -> SharedDisk:
        """Forget shares of uploads."""
        return replace(self, uploads=tuple(each for each in self.uploads if each not in shares))

    def discarding(self, *shares: ShareId) -> SharedDisk:
        """Note shares of uploads as left, as far as the disk has them."""
        gone = tuple(each for each in self.uploads if each in shares)
        return self._noting_left(tuple(("", share) for share in gone)).without_uploads(*gone)

    # --- moves ----------------------------------------------------------------------------------------------------------------

    def has_rows(self, part: str) -> bool:
        """Whether the rows of a published part are here and not in a share."""
        return self.content(part) is not None and self.share_of(part) is None and part not in self.bare

    def noting_move(self, part: str, share: ShareId) -> SharedDisk:
        """Note that a part may own a share: that is let go of unless the part has it, with all that it borrows of."""
        own = self.shares_of(part)
        return self._noting_left(tuple((part, each) for each in (own if share in own else (share,))))

    def to_share(self, part: str, share: ShareId) -> SharedDisk | None:
        """Let a part have a share, and no rows here; None when they are not here any more."""
        return self.having(part, share) if self.has_rows(part) else None

    def bringing(self, part: str, share: ShareId) -> SharedDisk | None:
        """Bring the rows of a share here; None when the part does not have it any more."""
        if self.share_of(part) != share:
            return None
        return replace(self, brought=tuple(sorted({*self.brought, (part, share)})))

    def to_disk(self, part: str, share: ShareId) -> SharedDisk | None:
        """Let a part have its rows here; None when it does not have the share any more."""
        if self.share_of(part) != share:
            return None
        # A move that did not bring the rows first leaves the part without any: `FILES` finds it among `bare`.
        bare = self.bare if (part, share) in self.brought else (*self.bare, part)
        others = tuple(each for each in self.shares if each[0] != part)
        return replace(self, shares=others, brought=tuple(each for each in self.brought if each[0] != part), bare=bare)

    def losing_rows(self, part: str) -> SharedDisk:
        """Remove a part's files, all but its manifest."""
        return replace(self, bare=(*self.bare, part)) if self.has_rows(part) else self

    def files_of(self, part: str) -> str:
        """Return which replica wrote the files of a part, of those whose files are others than most have."""
        return dict(self.files).get(part, "")

    def with_files(self, part: str, writer: str) -> SharedDisk:
        """Let a part have files that a replica wrote."""
        others = (each for each in self.files if each[0] != part)
        return replace(self, files=tuple(sorted((*others, *(((part, writer),) if writer else ())))))

    # --- what may remove something ------------------------------------------------------------------------------------------

    @override
    def with_folder(self, folder: Folder) -> SharedDisk:
        return cast("SharedDisk", Disk.with_folder(self._unstaged(folder.staging), folder))

    @override
    def without_folder(self, staging: StagingId) -> SharedDisk:
        return cast("SharedDisk", Disk.without_folder(self._unstaged(staging), staging))

    @override
    def with_part(self, name: str, content: str) -> SharedDisk:
        if self.content(name) == content:
            return self
        return cast("SharedDisk", Disk.with_part(self._left((name,)), name, content))

    @override
    def without_parts(self, *names: str) -> SharedDisk:
        return cast("SharedDisk", Disk.without_parts(self._left(names), *names))

    @override
    def rename(self, staging: StagingId, partition: str, name: str) -> SharedDisk | None:
        mine = tuple(each for each in self.staged if each[0] == staging)
        # Without the shares of the folder: `Disk.rename` puts the rest of the folder back, which would note them as
        # left.
        bare = replace(self, staged=tuple(each for each in self.staged if each[0] != staging))
        renamed = cast("SharedDisk | None", Disk.rename(bare, staging, partition, name))
        if renamed is None:
            return None
        kept = (each for each in mine if each[1] != partition)
        renamed = replace(renamed, staged=tuple(sorted((*renamed.staged, *kept))))
        shares = tuple(share for _, each, share in mine if each == partition)
        return renamed.having(name, *shares) if shares else renamed

    def _unstaged(self, staging: StagingId) -> SharedDisk:
        """Note the shares of what was staged under an id as left."""
        gone = tuple(("", share) for id_, _, share in self.staged if id_ == staging)
        return replace(self._noting_left(gone), staged=tuple(each for each in self.staged if each[0] != staging))

    def _left(self, names: tuple[str, ...]) -> SharedDisk:
        """Note the shares of published parts as left."""
        # A detached part that has no rows of its own still owns its share.
        gone = tuple(each for each in self.shares if each[0] in names and each not in self.detached)
        return replace(
            self._noting_left(gone),
            shares=tuple(each for each in self.shares if each[0] not in names),
            brought=tuple(each for each in self.brought if each[0] not in names),
            bare=tuple(each for each in self.bare if each not in names),
            files=tuple(each for each in self.files if each[0] not in names),
        )

    def _noting_left(self, gone: tuple[tuple[str, ShareId], ...]) -> SharedDisk:
        if not gone:
            return self
        staged = [("", (share,)) for part, share in gone if not part]
        # The shares of a part leave together, with its folder.
        parts = dict.fromkeys(part for part, _ in gone if part)
        published = [(part, tuple(share for each, share in gone if each == part)) for part in parts]
        # No number is used twice, so forgetting one note can not forget another.
        noted = tuple(Left(self.count + number, *each) for number, each in enumerate((*staged, *published)))
        return replace(self, leaving=(*self.leaving, *noted), count=self.count + len(noted))


def together(disks: Sequence[Disk]) -> SharedDisk:
    """Return what some disks have, as one."""
    shared = [
        disk if isinstance(disk, SharedDisk) else SharedDisk(disk.folders, disk.parts, disk.aside) for disk in disks
    ]
    names = ("folders", "parts", "aside", "shares", "staged", "leaving")
    found: dict[str, Any] = {
        name: tuple(dict.fromkeys(item for disk in shared for item in getattr(disk, name))) for name in names
    }
    return SharedDisk(**found)


def kept_aside(disk: SharedDisk, parts: tuple[str, ...]) -> SharedDisk:
    """Return a disk that has copies of parts aside, with rows of their own."""
    return cast("SharedDisk", disk.keeping_aside(parts))
