"""Disks that are lost: what the store has under a replica's own marks is the part, and is never called lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest
import xxhash

from replitree.errors import CorruptPart, StoreError
from replitree.protocol.core.parts import inserted_part
from replitree.protocol.state.registration import is_broken
from replitree.replica.parts import bare_files, own_shares, salvage
from replitree.replica.parts.bare_files import BareFiles
from replitree.replica.parts.own_shares import OwnShares
from replitree.replica.table import table_replica
from replitree.storage.disk.shared import SharedFolders
from replitree.storage.objects import ObjectStore
from replitree.storage.parts import encode
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.rewrite.empty import empty_content
from tests.replica.inprocess import Node, rows, wait_for
from tests.replica.test_borrowed import KEYS, Borrowing, in_pieces
from tests.replica.test_lost_parts import lost_count, registered
from tests.replica.test_sharing import SharedCluster, local_files
from tests.shared.stores import FAULTY, FOLDER, on

Start = Callable[[int], SharedCluster]


@pytest.fixture
def start(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts replicas that do not wait before they ask whether a part is lost, nor before they look again."""
    monkeypatch.setattr(own_shares, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(salvage, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(bare_files, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(table_replica, "MAINTENANCE_S", 0.05)
    clusters: list[SharedCluster] = []

    def started(replicas: int) -> SharedCluster:
        clusters.append(SharedCluster(tmp_path, store_url, replicas, lost_part_after_s=0.0))
        return clusters[0]

    yield started
    for cluster in clusters:
        cluster.close()


def insert(cluster: SharedCluster) -> str:
    """Insert ten rows; return the part that all replicas have then, of which no disk has a copy of the objects."""
    index = cluster.nodes[0].insert(rows(0))[1]["index"]
    cluster.wait_alike()
    part = inserted_part("all", index).name
    for node in cluster.nodes:
        remove_copies(node, part)
    return part


def remove_copies(node: Node, part: str) -> None:
    """Remove the copies of a part's objects, as a replica does when it needs the room."""
    for path in node.table().store.part_path(part).glob("data-*.parquet"):
        path.unlink()


def lose_disks(cluster: SharedCluster) -> None:
    """Stop all replicas, delete all that they have on their disks, and start them again."""
    for node in cluster.nodes:
        node.stop()
    for node in cluster.nodes:
        shutil.rmtree(node.config.data)
    for node in cluster.nodes:
        node.restart()


def leave_bare_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no part be written anew of its data files, which would save it from a mutant."""
    monkeypatch.setattr(BareFiles, "write_anew", lambda *_: ())
    monkeypatch.setattr(BareFiles, "why_undecided", lambda *_: None)


def is_empty(node: Node, part: str) -> bool:
    """Whether a part was declared lost, and has no rows any more."""
    return node.contents().get(part) == empty_content(node.table().definition)


@on(FOLDER, at_night=(FAULTY,))
@pytest.mark.parametrize("replicas", [1, 2])
def test_parts_come_back_from_the_store_when_every_disk_is_lost(start: Start, replicas: int) -> None:
    cluster = start(replicas)
    part = insert(cluster)
    owners = cluster.owners()
    lose_disks(cluster)
    cluster.wait_equal(list(range(10)))
    assert all(local_files(node, part) >= {"manifest.json"} for node in cluster.nodes)
    assert sum(map(lost_count, cluster.nodes)) == 0
    assert cluster.owners() == owners
    cluster.wait_settled()
    cluster.nodes[0].post("drop", {"all": True}, wait_s=20)
    cluster.wait_empty()


def test_the_only_owner_finds_a_part_again_whose_folder_is_gone(start: Start) -> None:
    cluster = start(1)
    (node,) = cluster.nodes
    part = insert(cluster)
    shutil.rmtree(node.table().store.part_path(part))
    node.table().local_parts.lacks(part, registered(node, part).decode())
    wait_for(lambda: node.keys() == list(range(10)), "it is here again")
    assert lost_count(node) == 0


def test_what_was_found_and_is_lost_again_is_looked_for_at_once(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it was looked for a moment ago says nothing of it now."""
    monkeypatch.setattr(own_shares, "LOOK_AGAIN_S", 3600.0)
    cluster = start(1)
    (node,) = cluster.nodes
    part = insert(cluster)
    for _ in range(2):
        shutil.rmtree(node.table().store.part_path(part))
        node.table().local_parts.lacks(part, registered(node, part).decode())
        wait_for(lambda: node.keys() == list(range(10)), "it is here again")
    assert lost_count(node) == 0


def test_who_does_not_look_in_the_store_loses_what_is_there(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: as it is where parts lie on disks only."""
    cluster = start(1)
    (node,) = cluster.nodes
    part = insert(cluster)
    leave_bare_files(monkeypatch)
    monkeypatch.setattr(OwnShares, "due", lambda _self, _lacking: ())
    monkeypatch.setattr(OwnShares, "why_undecided", lambda _self, _part: None)
    lose_disks(cluster)
    wait_for(lambda: cluster.is_active(node) and is_empty(node, part), "it is empty")
    assert lost_count(node) == 1


@on(FOLDER)
def test_while_the_store_is_away_nothing_is_called_lost(start: Start, tmp_path: Path) -> None:
    cluster = start(1)
    (node,) = cluster.nodes
    part = insert(cluster)
    away = tmp_path / "objects"
    away.rename(tmp_path / "unmounted")
    shutil.rmtree(node.table().store.part_path(part))
    node.table().local_parts.lacks(part, registered(node, part).decode())
    wait_for(
        lambda: "is its disk mounted" in node.table().lost_parts.reasons.get(part, ""), "it says what it waits for"
    )
    assert not is_broken(registered(node, part))
    (tmp_path / "unmounted").rename(away)
    wait_for(lambda: node.keys() == list(range(10)), "it is here again")
    assert lost_count(node) == 0
    assert node.table().lost_parts.reasons == {}


@on(FOLDER)
def test_who_calls_a_part_lost_that_the_store_did_not_tell_of_loses_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: takes no answer for a no."""
    leave_bare_files(monkeypatch)
    cluster = start(1)
    (node,) = cluster.nodes
    part = insert(cluster)
    monkeypatch.setattr(OwnShares, "why_undecided", lambda _self, _part: None)
    (tmp_path / "objects").rename(tmp_path / "unmounted")
    shutil.rmtree(node.table().store.part_path(part))
    node.table().local_parts.lacks(part, registered(node, part).decode())
    wait_for(lambda: lost_count(node) == 1, "it is declared lost")
    (tmp_path / "unmounted").rename(tmp_path / "objects")


def test_a_part_of_which_the_store_lacks_an_object_is_lost_in_the_end(start: Start) -> None:
    """It must not be waited for for ever, nor be registered again."""
    cluster = start(1)
    (node,) = cluster.nodes
    part = insert(cluster)
    (share,) = cluster.shares()
    key = f"tables/{cluster.definition.table_id}/{share}/data-0.parquet"
    node.stop()
    cluster.objects.delete([key])
    lose_disks(cluster)
    wait_for(lambda: cluster.is_active(node) and is_empty(node, part), "it is declared lost, and empty")
    assert lost_count(node) == 1
    assert node.insert(rows(20))[0] == 200
    cluster.wait_equal(list(range(20, 30)))


@on(FOLDER)
def test_a_part_whose_object_was_found_broken_is_not_taken_for_whole(start: Start, tmp_path: Path) -> None:
    cluster = start(1)
    (node,) = cluster.nodes
    part = insert(cluster)
    (share,) = cluster.shares()
    path = tmp_path / "objects" / "tables" / cluster.definition.table_id / share / "data-0.parquet"
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)  # a bit that does not change the rows is repaired
    path.unlink()
    path.write_bytes(bytes(content))
    assert not node.table().suspect(part)
    wait_for(lambda: is_empty(node, part), "nobody has its rows")
    assert lost_count(node) == 1


class Misread:
    """Reads of objects of which the first ones go wrong, each in its way."""

    def __init__(self, store: ObjectStore, wrong: Iterable[Callable[[bytes], bytes]]) -> None:
        self._get_range = store.get_range
        self._wrong = iter(wrong)

    def __call__(self, key: str, first: int, size: int) -> bytes | None:
        found, wrong = self._get_range(key, first, size), next(self._wrong, None)
        return found if found is None or wrong is None else wrong(found)


def spoilt(data: bytes) -> bytes:
    """Another last byte."""
    return data[:-1] + bytes([data[-1] ^ 0xFF])


def no_answer(_data: bytes) -> bytes:
    raise StoreError("the store gave no answer")


def read_wrongly(
    cluster: SharedCluster, monkeypatch: pytest.MonkeyPatch, wrong: Iterable[Callable[[bytes], bytes]]
) -> str:
    """Insert ten rows into the only replica, and let it find their objects broken by reads that go wrong; return the part."""
    (node,) = cluster.nodes
    part = insert(cluster)
    sharing = node.table().sharing
    assert sharing is not None
    store = sharing.objects.store
    monkeypatch.setattr(store, "get_range", Misread(store, wrong))
    assert not node.table().suspect(part)
    return part


def test_a_part_that_was_once_read_wrongly_is_read_again_before_it_is_called_lost(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start(1)
    (node,) = cluster.nodes
    part = read_wrongly(cluster, monkeypatch, repeat(spoilt, 3))
    wait_for(lambda: node.keys() == list(range(10)), "it is here again")
    assert lost_count(node) == 0
    assert not node.table().store.shared.distrusts(node.table().store.manifest(part))
    cluster.wait_settled()


def test_while_what_was_read_wrongly_is_not_read_again_it_is_not_called_lost(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start(1)
    (node,) = cluster.nodes
    with monkeypatch.context() as misreading:
        part = read_wrongly(cluster, misreading, chain(repeat(spoilt, 3), repeat(no_answer)))
        told = "the store gave no answer"
        wait_for(lambda: told in node.table().lost_parts.reasons.get(part, ""), "it says what it waits for")
        assert not is_broken(registered(node, part))
    wait_for(lambda: node.keys() == list(range(10)), "it is here again")
    assert lost_count(node) == 0


def test_who_does_not_read_again_what_was_read_wrongly_once_loses_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: broken once is broken for good."""
    leave_bare_files(monkeypatch)
    verify_objects = SharedFolders.verify_objects

    def verify_once(shared: SharedFolders, manifest: PartManifest) -> None:
        if shared.distrusts(manifest):
            raise CorruptPart("it was found broken before")
        verify_objects(shared, manifest)

    cluster = start(1)
    (node,) = cluster.nodes
    monkeypatch.setattr(SharedFolders, "verify_objects", verify_once)
    part = read_wrongly(cluster, monkeypatch, [spoilt])
    wait_for(lambda: is_empty(node, part), "it is declared lost, and empty")
    assert lost_count(node) == 1


def test_the_part_of_another_replica_is_taken_over_and_not_looked_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start(2)
    first, second = cluster.nodes
    part = insert(cluster)
    owners = cluster.owners()
    asked: list[object] = []
    own, due = second.table().sources.own_shares, second.table().sources.own_shares.due

    def noted(lacking: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        asked.extend(lacking)
        return due(lacking)

    monkeypatch.setattr(own, "due", noted)
    shutil.rmtree(second.table().store.part_path(part))
    second.table().local_parts.lacks(part, registered(second, part).decode())
    wait_for(lambda: second.contents() == first.contents(), "it is here again")
    assert asked == []
    assert cluster.owners() == owners


def test_of_several_owners_with_damaged_manifests_one_finds_it_and_all_have_it_again(start: Start) -> None:
    """What is damaged on every disk is no reason to lose what the store has."""
    cluster = start(2)
    part = insert(cluster)
    owners = cluster.owners()
    for node in cluster.nodes:
        path = node.table().store.file_path(part, "manifest.json")
        path.chmod(0o600)
        path.write_bytes(b"{}")
        assert "is not a part's manifest" in str(node.table().mending.check(part, registered(node, part).decode()))
    cluster.wait_equal(list(range(10)))
    assert sum(map(lost_count, cluster.nodes)) == 0
    assert cluster.owners() == owners
    cluster.wait_settled()


@on(FOLDER)
def test_a_manifest_of_a_newer_format_is_no_proof_that_the_part_is_gone(start: Start, tmp_path: Path) -> None:
    cluster = start(1)
    (node,) = cluster.nodes
    part = insert(cluster)
    (share,) = cluster.shares()
    path = tmp_path / "objects" / "tables" / cluster.definition.table_id / share / "manifest.json"
    whole = path.read_bytes()
    checksum = xxhash.xxh3_128_hexdigest(b'{"format":99,"later":1}').encode()
    path.write_bytes(b'{"format":99,"checksum":"%b","later":1}' % checksum)
    shutil.rmtree(node.table().store.part_path(part))
    node.table().local_parts.lacks(part, registered(node, part).decode())
    wait_for(lambda: "99" in node.table().lost_parts.reasons.get(part, ""), "it says what it waits for")
    assert not is_broken(registered(node, part))
    path.write_bytes(whole)
    wait_for(lambda: node.keys() == list(range(10)), "it is here again")
    assert lost_count(node) == 0


def test_a_part_that_borrows_comes_back_with_all_its_shares(
    tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "_cut", in_pieces)
    monkeypatch.setattr(table_replica, "MAINTENANCE_S", 0.05)
    cluster = Borrowing(tmp_path, store_url)
    try:
        cluster.delete("k = 5")
        keys = [key for key in KEYS if key != 5]
        cluster.wait_equal(keys)
        cluster.wait_settled()
        owners = cluster.owners()
        assert len(owners) == 2
        lose_disks(cluster)
        cluster.wait_equal(keys)
        assert sum(map(lost_count, cluster.nodes)) == 0
        assert cluster.owners() == owners
        cluster.wait_settled()
    finally:
        cluster.close()
