"""`replitree restore` against real processes: ZooKeeper forgets a table, and the disks have it still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.client.cluster import LocalCluster
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from tests.cli.conftest import Run
from tests.cli.test_repair_system import findings, is_well
from tests.coordination.waiting import patient_session
from tests.waiting import wait_for

pytestmark = pytest.mark.system


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Two replicas and a table with six rows, in two partitions, whose columns were changed."""
    with LocalCluster(tmp_path / "data", 2, durable=False) as made:
        table = made.create_table("events", "id bigint not null", order_by="id", partition_by="bucket(2,id)")
        table.insert({"id": [1, 2, 3, 4]})
        table.alter("ADD COLUMN x int DEFAULT 7")
        table.insert({"id": [5, 6], "x": [8, 8]})
        yield made


def forget(cluster: LocalCluster, path: str) -> None:
    """Delete a node with everything below it, as an accident would."""
    session = patient_session(cluster.access.url)
    try:
        _forget(session, path)
    finally:
        session.close()


def _forget(session: ZooKeeperCoordination, path: str) -> None:
    for _ in range(100):  # replicas that run may add nodes meanwhile
        for name in session.perform(fx.Children(path)) or ():
            _forget(session, f"{path}/{name}")
        if isinstance(session.perform(fx.Commit(fx.Delete(path, fx.ANY_VERSION))), fx.Applied):
            return
        if not session.perform(fx.Exists(path)):
            return
    raise AssertionError(f"{path} can't be deleted")


def serving(cluster: LocalCluster) -> list[str]:
    return [replica.name for replica in cluster.status("events").tables[0].replicas if replica.state == "active"]


def rows(cluster: LocalCluster, replica: str) -> list[tuple[int, int]]:
    found = cluster.table("events").replica(replica).to_arrow().to_pylist()
    return sorted((row["id"], row["x"]) for row in found)


ROWS = [(1, 7), (2, 7), (3, 7), (4, 7), (5, 8), (6, 8)]


def test_a_table_that_coordination_lost_is_restored_from_one_disk(cluster: LocalCluster, run: Run) -> None:
    wait_for(lambda: rows(cluster, "r1") == rows(cluster, "r2") == ROWS)
    cluster.stop("r2")
    cluster.table("events").insert({"id": [7], "x": [9]})  # only r1 has it
    cluster.stop("r1")
    cluster.start("r2")
    (file,) = (cluster.folder / "r2" / "data" / "tables").glob("events-*/parts/0_0_0_0/data-0.parquet")
    inode = file.stat().st_ino
    forget(cluster, layout.tables("/replitree"))
    wait_for(lambda: "events" not in cluster.tables())
    said = wait_for(lambda: findings(run("doctor", "--dir", str(cluster.folder), "--json")).get("table-gone"))
    assert (said["severity"], said["table"]) == ("critical", "events")
    assert "lost all its tables" in said["text"]
    config = str(cluster.folder / "r1" / "server.toml")
    dry = run("restore", "events", "--config", config, "--dry-run", "--json")
    assert (dry.status, dry.json["rows"], dry.json["first"]) == (0, 7, None)
    assert cluster.tables() == ()
    assert "say --yes" in run("restore", "events", "--config", config).err
    ran = run("restore", "events", "--config", config, "--yes", "--json")
    assert ran.status == 0, ran.err
    assert (ran.json["rows"], ran.json["broken"], ran.json["overlapping"]) == (7, {}, [])
    cluster.start("r1")
    wait_for(lambda: serving(cluster) == ["r1", "r2"])
    wait_for(lambda: run("doctor", "--dir", str(cluster.folder)).status == 0)
    assert rows(cluster, "r1") == rows(cluster, "r2") == [*ROWS, (7, 9)]
    cluster.table("events").insert({"id": [8]})
    wait_for(lambda: rows(cluster, "r1") == rows(cluster, "r2") == [*ROWS, (7, 9), (8, 7)])
    assert file.stat().st_ino == inode, "r2 kept what it had, and did not fetch it"
    again = run("restore", "events", "--config", config, "--yes")
    assert again.status == 1
    assert "another process uses the data folder" in again.err


def test_what_only_another_replica_had_is_set_aside_there(cluster: LocalCluster, run: Run) -> None:
    wait_for(lambda: rows(cluster, "r1") == rows(cluster, "r2") == ROWS)
    cluster.stop("r1")
    cluster.table("events").insert({"id": [7], "x": [9]})  # only r2 has it
    cluster.stop("r2")
    forget(cluster, layout.tables("/replitree"))
    (broken,) = (cluster.folder / "r1" / "data" / "tables").glob("events-*/parts/0_0_0_0/data-0.parquet")
    broken.write_bytes(b"no parquet")
    ran = run("restore", "events", "--config", str(cluster.folder / "r1" / "server.toml"), "--yes", "--json")
    assert ran.status == 0, ran.err
    assert list(ran.json["broken"]) == ["0_0_0_0"]
    again = run("restore", "events", "--config", str(cluster.folder / "r1" / "server.toml"), "--yes")
    assert again.status == 0, again.err
    assert "events is restored already from r1, nothing was changed: " in again.out
    for name in cluster.names:
        cluster.start(name)
    wait_for(lambda: serving(cluster) == ["r1", "r2"])
    wait_for(lambda: run("doctor", "--dir", str(cluster.folder)).status == 0)
    kept = rows(cluster, "r1")
    assert kept == rows(cluster, "r2")
    assert len(kept) == ran.json["rows"]
    detached = {path.name for path in (cluster.folder / "r2" / "data" / "tables").glob("events-*/detached/*")}
    assert any("_3_3_0" in name for name in detached), detached
    assert any("0_0_0_0" in name for name in detached), detached


def test_wrong_input_changes_nothing(cluster: LocalCluster, run: Run) -> None:
    config = str(cluster.folder / "r1" / "server.toml")
    assert "another process uses the data folder" in run("restore", "events", "--config", config, "--yes").err
    cluster.stop("r1")
    other = run("restore", "nowhere", "--config", config, "--yes")
    assert other.status == 2
    assert "no table 'nowhere'" in other.err
    there = run("restore", "events", "--config", config, "--yes")
    assert there.status == 2
    assert "is not being restored" in there.err
    # What the machine's disk has left is no finding of the table.
    found = findings(run("doctor", "--dir", str(cluster.folder), "--json")).keys()
    assert found <= {"unreachable", "inactive", "well", "disk-nearly-full"}
    cluster.start("r1")
    wait_for(is_well(lambda *words: run(*words, "--dir", str(cluster.folder))))
    assert rows(cluster, "r1") == ROWS


def test_a_server_whose_table_vanishes_keeps_its_rows_and_the_doctor_says_so(cluster: LocalCluster, run: Run) -> None:
    wait_for(lambda: rows(cluster, "r1") == rows(cluster, "r2") == ROWS)
    cluster.create_table("other", "id bigint")
    forget(cluster, layout.table_path("/replitree", "events"))
    told = wait_for(lambda: findings(run("doctor", "--dir", str(cluster.folder), "--json")).get("table-gone"))
    assert told["severity"] == "critical"
    assert all(f"{name} ({cluster.folder / name}" in told["text"] for name in cluster.names)
    assert "replitree restore events" in told["advice"]
    for name in cluster.names:
        assert list((cluster.folder / name / "data" / "tables").glob("events-*/parts/*/data-0.parquet"))
    cluster.drop_table("other")
    wait_for(lambda: not list(cluster.folder.glob("*/data/tables/other-*")))


def test_all_tables_that_coordination_lost_are_restored_at_once_and_those_that_are_there_left(
    cluster: LocalCluster, run: Run
) -> None:
    wait_for(lambda: rows(cluster, "r1") == rows(cluster, "r2") == ROWS)
    for name in ("lost", "stays"):
        cluster.create_table(name, "k int").insert({"k": [1]})
    for name in ("r1", "r2"):
        cluster.stop(name)
    for name in ("events", "lost"):
        forget(cluster, layout.table_path("/replitree", name))
    config = str(cluster.folder / "r1" / "server.toml")
    assert "say which table, or --all" in run("restore", "--config", config, "--yes").err
    assert "nothing was changed" in run("restore", "--all", "--config", config, "--json").err
    done = run("restore", "--all", "--config", config, "--yes", "--json")
    assert (done.status, [each["table"] for each in done.json["tables"]], done.json["failed"]) == (
        0,
        ["events", "lost"],
        {},
    )
    assert "has every table" in run("restore", "--all", "--config", config, "--yes").out
    cluster.start("r1")
    assert rows(cluster, "r1") == ROWS
    assert cluster.table("lost").replica("r1").to_arrow().num_rows == 1
