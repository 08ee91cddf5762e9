"""Materialised views of a sharded table: an insert into it writes to their targets, which are sharded too, in the same commit.

The views of a table, and those that write to it, stand in the node ``views`` of the sharded table.  Each change of them is one
commit with the maps of both tables::

    create   Check(life of both), Check(columns of both @ version), Set(map of both @ version),
             Create or Set(views of both), Create(views/<id> of the source)
    drop     Check(life of both), Set(map of both @ version), Set(views of both @ version), Delete(views/<id>)

Every insert into a sharded table checks the version of the map by which its rows were split (`protocol.sharded.joint_insert`).
So an insert has exactly the views that the table has when it commits: otherwise its client hears that the map has changed,
reads map and views again, and computes and splits anew.  Nothing else has to be checked, and an insert into a table without
views pays nothing.  A map with views has a newer format: a writer that does not know views can't read it, and inserts nothing.

*An insert* into a table with views is one joint insert over the shards of both tables.  Its commit also checks the map of each
target, so the rows of views come into the shards that own them (V1), and its token stands for all of it (V2)::

    Check(map of the source @ version), Check(map of each target @ version), …,
    for each shard of the source, and of each target, that gets rows: Create(log-…)

*Beginning.*  The transaction z that has created ``views/<id>`` is a cut of all logs: the view has seen every insert above z,
and none up to z.

*Backfill.*  The rows from before the view are what it makes of the source at the cut z.  They come with one insert into the
target, whose commit sets ``views/<id>`` from version 0: once, however often it is tried, and never for a view that was dropped.

*Moves* of buckets append no insert, so no view sees them.  They change the map as views do, and each refuses the other's old
version.

==============================================  ================================================================
what an operator asks for                       what becomes of it
==============================================  ================================================================
a drop of the source, or of the target          refused, and so is a late one: it deletes the map at the version read
a change of columns                             checked against the views that its commit proves (`protocol.propose.shards`)
==============================================  ================================================================

*Unknown.*  A commit of this module is conditional on the maps' versions and may be tried again: of several that were sent one
takes place.  The id of the view tells whether it did.

Absent on purpose: views of a target (a chain), targets that are not sharded, inserts with a quorum, and what a view computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import msgspec
from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.stamps import GetStamped, Stamped, Zxid
from replitree.protocol.core.views import VIEWS_MAX, Feeding, Views, ViewsValue, ViewValue, encode_views, views_at
from replitree.protocol.sharded import places
from replitree.protocol.sharded.shard_map import ShardMap, decode_map, encode_map, with_views

READS_MAX = 8
"""How often a table is read again because it was created anew meanwhile."""

TRIES_MAX = 8
"""How often a change of views is tried while others change the same maps."""

FILLED = b"filled"
"""Value of the node of a view whose earlier rows are in its target, or were never to come."""

NOTHING_TO_FILL = "the materialised view was filled or dropped meanwhile: there is nothing to fill"

CHANGED = "the maps of the tables change all the time; try again"


def view_node(place: str, view: fx.EntryId) -> str:
    """Return the node of one view of the sharded table at `place` (`layout.sharded`); the view begins when it is created.

    >>> view_node("/replitree/sharded/events", fx.EntryId("9a"))
    '/replitree/sharded/events/views/9a'
    """
    return f"{layout.views(TablePlace(place))}/{view}"


def fill(node: str) -> fx.Set:
    """Return the operation that marks a view as filled, in the commit of its backfill."""
    return fx.Set(node, FILLED, fx.Version(0))


@dataclass(frozen=True, slots=True)
class ViewedTable:
    """A sharded table, and its views as its map has them.

    Attributes
    ----------
    place, incarnation
        The path of the sharded table (`layout.sharded`), and which of those that have had its name.
    map, map_version
        Its map.
    views
        Its views, and those that write to it.
    """

    place: str
    incarnation: str
    map: ShardMap
    map_version: fx.Version
    views: Views

    @property
    def name(self) -> str:
        """The table's name."""
        return self.place.rpartition("/")[2]

    def put(self, value: ViewsValue) -> tuple[fx.Operation, ...]:
        """Return what changes the views of the table, and its map with them."""
        path, version = layout.views(TablePlace(self.place)), self.views.version
        encoded = encode_views(value)
        written = fx.Create(path, encoded) if version is None else fx.Set(path, encoded, version)
        after = 0 if version is None else int(version) + 1
        shard_map = with_views(self.map, after if value.views or value.feeding else UNSET)
        return (
            # A commit that comes late must not change a later table of this name.
            fx.Check(places.life(self.place, self.incarnation), fx.ANY_VERSION),
            fx.Set(layout.shard_map(self.place), encode_map(shard_map), self.map_version),
            written,
        )


@dataclass(frozen=True, slots=True)
class NewShardedView:
    """A view of a sharded table that is to be created.

    Attributes
    ----------
    id, name, command
        As of `ViewValue`.
    source, target
        The paths of the sharded tables.
    source_columns, target_columns
        Versions of their nodes ``columns`` that the view was checked against.
    is_filled
        Whether the rows that the source has already are not to come.
    """

    id: fx.EntryId
    name: str
    command: str
    source: str
    target: str
    source_columns: fx.Version
    target_columns: fx.Version
    is_filled: bool = False


class ViewChange(Enum):
    """What became of a change of views.

    DONE
        It took place.
    COLUMNS
        It did not: the columns of a table have changed since the view was checked.
    UNSETTLED
        It is not known: repeat it with the same id.
    """

    DONE = "done"
    COLUMNS = "columns"
    UNSETTLED = "unsettled"


@dataclass(frozen=True, slots=True)
class ViewRefused:
    """Certainly nothing was changed; `reason` is for people."""

    reason: str


def read_viewed(place: str) -> fx.Procedure[ViewedTable | None]:
    """Read a sharded table with its map and views as they are now; None: there is no such table.

    The map is read first.  So the views are those of the map, or later ones: then the map has changed, too, and every commit
    that proves this version of it is refused.
    """
    map_path, views_path = layout.shard_map(place), layout.views(TablePlace(place))
    # A map that lags would be refused again and again.
    yield fx.Sync(map_path)
    for _ in range(READS_MAX):
        made, node, views, after = (yield fx.GetMany((place, map_path, views_path, place))).nodes
        if made is None or node is None:
            return None
        # All is of the incarnation that is there before and after.
        if made == after:
            shard_map = decode_map(node.value, map_path)
            return ViewedTable(place, made.value.decode(), shard_map, node.version, views_at(TablePlace(place), views))
    return None


def create_sharded_view(view: NewShardedView) -> fx.Procedure[ViewChange | ViewRefused]:
    """Create a view of a sharded table; when one with its id is there, that one is the answer."""
    in_doubt, node = False, view_node(view.source, view.id)
    for _ in range(TRIES_MAX):
        source = yield from read_viewed(view.source)
        target = yield from read_viewed(view.target)
        if source is None or target is None:
            return ViewRefused("one of the tables does not exist any more")
        if any(each.id == view.id for each in source.views.value.views):
            return ViewChange.DONE
        problem = _problem(source, target, view)
        if problem:
            # A late commit may still create the view only where the maps are as they were: then there was no problem.
            return ViewRefused(problem)
        value = ViewValue(view.id, view.name, target.name, target.incarnation, view.command, view.is_filled)
        ours, theirs = source.views.value, target.views.value
        feeding = Feeding(view.id, source.name, source.incarnation)
        checked = (
            fx.Check(places.columns(view.source), view.source_columns),
            fx.Check(places.columns(view.target), view.target_columns),
        )
        committed: fx.Committed = yield fx.Commit(
            *checked,
            *source.put(msgspec.structs.replace(ours, views=(*ours.views, value))),
            *target.put(msgspec.structs.replace(theirs, feeding=(*theirs.feeding, feeding))),
            fx.Create(node),
            # A backfill sets it from version 0.
            *((fill(node),) if view.is_filled else ()),
        )
        match committed:
            case fx.Applied():
                return ViewChange.DONE
            case fx.Refused(operation=operation) if operation in checked:
                return ViewChange.UNSETTLED if in_doubt else ViewChange.COLUMNS
            case fx.Unknown():
                in_doubt = True
    return ViewChange.UNSETTLED if in_doubt else ViewRefused(CHANGED)


def drop_sharded_view(place: str, view: fx.EntryId) -> fx.Procedure[ViewChange | ViewRefused]:
    """Drop a view of the sharded table at `place`; the rows that it has written stay.  A view that is not there is dropped."""
    in_doubt = False
    for _ in range(TRIES_MAX):
        source = yield from read_viewed(place)
        found = None if source is None else next((each for each in source.views.value.views if each.id == view), None)
        if source is None or found is None:
            return ViewChange.DONE
        target = yield from read_viewed(layout.sharded(_root_of(place), found.target))
        ours = source.views.value
        operations = source.put(msgspec.structs.replace(ours, views=tuple(e for e in ours.views if e.id != view)))
        if target is not None and target.incarnation == found.incarnation:
            theirs = target.views.value
            left = tuple(each for each in theirs.feeding if each.id != view)
            operations += target.put(msgspec.structs.replace(theirs, feeding=left))
        committed: fx.Committed = yield fx.Commit(*operations, fx.Delete(view_node(place, view), fx.ANY_VERSION))
        match committed:
            case fx.Applied():
                return ViewChange.DONE
            case fx.Unknown():
                in_doubt = True
    return ViewChange.UNSETTLED if in_doubt else ViewRefused(CHANGED)


def fill_sharded_without_rows(place: str, view: fx.EntryId) -> fx.Procedure[ViewChange]:
    """Mark a view as filled whose source had no rows for it; also when it was filled or dropped meanwhile."""
    committed: fx.Committed = yield fx.Commit(fill(view_node(place, view)))
    return ViewChange.UNSETTLED if isinstance(committed, fx.Unknown) else ViewChange.DONE


@dataclass(frozen=True, slots=True)
class ViewBeginning:
    """Where a view begins: the transaction that has created it; and whether it waits for its backfill."""

    at: Zxid
    is_open: bool


def read_beginning(place: str, view: fx.EntryId) -> fx.Procedure[ViewBeginning | None]:
    """Return whether a view waits for its backfill, and where it begins; None: there is no such view."""
    path = view_node(place, view)
    yield fx.Sync(path)
    stamped: Stamped = yield GetStamped((path,))
    (node,) = stamped.nodes
    if node is None:
        return None
    return ViewBeginning(node.created, node.value != FILLED)


def open_backfills_of(place: str) -> fx.Procedure[tuple[ViewedTable | None, tuple[str, ...]]]:
    """Return a sharded table, and the names of those of its views that wait for their backfill."""
    found = yield from read_viewed(place)
    views = () if found is None else found.views.value.views
    if not views:
        return found, ()
    many: fx.Many = yield fx.GetMany(tuple(view_node(place, each.id) for each in views))
    its = zip(views, many.nodes, strict=True)
    return found, tuple(each.name for each, node in its if node is not None and node.value != FILLED)


def why_sharded_kept(place: str) -> fx.Procedure[tuple[str, fx.Version]]:
    """Return why a sharded table can't be dropped, for an operator (empty: no view needs it), and the version of its map."""
    found = yield from read_viewed(place)
    if found is None:
        return "", fx.ANY_VERSION
    value, why = found.views.value, ""
    if value.views:
        names = ", ".join(each.name for each in value.views)
        why = f"table {found.name} has materialised views ({names}): drop them first (replitree view drop)"
    elif value.feeding:
        sources = ", ".join(sorted({each.source for each in value.feeding}))
        why = (
            f"table {found.name} is the target of materialised views of {sources}, and every insert there would fail: drop"
            " these views first (replitree view drop)"
        )
    return why, found.map_version


def _root_of(place: str) -> str:
    """Return the root of the cluster, of the path of a sharded table."""
    return place.rpartition("/")[0].rpartition("/")[0]


def _problem(source: ViewedTable, target: ViewedTable, view: NewShardedView) -> str:
    """Return why a view can't be created; empty: it can."""
    ours, theirs = source.views.value, target.views.value
    if source.place == target.place:
        return "a materialised view can't write to its own source"
    if source.views.named(view.name) is not None:
        return f"table {source.name} has a materialised view {view.name!r} already"
    if len(ours.views) >= VIEWS_MAX:
        return f"table {source.name} has {VIEWS_MAX} materialised views, and can't have more"
    if theirs.views:
        return f"{target.name} has materialised views itself, and views of views are not there yet"
    if ours.feeding:
        return f"{source.name} is the target of a materialised view, and views of views are not there yet"
    return ""


__all__ = [
    "FILLED",
    "NOTHING_TO_FILL",
    "NewShardedView",
    "ViewBeginning",
    "ViewChange",
    "ViewRefused",
    "ViewedTable",
    "create_sharded_view",
    "drop_sharded_view",
    "fill",
    "fill_sharded_without_rows",
    "open_backfills_of",
    "read_beginning",
    "read_viewed",
    "view_node",
    "why_sharded_kept",
]
