"""Materialised views of a table: create, list, fill and drop them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec

from replitree.client.arguments import check_arguments
from replitree.client.change.changing import ChangingTable
from replitree.client.change.command import COMMAND_S, CommandResult
from replitree.client.transport.catalog import Catalog
from replitree.errors import BadInput
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.views import Views, views_at

BACKFILL_S = 600.0
"""How long a backfill may take, in seconds."""


class MaterialisedView(msgspec.Struct, frozen=True, kw_only=True):
    """A materialised view: what it makes of every insert into its source, in the same commit.

    Attributes
    ----------
    name, source, target
        Its name, the table whose inserts it sees, and the table that it writes to.
    select
        SQL of its value, by column of the target.
    where, group_by
        Which rows, empty: all; and the columns of the target that make groups.
    is_filled
        Whether the rows from before the view are in the target, or were never to come.
    id
        Of the command that created it.
    """

    name: str
    source: str
    target: str
    select: dict[str, str]
    where: str
    group_by: tuple[str, ...]
    is_filled: bool
    id: str


class Backfilled(msgspec.Struct, frozen=True):
    """What became of a backfill.

    Attributes
    ----------
    outcome
        "inserted", or "duplicate" when it was done before.
    rows
        How many rows it has inserted into the target.
    index
        Of its entry in the target's log, if it has one and that is known.
    """

    outcome: str
    rows: int
    index: int | None = None


def read_known(table: TablePlace) -> fx.Procedure[Views]:
    """Read the views of a table as they are now."""
    yield fx.Sync(layout.views(table))
    return views_at(table, (yield fx.Get(layout.views(table))))


def open_backfills(catalog: Catalog, name: str) -> tuple[str, ...]:
    """Return the names of those views of a table whose earlier rows are not in their target yet."""
    views = catalog.run(read_known(catalog.place(name)))
    return tuple(view.name for view in views.value.views if not view.is_filled)


@check_arguments
class TableViews(ChangingTable):
    """The part of a `replitree.client.table.Table` that has materialised views."""

    _catalog: Catalog

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
        name
            A letter, then letters, digits and ``_``.
        target
            A table of this cluster; the replicas that take inserts must have both tables.
        select
            SQL of its value, by column of the target: expressions over this table's columns, and with `group_by` ``sum(x)``,
            ``count(*)``, ``count(x)``, ``min(x)`` or ``max(x)``.  A list of names takes columns as they are.
        where
            Which rows, as in a mutation; empty: all.
        group_by
            Columns of the target that make groups within one insert; none: each row stays a row.
        backfill
            Whether the rows that this table has already are inserted into the target, too, before this returns.  If that is cut
            off, `backfill_view` goes on.
        command_id
            Of an earlier try, 1 to 64 letters, digits, ``-`` and ``_``; with the same id nothing is created twice.
        timeout_s
            How long to wait for the creation, and again for the backfill, in seconds.

        Returns
        -------
        CommandResult
            Its `index` is where the view begins: it sees the inserts above it.

        Raises
        ------
        BadInput
            The view can't be read, or these tables can't have it; says what to use instead.
        TableNotFound
            There is no such target.
        Unavailable
            No replica has both tables and takes it; there is no view.
        OutcomeUnknown
            There may be a view; the error's token is its id.
        """
        chosen = dict(select) if isinstance(select, Mapping) else {column: column for column in select}
        groups = [each.strip() for each in group_by.split(",")] if isinstance(group_by, str) else list(group_by)
        # A name that no table has is an error of the caller, and not of the replicas that lack it.
        self._catalog.definition(target)
        body = {
            "name": name,
            "target": target,
            "select": chosen,
            "where": where,
            "group_by": [each for each in groups if each],
            "backfill": backfill,
        }
        result = self._command("views", body, command_id, min(timeout_s, COMMAND_S))
        if backfill:
            self.backfill_view(name, timeout_s=timeout_s)
        return result

    def views(self) -> tuple[MaterialisedView, ...]:
        """Return the materialised views of this table, in the order of their creation."""
        from replitree.storage.sql.view import decode_view

        found = self._catalog.run(read_known(self._catalog.place(self.name)))
        commands = ((each, decode_view(each.command)) for each in found.value.views)
        views = tuple(
            MaterialisedView(
                name=each.name,
                source=self.name,
                target=each.target,
                select=dict(command.select),
                where=command.where,
                group_by=command.group_by,
                is_filled=each.is_filled,
                id=each.id,
            )
            for each, command in commands
        )
        return self._catalog.of_table(self.name, views)

    def backfill_view(self, name: str, *, timeout_s: float = BACKFILL_S) -> Backfilled:
        """Insert the rows from before a view into its target, unless that was done: however often, they come once.

        Parameters
        ----------
        name
            The view.
        timeout_s
            How long a replica may take, in seconds.

        Raises
        ------
        BadInput
            There is no such view, or it has no value for a row.
        SnapshotExpired
            The version at which the view begins is gone.
        Unavailable
            No replica of both tables does it now; try again.
        OutcomeUnknown
            The rows may be in the target; try again.
        """
        self._known_view(name)
        return self._commander.ask(
            "POST", f"views/{quote(name, safe='')}/backfill", Backfilled, {}, timeout_s=timeout_s
        )[1]

    def drop_view(self, name: str, *, command_id: str | None = None, timeout_s: float = COMMAND_S) -> CommandResult:
        """Drop a materialised view: inserts go on without it, and what it has written stays in the target.

        Parameters
        ----------
        name
            The view.
        command_id
            Of an earlier try.
        timeout_s
            How long to wait for a replica, in seconds.

        Raises
        ------
        BadInput
            There is no such view.
        Unavailable
            No replica takes it; the view stays.
        OutcomeUnknown
            It may be dropped; the error's token is the command's id.
        """
        if command_id is None:
            self._known_view(name)
        return self._command(f"views/{quote(name, safe='')}/drop", {}, command_id, timeout_s)

    def _known_view(self, name: str) -> None:
        known = [each.name for each in self.views()]
        if name not in known:
            raise BadInput(f"table {self.name} has no materialised view {name!r}; it has {', '.join(known) or 'none'}")
