"""Files that Arrow reads through Python: the methods of a binary file that `pyarrow.PythonFile` calls."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class BinaryFile(ABC):
    """A file of a known size for `pyarrow.PythonFile`, open for reading.

    Arrow calls it from one thread at a time, and closes it or forgets it.

    Parameters
    ----------
    size_bytes
        Size of the file.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._position = 0
        self.closed = False

    @abstractmethod
    def read_range(self, begin: int, count: int) -> pa.Buffer | bytes:
        """Return the bytes from `begin` to ``begin + count``, all of which are in the file if `count` is not 0."""

    def readable(self) -> bool:
        """Whether there is `read`."""
        return True

    def seekable(self) -> bool:
        """Whether there is `seek`."""
        return True

    def writable(self) -> bool:
        """Whether there is a way to change it."""
        return False

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}[whence]
        self._position = start + offset
        return self._position

    def read(self, count: int = -1) -> pa.Buffer | bytes:
        """Read bytes from the position on; the file's end ends them.  Raises as `read_range`."""
        left = max(0, self._size_bytes - self._position)
        count = left if count < 0 else min(count, left)
        found = self.read_range(self._position, count)
        self._position += count
        return found

    def close(self) -> None:
        """Close it; again does nothing."""
        self.closed = True


__all__ = ["BinaryFile"]
