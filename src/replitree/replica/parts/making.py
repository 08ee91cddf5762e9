"""Making parts: merges, mutations and links, as the protocol asks for them, in bounded memory, stoppable and watched.

A result is made under its own staging id (`protocol.execute.making.staged_result`) in the staging folder.  Work that
has become useless stops at the next window of rows: the table has no use for the result since a drop, its mutation
was killed, merges were paused, or the replica shuts down.

A source that turns out to be broken is reported and fetched again; a row for which an expression has no value stops this part
only.  Both end as `StoreFailed`, and the entry is tried again later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from replitree.errors import BadInput, CorruptPart, ReplitreeError
from replitree.protocol.core import effects as fx
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.shares.share_effects import Sharer
from replitree.replica.kit.config import ServerConfig
from replitree.replica.perform.progress import Progress
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.manifest import SHARES_MAX, PartManifest
from replitree.storage.schema.definition import TableDefinition


class PreparedResults(Protocol):
    """Results of merges that a client has made, see `replitree.replica.parts.prepared`."""

    def take(self, effect: fx.Merge) -> PartManifest | None:
        """Make the result of a merge the staged one, if it is here."""


class Host(Protocol):
    """What the maker needs of the replica that it works for."""

    store: PartStore
    progress: Progress
    config: ServerConfig

    @property
    def prepared(self) -> PreparedResults:
        """The results that clients have made."""

    def definition_at(self, version: int) -> TableDefinition:
        """Return the table with the columns of a schema version."""

    def is_stopping(self) -> bool:
        """Whether the replica shuts down."""

    def is_recovering(self) -> bool:
        """Whether the replica takes over another one's state."""

    def maker_for_all(self) -> Sharer | None:
        """Return who this replica is where results go into the store; None where they stay on this disk."""

    def suspect(self, part: str) -> bool:
        """Verify a part that somebody found broken."""


@dataclass(slots=True)
class Running:
    """A part that is being made: of what kind, and how many of the sources' rows are done."""

    kind: str
    rows_total: int
    rows_done: int = 0


class Maker:
    """Makes the results of one table's merges and mutations."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._running: dict[str, Running] = {}
        self._killed: set[fx.LogIndex] = set()
        self.is_paused = False

    def perform(self, effect: fx.Merge | fx.Mutate | fx.Link) -> fx.Made | fx.StoreFailed | fx.Cancelled:
        """Make one part."""
        from replitree.storage.rewrite.merge import MergeCancelled
        from replitree.storage.rewrite.mutate import MutationCancelled

        sources = effect.sources if isinstance(effect, fx.Merge) else (effect.source,)
        running = Running(type(effect).__name__.lower(), 0)
        with self._lock:
            self._running[effect.result] = running
        try:
            return self._perform(effect, sources, running)
        except (MergeCancelled, MutationCancelled):
            return fx.Cancelled(self._why_stopped(effect) or "it was stopped")
        except CorruptPart as error:
            for source in sources:
                self._verify(source)
            return fx.StoreFailed(str(error))
        except (BadInput, ReplitreeError, OSError) as error:
            return fx.StoreFailed(str(error))
        finally:
            with self._lock:
                del self._running[effect.result]

    def make_empty(self, effect: fx.MakeEmpty) -> fx.Made | fx.StoreFailed:
        """Make a part without rows."""
        from replitree.storage.rewrite.empty import empty_part

        store, partition = self._host.store, parse_part(effect.result).partition
        store.staged.remove(effect.staging)
        prefix = store.staging_prefix(effect.staging)
        try:
            definition = self._host.definition_at(effect.schema_version)
            made = empty_part(definition, partition, store.staging, prefix=prefix)
        except (BadInput, ReplitreeError, OSError) as error:
            return fx.StoreFailed(str(error))
        store.staged.note(effect.staging, (made,))
        return fx.Made(made.content)

    def leaves_as_it_is(self, effect: fx.Untouched) -> bool:
        """Whether a mutation certainly leaves a part as it is, told from its manifest."""
        from replitree.storage.sql.mutation import cannot_touch, decode_mutation

        try:
            manifest = self._host.store.manifest(effect.source)
            definition = self._host.definition_at(effect.schema_version)
            return cannot_touch(manifest, decode_mutation(effect.command), definition)
        except (BadInput, ReplitreeError, OSError):
            return False  # the making of it will say why

    def kill(self, index: fx.LogIndex) -> None:
        """Stop what is being made for a mutation."""
        with self._lock:
            self._killed.add(index)

    def running(self) -> dict[str, Running]:
        """Return what is being made, by the result's name."""
        with self._lock:
            return dict(self._running)

    def _perform(
        self, effect: fx.Merge | fx.Mutate | fx.Link, sources: Sequence[str], running: Running
    ) -> fx.Made | fx.StoreFailed | fx.Cancelled:
        store = self._host.store
        store.staged.remove(effect.staging)
        why = self._why_stopped(effect)
        if why is not None:
            return fx.Cancelled(why)
        if isinstance(effect, fx.Link):
            return self._link(effect.staging, effect.source)
        prepared = self._host.prepared.take(effect) if isinstance(effect, fx.Merge) else None
        if prepared is not None:
            return fx.Made(prepared.content)
        manifests = [store.manifest(source) for source in sources]
        running.rows_total = sum(manifest.rows for manifest in manifests)
        size = sum(manifest.bytes for manifest in manifests)
        room = store.free_bytes() - self._host.config.disk_reserve_bytes
        if size > room:
            return fx.StoreFailed(f"{size >> 20} MiB are to be written, and {room >> 20} MiB are free: make room")
        made = self._write(effect, sources, running)
        if made is None:
            return self._link(effect.staging, sources[0])
        store.staged.note(effect.staging, (made,))
        return fx.Made(made.content)

    def _write(self, effect: fx.Merge | fx.Mutate, sources: Sequence[str], running: Running) -> PartManifest | None:
        """Write the result; None when a mutation touches no row."""
        from replitree.storage.rewrite.merge import merge_parts

        store = self._host.store
        definition = self._host.definition_at(effect.schema_version)
        paths = [store.part_path(source) for source in sources]
        prefix = store.staging_prefix(effect.staging)
        memory = self._host.config.merge_memory_bytes

        def cancelled() -> bool:
            return self._why_stopped(effect) is not None

        def progress(rows: int) -> None:
            running.rows_done = rows

        with store.shared.pinning(sources):
            store.bring(sources)
            if isinstance(effect, fx.Merge):
                return merge_parts(
                    paths,
                    definition,
                    store.staging,
                    prefix=prefix,
                    memory_bytes=memory,
                    cancelled=cancelled,
                    progress=progress,
                )
            return self._mutate(effect, definition, cancelled, progress)

    def _mutate(
        self,
        effect: fx.Mutate,
        definition: TableDefinition,
        cancelled: Callable[[], bool],
        progress: Callable[[int], None],
    ) -> PartManifest | None:
        """Write what a mutation leaves of a part; in the store, the files that it does not touch are not put again."""
        from replitree.storage.rewrite.mutate import mutate_part
        from replitree.storage.sql.mutation import decode_mutation

        store = self._host.store
        source = store.manifest(effect.source)
        borrows = effect.for_all and self._may_borrow(source)
        made = mutate_part(
            store.part_path(effect.source),
            definition,
            decode_mutation(effect.command),
            store.staging,
            prefix=store.staging_prefix(effect.staging),
            keep_files=borrows,
            memory_bytes=self._host.config.merge_memory_bytes,
            cancelled=cancelled,
            progress=progress,
        )
        if made is not None and borrows:
            store.staged.note_borrowed(effect.staging, made, source)
        return made

    def _may_borrow(self, source: PartManifest) -> bool:
        """Whether what is made of a part may have files of it as they are: all are objects, of not too many shares."""
        return self._host.maker_for_all() is not None and 0 < len(source.shares) < SHARES_MAX

    def _link(self, staging: fx.StagingId, source: str) -> fx.Made:
        manifest = self._host.store.staged.link(source, staging, parse_part(source).partition)
        return fx.Made(manifest.content)

    def _why_stopped(self, effect: fx.Merge | fx.Mutate | fx.Link) -> str | None:
        """Say why the result is not wanted now, or None."""
        result: Part = parse_part(effect.result)
        place = self._host.progress.place
        if self._host.is_stopping():
            return "the replica shuts down"
        if self._host.is_recovering():
            return "the replica is lost, and recovers"
        if place is not None and place.parts.covering(result) is None:
            return "the table has no use for it any more"
        if isinstance(effect, fx.Merge) and self.is_paused:
            return "merges are paused on this replica"
        if isinstance(effect, fx.Mutate) and result.mutation in self._killed:
            return "the mutation was killed"
        return None

    def _verify(self, part: str) -> None:
        try:
            self._host.suspect(part)
        except ReplitreeError:
            return  # it is not there at all: the next load of the replica's state tells


Perform = Callable[[fx.Merge | fx.Mutate | fx.Link], fx.Made | fx.StoreFailed | fx.Cancelled]
