"""What must hold of the shares of a table in every model of replicas on an object store, whatever else these have."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.shares.share import ShareId
from replitree_verify.world.objects import Objects
from replitree_verify.world.shared_disk import SharedDisk


def marks_of(tree: Tree, table: TablePlace) -> set[tuple[str, str]]:
    """Return every mark with the share that it is on."""
    shares = tree.children(layout.shares(table)) or ()
    return {(share, mark) for share in shares for mark in tree.children(layout.share(table, share)) or ()}


def of_shares(tree: Tree, objects: Objects, table: TablePlace, marks: set[tuple[str, str]]) -> Iterator[str]:
    """Yield what does not hold of shares at some moment: OWNED, WHOLE, ONCE and KNOWN.

    Parameters
    ----------
    marks
        As of `marks_of`.
    """
    shares = set(tree.children(layout.shares(table)) or ())
    garbage = set(tree.children(layout.all_garbage(table)) or ())
    writing = set(tree.children(layout.all_writing(table)) or ())
    for share in sorted(shares):
        if not any(each == share for each, _ in marks):
            yield f"OWNED: {share} has no owner"
        if not objects.is_whole(ShareId(share)):
            yield f"WHOLE: {share} lacks objects"
    # A share moves from one state to another in one transaction, so it is never in two.
    for share in sorted((shares & garbage) | (shares & writing) | (garbage & writing)):
        yield f"ONCE: {share}"
    # An object of an unknown share would stay for ever: the cleaner deletes what coordination names.
    known = shares | garbage | writing | objects.stray
    yield from (f"KNOWN: {unknown}" for unknown in sorted({share for share, _ in objects.there} - known))


def without_rows(name: str, disk: SharedDisk, registered: Collection[str]) -> Iterator[str]:
    """Yield the registered parts of a replica whose rows are nowhere."""
    yield from (f"FILES: {name} has {part} without its rows" for part in disk.bare if part in registered)


def claims(tree: Tree, table: TablePlace) -> Iterator[str]:
    """Yield the claims on parts that move."""
    yield from (name for name in tree.children(layout.sharing(table)) or () if name.startswith(layout.MOVING))
