"""Parts that are broken or gone are put back from copies: on this disk, and on the disks of other replicas."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replitree.errors import StoreError
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Applied, Publish, Set
from replitree.protocol.core.parts import inserted_part
from replitree.protocol.state.registration import content_of, has_searched, is_broken
from replitree.replica.parts import own_shares, salvage
from replitree.replica.parts.salvage import Salvage
from replitree.replica.table import mending, table_replica
from replitree.storage.disk import copies as disk_copies
from replitree.storage.disk.packs import PackedPart, PackIndex
from replitree.storage.rewrite.empty import empty_content
from tests.replica.inprocess import InProcessCluster, Node, rows, wait_for
from tests.replica.test_lost_parts import break_part, lost_count, no_sends, registered
from tests.replica.test_own_shares import remove_copies
from tests.replica.test_sharing import SharedCluster

KEYS = list(range(10))

Start = Callable[[int], SharedCluster]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let replicas look again at once."""
    for module, name in (
        (salvage, "LOOK_AGAIN_S"),
        (salvage, "REMEMBERED_S"),
        (own_shares, "LOOK_AGAIN_S"),
        (mending, "ASK_AGAIN_S"),
    ):
        monkeypatch.setattr(module, name, 0.0)
    monkeypatch.setattr(table_replica, "MAINTENANCE_S", 0.05)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[InProcessCluster]:
    """Two replicas with a table on their disks, which do not wait before they ask whether a part is lost."""
    cluster = InProcessCluster(tmp_path, lost_part_after_s=0.0)
    cluster.create_table()
    yield cluster
    cluster.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts replicas with a table in an object store that is a folder."""
    clusters: list[SharedCluster] = []

    def started(replicas: int) -> SharedCluster:
        clusters.append(SharedCluster(tmp_path, f"file://{tmp_path}/objects", replicas, lost_part_after_s=0.0))
        return clusters[0]

    yield started
    for cluster in clusters:
        cluster.close()


def insert(cluster: InProcessCluster) -> str:
    """Insert ten rows; return the part that all replicas have then."""
    index = cluster.nodes[0].insert(rows(0))[1]["index"]
    cluster.wait_alike()
    return inserted_part("all", index).name


def keep_copy(node: Node, part: str, place: str) -> None:
    """Keep a copy of a part in a folder of the replica's table."""
    store = node.table().store
    if place == "frozen":
        store.freeze((part,), "kept", node.table().definition, 1)
    elif place == "detached":
        store.keep_aside((part,))
    elif place == "packs":
        store.packs.stage("0-9.zip", [PackedPart(part, store.manifest(part).bytes)], 1.0)
        store.packs.publish("0-9.zip")
    else:
        shutil.copytree(store.part_path(part), store.root / "parts" / "all_90_90_0")


def lose_everywhere(cluster: InProcessCluster, part: str) -> None:
    """Delete a part's files on every disk, and let the replicas notice when none can send it any more."""
    for node in cluster.nodes:
        shutil.rmtree(node.table().store.part_path(part))
    for node in cluster.nodes:
        node.table().local_parts.lacks(part, content_of(registered(node, part)))


def delete_object(cluster: SharedCluster, file: str = "data-0.parquet") -> str:
    """Delete an object of the only share behind every replica's back; return its key."""
    (share,) = cluster.shares()
    key = f"tables/{cluster.definition.table_id}/{share}/{file}"
    cluster.objects.delete([key])
    return key


def losses(cluster: InProcessCluster) -> float:
    return sum(map(lost_count, cluster.nodes))


@pytest.mark.parametrize("place", ["frozen", "detached", "parts", "packs"])
def test_a_part_that_is_broken_everywhere_comes_back_from_a_copy_on_one_disk(
    disks: InProcessCluster, place: str
) -> None:
    part = insert(disks)
    keep_copy(disks.nodes[1], part, place)
    lose_everywhere(disks, part)
    disks.wait_equal(KEYS)
    wait_for(lambda: not any(is_broken(registered(node, part)) for node in disks.nodes), "both say that it is whole")
    assert losses(disks) == 0


def test_a_pack_that_can_not_be_read_may_have_the_part(
    disks: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = disks.nodes
    part = insert(disks)
    keep_copy(second, part, "packs")
    index, packs = second.table().store.packs.index, second.table().store.packs

    def refused(pack: str) -> PackIndex:
        raise StoreError(f"can't read the pack {pack}: permission denied")

    monkeypatch.setattr(packs, "index", refused)
    lose_everywhere(disks, part)
    wait_for(lambda: has_searched(registered(first, part)), "the first has searched")
    wait_for(lambda: "in a pack" in second.table().lost_parts.reasons.get(part, ""), "the second says why not")
    assert losses(disks) == 0
    monkeypatch.setattr(packs, "index", index)
    disks.wait_equal(KEYS)
    assert losses(disks) == 0


def test_a_replica_that_does_not_search_its_disk_loses_what_it_has(
    disks: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: as it was before copies were used."""
    monkeypatch.setattr(Salvage, "put_back", lambda _self, _lacking: ())
    monkeypatch.setattr(Salvage, "why_undecided", lambda _self, _part: None)
    part = insert(disks)
    for node in disks.nodes:
        keep_copy(node, part, "detached")
    lose_everywhere(disks, part)
    wait_for(lambda: losses(disks) == 1, "it is declared lost, though both replicas have a copy")


def test_nothing_is_declared_lost_while_a_folder_can_not_be_searched(
    disks: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = disks.nodes
    part = insert(disks)
    unreadable, folders = second.table().store.root, disk_copies.copy_folders

    def not_all(root: Path) -> Iterator[Path]:
        if root == unreadable:
            raise PermissionError(13, "Permission denied", str(root / "detached"))
        return folders(root)

    monkeypatch.setattr(disk_copies, "copy_folders", not_all)
    lose_everywhere(disks, part)
    wait_for(lambda: has_searched(registered(first, part)), "the first has searched")
    wait_for(lambda: "can't be searched" in second.table().lost_parts.reasons.get(part, ""), "the second says why not")
    assert not is_broken(registered(second, part))
    assert losses(disks) == 0
    monkeypatch.setattr(disk_copies, "copy_folders", folders)
    wait_for(lambda: losses(disks) == 1, "it is lost when the second has searched, too")


def test_a_replica_that_lacks_a_part_says_so_and_still_serves(
    disks: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = disks.nodes
    part = insert(disks)

    def lacking() -> float | None:
        return first.server.metrics.registry.get_sample_value("replitree_lacking_parts", {"table": "t"})  # type: ignore[union-attr]

    assert first.request("GET", "/health")[1]["state"] == "ok"
    with monkeypatch.context() as stopped:
        no_sends(second, stopped)
        break_part(first, part)
        wait_for(lambda: lacking() == 1.0, "the gauge counts it")
        status, health = first.request("GET", "/health")
        assert (status, health["state"], health["lacking_parts"]) == (200, "degraded", {"t": 1})
        assert first.insert(rows(10))[0] == 200
    disks.wait_equal(list(range(20)))
    wait_for(lambda: lacking() == 0.0, "the gauge counts it no more")
    assert first.request("GET", "/health")[1]["state"] == "ok"


def test_an_object_that_was_deleted_is_created_again_from_the_copy_of_the_replica_that_checks(start: Start) -> None:
    cluster = start(2)
    first, second = cluster.nodes
    part, owners = insert(cluster), cluster.owners()
    key = delete_object(cluster)
    problem = first.table().mending.check(part, registered(first, part).decode())
    assert problem is not None
    assert "created again from a copy" in problem
    assert cluster.objects.head(key) is not None
    assert second.table().mending.check(part, registered(second, part).decode()) is None
    assert cluster.owners() == owners
    assert first.table().lacking == {}
    cluster.wait_equal(KEYS)


def test_a_manifest_that_was_deleted_from_the_store_is_created_again(start: Start) -> None:
    cluster = start(1)
    (node,) = cluster.nodes
    part = insert(cluster)
    key = delete_object(cluster, "manifest.json")
    delete_object(cluster)
    assert node.table().mending.check(part, registered(node, part).decode()) is not None
    assert cluster.objects.get(key) == node.table().store.manifest_bytes(part)
    cluster.wait_equal(KEYS)


@pytest.mark.parametrize("holder", [0, 1])
def test_an_object_comes_back_from_a_copy_that_was_set_aside_on_any_replica(start: Start, holder: int) -> None:
    """The part was found broken and set aside before: its copy lies in `leaving/`."""
    cluster = start(2)
    part, owners = insert(cluster), cluster.owners()
    content = registered(cluster.nodes[0], part).decode()
    cluster.nodes[holder].table().store.bring((part,))
    remove_copies(cluster.nodes[1 - holder], part)
    key = delete_object(cluster)
    for node in cluster.nodes:
        node.table().progress.hide((part,))
        node.table().store.quarantine(part, "its object was found missing")
    for node in cluster.nodes:
        node.table().local_parts.lacks(part, content)
    cluster.wait_equal(KEYS)
    wait_for(lambda: cluster.objects.head(key) is not None, "the object is there again")
    wait_for(lambda: not any(node.table().lacking for node in cluster.nodes), "no part is lacking")
    assert losses(cluster) == 0
    assert cluster.owners() == owners
    cluster.wait_settled()


def test_a_replica_that_can_not_take_a_part_over_lets_the_one_that_has_copies_create_its_object(start: Start) -> None:
    """The replica with the copy has not noticed that the object is missing."""
    cluster = start(2)
    first, second = cluster.nodes
    part = insert(cluster)
    for node in cluster.nodes:
        remove_copies(node, part)
    keep_copy(second, part, "frozen")
    remove_copies(second, part)
    key = delete_object(cluster)
    assert not first.table().suspect(part)
    cluster.wait_equal(KEYS)
    assert cluster.objects.head(key) is not None
    assert losses(cluster) == 0


def test_a_part_that_was_sent_because_its_object_is_missing_moves_into_the_store_again(start: Start) -> None:
    """The other replica has copies, and sends them; it has not noticed that the object is missing."""
    cluster = start(2)
    _, second = cluster.nodes
    part, (share,), table = insert(cluster), cluster.shares(), second.table()
    assert table.sharing is not None
    table.mover.work(table.sharing)  # so the mover knows that the part is in a share
    delete_object(cluster)
    assert not table.suspect(part)
    wait_for(lambda: not table.lacking, "it is here again")
    wait_for(lambda: table.mover.to_store == 1, "its files have moved into the store")
    assert table.store.manifest(part).share_id is not None
    wait_for(
        lambda: f"r2 {part}" not in cluster.owners().get(share, set()), "the share with the missing object is left"
    )
    cluster.wait_equal(KEYS)


def test_an_object_with_other_bytes_is_not_replaced_and_the_part_gets_files_of_its_own(
    start: Start, tmp_path: Path
) -> None:
    cluster = start(1)
    (node,) = cluster.nodes
    part = insert(cluster)
    (share,) = cluster.shares()
    path = tmp_path / "objects" / "tables" / cluster.definition.table_id / share / "data-0.parquet"
    wrong = bytes(len(path.read_bytes()))
    path.unlink()
    path.write_bytes(wrong)
    assert not node.table().suspect(part)
    wait_for(lambda: node.keys() == KEYS, "it is here again")
    assert losses(cluster) == 0
    wait_for(lambda: cluster.shares() != {share}, "its rows have moved into a share of their own")
    cluster.wait_settled()
    cluster.wait_equal(KEYS)


def test_no_object_is_created_for_a_part_that_the_replica_does_not_own(start: Start) -> None:
    cluster = start(1)
    (node,) = cluster.nodes
    part = insert(cluster)
    manifest = node.table().store.manifest(part)
    node.table().store.keep_aside((part,))
    node.post("drop", {"all": True}, wait_s=20)
    cluster.wait_empty()
    assert not node.table().sources.salvage.heal(part, manifest)
    assert cluster.stored() == set()


@pytest.mark.parametrize("began_before", [False, True])
def test_a_lost_part_is_not_put_back_between_its_empty_form_and_its_registration(
    disks: InProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, began_before: bool
) -> None:
    """A copy that an operator puts into a folder in that moment stays aside: the log says that the part is empty.

    A round of mending may have begun before the entry was pulled; it takes out again what it has put back.
    """
    first = disks.nodes[0]
    part = insert(disks)
    aside = tmp_path / "copy"
    shutil.copytree(first.table().store.part_path(part), aside)
    perform, met = first.table().performer.perform, threading.Event()
    losing, shown = first.table().progress.losing, list[bool]()

    def with_copy(effect: Any) -> Any:
        outcome = perform(effect)
        is_empty_form = isinstance(effect, Publish) and effect.names == (("all", part),)
        if is_empty_form and part in first.table().lacking and not met.is_set():
            shutil.copytree(aside, first.table().store.root / "detached" / "found_again")
            looks = [()] if began_before else []
            with monkeypatch.context() as patch:
                patch.setattr(first.table().progress, "losing", lambda: looks.pop() if looks else losing())
                first.table().mending.mend()
            shown.append(part not in first.table().lacking)
            met.set()
        return outcome

    monkeypatch.setattr(first.table().performer, "perform", with_copy)
    lose_everywhere(disks, part)
    wait_for(met.is_set, "the empty form is published while the old registration stands")
    assert shown == [False], "the old rows would be shown"
    empty = empty_content(first.table().definition)
    for node in disks.nodes:
        wait_for(lambda node=node: content_of(registered(node, part)) == empty, "the part is registered as empty")  # type: ignore[misc]
        wait_for(lambda node=node: part not in node.table().lacking, "it is whole")  # type: ignore[misc]
        assert node.table().store.verify(part).content == empty
    disks.wait_equal([])


def test_an_empty_part_stays_while_its_entry_is_still_in_the_queue(
    disks: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of mending that began before the entry was pulled meets the empty part, which is not the lost one."""
    table = disks.nodes[0].table()
    part = insert(disks)
    perform, empty, stayed = table.performer.perform, empty_content(table.definition), list[bool]()

    def mending(effect: Any) -> Any:
        outcome = perform(effect)
        registers = isinstance(outcome, Applied) and any(
            isinstance(each, Set) and each.path == layout.part(table.replica, part) and content_of(each.value) == empty
            for each in effect.operations
        )
        if registers and part in table.lacking and not stayed:
            losing, looks = table.progress.losing, [()]
            with monkeypatch.context() as patch:
                patch.setattr(table.progress, "losing", lambda: looks.pop() if looks else losing())
                table.mending.mend()
            stayed.append(table.store.has_part(part))
        return outcome

    monkeypatch.setattr(table.performer, "perform", mending)
    lose_everywhere(disks, part)
    wait_for(lambda: stayed, "the empty part is registered")
    assert stayed == [True]
    disks.wait_equal([])
