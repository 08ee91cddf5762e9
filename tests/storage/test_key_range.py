"""Ranges of a merge: together they are the merge of the whole, whatever the bounds and the policy."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replitree.storage.parts.adopt import adopt_files
from replitree.storage.parts.manifest import data_file, read_manifest
from replitree.storage.rewrite.key_range import KeyRange, can_be_cut, ranges_of
from replitree.storage.rewrite.merge import final_batches, merge_parts, merge_range
from replitree.storage.schema.definition import TableDefinition, TableSettings, define_table
from tests.examples import examples
from tests.storage.merging import stage_all

KEYS: dict[str, list[Any]] = {
    "bigint": [None, -(2**63), -1, 0, 1, 2, 3, 2**63 - 1],
    "string": [None, "", "a", "aa", "b", "é", "ÿ", "\U0001f600"],
    "date": [None, date(1969, 12, 31), date(1970, 1, 1), date(2020, 2, 29)],
    "timestamp_ntz": [None, datetime.fromisoformat("1960-01-01T00:00:00.000001"), datetime.fromisoformat("2020-01-01")],
    "binary": [None, b"", b"\x00", b"\xff", b"\xff\x00"],
}
POLICIES = ["plain", "replacing(v)", "summing(v, x)"]


def tables(kind: str, policy: str, parts: list[list[tuple[int, int]]]) -> tuple[TableDefinition, list[pa.Table]]:
    """A table, and the rows of its parts, from numbers of keys and values."""
    small = TableSettings(row_group_rows=3)
    definition = define_table(
        "t", f"k {kind}, j int, v bigint, x double, n int", order_by=["k", "j"], policy=policy, settings=small
    )
    keys = KEYS[kind]
    found = [
        pa.Table.from_pylist(
            [
                {"k": keys[key % len(keys)], "j": key % 2, "v": value, "x": value / 3, "n": 100 * part + number}
                for number, (key, value) in enumerate(rows)
            ],
            definition.arrow_schema,
        )
        for part, rows in enumerate(parts)
    ]
    return definition, found


some_rows = st.lists(st.tuples(st.integers(0, 15), st.integers(-3, 3)), min_size=1, max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=examples(18))
@given(
    kind=st.sampled_from(sorted(KEYS)),
    policy=st.sampled_from(POLICIES),
    parts=st.lists(some_rows, min_size=1, max_size=4),
    count=st.integers(2, 5),
)
def test_ranges_together_are_the_whole(
    kind: str,
    policy: str,
    parts: list[list[tuple[int, int]]],
    count: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("ranges")
    definition, rows = tables(kind, policy, parts)
    sources = stage_all(rows, definition, folder)
    whole = merge_parts(sources, definition, folder / "whole", sync=False)
    ranges = ranges_of([(source, read_manifest(source)) for source in sources], definition, count)
    assert 1 <= len(ranges) <= count
    files = []
    for number, each in enumerate(ranges):
        target = folder / f"range-{number}"
        made = merge_range(sources, definition, target, each)
        files.append(target / made.partition / data_file(0))
    read = [batch for each in ranges for batch in final_batches(sources, definition, ["n", "v"], key_range=each)]
    plainly = list(final_batches(sources, definition, ["n", "v"]))
    assert [row for batch in read for row in batch.to_pylist()] == [row for b in plainly for row in b.to_pylist()]
    if whole.rows:
        adopted = adopt_files(files, definition, folder / "adopted", "all", sync=False)
        assert (adopted.content_hash, adopted.rows, adopted.columns) == (
            whole.content_hash,
            whole.rows,
            whole.columns,
        )


def test_ranges_have_about_equally_many_rows(tmp_path: Path) -> None:
    definition = define_table("t", "k bigint", order_by="k", settings=TableSettings(row_group_rows=1000))
    rows = [pa.table({"k": pa.array(range(first, 40_000, 4), pa.int64())}) for first in range(4)]
    sources = stage_all(rows, definition, tmp_path)
    ranges = ranges_of([(source, read_manifest(source)) for source in sources], definition, 4)
    found = [merge_range(sources, definition, tmp_path / f"{i}", each) for i, each in enumerate(ranges)]
    assert sum(part.rows for part in found) == 40_000
    assert [8_000 < part.rows < 17_000 for part in found] == [True] * 4


def test_row_groups_outside_of_a_range_are_not_read(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    definition = define_table("t", "k bigint", order_by="k", settings=TableSettings(row_group_rows=10))
    (source,) = stage_all([pa.table({"k": pa.array([None, *range(99)], pa.int64())})], definition, tmp_path)
    metadata = pq.read_metadata(source / data_file(0))

    def groups(low: int | None, high: int | None) -> tuple[int, ...]:
        lower, upper = (None if value is None else pa.scalar(value, pa.int64()) for value in (low, high))
        return KeyRange("k", lower, upper).groups(metadata)

    assert groups(None, 5) == (0,)
    assert groups(20, 39) == (2, 3)
    assert groups(95, None) == (9,)
    assert groups(1000, None) == ()


@pytest.mark.parametrize("key", ["double", "boolean", "decimal(9, 2)", None])
def test_keys_that_may_be_nan_or_are_not_plain_are_not_cut(key: str | None) -> None:
    definition = define_table("t", f"k {key or 'bigint'}", order_by="k" if key else ())
    assert not can_be_cut(definition)
    assert ranges_of([], definition, 8) == (None,)
