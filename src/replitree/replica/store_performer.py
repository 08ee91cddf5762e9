"""Performs the effects on the local part store, and remembers which parts reads may show.

Staging folders that a running insert uses are *held*: `ListStaging` leaves them out, so the sweep never sees them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from replitree.errors import BadInput, StoreError
from replitree.protocol.effects import (
    FetchMany,
    FetchPart,
    ListParts,
    ListStaging,
    Publish,
    Published,
    RemovePart,
    RemoveStaging,
    RequestId,
    Reveal,
    Stage,
    Staged,
    StagedPart,
    StagingId,
    StoreEffect,
    StoreFailed,
)
from replitree.replica.exchange import Exchange
from replitree.storage.disk import PartStore
from replitree.storage.manifest import PartManifest

PUBLISHED_MAX = 1024
"""Inserts that are remembered as published until `execute` asks for them."""

Stager = Callable[[StagingId, Sequence[Any]], tuple[PartManifest, ...]]


class StorePerformer:
    """The local side of one table replica.

    Parameters
    ----------
    store, exchange
        Where parts lie, and who fetches them.
    stage
        Writes payloads of requests as the parts of a staging id.
    reveal
        Called with the names that become visible.
    """

    def __init__(
        self, store: PartStore, exchange: Exchange, stage: Stager, reveal: Callable[[tuple[str, ...]], None]
    ) -> None:
        self._store = store
        self._exchange = exchange
        self._stage = stage
        self._reveal = reveal
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._payloads: dict[RequestId, Any] = {}
        self._publishing = threading.Lock()
        self._published: dict[StagingId, bool] = {}

    @contextmanager
    def holding(self, staging: StagingId, payloads: dict[RequestId, Any]) -> Iterator[None]:
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

    def perform(self, effect: StoreEffect) -> object:
        """Perform one effect; where the protocol has a place for it, a failing disk is an outcome."""
        try:
            return self._perform(effect)
        except (BadInput, StoreError, OSError) as error:
            if not isinstance(effect, Stage | Publish | FetchPart):
                raise
            return StoreFailed(str(error))

    def _perform(self, effect: StoreEffect) -> object:
        match effect:
            case Stage(staging, requests):
                manifests = self._stage(staging, [self._payloads[request] for request in requests])
                return Staged(tuple(staged_part(manifest) for manifest in manifests))
            case Publish(staging, names, synced):
                return self._publish(staging, names, synced=synced)
            case FetchPart():
                return self._exchange.fetch((effect,))[0]
            case FetchMany(fetches):
                return self._exchange.fetch(fetches)
            case Reveal(parts):
                self._reveal(parts)
                return None
            case ListStaging():
                return tuple(StagingId(name) for name in self._store.stagings() if not self._is_held(name))
            case RemoveStaging(staging):
                self._store.remove_staging(staging)
                return None
            case ListParts():
                return tuple(self._store.parts())
            case RemovePart(part):
                self._store.detach(part)
                return None

    def _publish(self, staging: StagingId, names: tuple[tuple[str, str], ...], *, synced: bool) -> Published:
        """Publish once; `execute` repeats it for what `insert` has published a moment ago, and only the sync is left to do."""
        with self._publishing:
            if synced and self._published.pop(staging, False):
                self._store.sync_names()
                return Published()
            missing = tuple(self._store.publish(staging, dict(names), sync_names=synced))
            if not missing and not synced:
                self._published[staging] = True
                if len(self._published) > PUBLISHED_MAX:
                    self._published.pop(next(iter(self._published)))
        return Published(missing)

    def _is_held(self, name: str) -> bool:
        with self._lock:
            return name.rpartition(".")[0] in self._held


def staged_part(manifest: PartManifest) -> StagedPart:
    """Return what the log says of a part."""
    return StagedPart(manifest.partition, manifest.rows, manifest.bytes, manifest.content_hash)
