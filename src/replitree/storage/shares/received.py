"""Received: whether objects that another process has put are the data files that a manifest names.

Compared are, for every file: the size, the tag that the store gave to its writer, and, from the end of the file, the number of
rows and the columns.  Of a file a few kilobytes are read, whatever its size.

What is not: checksums, statistics and content hash are believed, as of every upload; `replitree check` reads every byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from replitree.errors import BadInput, CorruptPart
from replitree.storage.objects.store import ObjectStore
from replitree.storage.parts.adopt import check_schema
from replitree.storage.parts.manifest import MANIFEST_FILE, FileEntry, PartManifest
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.shares.object_bytes import sums_key
from replitree.storage.shares.shares import ShareObjects

LOOKS_AT_ONCE = 8
TAIL_BYTES = 64 << 10
"""Bytes at the end of a file that are read first: most footers are smaller."""

_END = 8
_MAGIC = b"PAR1"

Tags = Mapping[str, str]
"""The tag of each data file, by its name in the part."""


def check_received(objects: ShareObjects, manifest: PartManifest, definition: TableDefinition, tags: Tags) -> None:
    """Do nothing if the data files of a part are in its share.

    Parameters
    ----------
    objects, manifest
        Where they are, and what they should be.
    definition
        The table, with the columns that they were written for.
    tags
        What the store said of them when they were put; left out where it does not say the same everywhere.

    Raises
    ------
    CorruptPart
        A file is missing, or is another one.
    SchemaMismatch
        It has other columns.
    StoreError, NotAuthorized
        The store gives no answer.
    """
    with ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="look") as pool:
        looks = [
            pool.submit(_check, objects, str(manifest.share_id), file, definition.stored, tags.get(file.name, ""))
            for file in manifest.files
        ]
    for look in looks:
        look.result()


def remove_others(objects: ShareObjects, manifest: PartManifest) -> int:
    """Delete what a share has besides a part's data files: what tasks have put whose rows do not count.  Return how many."""
    share = str(manifest.share_id)
    data = [objects.key(share, file.name) for file in manifest.files]
    # Spark may have run a task twice: the files of the attempt that does not count are deleted.
    kept = {objects.key(share, MANIFEST_FILE), *data, *map(sums_key, data)}
    others = sorted(found.key for found in objects.store.list(f"{objects.root}/{share}") if found.key not in kept)
    objects.store.delete(others)
    return len(others)


def _check(objects: ShareObjects, share: str, file: FileEntry, definition: TableDefinition, tag: str) -> None:
    store, key = objects.store, objects.key(share, file.name)
    found = store.head(key)
    if found is None:
        # "Missing" is believed only of the store that it was: an unmounted disk has nothing either.
        objects.check_store()
        raise CorruptPart(f"the object {key} of {store.name} is missing; run the job again")
    if found.bytes != file.bytes:
        raise CorruptPart(f"the object {key} of {store.name} has {found.bytes} bytes, its manifest says {file.bytes}")
    # The tag of a folder's file is made of its times: it may differ for the same bytes.
    if tag and not store.is_folder and found.tag != tag:
        raise CorruptPart(f"the object {key} of {store.name} is not the one that was put there; run the job again")
    footer = read_footer(store, key, file.bytes)
    if footer.num_rows != file.rows:
        raise CorruptPart(f"the object {key} of {store.name} has {footer.num_rows} rows, its manifest says {file.rows}")
    check_schema(footer.schema.to_arrow_schema(), key, definition)


def read_footer(store: ObjectStore, key: str, size: int) -> Any:
    """Read what a Parquet file says of itself, from its end.

    Parameters
    ----------
    size
        Of the object, in bytes.

    Returns
    -------
    pyarrow.parquet.FileMetaData

    Raises
    ------
    BadInput
        It is no Parquet file.
    StoreError
        The store gives no answer.
    """
    import pyarrow.parquet as pq

    tail = store.get_range(key, max(0, size - TAIL_BYTES), min(size, TAIL_BYTES)) or b""
    needed = int.from_bytes(tail[-_END:-4], "little") + _END
    # The length comes from the object: it is compared with the size before so many bytes are asked for.
    if tail[-4:] != _MAGIC or not _END < needed <= size:
        raise BadInput(f"the object {key} of {store.name} is no Parquet file")
    if needed > len(tail):
        tail = store.get_range(key, size - needed, needed) or b""
    try:
        return pq.read_metadata(pa.BufferReader(tail))
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"the object {key} of {store.name} can't be read as Parquet: {error}") from error


__all__ = ["check_received", "read_footer", "remove_others"]
