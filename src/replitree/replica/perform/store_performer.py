"""Performs the effects on the local part store, and tells which parts reads may show.

Staging folders that a running insert uses are *held*, and so are those of results that are being made: `ListStaging` leaves
them out, so the sweep never sees them.

A result is published only where no part of its name has other content: the protocol asks first (`FindPart`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from replitree.errors import BadInput, CorruptPart, StoreError
from replitree.protocol.core import effects as fx
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.core.views import StagedView, ViewToStage
from replitree.protocol.execute.making import result_of, staged_result
from replitree.replica.kit.payloads import StagedRewrite
from replitree.replica.perform.context import LocalParts
from replitree.replica.perform.exchange import Exchange
from replitree.storage.parts.manifest import PartManifest

PUBLISHED_MAX = 1024
"""Inserts that are remembered as published until `execute` asks for them."""


class Staging(Protocol):
    """What writes the rows of requests: the replica's inserts."""

    def stage(self, staging: fx.StagingId, payloads: Sequence[Any]) -> tuple[PartManifest, ...]:
        """Write the payloads of requests as the parts of a staging id."""

    def give_back(self, staging: fx.StagingId) -> bool:
        """Put what an upload has staged back, so that it can be staged again; False: it is of no upload that is at work."""

    def forget(self, staging: fx.StagingId) -> None:
        """Forget the uploads of a group that has ended."""


class ViewStaging(Protocol):
    """What writes the rows of materialised views (`replitree.replica.insert.view_writer`)."""

    def stage(
        self, staging: fx.StagingId, payloads: Sequence[Any], views: Sequence[ViewToStage]
    ) -> tuple[StagedView, ...]:
        """Stage what views make of the rows that are staged under an id."""

    def remove(self, staging: fx.StagingId) -> None:
        """Delete what was staged for views with the rows of an id."""

    def forget(self, staging: fx.StagingId) -> None:
        """Forget the views of a group that has ended."""


class ResultMaker(Protocol):
    """What makes the results of merges and mutations (`replitree.replica.parts.making`)."""

    def make(self, effect: fx.Merge | fx.Mutate | fx.Link | fx.MakeEmpty) -> fx.Made | fx.StoreFailed | fx.Cancelled:
        """Make a merged, mutated, linked or empty part under its staging id."""

    def leaves_as_it_is(self, effect: fx.Untouched) -> bool:
        """Whether a mutation certainly leaves a part as it is."""

    def marked_ahead(self) -> frozenset[str]:
        """Return the names of results that this replica will make as soon as their entries are executed."""


class StorePerformer:
    """The local side of one table replica.

    Parameters
    ----------
    parts, exchange
        The parts on this disk, and what fetches more of them.
    inserts, maker, views
        What writes the rows of requests, what makes results, and what writes the rows of materialised views.
    """

    def __init__(
        self,
        parts: LocalParts,
        exchange: Exchange,
        inserts: Staging,
        maker: ResultMaker,
        views: ViewStaging,
    ) -> None:
        self._parts = parts
        self._store = parts.store
        self._old_parts = parts.old_parts
        self._exchange = exchange
        self._inserts = inserts
        self._maker = maker
        self._views = views
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._payloads: dict[fx.RequestId, Any] = {}
        self._awaited: list[tuple[str, Future[None]]] = []
        self._publishing = threading.Lock()
        self._published: dict[fx.StagingId, bool] = {}
        self._made: dict[fx.StagingId, str] = {}

    @contextmanager
    def holding(self, staging: fx.StagingId, payloads: dict[fx.RequestId, Any]) -> Iterator[None]:
        """Hold a group's staging folders, and keep its payloads at hand, while its insert runs."""
        with self._lock:
            self._held.add(staging)
            self._payloads.update(payloads)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(staging)
                for request in payloads:
                    self._payloads.pop(request, None)
            self._tell_published()

    def discard(self, staging: fx.StagingId) -> None:
        """Remove what a group has staged, for certain in vain.

        Raises
        ------
        StoreError, OSError
            The disk fails: the next activation sweeps what is left.
        """
        for name in self._store.stagings():
            if name.rpartition(".")[0] == staging:
                self._remove_staging(fx.StagingId(name))

    def staged(self, staging: fx.StagingId) -> tuple[tuple[Path, PartManifest], ...]:
        """Return folders and manifests of the parts that are staged under an id."""
        return self._store.staged.parts(staging)

    def forget(self, staging: fx.StagingId) -> None:
        """Forget the uploads of a group that has ended: from here on their staged files are not put back."""
        self._inserts.forget(staging)
        self._views.forget(staging)

    @contextmanager
    def publishing(self, part: str) -> Iterator[Future[None]]:
        """Give what is done as soon as a part is published, or nothing is staged here any more that may become it."""
        published: Future[None] = Future()
        with self._lock:
            self._awaited.append((part, published))
        try:
            self._tell_published()
            yield published
        finally:
            with self._lock:
                self._awaited.remove((part, published))

    def _tell_published(self) -> None:
        with self._lock:
            # Of a joint insert the executor publishes what is staged, once the replica has pulled the entry.
            may_come = bool(self._held) or self._store.staged.is_waiting
            for part, published in self._awaited:
                if not published.done() and (not may_come or self._store.has_part(part)):
                    published.set_result(None)

    @contextmanager
    def holding_results(self, results: Sequence[Part]) -> Iterator[None]:
        """Hold the staging folders of results while they are made and published; what was made in vain is removed."""
        stagings = [staged_result(result) for result in results]
        with self._lock:
            self._held.update(stagings)
        try:
            yield
        finally:
            with self._lock:
                self._held.difference_update(stagings)
                vain = [staging for staging in stagings if self._made.pop(staging, None) is not None]
            for staging in vain:
                self._store.staged.remove(staging)

    def perform(self, effect: fx.StoreEffect) -> object:
        """Perform one effect; where the protocol has a place for it, a failing disk is an outcome."""
        try:
            return self._perform(effect)
        except (BadInput, StoreError, OSError) as error:
            if not isinstance(effect, fx.Stage | fx.Publish | fx.FetchPart | fx.Detach):
                raise
            return fx.StoreFailed(str(error), by_request=isinstance(error, BadInput))

    def _perform(self, effect: fx.StoreEffect) -> object:
        match effect:
            case fx.Stage():
                return self._stage(effect)
            case fx.Publish(staging, names, synced):
                return self._publish(staging, names, synced=synced)
            case fx.FetchPart() | fx.FetchMany():
                # Parts that are here already, as old ones, are needed again and must not be removed.
                fetches = (effect,) if isinstance(effect, fx.FetchPart) else effect.fetches
                self._old_parts.revive(fetch.part for fetch in fetches)
                fetched = self._exchange.fetch(fetches)
                return fetched[0] if isinstance(effect, fx.FetchPart) else fetched
            case fx.Merge() | fx.Mutate() | fx.Link() | fx.MakeEmpty() | fx.Untouched() | fx.ResultsInWork():
                return self._of_results(effect)
            case fx.Detach(parts):
                self._store.keep_aside([part for part in parts if self._store.has_part(part)])
                return None
            case fx.Reveal(parts, gone):
                self._old_parts.revive(parts)
                self._old_parts.retire(self._parts.reveal(parts, gone))
                return None
            case fx.ListStaging():
                listed = self._store.stagings()
                with self._lock:
                    # An insert of several groups has a folder `ID.N` for each, and holds `ID`.
                    held = set(self._held)
                idle = (name for name in listed if name not in held and name.rpartition(".")[0] not in held)
                return tuple(map(fx.StagingId, idle))
            case fx.RemoveStaging(staging):
                self._remove_staging(staging)
                return None
            case fx.ListParts():
                return tuple(part for part in self._store.parts() if not self._old_parts.is_old(part))
            case fx.FindPart(part):
                return self._find(part)
            case fx.RemovePart() | fx.Discard():
                self._take_out(effect)
                return None

    def _take_out(self, effect: fx.RemovePart | fx.Discard) -> None:
        """Take a part out of the table's folder, or mark it as old."""
        if isinstance(effect, fx.Discard):
            self._store.remove_parts((effect.part,))
            return
        # The rows of an insert are the same wherever they are.  Of a result that was never registered that is not known.
        may_be_fed = effect.unless_fed and parse_part(effect.part).is_inserted
        if may_be_fed and not self._old_parts.feed.unneeded((effect.part,)):
            self._old_parts.retire((effect.part,))
        else:
            self._store.detach(effect.part)

    def _stage(self, effect: fx.Stage) -> fx.Staged:
        """Stage the rows of requests, and what the table's materialised views make of them."""
        payloads = [self._payloads[request] for request in effect.requests]
        manifests = self._inserts.stage(effect.staging, payloads)
        if isinstance(payloads[0], StagedRewrite):
            return staged_rewrite(payloads[0])
        staged = staged_parts(manifests)
        if not effect.views:
            return staged
        return replace(staged, views=self._views.stage(effect.staging, payloads, effect.views))

    def _remove_staging(self, staging: fx.StagingId) -> None:
        # The executor removes what a drop has overtaken, maybe while the insert publishes it: a folder that is removed by half
        # must not get a part's name.
        self._views.remove(staging)
        with self._publishing:
            self._published.pop(staging, None)
            if not self._inserts.give_back(staging):
                self._store.staged.remove(staging)

    def _of_results(
        self, effect: fx.Merge | fx.Mutate | fx.Link | fx.MakeEmpty | fx.Untouched | fx.ResultsInWork
    ) -> object:
        match effect:
            case fx.Untouched():
                return self._maker.leaves_as_it_is(effect)
            case fx.ResultsInWork():
                with self._lock:
                    making = {name for name in map(result_of, self._held) if name is not None}
                return tuple(sorted(making | self._maker.marked_ahead()))
        made = self._maker.make(effect)
        if isinstance(made, fx.Made):
            with self._lock:
                self._made[effect.staging] = made.content_hash
        return made

    def _publish(
        self, staging: fx.StagingId, names: tuple[tuple[str, str], ...], *, synced: bool
    ) -> fx.Published | fx.StoreFailed:
        """Publish the parts of a staging folder under their names."""
        with self._lock:
            content_hash = self._made.pop(staging, None)
        if content_hash is not None:
            for _, part in names:
                if self._store.content(part) not in (None, content_hash):
                    return fx.StoreFailed(f"{part} is there with other content")
            lacking = tuple(self._store.staged.publish(staging, dict(names)))
            # The folder is left over when the same result was published before.
            self._store.staged.remove(staging)
            return fx.Published(lacking)
        with self._publishing:
            # `execute` publishes again what `insert` has published a moment ago; only the sync of the names is left to do.
            if synced and self._published.pop(staging, False):
                self._store.sync_names()
                return fx.Published()
            missing = tuple(self._store.staged.publish(staging, dict(names), sync_names=synced))
            if not missing and not synced:
                self._published[staging] = True
                if len(self._published) > PUBLISHED_MAX:
                    self._published.pop(next(iter(self._published)))
        self._tell_published()
        return fx.Published(missing)

    def _find(self, part: str) -> str | None:
        """Return the content hash of a published part, which is to be registered; one that is damaged is taken out."""
        if not self._store.has_part(part):
            return None
        self._old_parts.revive((part,))
        try:
            manifest = self._store.verify(part)
        except CorruptPart as error:
            self._store.quarantine(part, str(error))
            return None
        self._store.sync_names()
        return manifest.content


def staged_parts(manifests: Sequence[PartManifest]) -> fx.Staged:
    """Return what the log says of the parts of an insert."""
    return fx.Staged(tuple(map(staged_part, manifests)))


def staged_rewrite(rewrite: StagedRewrite) -> fx.Staged:
    """Return what the log says of the parts of a rewrite."""
    results = (
        fx.StagedResult(name, made.rows, made.bytes, made.content) for name, made in sorted(rewrite.results.items())
    )
    return fx.Staged(tuple(map(staged_part, rewrite.inserts)), tuple(results))


def staged_part(manifest: PartManifest) -> fx.StagedPart:
    """Return what the log says of a part."""
    return fx.StagedPart(manifest.partition, manifest.rows, manifest.bytes, manifest.content)
