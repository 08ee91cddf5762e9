"""The parts that a merge reads: whether they are whole, and how the rows of each become rows of the table as it is now.

Guarantees: a file that is missing, damaged or not what its manifest says is a `CorruptPart` that names its part.

Absent on purpose: what happens to the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from replitree.errors import BadInput, CorruptPart
from replitree.storage.parts.encodings import leaf_types
from replitree.storage.parts.manifest import FileEntry, PartManifest, read_manifest
from replitree.storage.parts.verified import StoredFile
from replitree.storage.rewrite.data_files import DataFile, footer_of, is_whole, reading_part
from replitree.storage.rewrite.key_range import KeyRange
from replitree.storage.rewrite.merge_runs import RunFile, reader_bytes
from replitree.storage.schema.adapt import adapt
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.layout import layout_of

if TYPE_CHECKING:
    import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class MergeSource:
    """A part to be merged.

    Attributes
    ----------
    part
        Its folder; of one whose files lie elsewhere, its name.
    manifest
        What is in it.
    files
        Where each of its data files is opened, in the manifest's order; none: all are in the folder.
    """

    part: Path
    manifest: PartManifest
    files: tuple[DataFile, ...] = ()

    @property
    def entries(self) -> Iterator[tuple[DataFile, FileEntry]]:
        """Its data files: where each is opened, and what the manifest says of it."""
        places = self.files or tuple(self.part / file.name for file in self.manifest.files)
        return zip(places, self.manifest.files, strict=True)


def read_sources(parts: Sequence[Path | MergeSource]) -> list[MergeSource]:
    """Read the manifests of parts that are given by their folders.

    Raises
    ------
    BadInput
        There are none, or they are of several partitions.
    CorruptPart
        A manifest is missing or damaged.
    """
    sources = [part if isinstance(part, MergeSource) else MergeSource(part, read_manifest(part)) for part in parts]
    partitions = sorted({source.manifest.partition for source in sources})
    if len(partitions) != 1:
        raise BadInput(f"parts of one partition can be merged, not of {len(partitions)}: {', '.join(partitions)}")
    return sources


def check_files(sources: Sequence[MergeSource], step: Callable[[], None]) -> None:
    """Check size and checksum of every file.

    Parameters
    ----------
    step
        Called before each file; what it raises ends the check.

    Raises
    ------
    CorruptPart
        A file is missing, or not what its manifest says.
    """
    for source in sources:
        for place, file in source.entries:
            # Before each file: a merge is cancelled between two files, not after gigabytes of them.
            step()
            with reading_part(source.part):
                fine = is_whole(place, file)
            if not fine:
                raise CorruptPart(
                    f"part {source.part}: {file.name} is not what the manifest says; fetch the part again"
                )


def run_files(
    sources: Sequence[MergeSource], table: TableDefinition, names: Sequence[str], key_range: KeyRange | None = None
) -> tuple[list[RunFile], frozenset[str]]:
    """Look at the footers of all files.

    Parameters
    ----------
    table
        The table, its columns named as in data files.
    names
        Columns to read.
    key_range
        Only rows in it; all by default.

    Returns
    -------
    files, with_nan
        The runs, in the order of sources and files; and the Parquet paths of the leaf columns that may have NaN: those of which
        a footer has no bounds.

    Raises
    ------
    CorruptPart
        A footer can't be read.
    """
    # A footer without bounds means NaN: writers leave them out there (`replitree.storage.parts.encodings`).
    leaves = (leaf for field in table.arrow_schema for leaf in leaf_types(field.name, field.type))
    floats = frozenset(path for path, arrow in leaves if pa.types.is_floating(arrow))
    files: list[RunFile] = []
    with_nan: set[str] = set()
    for source in sources:
        columns, adapt_rows = _reading(source.manifest, table, tuple(names), key_range)
        for place, file in source.entries:
            with reading_part(source.part):
                metadata = footer_of(place)
            # Row groups outside of the range are not even decoded.
            groups = None if key_range is None else key_range.groups(metadata)
            held = reader_bytes(metadata, whole_groups=isinstance(place, StoredFile))
            path, opened = (place, None) if isinstance(place, Path) else (source.part / file.name, place)
            files.append(RunFile(path, source.part, columns, adapt_rows, held, groups, opened))
            with_nan |= _without_bounds(metadata, floats - with_nan)
    return files, frozenset(with_nan)


def _reading(
    manifest: PartManifest, table: TableDefinition, names: tuple[str, ...], key_range: KeyRange | None
) -> tuple[tuple[str, ...], Callable[[pa.Table], pa.Table]]:
    """Say which columns to read of a part's files, and how they become columns of the table."""
    written = manifest.schema_version
    layout = [origin for origin in layout_of(table, written) if origin.column.name in names]
    columns = tuple(field.name for origin in layout if (field := origin.stored_field) is not None)

    def adapt_rows(rows: pa.Table) -> pa.Table:
        adapted = adapt(rows, written, table, names)
        return adapted if key_range is None else key_range.keep(adapted)

    return columns, adapt_rows


def _without_bounds(metadata: pq.FileMetaData, paths: frozenset[str]) -> set[str]:
    """Give those of the leaf columns that have values without bounds in a file."""
    if not paths:
        return set()
    found = set()
    for number in range(metadata.num_columns):
        path = metadata.schema.column(number).path
        for group in range(metadata.num_row_groups) if path in paths else ():
            leaf = metadata.row_group(group).column(number)
            statistics = leaf.statistics if leaf.is_stats_set else None
            # A column of nulls only has no bounds either, and no NaN.
            nulls = 0 if statistics is None else statistics.null_count
            if nulls != leaf.num_values and (statistics is None or not statistics.has_min_max):
                found.add(path)
                break
    return found
