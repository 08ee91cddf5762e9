"""Restore a table on an object store: the shares of its parts get their nodes and marks back, with the registrations.

Only coordination knew the owners of the shares.  The disks know the shares of their parts, and the store has the objects; so a
whole part is registered and marked in one commit, as when it was written: a registered part is never without its mark.

Another replica that had a mark gets it back when it recovers: it takes its parts over anew, from the restored table.

*Nothing is garbage here.*  Objects without a node may belong to parts that only other disks have; those replicas set the parts
aside, with rows of their own, when they recover.  So the table keeps a node that says that it was restored, and while that node
exists `fsck` reports such objects and deletes none.

Source: ``spec/zero_copy.md`` 3.2, scenario 35.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.shares.share import ShareId, ShareOwner
from replitree.protocol.shares.table_store import sharing_nodes

LOOK_BATCH = 500
"""Nodes looked at in one request."""


@dataclass(frozen=True, slots=True)
class RestoredShares:
    """What a restore of a table on an object store knows more.

    Attributes
    ----------
    store
        The store's id.
    incarnation
        An id for the replica, in whose name the marks are made; the one of the first run stays.
    shares
        What each part has, by the part's name.
    """

    store: str
    incarnation: str
    shares: Mapping[str, tuple[ShareId, ...]] = field(default_factory=dict)

    def nodes(self, table: TablePlace) -> Iterator[fx.Create]:
        """Yield what creates the table's nodes of shares."""
        place = layout.sharing(table)
        for each in sharing_nodes(table):
            yield fx.Create(place, self.store.encode()) if each.path == place else each
        yield fx.Create(layout.restored(table))


@dataclass(frozen=True, slots=True)
class Marks:
    """What has to be created with each part, and deleted with each that is taken back."""

    create: Mapping[str, tuple[fx.Operation, ...]]
    delete: Mapping[str, tuple[fx.Operation, ...]]


def marks(
    replica: Replica, incarnation: str, shares: Mapping[str, tuple[ShareId, ...]], taken_back: Iterable[str]
) -> fx.Procedure[Marks]:
    """Look which nodes of shares and which marks are there, and return what is to be changed.

    Parameters
    ----------
    replica, incarnation
        Whose marks they are.
    shares
        What each part has that is to be registered.
    taken_back
        Parts that are registered and must not be.
    """
    wanted = [
        (part, layout.share(replica.table, share), _mark(replica, incarnation, part, share))
        for part, some in sorted(shares.items())
        for share in some
    ]
    paths = [path for _, node, mark in wanted for path in (node, mark)]
    there: set[str] = set()
    for first in range(0, len(paths), LOOK_BATCH):
        batch = tuple(paths[first : first + LOOK_BATCH])
        many: fx.Many = yield fx.GetMany(batch)
        there.update(path for path, found in zip(batch, many.nodes, strict=True) if found is not None)
    create: dict[str, tuple[fx.Operation, ...]] = {}
    for part, node, mark in wanted:
        new = tuple(fx.Create(path) for path in (node, mark) if path not in there)
        there.update((node, mark))
        create[part] = (*create.get(part, ()), *new)
    # The marks of parts that are taken back are deleted, and the nodes of shares without another owner.
    doomed, delete = frozenset(taken_back), dict[str, tuple[fx.Operation, ...]]()
    names: tuple[str, ...] = ((yield fx.Children(layout.shares(replica.table))) or ()) if doomed else ()
    for name in names:
        node = layout.share(replica.table, name)
        left = set((yield fx.Children(node)) or ())
        for part in sorted(doomed):
            mark = _mark(replica, incarnation, part, ShareId(name))
            if mark.rpartition("/")[2] in left:
                left.remove(mark.rpartition("/")[2])
                last = () if left else (fx.Delete(node, fx.ANY_VERSION),)
                delete[part] = (*delete.get(part, ()), fx.Delete(mark, fx.ANY_VERSION), *last)
    return Marks(create, delete)


def _mark(replica: Replica, incarnation: str, part: str, share: ShareId) -> str:
    return ShareOwner(replica, fx.Epoch(0), incarnation, part).mark(share)


__all__ = ["Marks", "RestoredShares", "marks"]
