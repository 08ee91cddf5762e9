"""Merge: one part takes the place of neighbours.

The leader proposes a merge (`protocol.propose.propose`); whether it applies is decided by the fold.  A merge whose
sources have left the table by the time that it is pulled changes nothing.
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import MergeEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.execute.make_once import bring
from replitree.protocol.execute.making import Brought, Making, Waits
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.registration import Executed, ExecuteOutcome, View, finish, postpone


def execute_merge(replica: Replica, epoch: fx.Epoch, view: View, item: Queued) -> fx.Procedure[ExecuteOutcome]:
    """Bring the result of a merge."""
    entry = item.entry
    assert isinstance(entry, MergeEntry)
    wanted = tuple(part for part in item.change.added if view.wants(part))
    if not wanted:
        return (yield from finish(replica, epoch, (item.index,)))
    (result,) = wanted
    sources, for_all = tuple(part.name for part in item.change.removed), view.sharer is not None

    def make(staging: fx.StagingId) -> fx.Procedure[fx.Made | fx.StoreFailed | fx.Cancelled]:
        made: fx.Made | fx.StoreFailed | fx.Cancelled = yield fx.Merge(
            staging, sources, result.name, entry.schema_version, for_all
        )
        return made

    outcome = yield from bring(Making(replica, epoch, result, item.change.removed, item.index, make), view)
    match outcome:
        case Brought():
            return Executed((item.index,))
        case Waits(reason, is_told):
            return postpone(item.index, reason, is_told=is_told)
    return outcome
