"""The object store of a table, as a reader reaches it: objects are read where they are, with no replica in between.

Guarantees:

* What is read belongs to the snapshot: objects are never replaced, and the name of a share is used once.
* That this process reaches the *table's* store is proved by reading: the manifest of a share is there, and has the files of
  the snapshot's.  A URL proves nothing, it may mean another bucket or folder here.
* Who has no credentials, or reaches no store, is told why, and reads through a replica.

The lease of a snapshot keeps its parts on one replica's disk, and with them that replica's marks on their shares; so
their objects stay.

Absent on purpose: writing and deleting; credentials from anywhere but the environment of the process that reads.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from replitree.errors import BadInput, ReplitreeError, StoreError
from replitree.storage.parts.manifest import MANIFEST_FILE, FileEntry, PartManifest, decode_manifest, is_same_manifest
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    from replitree.storage.shares.shares import ShareObjects

PATIENCE_S = 10.0
"""How long a reader waits for the store's answers, in seconds, before it asks a replica instead."""

ASK_AGAIN_S = 30.0
"""A store that could not be reached is not asked again for so long, in seconds."""

Through: TypeAlias = Literal["store", "replica"]
"""How objects are read; without it the store where it is reached, else a replica."""

THROUGH: tuple[Through, ...] = ("store", "replica")


class StoredParts:
    """The parts of one table in its store.  Any thread may use it.

    Parameters
    ----------
    definition
        The table's; its parts may lie in a store.
    environment
        Where credentials are looked for; the process's own by default.

    Attributes
    ----------
    url
        Of the store, as the definition says it.
    location
        Where the store is.
    objects
        Its objects of this table.
    """

    def __init__(self, definition: TableDefinition, environment: Mapping[str, str] | None = None) -> None:
        # With Arrow and obstore, which handles of tables on the replicas' disks do not need.
        from replitree.storage.objects.location import StoreLocation
        from replitree.storage.objects.opening import open_store
        from replitree.storage.shares.shares import ShareObjects

        self.url = definition.store_url
        self.location = StoreLocation.parse(definition.store_url)
        opening = partial(
            open_store,
            self.location,
            environment=os.environ if environment is None else environment,
            patience_s=PATIENCE_S,
        )
        self.objects: ShareObjects = ShareObjects(opening, definition.table_id)
        self._lock = threading.Lock()
        self._problem: ReplitreeError | None = None
        self._valid_until = float("-inf")

    @property
    def is_folder(self) -> bool:
        """Whether objects are files of a folder."""
        return self.location.scheme == "file"

    def folder(self, manifest: PartManifest) -> Path | None:
        """Return the folder of a part's own share, with its manifest, if its store is a folder that is here; else None."""
        if not self.is_folder or manifest.share_id is None:
            return None
        folder = Path(self.location.place) / self.objects.root / manifest.share_id
        try:
            found = (folder / MANIFEST_FILE).read_bytes()
        except OSError:
            # The folder is on another machine, or the share is gone: a replica is asked for the part.
            return None
        return folder if is_same_manifest(found, manifest) else None

    def path(self, manifest: PartManifest, file: FileEntry) -> Path:
        """Return where a data file of a part lies in a store that is a folder."""
        return Path(self.location.place) / self.objects.key(str(manifest.share_of(file)), file.name)

    def problem(self, manifest: PartManifest) -> ReplitreeError | None:
        """Find out why objects can't be read from here; None when they can.

        Parameters
        ----------
        manifest
            Of a part in the store, which is looked for as the proof.
        """
        if self.is_folder:
            return None if self.folder(manifest) is not None else StoreError(self._elsewhere())
        with self._lock:
            if time.monotonic() >= self._valid_until:
                self._problem = None
                try:
                    found = self.objects.store.get(self.objects.key(str(manifest.share_id), MANIFEST_FILE))
                    if found is None or decode_manifest(found).files != manifest.files:
                        # Only this part's objects may be gone: the next part is asked for in the store, too.
                        return StoreError(self._elsewhere())
                except ReplitreeError as error:
                    self._problem = error
                # A store that was reached once stays usable; after a problem it is asked again later.
                self._valid_until = float("inf") if self._problem is None else time.monotonic() + ASK_AGAIN_S
            return self._problem

    def bring(self, manifest: PartManifest, file: FileEntry, target: Path) -> bool:
        """Copy one data file of a part here, verified; tell whether that was possible."""
        share = manifest.share_of(file)
        if share is None or self.problem(manifest) is not None:
            return False
        try:
            self.objects.bring(share, file, target)
        except ReplitreeError:
            # A replica may have the file, or report a clearer error.
            return False
        return True

    def key(self, manifest: PartManifest, file: FileEntry) -> str:
        """Return the whole key of a data file in the bucket."""
        share = manifest.share_of(file)
        assert share is not None, "only what is in a store has a key"
        return "/".join(filter(None, (self.location.prefix, self.objects.key(share, file.name))))

    def _elsewhere(self) -> str:
        return (
            f"{self.location} does not have the table's objects here: let this process reach the store that the replicas"
            " use, or read through a replica"
        )


def stored_parts(definition: TableDefinition) -> StoredParts | None:
    """Return how the parts of a table are read in its store; None when it has none."""
    return StoredParts(definition) if definition.is_shared else None


def through_of(text: str | None) -> Through | None:
    """Read how objects are to be read.

    Raises
    ------
    BadInput
        There is no such way.

    Examples
    --------
    >>> through_of("Store")
    'store'
    """
    for way in THROUGH:
        if text is not None and text.lower() == way:
            return way
    if text is not None:
        raise BadInput(f"through is {' or '.join(THROUGH)}, not {text!r}; leave it out for whichever works")
    return None


__all__ = ["THROUGH", "StoredParts", "Through", "stored_parts", "through_of"]
