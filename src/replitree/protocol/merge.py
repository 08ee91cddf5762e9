"""Merge: one part takes the place of neighbours.

The leader proposes a merge (`protocol.propose`); whether it applies is decided by the fold.  A merge whose sources have left
the table by the time that it is pulled changes nothing.
"""

from __future__ import annotations

from replitree.protocol.effects import Cancelled, Epoch, Made, Merge, Procedure, StagingId, StoreFailed
from replitree.protocol.entries import MergeEntry
from replitree.protocol.layout import Replica
from replitree.protocol.make_once import bring
from replitree.protocol.making import Brought, Making, Waits
from replitree.protocol.pull import Queued
from replitree.protocol.registration import Executed, ExecuteOutcome, View, finish, postpone


def execute_merge(replica: Replica, epoch: Epoch, view: View, item: Queued) -> Procedure[ExecuteOutcome]:
    """Bring the result of a merge."""
    entry = item.entry
    assert isinstance(entry, MergeEntry)
    wanted = tuple(part for part in item.change.added if view.wants(part))
    if not wanted:
        return (yield from finish(replica, epoch, (item.index,)))
    (result,) = wanted
    sources = tuple(part.name for part in item.change.removed)

    def make(staging: StagingId) -> Procedure[Made | StoreFailed | Cancelled]:
        made: Made | StoreFailed | Cancelled = yield Merge(staging, sources, result.name, entry.schema_version)
        return made

    outcome = yield from bring(Making(replica, epoch, result, item.change.removed, item.index, make), view)
    match outcome:
        case Brought():
            return Executed((item.index,))
        case Waits(reason, is_told):
            return postpone(item.index, reason, is_told=is_told)
    return outcome
