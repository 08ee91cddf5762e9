from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.client.read.final import final_batches_of, final_groups
from replitree.client.read.snapshot import SnapshotPart
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.storage.parts.encode import stage_table
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.sql.predicate_parser import parse_predicate
from tests.client.conftest import FakeCluster
from tests.client.test_snapshot import serve

SCHEMA = "p int not null, k bigint not null, version int not null, s string"
REPLACING = define_table("t", SCHEMA, order_by="k", partition_by="p", policy="replacing(version)")


def publish(folder: Path, definition: TableDefinition, inserts: list[list[tuple[Any, ...]]]) -> list[SnapshotPart]:
    """Write inserts as the parts that they would be."""
    parts = []
    for number, rows in enumerate(inserts):
        columns = [pa.array(values, f.type) for values, f in zip(zip(*rows, strict=True), definition.arrow_schema)]  # noqa: B905
        table = pa.table(columns, schema=definition.arrow_schema)
        for manifest in stage_table(table, definition, folder / f"staging-{number}", sync=False):
            name = f"{manifest.partition}_{number}_{number}_0"
            (folder / f"staging-{number}" / manifest.partition).rename(folder / name)
            parts.append(SnapshotPart(name, str(folder / name), manifest))
    return parts


def read(parts: list[SnapshotPart], definition: TableDefinition, where: str | None) -> list[dict[str, Any]]:
    predicate = parse_predicate(where, definition) if where else None
    found: list[dict[str, Any]] = []
    for group in final_groups(parts, definition, predicate):
        for batch in final_batches_of([Path(part.path) for part in group], definition, None, predicate):
            found += batch.to_pylist()
    return found


def is_kept(row: tuple[int, int, int, str], where: str | None) -> bool:
    return {None: True, "k < 3": row[1] < 3, "version = 1": row[2] == 1, "p = 0": row[0] == 0}[where]


rows = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=6)


@given(inserts=st.lists(rows, min_size=1, max_size=4), where=st.sampled_from([None, "k < 3", "version = 1", "p = 0"]))
def test_final_read_keeps_the_newest_row_of_each_key(
    tmp_path_factory: pytest.TempPathFactory, inserts: list[list[tuple[int, int, int]]], where: str | None
) -> None:
    named = [[(*row, f"{i}-{j}") for j, row in enumerate(insert)] for i, insert in enumerate(inserts)]
    parts = publish(tmp_path_factory.mktemp("final"), REPLACING, named)
    newest: dict[tuple[int, int], tuple[int, int, int, str]] = {}
    for insert in named:
        for row in insert:
            known = newest.get(row[:2])
            if known is None or row[2] >= known[2]:
                newest[row[:2]] = row
    kept = [row for row in newest.values() if is_kept(row, where)]
    found = [tuple(row.values()) for row in read(parts, REPLACING, where)]
    assert found == sorted(kept)


def test_parts_are_left_out_by_their_keys_only(tmp_path: Path) -> None:
    parts = publish(tmp_path, REPLACING, [[(0, 1, 1, "old")], [(0, 1, 2, "new")], [(0, 9, 1, "x")], [(1, 1, 1, "y")]])

    def groups(where: str) -> list[list[str]]:
        predicate = parse_predicate(where, REPLACING)
        return [[part.part for part in group] for group in final_groups(parts, REPLACING, predicate)]

    assert groups("k = 1") == [["0_0_0_0", "0_1_1_0"], ["1_3_3_0"]]
    assert groups("p = 1") == [["1_3_3_0"]]
    assert groups("version = 1") == [["0_0_0_0", "0_1_1_0", "0_2_2_0"], ["1_3_3_0"]]
    assert groups("k > 100") == []
    plain = define_table("t", SCHEMA, order_by="k", partition_by="p")
    (group,) = final_groups(parts, plain, parse_predicate("p = 0 and k = 9", plain))
    assert [part.part for part in group] == ["0_2_2_0"]


def test_condition_on_a_partition_column_brings_no_old_row_back(tmp_path: Path) -> None:
    """Both parts are of one month; only the older one can match by its statistics."""
    schema = "d date not null, k bigint not null, version int"
    table = define_table("t", schema, order_by="k", partition_by="month(d)", policy="replacing(version)")
    parts = publish(tmp_path, table, [[(17_900, 1, 1)], [(17_902, 1, 2)]])
    assert len({part.manifest.partition for part in parts}) == 1
    older = pa.scalar(17_900, pa.date32()).as_py()
    assert read(parts, table, f"d <= date'{older}'") == []
    assert [row["version"] for row in read(parts, table, f"d > date'{older}'")] == [2]


@pytest.fixture
def table(cluster: FakeCluster, tmp_path: Path) -> Table:
    cluster.create("t", SCHEMA, order_by="k", partition_by="p", policy="summing(version)")
    replica = cluster.add_replica("t", "r1")
    found = cluster.connect().table("t")
    parts = publish(tmp_path, found.definition, [[(0, 1, 1, "a"), (1, 1, 5, "b")], [(0, 1, 2, "c"), (0, 2, 7, "d")]])
    serve(replica, [(part.part, Path(part.path), part.manifest) for part in parts], index=2)
    return found


def test_table_reads_final_rows(table: Table) -> None:
    found = table.to_arrow(final=True)
    assert found.schema == table.schema
    assert sorted(found.to_pylist(), key=str) == [
        {"p": 0, "k": 1, "version": 3, "s": "a"},
        {"p": 0, "k": 2, "version": 7, "s": "d"},
        {"p": 1, "k": 1, "version": 5, "s": "b"},
    ]
    assert table.to_arrow().num_rows == 4
    assert table.to_arrow(columns=["s"], where="version = 3", final=True).to_pylist() == [{"s": "a"}]
    assert table.to_arrow(columns=["k", "p"], where="k > 5", final=True).schema.names == ["k", "p"]
    with pytest.raises(BadInput, match="nope"):
        table.to_arrow(columns=["nope"], final=True)


def test_partitions_say_what_is_in_them(table: Table) -> None:
    one, two = table.partitions()
    assert (one.partition, one.values, one.parts, one.rows, one.level, one.block_min, one.block_max) == (
        "0", (0,), 2, 3, 0, 0, 1,
    )  # fmt: skip
    assert (two.partition, two.parts, two.rows) == ("1", 1, 1)
