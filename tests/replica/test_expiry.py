"""Rows are removed when their time is over: by one drop for a whole partition, by one mutation elsewhere, once for a bound."""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replitree.client.connection import Connection
from replitree.errors import BadInput, ReplitreeError
from replitree.protocol.state.read import end_of_log
from replitree.replica.parts.expiry import MARGIN_S, Expiry, bound_of
from replitree.storage.schema.retention import parse_ttl
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import InProcessCluster, Node
from tests.waiting import wait_for

SCHEMA = "k bigint not null, at timestamp"
DAY = dt.datetime(2100, 3, 10, tzinfo=dt.UTC)
"""Rows of the tests are of about this day, which is far away: nothing goes before a test moves the clocks."""

cluster, connection = cluster_and_connection(ttl_interval_s=3600)


@pytest.fixture(autouse=True)
def _no_round_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests look themselves, so that they know when."""
    monkeypatch.setattr(Expiry, "_run", lambda _: None)


def hour(number: float) -> dt.datetime:
    return DAY + dt.timedelta(hours=number)


def rows(first: int, *moments: dt.datetime | None) -> pa.Table:
    """Rows with the keys from `first` on, one for each moment."""
    keys = range(first, first + len(moments))
    return pa.table({"k": pa.array(keys, pa.int64()), "at": pa.array(moments, pa.timestamp("us", "UTC"))})


def set_clocks(cluster: InProcessCluster, moment: dt.datetime, table: str = "t") -> None:
    """Set the clocks so that a ttl of one day lets rows before `moment` go."""
    for node in cluster.nodes:
        node.table(table).expiry.clock = lambda: moment.timestamp() + 86_400 + MARGIN_S


def leader_of(cluster: InProcessCluster, table: str = "t") -> Node:
    """The replica that leads, when every replica knows which one does."""

    def leads() -> list[Node]:
        told = [node.table(table).leader for node in cluster.nodes]
        known = {each.leader for each in told}
        return [n for n in cluster.nodes if n.table(table).leader.is_leading] if len(known) == 1 else []

    return wait_for(leads, "one replica leads")[0]


def look(cluster: InProcessCluster, table: str = "t") -> dict[str, Any]:
    """Let every replica look once; return what the leader says."""
    leader = leader_of(cluster, table)
    wait_executed(cluster, table)
    for node in cluster.nodes:
        node.table(table).expiry.look()
    found = leader.table(table).expiry.status()
    assert found is not None
    return found


def wait_executed(cluster: InProcessCluster, table: str = "t") -> None:
    """Wait until every replica has executed the whole log."""
    found = [node.table(table) for node in cluster.nodes]
    end = found[0].performer.look_up(end_of_log(found[0].replica.table))
    wait_for(lambda: all(each.progress.index == end for each in found), "all replicas have executed the log")


def removals(cluster: InProcessCluster, table: str = "t") -> list[Any]:
    """The drops and mutations in the log of one table, in order."""
    connection = cluster.connect()
    try:
        found = connection.table(table).history()
        return sorted((each for each in found if each.kind in ("drop", "mutate")), key=lambda each: each.index)
    finally:
        connection.close()


def keys_of(connection: Connection, table: str = "t") -> list[int]:
    found: list[int] = connection.table(table).to_arrow(["k"], level="linearizable")["k"].to_pylist()
    return sorted(found)


def create(connection: Connection, **options: Any) -> Any:
    keys = {"order_by": "k", "partition_by": "day(at)", "ttl": "at + 1 day", **options}
    return connection.create_table("t", SCHEMA, **keys)


# --- what goes, and what stays ------------------------------------------------------------------------------------------


def test_a_whole_partition_goes_by_one_drop_and_rows_elsewhere_by_one_mutation(
    cluster: InProcessCluster, connection: Connection
) -> None:
    table = create(connection)
    # Key 3 has no time, and keys 4 and 5 are of the next day: 4 before the bound, 5 after it.
    table.insert(rows(0, hour(1), hour(2), hour(23), None, hour(25), hour(40)))
    table.insert(rows(6, hour(3), hour(26)))
    set_clocks(cluster, hour(30.5))
    told = look(cluster)
    assert told["reason"] == ""
    last = told["last"]
    assert (last["bound"], last["where"]) == ("2100-03-11T06:00:00Z", "at < TIMESTAMP '2100-03-11 06:00:00'")
    assert (last["partitions"], last["partitions_dropped"], last["rows_dropped"]) == (["2100-03-10"], 1, 4)
    wait_for(lambda: keys_of(connection) == [3, 5], "what is past the bound is gone")
    cluster.wait_alike()
    given = removals(cluster)
    assert [each.kind for each in given] == ["drop", "mutate"]


def test_a_bound_is_worked_once_by_whichever_replica_leads(cluster: InProcessCluster, connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, hour(1), hour(25), hour(60)))
    set_clocks(cluster, hour(26))
    look(cluster)
    wait_for(lambda: keys_of(connection) == [2], "they are gone")
    given = len(removals(cluster))
    table.insert(rows(3, hour(1)))
    for _ in range(3):
        look(cluster)
    # A replica that begins to lead finds nothing of it in its memory, and gives the commands the same ids.
    for node in cluster.nodes:
        expiry = node.table().expiry
        expiry._leader = partial(getattr, node, "name")  # noqa: SLF001 - two leaders at once
        expiry.look()
    assert len(removals(cluster)) == given
    assert keys_of(connection) == [2, 3]
    # A late row goes at the next bound.
    set_clocks(cluster, hour(27))
    leader_of(cluster).table().expiry.look()
    wait_for(lambda: keys_of(connection) == [2], "the late row is gone")


def test_no_part_with_such_rows_means_no_entry(cluster: InProcessCluster, connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, hour(30), None))
    tail = leader_of(cluster).end_of_log()
    for later in range(5):
        set_clocks(cluster, hour(later))
        last = look(cluster)["last"]
        assert (last["partitions"], last["parts_touched"]) == ([], 0)
    assert leader_of(cluster).end_of_log() == tail
    assert keys_of(connection) == [0, 1]


def test_a_partition_that_newer_rows_can_join_is_never_dropped(
    cluster: InProcessCluster, connection: Connection
) -> None:
    """All rows there are past the bound, but the partition's values do not say so: an insert may be on its way."""
    table = create(connection, partition_by="bucket(2, k)", order_by="at, k")
    table.insert(rows(0, hour(1), hour(2)))
    set_clocks(cluster, hour(10))
    assert look(cluster)["last"]["partitions"] == []
    wait_for(lambda: keys_of(connection) == [], "the rows are gone")
    assert {each.kind for each in removals(cluster)} == {"mutate"}


def test_a_date_goes_by_whole_days(cluster: InProcessCluster, connection: Connection) -> None:
    days = [dt.date(2100, 3, 9), dt.date(2100, 3, 10), dt.date(2100, 3, 11), None]
    table = connection.create_table("t", "k bigint, day date", order_by="day", ttl="day + 1 day")
    table.insert({"k": [0, 1, 2, 3], "day": days})
    set_clocks(cluster, hour(23.9))
    assert look(cluster)["last"]["where"] == "day < DATE '2100-03-10'"
    wait_for(lambda: keys_of(connection) == [1, 2, 3], "the day before is gone")
    set_clocks(cluster, hour(24))
    look(cluster)
    wait_for(lambda: keys_of(connection) == [2, 3], "a day is gone when all of it is past")


def test_many_partitions_go_a_few_at_a_time(
    cluster: InProcessCluster, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replitree.replica.parts.expiry.DROPS_MAX", 2)
    table = create(connection, partition_by="hour(at)")
    table.insert(rows(0, *(hour(number) for number in range(5))))
    set_clocks(cluster, hour(20))
    table.insert(rows(5, hour(30)))

    def gone() -> bool:
        look(cluster)
        return keys_of(connection) == [5]

    wait_for(gone, "all of them are gone")
    assert [each.kind for each in removals(cluster)] == ["drop"] * 5


# --- who does it, and why not -------------------------------------------------------------------------------------------


def test_nothing_goes_while_merges_are_paused_and_status_says_why(
    cluster: InProcessCluster, connection: Connection
) -> None:
    table = create(connection)
    table.insert(rows(0, hour(1)))
    table.pause_merges()
    wait_for(lambda: all(node.table().leader.leader is None for node in cluster.nodes), "no replica leads")
    set_clocks(cluster, hour(40))
    for node in cluster.nodes:
        node.table().expiry.look()
    shown = connection.status("t").tables[0].replicas
    assert {each.expiry.reason for each in shown if each.expiry} == {
        "no replica is known to lead: merges may be paused"
    }
    assert keys_of(connection) == [0]
    table.resume_merges()
    look(cluster)
    wait_for(lambda: keys_of(connection) == [], "it is gone")
    follower = next(node for node in cluster.nodes if node is not leader_of(cluster))
    follower.table().expiry.look()
    told = follower.table().expiry.status()
    assert told is not None
    assert told["reason"] == f"{leader_of(cluster).name} leads, and removes them"


def test_an_answer_that_is_lost_is_repeated_with_the_same_id(
    cluster: InProcessCluster, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(connection)
    table.insert(rows(0, hour(1), hour(25), hour(60)))
    set_clocks(cluster, hour(26))
    leader = leader_of(cluster)
    commands, lost = leader.table().commands, list[Any]()
    mutate = commands.mutate

    def loses_the_first(*given: Any) -> Any:
        answer = mutate(*given)
        if not lost:
            lost.append(answer)
            raise ReplitreeError("the answer was lost")
        return answer

    monkeypatch.setattr(commands, "mutate", loses_the_first)
    assert look(cluster)["reason"] == "the answer was lost"
    wait_for(lambda: keys_of(connection) == [2], "it is in the log all the same")
    assert look(cluster)["reason"] == ""
    assert [each.kind for each in removals(cluster)] == ["drop", "mutate"]


def test_a_server_can_leave_it_to_others(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, 1, ttl_interval_s=0)
    try:
        connection = cluster.connect()
        create(connection).insert(rows(0, hour(1)))
        set_clocks(cluster, hour(90))
        assert look(cluster)["reason"] == "ttl_interval_s is 0 on this server"
        assert keys_of(connection) == [0]
        connection.close()
    finally:
        cluster.close()


# --- changing it --------------------------------------------------------------------------------------------------------


def test_a_ttl_is_set_shown_planned_and_taken_back(cluster: InProcessCluster, connection: Connection) -> None:
    table = create(connection, ttl=None)
    table.insert(rows(0, hour(1), hour(25), hour(60)))
    set_clocks(cluster, hour(26))
    plan = table.plan_ttl("at + 1 day")
    assert (plan.bound, plan.partitions, plan.rows_dropped, plan.parts_touched) == (
        "2100-03-11T02:00:00Z",
        ("2100-03-10",),
        1,
        1,
    )
    with pytest.raises(BadInput, match="never removed without a ttl"):
        table.plan_ttl()
    with pytest.raises(BadInput, match="no column 'z'"):
        table.set_ttl("z + 1 day")
    assert table.set_ttl("at + INTERVAL 1 DAYS").finished
    assert connection.table("t").definition.ttl == parse_ttl("at + 1 day")
    assert connection.table("t").plan_ttl() == plan
    assert "rows until at + 1 day" in str(table.history())
    assert keys_of(connection) == [0, 1, 2]
    assert table.set_ttl("off").finished
    # A leader reads the definition again before it removes anything.
    for node in cluster.nodes:
        node.table().expiry.look()
        wait_for(lambda node=node: node.table().expiry.status() is None, "the replica knows it")  # type: ignore[misc]
    assert keys_of(connection) == [0, 1, 2]


def test_the_change_feed_shows_rows_that_went(cluster: InProcessCluster, connection: Connection) -> None:
    table = create(connection, feed="24h")
    table.insert(rows(0, hour(1), hour(25), hour(60)))
    set_clocks(cluster, hour(26))
    look(cluster)
    wait_for(lambda: keys_of(connection) == [2], "they are gone")

    def gone() -> list[tuple[str, int]]:
        changes = table.changes(1).to_arrow()
        return sorted(zip(changes["_change_type"].to_pylist(), changes["k"].to_pylist(), strict=True))

    # Without an end a replica that is behind may be asked.
    wait_for(lambda: gone() == [("delete", 0), ("delete", 1)], "the feed shows them")


# --- sharded tables -----------------------------------------------------------------------------------------------------


def test_one_command_removes_the_rows_of_all_shards(cluster: InProcessCluster, connection: Connection) -> None:
    table = create(connection, shard_by="k", buckets=16)
    table.insert(rows(0, *[hour(1)] * 8, *[hour(25)] * 8, *[hour(60)] * 8))
    for shard in ("t~0", "t~1"):
        set_clocks(cluster, hour(26), shard)
    assert len(table.plan_ttl().partitions) == 1
    assert table.plan_ttl().rows_dropped == 8
    # The leaders of both shards find something, and give the same ids.
    for shard in ("t~0", "t~1"):
        assert look(cluster, shard)["reason"] == ""
    wait_for(lambda: keys_of(connection) == list(range(16, 24)), "they are gone")
    assert len(table.mutations()) == 1
    table.set_ttl("at + 1 week")
    table.set_bloom("k")
    for shard in ("t~0", "t~1"):
        definition = leader_of(cluster, shard).table(shard).definitions.refresh()
        assert (definition.ttl, definition.bloom) == (parse_ttl("at + 1 week"), ("k",))


def test_the_bound_is_rounded_down() -> None:
    ttl = parse_ttl("at + 1 day")
    assert ttl is not None
    now = hour(30.5).timestamp() + 86_400 + MARGIN_S
    assert bound_of(ttl, "timestamp[us]", now, 3600) == hour(30).timestamp()
    assert bound_of(ttl, "timestamp[us]", now, 1) == hour(30.5).timestamp()
    assert bound_of(ttl, "date", now, 3600) == hour(24).timestamp()
