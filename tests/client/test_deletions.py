"""Delete markers: no reader shows a key whose newest row is a deletion, whatever was merged before, and no merge forgets one.

Parts are files, merged as a replica merges them; the expected rows are those of a model in plain Python.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replitree.client.change.delete_final import NOTHING, final_delete
from replitree.client.read.snapshot import SnapshotPart
from replitree.client.table import Table
from replitree.errors import BadInput
from replitree.protocol.core.parts import merged_part, parse_part
from replitree.storage.rewrite.merge import merge_parts
from replitree.storage.schema.definition import TableDefinition, define_table
from tests.client.conftest import FakeCluster
from tests.client.test_changes import DONE
from tests.client.test_delete_final import deleted, snapshot
from tests.client.test_engines import WAYS
from tests.client.test_final import publish
from tests.client.test_snapshot import serve
from tests.examples import examples

Row = tuple[Any, ...]

BOOLEAN = "p int not null, k bigint not null, version int, gone boolean, s string"
NUMBER = BOOLEAN.replace("boolean", "tinyint")
WHERES = (None, "k < 3", "s like 'a%'", "version >= 1", "gone is null")


def is_wanted(row: Row, where: str | None) -> bool:
    match where:
        case "k < 3":
            return bool(row[1] < 3)
        case "s like 'a%'":
            return bool(row[4].startswith("a"))
        case "version >= 1":
            return row[2] is not None and row[2] >= 1
        case "gone is null":
            return row[3] is None
    return True


class Model:
    """The newest row of each key of each partition, deletions included."""

    def __init__(self) -> None:
        self.newest: dict[tuple[int, int], Row] = {}

    def insert(self, rows: list[Row]) -> None:
        for row in rows:
            known = self.newest.get(row[:2])
            if known is None or version_of(row) >= version_of(known):
                self.newest[row[:2]] = row

    def shown(self, where: str | None) -> list[Row]:
        return sorted((row for row in self.newest.values() if not row[3] and is_wanted(row, where)), key=repr)


def version_of(row: Row) -> int:
    return -1 if row[2] is None else int(row[2])


def merge(parts: list[SnapshotPart], definition: TableDefinition, folder: Path, first: int, count: int) -> None:
    """Put one part in the place of some neighbours of one partition, as a merge does."""
    partition = parts[first % len(parts)].manifest.partition
    mine = sorted(
        (part for part in parts if part.manifest.partition == partition), key=lambda part: parse_part(part.part)
    )
    start = first % len(mine)
    sources = mine[start : start + count]
    result = merged_part(tuple(parse_part(part.part) for part in sources)).name
    manifest = merge_parts([Path(part.path) for part in sources], definition, folder / f"of-{result}", sync=False)
    for part in sources:
        parts.remove(part)
    parts.append(SnapshotPart(result, str(folder / f"of-{result}" / partition), manifest))


def filled(
    cluster: FakeCluster, folder: Path, schema: str, inserts: list[list[Row]], merges: list[tuple[int, int]]
) -> tuple[Table, list[SnapshotPart]]:
    """Return a new table with the parts of some inserts, of which some neighbours are merged."""
    name = f"t{folder.name}".replace("-", "_")
    cluster.create(name, schema, order_by="k", partition_by="p", policy="replacing(version, gone)")
    replica = cluster.add_replica(name, "r1")
    table = cluster.connect().table(name)
    parts = publish(folder, table.definition, inserts)
    for first, count in merges:
        merge(parts, table.definition, folder, first, count)
    serve(replica, [(part.part, Path(part.path), part.manifest) for part in parts], index=len(inserts))
    return table, parts


def rows(found: pa.Table) -> list[Row]:
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


ROW = st.tuples(
    st.integers(0, 1),
    st.integers(0, 4),
    st.sampled_from([None, 0, 1, 2]),
    st.sampled_from([None, 0, 1, 1]),
    st.sampled_from(["a1", "a2", "b"]),
)
INSERTS = st.lists(st.lists(ROW, min_size=1, max_size=6), min_size=1, max_size=4)
MERGES = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), max_size=3)


@settings(
    max_examples=examples(8),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(
    is_boolean=st.booleans(),
    inserts=INSERTS,
    merges=MERGES,
    where=st.sampled_from(WHERES),
)
def test_every_reader_shows_what_the_model_has(
    cluster: FakeCluster,
    tmp_path_factory: pytest.TempPathFactory,
    is_boolean: bool,
    inserts: list[list[Row]],
    merges: list[tuple[int, int]],
    where: str | None,
) -> None:
    if is_boolean:
        inserts = [[(*one[:3], None if one[3] is None else bool(one[3]), one[4]) for one in some] for some in inserts]
    model = Model()
    for some in inserts:
        model.insert(some)
    folder = tmp_path_factory.mktemp("parts")
    table, parts = filled(cluster, folder, BOOLEAN if is_boolean else NUMBER, inserts, merges)
    expected = model.shown(where)
    scan = table.scan(where=where, final=True)
    assert rows(scan.to_arrow()) == rows(scan.to_reader().read_all()) == rows(scan.head(99)) == expected
    assert (
        rows(table.to_arrow(where=where, final=True))
        == rows(table.snapshot().to_arrow(where=where, final=True))
        == expected
    )
    assert scan.count() == len(scan.to_pandas()) == len(expected)
    for name, way in WAYS.items():
        assert rows(way(scan)) == expected, name
    # A column that is not the marker's: the marker is read all the same.
    assert sorted(table.to_arrow(["s"], where, final=True)["s"].to_pylist()) == sorted(row[4] for row in expected)
    # A merge of everything keeps the deletions: a row that comes later may be older.
    for partition in {part.manifest.partition for part in parts}:
        folders = [
            Path(part.path)
            for part in sorted(parts, key=lambda each: parse_part(each.part))
            if part.manifest.partition == partition
        ]
        manifest = merge_parts(folders, table.definition, folder / f"all-{partition}", sync=False)
        assert manifest.rows == sum(key[0] == int(partition) for key in model.newest)


def test_an_older_row_that_comes_after_the_merge_stays_hidden(cluster: FakeCluster, tmp_path: Path) -> None:
    inserts: list[list[Row]] = [[(0, 1, 1, None, "a")], [(0, 1, 5, True, "b")], [(0, 1, 3, False, "late")]]
    table, _ = filled(cluster, tmp_path, BOOLEAN, inserts, [(0, 2)])
    assert table.to_arrow(final=True).num_rows == 0
    assert rows(table.to_arrow()) == [(0, 1, 3, False, "late"), (0, 1, 5, True, "b")]


def test_a_key_is_shown_again_by_a_newer_row(cluster: FakeCluster, tmp_path: Path) -> None:
    inserts: list[list[Row]] = [[(0, 1, 1, None, "a")], [(0, 1, 5, True, "b")], [(0, 1, 6, None, "again")]]
    table, _ = filled(cluster, tmp_path, BOOLEAN, inserts, [])
    assert table.to_arrow(["s"], final=True).to_pylist() == [{"s": "again"}]


def test_engines_that_filter_by_themselves_never_reach_a_deleted_row(cluster: FakeCluster, tmp_path: Path) -> None:
    table, _ = filled(
        cluster, tmp_path, BOOLEAN, [[(0, 1, 1, None, "a")], [(0, 1, 2, True, "b"), (0, 2, 1, None, "c")]], []
    )
    con = duckdb.connect()
    table.scan(final=True).to_duckdb(con, "t")
    assert con.sql("SELECT k FROM t WHERE s IN ('a', 'b', 'c')").fetchall() == [(2,)]
    assert table.scan(final=True).to_polars(lazy=True).filter(pl.col("gone")).collect().height == 0
    assert "replacing(version, gone) is applied" in table.scan(final=True).explain()


# --- removing deletions -------------------------------------------------------------------------------------------------


SCHEMA = "p int, a bigint, b string, v int, gone boolean"
MARKED = define_table("t", SCHEMA, order_by="a, b", partition_by="p", policy="replacing(v, gone)")


def test_a_final_delete_of_deletions_removes_them_with_what_they_hide(tmp_path: Path) -> None:
    before: list[Row] = [(0, 1, "x", 1, None), (0, 1, "x", 2, True), (0, 2, "x", 1, True), (0, 2, "x", 2, False)]
    where, partition = final_delete(snapshot(tmp_path, MARKED, [before[:1], before[1:]]), "gone")
    assert deleted(MARKED, where, partition, before) == [True, True, False, False]
    later: list[Row] = [(0, 1, "x", 3, None), (0, 1, "x", 0, None)]
    assert deleted(MARKED, where, partition, later) == [False, True], "a newer row, put in before the entry, stays"


def test_a_final_delete_by_another_column_looks_at_keys_that_are_shown(tmp_path: Path) -> None:
    shown = snapshot(tmp_path, MARKED, [[(0, 1, "x", 1, None), (0, 2, "x", 1, None)], [(0, 1, "x", 2, True)]])
    where, partition = final_delete(shown, "b = 'x'")
    assert deleted(MARKED, where, partition, [(0, 1, "x", 2, True), (0, 2, "x", 1, None)]) == [False, True]
    assert final_delete(shown, "a = 1")[0] == NOTHING


def test_client_sends_one_delete_for_deletions(cluster: FakeCluster, tmp_path: Path) -> None:
    table, _ = filled(cluster, tmp_path, NUMBER, [[(0, 1, 1, 0, "a")], [(0, 1, 2, 1, "a")]], [])
    replica = cluster.replicas["r1"]
    replica.answers = {"POST mutations": DONE}
    replica.snapshot = {**replica.snapshot, "level": "linearizable"}
    assert table.delete("gone <> 0", final=True).finished
    (sent,) = [json.loads(seen.body) for seen in replica.seen if seen.method == "POST" and seen.body]
    assert sent["where"] == "(`k` = 1 AND (`version` IS NULL OR `version` < 2 OR (`version` = 2 AND (gone <> 0))))"


# --- definitions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("replacing(version, s)", "a delete marker is a boolean or a whole number, 's' is not"),
        ("replacing(version, nope)", "there is no column 'nope'"),
        ("replacing(version, version)", "give the table another column"),
        ("replacing(version, k)", "'k' is in a key, so a deletion would have another key"),
        ("replacing(version, gone, p)", "takes a version column and a delete marker"),
        ("replacing(gone, version)", "a version is a whole number, a date or a timestamp, 'gone' is not"),
    ],
)
def test_policy_with_a_wrong_marker_is_refused(policy: str, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        define_table("t", BOOLEAN, order_by="k", policy=policy)
