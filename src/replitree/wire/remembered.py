"""Entries as replicas remember them, when the log in coordination has them no more.

A replica writes a `Summary` of each entry beside what it changed (`replitree.replica.kit.version_log`).  A client shows it in a
table's history as it shows an entry that is in the log (`replitree.client.read.table_log`): both take it from `summary_of`.

Absent on purpose: deduplication ids, and everything else that only a replica that executes the entry needs.
"""

from __future__ import annotations

from typing import assert_never

import msgspec
from msgspec import UNSET

from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    AlterEntry,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    LostEntry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    RollEntry,
    SettleEntry,
    StorageEntry,
    ViewEntry,
    dropped_partitions,
)
from replitree.storage.schema.retention import read_retention
from replitree.wire.block_ids import restored_version

PAGE_MAX = 10_000
"""Entries that a replica sends at once."""


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """What an entry does.  On disk and in answers it is an array: fields are added at its end.

    Attributes
    ----------
    kind
        As the entry says it.
    replica
        The replica that appended it.
    rows, bytes
        What an insert or a rewrite has written; None for other kinds.
    text
        What it does, in words; of a mutation its command, as it stands in the log.
    """

    kind: str
    replica: str
    rows: int | None = None
    bytes: int | None = None
    text: str = ""


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry that a replica remembers.

    Attributes
    ----------
    index
        Where it was in the log.
    ms
        When it was written, in milliseconds since 1970 by coordination's clock; 0: unknown.
    entry
        What it did; None: an earlier version of replitree, which kept nothing of that, has pulled it.
    """

    index: int
    ms: int = 0
    entry: Summary | None = None


class Earlier(msgspec.Struct, frozen=True):
    """What a replica answers: the entries below an index, the newest first, without a gap."""

    entries: tuple[Remembered, ...]


def summary_of(entry: Entry) -> Summary:
    """Return what an entry does."""
    rows = size = None
    if isinstance(entry, GetEntry | RewriteEntry):
        parts = entry.parts if isinstance(entry, GetEntry) else entry.inserts
        results = () if isinstance(entry, GetEntry) else entry.results
        rows = sum(part.rows for part in parts) + sum(part.rows for part in results)
        size = sum(part.bytes for part in parts) + sum(part.bytes for part in results)
    return Summary(str(type(entry).__struct_config__.tag), entry.replica, rows, size, _text(entry))


def _text(entry: Entry) -> str:
    match entry:
        case GetEntry():
            version, dropped = restored_version(entry.blocks), dropped_partitions(entry)
            overwrites = f"overwrites {_partitions(dropped)}" if dropped else ""
            return overwrites if version is None else f"restore_to {version}"
        case SettleEntry() | FailEntry():
            return f"insert {entry.index}"
        case MergeEntry():
            return ", ".join(entry.sources)
        case MutateEntry():
            return entry.command
        case RewriteEntry():
            return ", ".join(each.source for each in entry.results)
        case DropEntry(block_min=None):
            return f"{'detaches' if entry.detach else 'drops'} {_partitions((entry.partition,))}"
        case DropEntry():
            return f"drops blocks {entry.block_min} to {entry.block_max} of {_partitions((entry.partition,))}"
        case AlterEntry():
            return entry.command
        case StorageEntry():
            return entry.storage if entry.keep is UNSET else f"keeps old parts {_retention(entry.keep)}"
        case ViewEntry():
            return f"view {entry.name} into {entry.target} {'ends' if entry.command is UNSET else 'begins'}"
        case LostEntry() | RollEntry():
            return entry.part if isinstance(entry, LostEntry) else ""
        case _:
            assert_never(entry)


def _retention(text: str) -> str:
    keep, feed, ttl = read_retention(text)
    of_feed, of_rows = f", the change feed {feed}" if feed else "", f", rows until {ttl}" if ttl else ""
    return f"{keep or 'by default'}{of_feed}{of_rows}"


def _partitions(names: tuple[str, ...]) -> str:
    return "every partition" if EVERY_PARTITION in names else f"partition {', '.join(names)}"


__all__ = ["PAGE_MAX", "Earlier", "Remembered", "Summary", "summary_of"]
