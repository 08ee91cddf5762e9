"""What the table remembers: reading its log back, over parents that are closed and entries that are gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replitree.client.read.as_of import index_of, parse_time
from replitree.client.read.table_log import as_time, index_at, read_history, search_back
from replitree.client.table import Table
from replitree.errors import BadInput, SnapshotExpired, TableNotFound
from replitree.procedures import run
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, GetEntry, RollEntry, SettleEntry, encode_entry
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.log import encode_log
from replitree.wire.block_ids import token_block
from replitree.wire.reached import Reached
from replitree.wire.remembered import Earlier, Remembered
from tests.client.conftest import FakeCluster
from tests.replica.inprocess import InProcessCluster
from tests.times import time_of

PLACE = TablePlace("/t")
INSERT = GetEntry("r1", fx.StagingId("s"), (fx.StagedPart("all", 3, 40, "h"), fx.StagedPart("b", 2, 2, "h")), ())


@dataclass
class KeptLog:
    """A log in coordination, as a table of its entries: what each is, and when it was written (ms)."""

    entries: dict[int, tuple[Entry, int]]
    first: int = 0
    reads: list[int] = field(default_factory=list)

    @property
    def end(self) -> fx.LogIndex:
        return fx.LogIndex(max(self.entries, default=self.first - 1) + 1)

    def perform(self, effect: Any) -> Any:
        known = {
            layout.log_entry(PLACE, index): fx.Node(encode_entry(entry), fx.Version(0), ms)
            for index, (entry, ms) in self.entries.items()
        }
        match effect:
            case fx.Get(path):
                assert path == layout.log(PLACE)
                return fx.Node(encode_log(PLACE, self.first), fx.Version(0))
            case fx.Exists(path):
                return path in known
            case fx.GetMany(paths):
                self.reads.append(len(paths))
                return fx.Many(tuple(known.get(path) for path in paths))
        raise AssertionError(effect)

    def indexes(self, window: int = 3) -> list[int]:
        found: list[int] = []
        assert (
            run(search_back(PLACE, self.end, lambda logged: found.append(logged.index), window), self.perform) is None
        )
        return found

    def at(self, time_ms: int) -> int | None:
        return self.reached(time_ms).index

    def reached(self, time_ms: int) -> Reached:
        return run(index_at(PLACE, self.end, time_ms), self.perform)


def inserts(times: dict[int, int]) -> dict[int, tuple[Entry, int]]:
    return {index: (INSERT, ms) for index, ms in times.items()}


def rolled() -> KeptLog:
    """A log over three parents of 8 numbers: the first is cleaned up to index 2, and two are closed early."""
    entries = inserts({2: 20, 3: 30, 8: 50, 16: 70, 17: 80})
    return KeptLog({**entries, 4: (RollEntry("r1"), 40), 9: (RollEntry("r1"), 60)}, first=2)


@pytest.mark.parametrize("window", [1, 2, 3, 64])
def test_log_is_read_newest_first_over_closed_parents(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(layout, "PARENT_ENTRIES", 8)
    assert rolled().indexes(window) == [17, 16, 9, 8, 4, 3, 2]


def test_log_that_has_just_gone_on_is_read_from_the_closed_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PARENT_ENTRIES", 8)
    log = KeptLog({**inserts({0: 1, 1: 2}), 2: (RollEntry("r1"), 3)})
    found: list[int] = []
    run(search_back(PLACE, fx.LogIndex(8), lambda logged: found.append(logged.index)), log.perform)
    assert found == [2, 1, 0]


def test_parent_that_the_cleaner_has_emptied_meanwhile_ends_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PARENT_ENTRIES", 8)
    assert KeptLog(inserts({8: 1, 9: 2}), first=3).indexes() == [9, 8]


def test_entry_that_the_cleaner_has_removed_meanwhile_ends_the_log() -> None:
    assert KeptLog(inserts({3: 1, 4: 2, 5: 3}), first=1).indexes() == [5, 4, 3]


def test_empty_log_has_no_history() -> None:
    assert KeptLog({}).indexes() == []
    assert KeptLog({}, first=7).indexes() == []


@pytest.mark.parametrize(
    ("time_ms", "index"), [(9, None), (10, 1), (19, 1), (20, 4), (29, 4), (30, 5), (10_000, 5)], ids=str
)
def test_time_is_the_last_entry_written_by_then(time_ms: int, index: int | None) -> None:
    # Three entries were written in one millisecond: all of them are included.
    log = KeptLog(inserts({0: 10, 1: 20, 2: 20, 3: 20, 4: 30}))
    assert log.at(time_ms) == index


def test_time_within_a_clock_that_went_back_includes_the_last_entry_written_by_then() -> None:
    log = KeptLog(inserts({0: 10, 1: 50, 2: 30, 3: 60}))
    assert [log.at(ms) for ms in (10, 29, 30, 55, 60)] == [1, 1, 3, 3, 4]


def test_time_of_a_roll_is_the_beginning_of_the_next_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PARENT_ENTRIES", 8)
    log = rolled()
    assert [log.at(ms) for ms in (19, 20, 40, 49, 50, 65, 75)] == [None, 3, 8, 8, 9, 16, 17]


def test_search_for_a_time_says_how_far_back_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PARENT_ENTRIES", 8)
    assert rolled().reached(19) == Reached(below=2, written_ms=20)
    # The cleaner removes entries during the search: those before the gap were not looked at.
    assert KeptLog(inserts({3: 10, 5: 30, 6: 40}), first=3).reached(20) == Reached(below=5, written_ms=30)
    assert KeptLog({}, first=7).reached(20) == Reached(below=7)


def test_history_reads_no_further_back_than_its_limit() -> None:
    log = KeptLog(inserts({index: index for index in range(1000)}))
    found = run(read_history(PLACE, "t", log.end, 5), log.perform)
    assert [each.index for each in found] == [999, 998, 997, 996, 995]
    assert sum(log.reads) == 5


def test_end_of_a_quorum_says_how_long_the_insert_took() -> None:
    settled: Entry = SettleEntry("r2", fx.StagingId("s"), 0, ("r1", "r2"))
    log = KeptLog({**inserts({0: 1000}), 1: (settled, 3500)})
    newest, insert = run(read_history(PLACE, "t", log.end, 2), log.perform)
    assert (newest.kind, newest.duration_s, newest.command) == ("settle", 2.5, "insert 0")
    assert (insert.kind, insert.rows, insert.bytes, insert.duration_s) == ("get", 5, 42, None)
    assert insert.time == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    gone = KeptLog({1: (settled, 3500)}, first=1)
    assert run(read_history(PLACE, "t", gone.end, 9), gone.perform)[0].duration_s is None


# --- real replicas ----------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two real replicas in this process."""
    cluster = InProcessCluster(tmp_path)
    cluster.create_table(schema="k bigint not null")
    yield cluster
    cluster.close()


@pytest.fixture
def table(cluster: InProcessCluster) -> Iterator[Table]:
    with cluster.connect() as connection:
        yield connection.table("t")


def test_history_of_a_table_says_what_was_done(table: Table) -> None:
    table.insert({"k": [1, 2, 3]}, token="monday")
    table.delete("k = 2")
    table.truncate()
    truncated, deleted, inserted = table.history()
    assert (inserted.kind, inserted.rows, inserted.ids) == ("get", 3, (token_block("monday"),))
    assert inserted.replica in {"r1", "r2"}
    assert inserted.bytes
    assert (deleted.kind, deleted.command, deleted.rows) == ("mutate", "DELETE FROM t WHERE k = 2", None)
    assert (truncated.kind, truncated.command) == ("drop", "drops every partition")
    assert time_of(inserted) < time_of(deleted) < time_of(truncated)
    assert [each.index for each in table.history(2)] == [truncated.index, deleted.index]


def test_history_goes_on_with_what_replicas_remember(cluster: InProcessCluster, table: Table) -> None:
    table.insert({"k": [1, 2, 3]}, token="monday")
    table.delete("k = 2")
    table.insert({"k": [4]}, overwrite="all")
    table.alter("ADD COLUMN v double")
    table.optimize(final=True)
    table.insert({"k": [5], "v": [0.5]})
    table.insert({"k": [6], "v": [0.5]})
    table.optimize(final=True)
    whole = table.history()
    assert {each.kind for each in whole} == {"get", "mutate", "alter", "merge"}
    # Deduplication ids are kept by the log only.
    expected = [msgspec.structs.replace(each, ids=()) for each in whole]
    shown = whole
    for kept_from in (2, len(whole) - 1, len(whole)):
        cluster.clean(kept_from)
        shown = table.history()
        assert [msgspec.structs.replace(each, ids=()) for each in shown] == expected
        assert [each.ids for each in shown if each.index >= kept_from] == [
            each.ids for each in whole if each.index >= kept_from
        ]
        assert not any(each.ids for each in shown if each.index < kept_from)
        assert table.history(3) == shown[:3]
    assert shown[-2].command == "DELETE FROM t WHERE k = 2"


def test_history_of_entries_of_which_only_index_and_time_are_kept(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    cluster.create("t", "k bigint")
    for number in range(3):
        cluster.insert_in_log("t", fx.BlockId(f"t-{number}"))
    place = cluster.catalog.place("t")
    for index in range(2):
        cluster.commit(fx.Delete(layout.log_entry(place, fx.LogIndex(index)), fx.Version(0)))
    cluster.commit(fx.Set(layout.log(place), encode_log(place, fx.LogIndex(2)), fx.Version(0)))
    replica = cluster.add_replica("t", "r1")
    replica.answers["GET earlier"] = Earlier((Remembered(1, 1_500), Remembered(0)))
    newest, second, first = cluster.connect().table("t").history()
    assert (newest.index, newest.kind, newest.rows) == (2, "get", 1)
    assert (second.index, second.time, second.kind, second.command) == (
        1, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC), "unknown", "not kept any more",
    )  # fmt: skip
    assert (first.index, first.time, first.kind, first.replica, first.rows) == (0, None, "unknown", "", None)
    assert [(seen.query["below"], seen.query["limit"]) for seen in replica.seen] == [("2", "99")]
    cluster.close()


@pytest.mark.parametrize("limit", [0, -1, 100_001])
def test_history_of_no_or_too_many_entries_is_refused(table: Table, limit: int) -> None:
    with pytest.raises(BadInput, match="limit is 1 to 100,000 entries"):
        table.history(limit)


def test_history_of_a_table_that_was_dropped(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    cluster.create("t", "k bigint")
    handle = cluster.connect().table("t")
    assert handle.history() == ()
    cluster.connect().drop_table("t")
    with pytest.raises(TableNotFound, match="'t' does not exist"):
        handle.history()
    cluster.close()


# --- time travel ------------------------------------------------------------------------------------------------------


def test_time_shows_the_table_after_the_last_entry_written_by_then(table: Table) -> None:
    table.insert({"k": [1]}, token="a")
    table.insert({"k": [2]}, token="b")
    second, first = table.history(2)
    assert table.to_arrow(as_of=first.time)["k"].to_pylist() == [1]
    assert table.snapshot(as_of=first.time).index == first.index + 1
    # As text, without a zone, in another zone, and within a table's other reads.
    assert table.scan(as_of=time_of(second).isoformat()).to_arrow().num_rows == 2
    assert table.to_arrow(as_of=time_of(first).replace(tzinfo=None)).num_rows == 1
    east = time_of(first).astimezone(timezone(timedelta(hours=5)))
    assert sum(batch.num_rows for batch in table.batches(as_of=east)) == 1


def test_time_before_the_first_entry_of_a_whole_log_is_the_empty_table(table: Table) -> None:
    table.insert({"k": [1]})
    (first,) = table.history()
    assert table.to_arrow(as_of=time_of(first) - timedelta(milliseconds=1)).num_rows == 0


def test_time_before_the_table_was_created_is_refused(table: Table) -> None:
    with pytest.raises(
        SnapshotExpired, match=r"what t was at 1969-.* is not known: the table was created at 1970-01-01"
    ):
        table.snapshot(as_of="1969-07-20T20:17:40Z")


def test_time_that_is_not_over_is_refused(table: Table) -> None:
    with pytest.raises(BadInput, match=r"9999-.* is not over: coordination's clock says 1970-01-01T"):
        table.to_arrow(as_of="9999-12-31")


def test_time_before_the_kept_log_is_refused_and_says_how_far_it_goes_back(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    cluster.create("t", "k bigint")
    for number in range(3):
        cluster.tree.now_ms = 10_000 * (number + 1)
        cluster.insert_in_log("t", fx.BlockId(f"t-{number}"))
    place = cluster.catalog.place("t")
    cluster.session.perform(fx.Commit(fx.Delete(layout.log_entry(place, 0), 0)))
    cluster.commit(fx.Set(layout.log(place), encode_log(place, 1), 0))

    def at(time_ms: int) -> int | None:
        return index_of(cluster.catalog, "t", as_time(time_ms), lambda _, reached: reached)

    assert [at(ms) for ms in (20_001, 30_000, 30_001)] == [2, 2, 3]
    with pytest.raises(SnapshotExpired, match=r"versions are known from 1970-01-01T00:00:20\.001.* on \(index 1\)"):
        at(20_000)
    # Replicas know more.
    found = Reached(index=1, below=1)
    assert index_of(cluster.catalog, "t", as_time(20_000), lambda *_: found) == 1
    whole = Reached(below=0, written_ms=10_001)
    assert index_of(cluster.catalog, "t", as_time(5_000), lambda *_: whole) == 0
    with pytest.raises(SnapshotExpired, match="the table was created at 1970-01-01"):
        index_of(cluster.catalog, "t", datetime(1969, 7, 20, tzinfo=UTC), lambda *_: whole)
    cluster.session.perform(
        fx.Commit(fx.Delete(layout.log_entry(place, 1), 0), fx.Delete(layout.log_entry(place, 2), 0))
    )
    cluster.commit(fx.Set(layout.log(place), encode_log(place, 3), 1))
    with pytest.raises(SnapshotExpired, match="it is not known when entries before index 3 were written"):
        at(20_000)
    cluster.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("41", "'41' is text: give an index of the log as a number, 41"),
        ("yesterday", "'yesterday' is no time and no tag: write a time as in '2026-11-27T03:00:00"),
        ("0001-01-01T00:00:00+05:00", "is out of range in UTC"),
    ],
)
def test_text_that_is_no_time_is_refused(given: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_time(given)
