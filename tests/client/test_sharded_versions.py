"""Status and versions of a sharded table, with real replicas in this process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from replitree.client.connection import Connection
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import BadInput, TableNotFound
from tests.replica.fixtures import cluster_and_connection, hosted_everywhere
from tests.replica.inprocess import SCHEMA, InProcessCluster, rows

NAMES = ("d~0", "d~1")

cluster, connection = cluster_and_connection()


@pytest.fixture
def table(connection: Connection) -> ShardedTable:
    """A table of two shards by `k`."""
    made = connection.create_table("d", SCHEMA, order_by="k", shard_by="k", buckets=16)
    assert isinstance(made, ShardedTable)
    return made


def keys(table: ShardedTable, cut: str) -> list[int]:
    found: list[int] = table.to_arrow(["k"], as_of=cut)["k"].to_pylist()
    return sorted(found)


def test_the_status_has_each_shard_and_the_sum_of_all(table: ShardedTable, cluster: InProcessCluster) -> None:
    hosted_everywhere(cluster, *NAMES)
    table.insert(rows(0, 20), quorum=2)
    for name in NAMES:
        cluster.wait_alike(name)
    found = table.status()
    assert (found.name, tuple(each.name for each in found.shards)) == ("d", NAMES)
    assert [tuple(replica.name for replica in each.replicas) for each in found.shards] == [("r1", "r2")] * 2
    assert (found.parts, found.rows, found.open_inserts, found.moving) == (2, 20, 0, None)
    assert found.bytes == sum(each.bytes or 0 for each in found.shards)
    assert found.lag == max(replica.lag or 0 for each in found.shards for replica in each.replicas)


def test_the_status_of_a_table_that_is_gone_is_not_found(connection: Connection) -> None:
    table = connection.create_table("e", SCHEMA, order_by="k", shard_by="k", buckets=16)
    connection.drop_table("e")
    with pytest.raises(TableNotFound):
        table.status()


@pytest.mark.parametrize("quorum", [None, 2])
def test_the_cut_of_a_token_is_the_first_that_has_its_insert(
    table: ShardedTable, cluster: InProcessCluster, quorum: int | None
) -> None:
    hosted_everywhere(cluster, *NAMES)
    for number in range(3):
        table.insert(rows(100 * number, 10), token=f"load-{number}", quorum=quorum)
    cuts = [table.cut_of(token=f"load-{number}") for number in range(3)]
    assert keys(table, cuts[1]) == [*range(10), *range(100, 110)]
    assert [len(keys(table, cut)) for cut in cuts] == [10, 20, 30]
    # The history names the same transactions.
    assert {table.index_of(cut) for cut in cuts} <= {each.index for each in table.history()}


def test_the_cut_of_a_time_and_of_a_tag_are_what_reads_mean_by_them(table: ShardedTable) -> None:
    table.insert(rows(0, 10), token="before")
    table.tag("nightly")
    assert table.cut_of("nightly") == next(each.cut for each in table.tags() if each.name == "nightly")
    written = max(each.time for each in table.history() if each.time is not None)
    table.insert(rows(100, 10))
    assert keys(table, table.cut_of(written + timedelta(milliseconds=1)))[:10] == list(range(10))
    assert table.index_of("nightly") == int(table.cut_of("nightly").partition("@")[2])


def test_what_names_no_version_is_refused(table: ShardedTable) -> None:
    table.insert(rows(0, 10), token="here")
    with pytest.raises(BadInput, match="knows no insert with token 'gone'"):
        table.cut_of(token="gone")
    for options in ({}, {"as_of": "nightly", "token": "here"}):
        with pytest.raises(BadInput, match="give either a time"):
            table.cut_of(**options)
    with pytest.raises(BadInput, match="is not over"):
        table.cut_of(datetime.now(UTC) + timedelta(days=1))
    table.truncate()
    with pytest.raises(BadInput, match="knows no insert with token 'here'"):
        table.cut_of(token="here")
