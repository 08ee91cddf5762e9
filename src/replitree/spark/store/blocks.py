"""Blocks of objects: read from the store once, kept for a moment, handed out as a stream from any position.

Blocks are cut from the end, the last one small, so that it is a footer and little more.  Footers are read several
times and by every task, the rest is read once.  So the least recently used block goes first, and what is in flight is not
asked for again.

Every block is verified (`replitree.storage.parts.checked_bytes`) before a byte of it is handed out.  So blocks begin where
blocks of the object's sums begin, and a small object, which has one checksum, is one block.  A block is kept under the
checksum of its object: verified bytes of one object are those of any other with that checksum.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from replitree.errors import StoreError
from replitree.storage.files.sums import BLOCK_BYTES as SUMMED_BYTES
from replitree.storage.files.sums import is_summed
from replitree.storage.parts.checked_bytes import CheckedBytes
from replitree.storage.parts.verified import StoredFile

BLOCK_BYTES = 2 << 20
TAIL_BYTES = 64 << 10
"""The last block is smaller: a query that only counts rows reads only that.  It begins with a block of the object's sums."""

CACHE_BYTES = 128 << 20
READS_AT_ONCE = 8
AHEAD = 2
"""Blocks that are requested ahead of a reader that reads in order."""


class ServedObject:
    """A data object as it is served; any thread may use it.

    Parameters
    ----------
    file
        The object.  Once a damaged one was replaced by a good copy, all further reads are of the copy.
    """

    def __init__(self, file: StoredFile) -> None:
        self.size = file.entry.bytes
        self.content = file.entry.checksum
        self._key = file.path
        self._bytes = CheckedBytes(file)

    def read(self, first: int, size: int) -> pa.Buffer:
        """Read some of it.

        Raises
        ------
        CorruptPart
            It is damaged, and no good copy is to be had.
        StoreError, NotAuthorized, ReplitreeError
            It is gone, or the store gives no answer.
        """
        try:
            return self._bytes.read(first, size)
        except FileNotFoundError as error:
            raise StoreError(f"the object {self._key} is gone ({error.strerror}); take a new snapshot") from error


_Place = tuple[str, int, int]


class Blocks:
    """A cache of blocks.  Any thread may use it.

    Parameters
    ----------
    block_bytes, tail_bytes
        Size of a block, a multiple of that of the blocks that have checksums; and of the last one of each object at least.
    cache_bytes
        Size of all blocks that are kept.
    """

    def __init__(
        self, block_bytes: int = BLOCK_BYTES, tail_bytes: int = TAIL_BYTES, cache_bytes: int = CACHE_BYTES
    ) -> None:
        assert block_bytes % SUMMED_BYTES == 0, "a block has whole blocks of the object's sums"
        self._size = block_bytes
        self._tail = tail_bytes
        self._kept_max = max(1, cache_bytes // block_bytes)
        self._kept: OrderedDict[_Place, Future[pa.Buffer]] = OrderedDict()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="replitree-blocks")

    def stream(self, source: ServedObject, first: int) -> Iterator[memoryview]:
        """Give an object's bytes from a position to its end.

        Raises
        ------
        CorruptPart
            It is damaged, and no good copy is to be had.
        StoreError, NotAuthorized, ReplitreeError
            The object is gone, or the store gives no answer.
        """
        left = source.size - first
        # Blocks are counted from the end: readers of Parquet begin with the footer, which is in block 1.
        begin = min(1, left) + max(0, -(-(left - self._tail_of(source)) // self._size))
        for number in range(begin, 0, -1):
            block = self._block(source, number)
            # From the second block on: a reader that wants one footer only does not make the store send more.
            if number < begin:
                for ahead in range(number - 1, max(number - 1 - AHEAD, 0), -1):
                    self._block(source, ahead)
            yield memoryview(block.result())[max(0, first - self._first(source, number)) :]

    def forget(self) -> None:
        """Keep nothing of what was read."""
        with self._lock:
            self._kept.clear()

    def close(self) -> None:
        """Stop reading."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _tail_of(self, source: ServedObject) -> int:
        """Bytes of an object's last block: all before it begin where blocks of the sums do."""
        # A small object has one checksum: it can only be verified as a whole.
        if not is_summed(source.size):
            return source.size
        return self._tail + (source.size - self._tail) % SUMMED_BYTES

    def _first(self, source: ServedObject, number: int) -> int:
        """Position of a block's first byte; that of 0 is the object's end."""
        behind = self._tail_of(source) + (number - 1) * self._size if number else 0
        return max(0, source.size - behind)

    def _block(self, source: ServedObject, number: int) -> Future[pa.Buffer]:
        """Return a block that is here or on its way."""
        # By checksum, not by name: verified bytes of one object are those of any other with that checksum.
        place = (source.content, source.size, number)
        with self._lock:
            found = self._kept.get(place)
            # A failed read is not kept: the store may answer the next one.
            if found is None or (found.done() and found.exception() is not None):
                at, end = self._first(source, number), self._first(source, number - 1)
                found = self._kept[place] = self._pool.submit(source.read, at, end - at)
            self._kept.move_to_end(place)
            while len(self._kept) > self._kept_max:
                self._kept.popitem(last=False)
        return found


__all__ = ["TAIL_BYTES", "Blocks", "ServedObject"]
