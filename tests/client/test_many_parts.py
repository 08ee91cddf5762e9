"""A table with a part in each of many partitions: what a read, a delete and a restart take does not grow with the parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree.client.table import Table
from replitree_bench.run import run_parts
from replitree_bench.table.parts import PARTITION_ROWS, rows_of

pytestmark = pytest.mark.system

PARTITIONS = 1_000
REPLICAS = ("r1", "r2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), len(REPLICAS), durable=False) as cluster:
        table = cluster.create_table(
            "t", "p int not null, k bigint not null, v double", order_by="k", partition_by="p", wait_replicas=2
        )
        table.insert(rows_of(0, PARTITIONS))
        yield cluster


@pytest.fixture
def table(cluster: LocalCluster) -> Table:
    """The table after every replica has everything."""
    table = cluster.table("t")
    for name in REPLICAS:
        table.replica(name).snapshot(level="linearizable", timeout_s=120)
    return table


def names(table: Table, replica: str) -> set[str]:
    return {part.part for part in table.replica(replica).snapshot(level="linearizable", timeout_s=120).parts}


@pytest.mark.parametrize(
    ("where", "part"),
    [(f"p = 77 and k = {77 * PARTITION_ROWS}", "77_0_0_0"), (f"k = {78 * PARTITION_ROWS}", "78_0_0_0")],
)
def test_delete_of_one_row_renames_one_part_of_a_thousand(table: Table, where: str, part: str) -> None:
    before = names(table, "r1")
    deleted = table.delete(where)
    assert (deleted.applied, deleted.finished, deleted.removed, deleted.added) == (True, True, 1, 1)
    for replica in REPLICAS:
        after = names(table, replica)
        assert before - after == {part}
        assert after - before == {f"{part}_{deleted.index}"}
    assert table.to_arrow(where=where).num_rows == 0


def test_a_read_with_a_condition_is_sent_the_parts_that_may_match(table: Table) -> None:
    where = "p = 99 and k > 0"
    assert [part.part for part in table.snapshot(where=where).parts] == ["99_0_0_0"]
    assert table.to_arrow(where=where)["k"].to_pylist() == [99 * PARTITION_ROWS + row for row in range(PARTITION_ROWS)]
    final = table.to_arrow(where=where, final=True)
    assert final.num_rows == PARTITION_ROWS
    assert len(list(table.batches(where=where))) == 1


def test_a_killed_replica_goes_on_with_an_update_of_many_parts(cluster: LocalCluster, table: Table) -> None:
    before, many = table.to_arrow().num_rows, f"k < {200 * PARTITION_ROWS}"
    table.replica("r2").update({"v": "-1.0"}, many, timeout_s=0.0)
    cluster.kill("r1")
    cluster.start("r1")
    first = table.replica("r1")
    assert first.snapshot(-1).rows == before  # what is here is shown, whatever waits
    assert set(first.to_arrow(where=many, level="linearizable", timeout_s=120)["v"].to_pylist()) == {-1.0}
    assert first.to_arrow().num_rows == before
    assert names(table, "r1") == names(table, "r2")


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_twenty_thousand_partitions(tmp_path: Path) -> None:
    measured = run_parts(partitions=20_000, with_all=False, say=lambda _: None, folder=tmp_path).ours
    assert (measured["parts_renamed_partition"], measured["parts_renamed_row"]) == (1.0, 1.0)
    # What is compared was measured in the same seconds, so a busy machine changes both.
    assert measured["read_s"] < measured["full_plan_s"], "a read with a condition is sent the parts that may match"
