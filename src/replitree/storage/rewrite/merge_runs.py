"""Runs: sorted files are read side by side, and come out as one sorted stream.

Each data file of a part is one *run*: rows sorted by the order key.  The merge moves a *window* over all runs at once:

1. every run has some rows in memory; a run that is short of them reads on
2. the smallest of the runs' last keys is the window's end: what is not above it is complete, whatever the runs still hold
3. each run gives its rows up to there, found by binary search; they are put one after the other and sorted, stably

Rows whose keys equal the window's end are given only by the run that set it and those before it.  So rows with equal keys keep
the order of the runs even where a key repeats for millions of rows, and such a key needs no more memory than any other.

Without an order key nothing is compared: the runs come one after the other.

Memory: `memory_bytes` is divided by the constants below.  The readers of open files hold a page of each column, so no more runs
are read side by side than a share of the memory allows; if there are more, neighbours are first merged into files of their own.
How wide rows are is estimated from the files' footers, and measured; rows that suddenly are much wider than those before them
take more.

Absent on purpose: what becomes of rows with equal keys (`replitree.storage.rewrite.merge_reduce`), names and manifests
of parts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from replitree.storage.parts.verified import CheckedFile, StoredFile
from replitree.storage.rewrite.data_files import DataFile, open_parquet, reading_part
from replitree.storage.rewrite.merge_order import sort_runs

if TYPE_CHECKING:
    import pyarrow.parquet as pq

READERS_SHARE = 4
"""Readers have at most memory / 4 for pages of open files."""

WINDOW_SHARE = 8
"""Rows that wait are at most memory / 8; so is a window, and it exists as it came, joined, sorted, and twice on its way out."""

WINDOW_BYTES_MAX = 1 << 30
"""Arrow's strings end at 2 GiB, however much memory there is."""

RUNS_MAX = 64
"""Files that are read side by side at most."""

PAGE_BYTES = 1 << 20
"""Bytes that Parquet writers put into one page of a column; a reader has one, unpacked."""

BUFFER_BYTES = 1 << 15
"""Bytes of one column that a reader reads at a time."""

PROBE_ROWS = 1024
"""Rows that are read to measure them, and again later, where a footer can't say how wide they are: a dictionary hides it."""

THREADS_ROWS_MIN = 16_384
"""Fewer rows are decoded sooner by one thread than handed to several."""

SCRATCH_PAGE_BYTES = 1 << 15
"""A page of a file that a merge writes for itself: small, so that many can be read side by side."""

_SCRATCH_OPTIONS: dict[str, Any] = {
    "compression": "lz4",
    "use_dictionary": False,
    "write_statistics": False,
    "store_schema": False,
    "data_page_size": SCRATCH_PAGE_BYTES,
}


@dataclass(frozen=True, slots=True)
class RunFile:
    """A sorted file.

    Attributes
    ----------
    path
        Of the file.
    part
        Folder of the part that it belongs to, for messages.
    columns
        Names, in the file, of the columns to read.
    adapt
        Gives rows of the file the columns that the merge works with.
    reader_bytes
        What a reader holds of the file, beside rows.
    groups
        The row groups to read; None: all.
    opened
        How the file is opened, when it is verified as it is read, or an object in a store; then `path` is for messages.
    """

    path: Path
    part: Path
    columns: tuple[str, ...]
    adapt: Callable[[pa.Table], pa.Table]
    reader_bytes: int
    groups: tuple[int, ...] | None = None
    opened: CheckedFile | StoredFile | None = None

    @property
    def place(self) -> DataFile:
        """Where it is opened."""
        return self.opened if self.opened is not None else self.path


@dataclass(frozen=True, slots=True)
class Merging:
    """How runs are merged.

    Attributes
    ----------
    order_by
        The order key.
    memory_bytes
        For everything together.
    scratch
        Gives the path of a file that does not exist; used when there are too many runs to read side by side.
    step
        Called before each window; what it raises ends the merge.
    """

    order_by: tuple[str, ...]
    memory_bytes: int
    scratch: Callable[[], Path]
    step: Callable[[], None]


def window_bytes(memory_bytes: int) -> int:
    """Give how many bytes of rows may wait, in all runs together, where a merge may take so much memory."""
    return min(WINDOW_BYTES_MAX, max(1, memory_bytes // WINDOW_SHARE))


# --- one run ----------------------------------------------------------------------------------------------------------------


class Run:
    """A sorted file of which some rows are in memory.

    Parameters
    ----------
    file
        What to read.
    order_by
        The order key.
    share_bytes
        Rows to have in memory.
    """

    def __init__(self, file: RunFile, order_by: tuple[str, ...], share_bytes: int) -> None:
        self._order_by = order_by
        self._want_bytes = max(1, share_bytes // 2)
        self._batches = read_run(file, self._want_bytes)
        self.rows: pa.Table | None = None
        self.is_exhausted = False

    def fill(self) -> bool:
        """Read on until there are rows enough, or no more in the file; tell whether there are any."""
        while not self.is_exhausted and (self.rows is None or self.rows.nbytes < self._want_bytes):
            batch = next(self._batches, None)
            if batch is None:
                self.is_exhausted = True
            else:
                self.rows = pa.concat_tables([self.rows, batch]) if self.rows else batch
        return bool(self.rows)

    def key(self, row: int) -> tuple[Any, ...]:
        """Give the order key of a row in memory, as a value that compares as rows do."""
        assert self.rows is not None
        return tuple(_comparable(self.rows.column(name)[row]) for name in self._order_by)

    def take_up_to(self, key: tuple[Any, ...], *, inclusive: bool) -> pa.Table:
        """Give the rows in memory that are below a key, or not above it, and forget them."""
        assert self.rows is not None
        search = bisect_right if inclusive else bisect_left
        # A binary search over rows: it looks at some twenty keys of a window, never at all.
        count = search(range(self.rows.num_rows), key, key=self.key)
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        return taken

    def take_all(self) -> pa.Table:
        """Give the rows in memory and forget them."""
        taken, self.rows = self.rows, None
        return taken

    def close(self) -> None:
        """Close the file."""
        self._batches.close()


def _comparable(value: pa.Scalar) -> tuple[int, Any]:
    """Nulls first, NaN last."""
    if not value.is_valid:
        return (0, 0)
    found = value.value if pa.types.is_temporal(value.type) else value.as_py()
    return (1, found) if found == found else (2, 0)  # noqa: PLR0124 - NaN is what does not equal itself


def read_run(file: RunFile, batch_bytes: int) -> Generator[pa.Table, None, None]:
    """Read a file, about as many bytes of rows at a time as are asked for.

    Raises
    ------
    CorruptPart
        It can't be read; names the part.
    """
    row_bytes = 0
    with reading_part(file.part), open_parquet(file.place, buffer_bytes=BUFFER_BYTES) as opened:
        for group in range(opened.num_row_groups) if file.groups is None else file.groups:
            row_bytes = max(row_bytes or _probe(opened, file), _row_bytes(opened.metadata.row_group(group)))
            rows = max(1, batch_bytes // row_bytes)
            threads = min(rows, opened.metadata.num_rows) >= THREADS_ROWS_MIN
            for batch in opened.iter_batches(rows, row_groups=[group], columns=file.columns, use_threads=threads):
                table = file.adapt(pa.Table.from_batches([batch]))
                if table.num_rows:
                    # Measured from the second batch on: a footer tells the
                    # size of a dictionary, not how long the values become.
                    row_bytes = max(1, table.nbytes // table.num_rows)
                    yield table


def _probe(opened: pq.ParquetFile, file: RunFile) -> int:
    """Measure the bytes of a row in the beginning of a file if its footer can't say; 0 if it can."""
    metadata = opened.metadata
    first = metadata.row_group(0)
    leaves = (first.column(number) for number in range(first.num_columns))
    # The footer of text with a dictionary tells the size of each value once, however often the rows have it.
    is_hidden = any(leaf.physical_type == "BYTE_ARRAY" and leaf.has_dictionary_page for leaf in leaves)
    if metadata.num_rows <= PROBE_ROWS or not is_hidden:
        return 0
    batch = next(opened.iter_batches(PROBE_ROWS, row_groups=[0], columns=file.columns))
    return int(batch.nbytes // max(1, batch.num_rows))


def _row_bytes(group: pq.RowGroupMetaData) -> int:
    """Estimate the bytes of a row in memory by the footer."""
    size = 0
    for leaf in map(group.column, range(group.num_columns)):
        width = _WIDTHS.get(leaf.physical_type)
        # Text has an offset and a bit for null besides its bytes.
        size += leaf.num_values * width if width else leaf.num_values * 5 + leaf.total_uncompressed_size
    return max(1, int(size) // max(1, int(group.num_rows)))


_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "FIXED_LEN_BYTE_ARRAY": 16}


def reader_bytes(metadata: pq.FileMetaData, *, whole_groups: bool = False) -> int:
    """Estimate what a reader holds of a file beside rows: a page of each column, its dictionary, and what comes next.

    Parameters
    ----------
    whole_groups
        All of a row group comes at once, as from a store.
    """
    if not metadata.num_row_groups:
        return 0
    group = metadata.row_group(0)
    leaves = [group.column(number) for number in range(group.num_columns)]
    pages = sum(min(PAGE_BYTES, leaf.total_uncompressed_size) * (1 + leaf.has_dictionary_page) for leaf in leaves)
    coming = (leaf.total_compressed_size for leaf in leaves)
    return int(pages + sum(coming if whole_groups else (min(BUFFER_BYTES, size) for size in coming)))


# --- all runs ---------------------------------------------------------------------------------------------------------------


def merge_runs(files: Sequence[RunFile], merging: Merging) -> Generator[pa.Table, None, None]:
    """Read runs as one sorted stream.

    Parameters
    ----------
    files
        In the order that rows with equal keys keep.
    merging
        How.

    Yields
    ------
    Table
        Windows: sorted rows, none below those of the window before.

    Raises
    ------
    CorruptPart
        A file can't be read; names the part.
    """
    if not merging.order_by:
        for file in files:
            for rows in read_run(file, window_bytes(merging.memory_bytes)):
                merging.step()
                yield rows
        return
    # Each round merges neighbours only, so equal keys keep the order of their parts.
    while len(groups := side_by_side(files, merging.memory_bytes)) > 1:
        files = [_merged_file(group, merging) for group in groups]
    yield from _windows(files, merging)


def side_by_side(files: Sequence[RunFile], memory_bytes: int) -> list[list[RunFile]]:
    """Put neighbours together that can be read side by side: at least two, if there are."""
    groups: list[list[RunFile]] = []
    room = 0
    for file in files:
        room -= file.reader_bytes
        if not groups or (len(groups[-1]) >= 2 and (room < 0 or len(groups[-1]) == RUNS_MAX)):
            groups.append([])
            room = memory_bytes // READERS_SHARE - file.reader_bytes
        groups[-1].append(file)
    return groups


def _merged_file(files: Sequence[RunFile], merging: Merging) -> RunFile:
    """Merge runs into a file of their own, which lives as long as the merge does."""
    import pyarrow.parquet as pq

    if len(files) == 1:
        return files[0]
    path = merging.scratch()
    with closing(_windows(files, merging)) as windows:
        first = next(windows, None)
        if first is None:
            return files[0]
        # Not synced: a crash ends the merge, and its scratch files with it.
        with pq.ParquetWriter(path, first.schema, **_SCRATCH_OPTIONS) as writer:
            for window in chain([first], windows):
                writer.write_table(window)
    held = len(first.schema) * (SCRATCH_PAGE_BYTES + BUFFER_BYTES)
    return RunFile(path, files[0].part, tuple(first.schema.names), _Cast(first.schema), held)


@dataclass(frozen=True, slots=True)
class _Cast:
    """Parquet does not tell every type as it was written."""

    schema: pa.Schema

    def __call__(self, rows: pa.Table) -> pa.Table:
        return rows.cast(self.schema)


def _windows(files: Sequence[RunFile], merging: Merging) -> Generator[pa.Table, None, None]:
    share = window_bytes(merging.memory_bytes) // max(1, len(files))
    runs = [Run(file, merging.order_by, share) for file in files]
    try:
        while runs := [run for run in runs if run.fill()]:
            merging.step()
            ends = [(run.key(-1), number) for number, run in enumerate(runs) if not run.is_exhausted]
            if ends:
                # Of equal keys the first run counts: `inclusive` takes them from this run and those before it.
                end, setter = min(ends)
                taken = [run.take_up_to(end, inclusive=number <= setter) for number, run in enumerate(runs)]
            else:
                taken = [run.take_all() for run in runs]
            yield sort_runs(pa.concat_tables(taken), merging.order_by)
    finally:
        for run in runs:
            run.close()
