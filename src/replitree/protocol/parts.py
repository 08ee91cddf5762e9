"""Part names: which blocks of the number line a part holds.

A part is named ``<partition>_<min>_<max>_<level>[_<mutation>]``; all numbers are log indexes but the level, which counts the
merges behind the part.  A partition id never contains ``_``, so a name can be read from either end.

The order of the fields is the order of the tuple, so parts sort by partition and then along the number line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from replitree.errors import BadInput

_PART = re.compile(r"([A-Za-z0-9.~=+-]+)_(\d+)_(\d+)_(\d+)(?:_(\d+))?")


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A part's name, taken apart."""

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
        return (
            self.partition == other.partition
            and self.block_min <= other.block_min
            and self.block_max >= other.block_max
            and self.level >= other.level
            and self.mutation >= other.mutation
        )

    def intersects(self, other: Part) -> bool:
        """Whether the two share a block."""
        return (
            self.partition == other.partition
            and self.block_min <= other.block_max
            and other.block_min <= self.block_max
        )


def inserted_part(partition: str, index: int) -> Part:
    """Return the part that the insert at `index` makes in `partition`."""
    return Part(partition, index, index, 0)


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
