"""Needed parts: for each part that a feed needs, when the last entry that needs it was written, and its index.

==========  =========================================================================  =========================
kept in     what                                                                       bytes of memory for a part
==========  =========================================================================  =========================
`_recent`   parts of inserts: the newest `RECENT_PARTS`, and a few more                about 220
`_chunks`   older parts of inserts: rows of arrays, sorted by block and partition      about 17
`_others`   parts that a merge or a mutation has made                                  about 220
==========  =========================================================================  =========================

A feed that is kept for a day may need millions of parts of inserts.  The name of such a part says no more than its partition
and its block, so a row of numbers has it.  The parts of the newest entries are asked for all the time and keep a dictionary.

A part that a later entry needs again stands in `_recent` with that entry; its row is out of date until it moves once more.

Not for several threads at once (`replitree.replica.kit.feed_journal` has a lock).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, takewhile
from typing import TypeAlias

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.parts import Part

RECENT_PARTS = 1 << 18
"""Parts of inserts that keep their names in memory: those of an hour with 70 inserts a second.  Older ones are packed."""

MOVED_AT_ONCE = 1_024
"""Parts that move into rows in one go, which takes about 2 ms."""

CHUNK_BITS = 12
"""A chunk has the parts of 2**12 blocks."""

_PARTITION_BITS = 32 - CHUNK_BITS
"""A row's key has the block's place in its chunk, and the number of the partition."""

_LATER_MAX = (1 << 32) - 1

# A plain tuple: the garbage collector does not look at tuples of numbers again and again.
Need: TypeAlias = tuple[int, LogIndex]
"""The last entry that needs a part: when it was written, in microseconds since 1970, and its index."""

NEVER: Need = (0, LogIndex(-1))
"""Of a part that no known entry needs."""


class _Chunk:
    """Rows of the parts of some blocks, ascending by their keys.

    `later` is the index of the entry that needs the part, less the part's block.  `newest` is of all rows, also of those that
    are out of date.
    """

    __slots__ = ("keys", "later", "newest", "times_us")

    def __init__(self) -> None:
        self.keys, self.times_us, self.later = array("I"), array("q"), array("I")
        self.newest = NEVER

    def put(self, key: int, later: int, need: Need) -> None:
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            self.times_us[at], self.later[at] = need[0], later
        else:
            self.keys.insert(at, key)
            self.times_us.insert(at, need[0])
            self.later.insert(at, later)
        self.newest = max(self.newest, need)

    def get(self, key: int, block: int) -> Need:
        at = bisect_left(self.keys, key)
        if at == len(self.keys) or self.keys[at] != key:
            return NEVER
        return self.times_us[at], LogIndex(block + self.later[at])


class NeededParts:
    """The parts that the entries of a feed need."""

    def __init__(self) -> None:
        self._recent: dict[str, Need] = {}
        self._others: dict[str, Need] = {}
        self._chunks: dict[int, _Chunk] = {}
        self._partitions: dict[str, int] = {}

    def add(self, part: Part, need: Need) -> None:
        """Take note that an entry needs a part; it comes after all entries that were taken in, and was written later."""
        name, is_inserted = part.name, part.block_min == part.block_max and not (part.level or part.mutation)
        # The newest come last.
        for known in (self._recent, self._others):
            known.pop(name, None)
        (self._recent if is_inserted else self._others)[name] = need
        if len(self._recent) >= RECENT_PARTS + MOVED_AT_ONCE:
            self._move()

    def _move(self) -> None:
        """Move the oldest of the recent parts into rows."""
        for name in list(islice(self._recent, MOVED_AT_ONCE)):
            need = self._recent.pop(name)
            partition, block = _inserted(name)
            if len(self._partitions) < 1 << _PARTITION_BITS:
                self._partitions.setdefault(partition, len(self._partitions))
            number, later = self._partitions.get(partition), need[1] - block
            if number is None or not 0 <= later <= _LATER_MAX:
                # In a table with a million partitions, or after two rolls of the log.
                self._others[name] = need
            else:
                self._chunks.setdefault(block >> CHUNK_BITS, _Chunk()).put(_key(block, number), later, need)

    def of(self, parts: Sequence[str]) -> list[Need]:
        """Return the last need of each part; `NEVER` where no entry needs it."""
        recent, others = self._recent.get, self._others.get
        return [recent(part) or others(part) or self._in_row(part) for part in parts]

    def _in_row(self, part: str) -> Need:
        partition, block = _inserted(part) if self._chunks else ("", -1)
        chunk, number = self._chunks.get(block >> CHUNK_BITS), self._partitions.get(partition)
        return NEVER if chunk is None or number is None else chunk.get(_key(block, number), block)

    def has_before(self, before_us: float) -> bool:
        """Whether parts may be known whose last need is older than a time, in microseconds since 1970."""
        oldest = (next(iter(known.values())) for known in (self._recent, self._others) if known)
        return any(need[0] < before_us for need in chain(oldest, (chunk.newest for chunk in self._chunks.values())))

    def forget(self, is_over: Callable[[Need], bool]) -> LogIndex:
        """Forget parts whose last need is over; return the highest index of a need that was forgotten, -1: none was.

        Rows stay until every part of their chunk can go.

        Parameters
        ----------
        is_over
            When it says so of a need, it does of every earlier one.
        """
        _, last = NEVER
        over = list(takewhile(lambda name: is_over(self._recent[name]), self._recent))
        over += [name for name, need in self._others.items() if is_over(need)]
        for name in over:
            need = self._recent.pop(name, None) or self._others.pop(name)
            last = max(last, need[1])
        for number in [number for number, chunk in self._chunks.items() if is_over(chunk.newest)]:
            last = max(last, self._chunks.pop(number).newest[1])
        return last

    def named(self) -> list[tuple[str, Need]]:
        """Return the parts that are in no row, or in one that is out of date, those of the newest entries first."""
        return sorted(chain(self._recent.items(), self._others.items()), key=lambda each: each[1][1], reverse=True)

    def chunks(self) -> list[int]:
        """Return the numbers of the chunks of rows, those of the newest blocks first."""
        return sorted(self._chunks, reverse=True)

    def rows(self, number: int) -> Iterator[tuple[str, Need]]:
        """Give the parts of a chunk that `named` does not, those of the newest blocks first; none if the chunk is gone."""
        chunk, names = self._chunks.get(number) or _Chunk(), list(self._partitions)
        for key, us, later in zip(reversed(chunk.keys), reversed(chunk.times_us), reversed(chunk.later), strict=True):
            block = (number << CHUNK_BITS) + (key >> _PARTITION_BITS)
            name = f"{names[key & ((1 << _PARTITION_BITS) - 1)]}_{block}_{block}_0"
            if name not in self._recent and name not in self._others:
                yield name, (us, LogIndex(block + later))


def _key(block: int, partition: int) -> int:
    return (block & ((1 << CHUNK_BITS) - 1)) << _PARTITION_BITS | partition


def _inserted(name: str) -> tuple[str, int]:
    """Return the partition and the block of the part of an insert, by its name; of any other part a block below 0.

    >>> _inserted("2018-01_7_7_0"), _inserted("all_7_7_0_9"), _inserted("all_7_8_1")
    (('2018-01', 7), ('', -1), ('', -1))
    """
    # Of a part that went through a mutation the last number is that, and never 0.
    partition, first, last, level = name.rsplit("_", 3)
    return (partition, int(first)) if first == last and level == "0" else ("", -1)


__all__ = ["NEVER", "Need", "NeededParts"]
