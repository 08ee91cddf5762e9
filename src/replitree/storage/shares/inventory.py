"""The inventory of one table's shares in a store: every object, uploads that were begun and not ended, the store's time.

What was begun is in a folder a file with another name, and in a bucket an upload in pieces.  Of all tables together: what
processes have left that tried the store, or asked for its time.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from replitree.errors import StoreError
from replitree.protocol.rescue.fsck_look import Listing, MultipartUpload, StoredObject, Trial
from replitree.protocol.shares.share import ShareId
from replitree.storage.files.durable import store_errors
from replitree.storage.files.folder_walk import below
from replitree.storage.files.sums import sums_name
from replitree.storage.objects.bucket_uploads import MultipartUploads, UploadsNotListed
from replitree.storage.objects.location import AMAZON, GOOGLE, StoreLocation
from replitree.storage.objects.opening import identity_for
from replitree.storage.objects.probe import PROBES
from replitree.storage.objects.store import ObjectStore

END_BY_RULE = "let a rule of the bucket end them"
"""The advice about uploads that the server does not list."""

_CLOCKS = "replitree-clock"
_BEGUN = "#"
"""In a folder, what is not whole yet has this in its name; listings leave it out."""


class Inventory:
    """The objects of one table in a store.

    Parameters
    ----------
    store, location
        The store, and where it is.
    table_id
        The table's id.
    uploads
        The uploads of a bucket; None of other stores.
    """

    def __init__(
        self, store: ObjectStore, location: StoreLocation, table_id: str, uploads: MultipartUploads | None = None
    ) -> None:
        self._store = store
        self._root = f"tables/{table_id}"
        self._folder = Path(location.place) if location.scheme == "file" else None
        self._uploads = uploads

    def listing(self) -> Listing:
        """List everything.

        Raises
        ------
        StoreError, NotAuthorized
            The store did not answer, or refused.
        """
        # The time first: what is stored while the list is made is younger than it.
        now_ms, begun, not_judged = self._now_ms(), tuple[MultipartUpload, ...](), ""
        stored: list[StoredObject] = []
        for info in self._store.list(self._root):
            share, _, file = info.key.removeprefix(f"{self._root}/").partition("/")
            if file:
                stored.append(StoredObject(ShareId(share), file, info.bytes, _ms(info.modified)))
        # A sums object counts as a piece of its data object.  One whose data object is gone is listed: otherwise nothing
        # would ever delete it.
        pieces = {(each.share, sums_name(each.file)) for each in stored}
        objects = tuple(each for each in stored if (each.share, each.file) not in pieces)
        try:
            begun = self.uploads()
        except UploadsNotListed as error:
            not_judged = f"{error}; {END_BY_RULE}"
        trials = tuple(
            Trial(info.key, info.bytes, _ms(info.modified))
            for prefix in (PROBES, _CLOCKS)
            for info in self._store.list(prefix)
        )
        return Listing(now_ms, objects, begun, trials, not_judged)

    def uploads(self) -> tuple[MultipartUpload, ...]:
        """List what was begun and not ended.

        Raises
        ------
        UploadsNotListed
            The server does not offer that: nothing is known.
        StoreError, NotAuthorized
            The store did not answer, or refused.
        """
        return tuple(self._begun())

    def is_empty(self) -> bool:
        """Whether nothing of the table is there, neither whole nor begun.

        Raises
        ------
        UploadsNotListed
            No object is there; of what was begun nothing is known.
        StoreError, NotAuthorized
            The store did not answer, or refused.
        """
        # One object is enough: a listing of a large table would take minutes.
        has_object = next(self._store.list(self._root), None) is not None
        return not has_object and next(self._begun(), None) is None

    def abort(self, upload: MultipartUpload) -> None:
        """Remove what was begun and not ended.

        Raises
        ------
        StoreError
            It could not be removed.
        """
        if self._folder is None:
            assert self._uploads is not None, "it was found in a folder or a bucket"
            self._uploads.abort(f"{self._root}/{upload.share}/{upload.file}", upload.upload)
            return
        path = self._folder / self._root / upload.share / upload.upload
        try:
            # Its writer may have ended it meanwhile.
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"can't remove {path}: {error.strerror}; remove it by hand") from error
        self._store.tidy(f"{self._root}/{upload.share}")

    def delete_trial(self, key: str) -> None:
        """Delete an object that no table has.

        Raises
        ------
        StoreError, NotAuthorized
            It may be there.
        """
        self._store.delete([key])
        place = key.rpartition("/")[0]
        # Others may be about to put their clocks into that folder.
        if place != _CLOCKS:
            self._store.tidy(place)

    def _now_ms(self) -> int:
        """Ask for the store's own time: what it says of an object that was made just now."""
        key = f"{_CLOCKS}/{uuid.uuid4()}"
        self._store.create(key, b"")
        try:
            made = self._store.head(key)
        finally:
            self._store.delete([key])
        if made is None:
            raise StoreError(f"{self._store.name} does not show what was stored a moment ago; try again")
        return _ms(made.modified)

    def _begun(self) -> Iterator[MultipartUpload]:
        if self._folder is not None:
            with store_errors(f"list {self._folder / self._root}"):
                paths = sorted(path for path in below(self._folder / self._root) if _BEGUN in path.name)
            for path in paths:
                try:
                    begun = path.stat().st_mtime
                except FileNotFoundError:  # it was ended a moment ago
                    continue
                file = path.name.rpartition(_BEGUN)[0]
                yield MultipartUpload(ShareId(path.parent.name), file, path.name, int(begun * 1000))
        for each in self._uploads.begun(f"{self._root}/") if self._uploads is not None else ():
            share, _, file = each.key.removeprefix(f"{self._root}/").partition("/")
            yield MultipartUpload(ShareId(share), file, each.upload, _ms(each.begun))


def inventory_of(store: ObjectStore, table_id: str) -> Inventory:
    """Return what tells what an open store has of a table; uploads are asked for with the identity of this process.

    Raises
    ------
    NotAuthorized, StoreError
        There is none for the bucket: as of `open_store`.
    """
    location = StoreLocation.parse(store.name)
    # Azure ends uploads by itself; its interface does not list them by the path of a table.
    has_uploads = location.scheme in (AMAZON, GOOGLE)
    uploads = MultipartUploads(location, identity_for(location).current) if has_uploads else None
    return Inventory(store, location, table_id, uploads)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


__all__ = ["END_BY_RULE", "Inventory", "inventory_of"]
