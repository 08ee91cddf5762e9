"""A disk with old parts that are packed, at a time that can be set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from replitree.protocol.core.effects import EntryId, LogIndex, Version
from replitree.protocol.core.parts import parse_part
from replitree.protocol.upkeep.consumers import NO_CONSUMERS, Consumers
from replitree.protocol.upkeep.tags import NO_TAGS, Tags, TagValue
from replitree.replica.kit.old_parts import RETIRED, OldParts
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.encode import stage_table
from replitree.storage.schema.definition import define_table
from tests.replica.inprocess import SCHEMA, rows

AFTER_S = 3_600.0
COUNT = 12


def name(number: int) -> str:
    return f"all_{number}_{number}_0"


class Feed:
    """Needs the part of each number from `first` on."""

    def __init__(self, first: int = 0) -> None:
        self.first = first

    def unneeded(self, parts: Sequence[str]) -> tuple[str, ...]:
        return tuple(part for part in parts if parse_part(part).block_min < self.first)

    def needed_from(self, parts: Sequence[str], index: LogIndex) -> frozenset[str]:
        return frozenset(part for part in parts if parse_part(part).block_min >= index)


def tags_of(*parts: str) -> Tags:
    return Tags(Version(0), (("v1", TagValue(LogIndex(1), EntryId("t"), "r1", parts, 0, 0)),))


def filled(root: Path, count: int = COUNT) -> PartStore:
    store, definition = PartStore(root), define_table("t", SCHEMA, order_by="k")
    for number in range(count):
        list(stage_table(rows(number, 1), definition, store.staging, prefix=store.staging_prefix("x")))
        store.staged.publish("x", {"all": name(number)})
    return store


class Disk:
    """The old parts of a table, at a time that can be set."""

    def __init__(self, store: PartStore, feed: Feed | None = None) -> None:
        self.now = 1_000_000.0
        self.feed = feed or Feed()
        self.start(store)

    def start(self, store: PartStore) -> None:
        """Begin a process."""
        self.store = store
        self.old = OldParts(store, 0.0, lambda: self.now)
        self.old.feed = self.feed
        self.old.read_sizes()

    def retire(self, *numbers: int) -> None:
        self.old.retire(map(name, numbers))
        for number in numbers:
            os.utime(self.store.root / RETIRED / name(number), (self.now, self.now))

    def pack(self, wait_s: float = 2 * AFTER_S) -> int:
        self.now += wait_s
        packed = self.old.pack(AFTER_S)
        self.old.remove_copies()
        return packed

    def remove(self, tags: Tags = NO_TAGS, consumers: Consumers = NO_CONSUMERS) -> int:
        return self.old.remove_chosen(self.old.choose_due(), tags, consumers)

    def read(self, *numbers: int) -> set[int]:
        """Read old parts under a lease as a reader does; return those that are there."""
        lease = self.old.lease(map(name, numbers), 60.0)
        self.old.unpack(map(name, numbers))
        found = {number for number in numbers if self.old.is_old(name(number))}
        for number in found:
            self.store.verify(name(number))
        # A round of maintenance takes nothing away from a reader.
        self.old.remove_copies()
        for number in found:
            self.store.verify(name(number))
        self.old.release(lease)
        return found

    @property
    def folders(self) -> set[str]:
        return {*self.store.parts()}

    @property
    def marks(self) -> set[str]:
        return {path.name for path in (self.store.root / RETIRED).iterdir()}
