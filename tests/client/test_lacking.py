"""Reads while parts are broken or gone: only those fail that need such a part, at once; copies of any replica serve them."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.connection import Connection
from replitree.client.table import Table
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import RowsUnavailable
from replitree.protocol.state.registration import content_of
from replitree.replica.parts.salvage import Salvage
from replitree.replica.table import table_replica
from replitree.replica.table.mending import Mending
from replitree.storage.parts.partition_bounds import bounds_manifest
from replitree.storage.schema.definition import define_table
from replitree.storage.sql.predicate_parser import parse_predicate
from tests.replica.inprocess import TOKEN, InProcessCluster, Node, wait_for
from tests.replica.test_lost_parts import registered

YEARS = (1994, 1995, 1996)
SCHEMA = "k bigint not null, day date"
_salt = itertools.count()
"""Makes the parts of each test others: a process keeps what it has fetched."""


def rows(year: int, number: int) -> pa.Table:
    days = pa.array([f"{year}-01-01", f"{year}-12-31"]).cast(pa.date32())
    return pa.table({"k": pa.array([year, year + 10_000 * (number + 1) + next(_salt)], pa.int64()), "day": days})


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessCluster]:
    """Two replicas with two parts for each year, of which nothing comes back by itself."""
    monkeypatch.setattr(table_replica, "MAINTENANCE_S", 0.05)
    monkeypatch.setattr(Mending, "mend", lambda _self: None)
    monkeypatch.setattr(Salvage, "why_undecided", lambda _self, _part: None)  # their disks were searched in vain
    started = InProcessCluster(tmp_path)
    started.create_table(schema=SCHEMA, partition_by=["year(day)"])
    for node in started.nodes:
        node.post("merges/pause")
    for year, number in itertools.product(YEARS, range(2)):
        assert started.nodes[0].insert(rows(year, number))[0] == 200
    started.wait_alike()
    yield started
    started.close()


@pytest.fixture
def table(cluster: InProcessCluster) -> Iterator[Table]:
    """The table, as a program sees it."""
    opened = Connection(Access("zk://nowhere:1/replitree", TOKEN), lambda: MemoryCoordination(cluster.shared))
    yield opened.table("t")
    opened.close()


def lose(node: Node, part: str, *, keeps_manifest: bool = True) -> None:
    """Take the files of a part from a replica, which notices."""
    replica = node.table()
    if keeps_manifest:
        replica.sources.salvage.know(part, replica.store.manifest(part))
    replica.local_parts.lacks(part, content_of(registered(node, part)))
    shutil.rmtree(replica.store.part_path(part))


def first_of(cluster: InProcessCluster, year: int) -> str:
    return min(part for part in cluster.nodes[0].contents() if part.startswith(f"{year}_"))


def count(table: Table, where: str | None = None) -> int:
    read: pa.Table = table.to_arrow(where=where)
    return int(read.num_rows)


def test_a_part_that_one_replica_lacks_is_read_at_another_one(cluster: InProcessCluster, table: Table) -> None:
    lose(cluster.nodes[0], first_of(cluster, 1994))
    for _ in range(4):  # whichever replica answers
        assert count(table) == 12
        assert sum(batch.num_rows for batch in table.batches()) == 12
    assert count(table.replica("r1")) == 12  # also for a reader that is bound to the one that lacks it


def test_only_a_read_that_needs_a_part_fails_when_all_replicas_lack_it(cluster: InProcessCluster, table: Table) -> None:
    part = first_of(cluster, 1994)
    for node in cluster.nodes:
        lose(node, part)
    assert count(table, "day >= '1995-01-01'") == 8
    assert count(table, "k < 1994") == 0
    begun = time.monotonic()
    for where in (None, "day < '1995-01-01'", "k = 1994"):
        with pytest.raises(RowsUnavailable, match=f"part {part} of table t is broken or gone.*replitree doctor"):
            count(table, where)
    assert time.monotonic() - begun < 5.0
    assert table.to_arrow(where="day >= '1995-01-01'", final=True).num_rows == 8
    with pytest.raises(RowsUnavailable):
        table.to_arrow(final=True)


def test_a_part_of_which_no_manifest_is_left_is_judged_by_its_partition(
    cluster: InProcessCluster, table: Table
) -> None:
    part = first_of(cluster, 1994)
    for node in cluster.nodes:
        lose(node, part, keeps_manifest=False)
    assert count(table, "day >= '1995-01-01'") == 8
    for where in (None, "day = '1994-06-01'", "k = 1995"):
        with pytest.raises(RowsUnavailable, match=part):
            count(table, where)


def test_a_reader_of_an_earlier_version_is_refused_a_snapshot_that_lacks_a_part(cluster: InProcessCluster) -> None:
    node = cluster.nodes[0]
    lose(node, first_of(cluster, 1994))
    status, answer = node.request("GET", "/v1/tables/t/snapshot?wait_s=0.1")
    assert (status, answer["error"]) == (503, "ReplicaUnavailable")
    wait_for(lambda: node.request("GET", "/health")[1]["state"] == "degraded", "it says that it lacks a part")


@pytest.mark.parametrize(
    ("transform", "type_text", "value", "inside", "outside"),
    [
        ("year(c)", "date", 24, ("1994-01-01", "1994-12-31"), ("1993-12-31", "1995-01-01")),
        ("month(c)", "date", 24 * 12 + 1, ("1994-02-01", "1994-02-28"), ("1994-01-31", "1994-03-01")),
        ("day(c)", "date", 8767, ("1994-01-02",), ("1994-01-01", "1994-01-03")),
        ("hour(c)", "timestamp", 5, ("1970-01-01 05:00:00", "1970-01-01 05:59:59.999999"), ("1970-01-01 06:00:00",)),
        ("c", "string", "x", ("x",), ("w", "y")),
        ("c", "bigint", 7, (7,), (6, 8)),
    ],
)
def test_a_partition_bounds_its_rows(
    transform: str, type_text: str, value: int | str, inside: tuple[object, ...], outside: tuple[object, ...]
) -> None:
    definition = define_table("t", f"k bigint, c {type_text}", order_by=["k"], partition_by=[transform])
    bounds = bounds_manifest(definition, "p", (value,))
    unknown = bounds_manifest(definition, "p", None)

    def may_match(each: object) -> bool:
        predicate = parse_predicate(f"c = {each!r}", definition)
        assert predicate.may_match(unknown)
        return predicate.may_match(bounds)

    assert all(map(may_match, inside))
    assert not any(map(may_match, outside))
