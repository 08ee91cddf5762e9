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
from contextlib import suppress
from dataclasses import dataclass

from replitree.errors import BadInput, CorruptPart, ReplitreeError
from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import MergeEntry
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.state.pull import Queued
from replitree.protocol.state.registration import View
from replitree.replica.parts.followed_storage import FollowedStorage
from replitree.replica.parts.prepared import PreparedMerges
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.storage.parts.manifest import SHARES_MAX, PartManifest


@dataclass(slots=True)
class Running:
    """A part that is being made: of what kind, and how many of the sources' rows are done."""

    kind: str
    rows_total: int
    rows_done: int = 0


class Maker:
    """Makes the results of one table's merges and mutations.

    Parameters
    ----------
    prepared
        The results of merges that clients have made.
    storage
        The table's object store, into which results go that all replicas will own.
    suspect
        Verifies a part in which damage was found.
    why_idle
        Returns why the replica makes nothing now, or None.
    """

    def __init__(
        self,
        context: TableContext,
        parts: LocalParts,
        prepared: PreparedMerges,
        storage: FollowedStorage,
        suspect: Callable[[str], bool],
        why_idle: Callable[[], str | None],
    ) -> None:
        self._config = context.config
        self._name = context.replica.name
        self._definitions = context.definitions
        self._store = parts.store
        self._progress, self._old_parts = parts.progress, parts.old_parts
        self._prepared = prepared
        self._storage = storage
        self._suspect = suspect
        self._why_idle = why_idle
        self._lock = threading.Lock()
        self._running: dict[str, Running] = {}
        self._killed: set[fx.LogIndex] = set()
        self.is_paused = False

    def makes(self, item: Queued) -> bool:
        """Whether this replica makes the result of an entry by itself, now; otherwise it waits for another to have it."""
        if isinstance(item.entry, MergeEntry) and self.is_paused:
            return False
        if isinstance(item.entry, MergeEntry) and self._prepared.has(item.entry):
            return True
        waits = self._config.merge == "fetch"
        if not waits and item.entry.replica != self._name and self._storage.maker_for_all() is None:
            size = 0
            for part in item.change.removed:
                if part in self._progress.held:
                    with suppress(CorruptPart):
                        size += self._store.manifest(part.name).bytes
            waits = size > self._config.fetch_above_bytes
        return not waits or self._progress.waited_s(item.index) > self._config.fetch_wait_s

    def view(self, batch: tuple[Queued, ...]) -> View:
        """Return what a batch is executed by: whether the result of its first entry is made here, and for which replicas."""
        makes, sharer = self.makes(batch[0]), self._storage.maker_for_all()
        # An entry may have turned the feed on that the definition does not have yet.
        definitions = self._definitions
        feeds = bool(definitions.current.feed) or definitions.is_behind or self._old_parts.may_be_consumed
        patience_s = self._config.fetch_wait_s
        return self._progress.view(batch, makes=makes, sharer=sharer, patience_s=patience_s, feeds=feeds)

    def make(self, effect: fx.Merge | fx.Mutate | fx.Link | fx.MakeEmpty) -> fx.Made | fx.StoreFailed | fx.Cancelled:
        """Make a merged, mutated, linked or empty part under its staging id."""
        if not isinstance(effect, fx.MakeEmpty):
            return self._make_of_sources(effect)
        from replitree.storage.rewrite.empty import empty_part

        store, partition = self._store, parse_part(effect.result).partition
        store.staged.remove(effect.staging)
        prefix = store.staging_prefix(effect.staging)
        try:
            definition = self._definitions.at(effect.schema_version)
            made = empty_part(definition, partition, store.staging, prefix=prefix)
        except (BadInput, ReplitreeError, OSError) as error:
            return fx.StoreFailed(str(error))
        store.staged.note(effect.staging, (made,))
        return fx.Made(made.content)

    def _make_of_sources(self, effect: fx.Merge | fx.Mutate | fx.Link) -> fx.Made | fx.StoreFailed | fx.Cancelled:
        from replitree.storage.rewrite.merge import MergeCancelled
        from replitree.storage.rewrite.mutate import MutationCancelled

        sources = effect.sources if isinstance(effect, fx.Merge) else (effect.source,)
        running = Running(type(effect).__name__.lower(), 0)
        with self._lock:
            self._running[effect.result] = running
        try:
            store = self._store
            store.staged.remove(effect.staging)
            why = self._why_stopped(effect)
            if why is not None:
                return fx.Cancelled(why)
            if isinstance(effect, fx.Link):
                return self._link(effect.staging, effect.source)
            prepared = self._prepared.take(effect) if isinstance(effect, fx.Merge) else None
            if prepared is not None:
                return fx.Made(prepared.content)
            manifests = [store.manifest(source) for source in sources]
            running.rows_total = sum(manifest.rows for manifest in manifests)
            size = sum(manifest.bytes for manifest in manifests)
            room = store.free_bytes() - self._config.disk_reserve_bytes
            if size > room:
                return fx.StoreFailed(f"{size >> 20} MiB are to be written, and {room >> 20} MiB are free: make room")
            made = self._write(effect, sources, running)
            if made is None:
                return self._link(effect.staging, sources[0])
            store.staged.note(effect.staging, (made,))
            return fx.Made(made.content)
        except (MergeCancelled, MutationCancelled):
            return fx.Cancelled(self._why_stopped(effect) or "it was stopped")
        except CorruptPart as error:
            for source in sources:
                # A source that is not there at all is found by the next load of the replica's state.
                with suppress(ReplitreeError):
                    self._suspect(source)
            return fx.StoreFailed(str(error))
        except (BadInput, ReplitreeError, OSError) as error:
            return fx.StoreFailed(str(error))
        finally:
            with self._lock:
                del self._running[effect.result]

    def leaves_as_it_is(self, effect: fx.Untouched) -> bool:
        """Whether a mutation certainly leaves a part as it is, told from its manifest."""
        from replitree.storage.sql.mutation import cannot_touch, decode_mutation

        try:
            manifest = self._store.manifest(effect.source)
            definition = self._definitions.at(effect.schema_version)
            return cannot_touch(manifest, decode_mutation(effect.command), definition)
        except (BadInput, ReplitreeError, OSError):
            # The mutation of this part will report the error.
            return False

    def marked_ahead(self) -> frozenset[str]:
        """Return the names of results that this replica will make as soon as their entries are executed."""
        return self._prepared.results()

    def kill(self, index: fx.LogIndex) -> None:
        """Stop the merges and mutations that run for a mutation."""
        with self._lock:
            self._killed.add(index)

    def running(self) -> dict[str, Running]:
        """Return the running merges and mutations, by the result's name."""
        with self._lock:
            return dict(self._running)

    def _write(self, effect: fx.Merge | fx.Mutate, sources: Sequence[str], running: Running) -> PartManifest | None:
        """Write the result; None when a mutation touches no row."""
        from replitree.storage.rewrite.merge import merge_parts
        from replitree.storage.rewrite.mutate import mutate_part
        from replitree.storage.sql.mutation import decode_mutation

        store = self._store
        definition = self._definitions.at(effect.schema_version)
        prefix = store.staging_prefix(effect.staging)
        memory = self._config.merge_memory_bytes

        def cancelled() -> bool:
            return self._why_stopped(effect) is not None

        def progress(rows: int) -> None:
            running.rows_done = rows

        with store.shared.pinning(sources):
            store.bring(sources)
            if isinstance(effect, fx.Merge):
                return merge_parts(
                    [store.part_path(source) for source in sources],
                    definition,
                    store.staging,
                    prefix=prefix,
                    memory_bytes=memory,
                    cancelled=cancelled,
                    progress=progress,
                )
            source = store.manifest(effect.source)
            # In the store, the files that a mutation does not touch are not put again: the result may use files of its source
            # as they are if all of them are objects, of not too many shares.
            is_for_all = effect.for_all and self._storage.maker_for_all() is not None
            borrows = is_for_all and 0 < len(source.shares) < SHARES_MAX
            made = mutate_part(
                store.part_path(effect.source),
                definition,
                decode_mutation(effect.command),
                store.staging,
                prefix=prefix,
                keep_files=borrows,
                memory_bytes=memory,
                cancelled=cancelled,
                progress=progress,
            )
            if made is not None and borrows:
                store.staged.note_borrowed(effect.staging, made, source)
            return made

    def _link(self, staging: fx.StagingId, source: str) -> fx.Made:
        manifest = self._store.staged.link(source, staging, parse_part(source).partition)
        return fx.Made(manifest.content)

    def _why_stopped(self, effect: fx.Merge | fx.Mutate | fx.Link) -> str | None:
        """Say why the result is not wanted now, or None."""
        result: Part = parse_part(effect.result)
        place = self._progress.place
        why_idle = self._why_idle()
        if why_idle is not None:
            return why_idle
        if place is not None and place.parts.covering(result) is None:
            return "the table has no use for it any more"
        if isinstance(effect, fx.Merge) and self.is_paused:
            return "merges are paused on this replica"
        if isinstance(effect, fx.Mutate) and result.mutation in self._killed:
            return "the mutation was killed"
        return None
