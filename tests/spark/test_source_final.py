"""Final reads of the data source without Spark: its tasks together give what the replicas' own merge would leave."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replitree.client.read.snapshot import SnapshotPart
from replitree.errors import BadInput
from replitree.spark.read import final_units
from replitree.spark.read.source_read import FilesPartition, GroupUnit, plan_partitions, plan_read, read_partition
from replitree.spark.session.types import spark_schema
from replitree.storage.rewrite.merge import final_batches
from replitree.storage.schema.definition import TableSettings, define_table
from tests.client import test_deletions
from tests.client.conftest import FakeCluster
from tests.client.test_final import publish
from tests.client.test_snapshot import serve
from tests.examples import examples

SCHEMA = "p int not null, k bigint not null, v int not null, s string"
INSERTS = [[(k % 2, k // 4, k % 5 + part, f"{part}-{k}") for k in range(part, 60, part + 1)] for part in range(3)]


def published(cluster: FakeCluster, folder: Path, policy: str, machine: str | None = None) -> list[SnapshotPart]:
    """Have a replica show the parts of three inserts, as one that runs on `machine`."""
    small = TableSettings(row_group_rows=5)
    cluster.catalog.create(define_table("t", SCHEMA, order_by="k", partition_by="p", policy=policy, settings=small))
    replica = cluster.add_replica("t", "r1")
    parts = publish(folder, cluster.catalog.definition("t"), INSERTS)
    serve(replica, [(part.part, Path(part.path), part.manifest) for part in parts], index=3)
    if machine is not None:
        replica.snapshot["machine"] = machine
    return parts


def planned(cluster: FakeCluster, table: str = "t", **options: str) -> list[FilesPartition]:
    schema = spark_schema(cluster.catalog.definition(table))
    return plan_partitions(plan_read({"table": table, "final": "true"} | options, schema))[1]


def rows(partitions: list[FilesPartition]) -> list[dict[str, Any]]:
    """Read each partition as a task does, in any order."""
    found: list[dict[str, Any]] = []
    for partition in reversed(partitions):
        for batch in read_partition(pickle.loads(pickle.dumps(partition))):
            found += batch.to_pylist()
    return sorted(found, key=str)


def merged(cluster: FakeCluster, parts: list[SnapshotPart]) -> list[dict[str, Any]]:
    """What the kernel leaves of each partition."""
    found: list[dict[str, Any]] = []
    for partition in ("0", "1"):
        folders = [Path(part.path) for part in parts if part.manifest.partition == partition]
        for batch in final_batches(folders, cluster.catalog.definition("t")):
            found += batch.to_pylist()
    return sorted(found, key=str)


@pytest.mark.parametrize("policy", ["replacing", "replacing(v)", "summing(v)"])
def test_tasks_together_leave_what_a_merge_leaves(
    cluster: FakeCluster, tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = published(cluster, tmp_path, policy)
    expected = merged(cluster, parts)
    assert 0 < len(expected) < sum(part.manifest.rows for part in parts)
    whole = planned(cluster, partitions="8")
    assert [len(partition.value.units) for partition in whole] == [1, 1]
    assert rows(whole) == expected
    monkeypatch.setattr(final_units, "TASK_BYTES", 1000)
    cut = planned(cluster, partitions="5")
    assert len(cut) == 5
    units = [unit for partition in cut for unit in partition.value.units]
    assert len(units) > 5
    assert all(isinstance(unit, GroupUnit) and unit.key_range is not None for unit in units)
    assert rows(cut) == expected
    assert rows(planned(cluster, where="k < 5 and p = 1")) == [r for r in expected if r["k"] < 5 and r["p"] == 1]
    assert rows(planned(cluster, where="v > 3")) == [r for r in expected if r["v"] > 3]


def test_tasks_elsewhere_fetch_what_they_merge(cluster: FakeCluster, tmp_path: Path) -> None:
    parts = published(cluster, tmp_path, "replacing(v)", "elsewhere")
    assert rows(planned(cluster)) == merged(cluster, parts)
    assert any("/files/" in seen.path for seen in cluster.replicas["r1"].seen)


def test_plain_table_is_read_file_by_file(cluster: FakeCluster, tmp_path: Path) -> None:
    published(cluster, tmp_path, "plain")
    partitions = planned(cluster)
    assert not [unit for each in partitions for unit in each.value.units if isinstance(unit, GroupUnit)]
    assert len(rows(partitions)) == sum(map(len, INSERTS))


def test_option_that_is_no_truth_value_is_refused(cluster: FakeCluster, tmp_path: Path) -> None:
    published(cluster, tmp_path, "replacing")
    with pytest.raises(BadInput, match="option final is true or false"):
        planned(cluster, final="perhaps")


@settings(max_examples=examples(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(inserts=test_deletions.INSERTS, merges=test_deletions.MERGES, where=st.sampled_from(test_deletions.WHERES))
def test_tasks_leave_deleted_keys_out(
    cluster: FakeCluster,
    tmp_path_factory: pytest.TempPathFactory,
    inserts: list[list[test_deletions.Row]],
    merges: list[tuple[int, int]],
    where: str | None,
) -> None:
    model = test_deletions.Model()
    for some in inserts:
        model.insert(some)
    folder = tmp_path_factory.mktemp("parts")
    table, _ = test_deletions.filled(cluster, folder, test_deletions.NUMBER, inserts, merges)
    options = {} if where is None else {"where": where}
    expected = model.shown(where)
    for size in (128 << 20, 100):
        with pytest.MonkeyPatch.context() as patched:
            # The smaller size cuts partitions into ranges of the order key.
            patched.setattr(final_units, "TASK_BYTES", size)
            found = rows(planned(cluster, table.name, partitions="5", **options))
        assert sorted((tuple(row.values()) for row in found), key=repr) == expected
