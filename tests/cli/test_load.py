"""Loads: slices have tokens, and a load that was interrupted continues where it stopped."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree.cli.tables.files import FileFormat, RowSource, find_source
from replitree.cli.tables.load import LoadProgress, load
from replitree.client.insert.quorum import InsertQuorum
from replitree.client.insert.terms import InsertResult
from replitree.errors import BadInput, OutcomeUnknown
from replitree.storage.parts.conform import conform
from replitree.storage.schema.definition import TableDefinition, define_table


class Recorder:
    """Takes inserts as a table does: a token that it has seen makes a duplicate."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.definition: TableDefinition = define_table("t", "id bigint not null, s string")
        self.tokens: dict[str, pa.Table] = {}
        self.fail_at = fail_at
        self.quorums: list[tuple[int | str, float | None]] = []
        self.overwritten: list[tuple[str, str | None, pa.Table]] = []
        self.merged: list[pa.Schema] = []

    def merge_schema(self, schema: pa.Schema) -> None:
        self.merged.append(schema)

    def insert(
        self,
        data: Any,
        token: str | None,
        overwrite: str | None = None,
        quorum: int | str | None = None,
        quorum_timeout_s: float | None = None,
    ) -> InsertResult:
        rows = conform(data, self.definition)
        if quorum is not None:
            self.quorums.append((quorum, quorum_timeout_s))
        if overwrite is not None:
            self.overwritten.append((overwrite, token, rows))
            return InsertResult(0, rows.num_rows, "duplicate" if token == "known" else "inserted", token)
        assert token is not None
        if self.fail_at is not None and len(self.tokens) >= self.fail_at:
            raise OutcomeUnknown("no answer", token)
        outcome = "duplicate" if token in self.tokens else "inserted"
        self.tokens.setdefault(token, rows)
        settled = None if quorum is None else 10 * len(self.tokens)
        differs = not self.tokens[token].equals(rows)
        return InsertResult(len(self.tokens) - 1, rows.num_rows, outcome, token, settled, differs)

    @property
    def ids(self) -> list[int]:
        return [i for rows in self.tokens.values() for i in rows.column("id").to_pylist()]


def as_table(recorder: Recorder) -> Any:
    return recorder


@pytest.fixture
def file(tmp_path: Path) -> RowSource:
    path = tmp_path / "rows.csv"
    path.write_text("id,s\n" + "".join(f"{i},x{i % 3}\n" for i in range(95)))
    return find_source(str(path), None)


def test_load_has_one_token_per_slice_and_reports_progress(file: RowSource) -> None:
    table = Recorder()
    seen: list[LoadProgress] = []
    token, done = load(as_table(table), file, report=seen.append, slice_rows=10)
    assert list(table.tokens) == [f"{token}:{number}" for number in range(10)]
    assert table.ids == list(range(95))
    assert (done.slices, done.rows_inserted, done.rows_duplicate) == (10, 95, 0)
    assert [progress.slices for progress in seen] == list(range(1, 11))
    assert done.bytes_read == file.bytes_total


def test_repeated_load_is_all_duplicates(file: RowSource) -> None:
    table = Recorder()
    load(as_table(table), file, slice_rows=10)
    _, done = load(as_table(table), file, slice_rows=10)
    assert (done.rows_inserted, done.rows_duplicate) == (0, 95)
    assert table.ids == list(range(95))


def test_rows_of_another_file_under_the_same_token_are_counted(file: RowSource, tmp_path: Path) -> None:
    table: Any = Recorder()
    load(table, file, token="orders", slice_rows=50)
    corrected = tmp_path / "corrected.csv"
    corrected.write_text("id,s\n1,new\n")
    _, done = load(table, find_source(str(corrected), None), token="orders", slice_rows=50)
    assert (done.rows_inserted, done.rows_duplicate, done.rows_differing) == (0, 1, 1)
    assert load(table, file, token="orders", slice_rows=50)[1].rows_differing == 0


@pytest.mark.parametrize("stopped_after", [0, 1, 5, 9])
def test_interrupted_load_continues_without_duplicates(file: RowSource, stopped_after: int) -> None:
    table = Recorder(fail_at=stopped_after)
    with pytest.raises(OutcomeUnknown, match="run the same command again"):
        load(as_table(table), file, slice_rows=10)
    table.fail_at = None
    _, done = load(as_table(table), file, slice_rows=10)
    assert done.rows_duplicate == 10 * stopped_after
    assert table.ids == list(range(95))


def test_users_token_names_the_slices(file: RowSource) -> None:
    table = Recorder()
    assert load(as_table(table), file, token="monday", slice_rows=50)[0] == "monday"
    assert list(table.tokens) == ["monday:0", "monday:1"]


def test_blank_token_is_refused(file: RowSource) -> None:
    with pytest.raises(BadInput, match="empty token"):
        load(as_table(Recorder()), file, token=" ")


def test_changed_file_is_another_load(file: RowSource) -> None:
    table = Recorder()
    first, _ = load(as_table(table), file, slice_rows=50)
    assert file.path is not None
    file.path.write_text("id,s\n7,other\n")
    second, done = load(as_table(table), file, slice_rows=50)
    assert first != second
    assert done.rows_inserted == 1


def test_same_bytes_piped_again_are_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Recorder()

    def pipe(rows: int) -> LoadProgress:
        text = "id,s\n" + "".join(f"{i},same\n" for i in range(rows))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return load(as_table(table), RowSource(None, FileFormat.CSV), slice_rows=10)[1]

    assert pipe(25).rows_inserted == 25
    assert pipe(25).rows_duplicate == 25
    more = pipe(40)
    assert (more.rows_duplicate, more.rows_inserted) == (20, 20)


def test_equal_slices_of_a_pipe_are_all_inserted(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Recorder()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"id,s\n" + b"1,a\n" * 30)))
    assert load(as_table(table), RowSource(None, FileFormat.CSV), slice_rows=10)[1].rows_inserted == 30


def test_parquet_comes_through_a_pipe_too(monkeypatch: pytest.MonkeyPatch) -> None:
    table, sink = Recorder(), io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(range(25), pa.int64()), "s": ["x"] * 25}), sink)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(sink.getvalue())))
    assert load(as_table(table), RowSource(None, FileFormat.PARQUET), slice_rows=10)[1].rows_inserted == 25
    assert table.ids == list(range(25))


def test_row_that_does_not_fit_keeps_the_slices_before_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1}\n{"id": 2}\n{"s": "no id"}\n')
    table = Recorder()
    with pytest.raises(BadInput, match="id"):
        load(as_table(table), find_source(str(path), None), slice_rows=2)
    assert table.ids == [1, 2]


def test_file_that_overwrites_is_one_insert_without_a_name_of_its_own(file: RowSource) -> None:
    table = Recorder()
    seen: list[LoadProgress] = []
    token, done = load(as_table(table), file, overwrite="partitions", report=seen.append)
    [(overwrite, named, rows)] = table.overwritten
    assert (overwrite, named, token, table.tokens) == ("partitions", None, None, {})
    assert rows.column("id").to_pylist() == list(range(95))
    assert (done.slices, done.rows_inserted, done.rows_duplicate, done.bytes_read) == (1, 95, 0, file.bytes_total)
    assert seen[-1] == done
    token, done = load(as_table(table), file, overwrite="all", token="known")
    assert (token, done.rows_inserted, done.rows_duplicate) == ("known", 0, 95)
    with pytest.raises(BadInput, match="an empty token"):
        load(as_table(table), file, overwrite="all", token=" ")


def test_columns_of_the_file_are_merged_before_its_rows_are_inserted(file: RowSource) -> None:
    table = Recorder()
    load(as_table(table), file, merge_schema=True)
    assert table.merged == [pa.schema([("id", pa.int64()), ("s", pa.string())])]
    assert table.ids == list(range(95))


def test_every_slice_of_a_file_has_the_quorum_that_is_asked_for(file: RowSource) -> None:
    table = Recorder()
    _, done = load(as_table(table), file, quorum=InsertQuorum("majority", 5.0), slice_rows=50)
    assert table.quorums == [("majority", 5.0)] * 2
    assert (done.index, done.settled) == (1, 20), "the highest of both slices"
    assert load(as_table(Recorder()), file)[1].settled is None


def test_file_that_overwrites_has_no_quorum(file: RowSource) -> None:
    with pytest.raises(BadInput, match="can't have a quorum"):
        load(as_table(Recorder()), file, overwrite="all", quorum=InsertQuorum(2))
