"""Tables on an object store: one copy of the rows for all replicas, and none that is left over."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from replitree.errors import BadInput
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.parts import parse_part
from replitree.protocol.membership.table import TableOutcome, drop_replica, mark_dropped, remove_table
from replitree.protocol.state.registration import QueueMoved, finish, register
from replitree.replica.parts import sharing
from replitree.replica.perform.availability import State
from replitree.replica.table.mover import Mover
from replitree.storage.disk.store import PartStore
from replitree.storage.objects import StoreInDoubt, open_store
from replitree.storage.parts.manifest import PartManifest
from tests.replica.inprocess import ROOT, InProcessCluster, Node, rows, wait_for
from tests.shared.stores import FAULTY, FOLDER, on

TABLE = TablePlace(layout.table_path(ROOT, "t"))


class SharedCluster(InProcessCluster):
    """Replicas with the table `t` on an object store, and what is in that store."""

    def __init__(
        self, folder: Path, url: str, replicas: int = 2, *, partition_by: Sequence[str] = (), **settings: Any
    ) -> None:
        super().__init__(folder, replicas, **{"old_parts_lifetime_s": 0.0, **settings})
        self.definition = self.create_table(storage=url, partition_by=partition_by)
        self.objects = open_store(url)

    def shares(self) -> set[str]:
        """The shares that have an owner."""
        return set(self.admin.perform(fx.Children(layout.shares(TABLE))))

    def owners(self) -> dict[str, set[str]]:
        """Who owns each share: replica and part."""
        marks = {name: self.admin.perform(fx.Children(layout.share(TABLE, name))) for name in self.shares()}
        return {name: {f"{m.split('~')[0]} {m.split('~')[2]}" for m in found} for name, found in marks.items()}

    def registered(self) -> set[str]:
        """What is registered: replica and part."""
        names: tuple[str, ...] = self.admin.perform(fx.Children(layout.replicas(TABLE)))
        parts = {name: self.admin.perform(fx.Children(layout.parts(Replica(TABLE, name)))) for name in names}
        return {f"{name} {part}" for name, found in parts.items() for part in found}

    def stored(self) -> set[str]:
        """The shares that have objects."""
        return {found.key.split("/")[2] for found in self.objects.list(f"tables/{self.definition.table_id}")}

    def wait_settled(self) -> None:
        """Wait until the store has exactly what registered parts own, and nothing is begun or left over."""

        def settled() -> bool:
            left = [*self.admin.perform(fx.Children(layout.all_writing(TABLE)))]
            left += self.admin.perform(fx.Children(layout.all_garbage(TABLE)))
            owners = {owner for some in self.owners().values() for owner in some}
            return not left and owners <= self.registered() and self.shares() == self.stored()

        wait_for(settled, "objects are what is owned", 60.0)

    def wait_empty(self) -> None:
        """Wait until no replica has a part, and the store nothing."""
        wait_for(
            lambda: not any(node.contents() for node in self.nodes if node.table().availability.state is State.ACTIVE),
            "empty",
        )
        self.wait_settled()
        assert self.stored() == set()


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


def local_files(node: Node, part: str) -> set[str]:
    return {path.name for path in node.table().store.part_path(part).iterdir()}


def test_replicas_own_one_copy_of_what_one_has_inserted(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    wait_for(lambda: second.contents() == first.contents() != {}, "the other one has it")
    (part,) = first.contents()
    assert local_files(second, part) == {"manifest.json"}
    assert list(shared.owners().values()) == [{f"r1 {part}", f"r2 {part}"}]
    assert shared.shares() == shared.stored()
    shared.wait_equal(list(range(10)))
    shared.wait_settled()


@on(FOLDER, FAULTY)
def test_a_merge_is_written_once_and_its_sources_go(shared: SharedCluster) -> None:
    first, second = shared.nodes
    for number in range(4):
        assert first.insert(rows(10 * number))[0] == 200
    shared.wait_alike()
    first.post("optimize", {"final": True}, wait_s=20)
    wait_for(lambda: len(first.contents()) == len(second.contents()) == 1, "one part is left")
    shared.wait_settled()
    (part,) = first.contents()
    assert list(shared.owners().values()) == [{f"r1 {part}", f"r2 {part}"}]
    shared.wait_equal(list(range(40)))


def test_a_mutation_that_leaves_a_part_as_it_is_owns_its_objects_under_another_name(shared: SharedCluster) -> None:
    first, _ = shared.nodes
    assert first.insert(rows(0))[0] == 200
    assert first.insert(rows(100))[0] == 200
    before = shared.wait_alike()
    shares = shared.shares()
    first.post("mutations", {"sql": "DELETE FROM t WHERE k >= 105"}, wait_s=20)
    shared.wait_equal([*range(10), *range(100, 105)])
    shared.wait_settled()
    assert not set(before) & set(first.contents())
    assert len(shared.shares() & shares) == 1
    assert len(shared.shares()) == 2


def test_a_dropped_partition_leaves_nothing(shared: SharedCluster) -> None:
    first, _ = shared.nodes
    assert first.insert(rows(0))[0] == 200
    shared.wait_alike()
    first.post("drop", {"all": True}, wait_s=20)
    shared.wait_empty()


def test_what_is_detached_has_rows_of_its_own_and_can_be_attached(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert second.insert(rows(0))[0] == 200
    shared.wait_alike()
    first.post("drop", {"all": True, "detach": True}, wait_s=20)
    wait_for(lambda: all(node.get("detached")["detached"] for node in shared.nodes), "kept by both")
    shared.wait_empty()
    (row,) = first.get("detached")["detached"]
    assert first.post("attach", {"name": row["name"]})["rows"] == 10
    shared.wait_equal(list(range(10)))
    assert len(shared.shares()) == 1


def test_a_frozen_snapshot_has_rows_of_its_own(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    shared.wait_alike()
    frozen = second.post("freeze", {"name": "before"})
    second.post("drop", {"all": True}, wait_s=20)
    shared.wait_empty()
    files = sorted(Path(frozen["path"]).rglob("*.parquet"))
    assert sum(pq.read_table(file).num_rows for file in files) == 10


def test_copies_for_readers_go_when_they_are_too_many_and_come_again(shared: SharedCluster) -> None:
    first, _ = shared.nodes
    assert first.insert(rows(0))[0] == 200
    (part,) = shared.wait_alike()
    store = first.table().store
    size = store.manifest(part).bytes
    assert store.shared.evict(store.root / "parts", size, 0.0) == 0
    with store.shared.pinning((part,)):
        assert store.shared.evict(store.root / "parts", 0, 0.0) == 0
    assert store.shared.evict(store.root / "parts", 0, 0.0) == size
    assert local_files(first, part) == {"manifest.json"}
    assert first.keys() == list(range(10))
    assert local_files(first, part) == {"manifest.json", "data-0.parquet"}


def test_a_replica_that_takes_nothing_over_has_the_rows_on_its_own_disk(shared: SharedCluster) -> None:
    third = shared.add("r3", zero_copy=False)
    wait_for(lambda: shared.is_active(third), "r3 active")
    assert shared.nodes[0].insert(rows(0))[0] == 200
    (part,) = shared.wait_alike()
    assert third.table().store.manifest(part).share_id is None
    assert local_files(third, part) == {"manifest.json", "data-0.parquet"}
    assert list(shared.owners().values()) == [{f"r1 {part}", f"r2 {part}"}]
    status, bundle = third.request("GET", f"/v1/tables/t/bundle?part={part}&send_s3_metadata=1&s3_metadata_version=1")
    assert status == 200
    assert b'"shared": false' in bundle


def test_a_peer_that_knows_nothing_of_shares_is_sent_the_rows(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    (part,) = shared.wait_alike()
    for node in (first, second):
        status, bundle = node.request("GET", f"/v1/tables/t/bundle?part={part}")
        assert status == 200
        assert b"PAR1" in bundle
        assert b'"share"' not in bundle


def test_a_share_that_can_not_be_read_from_here_is_taken_as_data(
    shared: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = shared.nodes
    monkeypatch.setattr(second.table().store.shared.objects, "is_here", lambda _: False)
    monkeypatch.setattr(second.table().mover, "work", lambda _: None)  # which would put the part as a share of its own
    assert first.insert(rows(0))[0] == 200
    (part,) = shared.wait_alike()
    assert second.table().store.manifest(part).share_id is None
    assert list(shared.owners().values()) == [{f"r1 {part}"}]
    second.post("drop", {"all": True}, wait_s=20)
    shared.wait_empty()


def test_a_share_that_lacks_an_object_is_not_taken_over(shared: SharedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner has a copy of the file, and sends that."""
    monkeypatch.setattr(Mover, "work", lambda _mover, _sharing: None)  # which would put the part as a share of its own
    first, second = shared.nodes
    second.stop()
    assert first.insert(rows(0))[0] == 200
    wait_for(lambda: len(shared.shares()) == 1, "the first has registered it")
    (share,) = shared.shares()
    shared.objects.delete([f"tables/{shared.definition.table_id}/{share}/data-0.parquet"])
    second.restart()
    shared.wait_equal(list(range(10)))
    (part,) = shared.wait_alike()
    assert second.table().store.manifest(part).share_id is None
    assert list(shared.owners().values()) == [{f"r1 {part}"}]


def test_a_replica_that_reaches_another_store_stays_inactive_and_says_why(
    shared: SharedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_open", lambda _: open_store(f"file://{tmp_path}/elsewhere"))
    third = shared.add("r3")
    wait_for(lambda: "another store" in third.table().availability.reason, "it says so")
    assert not shared.is_active(third)


def test_a_store_that_can_not_be_opened_keeps_the_replica_inactive(
    shared: SharedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(sharing, "_open", lambda _: open_store(f"file://{tmp_path}/file/objects"))
    third = shared.add("r3")
    wait_for(lambda: "can't make the folder" in third.table().availability.reason, "it says so")


def test_an_insert_that_the_store_does_not_take_is_certainly_not_in_the_table(
    shared: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = shared.nodes
    objects = first.table().store.shared.objects
    assert objects is not None
    put = objects.put

    def half(share: str, folder: Path, manifest: PartManifest) -> None:
        put(share, folder, manifest)
        raise StoreInDoubt("the store gave no answer")

    with monkeypatch.context() as broken:
        broken.setattr(objects, "put", half)
        status, answer = first.insert(rows(0))
        assert status == 503
        assert "nothing was inserted" in answer["message"]
    wait_for(lambda: shared.is_active(first), "active again")
    shared.wait_empty()
    assert first.insert(rows(0))[0] == 200
    shared.wait_equal(list(range(10)))


def test_what_a_killed_write_has_left_in_the_store_goes_with_the_next_start(shared: SharedCluster) -> None:
    first, _ = shared.nodes
    table = first.table()
    assert table.sharing is not None
    signature = table.sharing.sharer.signature
    shared.admin.perform(fx.Commit(fx.Create(layout.writing(TABLE, "0" * 32), signature)))
    assert table.store.shared.objects is not None
    table.store.shared.objects.store.create(table.store.shared.objects.key("0" * 32, "data-0.parquet"), b"left")
    first.restart()
    wait_for(lambda: shared.is_active(first), "active again")
    shared.wait_empty()


def test_a_restart_keeps_what_is_owned(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    before = shared.wait_alike()
    for node in (first, second):
        node.restart()
        wait_for(lambda node=node: shared.is_active(node), "active again")  # type: ignore[misc]
    assert shared.wait_alike() == before
    shared.wait_settled()
    assert len(shared.shares()) == 1
    shared.wait_equal(list(range(10)))


def test_a_replica_whose_disk_is_lost_takes_everything_over_again(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    (part,) = shared.wait_alike()
    owners = shared.owners()
    shutil.rmtree(second.table().store.part_path(part))
    second.restart()
    wait_for(lambda: second.contents() == first.contents() != {}, "taken over again")
    assert shared.owners() == owners


def test_a_dropped_replica_owns_nothing_any_more(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert second.insert(rows(0))[0] == 200
    (part,) = shared.wait_alike()
    second.stop()
    second.coordination.close()
    assert shared.run(drop_replica(Replica(TABLE, "r2"), shared=True)) is TableOutcome.DONE
    assert list(shared.owners().values()) == [{f"r1 {part}"}]
    first.post("drop", {"all": True}, wait_s=20)
    shared.wait_empty()


def test_a_dropped_table_leaves_no_objects(shared: SharedCluster) -> None:
    assert shared.nodes[0].insert(rows(0))[0] == 200
    shared.wait_alike()
    shared.run(mark_dropped(TABLE))
    wait_for(lambda: not shared.admin.perform(fx.Children(layout.replicas(TABLE))), "everybody left")
    assert shared.stored() == set()
    assert shared.run(remove_table(TABLE)) is TableOutcome.DONE
    assert shared.admin.perform(fx.Children(TABLE.path)) is None


def test_a_replica_says_what_it_has_of_shares(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    (part,) = shared.wait_alike()
    (share,) = shared.shares()
    told = second.get("shares")
    (row,) = told["shares"]
    assert (row["share"], row["part"], row["place"]) == (share, part, "parts")
    assert told["incarnation"] in shared.admin.perform(fx.Get(layout.replica_path(Replica(TABLE, "r2")))).value.decode()


def test_an_upload_that_names_a_share_is_refused(tmp_path: Path) -> None:
    store = PartStore(tmp_path / "table")
    manifest = PartManifest(
        partition="all", rows=0, bytes=0, schema_version=1, files=(), content_hash="0" * 32, share="1" * 32, format=2
    )
    with pytest.raises(BadInput, match="names a share"):
        store.staged.seal_upload(tmp_path, [manifest])


def test_a_start_owns_again_what_has_lost_its_mark(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    shared.wait_alike()
    owners = shared.owners()
    (share,) = shared.shares()
    (mark,) = [name for name in shared.admin.perform(fx.Children(layout.share(TABLE, share))) if name.startswith("r2~")]
    shared.admin.perform(fx.Commit(fx.Delete(f"{layout.share(TABLE, share)}/{mark}", fx.ANY_VERSION)))
    second.restart()
    wait_for(lambda: shared.is_active(second), "active again")
    assert shared.owners() == owners


def test_a_part_whose_share_is_gone_is_never_registered(shared: SharedCluster) -> None:
    """What is on a disk, and was let go of by everybody, is not owned again by its name."""
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    (part,) = shared.wait_alike()
    kept = second.table().store.part_path(part)
    copy = kept.with_name("copy")
    shutil.copytree(kept, copy)
    first.post("drop", {"all": True}, wait_s=20)
    shared.wait_empty()
    copy.rename(kept)
    replica = second.table().replica
    epoch = second.table().performer.epoch.current
    assert epoch is not None
    outcome = second.table().performer.run(
        finish(replica, epoch, (), (register(replica, parse_part(part), "0" * 32),), ())
    )
    assert isinstance(outcome, QueueMoved)
    assert not kept.exists()
    assert shared.registered() == set()


def test_the_life_of_a_shared_part_costs_each_replica_few_requests(
    shared: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, list[object]] = {node.name: [] for node in shared.nodes}
    for node in shared.nodes:
        perform, seen = node.coordination.perform, asked[node.name]

        def counted(effect: object, perform: Any = perform, seen: list[object] = seen) -> object:
            if any(f"/zero_copy_s3/{kind}" in repr(effect) for kind in ("shared", "writing")):
                seen.append(effect)
            return perform(effect)

        monkeypatch.setattr(node.coordination, "perform", counted)
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    (part,) = shared.wait_alike()
    lease = second.table().old_parts.lease([part], 600.0)  # longer than any wait of this test
    first.post("drop", {"all": True}, wait_s=20)
    wait_for(lambda: list(shared.owners().values()) == [{f"r2 {part}"}], "r1 has let go")
    second.table().old_parts.release(lease)
    shared.wait_empty()
    assert 0 < len(asked["r1"]) <= 4, asked["r1"]
    assert 0 < len(asked["r2"]) <= 4, asked["r2"]


def test_a_check_removes_a_damaged_copy_of_an_object_and_the_part_is_whole(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    (part,) = shared.wait_alike()
    second.table().store.bring((part,))
    copy = second.table().store.file_path(part, "data-0.parquet")
    data = copy.read_bytes()
    copy.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    assert second.post("check")["broken"] == []
    assert not copy.exists()
    assert second.keys() == list(range(10))
    assert copy.read_bytes() == data
