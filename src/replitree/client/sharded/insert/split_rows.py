"""Split the rows of an insert into a sharded table by its map, and what its views make of them by the maps of their targets.

The map says which views there are.  What was read of both is kept until a commit is refused because a map has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa
from msgspec import UNSET

from replitree.client.insert.insert import TableInserter
from replitree.client.insert.upload import Upload
from replitree.client.sharded.insert.held_rows import HeldRows
from replitree.client.sharded.sharded_catalog import read_map
from replitree.client.transport.catalog import Catalog
from replitree.client.transport.routing import Router
from replitree.errors import BadInput, SchemaMismatch, Unavailable
from replitree.protocol.core import layout
from replitree.protocol.sharded.shard_map import Shard, ShardMap
from replitree.protocol.sharded.views import read_viewed
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.row_buckets import split_by_shard
from replitree.wire.prepared_share import FilledView

if TYPE_CHECKING:
    from replitree.client.sharded.insert.joint import JointInserter
    from replitree.protocol.core.views import ViewValue
    from replitree.storage.sql.view import CheckedView


@dataclass(frozen=True, slots=True)
class FilledUpload:
    """An upload with the rows of one shard, and the manifests of its parts.

    Attributes
    ----------
    upload, manifests
        The upload, and what it has.
    rewrite
        Of a rewrite: the body of the request that prepares it.
    since
        Of a rewrite: the position of the log at which the shard was read.
    """

    upload: Upload
    manifests: tuple[PartManifest, ...]
    rewrite: Mapping[str, Any] | None = None
    since: int = 0


Piece: TypeAlias = "pa.Table | FilledUpload"
"""What one shard gets of an insert."""


class At(NamedTuple):
    """A shard that gets rows: of the table that is inserted into (no name), or of the target of its views."""

    table: str
    shard: Shard


@dataclass(frozen=True, slots=True)
class SplitRows:
    """The rows of an insert by shard, own shards first.

    Attributes
    ----------
    pieces
        What each shard gets.
    versions
        Of the map of each table by which they were split.
    tables
        What inserts into each table.
    fills
        The view whose earlier rows they are.
    """

    pieces: Mapping[At, Piece]
    versions: Mapping[str, int]
    tables: Mapping[str, JointInserter]
    fills: FilledView | None = None

    @property
    def plain_rows(self) -> dict[At, pa.Table] | None:
        """The rows, if they are of one table, and nothing of a view."""
        rows = {at: piece for at, piece in self.pieces.items() if isinstance(piece, pa.Table)}
        return rows if self.fills is None and all(not at.table for at in self.pieces) else None

    @property
    def bytes(self) -> int:
        """How many bytes the rows have, but for those in uploads."""
        return sum(piece.nbytes for piece in self.pieces.values() if isinstance(piece, pa.Table))

    def router(self, at: At) -> tuple[Router, TableInserter]:
        """Return what finds the replicas of a shard, and what fills uploads for it."""
        return self.tables[at.table].inserter_of(at.shard)


class ViewsInto(NamedTuple):
    """The views that write to one table: its name, what inserts there, and the views."""

    name: str
    target: JointInserter
    views: tuple[CheckedView, ...]


class MapWithViews(NamedTuple):
    """The map and its version, and the views that it has."""

    map: ShardMap
    version: int
    views: tuple[ViewsInto, ...] = ()


class RowSplitter:
    """Splits the rows of inserts into one sharded table.  Any thread may use it.

    Parameters
    ----------
    definition, catalog
        The table, and the directory of the replicas.
    inserter
        Returns what inserts into another sharded table, by its name.
    """

    def __init__(self, definition: TableDefinition, catalog: Catalog, inserter: Callable[[str], JointInserter]) -> None:
        self._definition = definition
        self._catalog = catalog
        self._inserter = inserter
        self._known: MapWithViews | None = None

    def read(self) -> MapWithViews:
        """Read the map, and its views if it has some; later splits are by this one.

        Raises
        ------
        TableNotFound
            The table was dropped.
        SchemaMismatch
            A view can't be computed with the columns that this handle knows.
        Unavailable
            The table was created anew again and again.
        """
        found = read_map(self._catalog, self._definition.name)
        known = MapWithViews(found.map, found.version)
        if found.map.views is not UNSET:
            viewed = self._catalog.run(read_viewed(layout.sharded(self._catalog.root, self._definition.name)))
            if viewed is None:
                raise Unavailable(f"table {self._definition.name!r} is being dropped, or created anew; try again")
            known = MapWithViews(viewed.map, viewed.map_version, self._opened(viewed.views.value.views))
        self._known = known
        return known

    def known(self) -> MapWithViews:
        """Return what `read` has returned last, or what it returns now; raises as it does."""
        return self._known or self.read()

    def split(
        self, held: HeldRows, own: JointInserter, fills: FilledView | None, *, fires_views: bool = True
    ) -> SplitRows:
        """Split rows by the map, and what views make of them by the maps of their targets.

        Parameters
        ----------
        held
            The rows, in the definition's schema.
        own, fills
            What inserts into this table, and the view whose earlier rows these are.
        fires_views
            Whether views see the rows.

        Raises
        ------
        ViewFailed
            A view has no value for a row.  Others as of `read`.
        OSError
            As of `HeldRows`.
        """
        known = self.known()
        of_shards = held.split(lambda some: split_by_shard(some, self._definition, known.map))
        pieces = {At("", shard): rows for shard, rows in of_shards.items()}
        versions, tables = {"": int(known.version)}, {"": own}
        for name, target, views in known.views if fires_views else ():
            made = HeldRows(_made(views, held), target.definition.arrow_schema)
            there = target.splitter.split(made, target, None)
            versions[name], tables[name] = there.versions[""], target
            pieces |= {At(name, at.shard): piece for at, piece in (there.plain_rows or {}).items()}
        return SplitRows(pieces, versions, tables, fills)

    def _opened(self, views: Sequence[ViewValue]) -> tuple[ViewsInto, ...]:
        from replitree.storage.sql.view import check_view, decode_view

        found: dict[str, tuple[JointInserter, list[CheckedView]]] = {}
        for view in views:
            if view.target not in found:
                found[view.target] = self._inserter(view.target), []
            target, those = found[view.target]
            try:
                those.append(check_view(decode_view(view.command), self._definition, target.definition))
            except BadInput as error:
                # It was checked against columns that this handle may not have read yet.
                raise SchemaMismatch(
                    f"materialised view {view.name} of {self._definition.name} can't be computed: {error}"
                ) from error
        return tuple(ViewsInto(name, target, tuple(those)) for name, (target, those) in found.items())


def _made(views: Sequence[CheckedView], held: HeldRows) -> Iterator[pa.Table]:
    """Give what views make of rows.  Those that group have one row for each group, however many slices there are."""
    groups: list[list[pa.Table]] = [[] for _ in views]
    for some in held.slices():
        for view, of_view in zip(views, groups, strict=True):
            rows = view.rows(some)
            if view.command.group_by and not held.is_in_memory:
                of_view.append(rows)
            else:
                yield rows
    for view, of_view in zip(views, groups, strict=True):
        if of_view:
            yield view.regrouped(pa.concat_tables(of_view))


__all__ = ["At", "FilledUpload", "MapWithViews", "Piece", "RowSplitter", "SplitRows"]
