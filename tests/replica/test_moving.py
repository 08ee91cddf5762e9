"""Tables whose rows move between the disks of their replicas and an object store, while everything else goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from replitree.errors import CorruptPart, StoreError
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import SharedPart
from replitree.replica.parts import sharing
from replitree.replica.parts.sharing import Sharing
from replitree.replica.table import mover, table_replica
from replitree.storage.objects import open_store
from replitree.storage.parts import encode
from replitree.storage.schema.definition import decode_definition
from tests.replica.inprocess import ROOT, InProcessCluster, Node, rows, wait_for
from tests.shared.stores import FAULTY, FOLDER, on

TABLE = TablePlace(layout.table_path(ROOT, "t"))


class MovingCluster(InProcessCluster):
    """Three replicas with a table `t` on local disks, and what can be its object store."""

    def __init__(self, folder: Path, url: str, replicas: int = 3, **settings: Any) -> None:
        self.url, self.objects = url, open_store(url)
        super().__init__(folder, replicas, **{"old_parts_lifetime_s": 0.0, **settings})
        self.definition = self.create_table()

    def children(self, path: str) -> tuple[str, ...]:
        found: tuple[str, ...] | None = self.admin.perform(fx.Children(path))
        return found or ()

    def owners(self) -> dict[str, set[str]]:
        """Who owns each share: replica and part."""
        marks = {name: self.children(layout.share(TABLE, name)) for name in self.children(layout.shares(TABLE))}
        return {name: {f"{m.split('~')[0]} {m.split('~')[2]}" for m in found} for name, found in marks.items()}

    def stored(self) -> set[str]:
        """The shares that have objects."""
        return {found.key.split("/")[2] for found in self.objects.list(f"tables/{self.definition.table_id}")}

    def places(self, node: Node) -> dict[str, str | None]:
        """The share of each visible part of a replica, None for what is on its disk."""
        store = node.table().store
        return {part: store.manifest(part).share_id for part in node.contents()}

    def storage(self) -> str:
        metadata, columns = (
            self.admin.perform(fx.Get(layout.metadata(TABLE))),
            self.admin.perform(fx.Get(layout.columns(TABLE))),
        )
        return decode_definition(metadata.value, columns.value).storage

    def wait_in_store(self) -> None:
        """Wait until all replicas own the same share of every part, and the store has exactly these."""

        def moved() -> bool:
            found = [self.places(node) for node in self.nodes]
            return self._is_settled() and None not in found[0].values() and all(each == found[0] for each in found)

        wait_for(moved, lambda: f"all parts are in the store, once: {self.told()}", 60.0)

    def wait_stored(self) -> None:
        """Wait until every replica owns a share of each of its parts, and the store has exactly the shares that are owned.

        While a table moves to and fro, a part may lie in several shares (`replitree.protocol.shares.moving`).
        """

        def moved() -> bool:
            return self._is_settled() and all(None not in self.places(node).values() for node in self.nodes)

        wait_for(moved, lambda: f"all parts are in the store: {self.told()}", 60.0)

    def wait_on_disks(self) -> None:
        """Wait until every replica has its rows, and the store has nothing."""

        def moved() -> bool:
            shares = {share for node in self.nodes for share in self.places(node).values()}
            return shares == {None} and not self.owners() and not self.stored()

        wait_for(moved, lambda: f"all parts are on the disks: {self.told()}", 60.0)

    def told(self) -> list[object]:
        """Where everything is, for a failure."""
        nodes = [(node.name, self.places(node), node.get("status")["moving"]) for node in self.nodes]
        left = [node.table().store.shared.leaving() for node in self.nodes]
        begun = self.children(layout.all_writing(TABLE)), self.children(layout.all_garbage(TABLE))
        return [*nodes, *left, self.owners(), self.stored(), begun, self.children(layout.sharing(TABLE))]

    def _is_settled(self) -> bool:
        left = [*self.children(layout.all_writing(TABLE)), *self.children(layout.all_garbage(TABLE))]
        owners = {owner for some in self.owners().values() for owner in some}
        registered = {
            f"{node.name} {part}"
            for node in self.nodes
            for part in self.children(layout.parts(Replica(TABLE, node.name)))
        }
        return not left and owners <= registered and set(self.owners()) == self.stored()


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every duty come round at once."""
    for module, name, seconds in (
        (mover, "ROUND_S", 0.02),
        (mover, "RETRY_S_MIN", 0.02),
        (mover, "EMPTY_S", 0.05),
        (sharing, "GARBAGE_S", 0.05),
        (sharing, "LET_GO_AGAIN_S", 0.05),
        (table_replica, "MAINTENANCE_S", 0.05),
    ):
        monkeypatch.setattr(module, name, seconds)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def moving(tmp_path: Path, store_url: str) -> Iterator[MovingCluster]:
    cluster = MovingCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


def local_files(node: Node, part: str) -> set[str]:
    return {path.name for path in node.table().store.part_path(part).iterdir()}


def test_a_local_table_moves_into_a_store_once_for_all_replicas(moving: MovingCluster) -> None:
    first = moving.nodes[0]
    for number in range(3):
        assert first.insert(rows(10 * number))[0] == 200
    before = moving.wait_alike()
    answer = moving.nodes[1].post("storage", {"storage": moving.url})
    assert (answer["finished"], answer["storage"]) == (True, moving.url)
    moving.wait_in_store()
    assert moving.wait_alike() == before
    assert all(len(owners) == 3 for owners in moving.owners().values())
    moving.wait_equal(list(range(30)))
    assert first.insert(rows(30))[0] == 200
    moving.wait_in_store()
    assert len(moving.stored()) == 4


@pytest.mark.slow
def test_a_table_leaves_its_store_and_forgets_it(moving: MovingCluster) -> None:
    first = moving.nodes[0]
    assert first.insert(rows(0))[0] == 200
    first.post("storage", {"storage": moving.url})
    moving.wait_in_store()
    assert first.insert(rows(10))[0] == 200
    moving.wait_alike()
    first.post("storage", {"storage": "local"})
    moving.wait_on_disks()
    wait_for(lambda: moving.storage() == "local", "the store is forgotten", 60.0)
    assert not moving.admin.perform(fx.Exists(layout.sharing(TABLE)))
    wait_for(lambda: all(node.table().sharing is None for node in moving.nodes), "by every replica")
    assert first.insert(rows(20))[0] == 200
    moving.wait_equal(list(range(30)))
    first.post("storage", {"storage": moving.url})
    moving.wait_in_store()
    moving.wait_equal(list(range(30)))


@pytest.mark.slow
def test_inserts_merges_and_drops_go_on_while_parts_move_to_and_fro(moving: MovingCluster) -> None:
    """What every replica shows is never less than what was inserted and not dropped."""
    stop, inserted, failures = threading.Event(), [0], []

    def insert() -> None:
        number = 0
        while not stop.is_set():
            status, answer = moving.nodes[number % 3].insert(rows(10 * number), token=f"insert-{number}")
            if status == 200:
                number += 1
                inserted[0] = 10 * number
            elif status != 503:
                failures.append(answer)
            stop.wait(0.02)

    writer = threading.Thread(target=insert)
    writer.start()
    try:
        for storage in (moving.url, "local", moving.url):
            floor = inserted[0]
            moving.nodes[0].post("storage", {"storage": storage}, wait_s=20)
            wait_for(lambda floor=floor: inserted[0] >= floor + 100, "inserts go on", 60.0)  # type: ignore[misc]
            moving.nodes[1].post("optimize", {"final": True}, wait_s=20)
    finally:
        stop.set()
        writer.join(30)
    assert failures == []
    moving.wait_stored()
    moving.wait_equal(list(range(inserted[0])))
    moving.nodes[2].post("drop", {"all": True}, wait_s=20)
    wait_for(lambda: not moving.stored() and not moving.owners(), "nothing is left", 60.0)


@on(FOLDER, FAULTY)
def test_a_tiered_table_keeps_what_is_new_on_the_disks(moving: MovingCluster) -> None:
    first = moving.nodes[0]
    first.post("storage", {"storage": f"tiered({moving.url}, older=1h)"})
    assert first.insert(rows(0))[0] == 200
    (part,) = moving.wait_alike()
    assert [moving.places(node)[part] for node in moving.nodes] == [None, None, None]
    first.post("storage", {"storage": f"tiered({moving.url}, older=0s)"})
    moving.wait_in_store()
    assert first.insert(rows(10))[0] == 200
    moving.wait_in_store()
    moving.wait_equal(list(range(20)))


def test_copies_of_moved_parts_go_when_the_disk_has_too_little_room(moving: MovingCluster) -> None:
    first = moving.nodes[0]
    assert first.insert(rows(0))[0] == 200
    (part,) = moving.wait_alike()
    first.post("storage", {"storage": f"tiered({moving.url}, free=999TB)"})
    moving.wait_in_store()
    store = first.table().store
    assert local_files(first, part) == {"manifest.json", "data-0.parquet"}
    with store.shared.pinning((part,)):
        assert store.shared.evict(store.root / "parts", 0, 0.0) == 0
    assert store.shared.evict(store.root / "parts", 0, 0.0) > 0
    assert local_files(first, part) == {"manifest.json"}
    assert first.keys() == list(range(10))


def test_who_reads_a_part_keeps_its_files_when_it_moves_into_the_store(moving: MovingCluster) -> None:
    first = moving.nodes[0]
    assert first.insert(rows(0))[0] == 200
    (part,) = moving.wait_alike()
    lease = first.table().old_parts.lease([part], 60.0)
    first.post("storage", {"storage": moving.url})
    moving.wait_in_store()
    store, shares = first.table().store, first.table().sharing
    assert shares is not None
    assert store.shared.evict(store.root / "parts", 0, 0.0, is_kept=shares.moves.is_read) == 0
    first.table().old_parts.release(lease)
    assert store.shared.evict(store.root / "parts", 0, 0.0, is_kept=shares.moves.is_read) > 0


def test_who_reads_objects_keeps_them_when_the_part_comes_home(moving: MovingCluster) -> None:
    first = moving.nodes[0]
    assert first.insert(rows(0))[0] == 200
    (part,) = moving.wait_alike()
    first.post("storage", {"storage": moving.url})
    moving.wait_in_store()
    stored = moving.stored()
    lease = first.table().old_parts.lease([part], 60.0)
    first.post("storage", {"storage": "local"})
    wait_for(lambda: list(moving.owners().values()) == [{f"r1 {part}"}], "the others have let go", 60.0)
    wait_for(lambda: moving.places(first)[part] is None, "it has come home")
    assert list(moving.owners().values()) == [{f"r1 {part}"}]
    assert moving.stored() == stored
    first.table().old_parts.release(lease)
    moving.wait_on_disks()


def test_a_move_that_the_store_does_not_take_is_tried_again_and_says_why(
    moving: MovingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = moving.nodes[0]
    assert first.insert(rows(0))[0] == 200
    (part,) = moving.wait_alike()

    def full(*_: object) -> None:
        raise StoreError("the bucket is full")

    with monkeypatch.context() as broken:
        for node in moving.nodes:
            broken.setattr(node.table().store.moved, "put", full)
        first.post("storage", {"storage": moving.url})

        def waits() -> list[str]:
            told = [node.get("status")["moving"] for node in moving.nodes]
            return [row["reason"] for each in told if each for row in each["waiting"] if row["part"] == part]

        wait_for(lambda: any("the bucket is full" in reason for reason in waits()), "a replica says so", 60.0)
        assert moving.places(first)[part] is None
    moving.wait_in_store()
    assert moving.nodes[0].get("status")["moving"]["waiting"] == []


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("note", CorruptPart("the part is missing")),
        ("note", StoreError("the disk is full")),
        ("to_share", StoreError("the disk is full")),
        ("to_share", ValueError("a defect")),
    ],
    ids=str,
)
def test_a_move_that_ends_in_the_middle_leaves_nothing(
    moving: MovingCluster, monkeypatch: pytest.MonkeyPatch, step: str, problem: Exception
) -> None:
    first = moving.nodes[0]
    assert first.insert(rows(0))[0] == 200
    (part,) = moving.wait_alike()
    tried = threading.Event()

    def fail(*_: object) -> None:
        tried.set()
        raise problem

    with monkeypatch.context() as broken:
        for node in moving.nodes:
            broken.setattr(node.table().store.moved, step, fail)
        first.post("storage", {"storage": moving.url})
        assert tried.wait(60)
        first.post("storage", {"storage": "local"})
        wait_for(lambda: not moving.stored() and not moving.owners(), "nothing is left of it", 60.0)
        wait_for(lambda: moving.storage() == "local", "nor a claim", 60.0)
        assert moving.places(first) == {part: None}
    first.post("storage", {"storage": moving.url})
    moving.wait_in_store()


def test_a_note_of_a_move_that_was_cut_off_is_worked_off(moving: MovingCluster) -> None:
    """A crash after the mark and before the manifest: the mark goes, and the part moves again."""
    first = moving.nodes[0]
    assert first.insert(rows(0))[0] == 200
    (part,) = moving.wait_alike()
    first.post("storage", {"storage": f"tiered({moving.url}, older=1h)"})
    wait_for(lambda: moving.is_active(first) and first.table().sharing is not None, "it has a store")
    shares, share = first.table().sharing, ShareId("0" * 32)
    assert shares is not None
    store = first.table().store
    first.stop()
    store.moved.put(part, share)
    store.moved.note(part, share)
    mark = shares.sharer.mark(SharedPart(part, share, is_new=False))
    moving.admin.perform(fx.Commit(fx.Create(layout.share(TABLE, share)), fx.Create(mark)))
    first.restart()
    wait_for(lambda: not moving.stored() and not moving.owners(), "nothing is left of it", 60.0)
    assert first.table().store.shared.leaving() == ()
    assert moving.places(first) == {part: None}
    moving.wait_equal(list(range(10)))


def test_a_claim_that_is_left_over_is_given_back_by_its_replica(moving: MovingCluster) -> None:
    first, second, _ = moving.nodes
    assert first.insert(rows(0))[0] == 200
    (part,) = moving.wait_alike()
    first.post("storage", {"storage": f"tiered({moving.url}, older=1h)"})
    wait_for(lambda: moving.is_active(second) and second.table().sharing is not None, "it has a store")
    shares = second.table().sharing
    assert shares is not None
    moving.admin.perform(fx.Commit(fx.Create(layout.moving(TABLE, part), shares.sharer.signature)))
    first.post("storage", {"storage": moving.url})
    moving.wait_in_store()
    wait_for(lambda: not moving.admin.perform(fx.Exists(layout.moving(TABLE, part))), "nobody claims it any more")


def test_a_replica_that_takes_nothing_over_keeps_its_rows(tmp_path: Path, store_url: str) -> None:
    moving = MovingCluster(tmp_path, store_url, replicas=1)
    try:
        second = moving.add("r2", zero_copy=False)
        wait_for(lambda: moving.is_active(second), "r2 active")
        first = moving.nodes[0]
        assert first.insert(rows(0))[0] == 200
        (part,) = moving.wait_alike()
        first.post("storage", {"storage": moving.url})
        wait_for(lambda: list(moving.owners().values()) == [{f"r1 {part}"}], "r1 has moved it")
        assert moving.places(second) == {part: None}
    finally:
        moving.close()


def test_a_replica_that_can_not_use_the_store_goes_on_and_says_why(
    moving: MovingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cut(Sharing):
        @override
        def probe(self) -> str:
            if self._context.replica.name == "r3":
                raise StoreError("no route to the store")
            return super().probe()

    first, _, third = moving.nodes

    def problem() -> str | None:
        return (third.get("status")["moving"] or {}).get("problem")

    with monkeypatch.context() as cut:
        cut.setattr(table_replica, "Sharing", Cut)
        first.post("storage", {"storage": moving.url})
        wait_for(lambda: problem() == "no route to the store", "it says so")
        assert third.insert(rows(0))[0] == 200
        moving.wait_equal(list(range(10)))
    moving.wait_in_store()
    assert problem() == ""


def test_a_store_that_can_not_be_used_never_becomes_the_tables(moving: MovingCluster, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    first = moving.nodes[0]
    for storage, says in (
        (f"file://{tmp_path}/file/objects", "can't make the folder"),
        ("memory:///", "each process has objects in memory"),
        ("tiered(file:///x)", "does not say when"),
        ("nowhere", "no URL of an object store"),
    ):
        status, answer = first.request("POST", "/v1/tables/t/storage", json.dumps({"storage": storage}).encode())
        assert status >= 400, storage
        assert says in answer["message"]
    assert moving.storage() == "local"
    first.post("storage", {"storage": moving.url})
    status, answer = first.request(
        "POST", "/v1/tables/t/storage", json.dumps({"storage": f"file://{tmp_path}/other"}).encode()
    )
    assert status == 400
    assert "switch to local first" in answer["message"]


def test_the_same_switch_twice_is_one_entry(moving: MovingCluster) -> None:
    first, second, _ = moving.nodes
    one = first.post("storage", {"storage": moving.url, "id": "switch"})
    again = second.post("storage", {"storage": moving.url, "id": "switch"})
    assert one["index"] == again["index"]
    assert again["storage"] == moving.url


def test_a_switch_that_comes_late_is_made_anew(moving: MovingCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two replicas switch at once: the second one sees what the first has made of the table."""
    first, second, _ = moving.nodes
    definitions = second.table().definitions
    read = definitions.read_nodes
    seen: list[object] = []

    def late() -> Any:
        found = read()
        if not seen:
            seen.append(found)
            first.post("storage", {"storage": moving.url})
        return found

    monkeypatch.setattr(definitions, "read_nodes", late)
    second.post("storage", {"storage": f"tiered({moving.url}, older=1h)"})
    assert moving.storage() == f"tiered({moving.url}, older=1h)"


def test_what_is_left_of_a_store_keeps_it_from_being_forgotten(moving: MovingCluster) -> None:
    first = moving.nodes[0]
    first.post("storage", {"storage": moving.url})
    moving.admin.perform(fx.Commit(fx.Create(layout.garbage(TABLE, "0" * 32))))
    moving.admin.perform(fx.Commit(fx.Create(layout.writing(TABLE, "1" * 32), b"r9~gone")))
    first.post("storage", {"storage": "local"})
    commands = first.table().commands
    with pytest.raises(Exception, match="storage was changed"):
        commands.forget_store()
    assert moving.storage() == f"local({moving.url})"
    moving.admin.perform(fx.Commit(fx.Delete(layout.writing(TABLE, "1" * 32), fx.ANY_VERSION)))
    wait_for(lambda: moving.storage() == "local", "the store is forgotten", 60.0)


@pytest.mark.slow
@on(FOLDER, FAULTY)
def test_a_part_that_borrows_comes_home_and_goes_into_one_share(
    moving: MovingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At home it owns nothing in the store; what it goes into again has all its files."""
    monkeypatch.setattr(encode, "_cut", lambda rows, *_: [rows.slice(first, 10) for first in range(0, 30, 10)])
    first, keys = moving.nodes[0], list(range(1, 30))
    first.post("storage", {"storage": moving.url})
    moving.wait_in_store()
    assert first.insert(rows(0, 30))[0] == 200
    moving.wait_equal(list(range(30)))
    moving.wait_in_store()
    first.post("mutations", {"sql": "DELETE FROM t WHERE k = 0"}, wait_s=20)
    moving.wait_equal(keys)
    moving.wait_in_store()
    (part,) = moving.wait_alike()
    assert len(moving.owners()) == len(first.table().store.manifest(part).shares) == 2
    first.post("storage", {"storage": "local"})
    moving.wait_on_disks()
    assert [first.table().store.verify(part).borrowed, local_files(first, part)] == [
        {},
        {"manifest.json", "data-1.parquet", "data-2.parquet", "data-3.parquet"},
    ]
    moving.wait_equal(keys)
    first.post("storage", {"storage": moving.url})
    moving.wait_in_store()
    assert list(moving.owners().values()) == [{f"{node.name} {part}" for node in moving.nodes}]
    moving.wait_equal(keys)
