from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree.errors import BadInput, SchemaMismatch, StoreError
from replitree.storage.disk.store import PartStore
from replitree.storage.parts import adopt
from replitree.storage.parts.adopt import adopt_files
from replitree.storage.parts.conform import conform
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import ColumnStats
from replitree.storage.rewrite.read import read_parts
from replitree.storage.schema.definition import define_table
from tests.storage.support import EVERY_TYPE, bench_table

DEFINITION = bench_table(partition_by="truncate(100,k)")


def _write(path: Path, keys: list[int | None], **options: Any) -> Path:
    rows = conform({"k": keys, "s": [str(key) for key in keys]}, DEFINITION)
    pq.write_table(rows.select(["s", "k", "v", "d"]), path, **options)
    return path


def test_adopted_files_are_a_part_of_sorted_runs(tmp_path: Path) -> None:
    store = PartStore(tmp_path / "table")
    files = [
        _write(tmp_path / "a", [1, 5, 9]),
        _write(tmp_path / "b", []),
        _write(tmp_path / "c", [2, 3], compression="snappy"),
    ]
    part = adopt_files(files, DEFINITION, tmp_path / "s1")
    store.staged.adopt(tmp_path / "s1", "s1")
    assert (part.partition, part.partition_values, part.rows) == ("0", (0,), 5)
    assert [(file.name, file.rows) for file in part.files] == [("data-0.parquet", 3), ("data-1.parquet", 2)]
    assert part.columns == {"k": ColumnStats("int64", 1, 9)}
    assert not files[0].exists()
    assert files[1].exists()
    assert store.staged.publish("s1", {"0": "0_1_1_0"}) == ()
    assert store.verify("0_1_1_0") == part
    rows = read_parts([store.part_path("0_1_1_0")], DEFINITION)
    assert rows.column("k").to_pylist() == [1, 5, 9, 2, 3]
    assert part.content_hash == content_hash(rows, DEFINITION.arrow_schema)


@pytest.mark.parametrize(
    "text", [pytest.param(b"a\xe5", id="cut off"), pytest.param(b"\xff\xfe", id="of no character")]
)
@pytest.mark.parametrize("values", [1, 1_000])
def test_text_that_is_not_utf_8_is_refused_wherever_it_stands(tmp_path: Path, text: bytes, values: int) -> None:
    texts = pa.array([b"fine"] * (values - 1) + [text], pa.binary())
    rows = conform({"k": [1] * values, "s": ["fine"] * values}, DEFINITION)
    damaged = rows.set_column(rows.column_names.index("s"), "s", pa.chunked_array([texts.view(pa.string())]))
    pq.write_table(damaged, tmp_path / "a")
    with pytest.raises(BadInput, match=r"can't be read as Parquet: .*UTF8"):
        adopt_files([tmp_path / "a"], DEFINITION, tmp_path / "s1")


def test_adopted_and_staged_rows_have_one_manifest_but_for_the_files(tmp_path: Path) -> None:
    (staged,) = stage_table(conform({"k": [1, 2], "s": ["1", "2"]}, DEFINITION), DEFINITION, tmp_path / "s1")
    adopted = adopt_files([_write(tmp_path / "a", [1, 2])], DEFINITION, tmp_path / "s2")
    assert adopted.content_hash == staged.content_hash
    assert adopted.columns == staged.columns


def test_large_files_are_checked_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopt, "BATCH_ROWS", 3)
    assert adopt_files([_write(tmp_path / "a", list(range(10)))], DEFINITION, tmp_path / "s1").rows == 10
    unsorted = _write(tmp_path / "b", [0, 1, 2, 1, 2, 3])
    with pytest.raises(BadInput, match="not sorted by k"):
        adopt_files([unsorted], DEFINITION, tmp_path / "s2")
    assert unsorted.exists()
    assert not (tmp_path / "s2").exists()


def test_nulls_come_first_in_a_sorted_file(tmp_path: Path) -> None:
    definition = bench_table(partition_by=())
    rows = conform({"k": [None, 1]}, definition)
    pq.write_table(rows, tmp_path / "a")
    pq.write_table(rows.take([1, 0]), tmp_path / "b")
    assert adopt_files([tmp_path / "a"], definition, tmp_path / "s1").partition == "all"
    with pytest.raises(BadInput, match="nulls first"):
        adopt_files([tmp_path / "b"], definition, tmp_path / "s2")


def test_rows_of_another_partition_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="all rows of these files must be of 0"):
        adopt_files([_write(tmp_path / "a", [1, 100])], DEFINITION, tmp_path / "s1")
    with pytest.raises(BadInput, match="all rows of these files must be of 100"):
        adopt_files([_write(tmp_path / "a", [1])], DEFINITION, tmp_path / "s1", "100")


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no rows"):
        adopt_files([_write(tmp_path / "a", [])], DEFINITION, tmp_path / "s1")


@pytest.mark.parametrize(
    ("columns", "hint"),
    [
        ({"k": pa.array([1])}, "'d' is missing"),
        ({"k": pa.array([1], pa.int32())}, "'k': expected int64, found int32"),
        ({"k": pa.array([1], pa.uint64())}, "expected int64, found uint64"),
        ({"k": pa.array(["1"])}, "expected int64, found string"),
        ({"k": pa.array([1]), "z": pa.array([1])}, "no column 'z'"),
    ],
)
def test_files_with_other_columns_are_refused(tmp_path: Path, columns: dict[str, pa.Array], hint: str) -> None:
    rest = {} if hint.startswith("'d'") else {"d": pa.nulls(1, pa.date32()), "v": [1.0], "s": ["x"]}
    pq.write_table(pa.table({**rest, **columns}), tmp_path / "a")
    with pytest.raises(SchemaMismatch, match=hint):
        adopt_files([tmp_path / "a"], DEFINITION, tmp_path / "s1")
    assert (tmp_path / "a").exists()


def test_timestamps_in_the_old_format_are_refused_with_what_to_set(tmp_path: Path) -> None:
    definition = define_table("t", "t timestamp_ntz")
    pq.write_table(
        pa.table({"t": pa.array([1], pa.timestamp("us"))}), tmp_path / "a", use_deprecated_int96_timestamps=True
    )
    with pytest.raises(SchemaMismatch, match="TIMESTAMP_MICROS"):
        adopt_files([tmp_path / "a"], definition, tmp_path / "s1")


def test_null_where_none_may_be_is_refused(tmp_path: Path) -> None:
    definition = define_table("t", "k bigint not null")
    pq.write_table(pa.table({"k": [1, None]}), tmp_path / "a")
    with pytest.raises(SchemaMismatch, match="may not be null"):
        adopt_files([tmp_path / "a"], definition, tmp_path / "s1")


def test_statistics_that_leave_nan_out_are_refused_because_spark_would_miss_rows(tmp_path: Path) -> None:
    definition = define_table("t", "v double")
    table = pa.table({"v": [float("nan"), 0.5]})
    pq.write_table(table, tmp_path / "a")
    with pytest.raises(BadInput, match="Spark would miss rows"):
        adopt_files([tmp_path / "a"], definition, tmp_path / "s1")
    pq.write_table(table, tmp_path / "b", write_statistics=False)
    assert adopt_files([tmp_path / "b"], definition, tmp_path / "s2").rows == 2


def test_what_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match="can't be read as Parquet"):
        adopt_files([tmp_path / "a"], DEFINITION, tmp_path / "s1")
    with pytest.raises(BadInput, match="is not a file"):
        adopt_files([tmp_path / "b"], DEFINITION, tmp_path / "s1")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(BadInput, match="is not a file"):
        adopt_files([tmp_path / "link"], DEFINITION, tmp_path / "s1")


def test_layouts_of_arrow_do_not_matter(tmp_path: Path) -> None:
    definition = define_table("t", "s string, l array<string>")
    table = pa.table(
        {
            "s": pa.array(["a", "b"]).dictionary_encode(),
            "l": pa.array([["x"], None], pa.large_list(pa.large_string())),
        }
    )
    pq.write_table(table, tmp_path / "a")
    part = adopt_files([tmp_path / "a"], definition, tmp_path / "s1")
    assert part.content_hash == content_hash(conform(table, definition), definition.arrow_schema)


def test_rows_of_every_type_are_adopted(tmp_path: Path) -> None:
    definition = define_table("t", EVERY_TYPE)
    table = conform([{"i64": 1, "l": ["x"], "r": {"a": 1, "b": None}}, {}], definition)
    pq.write_table(table, tmp_path / "a", store_schema=False)
    part = adopt_files([tmp_path / "a"], definition, tmp_path / "s1")
    assert part.content_hash == content_hash(table, definition.arrow_schema)


def test_files_of_another_disk_are_copied_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise AssertionError("a rename does not reach another disk")

    monkeypatch.setattr(adopt, "rename", refuse)
    monkeypatch.setattr(adopt, "on_one_disk", lambda *_: False)
    file = _write(tmp_path / "a", [1])
    part = adopt_files([file], DEFINITION, tmp_path / "s1")
    assert not file.exists()
    assert read_parts([tmp_path / "s1" / part.partition], DEFINITION).num_rows == 1


def test_a_staging_folder_that_can_not_be_made_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        adopt_files([_write(tmp_path / "a", [1])], DEFINITION, tmp_path / "nowhere" / "s1")
    assert (tmp_path / "a").exists()
