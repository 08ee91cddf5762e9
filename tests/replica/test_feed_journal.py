"""The feed's journal gives the definition, whatever a start, a roll or an older version leaves of the version log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from replitree.errors import BadInput, ReplicaUnavailable
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.fold import Change
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.feed.definition import EntryFeed, OpenInserts, advance, step_of, timestamp_us
from replitree.protocol.upkeep.consumers import NO_FLOOR
from replitree.replica.kit.feed_journal import FeedJournal
from replitree.replica.kit.logs import Log
from replitree.replica.kit.old_parts import OldParts
from replitree.replica.kit.version_log import EntryChange, Version, VersionLog
from replitree.replica.perform import versions
from replitree.replica.perform.context import LocalParts
from replitree.replica.table.feeds import Feeds
from replitree.storage.disk.store import PartStore
from tests.replica.test_versions import History, Process

KEPT_S = 3_600.0


def told(history: History) -> Iterator[tuple[LogIndex, int, EntryFeed]]:
    """What the definition says of each entry: index, timestamp and feed."""
    opens, last_us = OpenInserts(), 0
    for item, after in zip(history.log, history.versions[1:], strict=True):
        opens, feed = advance(opens, step_of(item.entry, item.change, after.opened))
        last_us = timestamp_us(last_us, history.times[item.index])
        yield item.index, last_us, feed


def given_by(process: Process, start: int, end: int) -> list[tuple[LogIndex, int, EntryFeed]]:
    journal = process.versions.journal
    return [(each.index, each.timestamp_us, each.feed) for each in journal.entries(LogIndex(start), LogIndex(end))]


def test_the_journal_gives_the_definition_whatever_process_has_written_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "SEGMENT_ENTRIES", 7)
    for seed in range(60):
        random = Random(seed)
        history = History(random, 40, rolls_at=random.choice((-1, 20)))
        wanted = list(told(history))
        folder = tmp_path / str(seed)
        folder.mkdir()
        process = Process(folder, history, 0)
        for pulled in sorted(random.sample(range(1, 41), 12)):
            process.pull(pulled - process.pulled)
            if random.random() < 0.3:
                # Another process goes on: it knows only what is on the disk, and maybe missed some entries.
                process = Process(folder, history, pulled)
                process.versions.catch_up()
            process.versions.journal.read()
            end = process.versions.journal.end
            assert end == history.versions[pulled].index
            assert process.versions.journal.first == 0
            known = [each for each in wanted if each[0] < end]
            start = random.choice([each[0] for each in known])
            assert given_by(process, start, end) == [each for each in known if each[0] >= start]


def test_the_feed_begins_behind_lines_that_do_not_say_their_kind(tmp_path: Path) -> None:
    log = VersionLog(tmp_path / "versions", "5f0c")
    parts = [(parse_part(f"a_{i}_{i}_0"),) for i in range(4)]
    log.begin(Version(LogIndex(0), History(Random(0), 0).versions[0].parts))
    log.append([EntryChange(LogIndex(1), Change((), parts[0]), (LogIndex(0),), 5)])
    log.append([EntryChange(LogIndex(2), Change((), parts[1]), (LogIndex(0),), 0, "get")])
    log.append([EntryChange(LogIndex(3), Change((), parts[2]), (LogIndex(0),), 7, "get")])
    log.append([EntryChange(LogIndex(4), Change(), (), 7, "settle")])
    log.append([EntryChange(LogIndex(5), Change(), (), 9, "of a newer version")])
    log.append([EntryChange(LogIndex(6), Change(), (), 9, "roll")])
    journal = FeedJournal(VersionLog(tmp_path / "versions", "5f0c"), lambda: KEPT_S)
    journal.read()
    assert (journal.first, journal.end) == (5, 6)
    known = VersionLog(tmp_path / "versions", "5f0c")
    (segment,) = known.segments(LogIndex(0))
    assert [noted.timestamp_us for noted in segment.entries] == [0, 0, 7_000, 7_001, 0, 9_000]


def test_entries_that_are_gone_are_refused_and_never_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "versions"
    log, empty = VersionLog(folder, "5f0c"), History(Random(0), 0).versions[0].parts
    for first in (0, 2, 4):
        log.begin(Version(LogIndex(first), empty))
        log.append(
            [
                EntryChange(LogIndex(first + 1), Change(), (), 5, "roll"),
                EntryChange(LogIndex(first + 2), Change(), (), 6, "roll"),
            ]
        )
    journal = FeedJournal(log, lambda: KEPT_S)
    journal.read()

    def given(start: int, end: int) -> list[int]:
        return [each.index for each in journal.entries(LogIndex(start), LogIndex(end))]

    assert given(1, 5) == [1, 2, 3, 4]
    assert given(6, 6) == []
    whole = (folder / "4").read_bytes()
    (folder / "4").write_bytes(whole[:-5])
    assert given(1, 5) == [1, 2, 3, 4]
    (folder / "2").unlink()
    for start, end in ((1, 5), (2, 5), (3, 4), (4, 6)):
        with pytest.raises(ReplicaUnavailable, match="does not have all entries"):
            given(start, end)
    (folder / "0").unlink()
    with pytest.raises(ReplicaUnavailable, match="does not have all entries"):
        given(1, 2)
    assert given(4, 5) == [4]
    journal.removed_before(LogIndex(4))
    assert journal.first == 4


def test_parts_are_needed_for_as_long_as_the_feed_is_kept(tmp_path: Path) -> None:
    log = VersionLog(tmp_path / "versions", "5f0c")
    log.begin(Version(LogIndex(0), History(Random(0), 0).versions[0].parts))
    now_ms, kept_s = int(time.time()) * 1_000, [KEPT_S]
    old, new, merged = (parse_part(name) for name in ("a_0_0_0", "a_1_1_0", "a_0_1_1"))
    mutated = parse_part("a_0_1_1_3")
    changes: tuple[tuple[str, Change, int], ...] = (
        ("get", Change((), (old,)), now_ms - 4_000_000),
        ("get", Change((), (new,)), now_ms - 1_000_000),
        ("merge", Change((old, new), (merged,)), now_ms),
    )
    noted = [EntryChange(LogIndex(index + 1), change, (), ms, kind) for index, (kind, change, ms) in enumerate(changes)]
    clock = [now_ms / 1_000]
    journal = FeedJournal(log, lambda: kept_s[0], lambda: clock[0])

    def needed() -> list[Part]:
        names = [part.name for part in (old, new, merged, mutated)]
        gone = journal.unneeded(names)
        return [parse_part(name) for name in names if name not in gone]

    log.append(noted)
    assert needed() == [new]
    # The parts before and after a mutation; what was appended is followed.
    journal.appended(log.append([EntryChange(LogIndex(4), Change((merged,), (mutated,)), (), now_ms, "mutate")]))
    assert needed() == [new, merged, mutated]
    assert [*journal.needed()] == [merged.name, mutated.name, new.name]
    clock[0] += 3_000
    assert needed() == [merged, mutated]
    clock[0] += 1_000
    assert needed() == []
    # A consumer holds what entries at or above its index need, whatever the time.
    everything = [part.name for part in (old, new, merged, mutated)]
    assert journal.needed_from(everything, LogIndex(1)) == {new.name, merged.name, mutated.name}
    assert [*journal.needed(LogIndex(3))] == [merged.name, mutated.name]
    assert journal.is_long()
    journal.trim(LogIndex(1))
    assert not journal.is_long(), "it was done a moment ago"
    assert journal.needed_from(everything, LogIndex(1)) == {new.name, merged.name, mutated.name}
    journal.trim(NO_FLOOR)
    assert needed() == []
    # A consumer that begins before the feed's time holds what the version log still names.
    assert journal.needed_from(everything, LogIndex(0)) == {*everything}
    assert [*journal.needed(LogIndex(1))] == [merged.name, mutated.name, new.name]
    kept_s[0] = 100_000.0
    journal.forget()
    assert needed() == [old, new, merged, mutated]


def test_a_replica_that_has_not_written_down_what_it_has_executed_sends_readers_elsewhere(tmp_path: Path) -> None:
    """The process has died after a pull: the index is one of this table, and a consumer would have a hole."""
    history = History(Random(0), 5)
    process = Process(tmp_path, history, 3)
    old = OldParts(PartStore(tmp_path), 3_600.0)
    feeds = Feeds("r1", LocalParts(PartStore(tmp_path), process.progress, old, process.versions), "24h", lambda: None)
    for ask in (lambda: feeds.take(LogIndex(2), None, 0.0), lambda: feeds.check_from(LogIndex(2))):
        with pytest.raises(ReplicaUnavailable, match="has not written down yet what the entries from 0 on changed"):
            ask()
    with pytest.raises(BadInput, match="of another table"):
        feeds.take(LogIndex(4), None, 0.0)
    process.versions.catch_up()
    assert feeds.take(LogIndex(3), None, 0.0).end == 3


@pytest.mark.parametrize(("kept_s", "is_kept"), [(KEPT_S, False), (1e12, True)])
def test_no_consumer_is_made_before_an_old_entry_that_is_not_executed(
    tmp_path: Path, kept_s: float, is_kept: bool
) -> None:
    """The entry may be executed in part, and the feed has let go of what it took out."""
    process = Process(tmp_path, History(Random(0), 5), 0)
    old = OldParts(PartStore(tmp_path), 3_600.0)
    process.versions = versions.Versions(process.progress, old, tmp_path, process.look_up, Log(), lambda: kept_s)
    process.pull(3)
    feeds = Feeds("r1", LocalParts(PartStore(tmp_path), process.progress, old, process.versions), "1h", lambda: None)
    if is_kept:
        feeds.check_from(LogIndex(0))
        return
    with pytest.raises(ReplicaUnavailable, match="has not executed entry 0 yet, which is older than the feed's time"):
        feeds.check_from(LogIndex(0))
