"""Data files, wherever they lie: on a disk, or as objects that Arrow opens in a store.

Guarantees: a file that is missing or damaged is a `CorruptPart` that names its part; a store that gives no answer is a
`StoreError`, since nothing is known of the file then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import xxhash

from replitree.errors import CorruptPart, StoreError
from replitree.storage.durable import file_bytes, file_checksum
from replitree.storage.manifest import FileEntry
from replitree.storage.read import StoredFile

if TYPE_CHECKING:
    import pyarrow.parquet as pq

PIECE_BYTES = 4 << 20
"""What is read of an object at once, where all of it is read."""

DataFile: TypeAlias = Path | StoredFile
"""Where a data file is opened."""


@contextmanager
def reading_part(part: Path, file: DataFile | None = None) -> Iterator[None]:
    """Turn whatever goes wrong with the files of a part into an error that names it.

    Parameters
    ----------
    part
        Its folder or its name.
    file
        The one that is read, if it may be in a store.

    Raises
    ------
    CorruptPart
        A file is missing or damaged.
    StoreError
        A store did not answer.
    """
    try:
        yield
    except StoreError:
        raise
    except (OSError, pa.ArrowException, ValueError) as error:
        if isinstance(file, StoredFile) and isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise StoreError(f"the object store did not answer for part {part}: {error}; try again") from error
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
        return pq.ParquetFile(file.path, filesystem=file.filesystem, pre_buffer=True)
    return pq.ParquetFile(file, pre_buffer=False, buffer_size=buffer_bytes)


def footer_of(file: DataFile) -> pq.FileMetaData:
    """Read what a data file says of itself."""
    import pyarrow.parquet as pq

    if isinstance(file, StoredFile):
        return pq.read_metadata(file.path, filesystem=file.filesystem)
    return pq.read_metadata(file)


def is_whole(file: DataFile, entry: FileEntry) -> bool:
    """Whether a data file has the size and the checksum that its manifest says; every byte is read."""
    if isinstance(file, StoredFile):
        return _read(file) == (entry.bytes, entry.checksum)
    return file_bytes(file) == entry.bytes and file_checksum(file) == entry.checksum


def _read(file: StoredFile) -> tuple[int, str]:
    """Read an object piece by piece; return its size and its checksum."""
    hasher, size = xxhash.xxh3_128(), 0
    with file.filesystem.open_input_stream(file.path) as stream:
        while piece := _piece(stream):
            hasher.update(piece)
            size += len(piece)
    return size, hasher.hexdigest()


def _piece(stream: Any) -> bytes:
    found: bytes = stream.read(PIECE_BYTES)
    return found


__all__ = ["DataFile", "footer_of", "is_whole", "open_parquet", "reading_part"]
