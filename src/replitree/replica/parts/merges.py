"""Choosing merges: what the selector sees of this replica's parts, and putting its choices into the log.

A part is *free* when it is registered here and whole, and no entry of the queue takes it or makes it.  Rows, bytes and age are
those of this disk.

The leader also chooses parts that mutations of the queue are still to make, of parts that are free but for them.  Such a merge
waits for the mutations.  Without it a table whose mutations come faster than they are executed is never merged, and each
mutation has more parts to go through than the one before.  While the first of these mutations fails, the leader leaves such
parts out: merges that wait take the slots of others.

Absent on purpose: the choice itself (`replitree.protocol.propose.select_merges`), and when it is made
(`replitree.replica.table.leader`, or a user by ``OPTIMIZE``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from replitree.errors import CorruptPart
from replitree.protocol.core.effects import Epoch, LogIndex
from replitree.protocol.core.entries import MergeEntry, MutateEntry
from replitree.protocol.core.fold import is_open
from replitree.protocol.core.parts import Part
from replitree.protocol.program.leader import lead
from replitree.protocol.program.stages import LeadTurn, Then
from replitree.protocol.propose.select_merges import Choice, MergeCandidate, SelectorSettings, optimize, select_merges
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state.pull import Queued
from replitree.replica.perform.context import LocalParts, TableContext
from replitree.replica.perform.driver import Driver
from replitree.storage.parts.manifest import MANIFEST_FILE


@dataclass(frozen=True, slots=True)
class _Size:
    """What a part's manifest says, and since when it is on this disk (seconds since the epoch)."""

    rows: int
    bytes: int
    schema_version: int
    born: float


@dataclass(frozen=True, slots=True)
class OptimizeWish:
    """What a client wants to have merged.

    Attributes
    ----------
    partition, final
        Only this one; down to one part, and also the only one.
    below
        Parts with blocks below this index: what comes later is not waited for.
    done
        Partitions whose merge is proposed already.
    """

    partition: str | None
    final: bool
    below: LogIndex
    done: frozenset[str] = frozenset()


class Merges:
    """Chooses merges among the parts of one table replica, and proposes them.

    Parameters
    ----------
    parts
        The parts on this disk, and the leases of those that are being merged elsewhere.
    """

    def __init__(self, context: TableContext, parts: LocalParts) -> None:
        self._context = context
        self._progress = context.progress
        self._store, self._old_parts = parts.store, parts.old_parts
        self._lock = threading.Lock()
        self._reserved: dict[str, frozenset[Part]] = {}
        self._sizes: dict[Part, _Size] = {}
        """Of parts that are here."""
        self._known: dict[Part, _Size] = {}
        """Of the table's parts, by their last names."""
        config = context.config
        self._settings = SelectorSettings(merges_max=config.merges_max, part_bytes_max=config.part_bytes_max)

    def reserve(self, lease: str, parts: Iterable[Part]) -> None:
        """Leave these parts out of merges as long as the lease lasts: they are being merged elsewhere."""
        with self._lock:
            self._reserved[lease] = frozenset(parts)

    def reserved(self) -> frozenset[Part]:
        """Return the parts that are being merged elsewhere."""
        with self._lock:
            if not self._reserved:
                return frozenset()
            for lease in [each for each in self._reserved if not self._old_parts.is_leased(each)]:
                del self._reserved[lease]
            return frozenset[Part]().union(*self._reserved.values())

    def choose(self) -> tuple[Choice, ...]:
        """Return the merges that are worth their cost now."""
        candidates = self.candidates(ahead=True)
        merging = [item for item in self._progress.queue() if isinstance(item.entry, MergeEntry)]
        running: list[int] = []
        for item in merging:
            sizes = [size for source in item.change.removed if (size := self._size(source)) is not None]
            running.append(self._settings.size(sum(size.rows for size in sizes), sum(size.bytes for size in sizes)))
        return select_merges(candidates, self._settings, running=running, bytes_max=self._room())

    def optimize(self, wish: OptimizeWish) -> tuple[Choice, ...]:
        """Return one merge for each partition, of as much as can be merged."""
        found = optimize(self._meant(wish), wish.partition, self._settings, final=wish.final, bytes_max=self._room())
        return tuple(choice for choice in found if choice.sources[0].partition not in wish.done)

    def busy(self, wish: OptimizeWish) -> frozenset[str]:
        """Return the partitions in which a part that is meant is not free to be merged."""
        return frozenset(each.part.partition for each in self._meant(wish) if not each.free) - wish.done

    def _meant(self, wish: OptimizeWish) -> tuple[MergeCandidate, ...]:
        return tuple(
            each
            for each in self.candidates()
            if each.part.block_max < wish.below and wish.partition in (None, each.part.partition)
        )

    def candidates(self, *, ahead: bool = False) -> tuple[MergeCandidate, ...]:
        """Return the table's parts at the pointer as the selector sees them.

        Parameters
        ----------
        ahead
            Whether what mutations of the queue are still to make counts as what it is made of.
        """
        progress, now = self._progress, time.time()
        with progress.changed:
            place, held, queue = progress.place, frozenset(progress.held), progress.queue()
            hidden = frozenset(progress.hidden())
        elsewhere = self.reserved()
        if place is None:
            return ()
        barred = {part for part in place.parts if part.name in hidden or is_open(part, place.open)}
        mutated = self._mutated(queue) if ahead else {}
        busy = {part for item in queue for part in (*item.change.removed, *item.change.added)} - mutated.keys()
        known, sizes = dict[Part, _Size](), dict[Part, _Size]()
        for part in place.parts:
            here, version = (part, 0) if part in held else mutated.get(part, (part, 0))
            if here in held and here.name not in hidden and (size := self._size(here)) is not None:
                sizes[here], known[part] = size, replace(size, schema_version=max(version, size.schema_version))
        self._sizes, self._known = sizes, known
        return tuple(
            MergeCandidate(
                part,
                known[part].rows if part in known else 0,
                known[part].bytes if part in known else 0,
                int(max(0.0, now - known[part].born)) if part in known else 0,
                part in known and part not in busy and part not in elsewhere and part not in barred,
            )
            for part in place.parts
        )

    def _mutated(self, queue: Iterable[Queued]) -> dict[Part, tuple[Part, int]]:
        """Return what mutations of the queue make: of which part in the end, and the latest columns that they know."""
        made: dict[Part, tuple[Part, int]] = {}
        for item in queue:
            if isinstance(item.entry, MutateEntry):
                if not made and self._progress.why_waiting(item.index)[1]:
                    return {}
                for source, result in zip(item.change.removed, item.change.added, strict=True):
                    here, version = made.pop(source, (source, 0))
                    made[result] = (here, max(version, item.entry.schema_version))
        return made

    def _size(self, part: Part) -> _Size | None:
        known = self._sizes.get(part)
        if known is not None:
            return known
        store = self._store
        try:
            manifest = store.manifest(part.name)
            born = (store.part_path(part.name) / MANIFEST_FILE).stat().st_mtime
        except (CorruptPart, OSError):
            return None
        return _Size(manifest.rows, manifest.bytes, manifest.schema_version, born)

    def _room(self) -> int:
        return max(0, self._store.free_bytes() - self._context.config.disk_reserve_bytes)

    def propose(self, epoch: Epoch, choices: Sequence[Choice]) -> tuple[LogIndex, ...]:
        """Append merges to the log; return their indexes, as far as they are known to be there."""
        me = self._context.replica.name
        entries = [
            MergeEntry(me, tuple(part.name for part in each.sources), self.schema_version(each.sources))
            for each in choices
        ]
        return self.propose_entries(epoch, entries)

    def propose_entries(
        self, epoch: Epoch, entries: Sequence[MergeEntry], maker: Sharer | None = None
    ) -> tuple[LogIndex, ...]:
        """Append entries of merges to the log; return their indexes, as far as they are known to be there.

        `maker`: as of `lead`.
        """
        turn = LeadTurn(epoch, self._progress.pointer)
        then = Then(lead, (self._context.replica, tuple(entries), maker))
        indexes: tuple[LogIndex, ...] = Driver(self._context.performer, lambda _: turn).finish(then)
        return indexes

    def schema_version(self, sources: Sequence[Part]) -> int:
        """Return the version of the columns that a merge of these parts is written with."""
        known = self._known
        versions = (
            known[part].schema_version if part in known else self._store.manifest(part.name).schema_version
            for part in sources
        )
        return max(self._context.definitions.current.schema_version, *versions)
