"""Needed parts: rows of numbers say what a dictionary of names says, in a tenth of its memory."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from random import Random

import pytest

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.fold import Change
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, inserted_part, mutated_part
from replitree.replica.kit import needed_parts
from replitree.replica.kit.feed_journal import FeedJournal
from replitree.replica.kit.needed_parts import NEVER, Need, NeededParts
from replitree.replica.kit.version_log import EntryChange, NotedEntry, Version, VersionLog


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts move into rows after a few others have come."""
    monkeypatch.setattr(needed_parts, "RECENT_PARTS", 5)
    monkeypatch.setattr(needed_parts, "MOVED_AT_ONCE", 3)
    monkeypatch.setattr(needed_parts, "CHUNK_BITS", 3)


def given(parts: NeededParts) -> dict[str, Need]:
    """Everything that is known, as a reader gets it; no part comes twice."""
    found = [*parts.named(), *(each for chunk in parts.chunks() for each in parts.rows(chunk))]
    assert len({name for name, _ in found}) == len(found)
    return dict(found)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("partitions_max", [1 << 20, 2])
def test_rows_say_what_a_dictionary_says(monkeypatch: pytest.MonkeyPatch, partitions_max: int) -> None:
    """Also of parts that are needed again, that come late, and for which a row has no room."""
    monkeypatch.setattr(needed_parts, "_PARTITION_BITS", partitions_max.bit_length() - 1)
    monkeypatch.setattr(needed_parts, "_LATER_MAX", 30)
    for seed in range(12):
        random, parts, told, known = Random(seed), NeededParts(), dict[str, Need](), list[Part]()
        index, over = 0, 0
        for _ in range(120):
            index += random.choice((1, 1, 1, 1, 9, 100))
            need: Need = (1_000 * index, LogIndex(index))
            partitions = random.sample(("all", "2018-01", "x"), random.randint(1, 3))
            known += [inserted_part(each, index) for each in partitions]
            some = {known[-1], random.choice(known), random.choice(known[-20:])}
            if random.random() < 0.2:
                some |= {mutated_part(part, index) for part in some}
            for part in sorted(some):
                parts.add(part, need)
                told[part.name] = need
            if random.random() < 0.1:
                over = max(over, index - random.randint(0, 60))
                assert parts.forget(lambda need, over=over: need[1] < over) < over  # type: ignore[misc]
                assert not parts.has_before(1_000 * over)
                left = given(parts)
                # Rows stay until their chunk can go; what they say may be older.
                told = {name: each if each[1] >= over else left[name] for name, each in told.items() if name in left}
            names = [part.name for part in (*known, mutated_part(known[0], index))]
            assert parts.of(names) == [told.get(name, NEVER) for name in names], seed
            assert given(parts) == told, seed
        named = [need[1] for _, need in parts.named()]
        assert named == sorted(named, reverse=True)
        parts.forget(lambda _: True)
        assert given(parts) == {}


def an_insert(index: int) -> NotedEntry:
    """A third of the inserts goes into another partition."""
    change = Change((), (inserted_part("ab"[index % 3 == 0], index),))
    return NotedEntry(LogIndex(index), EntryChange(LogIndex(index + 1), change, (), 1, "get"), 1_000_000 + index)


def test_a_journal_takes_at_most_20_bytes_for_each_old_part_of_an_insert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those with names are so few here that they don't count.
    monkeypatch.setattr(needed_parts, "RECENT_PARTS", 16)
    monkeypatch.setattr(needed_parts, "MOVED_AT_ONCE", 16)
    count, log = 16_384, VersionLog(tmp_path, "5f0c")
    log.begin(Version(LogIndex(0), PartSet()))
    journal = FeedJournal(log, lambda: 3_600.0, lambda: 3_601.0)
    journal.read()
    entries = [*map(an_insert, range(count))]
    gc.collect()
    tracemalloc.start()
    journal.appended(entries)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / count < 20.0, "bytes for each part"
    assert journal.unneeded(["a_7_7_0", "a_9_9_0", "b_9_9_0"]) == ("a_9_9_0",)
    assert sum(1 for _ in journal.needed()) == count
