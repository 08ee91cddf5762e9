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
from replitree.protocol.core.views import Views, ViewValue, views_at
from replitree.protocol.sharded.places import is_shard_name, shard_number, sharded_name
from replitree.protocol.sharded.views import open_backfills_of

BACKFILL_S = 600.0
"""How long a backfill may take, in seconds."""


class MaterialisedView(msgspec.Struct, frozen=True, kw_only=True):
    """A materialised view, which writes to its target in the commit of every insert into its source.

    Attributes
    ----------
    name, source, target
        Its name, the table whose inserts it sees, and the table that it writes to.
    select
        For each selected column of the target, the SQL of its value.
    where, group_by
        The condition for rows of the source (empty: all rows), and the columns of the target by which it groups.
    is_filled
        False while its backfill is open: the rows that the source had before the view are not in the target yet.
    id
        The id of the command that created it.
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
    """The result of a backfill.

    Attributes
    ----------
    outcome
        "inserted", or "duplicate" when there was nothing left to do.
    rows
        How many rows it has inserted into the target.
    index
        The index of its entry in the target's log; None when it inserted no rows, or that is not known.
    """

    outcome: str
    rows: int
    index: int | None = None


def read_known(table: TablePlace) -> fx.Procedure[Views]:
    """Read the views of a table as they are now."""
    yield fx.Sync(layout.views(table))
    return views_at(table, (yield fx.Get(layout.views(table))))


def open_backfills(catalog: Catalog, name: str) -> tuple[str, ...]:
    """Return the names of those views of a table whose earlier rows are not in their target yet.

    Of the shards of a table the first one tells.
    """
    if is_shard_name(name):
        viewed, names = catalog.run(open_backfills_of(layout.sharded(catalog.root, sharded_name(name))))
        return names if viewed is not None and viewed.map.shards[0] == shard_number(name) else ()
    views = catalog.run(read_known(catalog.place(name)))
    return tuple(view.name for view in views.value.views if not view.is_filled)


def groups_of(group_by: str | Sequence[str]) -> list[str]:
    """Return the columns that make groups, as a list or with commas between them."""
    groups = [each.strip() for each in group_by.split(",")] if isinstance(group_by, str) else list(group_by)
    return [each for each in groups if each]


def selected_by(select: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Return for each column of a target the SQL of its value; a list takes columns as they are."""
    return dict(select) if isinstance(select, Mapping) else {column: column for column in select}


def listed_view(source: str, view: ViewValue, *, is_filled: bool) -> MaterialisedView:
    """Return a view of the table `source` as its users see it."""
    from replitree.storage.sql.view import decode_view

    command = decode_view(view.command)
    return MaterialisedView(
        name=view.name,
        source=source,
        target=view.target,
        select=dict(command.select),
        where=command.where,
        group_by=command.group_by,
        is_filled=is_filled,
        id=view.id,
    )


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
            For each column of the target, the SQL of its value: an expression over this table's columns, or with `group_by`
            ``sum(x)``, ``count(*)``, ``count(x)``, ``min(x)`` or ``max(x)``.  A list of names takes columns as they are.
        where
            The condition for rows of this table, as in a mutation; empty: all rows.
        group_by
            Selected columns of the target by which the rows of one insert are grouped; none: each row gives one row.
        backfill
            True: also insert what the view makes of the rows that this table has, before this returns.  If that is interrupted,
            `backfill_view` goes on.
        command_id
            The id of an earlier try, 1 to 64 letters, digits, ``-`` and ``_``: with the same id no second view is created.
        timeout_s
            How long to wait for the creation, and again for the backfill, in seconds.

        Returns
        -------
        CommandResult
            Its `index` is where the view begins: it sees the inserts above it.

        Raises
        ------
        BadInput
            The view can't be read, or these tables can't have it; the message says what to use instead.
        TableNotFound
            There is no such target.
        Unavailable
            No active replica has both tables; there is no view.
        OutcomeUnknown
            There may be a view; the error's token is its id.
        """
        # A name that no table has is an error of the caller, and not of the replicas that lack it.
        self._catalog.definition(target)
        body = {
            "name": name,
            "target": target,
            "select": selected_by(select),
            "where": where,
            "group_by": groups_of(group_by),
            "backfill": backfill,
        }
        result = self._command("views", body, command_id, min(timeout_s, COMMAND_S))
        if backfill:
            self.backfill_view(name, timeout_s=timeout_s)
        return result

    def views(self) -> tuple[MaterialisedView, ...]:
        """Return the materialised views of this table, in the order of their creation.

        Raises
        ------
        TableNotFound
            The table was dropped.
        """
        found = self._catalog.run(read_known(self._catalog.place(self.name)))
        views = tuple(listed_view(self.name, each, is_filled=each.is_filled) for each in found.value.views)
        return self._catalog.of_table(self.name, views)

    def backfill_view(self, name: str, *, timeout_s: float = BACKFILL_S) -> Backfilled:
        """Insert what a view makes of the rows that its source had before it, unless that was done: they are inserted once.

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
            The replicas no longer have the version at which the view begins.
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
        """Drop a materialised view: later inserts go without it, and its rows stay in the target.

        Parameters
        ----------
        name
            The view.
        command_id
            The id of an earlier try: with the same id the answer is the result of that one.
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
