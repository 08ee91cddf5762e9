"""Blocks of objects: read from the store once, kept for a moment, handed out as a stream from any position.

Blocks are cut from the end, the last one small, so that it is a footer and little more.  Footers are read several
times and by everybody, the rest is read once.  So the least recently used block goes first, and what is in flight is not
asked for again.

Absent on purpose: checksums of blocks.  The store and TCP have theirs; the manifest's is of the whole file.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from replitree.errors import StoreError
from replitree.storage.objects.store import ObjectStore

BLOCK_BYTES = 2 << 20
TAIL_BYTES = 64 << 10
"""The last block is smaller: who only counts rows reads only that."""

CACHE_BYTES = 128 << 20
READS_AT_ONCE = 8
AHEAD = 2
"""Blocks that are asked for before they are wanted, where somebody reads on."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a known size."""

    store: ObjectStore
    key: str
    size: int

    def read(self, first: int, size: int) -> bytes:
        """Read some of it.

        Raises
        ------
        StoreError
            It is gone, or the store gives no answer.
        """
        data = self.store.get_range(self.key, first, size)
        if data is None:
            raise StoreError(f"the object {self.key} of {self.store.name} is gone; take a new snapshot")
        return data


_Place = tuple[str, str, int]


class Blocks:
    """A cache of blocks.  Any thread may use it.

    Parameters
    ----------
    block_bytes, tail_bytes
        Size of a block, and of the last one of each object.
    cache_bytes
        Size of all blocks that are kept.
    """

    def __init__(
        self, block_bytes: int = BLOCK_BYTES, tail_bytes: int = TAIL_BYTES, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._size = block_bytes
        self._tail = tail_bytes
        self._kept_max = max(1, cache_bytes // block_bytes)
        self._kept: OrderedDict[_Place, Future[bytes]] = OrderedDict()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="replitree-blocks")

    def stream(self, source: StoredObject, first: int) -> Iterator[memoryview]:
        """Give an object's bytes from a position to its end.

        Raises
        ------
        StoreError
            The object is gone, or the store gives no answer.
        """
        left = source.size - first
        begin = min(1, left) + max(0, -(-(left - self._tail) // self._size))  # blocks are counted from the end
        for number in range(begin, 0, -1):
            block = self._block(source, number)
            if number < begin:
                for ahead in range(number - 1, max(number - 1 - AHEAD, 0), -1):
                    self._block(source, ahead)
            yield memoryview(block.result())[max(0, first - self._first(source, number)) :]

    def forget(self) -> None:
        """Keep nothing of what was read."""
        with self._lock:
            self._kept.clear()

    def close(self) -> None:
        """Read no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _first(self, source: StoredObject, number: int) -> int:
        """Position of a block's first byte; that of 0 is the object's end."""
        behind = self._tail + (number - 1) * self._size if number else 0
        return max(0, source.size - behind)

    def _block(self, source: StoredObject, number: int) -> Future[bytes]:
        """Return a block that is here or on its way."""
        place = (source.store.name, source.key, number)
        with self._lock:
            found = self._kept.get(place)
            if found is None or (found.done() and found.exception() is not None):
                at, end = self._first(source, number), self._first(source, number - 1)
                found = self._kept[place] = self._pool.submit(source.read, at, end - at)
            self._kept.move_to_end(place)
            while len(self._kept) > self._kept_max:
                self._kept.popitem(last=False)
        return found


__all__ = ["TAIL_BYTES", "Blocks", "StoredObject"]
