"""Materialised views: an insert into their source writes to their targets, too, in the same commit.

A *joint insert* appends one `get` to the log of the source, and one to the log of the target of each view that has rows::

    Check(source host @ epoch), block ids, Check(source views @ version),
    for each view: Check(target host @ epoch), Check(target's open parent), Create(target log-…),
    Create(source log-…)

So source and targets have an insert together or not at all (V1), and its block ids stand for all of it: a duplicate changes no
table (V2).  The replica that takes the insert stages the rows of the views itself.  It must be a replica of the targets, and
active there; a view that it can't compute fails the insert.

After the commit the `get` of a target is an entry as any other.  The target's puller finds it, and the executor publishes what
is staged, as after a crash between the commit and the publication of an insert.

============================================  ==================================================================
what the insert finds when it commits         what becomes of it
============================================  ==================================================================
the views have changed since it staged        refused by the version of ``views``: it reads them, and stages again
the first view has come                       refused by the mark of the open parent, which the view has set
the target has activated anew                 refused by its epoch: the activation has swept, or will sweep, what was staged
the target's log has gone on below a parent   refused by the mark: it stages again, with the target's place as it is then
a block id exists                             it is a duplicate, whatever the views are by now
============================================  ==================================================================

*Order.*  The epoch of a target is taken before anything is staged there.  An activation lists the folders that it may sweep
before it takes its epoch; so what was staged under the present epoch is in no list, or the commit is refused.

*Doubt.*  The commit has the epoch of the source's replica.  A new one decides it for all tables at once.

*Backfill.*  The rows from before the view come with one insert into the target.  Its commit marks the view as filled, at the
version of ``views`` that it has read: so it is done once, however often it is tried, and never for a view that was dropped.

Absent on purpose: views of a target (a chain), inserts with a quorum, and inserts that overwrite.  Attached parts, mutations
and rewrites change the source alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import GetEntry, encode_entry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.views import StagedView, Views, encode_views, staged_view, views_at

TRIES_MAX = 8
"""How often an insert is staged again because views, or the state of their targets, have changed."""


@dataclass(frozen=True, slots=True)
class Outdated:
    """The group is certainly not in the log: views, or a target, have changed since it was staged; `reason` is for clients."""

    reason: str


@dataclass(frozen=True, slots=True)
class Backfill:
    """What an insert into a target is: the rows from before a view, of the table that is its source."""

    source: TablePlace
    view: fx.EntryId


@dataclass(frozen=True, slots=True)
class InsertOrigin:
    """Where the rows of an insert come from.

    Attributes
    ----------
    fires
        Whether the table's views get them: not those of a part that is attached.
    backfill
        The view whose earlier rows its only request is.
    """

    fires: bool = True
    backfill: Backfill | None = None


FROM_CLIENTS = InsertOrigin()


@dataclass(frozen=True, slots=True)
class Filling:
    """The views of a source, of which one is not filled: `fills` marks it as filled."""

    source: TablePlace
    views: Views
    view: fx.EntryId

    def fills(self) -> fx.Set:
        """Return the operation that marks the view, in the commit of its backfill."""
        assert self.views.version is not None
        filled = (
            msgspec.structs.replace(each, is_filled=True) if each.id == self.view else each
            for each in self.views.value.views
        )
        value = msgspec.structs.replace(self.views.value, views=tuple(filled))
        return fx.Set(layout.views(self.source), encode_views(value), self.views.version)


def backfill_token(view: fx.EntryId, created: fx.LogIndex) -> str:
    """Return the token of the backfill of a view that begins at the index `created` of its source's log."""
    return f"view:{view}:{created}"


def backfill_version(created: fx.LogIndex) -> fx.LogIndex:
    """Return the version of the source whose rows a backfill has: exactly what the log has below the view's entry."""
    return created


def read_views(table: TablePlace) -> fx.Procedure[Views]:
    """Read the views of a table as they are now."""
    # A view that lags would be refused again and again.
    yield fx.Sync(layout.views(table))
    return views_at(table, (yield fx.Get(layout.views(table))))


def refusal(table: TablePlace, views: Views, drops: tuple[str, ...], quorum: int) -> str:
    """Return why an insert can't be taken, for its client; empty: it can."""
    if not views.value.views or not (drops or quorum):
        return ""
    names = ", ".join(each.name for each in views.value.views)
    if quorum:
        return (
            f"table {table.name} has materialised views ({names}), whose rows can't wait for a quorum:"
            " insert without a quorum"
        )
    return (
        f"table {table.name} has materialised views ({names}), and an insert that overwrites would leave what they have"
        " written of the rows that go: drop the rows first, then insert, or drop the views"
    )


def joint_operations(staging: fx.StagingId, views: tuple[StagedView, ...]) -> tuple[fx.Operation, ...]:
    """Return what a joint insert does to the targets, in the commit of the source's entry."""
    operations: list[fx.Operation] = []
    for view in views:
        if not view.parts:
            continue
        table, name = view.replica.table, view.replica.name
        insert = staged_view(staging, view.view)
        entry = GetEntry(name, insert, view.parts, (), view.schema_version, view=view.view)
        operations += [
            fx.Check(layout.host(view.replica), view.epoch),
            fx.Check(layout.open_log(table), fx.ANY_VERSION),
            fx.Create(layout.log_create(table), encode_entry(entry), sequential=True),
        ]
    return tuple(operations)


def read_filling(backfill: Backfill) -> fx.Procedure[Filling | fx.Duplicate | fx.NotInserted]:
    """Look whether a view is to be filled; otherwise return the answer to its client."""
    views = yield from read_views(backfill.source)
    view = next((each for each in views.value.views if each.id == backfill.view), None)
    if view is None:
        return fx.NotInserted("the materialised view was dropped meanwhile: there is nothing to fill", fx.Why.REQUEST)
    return fx.Duplicate(None) if view.is_filled else Filling(backfill.source, views, backfill.view)


def fill_without_rows(replica: Replica, epoch: fx.Epoch, backfill: Backfill) -> fx.Procedure[bool]:
    """Mark a view as filled whose source had no rows for it; False when that is not certain (look again).

    Parameters
    ----------
    replica, epoch
        A replica of the source, and the epoch under which it is active.
    """
    for _ in range(TRIES_MAX):
        filling = yield from read_filling(backfill)
        if not isinstance(filling, Filling):
            return True
        committed = yield fx.Commit(fx.Check(layout.host(replica), epoch), filling.fills())
        if isinstance(committed, fx.Applied):
            return True
        if isinstance(committed, fx.Unknown) or committed.operation != filling.fills():
            return False
    return False
