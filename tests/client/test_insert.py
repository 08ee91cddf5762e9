"""What the client does when replicas fail: the rows get in once, or the error says what is certain."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.insert import insert as insert_module
from replitree.client.table import Table
from replitree.errors import (
    BadInput,
    NotAuthorized,
    OutcomeUnknown,
    ReadOnly,
    ReplicaUnavailable,
    SchemaMismatch,
    TooManyParts,
)
from replitree.storage.rewrite import slices as slices_module
from replitree.wire.block_ids import token_block
from tests.client.conftest import TOKEN, FakeCluster
from tests.client.fake_replica import DROP_SERVED, DROP_UNSEEN, Failure, FakeReplica

ROWS = {"k": [1, 2], "s": ["a", None]}
READ_ONLY = Failure(503, "ReadOnly", "no session")


@pytest.fixture
def table(cluster: FakeCluster) -> Table:
    cluster.create("t", "k bigint not null, s string", order_by="k")
    cluster.add_replica("t", "r1")
    return cluster.connect().table("t")


@pytest.fixture
def r1(cluster: FakeCluster, table: Table) -> FakeReplica:
    return cluster.replicas["r1"]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """More rows than fit one request, and than fit one slice."""
    monkeypatch.setattr(insert_module, "REQUEST_ROWS_MAX", 10)
    monkeypatch.setattr(slices_module, "SLICE_ROWS_MAX", 40)
    return pa.table({"k": pa.array(range(100), pa.int64()), "s": [f"s{i}" for i in range(100)]})


def test_small_insert_is_one_request_with_the_token(table: Table, r1: FakeReplica) -> None:
    result = table.insert(ROWS, token="load 1/ä")
    assert (result.index, result.rows, result.outcome, result.token) == (0, 2, "inserted", "load 1/ä")
    assert r1.routes() == ["POST insert"]
    assert r1.seen[0].query == {"token": "load 1/ä"}
    assert r1.seen[0].authorization == f"Bearer {TOKEN}"
    assert pa.ipc.open_stream(r1.seen[0].body).read_all().schema == table.schema


def test_lost_answer_is_settled_by_the_same_token(table: Table, r1: FakeReplica) -> None:
    r1.script.append(DROP_SERVED)
    result = table.insert(ROWS, token="a")
    assert (result.outcome, result.index) == ("duplicate", 0)
    assert [seen.query["token"] for seen in r1.seen] == ["a", "a"]
    assert len(r1.blocks) == 1


def test_request_that_was_never_seen_is_sent_again(table: Table, r1: FakeReplica) -> None:
    r1.script.append(DROP_UNSEEN)
    assert table.insert(ROWS, token="a").outcome == "inserted"


def test_outcome_unknown_of_a_replica_is_settled_by_the_same_token(table: Table, r1: FakeReplica) -> None:
    r1.script.append(Failure(504, "OutcomeUnknown"))
    assert table.insert(ROWS, token="a").outcome == "inserted"
    assert len(r1.seen) == 2


def test_doubt_that_lasts_is_outcome_unknown_with_the_token(table: Table, r1: FakeReplica) -> None:
    r1.script.extend([DROP_SERVED, *[READ_ONLY] * 1000])
    with pytest.raises(OutcomeUnknown, match="may have been carried out") as caught:
        table.insert(ROWS, token="a", timeout_s=0.3)
    assert caught.value.token == "a"


def test_without_a_doubt_the_refusal_itself_is_raised(table: Table, r1: FakeReplica) -> None:
    r1.script.extend([READ_ONLY] * 1000)
    with pytest.raises(ReadOnly, match="no session"):
        table.insert(ROWS, timeout_s=0.2)


def test_refusal_moves_on_to_the_other_replica(cluster: FakeCluster, table: Table, r1: FakeReplica) -> None:
    r2 = cluster.add_replica("t", "r2")
    table.insert(ROWS, token="a")
    first, second = (r1, r2) if r1.seen else (r2, r1)
    first.script.append(READ_ONLY)
    assert table.insert(ROWS, token="b").outcome == "inserted"
    assert len(second.seen) == 1
    table.insert(ROWS, token="c")
    assert len(second.seen) == 2, "whoever answered last is asked first"


def test_killed_replica_is_replaced_with_the_same_token(cluster: FakeCluster, table: Table, r1: FakeReplica) -> None:
    table.insert(ROWS, token="a")
    r2 = cluster.add_replica("t", "r2")
    r1.close()
    result = table.insert(ROWS, token="b", timeout_s=10)
    assert result.outcome == "inserted"
    assert [seen.query["token"] for seen in r2.seen] == ["b"]


def test_pinned_replica_is_the_only_one_asked(cluster: FakeCluster, table: Table, r1: FakeReplica) -> None:
    r2 = cluster.add_replica("t", "r2")
    r1.script.extend([READ_ONLY] * 1000)
    with pytest.raises(ReadOnly):
        table.insert(ROWS, replica="r1", timeout_s=0.2)
    assert not r2.seen
    with pytest.raises(BadInput, match="no replica 'r9'; it has r1, r2"):
        table.insert(ROWS, replica="r9")


def test_too_many_parts_is_raised_at_once(table: Table, r1: FakeReplica) -> None:
    r1.script.append(Failure(429, "TooManyParts"))
    with pytest.raises(TooManyParts):
        table.insert(ROWS)
    assert len(r1.seen) == 1


def test_wrong_token_is_raised_at_once(table: Table, r1: FakeReplica) -> None:
    r1.script.append(Failure(401, "NotAuthorized", "use the cluster's token"))
    with pytest.raises(NotAuthorized):
        table.insert(ROWS)


def test_table_without_replicas_says_so(cluster: FakeCluster) -> None:
    cluster.create("lonely", "k bigint")
    with pytest.raises(ReplicaUnavailable, match="not served by any replica yet"):
        cluster.connect().table("lonely").insert({"k": [1]}, timeout_s=0.1)


def test_wrong_rows_never_leave(table: Table, r1: FakeReplica) -> None:
    with pytest.raises(SchemaMismatch, match="'x'"):
        table.insert({"k": [1], "x": [1]})
    with pytest.raises(SchemaMismatch, match="'k'"):
        table.insert({"s": ["a"]})
    with pytest.raises(BadInput, match="token"):
        table.insert(ROWS, token="")
    with pytest.raises(BadInput, match="not both"):
        table.insert(ROWS, token="a", deduplicate=False)
    assert not r1.seen


def test_no_rows_are_no_insert(table: Table, r1: FakeReplica) -> None:
    result = table.insert({"k": [], "s": []})
    assert (result.index, result.rows, result.outcome) == (None, 0, "empty")
    assert not r1.seen


def test_equal_rows_on_purpose_get_tokens_of_their_own(table: Table, r1: FakeReplica) -> None:
    assert table.insert(ROWS, deduplicate=False).outcome == "inserted"
    assert table.insert(ROWS, deduplicate=False).outcome == "inserted"
    tokens = {seen.query["token"] for seen in r1.seen}
    assert len(tokens) == 2


def test_large_insert_is_written_into_the_upload_and_committed_once(
    table: Table, r1: FakeReplica, large: pa.Table
) -> None:
    result = table.insert(large, token="a")
    assert (result.outcome, result.rows) == ("inserted", 100)
    assert r1.routes() == ["POST uploads", "POST commit"]
    (manifest,) = r1.manifests
    assert manifest.rows == 100
    assert [file.name for file in manifest.files] == ["data-0.parquet", "data-1.parquet", "data-2.parquet"]
    assert not any(r1.uploads.iterdir())


def test_stream_is_inserted_in_slices(table: Table, r1: FakeReplica, large: pa.Table) -> None:
    batches = large.to_batches(max_chunksize=7)
    reader = pa.RecordBatchReader.from_batches(large.schema, iter(batches))
    assert table.insert(reader).rows == 100
    assert r1.manifests[0].rows == 100


def test_replica_on_another_machine_gets_the_files_sent(cluster: FakeCluster, large: pa.Table) -> None:
    cluster.create("far", "k bigint not null, s string", order_by="k")
    replica = cluster.add_replica("far", "r8", machine="elsewhere")
    assert cluster.connect().table("far").insert(large).rows == 100
    assert [seen.method for seen in replica.seen] == ["POST", "PUT", "PUT", "PUT", "POST"]
    assert all(len(seen.query["checksum"]) == 32 for seen in replica.seen if seen.method == "PUT")


def test_lost_commit_is_found_in_coordination(
    cluster: FakeCluster, table: Table, r1: FakeReplica, large: pa.Table
) -> None:
    r1.script.extend(["serve", DROP_SERVED])
    cluster.insert_in_log("t", token_block("a"))
    result = table.insert(large, token="a", timeout_s=10)
    assert (result.outcome, result.index, result.rows) == ("duplicate", 0, 100)
    assert r1.routes() == ["POST uploads", "POST commit", "POST commit"]


def test_commit_that_can_not_be_settled_here_is_done_again_elsewhere(
    cluster: FakeCluster, table: Table, r1: FakeReplica, large: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert_module, "ELSEWHERE_S", 0.3)
    r1.script.extend(["serve", *[READ_ONLY] * 1000])
    r2 = cluster.add_replica("t", "r2")
    result = table.insert(large, token="a", timeout_s=20)
    assert result.outcome == "inserted"
    assert sum(len(replica.blocks) for replica in (r1, r2)) == 1


@pytest.mark.parametrize(("storage", "again"), [("local", True), ("file:///objects", False)])
def test_commit_into_a_store_is_given_the_time_that_its_rows_may_take(
    cluster: FakeCluster, large: pa.Table, monkeypatch: pytest.MonkeyPatch, storage: str, *, again: bool
) -> None:
    cluster.create("large", "k bigint not null, s string", order_by="k", storage=storage)
    r1 = cluster.add_replica("large", "r1")
    monkeypatch.setattr(insert_module, "ELSEWHERE_S", 0.1)
    monkeypatch.setattr(insert_module, "STORED_BYTES_PER_S", 100)
    r1.script.extend(["serve", *[READ_ONLY] * 4])
    assert cluster.connect().table("large").insert(large, token="a").outcome == "inserted"
    assert (r1.routes().count("POST uploads") > 1) == again


def test_stream_can_not_be_done_again(table: Table, r1: FakeReplica, large: pa.Table) -> None:
    r1.script.extend(["serve", DROP_SERVED, *[READ_ONLY] * 1000])
    reader = pa.RecordBatchReader.from_batches(large.schema, iter(large.to_batches()))
    with pytest.raises(OutcomeUnknown) as caught:
        table.insert(reader, token="a", timeout_s=0.4)
    assert caught.value.token == "a"


def test_upload_is_discarded_when_the_rows_are_wrong(table: Table, r1: FakeReplica, large: pa.Table) -> None:
    first, second = large.slice(0, 50), large.slice(50)
    broken = pa.table({"k": pa.array([None] * 50, pa.int64()), "s": second["s"]})
    reader = pa.RecordBatchReader.from_batches(first.schema, iter([*first.to_batches(), *broken.to_batches()]))
    with pytest.raises(SchemaMismatch, match="'k'"):
        table.insert(reader)
    assert r1.routes()[0] == "POST uploads"
    assert r1.seen[-1].method == "DELETE"
    assert not any(r1.uploads.iterdir())


def test_upload_in_doubt_is_left_alone(table: Table, r1: FakeReplica, large: pa.Table, tmp_path: Path) -> None:
    r1.script.extend(["serve", DROP_UNSEEN, *[READ_ONLY] * 1000])
    reader = pa.RecordBatchReader.from_batches(large.schema, iter(large.to_batches()))
    with pytest.raises(OutcomeUnknown):
        table.insert(reader, token="a", timeout_s=0.3)
    assert "DELETE" not in {seen.method for seen in r1.seen}
    assert len(list(r1.uploads.iterdir())) == 1


def damaged_text(offsets: list[int]) -> pa.Array:
    """Text whose offsets lead nowhere; what reads it without a check reads memory that is not its own."""
    return pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(b"abc")]
    )


@pytest.mark.parametrize("rows", [1, 10_000], ids=["one request", "an upload"])
def test_damaged_rows_of_the_user_are_refused_in_the_user_s_process(
    table: Table, r1: FakeReplica, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert_module, "REQUEST_ROWS_MAX", 10)
    damaged = damaged_text([0, 2**31 - 1, 3] + [3] * rows)
    keys = pa.array(range(len(damaged)), pa.int64())
    for data in (
        pa.table([keys, damaged], schema=table.schema),
        pa.table([keys, damaged], schema=table.schema).to_batches()[0],
        pa.RecordBatchReader.from_batches(table.schema, pa.table([keys, damaged], schema=table.schema).to_batches()),
        {"k": keys, "s": damaged},
    ):
        with pytest.raises(SchemaMismatch, match="damaged"):
            table.insert(data)
    assert "POST insert" not in r1.routes()


def test_token_that_is_no_text_is_refused(table: Table, r1: FakeReplica) -> None:
    with pytest.raises(BadInput, match="token is text or None, not 5"):
        table.insert(ROWS, token=5)  # type: ignore[arg-type]
    assert r1.seen == []
