"""Conditions with arithmetic and functions: readers filter by them, mutations choose rows by them, and they prune nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.errors import BadInput
from replitree.storage.parts.conform import conform
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import read_manifest
from replitree.storage.rewrite.mutate import MutationFailed, mutate_part
from replitree.storage.rewrite.read import read_batches, read_parts
from replitree.storage.schema.definition import TableDefinition, TableSettings, define_table
from replitree.storage.sql.alter_parser import parse_alter
from replitree.storage.sql.evolve import apply_alter
from replitree.storage.sql.expression import where_true
from replitree.storage.sql.mutation import cannot_touch, delete_where, update_where
from replitree.storage.sql.predicate_parser import parse_predicate

DEFINITION = define_table(
    "t",
    "k bigint, v double, s string, r struct<a: int, b: string>",
    order_by=["k"],
    settings=TableSettings(row_group_rows=4),
    table_id="0" * 32,
)
ROWS: dict[str, list[Any]] = {
    "k": list(range(20)),
    "v": [float("nan") if n == 7 else None if n == 8 else n / 2 for n in range(20)],
    "s": [f"{'Ab' if n % 2 else 'cd'}{n}" for n in range(20)],
    "r": [{"a": n, "b": str(n)} for n in range(20)],
}


def part_of(folder: Path, definition: TableDefinition = DEFINITION, rows: dict[str, Any] | None = None) -> Path:
    [manifest] = stage_table(conform(rows or ROWS, definition), definition, folder, sync=False)
    return folder / manifest.partition


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("k % 5 = 3", [3, 8, 13, 18]),
        ("mod(k, 5) = 3 and k > 5", [8, 13, 18]),
        ("k div 10 = 1 and length(s) = 4 and k < 12", [10, 11]),
        ("isnan(v)", [7]),
        ("lower(s) = 'ab3' or k = 0", [0, 3]),
        ("v * 2 > 18", [7, 19]),
        ("k + v > 27", [7, 19]),
        ("k <> 0 and 20 / k = 4", [5]),
        ("r.a + 1 = 3", [2]),
        ("not (k % 2 = 0 or k > 5)", [1, 3, 5]),
        ("1 = 2", []),
    ],
)
def test_readers_filter_by_what_is_calculated(tmp_path: Path, where: str, keys: list[int]) -> None:
    part = part_of(tmp_path)
    assert read_parts([part], DEFINITION, ["k"], where).column("k").to_pylist() == keys
    whole = read_parts([part], DEFINITION, where=where)
    assert (whole.schema, whole.column("k").to_pylist()) == (DEFINITION.arrow_schema, keys)
    found = read_batches([part], DEFINITION, ["s"], where).read_all()
    assert found.schema.names == ["s"]
    assert found.column("s").to_pylist() == [ROWS["s"][key] for key in keys]


def test_parts_of_older_columns_are_filtered_by_the_newest(tmp_path: Path) -> None:
    part = part_of(tmp_path)
    altered = DEFINITION
    for text in ("RENAME COLUMN k TO id", "RENAME COLUMN r.a TO x", "ADD COLUMN c int DEFAULT 5"):
        altered = apply_alter(altered, parse_alter(text, altered))
    for where in ("id % 5 = 3 and c + 1 = 6", "r.x % 5 = 3", "id % 5 = 3 and id >= 0"):
        assert read_parts([part], altered, ["id"], where).column("id").to_pylist() == [3, 8, 13, 18]
    assert read_parts([part], altered, ["s", "c"], "id % 20 = 3").to_pylist() == [{"s": "Ab3", "c": 5}]


def test_condition_without_a_value_is_an_error_and_no_wrong_row(tmp_path: Path) -> None:
    part = part_of(tmp_path)
    with pytest.raises(BadInput, match=r"'10 / k > 1' has no value in some row: division by zero"):
        read_parts([part], DEFINITION, where="10 / k > 1")
    with pytest.raises(BadInput, match="has no value"):
        read_batches([part], DEFINITION, where="10 / k > 1").read_all()
    with pytest.raises(MutationFailed, match="division by zero"):
        mutate_part(part, DEFINITION, delete_where("10 / k > 1", DEFINITION), tmp_path / "m")


@pytest.mark.parametrize(
    ("where", "gone"),
    [
        ("k % 5 = 3", {3, 8, 13, 18}),
        ("isnan(v)", {7}),
        ("lower(s) = 'ab3'", {3}),
        ("v < k - 8 and 1 = 1", {17, 18, 19}),
    ],
)
def test_mutations_choose_rows_by_what_is_calculated(tmp_path: Path, where: str, gone: set[int]) -> None:
    part = part_of(tmp_path)
    manifest = mutate_part(part, DEFINITION, delete_where(where, DEFINITION), tmp_path / "deleted")
    assert manifest is not None
    left = read_parts([tmp_path / "deleted" / manifest.partition], DEFINITION)
    assert left.column("k").to_pylist() == [key for key in range(20) if key not in gone]
    manifest = mutate_part(part, DEFINITION, update_where({"s": "'x'"}, where, DEFINITION), tmp_path / "updated")
    assert manifest is not None
    rows = read_parts([tmp_path / "updated" / manifest.partition], DEFINITION).to_pylist()
    assert {row["k"] for row in rows if row["s"] == "x"} == gone


def test_what_is_calculated_proves_nothing_of_a_part(tmp_path: Path) -> None:
    manifest = read_manifest(part_of(tmp_path))
    assert parse_predicate("k + 0 > 100", DEFINITION).may_match(manifest)
    assert parse_predicate("not (k + 0 > 100)", DEFINITION).may_match(manifest)
    assert not parse_predicate("k + 0 > 100 and k > 100", DEFINITION).may_match(manifest)
    assert not cannot_touch(manifest, delete_where("k % 2 = 5", DEFINITION), DEFINITION)
    assert cannot_touch(manifest, delete_where("k % 2 = 1 and k = 100", DEFINITION), DEFINITION)


@given(st.lists(st.sampled_from([-2.5, -0.0, 0.0, 1.0, float("nan"), float("inf"), None]), max_size=8))
def test_calculated_comparisons_are_the_plain_ones(values: list[float | None]) -> None:
    definition = define_table("t", "a double, b double", table_id="0" * 32)
    rows = pa.record_batch({"a": pa.array(values, pa.float64()), "b": pa.array(values[::-1], pa.float64())})
    for sign in ("=", "!=", "<", "<=", ">", ">="):
        for right in ("b", "1.0D", "cast('NaN' as double)"):
            plain = where_true(parse_predicate(f"a {sign} {right}", definition), rows)
            computed = where_true(parse_predicate(f"a + 0 {sign} {right}", definition), rows)
            assert plain.tolist() == computed.tolist(), (sign, right)
