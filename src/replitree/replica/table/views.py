"""The materialised views of a table at one replica: create and drop them, and fill one with the rows from before it.

A backfill reads the version of the source at which the view begins, and inserts what the view makes of it into the target.  A
tag keeps that version's parts until it is done.  Any replica of both tables can do it, and go on where another one has stopped:
the view says whether it is filled, and that is written in the commit of the insert (`replitree.protocol.insert.views`).
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from replitree.errors import (
    BadInput,
    OutcomeUnknown,
    ReadOnly,
    ReplicaUnavailable,
    ReplitreeError,
    SnapshotExpired,
    TableNotFound,
    Unavailable,
)
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.views import VIEWS_MAX, Views, ViewValue, views_at
from replitree.protocol.insert.views import Backfill, backfill_token, backfill_version, read_views
from replitree.protocol.program.commands import accept_drop, accept_view, mark_filled
from replitree.protocol.program.stages import Accepted, End, Stage, Then
from replitree.protocol.propose.propose import COLUMNS_CHANGED, Proposed, find_command
from replitree.protocol.propose.views import NewView, no_view, standing
from replitree.protocol.sharded.places import is_shard_name
from replitree.protocol.upkeep.tags import read_tags
from replitree.replica.insert.inserts import result_of
from replitree.replica.kit.old_parts import LEASE_S_MAX
from replitree.replica.perform.appending import append_command
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.table.snapshots import Snapshots
from replitree.replica.table.tagging import Tagging
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.storage_policy import StorageKind

if TYPE_CHECKING:
    import pyarrow as pa

    from replitree.storage.sql.view import CheckedView

CREATES_MAX = 10
"""Tries of a creation while others change the columns at the same time."""

FILL_S = 600.0
"""How long the insert of a backfill may take, in seconds."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class ViewWish:
    """What a client asks of a new view.

    Attributes
    ----------
    name, target
        The view's name, and the table that it writes to.
    select
        SQL of its value, by column of the target.
    where, group_by
        Which rows, empty: all; and the columns of the target that make groups, none: each row stays.
    fills
        Whether the rows that the source has already come, too.
    """

    name: str
    target: str
    select: Mapping[str, str]
    where: str = ""
    group_by: Sequence[str] = ()
    fills: bool = True


def check_change(
    context: TableContext, table: Callable[[str], Any], before: TableDefinition, after: TableDefinition
) -> Views:
    """Refuse a definition that would break a materialised view; return the views that the table has.

    Parameters
    ----------
    context, table
        The table that changes, and what returns other tables of this server.
    before, after
        Its definitions.

    Raises
    ------
    BadInput
        A view reads or writes what goes, or the table would get an object store.
    Unavailable
        This replica does not have the other table of a view.
    """
    from replitree.storage.sql.view import check_readable, check_writable

    place, look_up = context.replica.table, context.performer.look_up
    views = look_up(read_views(place))
    feeding = look_up(standing(place, views))
    if (views.value.views or feeding) and after.placement.kind is not StorageKind.LOCAL:
        raise BadInput(
            f"table {place.name} has materialised views, or is the target of one, so its parts stay on local disks"
        )
    for view in views.value.views:
        try:
            target = table(view.target).definition
        except ReplitreeError as error:
            raise Unavailable(
                f"materialised view {view.name} can't be checked here: {error}; ask another replica"
            ) from error
        check_readable(view, before, after, target)
    for each in feeding:
        source = layout.beside(place, each.source, each.incarnation)
        others = views_at(source, context.performer.perform(fx.Get(layout.views(source))))
        for view in others.value.views:
            if view.id == each.id:
                check_writable(each.source, view.command, before, after)
    return views


class ReplicaViews:
    """The materialised views of one table.

    Parameters
    ----------
    parts, snapshots, tagging
        The parts on this disk, what takes snapshots of them, and what keeps a version.
    table
        Returns a table of this server by its name.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        availability: Availability,
        snapshots: Snapshots,
        tagging: Tagging,
        table: Callable[[str], Any],
    ) -> None:
        self._context = context
        self._parts = parts
        self._availability = availability
        self._snapshots = snapshots
        self._tagging = tagging
        self._table = table

    def create(self, wish: ViewWish, command_id: str | None) -> tuple[fx.EntryId, fx.LogIndex]:
        """Create a view; return its id, and the index at which it begins.

        Raises
        ------
        BadInput
            It can't be read, or these tables can't have it.
        ReadOnly, Unavailable
            There is certainly no view.
        OutcomeUnknown
            There may be a view: repeat it with the same id.
        """
        from replitree.storage.sql.view import check_view_name, new_view

        wanted, context = _id(command_id), self._context
        check_view_name(wish.name)
        if is_shard_name(context.replica.table.name) or is_shard_name(wish.target):
            # The views of a sharded table are those of all its shards, and its client creates them.
            raise BadInput("one shard of a table can have no materialised views, and be the target of none")
        target = self._target(wish.target)
        for _ in range(CREATES_MAX):
            source, columns = context.definitions.read()
            theirs, their_columns = target.definitions.read()
            for each in (source, theirs):
                if each.placement.kind is not StorageKind.LOCAL:
                    raise BadInput(
                        f"table {each.name} has its parts in an object store: it can have no materialised views yet"
                    )
            view = new_view(wish.select, wish.where, wish.group_by, source, theirs)
            if wish.fills and theirs.policy.kind.value == "replacing" and theirs.policy.version is None:
                raise BadInput(
                    f"table {theirs.name} keeps the last inserted row of each key, and rows from before the view would come"
                    " last: give it a version column (replacing(version)), or create the view with backfill=False"
                )
            place = target.context.replica.table
            new = NewView(
                wanted,
                wish.name,
                view.command.encode(),
                TablePlace(place.path, incarnation=place.incarnation),
                columns,
                their_columns,
                not wish.fills,
            )
            try:
                return wanted, self._append(accept_view, wanted, new)
            except _ColumnsChanged:
                continue
            except ReadOnly as refused:
                if self._is_impossible(wish.name, new.target):
                    raise BadInput(str(refused)) from refused
                raise
        raise Unavailable("others change the columns all the time; nothing was changed, try again")

    def drop(self, name: str, command_id: str | None) -> tuple[fx.EntryId, fx.LogIndex]:
        """Drop a view; the rows that it has written stay.  Raises as `create`."""
        wanted, context = _id(command_id), self._context
        table, look_up = context.replica.table, context.performer.look_up
        view = look_up(read_views(table)).named(name)
        try:
            index = self._append(accept_drop, wanted, wanted, name)
        except ReadOnly as refused:
            # `drop_view` has looked for an earlier drop with this id, too.
            if look_up(read_views(table)).named(name) is None:
                raise BadInput(str(refused)) from refused
            raise
        if view is not None:
            # A backfill that was cut off has left it.
            self._tagging.delete(_tag(view))
        return wanted, index

    def created_at(self, name: str) -> fx.LogIndex | None:
        """Return the index at which a view begins that is to be filled; None: it is filled already.

        Raises
        ------
        BadInput
            There is no such view.
        SnapshotExpired
            It began so long ago that its entry is gone, and no tag keeps the version.
        """
        table, look_up = self._context.replica.table, self._context.performer.look_up
        view = self._view(name)
        if view.is_filled:
            return None
        tagged = dict(look_up(read_tags(table)).tags).get(_tag(view))
        if tagged is not None:
            return fx.LogIndex(tagged.index)
        found = look_up(find_command(table, view.id))
        if isinstance(found, Proposed):
            return found.index
        raise SnapshotExpired(
            f"materialised view {name} of {table.name} began so long ago that nothing says when: drop it, delete what it has"
            f" written to {view.target}, and create it again"
        )

    def fill(self, name: str, created: fx.LogIndex) -> dict[str, object]:
        """Insert the rows from before a view into its target, unless that was done; the source's version is here.

        Parameters
        ----------
        created
            The index at which it begins.

        Raises
        ------
        BadInput
            The view has no value for a row, or was dropped.
        SnapshotExpired
            Parts of that version are gone.
        ReadOnly, Unavailable
            Nothing was inserted.
        OutcomeUnknown
            The rows may be in the target; it may be filled again.
        """
        context, view = self._context, self._view(name)
        target = self._target(view.target)
        self._tagging.make(_tag(view), backfill_version(created), fx.EntryId(f"{view.id}-tag"))
        rows = self._rows(view, target.definitions.refresh(), backfill_version(created))
        backfill = Backfill(TablePlace(context.replica.table.path), view.id)
        if rows.num_rows:
            token, answered = backfill_token(view.id, created), threading.Event()
            pending = target.inserts.backfill(rows, token, backfill, lambda _: answered.set())
            if not answered.wait(FILL_S):
                raise OutcomeUnknown("the backfill takes long, and may be in the target; try again", token)
            told = result_of(pending.answer, rows.num_rows, token)
        else:
            self._mark_filled(view, backfill)
            told = {"outcome": "inserted", "index": None, "rows": 0}
        self._tagging.delete(_tag(view))
        return told

    def _is_impossible(self, name: str, target: TablePlace) -> bool:
        """Whether every replica refuses a new view, until another view is dropped; `create_view` has said why."""
        source, look_up = self._context.replica.table, self._context.performer.look_up
        ours, theirs = look_up(read_views(source)), look_up(read_views(target))
        return bool(
            source.path == target.path
            or not (source.incarnation and target.incarnation)
            or ours.named(name) is not None
            or len(ours.value.views) >= VIEWS_MAX
            or theirs.value.views
            or look_up(standing(source, ours))
        )

    def _mark_filled(self, view: ViewValue, backfill: Backfill) -> None:
        context, epoch = self._context, self._availability.epoch()
        accepted = Accepted(context.identity.encode(), epoch, context.progress.pointer, fx.StagingId(""))
        asked = Then(mark_filled, (context.replica, fx.RequestId(0), backfill))
        ended = Driver(context.performer, lambda _: accepted).run(asked)
        assert isinstance(ended, End), "a view is marked in one stage"
        if ended.outcome is not True:
            raise OutcomeUnknown("the view may be marked as filled; try again", view.id)

    def _rows(self, view: ViewValue, target: TableDefinition, version: fx.LogIndex) -> pa.Table:
        """Compute a view of a version of the source."""
        import pyarrow as pa

        from replitree.storage.parts.verified import CheckedPart
        from replitree.storage.rewrite.read import read_batches
        from replitree.storage.sql.view import check_view, decode_view

        taken = self._snapshots.take(version, LEASE_S_MAX)
        assert taken.lease is not None, "a lease was asked for"
        try:
            checked: CheckedView = check_view(decode_view(view.command), self._context.definitions.refresh(), target)
            store = self._parts.store
            parts = [CheckedPart(store.part_path(part), store.manifest(part)) for part in taken.parts]
            made = [checked.rows(pa.Table.from_batches([batch])) for batch in read_batches(parts, checked.source)]
            return checked.regrouped(pa.concat_tables(made)) if made else target.arrow_schema.empty_table()
        finally:
            self._parts.old_parts.release(taken.lease)

    def _target(self, name: str) -> Any:
        try:
            return self._table(name)
        except TableNotFound as error:
            raise ReplicaUnavailable(f"{error}; a materialised view needs a replica of both tables") from error

    def _view(self, name: str) -> ViewValue:
        table = self._context.replica.table
        views = self._context.performer.look_up(read_views(table))
        view = views.named(name)
        if view is None:
            raise BadInput(no_view(table, views, name))
        return view

    def _append(self, stage: Callable[..., Stage], command: fx.EntryId, *asked: object) -> fx.LogIndex:
        """Append the entry of a view's begin or end, and return its index."""
        match append_command(self._context, self._availability, stage, command, asked):
            case fx.Inserted(index):
                return index
            case fx.NotInserted(reason) if reason == COLUMNS_CHANGED:
                raise _ColumnsChanged(reason)
            case fx.NotInserted(reason):
                raise ReadOnly(f"nothing was changed: {reason}")


class _ColumnsChanged(Unavailable):
    """The columns are others than those that a view was checked against."""


def _tag(view: ViewValue) -> str:
    return f"view-{view.id}"


def _id(given: str | None) -> fx.EntryId:
    if given is not None and not _ID.fullmatch(given):
        raise BadInput("a view's id has 1 to 64 letters, digits, - and _, a letter or digit first")
    return fx.EntryId(secrets.token_hex(16) if given is None else given)


__all__ = ["ReplicaViews", "ViewWish", "check_change"]
