"""Roll over: let the log go on below a fresh parent before the numbers of the present one are used up.

ZooKeeper numbers the children of a node with 31 bits.  At a steady 1,000 entries a second that is enough for 24 days.

In one commit the last entry is appended below the old parent, its mark `open` is deleted, and the next parent is made with a
mark of its own.  Every append checks the mark of the parent that it goes below, so no entry can follow the last one.  A replica
that pulls the last entry goes on with the first index of the next parent; the indexes between are never used.

The commit may be repeated, and any number of replicas may try it: one of them finds the mark.
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import RollEntry, encode_entry
from replitree.protocol.core.layout import Replica

NUMBERS_LEFT = 1 << 24
"""The log goes on below a fresh parent when so many numbers are left: far more than are used before the leader looks again."""


def is_due(pointer: fx.LogIndex) -> bool:
    """Whether the log should go on below a fresh parent, by the pointer of the replica that leads."""
    return pointer % layout.PARENT_ENTRIES >= layout.PARENT_ENTRIES - NUMBERS_LEFT


def roll_over(replica: Replica, epoch: fx.Epoch) -> fx.Procedure[bool]:
    """Let the log go on below the next parent; False when that is not certain (look at the log).

    Parameters
    ----------
    replica, epoch
        The replica that does it, active under `epoch`; its table's `parent` is the one that is closed.
    """
    table, following = replica.table, replica.table.parent + 1
    last = fx.Create(layout.log_create(table), encode_entry(RollEntry(replica.name)), sequential=True)
    closing = fx.Delete(layout.open_log(table), 0)
    committed = yield fx.Commit(
        fx.Check(layout.host(replica), epoch),
        closing,
        last,
        fx.Create(layout.log_parent(table, following)),
        fx.Create(layout.open_log(table, following)),
    )
    if committed == fx.Refused(closing, fx.Reason.BAD_VERSION):
        committed = yield fx.Commit(
            fx.Check(layout.host(replica), epoch),
            fx.Delete(layout.open_log(table), fx.ANY_VERSION),
            last,
            fx.Create(layout.log_parent(table, following)),
            fx.Create(layout.open_log(table, following)),
            # An insert that does not know of the views of the table finds this mark changed, too (`core.views`).
            fx.Set(layout.open_log(table, following), b"", 0),
        )
    return isinstance(committed, fx.Applied)
