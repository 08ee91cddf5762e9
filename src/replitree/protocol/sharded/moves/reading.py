"""Reads of a table whose buckets move.

A read asks the shards that can have rows it wants (`ShardMap.shards_of`), by the map that it has read.  At a cut z these are
all of them if the map was that of z.  So a read looks at the map twice: before it chooses the cut, and after it has it, in a
session that has seen z.  If the version is the same, and the map was written at z or before, it was the map of z.  Otherwise
the read begins again, with the map that is there now, at a later cut.
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core.stamps import StampedNode, Zxid


def is_map_at(zxid: Zxid, used: fx.Version, found: StampedNode) -> bool:
    """Whether the map that a read has used is that of its cut.

    Parameters
    ----------
    zxid
        The cut.
    used
        The version of the map that the read has used.
    found
        The node of the map, as it was read in a session that had seen the cut.

    Examples
    --------
    >>> node = StampedNode(b"", fx.Version(3), created=Zxid(10), changed=Zxid(40))
    >>> is_map_at(Zxid(50), fx.Version(3), node)
    True
    >>> is_map_at(Zxid(30), fx.Version(3), node), is_map_at(Zxid(50), fx.Version(2), node)
    (False, False)
    """
    return found.version == used and found.changed <= zxid
