"""Statements that change rows of a table in an object store: tasks put files there, and nothing is left of what is in vain."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from replitree.client.connection import Connection
from replitree.client.insert.upload import send_file
from replitree.client.table import Table
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import BadInput, ConcurrentChange, NotAuthorized, SchemaMismatch, StoreError
from replitree.replica.uploads.uploads import Uploads
from replitree.spark.catalog import rewriting, row_files
from replitree.spark.catalog.rewriting import BegunStatement, Rewriting
from replitree.spark.catalog.row_files import RowFilesAnswer, RowFilesRequest, put_row_files
from replitree.storage.files.durable import file_checksum
from replitree.storage.parts.manifest import FileEntry
from replitree.wire.upload_life import LIFE_SUFFIX, SILENCE_S, Writer
from tests.replica.inprocess import TOKEN, rows, wait_for
from tests.replica.test_sharing import SharedCluster
from tests.replica.test_stored_uploads import attempts, noted

TENS = 4


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    """Two replicas, and a table with keys 0 to 39, each ten of them in a partition."""
    cluster = SharedCluster(tmp_path, store_url, partition_by=["truncate(10, k)"])
    for ten in range(TENS):
        assert cluster.nodes[0].insert(rows(10 * ten))[0] == 200
    cluster.wait_alike()
    yield cluster
    cluster.close()


@pytest.fixture
def table(shared: SharedCluster) -> Iterator[Table]:
    access = Access("zk://nowhere:1/replitree", TOKEN)
    with closing(Connection(access, lambda: MemoryCoordination(shared.shared))) as connection:
        yield connection.table("t")


class Statement:
    """A statement, and the files of its tasks, as Spark's JVM writes them."""

    def __init__(self, table: Table, folder: Path, through: str | None = None) -> None:
        self.rewriting, self._folder = Rewriting(), folder
        self.begun: BegunStatement = self.rewriting.begin(table, through)
        self.sources = {each.manifest.partition: each.part for each in self.begun.snapshot.parts}
        self.written = list[tuple[str, str]]()
        self.told = list[str]()
        self.read = list[str]()
        self._number = 0

    def files(self, *some: tuple[int | None, pa.Table]) -> tuple[tuple[str, str], ...]:
        """Write the files of one task: rows of the part with these tens, or new ones."""
        found = []
        for ten, made in some:
            self._number += 1
            path = self._folder / f"rows-{self._number}.parquet"
            pq.write_table(made.cast(self.begun.plan.definition.stored.arrow_schema), path)
            part = self.sources[str(10 * ten)] if ten is not None else ""
            found.append((part, str(path)))
            self.read += [part] if part and part not in self.read else []
        return tuple(found)

    def put(self, *some: tuple[int | None, pa.Table]) -> RowFilesAnswer:
        """Run a task that is to put its files."""
        request = RowFilesRequest(1, str(self.begun.described["job"]), self.files(*some))
        answer = put_row_files(request)
        self.told.append(msgspec.json.encode(answer).decode())
        if answer.missed:
            self.send(request.files)
        return answer

    def send(self, files: Sequence[tuple[str, str]]) -> None:
        plan = self.begun.plan
        for part, place in files:
            path, attempt = Path(place), f"task-{Path(place).stem}"
            file = FileEntry("data-0.parquet", 0, path.stat().st_size, file_checksum(path))
            send_file(plan.table.http, plan.upload, "all", path, file, attempt)
            self.written.append((part, f"{attempt}/all/{file.name}"))

    def commit(self, kind: str = "MERGE", isolation: str = "") -> int | None:
        return self.rewriting.commit(self.begun.id, kind, self.read, self.written, isolation, self.told)[0][1]

    def end(self) -> None:
        self.rewriting.end(self.begun.id)


@pytest.fixture
def statement(table: Table, tmp_path: Path) -> Iterator[Statement]:
    made = Statement(table, tmp_path)
    yield made
    made.end()


def changed(first: int, count: int = 10) -> pa.Table:
    found = rows(first, count)
    return found.set_column(1, "v", pc.add(found["v"], 1000.0))


def values(table: Table) -> dict[int, float]:
    found = table.to_arrow(["k", "v"], min_index=table.status().log_tail - 1).to_pylist()
    assert len({row["k"] for row in found}) == len(found)
    return {row["k"]: round(row["v"], 6) for row in found}


def start(*keys: int, more: float = 0.0) -> dict[int, float]:
    return {key: round(key / 3 + more, 6) for key in keys}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Places at replicas where files of uploads arrive."""
    places, file_path, staged_path = list[Path](), Uploads.file_path, Uploads.staged_path

    def file(uploads: Uploads, *names: str) -> Path:
        places.append(file_path(uploads, *names))
        return places[-1]

    def staged(uploads: Uploads, *names: str) -> Path:
        places.append(staged_path(uploads, *names))
        return places[-1]

    monkeypatch.setattr(Uploads, "file_path", file)
    monkeypatch.setattr(Uploads, "staged_path", staged)
    return places


def test_what_tasks_have_put_is_taken_by_reference(
    shared: SharedCluster, table: Table, statement: Statement, sent: list[Path]
) -> None:
    before = shared.wait_alike()
    # A part of two tasks; one that loses its rows; one whose rows stay; a row that leaves its partition, beside new rows.
    statement.put((0, changed(0, 5)), (1, changed(10, 9)), (None, rows(50, 3)))
    statement.put((0, changed(5, 5)), (2, rows(20)), (None, rows(53, 3)))
    statement.read.append(statement.sources["30"])
    statement.put((1, changed(19, 1).set_column(0, "k", pa.array([59], pa.int64()))))
    index = statement.commit()
    assert index is not None
    statement.end()
    shared.wait_alike()
    kept = start(*range(20, 30)) | start(*range(50, 56))
    assert values(table) == start(*range(19), more=1000) | kept | {59: round(19 / 3 + 1000, 6)}
    assert sent == [], "no replica has had a row"
    after = shared.nodes[1].contents()
    assert statement.sources["20"] in after, "its rows are as they were"
    assert len(after.keys() - before.keys()) == 4
    shared.wait_settled()
    for part in after:
        assert shared.nodes[0].table().store.manifest(part).share_id is not None
    assert noted(shared.nodes[0]) == noted(shared.nodes[1]) == []


def test_files_of_tasks_that_do_not_reach_the_store_are_pieces_beside_those_of_the_others(
    shared: SharedCluster,
    table: Table,
    statement: Statement,
    sent: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    statement.put((0, changed(0, 5)), (None, rows(50, 3)))
    with monkeypatch.context() as away:
        away.setattr(row_files, "reach", lambda *_: _raise(NotAuthorized("there are no credentials")))
        assert (
            statement.put((0, changed(5, 5)), (1, rows(10)), (None, rows(53, 3))).missed == "there are no credentials"
        )
    assert statement.commit() is not None
    assert sent != []
    assert values(table) == start(*range(10), more=1000) | start(*range(10, 40)) | start(*range(50, 56))
    (said,) = [record.getMessage() for record in caplog.records if record.name == rewriting.__name__]
    went = "there are no credentials: the rows of 1 of 2 tasks of MERGE on table t go through replica"
    assert said == f"{went} {statement.begun.plan.upload.replica.name}"
    statement.end()
    shared.wait_settled()


def _raise(error: Exception) -> None:
    raise error


def test_a_statement_of_which_no_task_reaches_the_store_goes_through_the_replica(
    shared: SharedCluster, table: Table, statement: Statement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "reach", lambda *_: _raise(StoreError("no answer")))
    statement.put((0, changed(0)))
    assert statement.commit("UPDATE") is not None
    assert values(table) == start(*range(10), more=1000) | start(*range(10, 40))
    statement.end()
    shared.wait_settled()


def test_the_setting_says_which_way_it_must_be(
    shared: SharedCluster, table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "reach", lambda *_: _raise(StoreError("no answer")))
    store = Statement(table, tmp_path, "store")
    assert store.put((0, changed(0))).problem["message"] == "no answer"
    with pytest.raises(
        StoreError, match="MERGE has changed nothing: no answer; leave the catalog's setting through out"
    ):
        store.commit()
    store.end()
    replica = Statement(table, tmp_path, "replica")
    assert replica.begun.described["job"] == ""
    replica.end()
    with pytest.raises(BadInput, match="store or replica"):
        Statement(table, tmp_path, "both")
    shared.nodes[0].post("storage", {"storage": f"tiered({shared.definition.store_url}, older=7d)"}, wait_s=20)
    wait_for(lambda: not any("store" in node.post("uploads") for node in shared.nodes), "new parts go to disks")
    with pytest.raises(BadInput, match="leave the catalog's setting through out"):
        Statement(table, tmp_path, "store")


@pytest.mark.parametrize("kind", ["conflict", "ended", "silent"])
def test_a_statement_that_changes_nothing_leaves_nothing(
    shared: SharedCluster, table: Table, statement: Statement, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = shared.stored()
    statement.put((0, changed(0)), (None, rows(50)))
    assert len(attempts(shared)) == 2
    assert len(shared.stored()) == len(before) + 2
    if kind == "conflict":
        table.update({"v": "0.0"}, "k = 3")
        with pytest.raises(ConcurrentChange, match="MERGE has changed nothing, run it again"):
            statement.commit()
    if kind == "silent":
        # As of a driver on another machine that was killed.
        upload = statement.begun.plan.upload
        (taker,) = (node for node in shared.nodes if node.name == upload.replica.name)
        uploads = taker.table().uploads
        (uploads.root / f"{upload.id}{LIFE_SUFFIX}").write_bytes(msgspec.json.encode(Writer(renews=True)))
        monkeypatch.setattr(uploads, "_clock", lambda: time.time() + 2 * SILENCE_S)
        wait_for(lambda: attempts(shared) == (), "the upload is given up", 60)
    statement.end()
    shared.wait_settled()
    assert noted(shared.nodes[0]) == noted(shared.nodes[1]) == []
    assert len(shared.stored()) == TENS
    assert values(table) == start(*range(40)) | ({3: 0.0} if kind == "conflict" else {})


def test_a_commit_whose_answer_is_lost_is_told_the_same_again(
    shared: SharedCluster, table: Table, statement: Statement
) -> None:
    statement.put((0, changed(0)))
    plan, part = statement.begun.plan, statement.sources["0"]
    (answer,) = (msgspec.json.decode(each, type=RowFilesAnswer) for each in statement.told)
    assert answer.pieces is not None
    plan.tags.update(answer.pieces.tags)
    results = {part: answer.pieces.results[part]}
    once, again = (plan.commit(results, (), command_id="one", timeout_s=60) for _ in range(2))
    assert (once.index, once.applied) == (again.index, again.applied)
    statement.end()
    assert values(table) == start(*range(10), more=1000) | start(*range(10, 40))
    shared.wait_settled()


def test_rows_that_do_not_fit_are_told_and_put_nothing(shared: SharedCluster, statement: Statement) -> None:
    nulls = pa.table({"k": pa.array([None], pa.int64()), "v": [1.0], "s": ["x"]})
    before = shared.stored()
    path = statement.begun.folder / "rows-0.parquet"
    pq.write_table(nulls, path)
    request = RowFilesRequest(1, str(statement.begun.described["job"]), (("", str(path)),))
    answer = put_row_files(request)
    assert answer.problem["error"] == "SchemaMismatch"
    statement.told.append(msgspec.json.encode(answer).decode())
    with pytest.raises(SchemaMismatch, match="UPDATE has changed nothing: column 'k' may not be null, and has 1"):
        statement.commit("UPDATE")
    assert shared.stored() == before


def test_parts_of_a_rewrite_are_where_their_names_say(shared: SharedCluster, statement: Statement) -> None:
    """What a replica refuses, although all objects are there."""
    statement.put((0, changed(0)), (1, changed(10)))
    (answer,) = (msgspec.json.decode(each, type=RowFilesAnswer) for each in statement.told)
    assert answer.pieces is not None
    plan, made = statement.begun.plan, answer.pieces.results
    first, second = (made[statement.sources[ten]] for ten in ("0", "10"))
    assert first is not None
    assert second is not None
    wrong = first.shared_as(str(second.share_id))
    with pytest.raises(BadInput, match=r"that takes the place of .* is not in the share"):
        plan.commit({statement.sources["0"]: wrong}, (), timeout_s=60)
    with pytest.raises(BadInput, match="is not in the share"):
        plan.commit({statement.sources["0"]: first, statement.sources["10"]: second.as_local()}, (), timeout_s=60)
    (file,) = first.files
    short = msgspec.structs.replace(first, files=(msgspec.structs.replace(file, rows=11),), rows=11)
    with pytest.raises(Exception, match="has 10 rows, its manifest says 11"):
        plan.commit({statement.sources["0"]: short}, (), timeout_s=60)
