"""Snapshots as a dataset of Arrow's: one of a table, or those of all shards of a sharded table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from replitree.errors import BadInput, CorruptPart
from replitree.storage.parts.manifest import FileEntry, PartManifest
from replitree.storage.parts.verified import CheckedFile
from replitree.storage.rewrite.dataset import parts_dataset
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

    from replitree.client.read.snapshot import Snapshot, SnapshotPart


def dataset_of(
    snapshots: Sequence[Snapshot], definition: TableDefinition, columns: Sequence[str] | None, where: str | None
) -> Dataset:
    """Return the rows of some snapshots as a dataset, which holds the snapshots: see `Snapshot.dataset`.

    Parameters
    ----------
    snapshots
        Of tables with different names.
    definition
        Has the columns of all of them.
    columns, where
        As of `Snapshot.dataset`; errors, too.
    """
    predicate = None
    if where is not None:
        # With expressions and their kernels, which a dataset of everything does not need.
        from replitree.storage.sql.predicate_parser import parse_predicate

        predicate = parse_predicate(where, definition)
    if predicate is not None and predicate.is_computed:
        raise BadInput(
            f"the condition {where!r} is calculated for each row, which no dataset does: use scan(where=…).to_reader(),"
            " or leave it to the engine"
        )
    found: dict[str, PartManifest] = {}
    parts: dict[str, tuple[Snapshot, SnapshotPart]] = {}
    for snapshot in snapshots:
        for part in snapshot.select(where):
            # Shards have parts of the same names.
            name = part.part if len(snapshots) == 1 else f"{snapshot.definition.name}/{part.part}"
            # A part whose files are damaged everywhere is read from another replica's files.
            others = snapshot.others
            found[name] = others[part.part].manifest if part.part in others else part.manifest
            parts[name] = snapshot, part

    def find(name: str, manifest: PartManifest, entry: FileEntry) -> CheckedFile:
        snapshot, part = parts[name]
        (checked,) = snapshot.checked([part])
        if checked.manifest.files != manifest.files:
            raise CorruptPart(
                f"part {part.part} of table {snapshot.definition.name} is read from other files by now: make the dataset"
                " again"
            )
        return next(file for file in checked.files if file.entry == entry)

    def prepare(names: Sequence[str]) -> None:
        for snapshot in snapshots:
            snapshot.checked([parts[name][1] for name in names if parts[name][0] is snapshot])

    return parts_dataset(found, definition, columns, find, prepare, predicate)


__all__ = ["dataset_of"]
