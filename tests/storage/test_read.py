from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from replitree.errors import BadInput, CorruptPart, StoreError
from replitree.storage.parts.conform import conform
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import read_manifest
from replitree.storage.parts.verified import CheckedPart
from replitree.storage.rewrite.read import read_batches, read_parts, wanted_parts
from replitree.storage.schema.definition import TableDefinition, TableSettings, define_table
from replitree.storage.sql.predicate_parser import parse_predicate
from tests.storage.support import bench_table


def _parts(folder: Path, definition: TableDefinition, *ranges: range) -> list[Path]:
    found = []
    for number, keys in enumerate(ranges):
        rows = conform({"k": list(keys), "s": [f"s{key}" for key in keys]}, definition)
        (part,) = stage_table(rows, definition, folder / f"s{number}", sync=False)
        found.append(folder / f"s{number}" / part.partition)
    return found


def test_rows_come_in_the_order_of_the_parts(tmp_path: Path) -> None:
    definition = bench_table()
    parts = _parts(tmp_path, definition, range(5, 8), range(3))
    found = read_parts(parts, definition)
    assert found.schema.equals(definition.arrow_schema)
    assert found.column("k").to_pylist() == [5, 6, 7, 0, 1, 2]


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    definition = bench_table()
    parts = _parts(tmp_path, definition, range(3))
    assert read_parts(parts, definition, ["s", "k"]).to_pylist()[1] == {"s": "s1", "k": 1}
    assert read_parts(parts, definition, ["s"], "k > 1").to_pylist() == [{"s": "s2"}]


def test_columns_as_one_text_are_refused(tmp_path: Path) -> None:
    definition = bench_table()
    with pytest.raises(BadInput, match=r"as in \['k'\], not the text 'k'"):
        read_parts(_parts(tmp_path, definition, range(3)), definition, "k")


def test_batches_are_the_rows_of_the_table(tmp_path: Path) -> None:
    definition = bench_table()
    parts = _parts(tmp_path, definition, range(5, 8), range(3))
    reader = read_batches(parts, definition, where="k != 6")
    assert reader.schema.equals(definition.arrow_schema)
    assert reader.read_all().equals(read_parts(parts, definition, where="k != 6"))
    assert read_batches([], definition).read_all().num_rows == 0


def test_a_part_without_wanted_rows_is_not_opened(tmp_path: Path) -> None:
    definition = bench_table()
    parts = _parts(tmp_path, definition, *(range(n * 10, n * 10 + 10) for n in range(100)))
    for part in parts[1:]:
        (part / "data-0.parquet").unlink()
    assert read_parts(parts, definition, where="k between 3 and 5").column("k").to_pylist() == [3, 4, 5]
    found = wanted_parts([CheckedPart(p, read_manifest(p)) for p in parts], parse_predicate("k = 995", definition))
    assert [part.folder for part in found] == [parts[99]]


def test_no_parts_are_no_rows() -> None:
    definition = bench_table()
    assert read_parts([], definition, ["v"], "k = 1").schema.names == ["v"]


def test_columns_that_may_not_be_null_keep_it(tmp_path: Path) -> None:
    definition = define_table("t", "k bigint not null, s string")
    rows = conform({"k": [1]}, definition)
    stage_table(rows, definition, tmp_path / "s1")
    assert read_parts([tmp_path / "s1" / "all"], definition).schema.equals(definition.arrow_schema)
    assert read_parts([tmp_path / "s1" / "all"], definition, where="k is null").num_rows == 0


def test_bad_columns_and_parts_are_refused(tmp_path: Path) -> None:
    definition = bench_table()
    parts = _parts(tmp_path, definition, range(3))
    with pytest.raises(BadInput, match="no column 'z'"):
        read_parts(parts, definition, ["z"])
    with pytest.raises(BadInput):
        read_parts(parts, definition, where="z = 1")
    with pytest.raises(BadInput, match="at least one"):
        read_parts(parts, definition, [])
    with pytest.raises(CorruptPart):
        read_parts([tmp_path / "nowhere"], definition)
    data = (parts[0] / "data-0.parquet").read_bytes()
    (parts[0] / "data-0.parquet").write_bytes(b"PAR1" + bytes(len(data) - 8) + b"PAR1")
    with pytest.raises(StoreError):
        read_parts(parts, definition)
    (parts[0] / "data-0.parquet").unlink()
    with pytest.raises(StoreError):
        read_parts(parts, definition)
    with pytest.raises(StoreError):
        read_batches(parts, definition).read_all()


def test_filters_reach_inside_structs(tmp_path: Path) -> None:
    definition = define_table("t", "r struct<a: int, b: struct<c: string>>, l array<string>")
    rows = conform([{"r": {"a": 1, "b": {"c": "x"}}, "l": ["y"]}, {"r": {"a": 2, "b": None}}, {}], definition)
    assert isinstance(rows, pa.Table)
    stage_table(rows, definition, tmp_path / "s1")
    parts = [tmp_path / "s1" / "all"]
    assert read_parts(parts, definition, ["l"], "r.b.c = 'x'").to_pylist() == [{"l": ["y"]}]
    assert read_parts(parts, definition, where="r.a >= 2").num_rows == 1


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
def test_pieces_of_parts_have_each_row_once(tmp_path: Path, pieces: int) -> None:
    definition = define_table(
        "t", "k bigint not null, s string", order_by="k", settings=TableSettings(row_group_rows=4)
    )
    parts = _parts(tmp_path, definition, range(18), range(50, 53))
    found = [read_batches(parts, definition, ["k"], "k <> 7", (n, pieces)).read_all() for n in range(pieces)]
    keys = sorted(key for rows in found for key in rows.column("k").to_pylist())
    assert keys == [*range(7), *range(8, 18), *range(50, 53)]
    # Five row groups and one.
    assert sum(rows.num_rows > 0 for rows in found) == min(pieces, 5)


def test_a_piece_of_a_file_with_another_number_of_rows_is_refused(tmp_path: Path) -> None:
    definition = bench_table()
    (part,) = _parts(tmp_path, definition, range(6))
    manifest = read_manifest(part)
    (file,) = manifest.files
    other = replace(manifest, rows=7, files=(replace(file, rows=7),))
    with pytest.raises(CorruptPart, match="has 6 rows, its manifest says 7"):
        read_batches([CheckedPart(part, other)], definition, piece=(0, 2)).read_all()
