"""What dropped tables have left in their object stores: noted when their nodes go, found and deleted later.

A replica that leaves a dropped table deletes the objects that no replica owns any more.  This does not reach: objects of a
store that gives no answer then, whose names go with the table's nodes; and what no node tells of, an object that came late, or
an upload that was begun and not ended.  So the process that removes the last of these nodes looks at the store, and unless
certainly nothing of the table is there it notes the table's id and its store first, below ``<root>/dropped_objects``.

The note stays until it is that store, nothing is below that id, and nothing was for a grace: longer than any write takes, so
what a process puts that is not yet aware of all this is found, too.  Whether and when something was, says the note's own time:
it is written anew before anything is deleted.

Why nothing is lost: a table's id is never used again, the note is made when the table is dropped and no replica is left in it,
and no replica can come to own an object without a node.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from replitree.client.transport.catalog import Catalog
from replitree.coordination.port import Coordination, make_root
from replitree.errors import CoordinationUnavailable, NotAuthorized, ReplitreeError, StoreError
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.storage.objects.bucket_uploads import UploadsNotListed
from replitree.storage.objects.location import StoreLocation
from replitree.storage.objects.opening import open_store
from replitree.storage.schema.definition import TableDefinition, decode_definition
from replitree.storage.shares.inventory import END_BY_RULE, Inventory, inventory_of
from replitree.storage.shares.shares import ShareObjects

if TYPE_CHECKING:
    from replitree.protocol.rescue.fsck_look import MultipartUpload
    from replitree.storage.objects.store import ObjectInfo

BATCH = 1000
"""Objects that are deleted at once."""

LOOK_S = 5.0
"""How long who drops a table waits for its store, in seconds."""


class LeftObjects(msgspec.Struct, frozen=True):
    """Objects of a dropped table.

    Attributes
    ----------
    table_id, store
        Which table it was, and the URL of its store.
    objects, bytes, uploads
        How much was there: objects, their bytes, and what was begun and not ended.
    gone
        Whether nothing of it is there any more.
    problem
        Why that is not known or could not be done; empty if it was.
    remembered_s
        How long the table is remembered yet, in seconds, because something may come late; 0: a repair that finds nothing
        forgets it.
    """

    table_id: str
    store: str
    objects: int = 0
    bytes: int = 0
    gone: bool = False
    problem: str = ""
    uploads: int = 0
    remembered_s: float = 0.0


# --- when a table is dropped --------------------------------------------------------------------------------------------------


def note_left(coordination: Coordination, root: str, place: TablePlace) -> None:
    """Note what a dropped table that no replica is left in may have in its store; nothing where it certainly has nothing.

    Raises
    ------
    CoordinationUnavailable
        Whether it was noted is not known; drop the table again.
    """
    paths = layout.metadata(place), layout.columns(place), layout.sharing(place)
    metadata, columns, sharing = (coordination.perform(fx.Get(path)) for path in paths)
    if metadata is None or columns is None or sharing is None:
        # The table lies on disks, or another process has just removed and noted it.
        return
    definition, store_id = decode_definition(metadata.value, columns.value), sharing.value.decode()
    parents = layout.shares(place), layout.all_writing(place), layout.all_garbage(place)
    has_nodes = any(coordination.perform(fx.Children(parent)) for parent in parents)
    # No replica has ever opened it.
    is_unused = not store_id
    if not has_nodes and (is_unused or _has_nothing(definition, store_id)):
        return
    make_root(coordination, layout.all_dropped_objects(root))
    value = f"{store_id} {definition.store_url}".encode()
    noted = coordination.perform(fx.Commit(fx.Create(layout.dropped_objects(root, definition.table_id), value)))
    if not (isinstance(noted, fx.Applied) or (isinstance(noted, fx.Refused) and noted.reason is fx.Reason.NODE_EXISTS)):
        raise CoordinationUnavailable(
            f"table {place.name} is not dropped whole: what it may have left in {definition.store_url} could not be noted;"
            " drop it again"
        )


def _has_nothing(definition: TableDefinition, store_id: str) -> bool:
    """Whether a table's store is reached from here, and has nothing of it."""
    try:
        location = StoreLocation.parse(definition.store_url)
        if location.scheme == "file" and not Path(location.place).is_dir():
            # Opening the store would create the folder.
            return False
        left = ShareObjects(lambda: open_store(location, patience_s=LOOK_S), definition.table_id)
        left.store_id = store_id
        left.check_store()
        return inventory_of(left.store, definition.table_id).is_empty()
    except ReplitreeError:
        # This process can't reach the store; one that can will look later.
        return False


# --- later --------------------------------------------------------------------------------------------------------------------


def delete_left(catalog: Catalog, root: str, *, with_repair: bool, grace_s: float) -> tuple[LeftObjects, ...]:
    """Look what dropped tables have left, and delete it.

    Parameters
    ----------
    with_repair
        Whether to delete anything.
    grace_s
        How long a table is remembered after nothing was found any more, in seconds.
    """
    names: tuple[str, ...] = catalog.perform(fx.Children(layout.all_dropped_objects(root))) or ()
    found: list[LeftObjects] = []
    for table_id in names:
        path = layout.dropped_objects(root, table_id)
        node = catalog.perform(fx.Get(path))
        if node is None:
            # Another process has finished with it.
            continue
        store_id, _, url = node.value.decode().partition(" ")
        left = ShareObjects(partial(open_store, url), table_id)
        left.store_id = store_id
        try:
            left.check_store()
            seen = _Seen(left)
            if with_repair:
                seen.delete(catalog, path, node)
        except (StoreError, NotAuthorized, CoordinationUnavailable) as error:
            # The stores of other tables may be in reach.
            found.append(LeftObjects(table_id, url, problem=str(error)))
            continue
        remembered_s = grace_s if seen.has_something else seen.remembered_s(catalog, path, node, grace_s)
        # By version: a look that saw something meanwhile has set the node, and the grace begins again.
        if with_repair and not seen.has_something and not remembered_s:
            catalog.perform(fx.Commit(fx.Delete(path, node.version)))
        found.append(
            LeftObjects(
                table_id,
                url,
                len(seen.objects),
                sum(each.bytes for each in seen.objects),
                gone=not seen.problem and (with_repair or not seen.has_something),
                problem=seen.problem,
                uploads=len(seen.uploads),
                remembered_s=remembered_s,
            )
        )
    return tuple(found)


class _Seen:
    """What a dropped table has in its store.  Making it asks, and raises as `Inventory.uploads`."""

    def __init__(self, left: ShareObjects) -> None:
        self._left = left
        self._inventory: Inventory = inventory_of(left.store, left.root.rpartition("/")[2])
        self.objects: tuple[ObjectInfo, ...] = tuple(left.store.list(left.root))
        self.uploads: tuple[MultipartUpload, ...] = ()
        self.problem = ""
        try:
            self.uploads = self._inventory.uploads()
        except UploadsNotListed as error:
            # Objects can be deleted all the same; a rule of the bucket has to end the uploads.
            self.problem = f"{error}; {END_BY_RULE}"

    @property
    def has_something(self) -> bool:
        """Whether anything is there."""
        return bool(self.objects or self.uploads)

    def delete(self, catalog: Catalog, path: str, node: fx.Node) -> None:
        """Delete it all, and note before that something was there."""
        if self.has_something and not isinstance(
            catalog.perform(fx.Commit(fx.Set(path, node.value, fx.ANY_VERSION))), fx.Applied
        ):
            raise CoordinationUnavailable("coordination did not take note of what is to be deleted; run fsck again")
        for first in range(0, len(self.objects), BATCH):
            self._left.store.delete([each.key for each in self.objects[first : first + BATCH]])
        for upload in self.uploads:
            self._inventory.abort(upload)
        self._left.tidy()

    @staticmethod
    def remembered_s(catalog: Catalog, path: str, node: fx.Node, grace_s: float) -> float:
        """Seconds until nothing has been there for the whole grace."""
        return max(0.0, grace_s - (catalog.now_ms(path) - node.changed_ms) / 1000)


__all__ = ["LeftObjects", "delete_left", "note_left"]
