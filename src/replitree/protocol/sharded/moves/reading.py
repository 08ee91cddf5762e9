"""Reads of a table whose buckets move.

A read asks the shards that can have rows it wants (`ShardMap.shards_of`), by the map that it has read.  At a cut z these are
all of them if the map was that of z.  So a read looks at the map twice: before it chooses the cut, and after it has it, in a
session that has seen z.  If the version is the same, and the map was written at z or before, it was the map of z.  If the
version is another one, the read begins again with it.  If the map is newer than the cut, the read asks all shards.
"""

from __future__ import annotations

from replitree.protocol.core.stamps import Zxid


def is_map_at(zxid: Zxid, used: object, found: object, written: Zxid) -> bool:
    """Whether the map that a read has used is that of its cut.

    Parameters
    ----------
    zxid
        The cut.
    used, found
        Which map the read has used, and which one is there: its version, with that of the table where this may be another one.
        The second one was read in a session that had seen the cut.
    written
        The transaction that wrote the second one.

    Examples
    --------
    >>> is_map_at(Zxid(50), 3, 3, Zxid(40))
    True
    >>> is_map_at(Zxid(30), 3, 3, Zxid(40)), is_map_at(Zxid(50), 2, 3, Zxid(40))
    (False, False)
    """
    return found == used and written <= zxid
