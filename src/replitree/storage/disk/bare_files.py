"""Bare files: the data files of a part whose manifest is gone become that part again, if they have its rows.

Coordination knows what the part is registered with (`PartManifest.content`), so a part that is written of these rows is either
proven to be the registered one, or is thrown away.  The rows are written anew: the checksums of the old files went with the
manifest, and a content proves rows, not what else a reader takes from a file, such as the statistics in its footer.

The files are taken in the order of their numbers, and all of them.  A part of which a mutation has kept some files and written
others may have another order; its rows are not proven then.

Absent on purpose: where the files are found, and when they are used (`replitree.replica.parts.bare_files`).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from msgspec.structs import replace

from replitree.errors import BadInput
from replitree.storage.parts.adopt import file_batches
from replitree.storage.parts.content_hash import ContentHasher, joined_hash
from replitree.storage.parts.encode import seal_part
from replitree.storage.parts.encodings import leaf_types
from replitree.storage.parts.manifest import FORMAT, MANIFEST_FILE, SEALED_FORMAT, PartManifest
from replitree.storage.rewrite.merge_write import PartWriter
from replitree.storage.schema.bounds import Scalar
from replitree.storage.schema.definition import FIRST_SCHEMA_VERSION, TableDefinition
from replitree.storage.schema.partition import split_by_partition

GROUP_BYTES = 64 << 20
"""Rows to have in memory."""


def write_anew(
    files: Sequence[Path], partition: str, content: str, definition: TableDefinition, folder: Path
) -> PartManifest | None:
    """Write a part from data files whose manifest is gone; None, and no folder: they do not have the rows of that part.

    Parameters
    ----------
    files
        All of the part's, at least one.  They may be damaged.
    partition
        The part's partition.
    content
        What the part is registered with.
    definition
        The table, as new as it is known.
    folder
        The part's folder, which must not exist.

    Raises
    ------
    StoreError, OSError
        The disk refuses.
    """
    ordered = sorted(files, key=lambda path: int(path.stem.removeprefix("data-")))
    tried: list[pa.Schema] = []
    for version in range(definition.schema_version, FIRST_SCHEMA_VERSION - 1, -1):
        stored = definition.at(version).stored
        # Most alters change no stored column: the same rows would be written and compared once for each version.
        if stored.arrow_schema in tried:
            continue
        tried.append(stored.arrow_schema)
        try:
            written, pieces = _write(ordered, partition, stored, folder)
        except BadInput:
            # The files have other columns than this version, or can't be read.
            continue
        # The manifest may have been of this version or an earlier one, of one writer or of several Spark tasks: a part that
        # these wrote has the hash of its files' hashes.
        candidates = (
            replace(written, content_hash=rows, schema_version=earlier, format=form)
            for rows in (written.content_hash, joined_hash(pieces))
            for earlier in range(definition.schema_version, FIRST_SCHEMA_VERSION - 1, -1)
            if definition.at(earlier).stored.arrow_schema == stored.arrow_schema
            for form in (FORMAT, SEALED_FORMAT)
        )
        found = next((each for each in candidates if each.content == content), None)
        if found is not None:
            # `finish` has written the manifest of today's format; the content proves another one of the candidates.
            (folder / MANIFEST_FILE).unlink()
            seal_part(folder, found)
            return found
        shutil.rmtree(folder)
    return None


def _write(
    files: Sequence[Path], partition: str, stored: TableDefinition, folder: Path
) -> tuple[PartManifest, tuple[str, ...]]:
    """Write the rows of all files, a data file for each; return the manifest, and the content hash of each file."""
    values: tuple[Scalar, ...] = ()
    pieces: list[str] = []
    # Columns that may have NaN get no statistics in the footers: never wrong, and known before the first row is read.
    leaves = (leaf for field in stored.arrow_schema for leaf in leaf_types(field.name, field.type))
    with PartWriter(
        folder,
        stored,
        with_nan=frozenset(path for path, kind in leaves if pa.types.is_floating(kind)),
        group_bytes=GROUP_BYTES,
    ) as writer:
        for path in files:
            hasher = ContentHasher(stored.arrow_schema)
            for batch in file_batches(path, stored):
                rows = pa.Table.from_batches([batch])
                values = values or split_by_partition(rows.slice(0, 1), stored)[0].values
                hasher.update(batch)
                writer.write(rows)
            writer.end_run()
            pieces.append(hasher.hexdigest())
        return writer.finish(partition, values, sync=False), tuple(pieces)


__all__ = ["write_anew"]
