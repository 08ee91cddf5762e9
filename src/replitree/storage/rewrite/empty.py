"""Empty parts: what takes the place of a part that no replica has any more (`replitree.protocol.upkeep.lost`).

An empty part has one data file without rows.  The values of its partition's transforms are not known, because the id does not
tell them, so its manifest has none; a merge takes them from another part.

The manifest has the format before the last, whose content is the content hash: replicas of all versions and the log entry that
declares the loss agree on it, and another manifest with this content has no rows to show, either.
"""

from __future__ import annotations

from pathlib import Path

from replitree.storage.files.durable import store_errors
from replitree.storage.parts.content_hash import ContentHasher
from replitree.storage.parts.manifest import SEALED_FORMAT, PartManifest
from replitree.storage.rewrite.merge_write import PartWriter
from replitree.storage.schema.definition import TableDefinition


def empty_content(definition: TableDefinition) -> str:
    """Return the content hash of an empty part with a definition's columns."""
    return ContentHasher(definition.stored.arrow_schema).hexdigest()


def empty_part(definition: TableDefinition, partition: str, folder: Path, *, prefix: str = "") -> PartManifest:
    """Write a part without rows as a staged part, synced.

    Parameters
    ----------
    definition
        The table, with the columns that the part gets.
    partition
        The partition's id.
    folder
        Where the part's folder goes, named by partition.  Made if missing; its parent must exist.
    prefix
        What the name of the part's folder begins with.

    Raises
    ------
    StoreError
        The disk is full or failing.
    """
    target = folder / f"{prefix}{partition}"
    with (
        store_errors(f"write an empty part into {folder}"),
        PartWriter(target, definition.stored, with_nan=frozenset(), group_bytes=1) as writer,
    ):
        return writer.finish(partition, (), sync=True, form=SEALED_FORMAT)
