"""Data files, wherever they lie: on a disk, or as objects in a store.

Guarantees: a file that is missing or damaged is a `CorruptPart` that names its part; a store that gives no answer is a
`StoreError`, since nothing is known of the file then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import xxhash

from replitree.errors import CorruptPart, SnapshotExpired, StoreError
from replitree.storage.files.durable import file_bytes, file_checksum
from replitree.storage.parts.checked_bytes import CheckedBytes
from replitree.storage.parts.manifest import FileEntry
from replitree.storage.parts.part_folder import DamagedFile
from replitree.storage.parts.verified import CheckedFile, StoredFile

if TYPE_CHECKING:
    import pyarrow.parquet as pq

PIECE_BYTES = 4 << 20
"""Bytes that are read at once, where all of an object is read."""

DataFile: TypeAlias = Path | CheckedFile | StoredFile
"""Where a data file is opened; a path is that of a file which was verified as a whole, or is not a part's."""


@contextmanager
def reading_part(part: Path) -> Iterator[None]:
    """Turn whatever goes wrong with the files of a part into an error that names it.

    Parameters
    ----------
    part
        Its folder or its name.

    Raises
    ------
    CorruptPart
        A file is missing or damaged.
    StoreError
        A store did not answer; `NotAuthorized` when it has refused.
    """
    try:
        yield
    # A store that gives no answer says nothing of the file, and an expired snapshot nothing of the part.
    except (StoreError, SnapshotExpired):
        raise
    except (OSError, pa.ArrowException, ValueError) as error:
        raise CorruptPart(f"part {part} can't be read ({error}); fetch the part again") from error


def open_parquet(file: DataFile, *, buffer_bytes: int) -> pq.ParquetFile:
    """Open a data file; of one in a store each row group is asked for at once, of others as little as is needed.

    Parameters
    ----------
    buffer_bytes
        How much of a column is read from a disk at once.
    """
    import pyarrow.parquet as pq

    if isinstance(file, StoredFile):
        # A request to a store takes as long as megabytes do: a row group is asked for at once.
        return pq.ParquetFile(file.open(), pre_buffer=True)
    if isinstance(file, CheckedFile):
        return pq.ParquetFile(file.open(), pre_buffer=False, buffer_size=buffer_bytes)
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=buffer_bytes)


def footer_of(file: DataFile) -> pq.FileMetaData:
    """Read what a data file says of itself."""
    import pyarrow.parquet as pq

    if isinstance(file, CheckedFile | StoredFile):
        return pq.read_metadata(file.open())
    return pq.read_metadata(file)


def is_whole(file: DataFile, entry: FileEntry) -> bool:
    """Whether a data file, or its good copy, has the size and the checksum that its manifest says; every byte is read."""
    if isinstance(file, StoredFile):
        if file.entry.bytes != entry.bytes:
            return False
        # Where a good copy is to be had, this read goes on with it, as every later one does.
        read = CheckedBytes(file).read if file.replace is not None else file.source().read
        hasher = xxhash.xxh3_128()
        try:
            for first in range(0, entry.bytes, PIECE_BYTES):
                hasher.update(read(first, min(PIECE_BYTES, entry.bytes - first)))
        except DamagedFile:
            return False
        return hasher.hexdigest() == entry.checksum
    path = file.path if isinstance(file, CheckedFile) else file
    return file_bytes(path) == entry.bytes and file_checksum(path) == entry.checksum


__all__ = ["DataFile", "footer_of", "is_whole", "open_parquet", "reading_part"]
