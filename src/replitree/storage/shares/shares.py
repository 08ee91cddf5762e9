"""The objects of one table's shares: put whole, read file by file, looked at, deleted.

::

    tables/<table id>/<share>/data-0.parquet …    the data files, named as in the part's manifest, but for those that it borrows
    tables/<table id>/<share>/.data-0.parquet.crc …   the sums objects of large data files, each put after its data file
    tables/<table id>/<share>/manifest.json       the manifest, put last: so a reader of it finds the files

No object is overwritten: every attempt to write a part makes a new name for its share, and objects are created only where
there is none.

A sums object (`replitree.storage.shares.object_bytes`) may be missing or damaged without harm.  No manifest lists it; it is
deleted with its share, and a part that borrows a data file uses the lender's.  The check of parts puts one that is missing, and
puts the right bytes in the place of a damaged one: the only objects that are overwritten.

What is not found is missing only if the store itself is there: a disk that is not mounted, or another bucket under the same
name, has nothing either.  So the store's id is read again before that is said, and before a folder is written to.

Absent on purpose: who owns a share and when it may be deleted (`replitree.protocol.shares.sharing`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import xxhash

from replitree import private
from replitree.errors import BadInput, CorruptPart, NotAuthorized, StoreError, UnsupportedFormat
from replitree.storage.files.durable import store_errors
from replitree.storage.files.sums import Sums, SumsHasher, is_summed, read_sums
from replitree.storage.objects.probe import STORE_ID_KEY
from replitree.storage.objects.store import ObjectChanged, ObjectExists, ObjectStore
from replitree.storage.parts.checked_bytes import keep_sums
from replitree.storage.parts.manifest import (
    MANIFEST_FILE,
    FileEntry,
    PartManifest,
    decode_manifest,
    is_data_file,
    is_same_manifest,
)
from replitree.storage.parts.verified import Replace, StoredFile
from replitree.storage.shares.object_bytes import ObjectBytes, sums_key

PIECE_BYTES = 16 << 20
"""Bytes of an object that are read at once."""

PUTS_AT_ONCE = 4
LOOKS_AT_ONCE = 16
LOOKS_IN_TURN = 2
"""How many looks at objects are made one after the other: the manifest and the only file of most parts."""


@dataclass(frozen=True, slots=True)
class MissingObjects:
    """The objects that a part lacks in the store: data files, and `manifest`: the manifest of its own share."""

    files: tuple[FileEntry, ...]
    manifest: bool


class ShareObjects:
    """The objects of one table's shares.  Any thread may use it.

    Parameters
    ----------
    open_store
        Opens the store; called when it is needed first.
    table_id
        The table's id.

    Attributes
    ----------
    root
        What all their keys begin with.
    store_id
        Id that the store has while it is the table's; empty as long as that is not known.
    """

    def __init__(self, open_store: Callable[[], ObjectStore], table_id: str) -> None:
        self._open = open_store
        self.root = f"tables/{table_id}"
        self.store_id = ""
        self._opened: ObjectStore | None = None

    @property
    def store(self) -> ObjectStore:
        """The store.  Raises what opening it raises, until it could be opened."""
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def key(self, share: str, file: str) -> str:
        """Key of one object of a share."""
        return f"{self.root}/{share}/{file}"

    def file(self, manifest: PartManifest, file: FileEntry, replace: Replace | None = None) -> StoredFile:
        """Return a data file of a part, verified as it is read; `replace` as of `CheckedFile`."""
        key = self.key(str(manifest.share_of(file)), file.name)
        return StoredFile(Path(key), file, lambda: ObjectBytes(self.store, key, file), replace)

    def check_store(self) -> None:
        """Make sure that the store is there, and the one that it was.

        Raises
        ------
        StoreError, NotAuthorized
            It is not, or gives no answer.
        """
        if self.store_id and self.store.get(STORE_ID_KEY) != self.store_id.encode():
            raise StoreError(
                f"{self.store.name} is not there, or another store than it was: is its disk mounted, and its bucket the same?"
            )

    def put(self, share: str, folder: Path, manifest: PartManifest) -> None:
        """Put the data files in a folder, and then the manifest, as the objects of a new share; durable on return.

        Files that the part borrows are objects already.

        Raises
        ------
        StoreError, NotAuthorized
            It may be there in part, or come to be there later.
        """
        store = self.store
        # A folder whose disk is not mounted would be written to all the same, below the mount point.
        if store.is_folder:
            self.check_store()
        with ThreadPoolExecutor(PUTS_AT_ONCE, thread_name_prefix="put") as pool:
            puts = [pool.submit(self._put_file, share, file, folder / file.name) for file in manifest.own_files]
        # All have ended, the pool has waited: an error leaves no put that still runs.
        for put in puts:
            put.result()
        # After all data files: a reader of the manifest finds every file of it.
        store.create(self.key(share, MANIFEST_FILE), manifest.encode())

    def _put_file(self, share: str, file: FileEntry, path: Path) -> None:
        self.store.create(self.key(share, file.name), path)
        if is_summed(file.bytes):
            self.put_sums(self.key(share, file.name), read_sums(path, file.bytes, file.checksum))

    def put_sums(self, key: str, sums: Sums | None) -> None:
        """Put the sums object of a large data object, if its sums are known, and let it be when the store refuses it."""
        if sums is None:
            return
        # Readers do without it, and one that comes to be there later has the right bytes.  So no failure may end what the
        # data object was put for.  That includes refused credentials: the caller's next request says so, unless only this name
        # is refused.
        with suppress(StoreError, NotAuthorized):
            self.store.create(sums_key(key), sums.encoded)

    def unsummed(self, manifest: PartManifest) -> dict[str, Sums]:
        """Return the sums of a part's large data objects that have no sums object of theirs, by the data object's key.

        An object whose sums this process does not keep is read as a whole; `verify` keeps them.

        Raises
        ------
        DamagedFile, FileNotFoundError
            An object is not what the manifest says, or is gone.
        StoreError, NotAuthorized
            The store gives no answer.
        """
        found = {}
        for file in manifest.files:
            key = self.key(str(manifest.share_of(file)), file.name)
            source = ObjectBytes(self.store, key, file)
            # A damaged one counts as missing here, and is replaced.
            if is_summed(file.bytes) and source.sums_object() is None:
                found[key] = source.sums()
        return found

    def put_sums_again(self, key: str, sums: Sums) -> None:
        """Put the sums object of a data object, also in the place of a damaged one.  Another replica may do so meanwhile.

        Raises
        ------
        StoreError, NotAuthorized
            It is not done, or may be done later.
        """
        found = self.store.get_tagged(sums_key(key))
        # Another replica has just put the same bytes.
        with suppress(ObjectExists, ObjectChanged):
            if found is None:
                self.store.create(sums_key(key), sums.encoded)
            elif found.data != sums.encoded:
                self.store.replace(sums_key(key), sums.encoded, found.tag)

    def put_manifest(self, manifest: PartManifest) -> None:
        """Put the manifest of a share whose data files are there.  It may be put again.

        Raises
        ------
        BadInput
            The share has another one.
        StoreError, NotAuthorized
            It may be there, or come to be there later.
        """
        assert manifest.share_id is not None, "only what is in a store has a share"
        key = self.key(manifest.share_id, MANIFEST_FILE)
        found = self.store.get(key)
        if found is None:
            try:
                self.store.create(key, manifest.encode())
            # Another replica has just put it.
            except ObjectExists:
                found = self.store.get(key)
            else:
                return
        # With a checksum or without: replicas of two versions write the manifest of one part in two forms.
        if not is_same_manifest(found, manifest):
            raise BadInput(
                f"{key} of {self.store.name} is another manifest: an upload is committed once, as one insert"
            )

    def is_here(self, manifest: PartManifest) -> bool:
        """Whether the shares of a manifest are in this store, with all data files.

        Their own manifests are read and compared: another store may have something else under the same keys.  Of the data files
        the store tells the sizes.

        Raises
        ------
        StoreError, NotAuthorized
            The store gives no answer.
        """
        share = manifest.share_id
        if share is None:
            return False
        lends = (partial(self._lends, lender, files) for lender, files in manifest.borrowed.items())
        return _all_say_yes([partial(self._has_manifest, share, manifest), *lends, *self._looks_at_files(manifest)])

    def has_files(self, manifest: PartManifest) -> bool:
        """Whether every data file of a part is an object here, in its full size.  Raises as `is_here`."""
        return _all_say_yes(self._looks_at_files(manifest))

    def missing(self, manifest: PartManifest) -> MissingObjects:
        """Return which objects of a part are not there; the store itself is.

        Raises
        ------
        CorruptPart
            An object has another size than the manifest says: nothing may be put in its place.
        StoreError, NotAuthorized
            The store is not there, or gives no answer.
        """
        missing: list[FileEntry] = []
        for file in manifest.files:
            key = self.key(str(manifest.share_of(file)), file.name)
            found = self.store.head(key)
            if found is None:
                missing.append(file)
            elif found.bytes != file.bytes:
                raise CorruptPart(
                    f"the object {key} of {self.store.name} has {found.bytes} bytes, its manifest says {file.bytes} bytes"
                )
        lacks_manifest = not self.has_manifest(manifest)
        # Before anything is called missing: see the module.
        if missing or lacks_manifest:
            self.check_store()
        return MissingObjects(tuple(missing), lacks_manifest)

    def has_manifest(self, manifest: PartManifest) -> bool:
        """Whether the share of a part has a manifest.  Raises as `is_here`."""
        return self.store.head(self.key(str(manifest.share_id), MANIFEST_FILE)) is not None

    def put_again(self, share: str, file: FileEntry, source: Path) -> None:
        """Create a data file that is missing, unless another process has created it meanwhile; the caller verifies it then.

        Raises
        ------
        CorruptPart
            The source has just left.
        StoreError, NotAuthorized
            It may be there, or come to be there later.
        """
        try:
            self._put_file(share, file, source)
        except ObjectExists:
            return
        except FileNotFoundError as error:
            raise CorruptPart(f"{source} has just left: there is no copy of {file.name} any more") from error

    def _looks_at_files(self, manifest: PartManifest) -> list[Callable[[], bool]]:
        return [partial(self._has_file, str(manifest.share_of(file)), file) for file in manifest.files]

    def _has_manifest(self, share: str, manifest: PartManifest) -> bool:
        return is_same_manifest(self.store.get(self.key(share, MANIFEST_FILE)), manifest)

    def verify_manifest(self, manifest: PartManifest) -> None:
        """Read the manifest in a part's own share: what is left of the part when the replicas' disks are lost.

        Raises
        ------
        CorruptPart
            It is missing, or is not what the replica's is.
        StoreError, NotAuthorized
            The store gives no answer.
        """
        share = str(manifest.share_id)
        if not self._has_manifest(share, manifest):
            key = self.key(share, MANIFEST_FILE)
            raise CorruptPart(f"the object {key} of {self.store.name} is missing, or is not the manifest of its part")

    def _has_file(self, share: str, file: FileEntry) -> bool:
        found = self.store.head(self.key(share, file.name))
        return found is not None and found.bytes == file.bytes

    def manifest_in(self, share: str) -> bytes | None:
        """Read the manifest that was put into a share; None when there is none, and the store is there.

        Raises
        ------
        StoreError, NotAuthorized
            The store is not there, or gives no answer.
        """
        found = self.store.get(self.key(share, MANIFEST_FILE))
        if found is None:
            self.check_store()
        return found

    def _lends(self, share: str, files: tuple[FileEntry, ...]) -> bool:
        """Whether a share is here and has these files."""
        found = self.store.get(self.key(share, MANIFEST_FILE))
        try:
            # Only the lender's own files: a share that itself borrows lends nothing of others.
            lent = () if found is None else decode_manifest(found).own_files
        except (CorruptPart, UnsupportedFormat):
            return False
        return set(files) <= set(lent)

    def bring(self, share: str, file: FileEntry, target: Path) -> None:
        """Copy one data file here, whole and with its checksum, or not at all.

        Raises
        ------
        CorruptPart
            The object is not there, or is not what the manifest says.
        StoreError
            The store gives no answer, or the disk takes no more.
        """
        # A draft of its own for each try: two threads may bring the same file.
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with private.open_file(draft, "xb") as out:
                self._read(share, file, out.write)
            draft.replace(target)
        except OSError as error:
            raise StoreError(f"can't keep {target}: {os.strerror(error.errno or 0)}") from error
        finally:
            draft.unlink(missing_ok=True)

    def data_in(self, share: str) -> dict[str, int]:
        """Return the names of a share's data objects, and their sizes in bytes, whatever its manifest says.

        Raises
        ------
        StoreError, NotAuthorized
            The store gives no answer.
        """
        found = {each.key.rpartition("/")[2]: each.bytes for each in self.store.list(f"{self.root}/{share}")}
        if not found:
            self.check_store()
        return {name: size for name, size in sorted(found.items()) if is_data_file(name)}

    def bring_unverified(self, share: str, name: str, size: int, target: Path) -> Path:
        """Copy one data object here as it is; return `target`.  Raises as `bring`."""
        key = self.key(share, name)
        with store_errors(f"keep {target}"), private.open_file(target, "xb") as out:
            for first in range(0, size, PIECE_BYTES):
                piece = self.store.get_range(key, first, min(PIECE_BYTES, size - first))
                if piece is None:
                    raise CorruptPart(f"the object {key} of {self.store.name} has just been deleted")
                out.write(piece)
        return target

    def verify(self, share: str, file: FileEntry) -> None:
        """Read every byte of a data file and compare its checksum.  Raises as `bring`.

        The sums of a large one are kept if no sums object has them: `unsummed` needs them next.
        """
        source = ObjectBytes(self.store, self.key(share, file.name), file)
        # The bytes are read once: with them the sums that `unsummed` asks for next are made, if they are needed.
        if not is_summed(file.bytes) or source.sums_object() is not None:
            self._read(share, file, lambda _: None)
            return
        hasher = SumsHasher()
        self._read(share, file, hasher.update)
        keep_sums(file, hasher.finish())

    def delete(self, share: str) -> None:
        """Delete whatever a share has, also the folder of a store that is one.

        Raises
        ------
        StoreError, NotAuthorized
            Something of it may be left.
        """
        keys = [found.key for found in self.store.list(f"{self.root}/{share}")]
        if not keys:
            self.check_store()
        # In the order of keys the manifest goes after the data files,
        # so a deletion that is cut short still tells what was there.
        self.store.delete(sorted(keys))
        self.store.tidy(f"{self.root}/{share}")

    def tidy(self) -> None:
        """Remove the table's folders as far as nothing is in them: the table is dropped.  Only a store in a folder has any.

        Raises
        ------
        StoreError
            Some may be left.
        """
        self.store.tidy(self.root)

    def _read(self, share: str, file: FileEntry, take: Callable[[bytes], object]) -> None:
        """Read one object piece by piece; compare size and checksum."""
        key, store, hasher = self.key(share, file.name), self.store, xxhash.xxh3_128()
        found = store.head(key)
        if found is None:
            self.check_store()
        if found is None or found.bytes != file.bytes:
            what = "is missing" if found is None else f"has {found.bytes} bytes"
            raise CorruptPart(f"the object {key} of {store.name} {what}, its manifest says {file.bytes} bytes")
        for first in range(0, file.bytes, PIECE_BYTES):
            piece = store.get_range(key, first, min(PIECE_BYTES, file.bytes - first))
            if piece is None:
                self.check_store()
                raise CorruptPart(f"the object {key} of {store.name} has just been deleted")
            hasher.update(piece)
            take(piece)
        if hasher.hexdigest() != file.checksum:
            raise CorruptPart(f"the object {key} of {store.name} is not what its checksum says")


def _all_say_yes(looks: Sequence[Callable[[], bool]]) -> bool:
    """Whether all looks at a store say yes; more than a few are made at once."""
    # Threads cost more than one or two answers.
    if len(looks) <= LOOKS_IN_TURN:
        return all(look() for look in looks)
    with ThreadPoolExecutor(min(LOOKS_AT_ONCE, len(looks)), thread_name_prefix="look") as pool:
        return all(pool.map(lambda look: look(), looks))


__all__ = ["ShareObjects"]
