"""What a table replica says of itself: its status for operators, and its gauges."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from replitree.errors import CorruptPart
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.parts.sums_files import unsummed_files

if TYPE_CHECKING:
    from replitree.replica.table.table_replica import TableReplica

POSTPONED_MAX = 20
"""Postponed entries that a status names."""

QUICK_S = 0.05
"""Sums over parts that took less CPU time are taken anew for each status, in seconds."""

REST = 400.0
"""Manifests of all parts are read again after so many times the time that this took: a quarter of a per cent of a core."""


class _Sums(NamedTuple):
    """What was summed of a table's parts.

    Attributes
    ----------
    parts
        The visible parts, as `Progress.visible` gave them.
    until, all_until
        Until when the sums are used while the parts are the same, and the rows of `known` whatever the parts are.
    known
        Of each part with nothing left to be done the numbers that are summed, in the order of `SUMMED`.
    sums
        The sums, by name.
    """

    parts: tuple[str, ...]
    until: float
    all_until: float
    known: dict[str, tuple[int, ...]]
    sums: dict[str, int]


SUMMED = ("rows", "bytes", "store_parts", "store_bytes", "without_checksums", "without_digest")
"""The numbers that are summed over parts."""

_SUMS: WeakKeyDictionary[TableReplica, _Sums] = WeakKeyDictionary()
"""What was summed last, by table."""


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
    # CPU time: beside other work a small table takes no longer.
    last, now, began = _SUMS.get(table), time.monotonic(), time.thread_time()
    # The tuple of names is another one after every change of the parts; only sums files are made without one, and moves.
    if last is not None and last.parts is parts and now < last.until:
        return last.sums
    known = last.known if last is not None and now < last.all_until else {}
    rows = {part: known.get(part) or _numbers(table, part) for part in parts}
    sums = dict(zip(SUMMED, map(sum, zip(*rows.values(), strict=True)), strict=False)) or dict.fromkeys(SUMMED, 0)
    took = time.thread_time() - began
    if not known and took <= QUICK_S:
        return sums
    # Only the manifests of new parts are read next time, and those that are broken, or not yet fully checksummed.
    whole = {part: row for part, row in rows.items() if row[1] and not row[4]}
    all_until = last.all_until if last is not None and known else now + REST * took
    _SUMS[table] = _Sums(parts, now + REST * took, all_until, whole, sums)
    return sums


def _numbers(table: TableReplica, part: str) -> tuple[int, ...]:
    """Return what is summed of one part, in the order of `SUMMED`."""
    manifest = manifest_if_there(table, part)
    if manifest is None:
        return (0, 0, 0, 0, 0, 0)
    stored = manifest.share_id is not None
    unsummed = _is_unsummed(table, part, manifest)
    return (manifest.rows, manifest.bytes, stored, stored * manifest.bytes, unsummed, not manifest.is_bound)


def _is_unsummed(table: TableReplica, part: str, manifest: PartManifest) -> bool:
    """Whether a part's manifest has no checksum, or one of its large files no sums file; the check of parts makes both."""
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
