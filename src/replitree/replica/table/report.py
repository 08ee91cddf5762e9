"""What a table replica says of itself: its status for operators, and its gauges."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from replitree.errors import CorruptPart
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.parts.sums_files import unsummed_files

if TYPE_CHECKING:
    from replitree.replica.table.table_replica import TableReplica

POSTPONED_MAX = 20
"""Postponed entries that a status names."""

QUICK_S = 0.05
"""Sums over parts that took less time are taken anew for each status, in seconds."""

REST = 100.0
"""Sums that took longer are used for so many times that time, while the parts are the same: one per cent of a core at most."""

_SUMS: WeakKeyDictionary[TableReplica, tuple[tuple[str, ...], float, dict[str, int]]] = WeakKeyDictionary()
"""For each table with many parts: the parts that were summed, until when the sums are used, and the sums."""


def status_of(table: TableReplica) -> dict[str, object]:
    """Return what an operator wants to know."""
    index, parts = table.progress.visible()
    place = table.progress.place
    index_of = {part.name: item.index for item in table.progress.queue() for part in item.change.added}
    feed_missing: int | None = None
    # None when the disk refuses to say.
    with suppress(OSError):
        feed_missing = sum(1 for _ in table.maintenance.feed_parts.missing())
    return {
        "table": table.definition.name,
        "replica": table.replica.name,
        "state": table.availability.state.value,
        "reason": table.availability.reason,
        "epoch": table.performer.epoch.current,
        "index": index,
        "log_pointer": place.pointer.index if place is not None else None,
        "schema_version": table.definition.schema_version,
        "queue": table.progress.queue_length(),
        "postponed": table.progress.postponed()[:POSTPONED_MAX],
        "parts": len(parts),
        **_sums(table, parts),
        "lacking": sorted(table.lacking),
        "lost_parts": dict(sorted(table.lost_parts.reasons.items())),
        "unusable_copies": table.sources.salvage.unusable(),
        "declared_lost": dict(table.lost_parts.declared),
        "lost_insert_parts": dict(table.lost_parts.insert_parts),
        "merges_paused": table.maker.is_paused,
        "open_inserts": list(place.open) if place is not None else [],
        "leader": table.leader.leader,
        "prepared": len(table.prepared_rows),
        "running": [
            {
                "index": index_of.get(result),
                "kind": running.kind,
                "result": result,
                "rows_done": running.rows_done,
                "rows_total": running.rows_total,
            }
            for result, running in sorted(table.maker.running().items())
        ],
        "moving": table.mover.status(),
        "expiry": table.expiry.status(),
        "cached_bytes": table.store.shared.copied_bytes,
        "old_since_s": table.old_parts.oldest_s(),
        **table.old_parts.sizes(),
        "feed_missing": feed_missing,
        "consumers": table.consuming.seen,
    }


def _sums(table: TableReplica, parts: tuple[str, ...]) -> dict[str, int]:
    """Return rows, bytes, what lies in the object store, and the parts of earlier versions, of all parts."""
    known, began = _SUMS.get(table), time.monotonic()
    # The tuple of names is another one after every change of the parts; only sums files are made without one.
    if known is not None and known[0] is parts and began < known[1]:
        return known[2]
    manifests = [manifest_if_there(table, part) for part in parts]
    stored = [manifest for manifest in manifests if manifest is not None and manifest.share_id is not None]
    sums = {
        "store_parts": len(stored),
        "store_bytes": sum(manifest.bytes for manifest in stored),
        "rows": sum(manifest.rows for manifest in manifests if manifest is not None),
        "bytes": sum(manifest.bytes for manifest in manifests if manifest is not None),
        "without_checksums": sum(_is_unsummed(table, *each) for each in zip(parts, manifests, strict=True)),
        "without_digest": sum(manifest is not None and not manifest.is_bound for manifest in manifests),
    }
    ended = time.monotonic()
    if ended - began > QUICK_S:
        _SUMS[table] = (parts, ended + REST * (ended - began), sums)
    return sums


def _is_unsummed(table: TableReplica, part: str, manifest: PartManifest | None) -> bool:
    """Whether a part's manifest has no checksum, or one of its large files no sums file; the check of parts makes both."""
    if manifest is None:
        return False
    # The store is not asked for parts in shares: an unchecked part of an earlier version has no checksum of its manifest.
    if not manifest.is_sealed or part in table.mending.unsummed:
        return True
    return unsummed_files(table.store.part_path(part), manifest) > 0


def manifest_if_there(table: TableReplica, part: str) -> PartManifest | None:
    """Return a published part's manifest; None when it is not whole here, or has just left."""
    try:
        return table.store.manifest(part)
    except CorruptPart:
        return None


def measure(table: TableReplica) -> None:
    """Set the gauges."""
    name, metrics = table.definition.name, table.metrics
    place = table.progress.place
    metrics.queue.labels(name).set(table.progress.queue_length())
    metrics.parts.labels(name).set(table.progress.visible_count())
    metrics.lacking.labels(name).set(len(table.lacking))
    metrics.pointer.labels(name).set(place.pointer.index if place is not None else 0)
    metrics.leading.labels(name).set(table.leader.is_leading)
    metrics.making.labels(name).set(len(table.maker.running()))
    sizes = table.old_parts.sizes()
    metrics.old_parts.labels(name).set(sizes["old_parts"])
    metrics.old_bytes.labels(name).set(sizes["old_bytes"])
    metrics.packed_parts.labels(name).set(sizes["packed_parts"])
    metrics.leases.labels(name).set(sizes["leases"])
    _measure_troubles(table)


def _measure_troubles(table: TableReplica) -> None:
    """Set the gauges that alerts compare with limits."""
    name, metrics, settings = table.definition.name, table.metrics, table.definition.settings
    metrics.partition_parts.labels(name).set(table.progress.partition_parts_max())
    metrics.parts_delay.labels(name).set(settings.parts_delay)
    metrics.parts_max.labels(name).set(settings.parts_max)
    metrics.postponed_s.labels(name).set(table.progress.postponed_s())
    metrics.unavailable.labels(name).set(len(table.lost_parts.reasons))
    metrics.declared_lost.labels(name).set(len(table.lost_parts.declared))
    metrics.merges_paused.labels(name).set(table.maker.is_paused)
    metrics.moving_tries.labels(name).set(table.mover.tries_max())
    metrics.store_problem.labels(name).set(bool(table.mover.problem()))
    metrics.consumers_used.labels(name).set(max((each.used for each in table.consuming.seen), default=0.0))
    metrics.consumers_expired.labels(name).set(sum(bool(each.expired) for each in table.consuming.seen))
