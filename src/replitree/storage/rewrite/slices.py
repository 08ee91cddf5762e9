"""Slices: whatever a caller inserts, cut into conformed Arrow tables that fit in memory.

Guarantees: the slices together are the rows in their order; each has the table's schema; none is larger than
`SLICE_ROWS_MAX` rows or (as far as its batches allow) `SLICE_BYTES_MAX` bytes.  A stream is read only as far as the
slices are asked for.

Absent on purpose: anything that leaves the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from replitree.errors import BadInput
from replitree.storage.parts.conform import check_sound, conform
from replitree.storage.schema.columns import UTC
from replitree.storage.schema.definition import TableDefinition

# A slice is in memory as a whole, while it is sorted and encoded; rows beyond it wait in the caller's reader.
SLICE_ROWS_MAX = 5_000_000
SLICE_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True)
class Slice:
    """Some of the rows, in the table's schema; `last` when certainly none follow."""

    rows: pa.Table
    last: bool


def is_stream(data: Any) -> bool:
    """Tell whether the rows can be read only once."""
    if isinstance(data, pa.Table | pa.RecordBatch):
        return False
    # An object with this method may be a stream or hold its rows; reading it twice is not promised by the protocol.
    return hasattr(data, "__arrow_c_stream__")


def cut(data: Any, definition: TableDefinition, zone: str = UTC) -> Iterator[Slice]:
    """Cut rows into slices; none when there are no rows.

    Parameters
    ----------
    data, zone
        What `replitree.storage.parts.conform` takes.

    Raises
    ------
    SchemaMismatch, BadInput
        The rows do not fit the table.
    """
    if is_stream(data):
        try:
            reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise BadInput(
                f"can't read rows from a {type(data).__name__}: {error}; insert a data frame or a table"
            ) from error
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in _batches(reader):
            check_sound(batch)
            for piece in _cut_batch(batch):
                if waiting and (rows + piece.num_rows > SLICE_ROWS_MAX or size + piece.nbytes > SLICE_BYTES_MAX):
                    gathered = pa.Table.from_batches(waiting)
                    yield Slice(conform(gathered, definition, zone=zone, sound=True), last=False)
                    waiting, rows, size = [], 0, 0
                waiting.append(piece)
                rows, size = rows + piece.num_rows, size + piece.nbytes
        # Wrong columns are an error even if the stream has no rows.
        rest = conform(pa.Table.from_batches(waiting, reader.schema), definition, zone=zone, sound=True)
        if rows:
            yield Slice(rest, last=True)
    elif isinstance(data, pa.Table | pa.RecordBatch):
        table = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
        yield from _cut_table(table, definition, zone)
    else:
        yield from _cut_table(conform(data, definition, zone=zone), definition, zone)


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Read a stream to its end."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        # Any other exception is one of the caller's own program, which gave the reader: the caller gets it as it is.
        except (pa.ArrowException, OSError) as error:
            problem = str(error).partition(". Detail: ")[0] or type(error).__name__
            raise BadInput(f"the source of the rows has failed: {problem}; nothing was inserted") from error
        yield batch


def _cut_table(table: pa.Table, definition: TableDefinition, zone: str) -> Iterator[Slice]:
    # The check comes before the bytes are counted, because Arrow trusts the offsets when it counts.
    check_sound(table)
    rows = table.num_rows
    count = max(-(-rows // SLICE_ROWS_MAX), -(-table.nbytes // SLICE_BYTES_MAX), 1)
    size = max(1, -(-rows // count))
    if not rows:
        # Wrong columns are an error even if there are no rows.
        conform(table, definition, zone=zone, sound=True)
    for start in range(0, rows, size):
        some = conform(table.slice(start, size), definition, zone=zone, sound=True)
        yield Slice(some, last=start + size >= rows)


def _cut_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows <= SLICE_ROWS_MAX and batch.nbytes <= SLICE_BYTES_MAX:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    # A single row that is too large is left out here.
    if half > 0:
        yield from _cut_batch(batch.slice(0, half))
        yield from _cut_batch(batch.slice(half))
