"""What must hold of the shares of a table in every model of replicas on an object store, whatever else these have."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.shares.share import ShareId
from replitree_verify.world.shared_disk import SharedDisk


class World(Protocol):
    """A moment: coordination, what is in the store, and the shares whose objects may come late: no process waits for them."""

    @property
    def tree(self) -> Tree:
        """Coordination."""

    @property
    def objects(self) -> frozenset[tuple[ShareId, int]]:
        """The objects in the store: pieces of shares."""

    @property
    def stray(self) -> frozenset[ShareId]:
        """See the class."""

    def is_whole(self, share: ShareId) -> bool:
        """Whether all objects of a share are there."""


def marks_of(tree: Tree, table: TablePlace) -> set[tuple[str, str]]:
    """Return every mark with the share that it is on."""
    shares = tree.children(layout.shares(table)) or ()
    return {(share, mark) for share in shares for mark in tree.children(layout.share(table, share)) or ()}


def of_shares(world: World, table: TablePlace, marks: set[tuple[str, str]]) -> Iterator[str]:
    """Yield what does not hold of shares at some moment: OWNED, WHOLE, ONCE and KNOWN.

    Parameters
    ----------
    marks
        As of `marks_of`.
    """
    shares = set(world.tree.children(layout.shares(table)) or ())
    garbage = set(world.tree.children(layout.all_garbage(table)) or ())
    writing = set(world.tree.children(layout.all_writing(table)) or ())
    for share in sorted(shares):
        if not any(each == share for each, _ in marks):
            yield f"OWNED: {share} has no owner"
        if not world.is_whole(ShareId(share)):
            yield f"WHOLE: {share} lacks objects"
    # A share moves from one state to another in one transaction, so it is never in two.
    for share in sorted((shares & garbage) | (shares & writing) | (garbage & writing)):
        yield f"ONCE: {share}"
    # An object of an unknown share would stay for ever: the cleaner deletes what coordination names.
    known = shares | garbage | writing | world.stray
    yield from (f"KNOWN: {unknown}" for unknown in sorted({share for share, _ in world.objects} - known))


def without_rows(name: str, disk: SharedDisk, registered: Collection[str]) -> Iterator[str]:
    """Yield the registered parts of a replica whose rows are nowhere."""
    yield from (f"FILES: {name} has {part} without its rows" for part in disk.bare if part in registered)


def claims(tree: Tree, table: TablePlace) -> Iterator[str]:
    """Yield the claims on parts that move."""
    yield from (name for name in tree.children(layout.sharing(table)) or () if name.startswith(layout.MOVING))


def not_ended(tree: Tree, table: TablePlace) -> Iterator[str]:
    """Yield what is still being written, or garbage, where nothing more can happen."""
    for parent in (layout.all_writing(table), layout.all_garbage(table)):
        if left := tree.children(parent):
            yield f"SETTLES: {left[0]} stays in {parent.rpartition('/')[2]}"


def not_deleted(world: World, table: TablePlace) -> Iterator[str]:
    """Yield the shares without an owner whose objects are there where nothing more can happen."""
    owned = set(world.tree.children(layout.shares(table)) or ())
    left = {share for share, _ in world.objects} - owned - world.stray
    yield from (f"SETTLES: no replica deletes {share}" for share in sorted(left))


__all__ = ["World", "claims", "marks_of", "not_deleted", "not_ended", "of_shares", "without_rows"]
