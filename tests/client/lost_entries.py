"""Change feeds of which one entry can't be given: what it has brought is lost on all replicas."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.parts import Part
from replitree.replica.kit.feed_journal import FedEntry, FeedJournal

LOST = LogIndex(1)


def lose_second_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rows of the entry at index 1 of every log be lost."""

    def lost_after(
        _journal: FeedJournal, _index: LogIndex, entries: Iterable[FedEntry]
    ) -> tuple[LogIndex, Part] | None:
        damaged = (each for each in entries if each.index == LOST and each.feed.units)
        found = next(damaged, None)
        return None if found is None else (LOST, found.feed.units[0].part)

    monkeypatch.setattr(FeedJournal, "lost_after", lost_after)


__all__ = ["lose_second_entry"]
