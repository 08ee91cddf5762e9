"""A replica of a dropped table: it leaves the table; one on an object store releases its shares before.

The replica that leaves last deletes the objects that no replica owns, so each works the garbage off while it still can.  What
could not be released is released by `leave_table`, and is garbage then for the replicas that are left.
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership import table
from replitree.protocol.membership.table import ATTEMPTS_MAX, DROPPED_HOST
from replitree.protocol.program.stages import End, Stage, Then
from replitree.protocol.shares import share


def release_shares(replica: Replica, me: bytes) -> Stage:
    """Release every share of the replica, and delete the objects that no replica owns; then leave the table.

    Parameters
    ----------
    me
        This process, as the replica's `host` names it.  It releases nothing for another one.
    """
    for _ in range(ATTEMPTS_MAX):
        # A commit of this process may have moved the epoch on, and its answer may be lost: what `host` says counts.
        host = yield fx.Get(layout.host(replica))
        if host is None or host.value not in (me, DROPPED_HOST):
            break
        if isinstance((yield from share.release(replica, fx.Epoch(host.version))), share.LetGo):
            break
    yield from share.work_off(replica.table)
    return Then(leave_table, (replica, True))


def leave_table(replica: Replica, shared: bool) -> Stage:
    """Take the replica out of its table; find out whether that is done.  `shared`: the table has an object store."""
    return End((yield from table.leave_table(replica, shared=shared)))


__all__ = ["leave_table", "release_shares"]
