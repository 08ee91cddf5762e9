"""The rows of one joint insert, held until it is over: a map that has changed needs them once more, split anew.

Rows that fit into one slice (`replitree.storage.rewrite.slices`) stay in memory.  More rows go into a temporary file, slice by
slice, and so do those of each shard when they are split.  Tables over these files are read through the page cache, which the
kernel takes back when memory is short: an insert needs the memory of a few slices, and room on disk for its rows twice.

Guarantees: the rows of a shard are in the order in which they came.  A file is gone as soon as nobody has its rows any more,
also if the process dies: it has no name.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import IO, Self

import pyarrow as pa

from replitree.protocol.sharded.shard_map import Shard
from replitree.storage.rewrite.slices import Slice
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

    def __init__(self, slices: Iterator[Slice], schema: pa.Schema) -> None:
        first = next(slices, None)
        if first is None or first.last:
            self.rows = schema.empty_table() if first is None else first.rows
            self._ends = [self.rows.num_rows]
            return
        self._ends = []
        with _TableFile(schema) as file:
            while first is not None:
                file.write(first.rows)
                self._ends.append(file.rows)
                first = next(slices, None)
            self.rows = file.table()

    def split(self, split: Callable[[pa.Table], Iterable[ShardRows]]) -> dict[Shard, pa.Table]:
        """Return the rows of each shard.

        Parameters
        ----------
        split
            Splits one slice.  It may also make other rows of it, which a materialised view writes.

        Raises
        ------
        OSError
            The folder of temporary files has no room.
        """
        if len(self._ends) == 1:
            return {each.shard: each.rows for each in split(self.rows)}
        files, start = dict[Shard, _TableFile](), 0
        with ExitStack() as opened:
            for end in self._ends:
                for shard, rows in split(self.rows.slice(start, end - start)):
                    if shard not in files:
                        files[shard] = opened.enter_context(_TableFile(rows.schema))
                    files[shard].write(rows)
                start = end
            return {shard: files[shard].table() for shard in sorted(files)}


class _TableFile:
    """A file without a name, into which tables are written one after another."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self.rows = schema, 0
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        self._file: IO[bytes] = self._opened.enter_context(tempfile.TemporaryFile(prefix="replitree-rows-"))
        self._sink = self._opened.enter_context(pa.ipc.new_file(self._file, self._schema))
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def write(self, rows: pa.Table) -> None:
        self._sink.write_table(rows)
        self.rows += rows.num_rows

    def table(self) -> pa.Table:
        """Return what was written, as a table that lies in the file; nothing can be written any more."""
        self._sink.close()
        self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(mapped)).read_all()


__all__ = ["HeldRows"]
