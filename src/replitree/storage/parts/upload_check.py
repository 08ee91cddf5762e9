"""Uploaded parts: what is verified of their data files before a commit makes them a part of a table.

Of every file, whatever its size: the footer, the number of rows, the columns and their types, and that the row groups lie in
the file.  Then rows are decoded:

=====================================  =================================================================================
up to `WHOLE_BYTES_MAX` of an upload   every row; order, partition, content hash and statistics must be what they say
the parts beyond                       of each file the first rows of the first and of the last row group, every column
=====================================  =================================================================================

The client has read all rows once, to write the manifest.  To read a large part once more takes an eighth of the time in which
Spark inserts it, and longer than an Arrow table takes to be inserted; so the replica trusts the rest.  A page in the middle
that can't be decoded is found by its first reader or merge, whose error names the part; other parts are merged meanwhile.

Memory is bounded by `BATCH_BYTES_MAX`: a batch has so few rows that no dictionary makes it larger.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from replitree.errors import BadInput
from replitree.storage.files.durable import store_errors
from replitree.storage.parts.adopt import BATCH_ROWS, check_schema, described
from replitree.storage.parts.manifest import FileEntry, PartManifest
from replitree.storage.schema.definition import TableDefinition

WHOLE_BYTES_MAX = 4 << 20
"""Bytes of pages before they are compressed, of one upload, up to which every row is decoded: some 40 ms."""

WHOLE_ROWS_MAX = 1 << 20
"""Rows of one upload up to which every row is decoded."""

SAMPLE_ROWS = 256
"""Rows that are decoded at each end of a file beyond."""

BATCH_BYTES_MAX = 256 << 20
"""Bytes that a batch may take in memory, as far as the sizes in the footer are right."""

_VALUE_BYTES_MAX = 16


class UploadCheck:
    """The check of one upload."""

    def __init__(self) -> None:
        self._bytes_left, self._rows_left = WHOLE_BYTES_MAX, WHOLE_ROWS_MAX

    def part(self, folder: Path, manifest: PartManifest, definition: TableDefinition) -> None:
        """Do nothing if a part, whose files have the sizes and checksums of its manifest, can be decoded.

        Parameters
        ----------
        folder
            Where its data files are.
        definition
            The table with the columns of the part's schema version.

        Raises
        ------
        BadInput
            A file is not Parquet, or can't be decoded; or it is not what the manifest says.
        SchemaMismatch
            It has other columns than the table.
        StoreError
            The disk is failing.
        """
        with store_errors(f"read the uploaded part in {folder}"):
            footers = [_footer(folder / file.name, file, definition) for file in manifest.files]
            groups = [footer.row_group(number) for footer in footers for number in range(footer.num_row_groups)]
            # A value may be as large as all of the dictionary: a few bytes of indexes can expand to gigabytes.
            widest = 1
            for group in groups:
                columns = [group.column(number) for number in range(group.num_columns)]
                widest = max(
                    widest,
                    sum(
                        column.total_uncompressed_size
                        if column.has_dictionary_page and column.physical_type == "BYTE_ARRAY"
                        else _VALUE_BYTES_MAX
                        for column in columns
                    ),
                )
            batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES_MAX // widest))
            size = sum(group.total_byte_size for group in groups)
            if size > self._bytes_left or manifest.rows > self._rows_left:
                for file, footer in zip(manifest.files, footers, strict=True):
                    _decode_ends(folder / file.name, footer, min(SAMPLE_ROWS, batch_rows))
                return
        self._bytes_left -= size
        self._rows_left -= manifest.rows
        problem = _problem(manifest, described(folder, manifest, definition, batch_rows))
        if problem is not None:
            raise BadInput(f"the manifest of an uploaded part has {problem} than its rows; write the part again")


def _problem(said: PartManifest, found: PartManifest) -> str | None:
    """Return what a manifest says wrongly of rows; None for a right one."""
    if said.files != found.files:
        return "other files"
    # As they stand in the file: 1 and True, or 1 and 1.0, are equal in Python, and different values in JSON.
    if msgspec.json.encode(said.partition_values) != msgspec.json.encode(found.partition_values):
        return "other values of its partition"
    if said.content_hash != found.content_hash:
        return "another content hash"
    for name, stats in said.columns.items():
        true = found.columns.get(name)
        low, high = stats.low, stats.high
        if true is None or (stats.type, stats.nulls) != (true.type, true.nulls):
            return f"other statistics of column {name!r}"
        # Wider bounds only prune less; bounds that leave a value out would hide its row from every reader that prunes.
        if (low is not None and (true.low is None or low > true.low)) or (  # type: ignore[operator]  # of one type
            high is not None and (true.high is None or high < true.high)  # type: ignore[operator]
        ):
            return f"other statistics of column {name!r}"
    return None


def _footer(path: Path, file: FileEntry, definition: TableDefinition) -> Any:
    """Return the footer of a file, a ``pyarrow.parquet.FileMetaData``, if it fits the manifest and the table."""
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path)
        check_schema(footer.schema.to_arrow_schema(), str(path), definition.stored)
        places = [
            (
                # The dictionary comes first in a column's chunk, when there is one.
                column.dictionary_page_offset or column.data_page_offset,
                column.total_compressed_size,
                column.total_uncompressed_size,
            )
            for group in map(footer.row_group, range(footer.num_row_groups))
            for column in map(group.column, range(group.num_columns))
        ]
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError) as error:
        raise _not_decoded(path, error) from error
    if footer.num_rows != file.rows:
        raise BadInput(f"{path} has {footer.num_rows} rows, and its manifest says {file.rows}")
    # The footer was written by the client: Arrow would allocate and read whatever it says.
    if any(min(place) < 0 or place[0] + place[1] > file.bytes for place in places):
        raise BadInput(f"{path} has a footer that points outside of the file; write it again")
    return footer


def _decode_ends(path: Path, footer: Any, rows: int) -> None:
    """Decode some rows of the first and of the last row group of a file."""
    import pyarrow.parquet as pq

    try:
        # Without `pre_buffer`: it reads all column chunks of a row group before the first row.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as file:
            for group in sorted({0, footer.num_row_groups - 1}) if footer.num_row_groups else ():
                next(file.iter_batches(rows, row_groups=[group], use_threads=False), None)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _not_decoded(path, error) from error


def _not_decoded(path: Path, error: Exception) -> BadInput | OSError:
    if isinstance(error, OSError) and error.errno is not None:
        # The disk's error: Arrow raises OSError without a number for bytes that it can't decode.
        return error
    return BadInput(f"{path} can't be decoded as Parquet ({str(error).strip()[:300]}); write it again")


__all__ = ["UploadCheck"]
