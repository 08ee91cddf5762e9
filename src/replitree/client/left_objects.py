"""What dropped tables have left in object stores that were away: noted when their nodes go, found and deleted later.

A replica that leaves a dropped table deletes what nobody owns any more.  When the store gives no answer then, the names of
these objects go with the table's nodes.  So whoever removes the last of these nodes notes the table's id and its store first,
below ``<root>/dropped_objects``; the note stays until everything below that id is gone from the store, and it is that store.

Why nothing is lost: a table's id is never used again, the note is made when the table is dropped and no replica is left in it,
and nobody can come to own what has no node.  Objects that a process puts that is not yet aware of all this are found the next
time, if the note is still there.
"""

from __future__ import annotations

import msgspec

from replitree.client.catalog import Catalog
from replitree.coordination.port import Coordination, make_root
from replitree.errors import CoordinationUnavailable, NotAuthorized, StoreError
from replitree.protocol import layout
from replitree.protocol.effects import ANY_VERSION, Applied, Children, Commit, Create, Delete, Get, Reason, Refused
from replitree.protocol.layout import Table
from replitree.storage.definition import decode_definition
from replitree.storage.objects.location import open_store
from replitree.storage.objects.shares import ShareObjects

BATCH = 1000
"""Objects that are deleted at once."""


class LeftObjects(msgspec.Struct, frozen=True):
    """Objects of a dropped table.

    Attributes
    ----------
    table_id, store
        Which table it was, and the URL of its store.
    objects, bytes
        How much is there.
    gone
        Whether nothing of it is there any more.
    problem
        Why that is not known or could not be done; empty if it was.
    """

    table_id: str
    store: str
    objects: int = 0
    bytes: int = 0
    gone: bool = False
    problem: str = ""


def note_left(coordination: Coordination, root: str, place: Table) -> None:
    """Note what a dropped table that no replica is left in may have in its store; nothing where it has nothing.

    Raises
    ------
    CoordinationUnavailable
        Whether it was noted is not known; drop the table again.
    """
    parents = layout.shares(place), layout.all_writing(place), layout.all_garbage(place)
    if not any(coordination.perform(Children(parent)) for parent in parents):
        return
    paths = layout.metadata(place), layout.columns(place), layout.sharing(place)
    metadata, columns, sharing = (coordination.perform(Get(path)) for path in paths)
    if metadata is None or columns is None or sharing is None:  # somebody else has just removed it, and noted it before
        return
    definition = decode_definition(metadata.value, columns.value)
    make_root(coordination, layout.all_dropped_objects(root))
    value = f"{sharing.value.decode()} {definition.store_url}".encode()
    noted = coordination.perform(Commit(Create(layout.dropped_objects(root, definition.table_id), value)))
    if not (isinstance(noted, Applied) or (isinstance(noted, Refused) and noted.reason is Reason.NODE_EXISTS)):
        raise CoordinationUnavailable(
            f"table {place.name} is not dropped whole: what it may have left in {definition.store_url} could not be noted;"
            " drop it again"
        )


def delete_left(catalog: Catalog, root: str, *, with_repair: bool) -> tuple[LeftObjects, ...]:
    """Look what dropped tables have left, and delete it.

    Parameters
    ----------
    with_repair
        Whether to delete anything.
    """
    names: tuple[str, ...] = catalog.perform(Children(layout.all_dropped_objects(root))) or ()
    found = (_looked_at(catalog, root, name, with_repair=with_repair) for name in names)
    return tuple(each for each in found if each is not None)


def _looked_at(catalog: Catalog, root: str, table_id: str, *, with_repair: bool) -> LeftObjects | None:
    path = layout.dropped_objects(root, table_id)
    node = catalog.perform(Get(path))
    if node is None:
        return None
    store_id, _, url = node.value.decode().partition(" ")
    left = ShareObjects(lambda: open_store(url), table_id)
    left.store_id = store_id
    try:
        left.check_store()
        found = list(left.store.list(left.root))
        for first in range(0, len(found) if with_repair else 0, BATCH):
            left.store.delete([each.key for each in found[first : first + BATCH]])
        if with_repair:
            left.tidy()
    except (StoreError, NotAuthorized) as error:
        return LeftObjects(table_id, url, problem=str(error))
    if with_repair:
        catalog.perform(Commit(Delete(path, ANY_VERSION)))
    return LeftObjects(table_id, url, len(found), sum(each.bytes for each in found), gone=with_repair)


__all__ = ["LeftObjects", "delete_left", "note_left"]
