"""Create and drop a materialised view.

A view begins with an entry `view` in the log of its source, at an index c, and ends with another one.  Each is in one commit
with the node ``views`` of the source, whose version every insert into the source checks.  So every insert is either below c,
and no view has seen it, or above c, and in one commit with the view's rows (`protocol.insert.views`).

What the commit of a creation proves besides:

=====================================================  ========================================================================
operation                                              why
=====================================================  ========================================================================
``columns`` of both tables, at the versions read       what was checked of the view holds for the columns as they are (V3)
``views`` of the target, at the version read           the target has no views of its own, and knows of this one from here on
delete and create ``quorum/status`` of the source      no insert is open: its rows would count later, and no view would see them
=====================================================  ========================================================================

The first view of a table, and the first that writes to it, also set the mark of the open parent (inserts and alters that know
of no views are refused by it) and raise the format of the node ``log`` (a replica of an earlier version can't join).

A view that writes to a table stands in the node ``views`` of that table, too: it can't get views of its own, its columns that
the view writes can't be dropped, and the table can't be dropped.  What a restore has forgotten does not count (`standing`).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import ViewEntry
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import encode_log, log_start
from replitree.protocol.core.views import VIEWS_MAX, Feeding, Views, ViewsValue, ViewValue, encode_views, views_at
from replitree.protocol.propose.propose import (
    COLUMNS_CHANGED,
    VIEWS_CHANGED,
    Forgotten,
    NotProposed,
    ProposeOutcome,
    Proposer,
    find_command,
    propose,
)

TRIES_MAX = 8
"""How often a change of views is tried while others change the same nodes."""

OPEN_INSERTS = "inserts into the table wait for their quorum: try again when they have ended"


@dataclass(frozen=True, slots=True)
class NewView:
    """A view that is to be created.

    Attributes
    ----------
    id
        Of the command.
    name, command
        As of `ViewValue`.
    target
        The table that it writes to.
    source_columns, target_columns
        Versions of the nodes ``columns`` that the view was checked against.
    is_filled
        Whether the rows that the source has already are not to come.
    """

    id: fx.EntryId
    name: str
    command: str
    target: TablePlace
    source_columns: fx.Version
    target_columns: fx.Version
    is_filled: bool = False


@dataclass(frozen=True, slots=True)
class _Table:
    """What is read of a table whose views change."""

    place: TablePlace
    views: Views
    log: fx.Node | None

    def put(self, value: ViewsValue) -> tuple[fx.Operation, ...]:
        """Return what changes the views of the table; the first change also raises its format and sets its mark."""
        path = layout.views(self.place)
        if self.views.version is not None:
            return (fx.Set(path, encode_views(value), self.views.version),)
        assert self.log is not None
        start = log_start(self.place, self.log)
        return (
            fx.Create(path, encode_views(value)),
            fx.Set(layout.open_log(self.place), b"", 0),
            fx.Set(layout.log(self.place), encode_log(self.place, start.first, has_views=True), start.version),
        )


def create_view(proposer: Proposer, epoch: fx.Epoch, view: NewView) -> fx.Procedure[ProposeOutcome]:
    """Create a view of the proposer's table; its index is where the view begins.

    Parameters
    ----------
    proposer, epoch
        As of `propose`.
    view
        What is created; when the command with its id is in the log already, that one is the answer.
    """
    source = proposer.replica.table
    refused: fx.Refused | None = None
    for _ in range(TRIES_MAX):
        # A repeated command finds its own view: it must not hear that the name is taken.
        known = yield from find_command(source, view.id)
        if known is not None:
            return known
        tables = yield from _read(source, view.target)
        problem = _problem(tables, view) or (yield from _problem_of_chain(tables, source))
        if problem or tables is None:
            return NotProposed(problem or f"there is no table {view.target.name} any more")
        ours, theirs = tables
        value = ViewValue(view.id, view.name, view.target.name, view.target.incarnation, view.command, view.is_filled)
        feeding = Feeding(view.id, source.name, source.incarnation)
        statuses = layout.quorum_statuses(source)
        # Refused as long as the node has children.
        no_quorum = fx.Delete(statuses, fx.ANY_VERSION)
        checked = (
            fx.Check(layout.columns(source), view.source_columns),
            fx.Check(layout.columns(view.target), view.target_columns),
        )
        operations: tuple[fx.Operation, ...] = (
            *checked,
            *ours.put(msgspec.structs.replace(ours.views.value, views=(*ours.views.value.views, value))),
            *theirs.put(msgspec.structs.replace(theirs.views.value, feeding=(*theirs.views.value.feeding, feeding))),
            no_quorum,
            fx.Create(statuses),
        )
        entry = ViewEntry(proposer.replica.name, view.id, view.name, view.target.name, command=view.command)
        outcome = yield from propose(proposer, epoch, entry, storage=operations)
        if not isinstance(outcome, NotProposed) or outcome.refused is None:
            return outcome
        if outcome.refused.operation == no_quorum:
            return NotProposed(OPEN_INSERTS, outcome.refused)
        refused = outcome.refused
        if refused.operation in checked:
            return NotProposed(COLUMNS_CHANGED, refused)
    return NotProposed(VIEWS_CHANGED, refused)


def drop_view(proposer: Proposer, epoch: fx.Epoch, command: fx.EntryId, name: str) -> fx.Procedure[ProposeOutcome]:
    """Drop a view of the proposer's table: the rows that it has written stay.  Parameters as of `create_view`."""
    source = proposer.replica.table
    refused: fx.Refused | None = None
    for _ in range(TRIES_MAX):
        known = yield from find_command(source, command)
        if known is not None:
            return known
        yield fx.Sync(layout.views(source))
        views = views_at(source, (yield fx.Get(layout.views(source))))
        view = views.named(name)
        if view is None:
            return NotProposed(no_view(source, views, name))
        left = msgspec.structs.replace(
            views.value, views=tuple(each for each in views.value.views if each.id != view.id)
        )
        operations = (
            *_Table(source, views, None).put(left),
            *(yield from _forget(layout.beside(source, view.target, view.incarnation), view.id)),
        )
        entry = ViewEntry(proposer.replica.name, command, name, view.target)
        outcome = yield from propose(proposer, epoch, entry, storage=operations)
        if not isinstance(outcome, NotProposed) or outcome.refused is None:
            return outcome
        refused = outcome.refused
    return NotProposed(VIEWS_CHANGED, refused)


def no_view(table: TablePlace, views: Views, name: str) -> str:
    """Return what is said of a view that a table does not have."""
    known = ", ".join(each.name for each in views.value.views) or "none"
    return f"table {table.name} has no materialised view {name!r}; it has {known}"


def standing(table: TablePlace, views: Views) -> fx.Procedure[tuple[Feeding, ...]]:
    """Return those views of other tables that write to a table, without those that a drop or a restore has forgotten."""
    found = list[Feeding]()
    for feeding in views.value.feeding:
        source = layout.beside(table, feeding.source, feeding.incarnation)
        own, node = (yield fx.GetMany((source.path, layout.views(source)))).nodes
        if own is None or node is None or layout.table_at(source.path, own) != source:
            continue
        if any(each.id == feeding.id for each in views_at(source, node).value.views):
            found.append(feeding)
    return tuple(found)


def why_kept(table: TablePlace) -> fx.Procedure[str]:
    """Return why a table can't be dropped, for an operator; empty: no materialised view needs it."""
    yield fx.Sync(layout.views(table))
    views = views_at(table, (yield fx.Get(layout.views(table))))
    if views.value.views:
        names = ", ".join(each.name for each in views.value.views)
        return f"table {table.name} has materialised views ({names}): drop them first (replitree view drop)"
    sources = sorted({each.source for each in (yield from standing(table, views))})
    if not sources:
        return ""
    return (
        f"table {table.name} is the target of materialised views of {', '.join(sources)}, and every insert there would fail:"
        " drop these views first (replitree view drop)"
    )


def _read(source: TablePlace, target: TablePlace) -> fx.Procedure[tuple[_Table, _Table] | None]:
    """Read what the tables of a view are; None: there is no such target."""
    yield fx.Sync(layout.views(target))
    paths = (layout.views(source), layout.log(source), target.path, layout.views(target), layout.log(target))
    our_views, our_log, own, their_views, their_log = (yield fx.GetMany(paths)).nodes
    marks = yield fx.Children(layout.open_logs(target))
    if own is None or our_log is None or their_log is None or not marks or layout.table_at(target.path, own) != target:
        return None
    place = target.below(max(map(layout.parent_named, marks)))
    return _Table(source, views_at(source, our_views), our_log), _Table(place, views_at(target, their_views), their_log)


def _problem(tables: tuple[_Table, _Table] | None, view: NewView) -> str:
    """Return why a view can't be created; empty: it can, as far as this tells."""
    if tables is None:
        return f"there is no table {view.target.name}, or it is another one by now"
    ours, theirs = tables
    if ours.place.path == theirs.place.path:
        return "a materialised view can't write to its own source"
    if not ours.place.incarnation or not theirs.place.incarnation:
        return "a table that an early version of replitree has created can have no materialised views: create it anew"
    if ours.views.named(view.name) is not None:
        return f"table {ours.place.name} has a materialised view {view.name!r} already"
    if len(ours.views.value.views) >= VIEWS_MAX:
        return f"table {ours.place.name} has {VIEWS_MAX} materialised views, and can't have more"
    if theirs.views.value.views:
        return f"{theirs.place.name} has materialised views itself, and views of views are not there yet"
    return ""


def _problem_of_chain(tables: tuple[_Table, _Table] | None, source: TablePlace) -> fx.Procedure[str]:
    if tables is None or not (yield from standing(source, tables[0].views)):
        return ""
    return f"{source.name} is the target of a materialised view, and views of views are not there yet"


def _forget(target: TablePlace, view: fx.EntryId) -> fx.Procedure[tuple[fx.Operation, ...]]:
    """Return what takes a view out of the node of its target, if that table is there still."""
    own, node = (yield fx.GetMany((target.path, layout.views(target)))).nodes
    if own is None or node is None or layout.table_at(target.path, own) != target:
        return ()
    views = views_at(target, node)
    left = tuple(each for each in views.value.feeding if each.id != view)
    return _Table(target, views, None).put(msgspec.structs.replace(views.value, feeding=left))


__all__ = ["Forgotten", "NewView", "create_view", "drop_view", "no_view", "standing", "why_kept"]
