"""Atomicity: an eventual read shows inserts and rewrites as a whole.

Entries are executed in any order, and a later form may be fetched in the place of a part (`protocol.state.fetch`).  So a
replica may have one part of an entry and not another one.  An eventual read waits until that is over; a read at a position
waits until every entry below it is executed.
"""

from __future__ import annotations

from collections.abc import Iterable

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import GetEntry, RewriteEntry, written_parts
from replitree.protocol.core.fold import change_of
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.state.pull import Queued


def shown_partly(held: PartSet, parts: PartSet, queue: Iterable[Queued]) -> LogIndex | None:
    """Return an insert or a rewrite that an eventual read would show in one of its parts and not in another, if there is one.

    A replica that catches up may have fetched the result of a merge, with rows of an insert that it has yet to execute.  Where
    that insert overwrites, it would show them beside the rows that they replace.  Of a rewrite it would show a row twice that
    moves from one part to another, or not at all.

    Parameters
    ----------
    held, parts
        What the replica has registered, and the table at its pointer.
    queue
        What it has pulled and not executed.
    """
    for item in queue:
        brought = written_parts(item.entry, item.index) if isinstance(item.entry, GetEntry | RewriteEntry) else ()
        lacking = [part for part in brought if held.covering(part) is None]
        # What it removes here is more than what it removed from the table where an earlier overwriting insert is queued, too.
        replaced = change_of(held, item.index, item.entry).removed if isinstance(item.entry, GetEntry) else ()
        if replaced and len(lacking) < len(brought):
            return item.index
        if len(brought) > 1:
            wanted = [part for part in lacking if parts.covering(part) is not None]
            # Results that a later entry removes; their sources may be here still, or gone already.
            removed = [part for part in lacking if part not in wanted and part.mutation]
            if len(lacking) < len(brought) and (wanted or removed):
                return item.index
            if wanted and any(not held.covered_by(part) for part in removed):
                return item.index
    return None
