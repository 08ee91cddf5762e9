"""Earlier versions on disk: whatever a crash leaves of the version log, a version that is known is the fold of the log."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import CoordinationUnavailable
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex, StagedPart, StagingId
from replitree.protocol.core.entries import Entry, FailEntry, GetEntry, RollEntry, SettleEntry, encode_entry
from replitree.protocol.core.fold import apply, open_after
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import next_index
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.state.pull import Loaded, Place, Pointer, Queued
from replitree.replica.kit import version_log
from replitree.replica.kit.logs import Log
from replitree.replica.kit.old_parts import OldParts
from replitree.replica.kit.version_log import Version, VersionLog
from replitree.replica.perform import versions
from replitree.replica.perform.progress import Progress
from replitree.replica.perform.versions import Versions
from replitree.storage.disk.store import PartStore
from replitree.wire.reached import Reached
from replitree.wire.remembered import Remembered, summary_of
from tests.protocol.test_fold import draw

TABLE = TablePlace("/t", incarnation="5f0c")
START = Version(LogIndex(0), PartSet())


class History:
    """A random log with open inserts, and what the table was below each of its entries and at its end."""

    def __init__(self, random: Random, length: int, rolls_at: int = -1) -> None:
        self.log: list[Queued] = []
        self.versions = [START]
        seen = [PartSet()]
        while len(self.log) < length:
            now = self.versions[-1]
            entry = RollEntry("r1") if len(self.log) == rolls_at else self._draw(random, now, seen)
            parts, change = apply(now.parts, now.index, entry, opened=now.opened)
            self.log.append(Queued(now.index, entry, change))
            opened = open_after(now.opened, now.index, entry)
            self.versions.append(Version(next_index(now.index, entry), parts, opened))
            seen.append(parts)
        self.nodes = {layout.log_entry(TABLE, item.index): encode_entry(item.entry) for item in self.log}
        # Coordination's clock goes on, stands still, and goes back when another server leads.
        self.times, now_ms = dict[LogIndex, int](), 1_000
        for item in self.log:
            now_ms = max(1, now_ms + random.choice((0, 1, 7, 50, 50, -random.randrange(100))))
            self.times[item.index] = now_ms

    def written_by(self, time_ms: int, below: int) -> int | None:
        """Return the index after the last entry below an index that was written at or before a time."""
        found = [
            next_index(item.index, item.entry)
            for item in self.log
            if item.index < below and self.times[item.index] <= time_ms
        ]
        return int(found[-1]) if found else None

    def _draw(self, random: Random, now: Version, seen: list[PartSet]) -> Entry:
        chance = random.random()
        if chance < 0.1:
            parts = (StagedPart("a", 1, 1, "h"),)
            return GetEntry("r1", StagingId(f"s{now.index}"), parts, (), format=3, quorum=2)
        if chance < 0.2 and now.opened:
            index = random.choice(now.opened)
            staging = StagingId(f"s{index}")
            if random.random() < 0.5:
                return SettleEntry("r1", staging, index, ("r1", "r2"))
            return FailEntry("r1", staging, index, ("a",))
        return draw(random, now.parts, seen, now.index)

    def place(self, pulled: int) -> Place:
        now = self.versions[pulled]
        return Place(Pointer(now.index, fx.Version(pulled), now.opened), now.parts)


class Process:
    """One life of a replica's process: its memory begins where the replica stands, its version log is on the disk."""

    def __init__(
        self, folder: Path, told: History, pulled: int, first_kept: int = 0, incarnation: str = "5f0c"
    ) -> None:
        self.told, self.pulled, self.first_kept = told, pulled, first_kept
        self.progress = Progress(Replica(TablePlace("/t", incarnation=incarnation), "r1"))
        self.take_over()
        self.versions = Versions(self.progress, OldParts(PartStore(folder), 3600.0), folder, self.look_up, Log())

    def take_over(self) -> None:
        """Load the replica's state, as a start and a reload do."""
        place = self.told.place(self.pulled)
        assert self.progress.take_over(Loaded(place, (), place.parts), self.progress.begin_load()) is not None

    def look_up(self, procedure: fx.Procedure[Any]) -> Any:
        def perform(effect: object) -> fx.Many:
            assert isinstance(effect, fx.GetMany)
            kept = {layout.log_entry(TABLE, item.index) for item in self.told.log[self.first_kept :]}
            return fx.Many(
                tuple(
                    fx.Node(self.told.nodes[path], fx.Version(0), self.told.times[layout.index_of(TABLE, path)])
                    if path in kept
                    else None
                    for path in effect.paths
                )
            )

        return run(procedure, perform)

    def pull(self, count: int, *, taken_in: bool = True, untimed: frozenset[LogIndex] = frozenset()) -> None:
        items = self.told.log[self.pulled : self.pulled + count]
        self.pulled += len(items)
        if taken_in and items:
            times = {item.index: self.told.times[item.index] for item in items if item.index not in untimed}
            self.versions.take_in(items, self.told.place(self.pulled), times)
        self.progress.pulled(self.told.place(self.pulled), items)

    def known(self) -> dict[int, Version]:
        """What is known, by index; all of it must be what the log says."""
        found = {}
        for version in self.told.versions[: self.pulled + 1]:
            at = self.versions.at(version.index)
            assert at in (None, version)
            if at is not None:
                found[int(version.index)] = at
        return found

    def times(self, time_ms: int, pulled: int) -> Reached:
        """Search for a time below a version; whatever is answered must be what the log says."""
        below = self.told.versions[pulled].index
        reached = self.versions.written_by(time_ms, below)
        expected = self.told.written_by(time_ms, below)
        if reached.index is not None:
            assert reached.index == expected
        later = [item.index for item in self.told.log if reached.below <= item.index < below]
        assert all(self.told.times[index] > time_ms for index in later)
        assert reached.below <= below
        assert reached.written_ms in (0, self.told.times.get(LogIndex(reached.below), 0))
        return reached

    def remembered(self, pulled: int, limit: int = 1_000) -> list[Remembered]:
        """What is remembered of the entries below a version, newest first; all of it must be what the log says."""
        found = self.versions.before(self.told.versions[pulled].index, limit)
        assert len(found) <= limit
        for each, item in zip(found, reversed(self.told.log[:pulled]), strict=False):
            assert (each.index, each.entry) == (item.index, summary_of(item.entry))
            assert each.ms in (0, self.told.times[item.index])
        return found


def segments(folder: Path) -> list[Path]:
    return sorted((folder / "versions").iterdir(), key=lambda path: int(path.name))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of few entries."""
    monkeypatch.setattr(versions, "SEGMENT_ENTRIES", 5)


def nothing(_: list[Path], __: Random) -> None:
    """A process that was killed: what it has written is there."""


def cut(files: list[Path], random: Random) -> None:
    """A machine that failed: the end of the last file was not written."""
    if files:
        os.truncate(files[-1], random.randrange(files[-1].stat().st_size + 1))


def rot(files: list[Path], random: Random) -> None:
    """A byte of any file is another one."""
    if files:
        file = random.choice(files)
        data = bytearray(file.read_bytes())
        if data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            file.write_bytes(data)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("damage", [nothing, cut, rot])
@given(seed=st.integers(0, 2**32), pulls=st.lists(st.integers(1, 9), min_size=2, max_size=12))
def test_what_is_known_after_any_crash_is_what_the_log_says(
    tmp_path_factory: pytest.TempPathFactory,
    damage: Callable[[list[Path], Random], None],
    seed: int,
    pulls: list[int],
) -> None:
    random, folder = Random(seed), tmp_path_factory.mktemp("t")
    told = History(random, sum(pulls), rolls_at=random.choice((-1, 7)))
    process = Process(folder, told, 0)
    process.versions.catch_up()
    for count in pulls:
        if random.random() < 0.3:
            damage(segments(folder), random)
            process = Process(folder, told, process.pulled)
            # The catching up of a start pulls before the process remembers anything.
            process.pulled = min(len(told.log), process.pulled + random.randrange(3))
            process.take_over()
        untimed = frozenset(item.index for item in told.log if random.random() < 0.02)
        process.pull(count, taken_in=random.random() < 0.9, untimed=untimed)
        process.known()
        process.times(random.randrange(2_000), random.randrange(process.pulled + 1))
        process.remembered(random.randrange(process.pulled + 1), random.randrange(1, 30))
    process.versions.catch_up()
    known = process.known()
    assert int(told.versions[process.pulled].index) in known
    if damage is not rot:
        # The whole log is there: what was cut off is read in it, unless a whole segment is lost.
        begins = [int(path.name) for path in segments(folder)]
        assert set(known) >= {
            int(each.index) for each in told.versions[: process.pulled + 1] if each.index >= begins[0]
        }


@pytest.mark.usefixtures("small")
@given(seed=st.integers(0, 2**32), pulls=st.lists(st.integers(1, 9), min_size=2, max_size=12))
def test_every_time_is_known_after_restarts(
    tmp_path_factory: pytest.TempPathFactory, seed: int, pulls: list[int]
) -> None:
    random, folder = Random(seed), tmp_path_factory.mktemp("t")
    told = History(random, sum(pulls), rolls_at=random.choice((-1, 7)))
    process = Process(folder, told, 0)
    process.versions.catch_up()
    for count in pulls:
        if random.random() < 0.3:
            # The cleaner leaves what this replica has not pulled.
            process = Process(folder, told, process.pulled, first_kept=process.pulled)
        process.pull(count)
    for time_ms in {*told.times.values(), 0, 1, min(told.times.values()) - 1, max(told.times.values()) + 1}:
        for pulled in {process.pulled, random.randrange(process.pulled + 1)}:
            reached = process.times(time_ms, pulled)
            expected = told.written_by(time_ms, told.versions[pulled].index)
            assert reached.index == expected
            if expected is None and pulled:
                assert (reached.below, reached.written_ms) == (0, told.times[LogIndex(0)])
            found = process.remembered(pulled)
            assert [each.ms for each in found] == [told.times[item.index] for item in reversed(told.log[:pulled])]
            assert process.remembered(pulled, 7) == found[:7]


@pytest.mark.usefixtures("small")
def test_times_before_entries_that_the_cleaner_took_are_not_answered(tmp_path: Path) -> None:
    told = History(Random(3), 60)
    told.times.update({LogIndex(index): 1_000 + index for index in range(60)})
    # The clock went back for a moment while this replica was away.
    told.times[LogIndex(30)] = 500
    process = Process(tmp_path, told, 0)
    process.versions.catch_up()
    process.pull(20)
    process.pull(2)
    process = Process(tmp_path, told, 50, first_kept=35)
    process.versions.catch_up()
    process.pull(4)
    for time_ms in (600, 1_010, 1_021, 1_030, 1_049):
        reached = process.times(time_ms, 54)
        assert (reached.index, reached.below) == (None, 50)
    assert process.times(1_010, 22).index == 11, "a search that begins before the gap goes on"
    assert [each.index for each in process.remembered(54)] == [53, 52, 51, 50]
    assert [each.index for each in process.remembered(22)] == list(reversed(range(22)))
    assert process.remembered(50) == process.remembered(40) == []


@pytest.mark.usefixtures("small")
def test_segment_that_was_deleted_by_hand_ends_the_search(tmp_path: Path) -> None:
    told = History(Random(3), 30)
    told.times.update({LogIndex(index): 1_000 + index for index in range(30)})
    process = Process(tmp_path, told, 0)
    process.versions.catch_up()
    for _ in range(6):
        process.pull(5)
    (tmp_path / "versions" / "15").unlink()
    process = Process(tmp_path, told, 30)
    assert process.times(1_022, 30).index == 23
    assert process.times(1_004, 30) == Reached(below=20, written_ms=1_020)


@pytest.mark.usefixtures("small")
def test_search_for_a_time_reads_the_entries_of_one_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = History(Random(3), 50)
    told.times.update({LogIndex(index): 1_000 + index for index in range(50)})
    process = Process(tmp_path, told, 0)
    process.versions.catch_up()
    for _ in range(10):
        process.pull(5)
    read, content = list[str](), Path.read_bytes

    def note(path: Path) -> bytes:
        read.append(path.name)
        return content(path)

    monkeypatch.setattr(Path, "read_bytes", note)
    assert process.times(1_012, 50).index == 13
    assert read == ["10"]


def test_every_version_is_known_after_restarts_when_the_log_was_cleaned(tmp_path: Path) -> None:
    told = History(Random(3), 60)
    process = Process(tmp_path, told, 0)
    process.versions.catch_up()
    process.pull(40)
    process = Process(tmp_path, told, 45, first_kept=38)
    process.pull(5)
    assert sorted(process.known()) == list(range(51))


@pytest.mark.usefixtures("small")
def test_versions_that_the_log_has_lost_stay_unknown_and_others_are_known(tmp_path: Path) -> None:
    told = History(Random(3), 60)
    process = Process(tmp_path, told, 0)
    process.versions.catch_up()
    process.pull(20)
    process = Process(tmp_path, told, 50, first_kept=30)
    process.versions.catch_up()
    process.pull(4)
    assert sorted(process.known()) == [*range(21), *range(50, 55)]
    assert process.versions.first() == 0


def test_a_pointer_that_a_recovery_set_back_changes_nothing(tmp_path: Path) -> None:
    told = History(Random(5), 30)
    process = Process(tmp_path, told, 0)
    process.versions.catch_up()
    process.pull(20)
    (file,) = segments(tmp_path)
    before = file.read_bytes()
    process = Process(tmp_path, told, 12)
    process.versions.catch_up()
    process.pull(6)
    assert file.read_bytes() == before
    process.pull(10)
    assert sorted(process.known()) == list(range(29))


def test_a_log_that_goes_on_below_another_parent_is_followed(tmp_path: Path) -> None:
    told = History(Random(7), 20, rolls_at=6)
    process = Process(tmp_path, told, 0)
    process.versions.catch_up()
    process.pull(3)
    process = Process(tmp_path, told, 12)
    process.versions.catch_up()
    assert set(process.known()) == {int(version.index) for version in told.versions[:13]}
    assert max(process.known()) > layout.PARENT_ENTRIES


def test_versions_of_another_table_of_the_name_are_forgotten(tmp_path: Path) -> None:
    told = History(Random(1), 10)
    process = Process(tmp_path, told, 0)
    process.versions.catch_up()
    process.pull(8)
    again = Process(tmp_path, told, 9, incarnation="77aa")
    assert again.versions.at(LogIndex(3)) is None
    again.versions.catch_up()
    assert sorted(again.known()) == [9]


def test_versions_that_are_not_of_this_log_are_forgotten(tmp_path: Path) -> None:
    process = Process(tmp_path, History(Random(1), 10), 0)
    process.versions.catch_up()
    process.pull(8)
    other = Process(tmp_path, History(Random(2), 20), 15)
    other.versions.catch_up()
    assert sorted(other.known()) == [15]


def test_a_version_log_of_a_newer_version_is_left_as_it_is(tmp_path: Path) -> None:
    told = History(Random(1), 10)
    process = Process(tmp_path, told, 0)
    process.versions.catch_up()
    process.pull(4)
    (file,) = segments(tmp_path)
    newer, _ = version_log._line(b'{"format":2,"what":"is newer"}', 0)  # noqa: SLF001
    file.write_bytes(newer)
    process = Process(tmp_path, told, 4)
    process.versions.catch_up()
    process.pull(2)
    assert file.read_bytes() == newer
    assert process.known() == {}


def test_a_disk_that_refuses_costs_nothing_but_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = History(Random(1), 20)
    process = Process(tmp_path, told, 0)
    process.versions.catch_up()
    process.pull(4)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(version_log, "write_all", refuse)
        process.pull(3)
        process.pull(2)
        assert sorted(process.known()) == list(range(5))
    process.versions.catch_up()
    process.pull(1)
    assert sorted(process.known()) == list(range(11))


def test_without_coordination_versions_are_caught_up_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = History(Random(1), 20)
    process = Process(tmp_path, told, 0)
    process.versions.catch_up()
    process.pull(4)
    process = Process(tmp_path, told, 8)

    def away(_: object) -> Any:
        raise CoordinationUnavailable("away")

    with monkeypatch.context() as silent:
        silent.setattr(process.versions, "_look_up", away)
        process.pull(1)
        assert sorted(process.known()) == list(range(5))
    process.pull(1)
    assert sorted(process.known()) == list(range(11))


def test_segments_go_when_they_are_old_and_many_entries_came_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = VersionLog(tmp_path / "versions", "5f0c")
    for index in (0, 10, 20, 30):
        log.begin(Version(LogIndex(index), PartSet()))
    for number, path in enumerate(segments(tmp_path)):
        os.utime(path, (number, number))
    log.remove_old(100.0)
    assert len(segments(tmp_path)) == 4, "all entries are recent"
    monkeypatch.setattr(version_log, "RECENT_ENTRIES", 15)
    log.remove_old(0.0)
    assert len(segments(tmp_path)) == 4, "none is old enough"
    log.remove_old(100.0)
    assert [path.name for path in segments(tmp_path)] == ["10", "20", "30"]
    assert log.first() == 10
    monkeypatch.setattr(version_log, "RECENT_ENTRIES", 0)
    log.remove_old(100.0, LogIndex(19))
    assert [path.name for path in segments(tmp_path)] == ["10", "20", "30"], "a consumer stands at entry 19"
    log.remove_old(100.0, LogIndex(20))
    assert [path.name for path in segments(tmp_path)] == ["20", "30"]
    log.remove_old(100.0)
    assert [path.name for path in segments(tmp_path)] == ["30"], "the last one is written to"
