"""`replitree restore` of a table on an object store, with real processes: ZooKeeper forgets it, a disk and the store do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from replitree.client.cluster import LocalCluster
from replitree.protocol.core import layout
from tests.cli.conftest import Run
from tests.cli.test_restore_system import forget, serving
from tests.shared.stores import BUCKET, FAULTY, FOLDER, on
from tests.waiting import wait_for

pytestmark = pytest.mark.system

SETTINGS = {"old_parts_lifetime_s": 0.5, "shared_cache_bytes": 0}


@pytest.fixture
def cluster(tmp_path: Path, store_url: str) -> Iterator[LocalCluster]:
    """Two replicas and a table on an object store, with four rows in one merged part and two more."""
    with LocalCluster(tmp_path / "data", 2, durable=False, settings=SETTINGS) as made:
        table = made.create_table("events", "id bigint not null", order_by="id", storage=store_url, wait_replicas=2)
        for first in (0, 2):
            table.insert({"id": [first, first + 1]})
        table.optimize(final=True)
        table.insert({"id": [4, 5]})
        yield made


def ids(cluster: LocalCluster, replica: str) -> list[int]:
    found: list[int] = cluster.table("events").replica(replica).to_arrow()["id"].to_pylist()
    return sorted(found)


def both_have(cluster: LocalCluster, expected: list[int]) -> bool:
    return ids(cluster, "r1") == ids(cluster, "r2") == expected


def set_aside(cluster: LocalCluster) -> list[int]:
    """What r2 had and the table no longer has."""
    files = sorted((cluster.folder / "r2" / "data" / "tables").glob("events-*/detached/removed_*/*.parquet"))
    return [key for file in files for key in pq.read_table(file)["id"].to_pylist()]


def config_of(cluster: LocalCluster) -> str:
    return str(cluster.folder / "r1" / "server.toml")


def vanish(cluster: LocalCluster) -> None:
    """Stop both replicas, of which each has parts that are registered by nobody then; r2 has a row more."""
    wait_for(lambda: both_have(cluster, list(range(6))))
    cluster.stop("r1")
    cluster.table("events").insert({"id": [6]})
    cluster.stop("r2")
    forget(cluster, layout.tables("/replitree"))


@on(FAULTY, at_night=(FOLDER, BUCKET))
def test_a_table_on_a_store_is_restored_from_one_disk(cluster: LocalCluster, run: Run) -> None:
    vanish(cluster)
    ran = run("restore", "events", "--config", config_of(cluster), "--yes", "--json")
    assert ran.status == 0, ran.err
    assert (ran.json["rows"], ran.json["broken"]) == (6, {})
    cluster.start("r1")
    where = ("--dir", str(cluster.folder))
    wait_for(lambda: serving(cluster) == ["r1"])
    kept = run("fsck", "events", "--repair", "--grace", "0", "--json", *where)
    assert {(each["kind"], each["repair"]) for each in kept.json["findings"]} == {("orphan", "kept")}, kept.out
    cluster.start("r2")
    wait_for(lambda: serving(cluster) == ["r1", "r2"])
    wait_for(lambda: both_have(cluster, list(range(6))))
    assert set_aside(cluster) == [6]
    cluster.table("events").insert({"id": [7]})
    wait_for(lambda: both_have(cluster, [*range(6), 7]))
    done = ("fsck", "events", "--repair", "--grace", "0", "--everybody-is-back", *where)
    wait_for(lambda: run(*done).status == 0, "fsck leaves nothing that is wrong")
    assert both_have(cluster, [*range(6), 7])


@on(at_night=(FOLDER,))
def test_a_store_that_is_not_there_is_not_restored_from(cluster: LocalCluster, run: Run, tmp_path: Path) -> None:
    vanish(cluster)
    (tmp_path / "objects").rename(tmp_path / "away")
    absent = run("restore", "events", "--config", config_of(cluster), "--yes")
    assert absent.status != 0
    assert "mounted" in absent.err
    (tmp_path / "objects").rmdir()
    (tmp_path / "away").rename(tmp_path / "objects")
    ran = run("restore", "events", "--config", config_of(cluster), "--yes", "--json")
    assert (ran.status, ran.json["rows"]) == (0, 6)
