"""Files that an engine reads by itself: DuckDB and Polars read Parquet faster than through Arrow.

An engine gets the paths of data files only when

* they lie on this machine, and have exactly the columns that readers see;
* every byte of them was compared with its checksum by this process, and the file system says that they have not changed since;
* they are not so many (`BYTES_MAX`) that reading all of them once would take long.

Otherwise it gets a dataset, through which each byte is compared when it is read (`replitree.storage.rewrite.dataset`).

What an engine reads by itself is not compared once more.  Damage that comes later the replica finds when it checks its
parts; a snapshot after that is right again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from replitree.client.read.snapshot import Snapshot, SnapshotPart
from replitree.errors import SnapshotExpired
from replitree.storage.schema.layout import layout_of

BYTES_MAX = 4 << 30
"""Bytes of files that are compared at once; about two seconds."""

KNOWN_MAX = 100_000
"""Files of which this process remembers that they are whole."""

_PATTERN = frozenset("*?[]{}\\")
"""Engines take a path with one of these for a pattern."""

_Signature = tuple[int, int, int, int, int, str]

_lock = threading.Lock()
_known: OrderedDict[_Signature, None] = OrderedDict()


def native_paths(snapshot: Snapshot, columns: Sequence[str]) -> list[Path] | None:
    """Return the data files of a snapshot for an engine that reads them by itself; None when it must not.

    Parameters
    ----------
    snapshot
        What is read.
    columns
        Which columns.

    Raises
    ------
    CorruptPart
        A part is damaged, and no replica has good files with its rows.
    SnapshotExpired
        A part is gone; `LeaseLost` when the snapshot had a lease and lost it.
    """
    parts = snapshot.select()
    versions = {part.manifest.schema_version for part in parts}
    # Of two versions one may have columns that the other lacks: engines take the columns of the first file.
    if len(versions) != 1 or sum(part.manifest.bytes for part in parts) > BYTES_MAX:
        return None
    layout = layout_of(snapshot.definition, *versions)
    if not all(origin.is_plain for origin in layout if origin.column.name in columns):
        return None
    try:
        if snapshot.near(parts) is None:
            return None
    except SnapshotExpired:
        # A part has left this machine; the dataset brings it from a replica, or says that it is gone.
        return None
    paths = [path for part in parts for path in _whole(snapshot, part)]
    return None if any(_PATTERN & set(str(path)) for path in paths) else paths


def _whole(snapshot: Snapshot, part: SnapshotPart) -> list[Path]:
    """Return the files of a part, each of them compared with its checksum now or earlier."""
    (checked,) = snapshot.checked([part])
    # Before the bytes are compared: a file that changes meanwhile has another signature afterwards.
    signatures: list[_Signature | None] = []
    for file in checked.files:
        try:
            found = file.path.stat()
        except OSError:
            # It is not there: a good copy is fetched below.
            signatures.append(None)
            continue
        # The change time: no program can set it back.
        times = found.st_mtime_ns, found.st_ctime_ns
        signatures.append((found.st_dev, found.st_ino, found.st_size, *times, file.entry.checksum))
    with _lock:
        is_known = all(signature in _known for signature in signatures)
    if not is_known:
        (whole,) = snapshot.whole([part])
        if whole.folder != checked.folder:
            # Good copies, in a folder of this process.
            return [file.path for file in whole.files]
        with _lock:
            _known.update(dict.fromkeys(signature for signature in signatures if signature is not None))
            while len(_known) > KNOWN_MAX:
                _known.popitem(last=False)
    return [file.path for file in checked.files]


__all__ = ["BYTES_MAX", "native_paths"]
