"""What a data file says of its rows for readers that skip: how they are sorted, and Bloom filters."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree.errors import BadInput
from replitree.storage.parts import encodings
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.encodings import can_write_bloom, check_bloom
from replitree.storage.rewrite.merge import merge_parts
from replitree.storage.schema.definition import TableDefinition, define_table

SCHEMA = "r struct<a: int, b: int>, k bigint, s string, x double, v double"


def rows(first: int) -> pa.Table:
    keys = list(range(first, first + 100))
    return pa.table(
        {
            "r": pa.array([{"a": 1, "b": 2}] * 100, pa.struct([("a", pa.int32()), ("b", pa.int32())])),
            "k": pa.array(keys, pa.int64()),
            "s": [f"s{key}" for key in keys],
            "x": [0.5] * 100,
            "v": [float("nan")] * 100,
        }
    )


def files(definition: TableDefinition, folder: Path) -> list[pq.FileMetaData]:
    """The footers of an inserted part, and of what a merge makes of two."""
    folder.mkdir()
    for number in range(2):
        stage_table(rows(number * 50), definition, folder / f"in{number}")
    merge_parts([folder / f"in{number}" / "all" for number in range(2)], definition, folder / "merged")
    return [pq.read_metadata(path) for path in sorted(folder.rglob("*.parquet"))]


def test_files_say_how_their_rows_are_sorted_up_to_a_floating_point_column(tmp_path: Path) -> None:
    # Parquet counts leaf columns: the struct before them has two.
    expected = {"k, s": (2, 3), "s, x, k": (3,), "x": (), "": ()}
    for number, (order_by, places) in enumerate(expected.items()):
        for footer in files(define_table("t", SCHEMA, order_by=order_by), tmp_path / str(number)):
            assert footer.row_group(0).sorting_columns == tuple(pq.SortingColumn(n, nulls_first=True) for n in places)


@pytest.mark.skipif(not can_write_bloom(), reason="the installed pyarrow can't write Bloom filters")
def test_inserts_and_merges_write_filters_of_the_columns_that_the_table_says(tmp_path: Path) -> None:
    plain = define_table("t", SCHEMA, order_by="k")
    filtered = define_table("t", SCHEMA, order_by="k", bloom=["s"], table_id=plain.table_id)
    for footer in files(filtered, tmp_path / "filtered"):
        columns = {footer.row_group(0).column(n).path_in_schema: footer.row_group(0).column(n) for n in range(6)}
        assert {name for name, column in columns.items() if column.bloom_filter_offset is not None} == {"s"}
        # 100 values do not take the room of a full row group.
        assert columns["s"].bloom_filter_length < 1000
    assert all(f.row_group(0).column(3).bloom_filter_offset is None for f in files(plain, tmp_path / "plain"))


def test_the_content_of_a_part_does_not_depend_on_its_filters(tmp_path: Path) -> None:
    plain = define_table("t", SCHEMA, order_by="k")
    filtered = define_table("t", SCHEMA, order_by="k", bloom="s", table_id=plain.table_id)
    [one], [other] = stage_table(rows(0), plain, tmp_path / "a"), stage_table(rows(0), filtered, tmp_path / "b")
    assert one.content == other.content


def test_a_pyarrow_without_filters_is_named_and_writes_files_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encodings, "can_write_bloom", lambda: False)
    with pytest.raises(BadInput, match=f"pyarrow {pa.__version__}, which is installed here, can't write Bloom filters"):
        check_bloom(["s"])
    check_bloom([])
    definition = define_table("t", SCHEMA, order_by="k", bloom="s")
    stage_table(rows(0), definition, tmp_path / "p")
    [footer] = [pq.read_metadata(path) for path in tmp_path.rglob("*.parquet")]
    assert footer.row_group(0).column(3).bloom_filter_offset is None
