"""Sharded tables in Spark's catalog and its data source, without a session: real replicas in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from replitree.client.connection import Connection
from replitree.client.insert.upload import Upload
from replitree.client.sharded.moving.resharding import begin_buckets
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.client.transport.http import HttpClient
from replitree.errors import BadInput, ReplicaUnavailable, SchemaMismatch, StreamReplaced, Unavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.sharded.shard_map import Shard, encode_map, first_map
from replitree.spark.catalog import planner
from replitree.spark.catalog.planner import Planner
from replitree.spark.catalog.requests import CatalogSettings, PlannerRequest
from replitree.spark.catalog.shards import FOR_CLUSTERS, take_snapshot, wanted_shards
from replitree.spark.read import source_read
from replitree.spark.read.source_read import plan_partitions, plan_read, read_partition, read_schema
from replitree.spark.session.types import spark_schema
from replitree.spark.stream.stream_write import BatchMessage, abort_batch, commit_batch, plan_batch
from replitree.spark.write import source_write
from replitree.spark.write.source_write import WritePlan, commit_job, plan_write, stage_rows
from replitree.storage.sql.predicate_parser import parse_predicate
from tests.client.lost_answers import lose_answers
from tests.replica.fixtures import cluster_and_connection
from tests.replica.inprocess import ROOT, InProcessCluster, rows
from tests.waiting import wait_for

COLUMNS = "k BIGINT NOT NULL, v DOUBLE, s STRING"
SHARDED = {"order_by": "k", "shard_by": "k", "shards": "2", "buckets": "16", "provider": "replitree"}
LOAD = PlannerRequest(1, "load", table="d")

cluster, connection = cluster_and_connection()


def planner_of(connection: Connection, monkeypatch: pytest.MonkeyPatch, master: str = "local[1]") -> Planner:
    monkeypatch.setattr(planner, "connect", lambda *_, **__: connection)
    return Planner(CatalogSettings(url="zk://nowhere:1/replitree", master=master))


def create(made: Planner, **properties: str) -> None:
    made.answer(PlannerRequest(1, "create", table="d", columns=COLUMNS, properties=SHARDED | properties))


def keys_in(files: list[tuple[str, int, int, str, int]]) -> list[int]:
    return sorted(k for path, *_ in files for k in pq.read_table(path, columns=["k"]).column("k").to_pylist())


def test_sql_creates_shows_and_drops_a_sharded_table(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    made = planner_of(connection, monkeypatch)
    create(made, replicas="1")
    table = connection.table("d")
    assert isinstance(table, ShardedTable)
    assert {len(table.info.placement.of(shard) or ()) for shard in table.info.map.shards} == {1}
    assert made.answer(PlannerRequest(2, "tables")) == ("d",)
    shown = made.answer(LOAD)["properties"]
    assert {key: shown[key] for key in ("shard_by", "shards", "buckets", "order_by")} == {
        **{key: SHARDED[key] for key in ("shard_by", "shards", "buckets", "order_by")}
    }
    made.answer(PlannerRequest(3, "drop", table="d"))
    assert connection.tables() == ()


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"shards": "two"}, "whole number"),
        ({"shards": "17"}, "can't share 16 buckets"),
        ({"shardby": "k"}, "no property 'shardby'"),
    ],
)
def test_sql_says_why_it_does_not_create_a_sharded_table(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        create(planner_of(connection, monkeypatch), **properties)
    assert connection.tables() == ()


def test_a_query_reads_one_snapshot_of_all_shards(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    made = planner_of(connection, monkeypatch)
    create(made)
    table = connection.table("d")
    table.insert(rows(0, 100))
    first = made.answer(LOAD)
    table.insert(rows(100, 100))
    second = made.answer(LOAD)
    assert first["handle"] != second["handle"]
    assert keys_in(made.files(first["handle"], "")) == list(range(100))
    assert keys_in(made.files(second["handle"], "")) == list(range(200))
    assert made.answer(LOAD) == second
    assert first["other_way"] == ""
    assert first["bytes"] < second["bytes"]
    # The cut of a snapshot names it: in VERSION AS OF, and for the source in Python.
    then = made.answer(PlannerRequest(2, "load", table="d", version=first["properties"]["cut"]))
    assert keys_in(made.files(then["handle"], "")) == list(range(100))
    options = {"table": "d", **{name.lower(): value for name, value in first["snapshot_options"].items()}}
    with reading(connection, monkeypatch):
        _, partitions = plan_partitions(plan_read(options, read_schema(options)))
        found = [k for each in partitions for batch in read_partition(each) for k in batch.column("k").to_pylist()]
    assert sorted(found) == list(range(100))
    assert made.answer(PlannerRequest(2, "load", table="d", options={"level": "linearizable"})) == second


def test_a_query_reads_what_a_tag_names(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    made = planner_of(connection, monkeypatch)
    create(made)
    table = connection.table("d")
    table.insert(rows(0, 100))
    table.tag("before-load")
    table.truncate()
    for options in ({"version": "before-load"}, {"options": {"asof": "before-load"}}):
        then = made.answer(PlannerRequest(2, "load", table="d", **options))
        assert keys_in(made.files(then["handle"], "")) == list(range(100))


def test_a_procedure_tags_a_sharded_table(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    made = planner_of(connection, monkeypatch)
    create(made)
    table = connection.table("d")
    table.insert(rows(0, 100))
    ((name, number, count),) = made.answer(PlannerRequest(2, "call", procedure="tag", arguments=("d", "a", None)))
    (tag,) = table.tags()
    assert (name, number, count) == ("a", tag.index, 100)
    assert tag.version.endswith(f"@{number}")
    assert made.answer(PlannerRequest(2, "call", procedure="delete_tag", arguments=("d", "a"))) == [("a",)]


def test_a_condition_on_the_shard_key_opens_files_of_one_shard(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planner_of(connection, monkeypatch)
    create(made)
    table = connection.table("d")
    assert isinstance(table, ShardedTable)
    table.insert(rows(0, 100))
    handle = made.answer(LOAD)["handle"]
    (own,) = (each.to_arrow().column("k").to_pylist() for each in table.find("k = 17").wanted)
    found = keys_in(made.files(handle, "k = 17"))
    assert 17 in found
    assert set(found) <= set(own) < set(range(100))
    # Statistics leave out nothing here: what is left out is a shard.
    assert keys_in(made.files(handle, "v >= 0")) == list(range(100))


def test_shards_are_not_pruned_by_a_map_that_changed_while_the_snapshot_was_taken(
    connection: Connection, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planner_of(connection, monkeypatch)
    create(made)
    table = connection.table("d")
    table.insert(rows(0, 100))
    before = ShardedTable.snapshot

    def moved(self: ShardedTable, *args: Any, **options: Any) -> Any:
        taken = before(self, *args, **options)
        path = layout.shard_map(layout.sharded(ROOT, "d"))
        moves = encode_map(first_map(["k"], {Shard(0): 1, Shard(1): 3}, 16))
        assert isinstance(cluster.admin.perform(fx.Commit(fx.Set(path, moves, fx.ANY_VERSION))), fx.Applied)
        return taken

    monkeypatch.setattr(ShardedTable, "snapshot", moved)
    handle = made.answer(LOAD)["handle"]
    assert made.files(handle, "k = 17") == made.files(handle, "")


def test_while_buckets_move_a_query_opens_both_shards_that_have_a_key(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planner_of(connection, monkeypatch)
    create(made)
    table = connection.table("d")
    assert isinstance(table, ShardedTable)
    table.insert(rows(0, 100))
    assert made.answer(LOAD)["sharding"]["columns"] == ["k"]
    begin_buckets(connection.catalog, "d", range(16), 1)
    table.insert(rows(100, 1))
    loaded = made.answer(LOAD)
    # Two shards have rows of a bucket: a join by shards would miss some.
    assert loaded["sharding"] is None
    assert {17} <= set(keys_in(made.files(loaded["handle"], "k = 17")))
    assert keys_in(made.files(loaded["handle"], "v >= 0")) == list(range(101))


def test_a_map_that_is_newer_than_the_cut_prunes_nothing(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planner_of(connection, monkeypatch)
    create(made)
    table = connection.table("d")
    assert isinstance(table, ShardedTable)
    table.insert(rows(0, 100))
    cut = table.snapshot(level="linearizable").cut
    assert cut is not None
    begin_buckets(connection.catalog, "d", range(16), 1)
    taken = take_snapshot(table, lambda: table.snapshot(as_of=cut))
    assert taken.map is None
    assert len(wanted_shards(taken, parse_predicate("k = 17", table.definition))) == 2


def test_on_a_cluster_python_tasks_read_a_sharded_table(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planner_of(connection, monkeypatch, master="spark://somewhere:7077")
    create(made)
    assert made.answer(LOAD)["other_way"] == FOR_CLUSTERS


def test_the_history_of_a_sharded_table_has_a_row_for_each_transaction(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planner_of(connection, monkeypatch)
    create(made)
    table = connection.table("d")
    table.insert(rows(0, 100))
    table.delete("k < 10")
    told = made.answer(PlannerRequest(2, "history", table="d"))
    assert [(row[0], row[2], row[4]) for row in told] == [
        (each.index, each.kind, each.rows) for each in table.history()
    ]
    assert [row[2] for row in told] == ["mutate", "get"]


def test_statements_that_a_sharded_table_can_not_do_are_refused_with_its_own_sentence(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planner_of(connection, monkeypatch)
    create(made)
    handle = made.answer(LOAD)["handle"]
    for request in (
        PlannerRequest(2, "partitions", table="d", handle=handle),
        PlannerRequest(2, "load", table="d", version="7"),
        PlannerRequest(2, "load", table="d", options={"minindex": "7"}),
    ):
        with pytest.raises(BadInput, match="table 'd' is sharded, and a sharded table can't"):
            made.answer(request)


@contextmanager
def reading(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the data source use a connection, and keep it open."""
    with monkeypatch.context() as patch:
        patch.setattr(source_read, "open_connection", lambda _: _Kept(connection))
        yield


class _Kept:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> Connection:
        return self._connection

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    "more", [{}, {"where": "k = 17"}, {"where": "k in (3, 4, 5, 6) or v < 0"}, {"partitions": "5"}]
)
def test_tasks_of_the_data_source_read_the_rows_of_all_shards(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    create(planner_of(connection, monkeypatch))
    table = connection.table("d")
    for first in (0, 100):
        table.insert(rows(first, 100))
    options = {"table": "d", **more}
    with reading(connection, monkeypatch):
        schema = read_schema(options)
        assert schema == spark_schema(table.definition)
        _, partitions = plan_partitions(plan_read(options, schema))
        found = pa.Table.from_batches([batch for each in partitions for batch in read_partition(each)])
    expected = table.to_arrow(where=more.get("where"))
    assert found.sort_by("k").to_pylist() == expected.sort_by("k").to_pylist()
    # A ticket opens the files of one shard.
    assert {each.value.plan.options["table"] for each in partitions} <= {"d~0", "d~1"}


def test_tasks_of_the_data_source_apply_the_policy_in_each_shard(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(planner_of(connection, monkeypatch), policy="replacing")
    table = connection.table("d")
    for _ in range(2):
        table.insert(rows(0, 50), deduplicate=False)
    options = {"table": "d", "final": "true"}
    with reading(connection, monkeypatch):
        _, partitions = plan_partitions(plan_read(options, read_schema(options)))
        found = [k for each in partitions for batch in read_partition(each) for k in batch.column("k").to_pylist()]
    assert sorted(found) == list(range(50))


# --- writes -----------------------------------------------------------------------------------------------------------------


@contextmanager
def writing(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let jobs use a connection, and keep it open."""
    with monkeypatch.context() as patch:
        patch.setattr(source_write, "kept_connection", lambda _: _Kept(connection))
        yield


def job(data: Sequence[pa.Table], *, before_commit: Callable[[], object] = lambda: None, **options: str) -> WritePlan:
    """Run a job of the data source, a task for each table, and commit it."""
    plan = plan_write({"table": "d", **options}, from_arrow_schema(data[0].schema))
    messages = [stage_rows(plan.job, iter(each.to_batches(max_chunksize=7))) for each in data]
    before_commit()
    commit_job(plan, messages)
    return plan


def uploads_left(cluster: InProcessCluster) -> list[Path]:
    return [path for path in cluster.folder.rglob("uploads/*") if path.is_dir()]


@pytest.mark.parametrize("are_here", [True, False])
def test_tasks_of_the_data_source_write_into_all_shards_by_one_insert(
    connection: Connection, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch, are_here: bool
) -> None:
    create(planner_of(connection, monkeypatch))
    table = connection.table("d")
    if not are_here:
        monkeypatch.setattr(Upload, "folder", None)
    with writing(connection, monkeypatch):
        for _ in range(2):
            job([rows(0, 50), rows(50, 50)], inserttoken="one", quorum="majority")
        job([rows(100, 1)])
    assert sorted(table.to_arrow().column("k").to_pylist()) == list(range(101))
    wait_for(lambda: not uploads_left(cluster), lambda: f"left: {uploads_left(cluster)}")


def test_a_job_whose_map_has_changed_inserts_nothing(
    connection: Connection, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(planner_of(connection, monkeypatch))

    def move() -> None:
        path = layout.shard_map(layout.sharded(ROOT, "d"))
        moved = encode_map(first_map(["k"], {Shard(0): 1, Shard(1): 3}, 16))
        assert isinstance(cluster.admin.perform(fx.Commit(fx.Set(path, moved, fx.ANY_VERSION))), fx.Applied)

    with writing(connection, monkeypatch):
        with pytest.raises(Unavailable, match="nothing was inserted, run the job again"):
            job([rows(0, 50)], before_commit=move, inserttoken="one")
        assert connection.table("d").scan().count() == 0
        job([rows(0, 50)], inserttoken="one")
    assert connection.table("d").scan().count() == 50
    wait_for(lambda: not uploads_left(cluster), "nothing is left")


def test_a_job_whose_replica_has_lost_what_was_staged_inserts_nothing(
    connection: Connection, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(planner_of(connection, monkeypatch))
    request = HttpClient.request

    def request_and_lose(self: HttpClient, address: str, method: str, path: str, *args: Any, **named: Any) -> Any:
        answer = request(self, address, method, path, *args, **named)
        if "d~1/uploads" in path and "/prepare?" in path:
            staging = answer.decode(dict[str, Any])["staging"]
            request(self, address, "DELETE", f"/v1/tables/d~1/prepared/{staging}", timeout_s=5.0)
        return answer

    with writing(connection, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(HttpClient, "request", request_and_lose)
            with pytest.raises(ReplicaUnavailable, match=r"of shard d~1 does not have .* run the job again"):
                job([rows(0, 50)], inserttoken="one")
        assert connection.table("d").scan().count() == 0
        job([rows(0, 50)], inserttoken="one")
    assert connection.table("d").scan().count() == 50


def test_a_commit_of_uploads_whose_answer_is_lost_is_repeated(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(planner_of(connection, monkeypatch))
    lost = lose_answers(monkeypatch, "/joint?")
    with writing(connection, monkeypatch):
        job([rows(0, 50)])
    assert lost
    assert connection.table("d").scan().count() == 50


def test_jobs_that_a_sharded_table_can_not_do_are_refused(
    connection: Connection, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(planner_of(connection, monkeypatch))
    schema = from_arrow_schema(rows(0).schema)
    with writing(connection, monkeypatch), pytest.raises(BadInput, match="is sharded, and a sharded table can't"):
        plan_write({"table": "d", "replica": "r1"}, schema)
    assert not uploads_left(cluster)
    with pytest.raises(SchemaMismatch, match="may not be null"), writing(connection, monkeypatch):
        job([pa.table({"k": pa.array([None], pa.int64())})])


def test_batches_of_a_stream_are_written_once(
    connection: Connection, cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(planner_of(connection, monkeypatch))
    options = {"table": "d"}

    def batch(number: int, first: int, query: str = "q", **more: str) -> None:
        plan = plan_batch(options | more, from_arrow_schema(rows(0).schema), overwrite=False)
        tasks = (rows(first, 30), rows(first + 30, 30))
        messages = [BatchMessage(plan, query, stage_rows(plan.job, iter(each.to_batches()))) for each in tasks]
        try:
            commit_batch(options | more, messages, number, overwrite=False)
        except StreamReplaced:
            abort_batch(messages)
            raise

    with writing(connection, monkeypatch):
        for number, first in ((0, 0), (0, 0), (1, 100), (0, 0)):
            batch(number, first)
        with pytest.raises(StreamReplaced):
            batch(1, 200, "another", txnappid="q")
        batch(1, 300, "another", txnappid="q", newcheckpoint="true")
    expected = [k for first in (0, 100, 300) for k in range(first, first + 60)]
    assert sorted(connection.table("d").to_arrow().column("k").to_pylist()) == expected
    wait_for(lambda: not uploads_left(cluster), lambda: f"left: {uploads_left(cluster)}")


def test_a_batch_write_with_a_version_is_written_once(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    create(planner_of(connection, monkeypatch))
    with writing(connection, monkeypatch):
        for _ in range(2):
            job([rows(0, 50)], txnappid="load", txnversion="7")
        for _ in range(2):
            job([rows(50, 50)], txnappid="load", txnversion="8", quorum="2")
    assert connection.table("d").scan(level="linearizable").count() == 100


# --- commands ---------------------------------------------------------------------------------------------------------------


def test_queries_show_the_commands_of_the_same_application(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planner_of(connection, monkeypatch)
    create(made)
    connection.table("d").insert(rows(0, 100))
    assert keys_in(made.files(made.answer(LOAD)["handle"], "")) == list(range(100))
    made.answer(PlannerRequest(2, "delete", table="d", where="k < 90"))
    assert keys_in(made.files(made.answer(LOAD)["handle"], "")) == list(range(90, 100))
    made.answer(PlannerRequest(3, "alter", table="d", sql="ADD COLUMN w INT"))
    described = made.answer(LOAD)
    assert '"w"' in described["schema"]
    assert described["other_way"] == ""
    made.answer(PlannerRequest(4, "truncate", table="d"))
    assert made.files(made.answer(LOAD)["handle"], "") == []


def test_a_job_brings_new_columns_into_all_shards(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    create(planner_of(connection, monkeypatch))
    wider = rows(0, 50).append_column("w", pa.array(range(50), pa.int32()))
    with writing(connection, monkeypatch):
        with pytest.raises(SchemaMismatch, match="no column 'w'"):
            job([wider])
        job([wider], mergeschema="true")
    assert sorted(connection.table("d").to_arrow().column("w").to_pylist()) == list(range(50))
