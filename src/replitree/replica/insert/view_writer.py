"""Writing the rows of materialised views: into the staging folders of their targets, beside the rows of an insert.

The epoch of a target is taken before anything is staged there (`replitree.protocol.insert.views`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from replitree.errors import BadInput, ReplitreeError, StoreError, UnsupportedFormat
from replitree.protocol.core import effects as fx
from replitree.protocol.core.views import StagedView, ViewToStage, staged_view
from replitree.replica.kit.payloads import Payload, Rows
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.commit_size import PARTS_MAX
from replitree.replica.perform.context import TableContext
from replitree.storage.disk.store import PartStore

if TYPE_CHECKING:
    import pyarrow as pa

    from replitree.storage.sql.view import CheckedView


class Target(Protocol):
    """A table of this server that views write to."""

    @property
    def context(self) -> TableContext:
        """Where it lies."""

    @property
    def availability(self) -> Availability:
        """Whether it takes inserts."""

    @property
    def store(self) -> PartStore:
        """The parts on this disk."""

    @property
    def inserts(self) -> Room:
        """Says whether there are too many parts."""


class Room(Protocol):
    """What knows how many parts the partitions of a target have."""

    def delay_s(self) -> float:
        """Return how long an insert would be delayed; raises `TooManyParts` when it would be refused."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A view whose target takes inserts here: under which epoch, and what the view is."""

    view: ViewToStage
    target: Target
    epoch: fx.Epoch
    checked: CheckedView


class ViewWriter:
    """Stages the rows of the views of one table.

    Parameters
    ----------
    context, store
        The source, and its parts on this disk.
    target
        Returns a table of this server by its name; raises when there is none.
    """

    def __init__(self, context: TableContext, store: PartStore, target: Callable[[str], Target]) -> None:
        self._context = context
        self._store = store
        self._target = target
        self._staged: dict[fx.StagingId, tuple[tuple[Target, fx.StagingId], ...]] = {}

    def stage(
        self, staging: fx.StagingId, payloads: Sequence[Payload], views: Sequence[ViewToStage]
    ) -> tuple[StagedView, ...]:
        """Compute views of the rows that are staged under an id, and stage what they make of them.

        Raises
        ------
        StoreError
            A target takes no inserts here, or a disk fails.
        BadInput
            A view has no value for a row.
        """
        from replitree.storage.parts.encode import stage_table

        opened = [self._open(view) for view in views]
        made = self._computed(staging, payloads, [each.checked for each in opened])
        # This is noted before anything is written, so that `remove` finds what a failure leaves.
        self._staged[staging] = tuple((each.target, staged_view(staging, each.view.id)) for each in opened)
        found = list[StagedView]()
        for each, rows in zip(opened, made, strict=True):
            store, name, definition = each.target.store, staged_view(staging, each.view.id), each.checked.target
            partitions_max = max(PARTS_MAX, definition.settings.partitions_per_insert_max)
            prefix = store.staging_prefix(name)
            manifests = stage_table(rows, definition, store.staging, prefix=prefix, partitions_max=partitions_max)
            store.staged.note(name, manifests)
            parts = tuple(fx.StagedPart(part.partition, part.rows, part.bytes, part.content) for part in manifests)
            replica = each.target.context.replica
            found.append(StagedView(each.view.id, replica, each.epoch, parts, definition.schema_version))
        return tuple(found)

    def remove(self, staging: fx.StagingId) -> None:
        """Delete the rows of views that were staged with those of an id.  Raises `StoreError` when a disk fails."""
        for target, name in self._staged.pop(staging, ()):
            target.store.staged.remove(name)

    def forget(self, staging: fx.StagingId) -> None:
        """Forget what a group has staged: it has ended, and the targets find its entries in their logs."""
        for name in [each for each in self._staged if each.rpartition(".")[0] == staging]:
            for target, _ in self._staged.pop(name):
                target.context.pull_signal.hurry()

    def _open(self, view: ViewToStage) -> _Open:
        from replitree.storage.sql.view import check_view, decode_view

        here = self._context.replica
        try:
            target = self._target(view.target)
            epoch = target.availability.epoch()
            target.inserts.delay_s()
        except ReplitreeError as error:
            raise StoreError(
                f"replica {here.name} takes no inserts into {view.target}, the target of a materialised view of"
                f" {here.table.name}: {error}"
            ) from error
        if target.context.replica.table.incarnation != view.incarnation:
            raise StoreError(
                f"{view.target}, the target of a materialised view of {here.table.name}, was dropped or restored since: drop"
                f" the view (replitree view drop {here.table.name} NAME) and create it again"
            )
        source, theirs = self._context.definitions, target.context.definitions
        try:
            command = decode_view(view.command)
        except UnsupportedFormat as error:
            raise StoreError(
                f"replica {here.name} can't compute a materialised view into {view.target}: {error}"
            ) from error
        # The view was checked against the columns of its time, which this replica may not have read yet.
        with suppress(BadInput):
            return _Open(view, target, epoch, check_view(command, source.current, theirs.current))
        try:
            return _Open(view, target, epoch, check_view(command, source.refresh(), theirs.refresh()))
        except BadInput as error:
            raise StoreError(f"a materialised view into {view.target} can't be computed: {error}; drop it") from error

    def _computed(
        self, staging: fx.StagingId, payloads: Sequence[Payload], views: Sequence[CheckedView]
    ) -> list[pa.Table]:
        """Compute views of the rows of an insert, some rows at a time."""
        import pyarrow as pa

        made: list[list[pa.Table]] = [[] for _ in views]
        for rows in self._rows(staging, payloads, views[0]):
            for view, tables in zip(views, made, strict=True):
                tables.append(view.rows(rows))
        return [
            view.regrouped(pa.concat_tables(tables)) if tables else view.target.arrow_schema.empty_table()
            for view, tables in zip(views, made, strict=True)
        ]

    def _rows(self, staging: fx.StagingId, payloads: Sequence[Payload], view: CheckedView) -> Iterator[pa.Table]:
        """Give the rows of an insert in the source's present columns: those at hand, or as they are staged."""
        import pyarrow as pa

        from replitree.storage.parts.verified import CheckedPart
        from replitree.storage.rewrite.read import read_batches

        version = view.source.schema_version
        if all(isinstance(each, Rows) and each.definition.schema_version == version for each in payloads):
            yield pa.concat_tables([each.table for each in payloads if isinstance(each, Rows)])
            return
        parts = [CheckedPart(folder, manifest) for folder, manifest in self._store.staged.parts(staging)]
        for batch in read_batches(parts, view.source):
            yield pa.Table.from_batches([batch])


__all__ = ["Target", "ViewWriter"]
