"""Times of entries that must be known."""

from __future__ import annotations

from datetime import datetime

from replitree.client.read.table_log import HistoryEntry


def time_of(entry: HistoryEntry) -> datetime:
    """Return when an entry was written."""
    assert entry.time is not None
    return entry.time
