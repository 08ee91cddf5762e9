"""Commands of a sharded table from a client's point of view, with real replicas in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replitree.client.connection import Connection
from replitree.client.sharded.insert.joint import JointInsertResult
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.transport.http import AnswerLost, HttpClient
from replitree.errors import BadInput, SchemaMismatch, TableNotFound
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.sharded import places
from replitree.protocol.sharded.command import commands
from tests.client.lost_answers import EVERY, lose_answers, until_unknown
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import ROOT, SCHEMA, InProcessCluster, rows
from tests.replica.sharded import LosesAnswers, creates
from tests.waiting import wait_for

PLACE = layout.sharded(ROOT, "d")

cluster, connection = cluster_and_connection()


@pytest.fixture
def other(cluster: InProcessCluster) -> Iterator[Connection]:
    """Another client."""
    made = cluster.connect()
    yield made
    made.close()


@pytest.fixture
def table(connection: Connection) -> ShardedTable:
    """A table of two shards with the keys 0 to 39."""
    made = create(connection)
    made.insert(rows(0, 40))
    return made


def create(connection: Connection, schema: str = SCHEMA, **options: Any) -> ShardedTable:
    made = connection.create_table("d", schema, **{"order_by": "k", "shard_by": "k", "buckets": 16, **options})
    assert isinstance(made, ShardedTable)
    return made


def keys(table: Any, where: str | None = None, **options: Any) -> list[int]:
    found: list[int] = table.to_arrow(["k"], where, **options)["k"].to_pylist()
    return sorted(found)


# --- mutations --------------------------------------------------------------------------------------------------------------


def test_rows_are_deleted_and_updated_in_all_shards(table: ShardedTable) -> None:
    deleted = table.delete("k % 2 = 1")
    assert (deleted.applied, deleted.finished, deleted.removed, deleted.added) == (True, True, 2, 2)
    assert deleted.shards == (("d~0", 1), ("d~1", 1))
    assert keys(table) == list(range(0, 40, 2))
    updated = table.update({"v": "v + 1000", "s": "upper(s)"}, "k >= 20")
    assert updated.finished
    assert keys(table, "v >= 1000") == list(range(20, 40, 2))
    assert table.mutate("DELETE FROM d WHERE v >= 1000").finished
    assert keys(table) == list(range(0, 20, 2))
    listed = table.mutations()
    assert [each.finished for each in listed] == [True] * 3
    assert {each.id for each in listed} == {deleted.id, updated.id, listed[0].id, listed[1].id, listed[2].id}
    assert all(each.parts_left == 0 for each in listed)


def test_a_delete_by_the_shard_key_concerns_one_shard(table: ShardedTable) -> None:
    assert (table.delete("k = 7").removed, table.delete("k = 8 or k = 8").removed) == (1, 1)
    nothing = table.delete("k = 1000")
    assert (nothing.finished, nothing.removed) == (True, 0)
    assert keys(table) == [key for key in range(40) if key not in (7, 8)]


def test_a_mutation_replaces_parts_of_the_partitions_that_it_concerns(
    connection: Connection, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(connection, partition_by="truncate(10, k)")
    table.insert(rows(0, 40))

    def wait_executed() -> None:
        # What the replica that is asked has not executed yet is in scope.
        for name in table.info.names:
            cluster.wait_alike(name)

    wait_executed()
    assert table.delete("k >= 20 and k < 25").removed == 2, "one part of each shard"
    wait_executed()
    monkeypatch.setattr("replitree.client.sharded.shards_commander.ShardsCommander._scopes", lambda *_: {})
    assert table.delete("k >= 30 and k < 35").removed == 1 + 4, "the shard that was asked knows its own scope"
    assert keys(table) == [*range(20), *range(25, 30), *range(35, 40)]


def test_a_command_is_once_in_the_logs_however_often_it_is_given(table: ShardedTable, other: Connection) -> None:
    first = table.update({"v": "v + 1"}, "k >= 0", command_id="mine")
    again = other.table("d").update({"v": "v + 1"}, "k >= 0", command_id="mine")
    assert first.shards == again.shards
    assert sorted(table.to_arrow(["v"])["v"].to_pylist()) == pytest.approx([key / 3 + 1 for key in range(40)])


def test_a_command_whose_answer_is_lost_on_the_way_is_asked_for_again(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = lose_answers(monkeypatch, "/mutations")
    done = table.update({"v": "v + 1"}, "k >= 0")
    assert (len(lost), [index for _, index in done.shards]) == (1, [1, 1])
    assert sorted(table.to_arrow(["v"])["v"].to_pylist()) == pytest.approx([key / 3 + 1 for key in range(40)])


def test_a_command_without_any_answer_is_unknown_and_its_id_settles_it(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        lost = lose_answers(patched, "/mutations", EVERY)
        patched.setattr("replitree.client.change.command.ANSWER_S", 1.0)
        unknown = until_unknown(lambda: table.update({"v": "v + 1"}, "k >= 0", timeout_s=0.5), lost)
    done = table.update({"v": "v + 1"}, "k >= 0", command_id=unknown.token)
    assert [index for _, index in done.shards] == [1, 1]


def test_a_shard_that_can_not_be_asked_leaves_a_command_unfinished(
    table: ShardedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = HttpClient.request

    def deaf(client: HttpClient, address: str, method: str, path: str, *more: Any, **options: Any) -> Any:
        if "/d~1/commands/" in path:
            raise AnswerLost("it does not answer")
        return request(client, address, method, path, *more, **options)

    with monkeypatch.context() as patched:
        patched.setattr(HttpClient, "request", deaf)
        patched.setattr("replitree.client.change.command.ANSWER_S", 0.2)
        done = table.delete("k < 10", timeout_s=3)
    assert (done.applied, done.finished) == (True, False)
    assert "shard d~1" in done.reason
    assert keys(table, level="linearizable") == list(range(10, 40))


def test_a_mutation_is_killed_by_its_id(table: ShardedTable) -> None:
    done = table.delete("k < 10")
    killed = table.kill_mutation(done.id)
    assert (killed.killed, killed.finished) == (0, True)
    with pytest.raises(BadInput, match="by its id"):
        table.kill_mutation(done.index)
    with pytest.raises(BadInput, match="no command"):
        table.kill_mutation("unknown")


def test_readers_see_a_command_in_all_shards_or_in_none(
    table: ShardedTable, other: Connection, cluster: InProcessCluster
) -> None:
    """Each command writes one value into every row, so a read that sees two values has a torn command."""
    table.update({"s": "'0'"}, "k >= 0")
    reader, seen, problems = other.table("d"), list[set[str]](), list[Exception]()
    ended = threading.Event()

    def read() -> None:
        try:
            while not ended.is_set():
                for level in ("consistent", "linearizable"):
                    seen.append(set(reader.to_arrow(["s"], level=level)["s"].to_pylist()))  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - the test fails below
            problems.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(1, 9):
        table.update({"s": f"'{number}'"}, "k >= 0")
    ended.set()
    thread.join(60)
    assert problems == []
    assert all(len(each) == 1 for each in seen), seen
    numbers = [int(value) for each in seen for value in each]
    assert numbers == sorted(numbers)
    assert cluster.nodes


# --- columns and settings ---------------------------------------------------------------------------------------------------


def test_columns_change_in_all_shards_and_in_the_table(
    table: ShardedTable, other: Connection, cluster: InProcessCluster
) -> None:
    elsewhere = other.table("d")
    assert table.add_column("w", "bigint", default="7").schema_version == 2
    table.rename_column("s", "t")
    table.insert({"k": [100, 101], "v": [0.5, 0.5], "t": ["a", "b"], "w": [1, 2]})
    assert table.definition.schema_version == 3
    assert other.table("d").schema == table.schema
    assert sorted(set(table.to_arrow(["w"])["w"].to_pylist())) == [1, 2, 7]
    # A handle that knows the old columns.
    assert elsewhere.schema.names == ["k", "v", "s"]
    assert elsewhere.to_arrow().schema.names == ["k", "v", "t", "w"]
    assert elsewhere.definition.schema_version == 3
    paths = (
        places.columns(PLACE),
        *(layout.columns(places.shard_place(ROOT, "d", each)) for each in table.info.map.shards),
    )
    nodes = cluster.admin.perform(fx.GetMany(paths)).nodes
    assert {(node.value, node.version) for node in nodes} == {(nodes[0].value, 2)}
    assert cluster.admin.perform(fx.Get(commands(PLACE))).version == 2


def test_a_handle_with_older_columns_inserts_as_into_any_table(
    table: ShardedTable, other: Connection, cluster: InProcessCluster
) -> None:
    elsewhere = other.table("d")
    table.add_column("w", "bigint", default="7")
    elsewhere.insert(rows(40, 10))
    assert table.to_arrow(["w"], "k >= 40", level="linearizable")["w"].to_pylist() == [7] * 10
    table.drop_column("v")
    # A replica that has not heard of the new columns takes rows with the older ones.
    hosted = [node.table(name) for node in cluster.nodes for name in table.info.names]
    wait_for(
        lambda: all("v" not in [column.name for column in each.definition.columns] for each in hosted),
        "all replicas have the new columns",
    )
    with pytest.raises(SchemaMismatch):
        elsewhere.insert(rows(50, 10))
    elsewhere.insert({"k": [60, 61], "s": ["a", "b"]})
    assert keys(table, "k >= 40", level="linearizable") == [*range(40, 50), 60, 61]


def test_large_inserts_split_by_older_columns_come_in(
    table: ShardedTable, other: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replitree.client.sharded.insert.joint.REQUEST_ROWS_MAX", 4)
    elsewhere = other.table("d")
    table.add_column("w", "bigint", default="7")
    assert elsewhere.insert(rows(40, 20)).outcome == "inserted"
    assert table.to_arrow(["w"], "k >= 40", level="linearizable")["w"].to_pylist() == [7] * 20


def test_the_shard_key_stays_and_rows_keep_their_shards(connection: Connection) -> None:
    table = create(connection, "k bigint, id int not null, v double", shard_by="id")
    table.insert({"k": [1, 2, 3], "id": [1, 2, 3], "v": [0.1, 0.2, 0.3]})
    table.rename_column("id", "number")
    with pytest.raises(BadInput, match="shard key"):
        table.drop_column("number")
    with pytest.raises(BadInput, match="shard key"):
        table.widen_column("number", "bigint")
    with pytest.raises(BadInput, match="shard key"):
        table.update({"number": "number + 1"}, "k > 0")
    assert keys(table, "number = 2") == [2]
    assert table.delete("number = 2").removed == 1
    table.insert({"k": [4], "number": [4], "v": [0.4]})
    assert keys(table, "number in (3, 4)") == [3, 4]


def test_an_insert_brings_its_columns(table: ShardedTable) -> None:
    table.insert({"k": [100, 101], "v": [0.1, 0.2], "s": ["a", "b"], "more": [5, 6]}, merge_schema=True)
    assert sorted(table.to_arrow(["more"], "k >= 100")["more"].to_pylist()) == [5, 6]
    assert table.merge_schema(pa.schema([("k", pa.int64()), ("more", pa.int64())])) is None


def test_the_retention_of_all_shards_is_set(table: ShardedTable, connection: Connection) -> None:
    assert table.set_keep("3 days").finished
    assert connection.table("d").definition.keep == "3d"


# --- drops, upserts ---------------------------------------------------------------------------------------------------------


def test_partitions_are_listed_dropped_and_the_table_emptied(connection: Connection) -> None:
    table = create(connection, partition_by="truncate(10, k)")
    table.insert(rows(0, 40))
    assert [(each.partition, each.rows) for each in table.partitions()] == [
        ("0", 10),
        ("10", 10),
        ("20", 10),
        ("30", 10),
    ]
    dropped = table.drop_partition("10")
    assert (dropped.finished, dropped.removed) == (True, 2)
    assert keys(table) == [*range(10), *range(20, 40)]
    assert table.truncate().finished
    assert (keys(table), table.partitions()) == ([], ())


def test_rows_that_were_dropped_come_in_again_under_their_token(connection: Connection, other: Connection) -> None:
    table = create(connection, partition_by="truncate(10, k)")
    assert table.insert(rows(0, 20), token="load").outcome == "inserted"
    table.drop_partition("0")
    assert table.insert(rows(0, 20), token="load").outcome == "duplicate", "partition 10 is there"
    table.drop_partition("10")
    assert table.insert(rows(0, 20), token="load").outcome == "inserted"
    assert other.table("d").insert(rows(0, 20), token="load").outcome == "duplicate"
    assert keys(table) == list(range(20))
    # Equal content, and a request for rows of one shard.
    for data in (rows(100, 20), rows(200, 1)):
        assert table.insert(data).outcome == "inserted"
        assert table.insert(data).outcome == "duplicate"
        table.truncate()
        assert table.insert(data).outcome == "inserted"
        assert table.insert(data).outcome == "duplicate"
    assert keys(table) == [200]


def test_rows_are_replaced_by_their_keys(connection: Connection) -> None:
    table = create(connection, "k bigint not null, v double, seen int", policy="replacing(seen)")
    table.upsert({"k": list(range(20)), "v": [0.0] * 20, "seen": [1] * 20})
    table.upsert({"k": [3, 4], "v": [1.0, 1.0], "seen": [2, 2]})
    assert keys(table, "v = 1.0", final=True) == [3, 4]
    assert table.scan(final=True).count() == 20


def test_a_transaction_is_one_line_of_the_history(table: ShardedTable, connection: Connection) -> None:
    deleted = table.delete("k < 10")
    one = table.insert(rows(100, 1))
    assert isinstance(one, JointInsertResult)
    table.optimize(final=True)
    found = table.history()
    merged = sum(each.kind == "merge" for each in found)
    assert [each.kind for each in found[merged:]] == ["get", "mutate", "get"]
    last, command, first = found[merged:]
    assert (last.shards, last.rows, first.rows) == (one.shards, 1, 40)
    assert (command.ids, command.shards) == ((deleted.id,), deleted.shards)
    assert [name for name, _ in first.shards] == ["d~0", "d~1"]
    assert [each.index for each in found] == sorted((each.index for each in found), reverse=True)
    assert [len(keys(table, as_of=each.cut)) for each in (last, command, first)] == [31, 30, 40]
    assert table.history(limit=2) == found[:2]
    with pytest.raises(BadInput, match="limit is 1 to"):
        table.history(0)
    connection.drop_table("d")
    with pytest.raises(TableNotFound):
        table.history()


def test_whole_keys_are_deleted_in_all_shards(connection: Connection) -> None:
    schema, order_by = "k bigint not null, p int, v double, seen int", ("k", "p")
    table = create(connection, schema, order_by=order_by, policy="replacing(seen)", partition_by="p")
    for number in (1, 2):
        table.upsert(
            {"k": list(range(20)), "p": [k % 3 for k in range(20)], "v": [float(number)] * 20, "seen": [number] * 20}
        )
    # Of each key the row that wins decides; the rows that it has replaced go, too.
    assert table.delete("v = 1.0", final=True).finished
    assert len(keys(table)) == 40
    assert table.delete("v = 2.0 AND k < 8", final=True).finished
    assert set(keys(table)) == set(range(8, 20))
    # In one partition only, and of one shard only.
    assert table.delete("k > 0", min(each.partition for each in table.partitions()), final=True).finished
    assert set(keys(table)) == {k for k in range(8, 20) if k % 3}
    assert table.delete("k = 19", final=True).finished
    assert 19 not in keys(table)
    with pytest.raises(BadInput, match="nothing"):
        table.delete("nothing = 1", final=True)


# --- together with inserts --------------------------------------------------------------------------------------------------


def test_inserts_and_commands_of_several_clients_leave_what_the_logs_say(
    table: ShardedTable, other: Connection
) -> None:
    """Two clients insert while a third one deletes what was there before: every row came before or after the command."""
    problems = list[Exception]()

    def insert(first: int) -> None:
        try:
            for number in range(6):
                other.table("d").insert(rows(first + 20 * number, 20))
        except Exception as error:  # noqa: BLE001 - the test fails below
            problems.append(error)

    threads = [threading.Thread(target=insert, args=(first,)) for first in (1_000, 2_000)]
    for thread in threads:
        thread.start()
    for number in range(6):
        table.update({"v": f"{number}"}, "k >= 0")
    for thread in threads:
        thread.join(60)
    assert problems == []
    found = table.to_arrow(["k", "v"], level="linearizable").sort_by("k")
    assert found["k"].to_pylist() == [*range(40), *range(1_000, 1_120), *range(2_000, 2_120)]
    # An insert is one position in the order of the commands, so its rows have one value, or none of them has any.
    for first in (1_000, 2_000):
        for number in range(6):
            start = first + 20 * number
            group = [row["v"] for row in found.to_pylist() if start <= row["k"] < start + 20]
            is_old = group == pytest.approx([key / 3 for key in range(start, start + 20)])
            assert is_old or len(set(group)) == 1, group


@pytest.mark.parametrize("is_applied", [True, False])
def test_an_alter_whose_commit_is_in_doubt_ends_in_all_shards(
    table: ShardedTable, cluster: InProcessCluster, is_applied: bool
) -> None:
    originals = [(node, node.coordination.perform) for node in cluster.nodes]
    loses = [LosesAnswers(node, creates("/tokens/command-"), is_applied=is_applied) for node in cluster.nodes]
    try:
        done = table.add_column("w", "bigint", default="7")
    finally:
        for node, perform in originals:
            node.coordination.perform = perform
    assert sum(each.lost for each in loses) == 1
    assert (done.schema_version, [index for _, index in done.shards]) == (2, [1, 1])
    assert set(table.to_arrow(["w"])["w"].to_pylist()) == {7}


def test_a_table_that_was_made_before_commands_were_counted_takes_them(
    table: ShardedTable, cluster: InProcessCluster, tmp_path: Path
) -> None:
    del tmp_path
    assert isinstance(cluster.admin.perform(fx.Commit(fx.Delete(commands(PLACE), fx.ANY_VERSION))), fx.Applied)
    assert table.delete("k < 10").finished
    assert table.delete("k < 20").finished
    assert cluster.admin.perform(fx.Get(commands(PLACE))).version == 1
    assert keys(table) == list(range(20, 40))
