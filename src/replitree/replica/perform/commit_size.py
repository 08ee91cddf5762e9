"""How large the commits of an insert are: what coordination would refuse is refused before anything is written.

An insert is in two commits: one appends its entry to the log, one registers its parts at each replica, where an overwrite also
takes back the parts that it replaces.  An entry that can't be registered would stay in every replica's queue for ever, so the
larger of both decides.  Names that are not known yet are counted with the longest that they can have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from replitree.coordination.port import REQUEST_BYTES_MAX
from replitree.errors import BadInput
from replitree.protocol.core import layout
from replitree.protocol.core.entries import EVERY_PARTITION
from replitree.protocol.core.layout import NAME_LENGTH_MAX, Replica
from replitree.protocol.core.parts import Part

PARTS_MAX = 1_000
"""Parts of one group, and of the log entries that are registered in one commit: with the longest names that fits.  A single
insert may have more, if its own commits are small enough."""

_FIXED_BYTES = 4_000
"""The check of the epoch, block ids, an entry's other fields."""

_OPERATION_BYTES = 25
_CREATED_BYTES = 90
"""Rights with a user's name and the digest of a password."""

_ENTRY_PART_BYTES = 130
"""What the log entry says of a part besides its partition: rows, bytes, content hash, names of the fields."""

_BLOCKS_BYTES = 26
"""Block numbers, level and underscores in a part's name."""

_HASH_BYTES = 32


def check_insert(
    replica: Replica, partitions: Sequence[str], drops: Sequence[str] = (), held: Iterable[Part] = ()
) -> None:
    """Do nothing with an insert whose commits coordination takes.

    Parameters
    ----------
    replica
        The replica that takes it.
    partitions
        The partitions that it writes to.
    drops, held
        What it overwrites, and the parts that the table has now.

    Raises
    ------
    BadInput
        They are too large.
    """
    # Every replica registers the parts under its own name, so the longest name counts.
    longest = Replica(replica.table, "r" * NAME_LENGTH_MAX)
    part_bytes = _OPERATION_BYTES + len(layout.part(longest, ""))
    named = sum(map(len, partitions))
    replaced = [part for part in held if EVERY_PARTITION in drops or part.partition in drops]
    appended = named + _ENTRY_PART_BYTES * len(partitions) + sum(len(partition) + 3 for partition in drops)
    registered = named + (part_bytes + _CREATED_BYTES + _HASH_BYTES + _BLOCKS_BYTES) * len(partitions)
    registered += sum(part_bytes + len(part.name) for part in replaced)
    registered += sum(_OPERATION_BYTES + _CREATED_BYTES + len(layout.drop(replica.table, each)) for each in drops)
    size = _FIXED_BYTES + max(appended, registered)
    if size > REQUEST_BYTES_MAX:
        over = f" and replace {len(replaced):,} parts" if replaced else ""
        raise BadInput(
            f"the rows belong to {len(partitions):,} partitions{over}: that takes a commit of {size:,} bytes, and coordination"
            f" takes {REQUEST_BYTES_MAX:,}; nothing was inserted: insert in slices, or partition more coarsely"
        )


__all__ = ["PARTS_MAX", "check_insert"]
