"""The rows of one joint insert, held until it is over: a map that has changed needs them once more, split anew.

As many rows as one slice may have (`replitree.storage.rewrite.slices`) stay in memory.  More rows go into a temporary file, and
so do those of each shard when they are split.  Tables over these files are read through the page cache, which the kernel takes
back when memory is short: an insert needs the memory of a few slices, and room on disk for its rows twice.

Guarantees: the rows of a shard are in the order in which they came.  A file has no name, so it is gone with the last table
over it, also if the process dies.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import IO, Self

import pyarrow as pa

from replitree.protocol.sharded.shard_map import Shard
from replitree.storage.rewrite.slices import SLICE_BYTES_MAX, SLICE_ROWS_MAX
from replitree.storage.schema.row_buckets import ShardRows


class HeldRows:
    """The rows of one insert.

    Parameters
    ----------
    slices
        The rows; read to the end.
    schema
        Theirs.

    Attributes
    ----------
    rows
        All rows, in order.

    Raises
    ------
    OSError
        The folder of temporary files has no room.  Errors of `slices` pass through.
    """

    def __init__(self, slices: Iterable[pa.Table], schema: pa.Schema) -> None:
        waiting, size, self._ends = list[pa.Table](), 0, [0]
        with ExitStack() as opened:
            file: _TableFile | None = None
            for some in slices:
                size += some.nbytes
                self._ends.append(self._ends[-1] + some.num_rows)
                waiting.append(some)
                if file is not None or size > SLICE_BYTES_MAX or self._ends[-1] > SLICE_ROWS_MAX:
                    file = file or opened.enter_context(_TableFile(schema))
                    file.write(pa.concat_tables(waiting))
                    waiting = []
            self.is_in_memory = file is None
            if file is not None:
                self.rows = file.table()
            else:
                self.rows = pa.concat_tables(waiting) if waiting else schema.empty_table()

    def slices(self) -> Iterator[pa.Table]:
        """Give the rows piece by piece, as they came; those in memory as one."""
        ends = [0, self.rows.num_rows] if self.is_in_memory else self._ends
        for start, end in pairwise(ends):
            yield self.rows.slice(start, end - start)

    def split(self, split: Callable[[pa.Table], Iterable[ShardRows]]) -> dict[Shard, pa.Table]:
        """Return the rows of each shard; `split` splits some of the rows.

        Raises
        ------
        OSError
            The folder of temporary files has no room.
        """
        if self.is_in_memory:
            return {each.shard: each.rows for each in split(self.rows)}
        files = dict[Shard, _TableFile]()
        with ExitStack() as opened:
            for some in self.slices():
                for shard, rows in split(some):
                    if shard not in files:
                        files[shard] = opened.enter_context(_TableFile(rows.schema))
                    files[shard].write(rows)
            return {shard: files[shard].table() for shard in sorted(files)}


class _TableFile:
    """A file without a name, into which tables are written one after another."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._opened = schema, ExitStack()

    def __enter__(self) -> Self:
        self._file: IO[bytes] = self._opened.enter_context(tempfile.TemporaryFile(prefix="replitree-rows-"))
        self._sink = self._opened.enter_context(pa.ipc.new_file(self._file, self._schema))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def write(self, rows: pa.Table) -> None:
        self._sink.write_table(rows)

    def table(self) -> pa.Table:
        """Return what was written, as a table that lies in the file; nothing can be written any more."""
        self._sink.close()
        self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(mapped)).read_all()


__all__ = ["HeldRows"]
