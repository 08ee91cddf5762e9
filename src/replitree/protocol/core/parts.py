"""Part names: which blocks of the number line a part holds, and the algebra that everything else is derived from.

A part is named ``<partition>_<min>_<max>_<level>[_<mutation>]``; all numbers are log indexes but the level, which counts the
merges behind the part.  A partition id never contains ``_``, so a name can be read from either end.

The order of the fields is the order of the tuple, so parts sort by partition and then along the number line.

*Covers* is a partial order: of two parts of one table that share a block, one covers the other, or the table is broken (I7).  A
part with more blocks covers one with fewer only at a higher level: without that rule ``all_0_5_2`` would cover ``all_0_4_2``,
which was made from other sources (ClickHouse #23997).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from replitree.errors import BadInput

# No index has more digits, and Python refuses to convert numbers of thousands of digits.
_NUMBER = "([0-9]{1,18})"
_PART = re.compile(f"([A-Za-z0-9.~=+-]+)_{_NUMBER}_{_NUMBER}_{_NUMBER}(?:_{_NUMBER})?")


class Part(NamedTuple):
    """A part's name, taken apart.

    Attributes
    ----------
    partition
        The partition's id.
    block_min, block_max
        Lowest and highest log index of the inserts whose rows may be in it.
    level
        How many merges are behind it.
    mutation
        Log index of the last mutation that it went through, 0 for none.
    """

    partition: str
    block_min: int
    block_max: int
    level: int
    mutation: int = 0

    @property
    def name(self) -> str:
        """The name as it stands in the log, in coordination and on disk."""
        stem = f"{self.partition}_{self.block_min}_{self.block_max}_{self.level}"
        return f"{stem}_{self.mutation}" if self.mutation else stem

    def covers(self, other: Part) -> bool:
        """Whether everything in `other` is in this part, in the same or a later form."""
        if self.partition != other.partition or self.mutation < other.mutation:
            return False
        if self.block_min == other.block_min and self.block_max == other.block_max:
            return self.level >= other.level
        return self.block_min <= other.block_min and self.block_max >= other.block_max and self.level > other.level

    def intersects(self, other: Part) -> bool:
        """Whether the two share a block."""
        return (
            self.partition == other.partition
            and self.block_min <= other.block_max
            and other.block_min <= self.block_max
        )

    def is_within(self, block_min: int, block_max: int) -> bool:
        """Whether all of its blocks are from `block_min` to `block_max`, both included."""
        return block_min <= self.block_min and self.block_max <= block_max

    @property
    def is_inserted(self) -> bool:
        """Whether it is as an insert, or a rewrite that brought new rows, has made it: no merge or mutation is behind it."""
        return self.level == 0 and not self.mutation


def inserted_part(partition: str, index: int) -> Part:
    """Return the part that the insert at `index` makes in `partition`."""
    return Part(partition, index, index, 0)


def merged_part(sources: Sequence[Part]) -> Part:
    """Return the part that a merge of neighbours makes; they are given in ascending order and are of one partition.

    >>> merged_part([parse_part("all_0_3_1"), parse_part("all_5_5_0")]).name
    'all_0_5_2'
    """
    return Part(
        sources[0].partition,
        sources[0].block_min,
        sources[-1].block_max,
        max(source.level for source in sources) + 1,
        max(source.mutation for source in sources),
    )


def mutated_part(part: Part, index: int) -> Part:
    """Return what a part is after the mutation at `index`.

    >>> mutated_part(parse_part("all_0_3_1"), 7).name
    'all_0_3_1_7'
    """
    return part._replace(mutation=index)


def parse_part(name: str) -> Part:
    """Take a part's name apart.

    Raises
    ------
    BadInput
        It is not the name of a part.

    >>> parse_part("2018-01_7_9_1").block_max
    9
    >>> parse_part("all_0_0_0").name
    'all_0_0_0'
    """
    match = _PART.fullmatch(name)
    if match is None:
        raise BadInput(f"{name!r} is not the name of a part: expected <partition>_<min>_<max>_<level>[_<mutation>]")
    partition, block_min, block_max, level, mutation = match.groups()
    return Part(partition, int(block_min), int(block_max), int(level), int(mutation or 0))


def overlapping(parts: Iterable[Part]) -> tuple[Part, Part] | None:
    """Return two parts that share a block, or None (invariant I7: active parts never overlap)."""
    return next((pair for pair in pairwise(sorted(parts)) if pair[0].intersects(pair[1])), None)
