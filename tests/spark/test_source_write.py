"""The data source's writer without Spark: tasks, attempts, commit and abort against a scripted replica."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.table import Table
from replitree.errors import BadInput, OutcomeUnknown, SchemaMismatch
from replitree.spark.session.types import spark_schema
from replitree.spark.write.source_write import WritePlan, abort_job, commit_job, plan_write
from replitree.spark.write.write_tasks import write_task
from replitree.storage.parts.joined import joined_manifest
from replitree.wire.history_format import Operation
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import read_files
from tests.client.conftest import TOKEN, FakeCluster
from tests.client.fake_replica import DROP_SERVED, DROP_UNSEEN, Failure, FakeReplica

READ_ONLY = Failure(503, "ReadOnly", "no session")


@pytest.fixture
def table(cluster: FakeCluster) -> Table:
    cluster.create("t", "k bigint not null, s string", order_by="k")
    cluster.add_replica("t", "r1")
    return cluster.connect().table("t")


@pytest.fixture
def r1(cluster: FakeCluster, table: Table) -> FakeReplica:
    return cluster.replicas["r1"]


def plan_of(table: Table, **options: str) -> WritePlan:
    return plan_write({"table": "t", "timeout": "5"} | options, spark_schema(table.definition, ["s", "k"]))


def batches(start: int, count: int) -> Iterator[pa.RecordBatch]:
    """Rows as Spark sends them: its own order of columns, and `not null` where a frame has it."""
    schema = pa.schema([pa.field("s", pa.string(), nullable=False), pa.field("k", pa.int64())])
    for first in range(start, start + count, 7):
        keys = list(range(first, min(first + 7, start + count)))
        yield pa.RecordBatch.from_arrays([pa.array([f"s{k}" for k in keys]), pa.array(keys, pa.int64())], schema=schema)


def failing(start: int) -> Iterator[pa.RecordBatch]:
    yield from batches(start, 7)
    raise ValueError("as the test wants")


def left(r1: FakeReplica) -> list[str]:
    return [path.name for path in r1.uploads.iterdir()]


def test_tasks_become_one_insert_and_failed_attempts_no_part_of_it(table: Table, r1: FakeReplica) -> None:
    plan = plan_of(table)
    first = write_task(plan.job, batches(0, 20))
    with pytest.raises(ValueError, match="as the test wants"):
        write_task(plan.job, failing(20))
    again = write_task(plan.job, batches(20, 20))
    lost = write_task(plan.job, batches(20, 20))  # a speculative attempt that Spark did not choose
    assert len({first.folder, again.folder, lost.folder}) == 3
    nothing = write_task(plan.job, iter(()))
    commit_job(plan, [first, again, nothing])
    (manifest,) = r1.manifests
    assert (manifest.rows, len(manifest.files)) == (40, 2)
    assert len(r1.blocks) == 1
    assert left(r1) == []


def test_lost_answer_to_the_commit_is_settled_by_the_same_token(table: Table, r1: FakeReplica) -> None:
    plan = plan_of(table)
    message = write_task(plan.job, batches(0, 5))
    r1.script.append(Failure(504, "OutcomeUnknown"))
    commit_job(plan, [message])
    tokens = [seen.query["token"] for seen in r1.seen if seen.path.endswith("/commit")]
    assert tokens == [plan.token, plan.token]


@pytest.mark.parametrize("fate", [DROP_SERVED, DROP_UNSEEN])
def test_abort_after_an_unknown_commit_deletes_nothing_that_may_be_published(
    table: Table, r1: FakeReplica, fate: str
) -> None:
    plan = plan_of(table, timeout="0.3", inserttoken="job 7")
    message = write_task(plan.job, batches(0, 5))
    r1.script.extend([fate, *[READ_ONLY] * 1000])
    with pytest.raises(OutcomeUnknown) as caught:
        commit_job(plan, [message])
    assert caught.value.token == "job 7"
    abort_job(plan)
    assert "DELETE" not in {seen.method for seen in r1.seen}
    kept = [plan.job.upload] if fate == DROP_UNSEEN else []
    assert left(r1) == kept


def test_abort_of_a_failed_job_leaves_nothing(table: Table, r1: FakeReplica) -> None:
    plan = plan_of(table)
    write_task(plan.job, batches(0, 5))
    abort_job(plan)
    assert left(r1) == []
    assert r1.seen[-1].method == "DELETE"


def test_refused_commit_leaves_nothing(table: Table, r1: FakeReplica) -> None:
    plan = plan_of(table)
    message = write_task(plan.job, batches(0, 5))
    r1.script.append(Failure(429, "TooManyParts"))
    with pytest.raises(Exception, match="as the test said"):
        commit_job(plan, [message])
    abort_job(plan)
    assert left(r1) == []


def test_job_without_rows_is_no_insert(table: Table, r1: FakeReplica) -> None:
    plan = plan_of(table)
    commit_job(plan, [write_task(plan.job, iter(()))])
    assert not r1.blocks
    assert left(r1) == []


def test_job_has_a_token_of_its_own_unless_it_is_given_one(table: Table) -> None:
    assert plan_of(table).token != plan_of(table).token
    assert plan_of(table, inserttoken="mine").token == "mine"


def test_wrong_rows_are_refused_by_plan_and_task(table: Table) -> None:
    with pytest.raises(SchemaMismatch, match="'k' is missing"):
        plan_write({"table": "t"}, spark_schema(table.definition, ["s"]))
    plan = plan_of(table)
    null = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array([None], pa.int64())], names=["s", "k"])
    with pytest.raises(SchemaMismatch, match="'k'"):
        write_task(plan.job, iter([null]))


def test_without_a_shared_disk_tasks_send_their_files_and_the_driver_manifests_only(cluster: FakeCluster) -> None:
    cluster.create("t", "k bigint not null, s string", order_by="k")
    far = cluster.add_replica("t", "r8", machine="elsewhere")
    table = cluster.connect().table("t")
    plan = plan_of(table)
    messages = [write_task(plan.job, batches(0, 5)), write_task(plan.job, batches(5, 5))]
    lost = write_task(plan.job, batches(5, 5))  # a speculative attempt that Spark did not choose
    assert [seen.method for seen in far.seen].count("PUT") == 3
    assert sum(len(pickle.dumps(message)) for message in messages) < 4096, "no row is in a message"
    assert TOKEN.encode() not in pickle.dumps(plan), "an executor has a ticket for its upload only"
    far.script.append(DROP_SERVED)  # of the request that names the files
    commit_job(plan, messages)
    assert (far.manifests[0].rows, [file.name for file in far.manifests[0].files]) == (
        10,
        ["data-0.parquet", "data-1.parquet"],
    )
    (pieces,) = far.pieces.values()
    assert joined_manifest(pieces) == far.manifests[0]
    assert {lost.folder, *(message.folder for message in messages)} == far.attempts
    assert far.gathered == {message.folder for message in messages}
    abort_job(plan)


def test_abort_of_a_job_that_sent_its_files_discards_them(cluster: FakeCluster) -> None:
    cluster.create("t", "k bigint not null, s string", order_by="k")
    far = cluster.add_replica("t", "r8", machine="elsewhere")
    plan = plan_of(cluster.connect().table("t"))
    write_task(plan.job, batches(0, 5))
    abort_job(plan)
    assert left(far) == []


def test_executors_that_see_the_disk_and_others_that_do_not(
    table: Table, r1: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(table)
    near = write_task(plan.job, batches(0, 5))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "access", lambda *_: False)
        far = write_task(plan.job, batches(5, 5))
    assert r1.attempts == {far.folder} != {near.folder}
    commit_job(plan, [near, far])
    assert r1.manifests[0].rows == 10
    assert left(r1) == []


# --- overwrite ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "all"),
        ({"partitionoverwritemode": "STATIC"}, "all"),
        ({"partitionoverwritemode": "Dynamic"}, "partitions"),
    ],
)
def test_job_that_overwrites_says_so_in_its_one_commit(
    table: Table, r1: FakeReplica, options: dict[str, str], says: str
) -> None:
    schema = spark_schema(table.definition, ["s", "k"])
    plan = plan_write({"table": "t", "timeout": "5"} | options, schema, overwrite=True)
    commit_job(plan, [write_task(plan.job, batches(0, 20))])
    (commit,) = [seen for seen in r1.seen if seen.path.endswith("/commit")]
    assert commit.query == {"token": plan.token, "overwrite": says}
    assert len(r1.blocks) == 1


def test_job_that_appends_overwrites_nothing_whatever_its_options(table: Table, r1: FakeReplica) -> None:
    plan = plan_of(table, partitionoverwritemode="dynamic")
    commit_job(plan, [write_task(plan.job, batches(0, 20))])
    assert "overwrite" not in r1.seen[-1].query


def test_overwriting_with_no_rows_empties_the_whole_table_only(table: Table, r1: FakeReplica) -> None:
    r1.answers["POST drop"] = {"id": "x", "index": 3, "applied": True, "finished": True}
    schema = spark_schema(table.definition, ["s", "k"])
    for mode, drops in (("dynamic", 0), ("static", 1)):
        plan = plan_write({"table": "t", "partitionoverwritemode": mode}, schema, overwrite=True)
        commit_job(plan, [write_task(plan.job, iter(()))])
        assert sum(seen.path.endswith("/drop") for seen in r1.seen) == drops
    assert not r1.blocks
    assert left(r1) == []


# --- jobs that are recorded ---


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def recorded(file: Path) -> list[Operation]:
    found = read_files([file])
    return [found.operation(number) for number in range(len(found))]


def test_a_recorded_job_has_the_numbers_of_the_attempts_that_spark_chose(
    table: Table, r1: FakeReplica, history: Path
) -> None:
    plan = plan_of(table, record=str(history), txnappid="nightly", txnversion="7")
    first, second = write_task(plan.job, batches(0, 20)), write_task(plan.job, batches(30, 5))
    write_task(plan.job, batches(30, 9))  # a speculative attempt that Spark did not choose
    assert not history.exists(), "nothing has been asked for yet"
    commit_job(plan, [first, second, write_task(plan.job, iter(()))])
    (insert,) = recorded(history)
    assert (insert.table, insert.outcome, insert.rows) == ("t", "ok", ((0, 19), (30, 34)))
    assert insert.token == "nightly/7"
    assert insert.index is not None
    assert len(r1.blocks) == 1


def test_a_recorded_commit_without_an_answer_is_unknown_and_its_repetition_the_same_insert(
    table: Table, r1: FakeReplica, history: Path
) -> None:
    options = {"record": str(history), "inserttoken": "job 7", "timeout": "0.3"}
    plan = plan_of(table, **options)
    r1.script.extend([DROP_SERVED, *[READ_ONLY] * 1000])
    with pytest.raises(OutcomeUnknown):
        commit_job(plan, [write_task(plan.job, batches(0, 5))])
    r1.script.clear()
    again = plan_of(table, **options | {"timeout": "5"})
    commit_job(again, [write_task(again.job, batches(0, 5))])
    one, two = recorded(history)
    assert [(each.outcome, each.token, each.rows) for each in (one, two)] == [
        (outcome, "job 7", ((0, 4),)) for outcome in ("unknown", "ok")
    ]
    assert one.client != two.client
    assert (check(read_files([history])).inserts, len(r1.blocks)) == (2, 1)


def test_a_recorded_job_that_a_history_can_not_hold_inserts_nothing(
    table: Table, r1: FakeReplica, history: Path
) -> None:
    record = {"record": str(history)}
    schema = spark_schema(table.definition, ["s", "k"])
    for options, overwrite, says in (
        (record, True, "overwrite without recording"),
        ({"record": "history.jsonl"}, False, "an absolute path"),
        ({"recordkey": "k"}, False, "give option record, too"),
        (record | {"recordkey": "s"}, False, "rows of t have no number"),
        (record | {"recordkey": "none"}, False, "rows of t have no number"),
    ):
        with pytest.raises(BadInput, match=says):
            plan_write({"table": "t"} | options, schema, overwrite=overwrite)
    plan = plan_of(table, **record)
    with pytest.raises(BadInput, match="has -1"):
        write_task(plan.job, batches(-1, 3))
    with pytest.raises(BadInput, match="one is there twice"):
        commit_job(plan, [write_task(plan.job, batches(0, 5)), write_task(plan.job, batches(4, 5))])
    abort_job(plan)
    assert not r1.blocks
    assert left(r1) == []
    assert not history.exists()
