"""Own marks: which shares the registered parts of a replica had, when its disk can't tell any more.

A mark names its replica and its part, and is a child of its share's node.  So this reads the children of all shares, one
request for each, and only for parts that no replica could send.

Source: ``spec/zero_copy.md`` 3.2, scenario 13.
"""

from __future__ import annotations

from collections.abc import Collection

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Procedure, Sync
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import Sharer


def marked_shares(sharer: Sharer, parts: Collection[str]) -> Procedure[dict[str, tuple[ShareId, ...]]]:
    """Find the shares on which parts of this replica have marks.

    Parameters
    ----------
    sharer
        Whose marks: of this incarnation, and no other.
    parts
        Names of parts.

    Returns
    -------
    The shares of each part that has any, ascending.
    """
    table, prefix = sharer.replica.table, f"{sharer.signature.decode()}~"
    found: dict[str, tuple[ShareId, ...]] = {}
    yield Sync(layout.shares(table))
    for name in (yield Children(layout.shares(table))) or ():
        for mark in (yield Children(layout.share(table, name))) or ():
            part = mark.removeprefix(prefix)
            if part != mark and part in parts:
                found[part] = (*found.get(part, ()), ShareId(name))
    return found


__all__ = ["marked_shares"]
