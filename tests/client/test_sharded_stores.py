"""Sharded tables in an object store from a client's point of view, with real replicas in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from replitree.client.connection import Connection
from replitree.client.insert.stored_upload import put_parts, reach
from replitree.client.insert.terms import Terms
from replitree.client.insert.upload import discard_upload
from replitree.client.sharded.insert.joint import JointInsertResult
from replitree.client.sharded.insert.split_rows import FilledUpload
from replitree.client.sharded.moving import resharding
from replitree.client.sharded.moving.moves import MoveCarrier
from replitree.client.sharded.sharded_table import ShardedTable
from replitree.errors import BadInput, ReplicaUnavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.sharded.places import shard_number
from replitree.storage.objects import open_store
from replitree.storage.parts.encode import stage_table
from replitree.storage.schema.row_buckets import split_by_shard
from replitree.wire.sent_batch import SentBatch
from tests.replica.inprocess import ROOT, SCHEMA, InProcessCluster, rows
from tests.replica.sharded import commit, nodes_of, prepare
from tests.waiting import wait_for


class StoreCluster(InProcessCluster):
    """Replicas, and the folder in which tables have their objects."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, old_parts_lifetime_s=0.0)
        self.url = f"file://{folder}/objects"

    def children(self, shard: str, parent: str) -> set[str]:
        found: tuple[str, ...] | None = self.admin.perform(fx.Children(f"{layout.tables(ROOT)}/{shard}/{parent}"))
        return set(found or ())

    def stored(self, table_id: str) -> set[str]:
        """The shares of a table that have objects."""
        return {found.key.split("/")[2] for found in open_store(self.url).list(f"tables/{table_id}")}

    def objects(self) -> list[str]:
        """The objects of all tables."""
        return [found.key for found in open_store(self.url).list("tables")]

    def wait_settled(self, table: ShardedTable) -> None:
        """Wait until each shard's objects are exactly what its replicas own, and nothing is begun or left over."""

        def settled() -> bool:
            shards = table.find(None).all
            left = [name for each in shards for name in self.children(each.name, layout.all_writing(EMPTY)[1:])]
            left += [name for each in shards for name in self.children(each.name, layout.all_garbage(EMPTY)[1:])]
            return not left and all(
                self.children(each.name, layout.shares(EMPTY)[1:]) == self.stored(each.definition.table_id)
                for each in shards
            )

        wait_for(settled, "objects are what is owned", 60.0)


EMPTY = TablePlace("")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreCluster]:
    made = StoreCluster(tmp_path_factory.mktemp("sharded"))
    yield made
    made.close()


@pytest.fixture
def connection(cluster: StoreCluster) -> Iterator[Connection]:
    made = cluster.connect()
    yield made
    for name in made.tables():
        made.drop_table(name)
    made.close()


def create(connection: Connection, url: str, **options: Any) -> ShardedTable:
    """A table of two shards by `k`, in the store."""
    given = {"shard_by": "k", "buckets": 16, "storage": url, "wait_replicas": 2, **options}
    made = connection.create_table("d", SCHEMA, order_by="k", **given)
    assert isinstance(made, ShardedTable)
    return made


def shown(table: ShardedTable) -> Counter[tuple[Any, ...]]:
    return multiset(table.scan().to_arrow())


def multiset(found: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(found[name].to_pylist() for name in found.schema.names), strict=True))


# --- inserts and reads --------------------------------------------------------------------------------------------------------


def test_each_shard_has_its_rows_in_the_store_once(connection: Connection, cluster: StoreCluster) -> None:
    table = create(connection, cluster.url)
    result = table.insert(rows(0, 1000), token="t")
    assert isinstance(result, JointInsertResult)
    assert [name for name, _ in result.shards] == ["d~0", "d~1"]
    assert shown(table) == multiset(rows(0, 1000))
    cluster.wait_settled(table)
    for shard in table.find(None).all:
        assert len(cluster.stored(shard.definition.table_id)) == 1
        wait_for(lambda shard=shard: len(cluster.nodes[1].contents(shard.name)) == 1, "both own it")  # type: ignore[misc]
    assert table.insert(rows(0, 1000), token="t").outcome == "duplicate"
    # What the duplicate has prepared goes.
    cluster.wait_settled(table)
    assert [len(cluster.stored(each.definition.table_id)) for each in table.find(None).all] == [1, 1]
    assert connection.fsck("d", grace_s=0.0).clean


def test_objects_of_tasks_come_into_all_shards_by_one_commit(
    connection: Connection, cluster: StoreCluster, tmp_path: Path
) -> None:
    table = create(connection, cluster.url)
    filled = uploads(table, rows(0, 100), tmp_path)
    result = table.joint.commit_uploads(filled, table.info.map_version, Terms("job", 20.0))
    assert result is not None
    assert (result.outcome, result.rows) == ("inserted", 100)
    assert shown(table) == multiset(rows(0, 100))
    cluster.wait_settled(table)
    stored = {each.name: cluster.stored(each.definition.table_id) for each in table.find(None).all}
    given = {shard: {str(m.share_id) for m in each.manifests} for shard, each in filled.items()}
    assert stored == {f"d~{shard}": shares for shard, shares in given.items()}


def test_a_batch_of_a_stream_that_is_sent_again_leaves_no_objects(
    connection: Connection, cluster: StoreCluster, tmp_path: Path
) -> None:
    table = create(connection, cluster.url)
    outcomes = []
    for number in range(2):
        filled = uploads(table, rows(0, 100), tmp_path / f"{number}")
        terms = Terms(None, 20.0, batch=SentBatch("app", 1))
        result = table.joint.commit_uploads(filled, table.info.map_version, terms)
        assert result is not None
        outcomes.append(result.outcome)
        for each in filled.values():
            discard_upload(each.upload, table.http)
    assert outcomes == ["inserted", "duplicate"]
    cluster.wait_settled(table)
    assert [len(cluster.stored(each.definition.table_id)) for each in table.find(None).all] == [1, 1]
    assert shown(table) == multiset(rows(0, 100))


def test_objects_of_a_job_whose_participant_is_gone_are_deleted(
    connection: Connection, cluster: StoreCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(connection, cluster.url)
    filled = uploads(table, rows(0, 100), tmp_path)
    joint = table.joint
    commit = joint._commit  # noqa: SLF001

    def commit_late(split: Any, shares: Any, *more: Any) -> Any:
        # The participant gives up what it has prepared just before the commit.
        gone = shares[max(shares)]
        node = next(each for each in cluster.nodes if each.name == gone.replica.name)
        node.table(f"d~{max(shares).shard}").prepared_rows.give_up(gone.told["staging"])
        return commit(split, shares, *more)

    monkeypatch.setattr(joint, "_commit", commit_late)
    with pytest.raises(ReplicaUnavailable, match="nothing was inserted"):
        joint.commit_uploads(filled, table.info.map_version, Terms("job", 20.0))
    monkeypatch.undo()
    for each in filled.values():
        discard_upload(each.upload, table.http)
    cluster.wait_settled(table)
    assert [cluster.stored(each.definition.table_id) for each in table.find(None).all] == [set(), set()]
    assert shown(table) == Counter()


def test_what_a_process_has_prepared_in_the_store_goes_when_it_is_restarted(
    connection: Connection, cluster: StoreCluster
) -> None:
    table, second = create(connection, cluster.url), cluster.nodes[1]
    prepare(second, 1, 0)
    last = table.find(None).all[1].definition.table_id
    assert len(cluster.stored(last)) == 1
    second.restart()
    wait_for(lambda: not cluster.stored(last), "the objects are deleted", 60.0)
    cluster.wait_settled(table)
    assert nodes_of(cluster, "r2", 1) == ()


def test_fsck_leaves_what_waits_for_its_commit(connection: Connection, cluster: StoreCluster) -> None:
    table, (first, second) = create(connection, cluster.url), cluster.nodes
    map_version = table.info.map_version
    shares = prepare(first, 0, 0, map_version, coordinates="true"), prepare(second, 1, 100, map_version)
    assert connection.fsck("d", with_repair=True, grace_s=0.0).clean
    status, answer = commit(first, shares)
    assert (status, answer["outcome"]) == (200, "inserted")
    assert table.scan().count() == 20
    cluster.wait_settled(table)


def uploads(table: ShardedTable, data: pa.Table, folder: Path) -> dict[Any, FilledUpload]:
    """What a job does: an upload for each shard, whose rows a task has put into the store."""
    filled: dict[Any, FilledUpload] = {}
    shards = {shard_number(each.name): each for each in table.find(None).all}
    for piece in split_by_shard(data, table.definition, table.info.map):
        shard = shards[piece.shard]
        upload = shard.inserter.open_upload(10.0)
        assert upload.store
        into = folder / shard.name
        into.parent.mkdir(exist_ok=True)
        manifests = stage_table(piece.rows, shard.definition, into, sync=False)
        put = put_parts(table.http, upload, reach(shard.definition, upload.store), into, manifests)
        filled[piece.shard] = FilledUpload(
            upload.__class__(upload.table, upload.id, upload.replica, "", None, upload.store, tags=put.tags),
            put.manifests,
        )
    return filled


def test_readers_read_the_store_themselves(connection: Connection, cluster: StoreCluster) -> None:
    table = create(connection, cluster.url)
    table.insert(rows(0, 100))
    with table.snapshot(lease_s=30.0) as snapshot:
        assert all(part.manifest.share_id for shard in snapshot.shards for part in shard.parts)
        table.delete("k < 50")
        table.optimize()
        assert multiset(snapshot.to_arrow()) == multiset(rows(0, 100))
        assert multiset(snapshot.dataset().to_table()) == multiset(rows(0, 100))
        in_store = [each.through("store") for each in snapshot.shards]
        assert sum((multiset(each.to_arrow()) for each in in_store), Counter()) == multiset(rows(0, 100))
    assert shown(table) == multiset(rows(50, 50))
    assert table.scan().to_duckdb(duckdb.connect()).count("*").fetchall() == [(50,)]


def test_a_command_leaves_no_objects_that_nothing_owns(connection: Connection, cluster: StoreCluster) -> None:
    table = create(connection, cluster.url)
    for first in range(0, 300, 100):
        table.insert(rows(first, 100))
    assert table.update({"v": "v + 1"}, "k < 150").finished
    table.add_column("w", "bigint", default="7")
    assert table.delete("k >= 250").finished
    table.optimize()
    assert table.scan().count() == 250
    # Replicas may go on merging meanwhile.
    wait_for(lambda: connection.fsck("d", grace_s=0.0).clean, "all objects are owned", 60.0)
    table.truncate()
    wait_for(lambda: not cluster.objects(), "nothing is left", 60.0)


# --- the table ----------------------------------------------------------------------------------------------------------------


def test_a_dropped_table_leaves_no_objects_and_no_note(connection: Connection, cluster: StoreCluster) -> None:
    table = create(connection, cluster.url, shards=3)
    table.insert(rows(0, 300))
    assert cluster.objects()
    connection.drop_table("d")
    assert cluster.objects() == []
    assert connection.left_objects() == ()


def test_an_object_without_an_owner_is_found_after_the_drop_of_its_shard(
    connection: Connection, cluster: StoreCluster
) -> None:
    table = create(connection, cluster.url)
    last = table.find(None).all[1].definition.table_id
    open_store(cluster.url).create(f"tables/{last}/unowned/data-0.parquet", b"late")
    connection.drop_table("d")
    (left,) = connection.left_objects()
    assert (left.table_id, left.objects) == (last, 1)
    connection.left_objects(with_repair=True, grace_s=0.0)
    assert cluster.objects() == []


def test_fsck_tells_what_has_no_owner_in_any_shard(connection: Connection, cluster: StoreCluster) -> None:
    table = create(connection, cluster.url)
    table.insert(rows(0, 100))
    cluster.wait_settled(table)
    for shard in table.find(None).all:
        open_store(cluster.url).create(f"tables/{shard.definition.table_id}/unowned/data-0.parquet", b"late")
    report = connection.fsck("d", grace_s=0.0)
    assert (report.table, report.clean, report.shares) == ("d", False, 4)
    assert [each.kind for each in report.findings] == ["orphan", "orphan"]
    assert connection.fsck("d", with_repair=True, grace_s=0.0).clean
    assert shown(table) == multiset(rows(0, 100))


def test_buckets_move_between_shards_in_a_store(connection: Connection, cluster: StoreCluster) -> None:
    table = create(connection, cluster.url)
    table.insert(rows(0, 400))
    shard, _ = resharding.add_shard(connection.catalog, "d")
    mover = MoveCarrier(connection.catalog, table.http, "d")
    mover.run()
    table.refresh()
    assert shard in table.info.map.owners
    assert shown(table) == multiset(rows(0, 400))
    cluster.wait_settled(table)
    assert cluster.stored(table.find(None).all[2].definition.table_id)
    assert connection.fsck("d", grace_s=0.0).clean


# --- moving a table -----------------------------------------------------------------------------------------------------------


def test_all_shards_move_to_a_store_and_back(connection: Connection, cluster: StoreCluster) -> None:
    table = create(connection, "local")
    table.insert(rows(0, 200))
    result = table.set_storage(cluster.url)
    assert result.applied is not False
    assert [name for name, _ in result.shards] == ["d~0", "d~1"]
    assert table.refresh().storage == cluster.url
    wait_for(lambda: all(cluster.stored(each.definition.table_id) for each in table.find(None).all), "all have moved")
    cluster.wait_settled(table)
    table.insert(rows(200, 100))
    assert shown(table) == multiset(rows(0, 300))
    table.set_storage("local")
    wait_for(
        lambda: all(connection.catalog.definition(each.name).storage == "local" for each in table.find(None).all),
        "each shard has forgotten the store",
        60.0,
    )
    assert cluster.objects() == []
    table.refresh()
    assert shown(table) == multiset(rows(0, 300))
    with pytest.raises(BadInput, match="local disks"):
        connection.fsck("d")
    # From one store to another one, as soon as no shard has anything in the first.
    other = f"{cluster.url}-2"
    assert table.set_storage(other).finished
    assert table.refresh().storage == other


def test_parts_of_a_tiered_table_go_into_the_store_when_they_are_old(
    connection: Connection, cluster: StoreCluster
) -> None:
    table = create(connection, f"tiered({cluster.url}, older=1s)")
    table.insert(rows(0, 100))
    shards = table.find(None).all
    wait_for(lambda: all(cluster.stored(each.definition.table_id) for each in shards), "all have moved", 60.0)
    cluster.wait_settled(table)
    assert shown(table) == multiset(rows(0, 100))


def test_a_table_whose_shards_lie_in_a_store_gets_no_other_one(connection: Connection, cluster: StoreCluster) -> None:
    table = create(connection, cluster.url)
    table.insert(rows(0, 10))
    with pytest.raises(BadInput, match="switch to local first"):
        table.set_storage(f"{cluster.url}-2")
    assert connection.catalog.definition("d~0").storage == cluster.url
