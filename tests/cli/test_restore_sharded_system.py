"""`replitree restore` of a sharded table against real processes: ZooKeeper forgets all, and each machine has some shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from replitree.client.cluster import LocalCluster
from replitree.protocol.rescue.restore_sharded import Standing, common_cut
from replitree.protocol.sharded.shard_map import Bucket, ShardMap, decode_map, encode_map, handed_over, moving
from replitree.storage.disk.kept_sharding import keep_sharding, read_sharding, read_standing
from replitree.storage.schema.row_buckets import key_buckets
from tests.cli.conftest import Run
from tests.cli.test_repair_system import findings
from tests.cli.test_restore_system import forget
from tests.waiting import wait_for

pytestmark = pytest.mark.system


def shard_folders(cluster: LocalCluster) -> list[Path]:
    """The folders of all shards of all servers."""
    return sorted(cluster.folder.glob("r*/data/tables/events~*"))


def cut(cluster: LocalCluster) -> int | None:
    """The last cut at which all folders stand, as far as they have noted it."""
    noted = [read_standing(folder) for folder in shard_folders(cluster)]
    return common_cut([Standing() if one is None else Standing(one.ensemble, one.first, one.last) for one in noted])


def lose(cluster: LocalCluster, *nodes: str) -> None:
    """Stop all servers, and delete some of the nodes that coordination has of tables."""
    for name in cluster.names:
        cluster.stop(name)
    for node in nodes or ("tables", "sharded", "ensemble"):
        forget(cluster, f"/replitree/{node}")


def config(cluster: LocalCluster, name: str) -> str:
    return str(cluster.folder / name / "server.toml")


def keys(cluster: LocalCluster) -> list[int]:
    return sorted(cluster.table("events").to_arrow(["id"]).column("id").to_pylist())


@pytest.fixture
def spread(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three servers; each of three shards is at two of them."""
    with LocalCluster(tmp_path / "data", 3, durable=False) as made:
        made.create_table(
            "events", "id bigint not null", order_by="id", shard_by="id", shards=3, buckets=16, replicas=2
        )
        yield made


def rewrite_maps(folders: list[Path], change: ShardMap) -> None:
    """Let the folders of shards keep another map."""
    for folder in folders:
        kept = read_sharding(folder)
        assert kept is not None
        other = msgspec.structs.replace(kept, map=msgspec.Raw(encode_map(change)), version=kept.version + 1)
        keep_sharding(folder, other)


def test_a_sharded_table_is_restored_from_the_disks_of_two_machines(spread: LocalCluster, run: Run) -> None:
    table = spread.table("events")
    table.insert({"id": list(range(60))}, token="first")
    table.alter("ADD COLUMN x int DEFAULT 7")
    table.insert({"id": list(range(60, 90)), "x": [1] * 30})
    table.delete("id = 3")
    expected = [key for key in range(90) if key != 3]
    assert len(shard_folders(spread)) == 6
    wait_for(lambda: cut(spread), "all replicas have noted where they stand")
    lose(spread)

    dry = run("restore", "events", "--config", config(spread, "r1"), "--dry-run", "--json")
    assert (dry.status, [shard["table"] for shard in dry.json["shards"]]) == (0, ["events~0", "events~1"])
    alone = run("restore", "events~0", "--config", config(spread, "r1"), "--yes")
    assert (alone.status, "its shards are restored together" in alone.err) == (2, True)
    own = [folder for folder in shard_folders(spread) if folder.parts[-4] == "r1"]
    kept = read_sharding(own[0])
    assert kept is not None
    before = decode_map(bytes(kept.map), "there")
    buckets = [Bucket(number) for number in range(16)]
    rewrite_maps(own, handed_over(before, buckets, before.shards[2]))
    wrong = run("restore", "events", "--config", config(spread, "r1"), "--yes")
    assert (wrong.status, "of buckets that the map gives to shard 2" in wrong.err) == (2, True), wrong.err
    rewrite_maps(own, moving(before, handed_over(before, buckets[:1], before.shards[2])))
    moved = run("restore", "events", "--config", config(spread, "r1"), "--yes")
    assert (moved.status, "buckets of 'events' were moving" in moved.err) == (2, True), moved.err
    rewrite_maps(own, before)

    first = run("restore", "events", "--config", config(spread, "r1"), "--yes", "--json")
    assert (first.status, first.json["missing"], first.json["shown"]) == (1, ["events~2"], False), first.err
    assert spread.tables() == ()
    taken = run("table", "create", "events", "--schema", "id bigint not null", "--order-by", "id", "--shard-by", "id")
    assert taken.status != 0
    told = findings(run("doctor", "--dir", str(spread.folder), "--json"))
    assert "events~2 must be restored" in told["restoring"]["text"]
    last = run("restore", "events", "--config", config(spread, "r3"), "--yes", "--json")
    assert (last.status, last.json["shown"], [shard["table"] for shard in last.json["shards"]]) == (
        0,
        True,
        ["events~2"],
    ), last.err
    again = run("restore", "events", "--config", config(spread, "r2"), "--yes")
    assert (again.status, "is not being restored" in again.err) == (2, True)

    for name in spread.names:
        spread.start(name)
    wait_for(lambda: run("doctor", "--dir", str(spread.folder)).status == 0, "the doctor finds nothing")
    assert keys(spread) == expected
    table = spread.table("events")
    assert table.insert({"id": [100, 101, 102, 103]}).outcome == "inserted"
    assert keys(spread) == [*expected, 100, 101, 102, 103]
    wait_for(lambda: cut(spread), "all replicas stand at a cut of the new ensemble")
    checked = run("check", "events", "--dir", str(spread.folder), "--json")
    assert (checked.status, len(checked.json["checks"])) == (0, 6), checked.err
    spread.stop("r2")
    dropped = run("drop-replica", "events", "r2", "--yes", "--dir", str(spread.folder), "--json")
    assert (dropped.status, dropped.json["tables"]) == (0, ["events~0", "events~2"]), dropped.err
    unknown = run("drop-replica", "events", "r2", "--yes", "--dir", str(spread.folder))
    assert (unknown.status, "no shard of the table has a replica 'r2'" in unknown.err) == (2, True)


def test_shards_that_stand_at_no_common_cut_are_told(tmp_path: Path, run: Run) -> None:
    with LocalCluster(tmp_path / "data", 2, durable=False) as cluster:
        table = cluster.create_table(
            "events", "id bigint not null", order_by="id", shard_by="id", shards=2, buckets=16, replicas=1
        )
        table.insert({"id": list(range(20))})
        wait_for(lambda: cut(cluster), "both shards have noted where they stand")
        (kept,) = cluster.folder.glob("r1/data/tables/events~0-*")
        before, sharding = read_standing(kept), read_sharding(kept)
        assert before is not None
        assert sharding is not None
        cluster.stop("r2")
        # Only the first shard has a server, so only rows of its buckets can be inserted.
        owners, numbers = decode_map(bytes(sharding.map), "there").owners, pa.array(range(20, 60), pa.int64())
        own = [key for key, at in zip(range(20, 60), key_buckets([numbers], 16), strict=True) if owners[at] == 0]
        table.insert({"id": own})
        wait_for(
            lambda: (noted := read_standing(kept)) is not None and noted.first > before.last, "the first has noted it"
        )
        lose(cluster, "sharded")
        partly = run("restore", "events", "--config", config(cluster, "r1"), "--yes")
        assert (partly.status, "has lost the table 'events' only in part" in partly.err) == (2, True), partly.err
        lose(cluster)
        assert cut(cluster) is None
        first = run("restore", "--all", "--config", config(cluster, "r1"), "--yes", "--json")
        assert (first.status, first.json["tables"][0]["missing"]) == (1, ["events~1"]), first.err
        second = run("restore", "events", "--config", config(cluster, "r2"), "--yes")
        assert second.status == 1
        assert "no moment is known at which all shards were what the disks have" in second.out
        assert "events~0: from r1, it stands at the transactions" in second.out
        assert cluster.tables() == ()
        # An operator may begin again: a drop leaves the disks of servers alone that do not run.
        assert run("table", "drop", "events", "--yes", "--dir", str(cluster.folder)).status == 0
        assert run("restore", "events", "--config", config(cluster, "r2"), "--yes").status == 1
        torn = run("restore", "events", "--config", config(cluster, "r1"), "--yes", "--torn")
        assert (torn.status, "events is there again" in torn.out) == (0, True), torn.err
        for name in cluster.names:
            cluster.start(name)
        wait_for(lambda: run("doctor", "--dir", str(cluster.folder)).status == 0, "the doctor finds nothing")
        assert keys(cluster) == sorted([*range(20), *own])
