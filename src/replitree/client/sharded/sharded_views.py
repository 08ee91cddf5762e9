"""The part of a sharded table that has materialised views: create, list, fill and drop them.

Views are nodes of coordination, which the client changes by itself (`replitree.protocol.sharded.views`).  The client that
inserts computes them (`replitree.client.sharded.insert.joint`).

A backfill reads the source at the cut at which the view begins, and inserts what the view makes of it into the target, by one
insert that also marks the view as filled.  A tag keeps that cut until then.  Any client can continue a backfill that was cut
off.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from typing_extensions import override

from replitree.client.arguments import check_arguments
from replitree.client.change.command import COMMAND_S, CommandResult, check_id
from replitree.client.change.views import BACKFILL_S, Backfilled, MaterialisedView, groups_of, listed_view, selected_by
from replitree.client.sharded.cut_times import ensemble_id
from replitree.client.sharded.sharded_catalog import find_sharded, read_map, sharded
from replitree.client.table import Table
from replitree.errors import BadInput, OutcomeUnknown, Unavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.stamps import Zxid
from replitree.protocol.sharded.cut import Cut
from replitree.protocol.sharded.views import (
    NewShardedView,
    ViewBeginning,
    ViewChange,
    ViewRefused,
    create_sharded_view,
    drop_sharded_view,
    fill_sharded_without_rows,
    open_backfills_of,
    read_beginning,
    read_viewed,
)
from replitree.wire.prepared_share import FilledView

if TYPE_CHECKING:
    import pyarrow as pa

    from replitree.client.sharded.insert.joint import JointInserter
    from replitree.protocol.core.views import ViewValue
    from replitree.storage.schema.definition import TableDefinition

CREATES_MAX = 10
"""Tries of a creation while others change the columns at the same time."""


@check_arguments
class ShardedViewsTable(Table):
    """The part of a `replitree.client.sharded.sharded_table.ShardedTable` that has materialised views."""

    @abstractmethod
    def inserter_into(self, name: str) -> JointInserter:
        """Return what inserts into another sharded table, with its columns as they are now."""

    @override
    def create_view(
        self,
        name: str,
        target: str,
        select: Mapping[str, str] | Sequence[str],
        *,
        where: str = "",
        group_by: str | Sequence[str] = (),
        backfill: bool = True,
        command_id: str | None = None,
        timeout_s: float = BACKFILL_S,
    ) -> CommandResult:
        """Create a materialised view: from here on every insert into this table writes to the target, too, or fails.

        Parameters
        ----------
        name, select, where, group_by, backfill, command_id, timeout_s
            As of `Table.create_view`.
        target
            A sharded table of this cluster, of whatever shards and shard key.

        Returns
        -------
        CommandResult
            Its `index` is the number of the transaction that has created the view: it sees the inserts above it.

        Raises
        ------
        BadInput
            The view can't be read, or these tables can't have it; the message says what to use instead.
        TableNotFound
            There is no such target.
        Unavailable
            Others change the tables all the time; there is no view.
        OutcomeUnknown
            There may be a view; the error's token is its id.
        """
        from replitree.storage.sql.view import check_view_name, new_view

        known_as, place = fx.EntryId(check_id(command_id)), self._views_place
        check_view_name(name)
        for _ in range(CREATES_MAX):
            source, into = self.refresh(), self._target(target)
            view = new_view(selected_by(select), where, groups_of(group_by), source, into)
            new = NewShardedView(
                known_as,
                name,
                view.command.encode(),
                place,
                layout.sharded(self._catalog.root, target),
                # Each change of the columns writes the node once.
                fx.Version(source.schema_version - 1),
                fx.Version(into.schema_version - 1),
                not backfill,
            )
            became = self._catalog.run(create_sharded_view(new))
            if became is not ViewChange.COLUMNS:
                break
        else:
            raise Unavailable("others change the columns all the time; nothing was changed, try again")
        self._check_became(became, known_as, BadInput)
        beginning = self._catalog.run(read_beginning(place, known_as))
        if beginning is None:
            raise BadInput(
                f"materialised view {name} of {self.name} was created, and dropped by another client a moment later"
            )
        if backfill:
            self.backfill_view(name, timeout_s=timeout_s)
        return _result(known_as, beginning.at)

    @override
    def views(self) -> tuple[MaterialisedView, ...]:
        """Return the materialised views of this table, in the order of their creation.

        Raises
        ------
        TableNotFound
            The table was dropped.
        """
        _, open_views = self._catalog.run(open_backfills_of(self._views_place))
        return tuple(listed_view(self.name, each, is_filled=each.name not in open_views) for each in self._read_views())

    @override
    def backfill_view(self, name: str, *, timeout_s: float = BACKFILL_S) -> Backfilled:
        """Insert what a view makes of the rows that its source had before it, unless that was done: they are inserted once.

        Parameters
        ----------
        name
            The view.
        timeout_s
            How long each shard, and the insert, may take, in seconds.

        Raises
        ------
        BadInput
            There is no such view, or it has no value for a row.
        SnapshotExpired
            The replicas no longer have the cut at which the view begins.
        Unavailable
            A shard does not answer now; try again.
        OutcomeUnknown
            The rows may be in the target; try again.
        """
        view = self._known_sharded_view(name)
        beginning = self._beginning(view)
        if beginning is None or not beginning.is_open:
            return Backfilled("duplicate", 0)
        cut, deadline = Cut(ensemble_id(self._catalog), beginning.at), time.monotonic() + timeout_s
        # A tag that is there keeps the cut already.
        if all(each.name != _tag(view) for each in self.tags()):
            self.tag(_tag(view), str(cut), command_id=f"{view.id[:50]}-tag", timeout_s=timeout_s)
        rows = self._viewed_rows(view, cut, timeout_s)
        left = max(1.0, deadline - time.monotonic())
        if rows.num_rows:
            target = self.inserter_into(view.target)
            try:
                outcome = target.fill(rows, FilledView(self.name, view.id), f"view-{view.id}", left).outcome
            except BadInput:
                now = self._beginning(view)
                if now is not None and now.is_open:
                    raise
                outcome = "duplicate"
        else:
            outcome = "inserted"
            marked = self._catalog.run(fill_sharded_without_rows(self._views_place, view.id))
            if marked is not ViewChange.DONE:
                raise OutcomeUnknown("the view may be marked as filled; try again", view.id)
        self._forget(view)
        return Backfilled(outcome, rows.num_rows if outcome == "inserted" else 0)

    @override
    def drop_view(self, name: str, *, command_id: str | None = None, timeout_s: float = COMMAND_S) -> CommandResult:
        """Drop a materialised view: later inserts go without it, and its rows stay in the target.

        Parameters
        ----------
        name
            The view.
        command_id
            The id of an earlier try: then a view that is not there has been dropped by it.
        timeout_s
            Unused: coordination answers at once.

        Raises
        ------
        BadInput
            There is no such view.
        Unavailable
            Others change the tables all the time; the view stays.
        OutcomeUnknown
            It may be dropped; the error's token is the command's id.
        """
        del timeout_s
        known_as = fx.EntryId(check_id(command_id))
        if command_id is not None and all(each.name != name for each in self._read_views()):
            return _result(known_as, read_map(self._catalog, self.name).changed)
        view = self._known_sharded_view(name)
        became = self._catalog.run(drop_sharded_view(self._views_place, view.id))
        self._check_became(became, known_as, Unavailable)
        # A backfill that was cut off has left it.
        self._forget(view)
        return _result(known_as, read_map(self._catalog, self.name).changed)

    # --- nodes --------------------------------------------------------------------------------------------------------

    @property
    def _views_place(self) -> str:
        return layout.sharded(self._catalog.root, self.name)

    def _read_views(self) -> tuple[ViewValue, ...]:
        found = self._catalog.run(read_viewed(self._views_place))
        if found is None:
            # A table that is there, and whose map changes all the time, is found by the next look.
            sharded(self._catalog, self.name)
            raise Unavailable(f"the map of table {self.name!r} changes all the time; try again")
        return found.views.value.views

    def _known_sharded_view(self, name: str) -> ViewValue:
        views = self._read_views()
        for each in views:
            if each.name == name:
                return each
        known = ", ".join(each.name for each in views) or "none"
        raise BadInput(f"table {self.name} has no materialised view {name!r}; it has {known}")

    def _beginning(self, view: ViewValue) -> ViewBeginning | None:
        return self._catalog.run(read_beginning(self._views_place, view.id))

    def _target(self, name: str) -> TableDefinition:
        found = find_sharded(self._catalog, name)
        if found is not None:
            return found.definition
        # A table that does not exist is an error of its own.
        self._catalog.definition(name)
        raise BadInput(
            f"table {name!r} is not sharded, and a materialised view of a sharded table writes to a sharded one: create the"
            " target with shard_by, of one shard if it is to be small"
        )

    @staticmethod
    def _check_became(
        became: ViewChange | ViewRefused, known_as: fx.EntryId, refused: type[BadInput | Unavailable]
    ) -> None:
        if isinstance(became, ViewRefused):
            raise refused(became.reason)
        if became is not ViewChange.DONE:
            raise OutcomeUnknown("whether the views were changed is not known; repeat it with the same id", known_as)

    # --- the rows from before -----------------------------------------------------------------------------------------

    def _forget(self, view: ViewValue) -> None:
        """Delete the tag of a view; there is none where another client has deleted it."""
        with suppress(BadInput):
            self.delete_tag(_tag(view))

    def _viewed_rows(self, view: ViewValue, cut: Cut, timeout_s: float) -> pa.Table:
        """Compute a view of what the source has at a cut, some rows at a time."""
        import pyarrow as pa

        from replitree.storage.sql.view import check_view, decode_view

        target = self.inserter_into(view.target).definition
        with self.snapshot(as_of=str(cut), timeout_s=timeout_s, lease_s=BACKFILL_S) as snapshot:
            checked = check_view(decode_view(view.command), snapshot.definition, target)
            made = [checked.rows(pa.Table.from_batches([batch])) for batch in snapshot.batches()]
        return checked.regrouped(pa.concat_tables(made)) if made else target.arrow_schema.empty_table()


def _tag(view: ViewValue) -> str:
    return f"view-{view.id}"


def _result(known_as: fx.EntryId, at: Zxid) -> CommandResult:
    return CommandResult(known_as, int(at), applied=True, finished=True)
