"""A set of parts of which no two share a block, in order: what a table has at some index.

It is a value: a change makes a new set and leaves the old one as it is, so it can be an argument of a procedure and a state of
the checker.  The parts lie in chunks of at most `CHUNK_PARTS`, so a change copies one chunk and the list of chunks: its cost
depends on what changed, and is flat to a hundred thousand parts.

(Chunked copy-on-write as in the leaves of a B-tree; two levels are enough for a million parts.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from typing_extensions import override

from replitree.protocol.core.parts import Part

CHUNK_PARTS = 256
SPARSE_FACTOR = 4
"""So many times as many chunks as are needed are put up with before the set is packed again."""

_Chunk: TypeAlias = tuple[Part, ...]


class PartSet:
    """Parts that share no block, ascending by partition and block.  Immutable.

    Two sets are equal when they have the same parts, however they came about.
    """

    __slots__ = ("_chunks", "_hash", "_length")

    def __init__(self, chunks: tuple[_Chunk, ...] = (), length: int = 0) -> None:
        self._chunks = chunks
        self._length = length
        self._hash: int | None = None

    @classmethod
    def of(cls, parts: Iterable[Part]) -> PartSet:
        """Return the set of parts of which no two share a block, given in any order."""
        ordered = sorted(parts)
        chunks = tuple(tuple(ordered[i : i + CHUNK_PARTS]) for i in range(0, len(ordered), CHUNK_PARTS))
        return cls(chunks, len(ordered))

    def __iter__(self) -> Iterator[Part]:
        return chain.from_iterable(self._chunks)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, part: Part) -> bool:
        chunk = self._chunk_of(part)
        if chunk == len(self._chunks):
            return False
        parts = self._chunks[chunk]
        place = bisect_left(parts, part)
        return place < len(parts) and parts[place] == part

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartSet):
            return NotImplemented
        return self is other or (len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True)))

    @override
    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self))
        return self._hash

    @override
    def __repr__(self) -> str:
        return f"PartSet({', '.join(part.name for part in self)})"

    # --- looking --------------------------------------------------------------------------------------------------------

    def between(self, partition: str, block_min: int, block_max: int) -> tuple[Part, ...]:
        """Return the parts of a partition that have a block from `block_min` to `block_max`, in order."""
        # The part before this place may reach into the blocks.
        place = (partition, block_min + 1)
        first = self._before(place) or place
        found: list[Part] = []
        for part in self._from(first):
            if part[:2] > (partition, block_max):
                break
            if (
                part.partition == partition and part.block_max >= block_min
            ):  # the first one may be of the partition before
                found.append(part)
        return tuple(found)

    def in_partition(self, partition: str) -> tuple[Part, ...]:
        """Return the parts of a partition, in order."""
        found: list[Part] = []
        for part in self._from((partition,)):
            if part.partition != partition:
                break
            found.append(part)
        return tuple(found)

    def covering(self, part: Part) -> Part | None:
        """Return the part of the set that covers `part`, itself or a later form of it; None when there is none."""
        before = self._before((part.partition, part.block_min + 1))
        return before if before is not None and before.covers(part) else None

    def covered_by(self, part: Part) -> tuple[Part, ...]:
        """Return the parts of the set that `part` covers, itself or what it was made of, in order."""
        # A part that was merged over the hole that a drop leaves shares its blocks, and none of its rows.
        inside = self.between(part.partition, part.block_min, part.block_max)
        return tuple(each for each in inside if part.covers(each))

    def _chunk_of(self, part: tuple[object, ...]) -> int:
        """Return the number of the chunk in which a part of this place is, or would be looked for."""
        low, high = 0, len(self._chunks)
        if high and self._chunks[-1][-1] < part:
            return high
        while low < high:
            middle = (low + high) // 2
            if self._chunks[middle][-1] < part:
                low = middle + 1
            else:
                high = middle
        return low

    def _from(self, place: tuple[object, ...]) -> Iterator[Part]:
        """Give the parts from a place of the order on."""
        number = self._chunk_of(place)
        if number == len(self._chunks):
            return
        chunk = self._chunks[number]
        yield from chunk[bisect_left(chunk, place) :]
        for later in self._chunks[number + 1 :]:
            yield from later

    def _before(self, place: tuple[object, ...]) -> Part | None:
        """Return the last part before a place of the order, of whatever partition."""
        # Most lookups end here, because a table grows at its end.
        if not self._chunks or self._chunks[-1][-1] < place:
            return self._chunks[-1][-1] if self._chunks else None
        number = self._chunk_of(place)
        here = bisect_left(self._chunks[number], place)
        if here > 0:
            return self._chunks[number][here - 1]
        return self._chunks[number - 1][-1] if number > 0 else None

    # --- changing -------------------------------------------------------------------------------------------------------

    def replace(self, removed: Iterable[Part], added: Iterable[Part]) -> PartSet:
        """Return the set without `removed`, which are all in it, and with `added`, which share no block with what is left."""
        removed, added = tuple(removed), tuple(added)
        if not removed and len(added) == 1 and (not self._chunks or self._chunks[-1][-1] < added[0]):
            # A table grows at its end.
            if not self._chunks or len(self._chunks[-1]) >= CHUNK_PARTS:
                return PartSet((*self._chunks, added), self._length + 1)
            return PartSet((*self._chunks[:-1], (*self._chunks[-1], *added)), self._length + 1)
        changes: dict[int, tuple[list[Part], list[Part]]] = {}
        for part in removed:
            changes.setdefault(self._chunk_of(part), ([], []))[0].append(part)
        last = max(0, len(self._chunks) - 1)
        for part in added:
            changes.setdefault(min(self._chunk_of(part), last), ([], []))[1].append(part)
        if not changes:
            return self
        changed = {number: self._changed(number, *change) for number, change in changes.items()}
        chunks = list(self._chunks)
        length = self._length
        for number in sorted(changed, reverse=True):
            length += sum(map(len, changed[number])) - sum(map(len, chunks[number : number + 1]))
            chunks[number : number + 1] = changed[number]
        # With many nearly empty chunks, the set is built afresh.
        if len(chunks) > SPARSE_FACTOR * (length // CHUNK_PARTS + 1):
            return PartSet.of(chain.from_iterable(chunks))
        return PartSet(tuple(chunks), length)

    def _changed(self, number: int, removed: list[Part], added: list[Part]) -> tuple[_Chunk, ...]:
        """Return what a chunk becomes: none, one or several chunks."""
        chunk = self._chunks[number] if self._chunks else ()
        for part in sorted(removed, reverse=True):
            place = bisect_left(chunk, part)
            assert chunk[place : place + 1] == (part,), f"{part.name} is not in the set"
            chunk = chunk[:place] + chunk[place + 1 :] if len(removed) == 1 else chunk
        if len(removed) > 1:
            gone = frozenset(removed)
            chunk = tuple(part for part in chunk if part not in gone)
        if len(added) == 1:
            place = bisect_right(chunk, added[0])
            chunk = (*chunk[:place], added[0], *chunk[place:])
        elif added:
            chunk = tuple(sorted((*chunk, *added)))
        if len(chunk) <= CHUNK_PARTS:
            return (chunk,) if chunk else ()
        if number == len(self._chunks) - 1 and len(chunk) == CHUNK_PARTS + 1:
            # A table grows at its end, so a full chunk is left behind instead of two halves.
            return chunk[:CHUNK_PARTS], chunk[CHUNK_PARTS:]
        pieces = -(-len(chunk) // (CHUNK_PARTS // 2))
        size = -(-len(chunk) // pieces)
        return tuple(chunk[i : i + size] for i in range(0, len(chunk), size))
