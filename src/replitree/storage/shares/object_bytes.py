"""Bytes of a data file that is an object in a store, with the sums that tell whether they are the right ones.

Sums (`replitree.storage.files.sums`) come from the first of these places that has them:

1. the memory of this process
2. the *sums object* beside the data object, which its writer has put there
3. the data object: all of it is read once, and its checksum is compared with the manifest's

A sums object is believed as much as the manifest is, since it must be of a file with the manifest's size and checksum.  One
that is missing, damaged, or of another file costs the third way, and nothing else, until the check of parts has put a good one.
So nothing that is put, owned, deleted or verified depends on sums objects: to the protocol of shares a sums object is a piece
of its data object.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from replitree.errors import NotAuthorized, StoreError
from replitree.storage.files.sums import Sums, SumsHasher, decode_sums, sums_bytes, sums_name
from replitree.storage.objects.store import ObjectStore
from replitree.storage.parts.checked_bytes import damaged, keep_sums, kept_sums
from replitree.storage.parts.manifest import FileEntry

PIECE_BYTES = 8 << 20
"""Bytes that are read at once, where all of an object is read."""

WHOLE_TRIES = 2
"""How often an object without a sums object is read before it is called damaged: a transfer may have gone wrong."""


@dataclass(frozen=True, slots=True)
class ObjectBytes:
    """See `replitree.storage.parts.checked_bytes.ByteSource`.

    Attributes
    ----------
    store, key
        Where the object is.
    entry
        What the manifest says of it.
    """

    store: ObjectStore
    key: str
    entry: FileEntry

    @property
    def path(self) -> Path:
        """The object's place, for messages."""
        return Path(self.key)

    @property
    def is_remote(self) -> bool:
        """Whether reading again may help."""
        return True

    def read(self, first: int, count: int) -> pa.Buffer:
        """Read exactly `count` bytes from byte `first` on; raises as the protocol says."""
        try:
            data = self.store.get_range(self.key, first, count)
        except StoreError as error:
            # A failed range may mean that the object is shorter:
            # stores say that in many ways, so its size is asked for.
            found = self.store.head(self.key)
            if found is not None and found.bytes != self.entry.bytes:
                raise damaged(self.path, f"has {found.bytes} bytes in {self.store.name}") from error
            if found is not None:
                raise
            data = None
        if data is None:
            raise FileNotFoundError(errno.ENOENT, f"the object is gone from {self.store.name}", self.key)
        return pa.py_buffer(data)

    def sums(self) -> Sums:
        """Return the sums of the object; raises as the protocol says."""
        found = kept_sums(self.entry)
        if found is not None:
            return found
        found, tries = self.sums_object(), 0
        while found is None:
            if tries == WHOLE_TRIES:
                raise damaged(self.path, f"of {self.store.name} has changed")
            tries += 1
            hasher, size = SumsHasher(), self.entry.bytes
            # All of the object, piece by piece: it may be larger than the memory.
            for first in range(0, size, PIECE_BYTES):
                hasher.update(self.read(first, min(PIECE_BYTES, size - first)))
            if hasher.checksum == self.entry.checksum:
                found = hasher.finish()
        keep_sums(self.entry, found)
        return found

    def close(self) -> None:
        """Nothing is open."""

    def sums_object(self) -> Sums | None:
        """Return what the sums object has; None when there is none, or it is damaged, of another file, or not to be had."""
        try:
            data = self.store.get_range(sums_key(self.key), 0, sums_bytes(self.entry.bytes))
        except (StoreError, NotAuthorized):
            # It is shorter than that; or the store refuses to tell that it is not there, as stores do when a reader may not
            # list objects.  A store that is away refuses the data object, too.
            return None
        return None if data is None else decode_sums(data, self.entry.bytes, self.entry.checksum)


def sums_key(key: str) -> str:
    """Return the key of a data object's sums object.

    Examples
    --------
    >>> sums_key("tables/t/s/data-0.parquet")
    'tables/t/s/.data-0.parquet.crc'
    """
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}{sums_name(name)}"


__all__ = ["ObjectBytes", "sums_key"]
