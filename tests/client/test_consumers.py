"""Consumers of the change feed, on real replicas in this process whose old parts go at once unless something keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from replitree.client.table import Table
from replitree.errors import BadInput, InvalidName, TableNotFound
from replitree.protocol.core.effects import LogIndex
from replitree.replica.table import consuming, maintenance
from replitree.replica.table.feeds import Feeds
from replitree.wire.feed_errors import ConsumerExpired, FeedOff, OffsetExpired
from tests.replica.inprocess import InProcessCluster, wait_for


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessCluster]:
    monkeypatch.setattr(maintenance, "TAGS_S", 0.0)
    monkeypatch.setattr(consuming, "LOOK_S", 0.0)
    made = InProcessCluster(tmp_path, old_parts_lifetime_s=0.0)
    made.create_table(schema="k bigint not null")
    yield made
    made.close()


@pytest.fixture
def table(cluster: InProcessCluster) -> Iterator[Table]:
    with cluster.connect() as connection:
        table = connection.table("t")
        table.set_feed("24h")
        cluster.wait_alike()
        yield table


def wait_kept(cluster: InProcessCluster, kept: int) -> None:
    """Wait until replicas have deleted every old part but for so many, which consumers alone keep."""
    for node in cluster.nodes:
        wait_for(
            lambda node=node: (  # type: ignore[misc]
                (found := node.get("status"))["queue"] == 0
                and (found["parts"], found["old_parts"], found["consumer_parts"]) == (0, kept, kept)
            ),
            "only what consumers keep is left",
        )


def changed(table: Table, consumer: str) -> tuple[list[tuple[str, int]], int]:
    """Return what a consumer has not read, and where it ends."""
    with table.changes(consumer=consumer) as changes:
        rows = changes.to_arrow().to_pylist()
        return [(row["_change_type"], row["k"]) for row in rows], changes.end


def test_what_a_consumer_has_not_read_outlives_the_feed_and_the_processes(
    cluster: InProcessCluster, table: Table
) -> None:
    made = table.create_consumer("etl")
    table.insert({"k": [1, 2]})
    table.truncate()
    # From here on nothing but the consumer keeps them.
    table.set_feed(None)
    wait_kept(cluster, 1)
    for node in cluster.nodes:
        node.restart()
    wait_for(lambda: all(map(cluster.is_active, cluster.nodes)), "active again")
    wait_kept(cluster, 1)
    rows, end = changed(table, "etl")
    assert rows == [("insert", 1), ("insert", 2), ("delete", 1), ("delete", 2)]
    (found,) = table.consumers()
    assert (found.name, found.index, found.expired, found.snapshot) == ("etl", made.index, "", None)
    # One entry further the drop still needs the part; beyond it nothing does.
    table.move_consumer("etl", made.index + 1)
    assert changed(table, "etl")[0] == [("delete", 1), ("delete", 2)]
    table.move_consumer("etl", end)
    wait_kept(cluster, 0)
    assert table.consumers()[0].index == end


def test_a_consumer_is_moved_forward_only_and_not_beyond_the_log(cluster: InProcessCluster, table: Table) -> None:
    made = table.create_consumer("etl", "latest")
    end = (table.insert({"k": [1]}).index or 0) + 1
    table.move_consumer("etl", end)
    table.move_consumer("etl", end)
    with pytest.raises(BadInput, match=rf"stands at {end} and was not moved back to {made.index}"):
        table.move_consumer("etl", made.index)
    with pytest.raises(BadInput, match=f"not moved to {end + 1}: the log ends at {end}"):
        table.move_consumer("etl", end + 1)
    with pytest.raises(BadInput, match="no consumer 'other'"):
        table.move_consumer("other", end)
    with pytest.raises(BadInput, match="give one of them"):
        table.changes(0, consumer="etl")
    cluster.wait_alike()


def test_a_name_is_taken_once_and_free_again_after_the_drop(table: Table) -> None:
    made = table.create_consumer("etl", "earliest", command_id="c1")
    assert table.create_consumer("etl", "earliest", command_id="c1") == made
    with pytest.raises(BadInput, match=f"already, which stands at {made.index}"):
        table.create_consumer("etl")
    with pytest.raises(InvalidName, match="can't be a consumer's name"):
        table.create_consumer("7")
    for hold in ("", "soon"):
        with pytest.raises(BadInput, match="hold is"):
            table.create_consumer("none", hold=hold)
    table.drop_consumer("etl")
    with pytest.raises(BadInput, match="no consumer 'etl'; it has none"):
        table.drop_consumer("etl")
    assert table.create_consumer("etl").name == "etl"


def test_a_consumer_begins_within_the_log(table: Table) -> None:
    end = (table.insert({"k": [1]}).index or 0) + 1
    for start in (-1, end + 1):
        with pytest.raises(BadInput, match=f"can't begin at {start}: the log goes from 0 to {end}"):
            table.create_consumer("etl", start)
    assert table.create_consumer("etl", end).index == end


def test_a_dropped_table_is_not_found_where_its_names_are_asked_for(cluster: InProcessCluster, table: Table) -> None:
    table.create_consumer("etl")
    with cluster.connect() as other:
        other.drop_table("t")
    asked: tuple[Callable[[], object], ...] = (
        *(table.consumers, table.views, table.tags, table.streams),
        *(partial(drop, "a") for drop in (table.drop_consumer, table.drop_view, table.delete_tag, table.drop_stream)),
        *(lambda: table.changes(consumer="etl"), lambda: table.backfill_view("a")),
    )
    for ask in asked:
        with pytest.raises(TableNotFound, match="'t' does not exist"):
            ask()


def test_a_table_without_a_feed_has_no_consumers(table: Table) -> None:
    table.set_feed(None)
    with pytest.raises(FeedOff, match="turn it on first"):
        table.create_consumer("etl", 0)


def test_another_replica_makes_the_consumer_where_the_first_lacks_the_feed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, asked = Feeds.check_from, list[int]()

    def lacking(feeds: Feeds, start: LogIndex) -> None:
        asked.append(start)
        if len(asked) == 1:
            raise OffsetExpired("the first that is asked lacks a part", start + 1)
        check(feeds, start)

    monkeypatch.setattr(Feeds, "check_from", lacking)
    assert table.create_consumer("etl", 0).index == 0
    assert asked == [0, 0]


def test_a_consumer_that_holds_too_much_is_marked_and_then_its_parts_go(
    cluster: InProcessCluster, table: Table
) -> None:
    made = table.create_consumer("etl", bytes_max=1)
    table.insert({"k": [1, 2]})
    table.truncate()
    table.set_feed(None)
    wait_for(lambda: bool(table.consumers()[0].expired), "marked")
    wait_kept(cluster, 0)
    with pytest.raises(
        ConsumerExpired, match=f"stood at {made.index}, because replica r. kept .* 1 is its limit"
    ) as told:
        table.changes(consumer="etl")
    assert told.value.index == made.index
    assert isinstance(told.value, OffsetExpired)
    with pytest.raises(ConsumerExpired, match="its hold has ended"):
        table.move_consumer("etl", made.index + 1)
    table.drop_consumer("etl")


def test_a_consumer_that_does_not_move_is_marked_when_its_time_is_over(cluster: InProcessCluster, table: Table) -> None:
    table.create_consumer("idle", hold="1s")
    table.create_consumer("late", hold="1 day")
    # Nothing came, so there was nothing to move for; from the insert on there is.
    cluster.admin.shared.now_ms += 5_000
    table.insert({"k": [1]})
    cluster.wait_alike()
    # Coordination's clock says so, whatever this machine's says.
    assert not any(each.expired for each in table.consumers())
    cluster.admin.shared.now_ms += 5_000
    wait_for(lambda: bool(table.consumers()[0].expired), "marked")
    found = {each.name: each.expired for each in table.consumers()}
    assert "had not moved" in found["idle"]
    assert not found["late"]


def test_the_snapshot_that_a_consumer_begins_with_stays_until_it_moves(cluster: InProcessCluster, table: Table) -> None:
    for key in (1, 2):
        table.insert({"k": [key]})
    cluster.wait_alike()
    made = table.create_consumer("copy", "snapshot")
    assert made.snapshot == made.index
    table.set_feed(None)
    assert table.optimize(final=True).finished
    table.truncate()
    with pytest.raises(BadInput, match=f"read the table as_of={made.index}"):
        table.changes(consumer="copy")
    for node in cluster.nodes:
        node.restart()
    wait_for(lambda: all(map(cluster.is_active, cluster.nodes)), "active again")
    assert sorted(table.to_arrow(as_of=made.index)["k"].to_pylist()) == [1, 2]
    table.move_consumer("copy", made.index)
    rows, end = changed(table, "copy")
    assert sorted(rows) == [("delete", 1), ("delete", 2)]
    table.move_consumer("copy", end)
    wait_kept(cluster, 0)
