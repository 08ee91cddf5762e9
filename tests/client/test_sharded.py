"""Sharded tables from a client's point of view, with real replicas in this process."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replitree.client.admin.doctor import examine
from replitree.client.connection import Connection
from replitree.client.sharded.feed.consumer_table import ShardedConsumerTable
from replitree.client.sharded.feed.feed_table import ShardedFeedTable
from replitree.client.sharded.insert.joint import JointInserter, JointInsertResult
from replitree.client.sharded.sharded_aside import ShardedAsideTable
from replitree.client.sharded.sharded_table import REFUSED, ShardedTable
from replitree.client.sharded.sharded_views import ShardedViewsTable
from replitree.client.sharded.whole_table import ShardedWholeTable
from replitree.client.table import Table
from replitree.errors import BadInput, InvalidName, SchemaMismatch, TableExists, TableNotFound
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.sharded.shard_map import Shard, encode_map, first_map
from tests.client.lost_answers import EVERY, lose_answers, until_unknown
from tests.replica.fixtures import cluster_and_connection, hosted_everywhere
from tests.replica.inprocess import ROOT, SCHEMA, InProcessCluster, rows
from tests.waiting import wait_for

SUPPORTED = {
    "add_column",
    "alter",
    "definition",
    "detach_partition",
    "drop_column",
    "drop_partition",
    "http",
    "merge_schema",
    "mutate",
    "name",
    "rename_column",
    "schema",
    "set_bloom",
    "set_feed",
    "set_keep",
    "set_ttl",
    "set_storage",
    "truncate",
    "update",
    "upsert",
    "widen_column",
}
"""What a sharded table has as any table, unchanged."""

cluster, connection = cluster_and_connection()


def create(connection: Connection, name: str = "d", **options: Any) -> ShardedTable:
    """A table of two shards by `k`."""
    made = connection.create_table(name, SCHEMA, order_by="k", **{"shard_by": "k", "buckets": 16, **options})
    assert isinstance(made, ShardedTable)
    return made


def multiset(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(table[name].to_pylist() for name in table.schema.names), strict=True))


def test_a_sharded_table_is_one_table(connection: Connection, cluster: InProcessCluster) -> None:
    table = create(connection, shards=3)
    assert connection.tables() == ("d",)
    assert connection.table("d").definition == table.definition
    assert table.info.names == ("d~0", "d~1", "d~2")
    assert [each.name for each in connection.replicas()] == ["r1", "r2"]
    assert [each.name for each in connection.status().tables] == ["d~0", "d~1", "d~2"]
    assert [each.name for each in connection.status("d").tables] == ["d~0", "d~1", "d~2"]
    state = connection.look_over()
    assert [each.name for each in state.tables] == ["d~0", "d~1", "d~2"]
    assert not [each.problem for each in state.tables if each.problem]
    connection.drop_table("d")
    assert connection.tables() == ()
    assert cluster.admin.perform(fx.Children(layout.tables(ROOT))) == ()
    assert cluster.admin.perform(fx.Children(f"{ROOT}/sharded")) == ()
    with pytest.raises(TableNotFound):
        connection.drop_table("d")


def test_a_shard_is_no_table_of_its_own(connection: Connection) -> None:
    create(connection)
    for call in (connection.table, connection.drop_table):
        with pytest.raises(InvalidName):
            call("d~0")
    with pytest.raises(InvalidName):
        connection.create_table("e~0", SCHEMA)


def test_a_replica_takes_no_insert_into_one_shard_alone(connection: Connection, cluster: InProcessCluster) -> None:
    table = create(connection)
    status, answer = cluster.nodes[0].insert(rows(0), table="d~0")
    assert (status, answer["error"]) == (400, "BadInput")
    assert "d~0 is a shard of a sharded table: insert into d" in answer["message"]
    assert table.scan().count() == 0


def test_an_administrator_names_shards(connection: Connection) -> None:
    create(connection).insert(rows(0, 30))
    assert {each.table for each in connection.check_parts("d~1")} == {"d~1"}
    with pytest.raises(TableNotFound, match="takes a shard, as in d~0"):
        connection.check_parts("d")


def test_names_of_sharded_tables_and_of_others_exclude_each_other(connection: Connection) -> None:
    create(connection)
    for key in ("", "k"):
        with pytest.raises(TableExists, match="exists already"):
            connection.create_table("d", SCHEMA, order_by="k", shard_by=key)
    connection.create_table("e", SCHEMA, order_by="k")
    with pytest.raises(TableExists, match="exists already"):
        create(connection, "e")
    connection.drop_table("e")
    assert create(connection, "e").insert(rows(0)).outcome == "inserted"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"shard_by": "v"}, "can't be sharded by 'v'"),
        ({"shard_by": "nothing"}, "no column 'nothing'"),
        ({"shards": 0}, "1 to 256 shards"),
        ({"shards": 32}, "can't share 16 buckets"),
        ({"buckets": 12}, "power of two"),
        ({"replicas": 5}, "ask for 1 to 2"),
        ({"policy": "summing(v)", "order_by": "s"}, "order key"),
    ],
)
def test_what_can_not_be_sharded_is_refused(connection: Connection, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        connection.create_table("d", SCHEMA, **{"order_by": "k", "shard_by": "k", "buckets": 16, **options})
    assert connection.tables() == ()


def test_inserted_rows_are_read_from_all_shards(connection: Connection) -> None:
    table = create(connection, shards=2)
    done = table.insert(rows(0, 100))
    assert isinstance(done, JointInsertResult)
    assert (done.outcome, done.rows, done.index) == ("inserted", 100, None)
    assert done.shards == (("d~0", 0), ("d~1", 0))
    assert multiset(table.to_arrow()) == multiset(rows(0, 100))
    assert table.scan(["k"]).count() == 100
    assert sorted(table.scan(["k"]).to_reader().read_all()["k"].to_pylist()) == list(range(100))
    assert table.scan().head(7).num_rows == 7
    with table.snapshot(level="eventual", lease_s=30.0) as snapshot:
        assert snapshot.rows == 100
        assert multiset(snapshot.to_arrow()) == multiset(rows(0, 100))
    assert table.insert(rows(0, 100)).outcome == "duplicate"
    assert table.insert(rows(0, 100), deduplicate=False).outcome == "inserted"
    assert table.scan().count() == 200
    assert table.insert(rows(0, 0)).outcome == "empty"


def test_a_token_is_one_over_all_shards(connection: Connection) -> None:
    table = create(connection)
    assert table.insert(rows(0, 50), token="load").outcome == "inserted"
    again = table.insert(rows(500, 3), token="load")
    assert isinstance(again, JointInsertResult)
    assert (again.outcome, again.shards) == ("duplicate", (("d~0", 0), ("d~1", 0)))
    assert table.scan().count() == 50


def test_rows_of_one_shard_take_one_request_and_the_same_token(connection: Connection) -> None:
    table = create(connection)
    first = table.insert(rows(7, 1), token="one")
    assert isinstance(first, JointInsertResult)
    assert (first.outcome, len(first.shards)) == ("inserted", 1)
    assert table.insert(rows(0, 50), token="one").outcome == "duplicate"
    assert table.to_arrow()["k"].to_pylist() == [7]


def test_large_inserts_go_as_uploads(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replitree.client.sharded.insert.joint.REQUEST_ROWS_MAX", 10)
    table = create(connection)
    assert table.insert(rows(0, 100)).outcome == "inserted"
    assert multiset(table.to_arrow()) == multiset(rows(0, 100))


def test_a_read_by_key_opens_one_shard(connection: Connection) -> None:
    table = create(connection, shards=4)
    table.insert(rows(0, 200))
    with table.snapshot(where="k = 17") as snapshot:
        assert len(snapshot.shards) == 1
        assert snapshot.to_arrow(where="k = 17")["s"].to_pylist() == ["17"]
    assert sorted(table.to_arrow(["k"], "k in (3, 99)")["k"].to_pylist()) == [3, 99]
    assert table.scan(where="k = 1 and k = 2").count() == 0
    assert table.to_arrow(where="k = 1 and k = 2").num_rows == 0


def test_a_changed_map_splits_the_rows_again(connection: Connection, cluster: InProcessCluster) -> None:
    table = create(connection)
    table.insert(rows(0, 10))
    # As a move of buckets will do it: all buckets but one are those of the second shard from now on.
    path = layout.shard_map(layout.sharded(ROOT, "d"))
    moved = first_map(("k",), {Shard(0): 1, Shard(1): 15}, 16)
    assert isinstance(cluster.admin.perform(fx.Commit(fx.Set(path, encode_map(moved), fx.Version(0)))), fx.Applied)
    done = table.insert(rows(100, 64))
    assert isinstance(done, JointInsertResult)
    assert done.outcome == "inserted"
    assert table.scan(where="k >= 100").count() == 64
    assert table.insert(rows(100, 64)).outcome == "duplicate"


def test_a_participant_that_is_gone_is_replaced(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    table, prepare, gone = create(connection), JointInserter._prepare_one, list[str]()  # noqa: SLF001

    def given_up(self: JointInserter, *asked: Any) -> Any:
        share = prepare(self, *asked)
        if len(gone) < 2:
            gone.append(str(share.at))
            self._abandon([share])
        return share

    monkeypatch.setattr(JointInserter, "_prepare_one", given_up)
    # No server has both shards, as far as the client sees.
    monkeypatch.setattr(JointInserter, "_insert_whole", lambda *_: None)
    assert table.insert(rows(0, 40)).outcome == "inserted"
    assert len(gone) == 2
    assert multiset(table.to_arrow()) == multiset(rows(0, 40))


@pytest.mark.parametrize("count", [1, 40])
def test_a_handle_of_an_earlier_table_puts_no_row_into_the_wrong_shard(connection: Connection, count: int) -> None:
    old = create(connection, shards=2)
    old.insert(rows(0, 40))
    connection.drop_table("d")
    create(connection, shards=3, buckets=64)
    with pytest.raises(TableNotFound, match="created again: open it again"):
        old.insert(rows(100, count), timeout_s=2.0)
    assert old.to_arrow().num_rows == 0
    assert old.info.names == ("d~0", "d~1", "d~2")
    assert old.insert(rows(100, 40)).outcome == "inserted"
    for key in range(100, 140):
        assert old.scan(where=f"k = {key}").count() == 1


def test_each_shard_is_merged_by_itself(connection: Connection) -> None:
    table = create(connection)
    for first in (0, 50, 100):
        table.insert(rows(first, 50))
    done = table.optimize(final=True)
    assert done.finished, done

    def parts() -> list[int]:
        with table.snapshot() as snapshot:
            return [len(shard.parts) for shard in snapshot.shards]

    # The server that is read need not be the one that has merged.  Until it has the result it shows the sources: the same rows.
    wait_for(lambda: parts() == [1, 1], "the merged parts are at the server that is read")
    assert multiset(table.to_arrow()) == multiset(rows(0, 150))
    with pytest.raises(BadInput, match="cleanup"):
        table.optimize(final=True, cleanup=True)


def test_merges_are_paused_in_all_shards(connection: Connection, cluster: InProcessCluster) -> None:
    table = create(connection)
    hosted = hosted_everywhere(cluster, *table.info.names)

    def paused() -> list[bool]:
        return [node.get("status", name)["merges_paused"] for node, name in hosted]

    assert (table.pause_merges(), paused()) == (("r1", "r2"), [True] * 4)
    assert (table.resume_merges(), paused()) == (("r1", "r2"), [False] * 4)


def test_a_quorum_is_one_in_every_shard(connection: Connection, cluster: InProcessCluster) -> None:
    table = create(connection)
    hosted_everywhere(cluster, *table.info.names)
    assert table.insert(rows(0, 20), quorum=2).outcome == "inserted"
    assert table.scan().count() == 20


def test_rows_without_a_key_are_refused(connection: Connection) -> None:
    table = create(connection)
    with pytest.raises(SchemaMismatch, match="k"):
        table.insert({"k": [1, None], "v": [0.5, 0.5], "s": ["a", "b"]})
    with pytest.raises(SchemaMismatch, match="k"):
        table.insert({"v": [0.5], "s": ["a"]})
    assert table.scan().count() == 0


def test_what_a_sharded_table_can_not_do_is_refused(connection: Connection) -> None:
    table = create(connection)
    table.insert(rows(0, 20))
    for name in sorted(REFUSED):
        with pytest.raises(BadInput, match="is sharded, and a sharded table can't"):
            getattr(table, name)()
    with table.snapshot() as snapshot:
        attributes: list[tuple[object, str]] = [
            *((table, name) for name in ("inserter", "commander")),
            *((snapshot, name) for name in ("parts", "index", "files", "select")),
            *((table.scan(), name) for name in ("to_df",)),
        ]
        for one, name in attributes:
            with pytest.raises(BadInput, match="is sharded, and a sharded table can't"):
                getattr(one, name)
        assert not hasattr(snapshot, "nothing")
    with pytest.raises(BadInput, match="is sharded"):
        table.insert(rows(100, 5), replica="r1")
    for at, problem in (
        ({"min_index": 3}, "each shard has a log of its own"),
        ({"as_of": 3}, "each shard has a log of its own"),
        ({"as_of": "monday"}, "has no tag 'monday'; it has none"),
        ({"level": "sequential"}, "unknown: use eventual, consistent, linearizable"),
        ({"as_of": "5f0c@1", "level": "consistent"}, "not both"),
        ({"as_of": "5f0c@x"}, "is no cut"),
    ):
        for read in (table.snapshot, table.scan, table.to_arrow):
            with pytest.raises(BadInput, match=problem):
                read(**at)
    assert table.scan().count() == 20


def test_every_method_of_a_table_is_either_done_or_refused() -> None:
    names = {name for name in dir(Table) if not name.startswith("_")}
    kinds = (
        ShardedTable,
        ShardedConsumerTable,
        ShardedFeedTable,
        ShardedViewsTable,
        ShardedWholeTable,
        ShardedAsideTable,
    )
    own = {name for kind in kinds for name in vars(kind) if not name.startswith("_")}
    assert names - own - SUPPORTED == set()
    assert set(REFUSED) <= names


def test_shards_are_hosted_where_they_are_placed(connection: Connection, cluster: InProcessCluster) -> None:
    table = create(connection, shards=2, replicas=1)
    assert [table.info.placement.of(shard) for shard in table.info.map.shards] == [("r1",), ("r2",)]
    hosts = [[each.name for each in connection.catalog.replicas(name)] for name in table.info.names]
    assert hosts == [["r1"], ["r2"]]
    assert table.insert(rows(0, 40)).outcome == "inserted"
    assert table.scan().count() == 40
    connection.place_shard("d", 0, ["r1", "r2"])
    first, second = cluster.nodes
    wait_for(lambda: cluster.is_active(second, "d~0"), "r2 joins the shard that is placed on it now")
    wait_for(lambda: second.contents("d~0") == first.contents("d~0"), "r2 has the rows of the shard")
    with pytest.raises(BadInput, match="has the shards 0, 1, not 7"):
        connection.place_shard("d", 7, [])
    connection.place_shard("d", 0, ["r2"])
    assert cluster.is_active(first, "d~0"), "until its server starts again"
    first.restart()
    assert not cluster.is_active(first, "d~0")
    connection.drop_replica("d~0", "r1")
    assert [each.name for each in connection.catalog.replicas("d~0")] == ["r2"]
    # Another connection, for this one believes its list of replicas for some seconds.
    with cluster.connect() as other:
        assert other.table("d").scan().count() == 40


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_inserted_is_read(connection: Connection, seed: int) -> None:
    chance = random.Random(seed)
    table, sent = create(connection, shards=chance.choice([1, 2, 3, 5]), buckets=chance.choice([8, 64])), Counter[Any]()
    for number in range(6):
        piece = rows(chance.randrange(-50, 1000), chance.randrange(0, 40))
        for _ in range(chance.choice([1, 2])):
            table.insert(piece, token=f"{number}")
        sent += multiset(piece)
    assert multiset(table.to_arrow()) == sent
    key = chance.choice(list(sent))[0]
    assert multiset(table.to_arrow(where=f"k = {key}")) == Counter({row: n for row, n in sent.items() if row[0] == key})


def test_a_creation_that_was_cut_off_is_finished_by_the_next_one(connection: Connection, tmp_path: Path) -> None:
    from replitree.client.sharded.sharded_catalog import Sharding, new_sharded
    from replitree.client.sharded.sharded_catalog import create as create_sharded
    from replitree.protocol.sharded.creation import create_sharded as procedure
    from replitree.protocol.sharded.placement import EVERYWHERE
    from replitree.storage.schema.definition import define_table

    del tmp_path
    create(connection, "other")
    definition = define_table("d", SCHEMA, order_by="k")
    sharding = Sharding.of("k", 2, 16)
    begun = procedure(new_sharded(ROOT, definition, "cut0ff", sharding.map_of(definition), EVERYWHERE), bytes_max=0)
    connection.catalog.perform(next(begun))
    assert connection.tables() == ("other",)
    with pytest.raises(TableNotFound):
        connection.table("d")
    with pytest.raises(TableExists, match="was cut off"):
        create_sharded(connection.catalog, definition, Sharding.of("k", 3, 16))
    with pytest.raises(TableExists):
        connection.create_table("d", SCHEMA)
    finding = next(each for each in examine(connection.look_over()) if each.code == "half-made-table")
    assert "sharded table d was cut off" in finding.text
    assert create(connection, "d").info.incarnation == "cut0ff"
    assert connection.tables() == ("d", "other")
    assert all(each.code != "half-made-table" for each in examine(connection.look_over()))


@pytest.mark.parametrize("count", [1, 40])
def test_a_lost_answer_makes_no_second_insert(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    table = create(connection)
    lost = lose_answers(monkeypatch, "/joint")
    assert table.insert(rows(0, count), deduplicate=False).outcome == "duplicate", "of the first try"
    assert len(lost) == 1
    assert multiset(table.to_arrow()) == multiset(rows(0, count))


@pytest.mark.parametrize("count", [1, 40])
def test_an_insert_without_any_answer_is_unknown_and_its_token_settles_it(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    table = create(connection)
    with monkeypatch.context() as patched:
        lost = lose_answers(patched, "/joint", EVERY)
        unknown = until_unknown(lambda: table.insert(rows(0, count), token="mine", timeout_s=0.5), lost)
    assert unknown.token == "mine"
    assert table.insert(rows(0, count), token="mine").outcome == "duplicate"
    assert multiset(table.to_arrow()) == multiset(rows(0, count))


def test_rows_that_were_prepared_without_an_answer_are_prepared_again(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(connection)
    # No server has both shards, as far as the client sees.
    monkeypatch.setattr(JointInserter, "_insert_whole", lambda *_: None)
    lost = lose_answers(monkeypatch, "/prepared", 2)
    assert table.insert(rows(0, 40)).outcome == "inserted"
    assert len(lost) == 2
    assert multiset(table.to_arrow()) == multiset(rows(0, 40))


def test_a_commit_that_is_too_large_says_what_to_do(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replitree.protocol.sharded.joint_insert.JOINT_BYTES_MAX", 4_000)
    table = create(connection, partition_by="bucket(64, s)")
    with pytest.raises(BadInput, match="insert fewer partitions at once"):
        table.insert(rows(0, 200))
    assert table.scan().count() == 0
    assert table.insert(rows(0, 4)).outcome == "inserted"
