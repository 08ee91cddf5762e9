"""Rows that move between a disk and an object store: what is on the disk after every step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from replitree.errors import CorruptPart
from replitree.storage.disk import folders as disk_folders
from replitree.storage.disk.shared import SharedFolders, write_manifest
from replitree.storage.disk.store import PartStore
from replitree.storage.objects import open_store
from replitree.storage.parts.conform import conform
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import PartManifest, read_manifest
from replitree.storage.parts.part_folder import link_part_folder, verify_files
from replitree.storage.schema.definition import define_table
from replitree.storage.shares.shares import ShareObjects
from tests.replica.inprocess import SCHEMA, rows

PART, SHARE = "all_0_0_0", "0123456789abcdef0123456789abcdef"
DEFINITION = define_table("t", SCHEMA, order_by="k", table_id="f" * 32)


@pytest.fixture
def store(tmp_path: Path) -> PartStore:
    """A disk with one part, and a folder of objects."""
    store = PartStore(tmp_path / "disk")
    stage_table(conform(rows(0), DEFINITION), DEFINITION, store.staging, prefix=store.staging_prefix("s"))
    store.staged.publish("s", {"all": PART})
    store.shared.objects = ShareObjects(lambda: open_store(f"file://{tmp_path}/objects"), DEFINITION.table_id)
    return store


def files(store: PartStore) -> set[str]:
    return {path.name for path in store.part_path(PART).iterdir()}


def take_copies_away(store: PartStore) -> int:
    return store.shared.evict(store.root / "parts", 0, 0.0)


def test_a_part_that_borrows_notes_all_its_shares_when_it_comes_home(store: PartStore) -> None:
    local, borrower = store.manifest(PART), "a" * 32
    assert store.moved.to_share(PART, store.moved.put(PART, SHARE))
    take_copies_away(store)
    borrowing = local.shared_as(borrower, {"data-0.parquet": SHARE})
    write_manifest(store.part_path(PART), borrowing)
    again = PartStore(store.root)
    again.shared.objects = store.shared.objects
    with again.shared.pinning((PART,)):
        again.moved.bring(PART, borrower)
        again.moved.note(PART, borrower)
        assert [(each.part, each.shares) for each in again.shared.leaving()] == [(PART, (borrower, SHARE))]
        assert again.moved.to_disk(PART, borrower)
    assert again.verify(PART) == local


def test_to_the_store_and_back(store: PartStore) -> None:
    local = store.manifest(PART)
    store.moved.note(PART, SHARE)
    assert [(each.part, each.shares) for each in store.shared.leaving()] == [(PART, (SHARE,))]
    shared = store.moved.put(PART, SHARE)
    assert store.manifest(PART) == local
    assert store.moved.to_share(PART, shared)
    assert store.manifest(PART) == shared == local.shared_as(SHARE)
    assert files(store) == {"manifest.json", "data-0.parquet"}
    assert take_copies_away(store) == local.bytes
    assert files(store) == {"manifest.json"}
    with store.shared.pinning((PART,)):
        store.moved.bring(PART, SHARE)
        assert store.manifest(PART) == shared
        assert store.moved.to_disk(PART, SHARE)
    assert store.manifest(PART) == local
    assert take_copies_away(store) == 0
    assert PartStore(store.root).verify(PART) == local


def test_what_was_said_is_said_once(store: PartStore) -> None:
    shared = store.moved.put(PART, SHARE)
    assert not store.moved.to_disk(PART, SHARE)
    assert store.moved.to_share(PART, shared)
    assert not store.moved.to_share(PART, shared)
    assert store.moved.to_disk(PART, SHARE)
    assert not store.moved.to_disk(PART, SHARE)


def test_a_manifest_of_other_files_is_never_put_in_place(store: PartStore) -> None:
    shared = store.moved.put(PART, SHARE)
    other = shared.shared_as("f" * 32)
    assert store.moved.to_share(PART, other)
    assert not store.moved.to_share(PART, shared)
    assert store.manifest(PART) == other


def test_the_manifest_does_not_say_that_rows_are_here_which_are_not(store: PartStore) -> None:
    store.moved.to_share(PART, store.moved.put(PART, SHARE))
    take_copies_away(store)
    assert not store.moved.to_disk(PART, SHARE)
    assert store.manifest(PART).share_id == SHARE


def test_a_part_that_has_left_is_not_moved(store: PartStore) -> None:
    shared = store.moved.put(PART, SHARE)
    store.remove_parts([PART])
    assert not store.moved.to_share(PART, shared)
    assert not store.moved.to_disk(PART, SHARE)
    with pytest.raises(CorruptPart):
        store.moved.note(PART, SHARE)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10])


@pytest.mark.parametrize("hurt", [damage, remove, cut])
def test_a_damaged_part_is_not_put(store: PartStore, hurt: Callable[[Path], None]) -> None:
    hurt(store.part_path(PART) / "data-0.parquet")
    with pytest.raises(CorruptPart):
        store.moved.put(PART, SHARE)
    assert store.shared.objects is not None
    assert list(store.shared.objects.store.list("tables")) == []


@pytest.mark.parametrize("hurt", [damage, remove, cut])
def test_a_copy_that_is_damaged_is_brought_again(store: PartStore, hurt: Callable[[Path], None]) -> None:
    store.moved.to_share(PART, store.moved.put(PART, SHARE))
    hurt(store.part_path(PART) / "data-0.parquet")
    store.moved.bring(PART, SHARE)
    assert store.moved.to_disk(PART, SHARE)
    assert store.verify(PART).share_id is None


def test_an_object_that_is_damaged_is_never_taken_for_rows(store: PartStore, tmp_path: Path) -> None:
    store.moved.to_share(PART, store.moved.put(PART, SHARE))
    take_copies_away(store)
    (found,) = (tmp_path / "objects").rglob("*.parquet")
    damage(found)
    with pytest.raises(CorruptPart):
        store.moved.bring(PART, SHARE)
    assert not store.moved.to_disk(PART, SHARE)


def test_another_share_than_the_parts_is_not_brought(store: PartStore) -> None:
    store.moved.to_share(PART, store.moved.put(PART, SHARE))
    with pytest.raises(CorruptPart, match="does not have the share"):
        store.moved.bring(PART, "f" * 32)


def test_a_note_survives_and_goes_when_it_is_worked_off(store: PartStore) -> None:
    store.moved.note(PART, SHARE)
    store.moved.note(PART, SHARE)
    again = PartStore(store.root)
    assert [each.shares for each in again.shared.leaving()] == [(SHARE,), (SHARE,)]
    assert again.shared.left_at(again.shared.leaving()[0].name) > 0
    for each in again.shared.leaving():
        again.shared.has_left(each.name)
    assert again.shared.leaving() == ()
    assert again.has_part(PART)


def test_a_part_that_moves_while_it_is_linked_has_the_manifest_that_was_seen(store: PartStore, tmp_path: Path) -> None:
    local = store.manifest(PART)
    store.moved.to_share(PART, store.moved.put(PART, SHARE))
    link_part_folder(store.part_path(PART), local, tmp_path / "linked")
    assert read_manifest(tmp_path / "linked") == local
    verify_files(tmp_path / "linked", local)


def test_who_lists_what_leaves_never_finds_half_a_note(store: PartStore) -> None:
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            store.shared.leaving()

    looking = threading.Thread(target=look)
    looking.start()
    for _ in range(50):
        store.moved.note(PART, SHARE)
    over.set()
    looking.join()
    assert len(store.shared.leaving()) == 50


# --- parts that move while they are taken out ---------------------------------------------------------------------------------

OTHER, OTHER_SHARE = "all_1_1_0", "f" * 32
BLOCKED_S = 0.1
"""A move that has not ended by then waits for what goes on; one that has not begun by then does no harm either."""


class Interrupted(SharedFolders):
    """A disk's copies of objects: a part moves whenever rows were brought."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.move: Callable[[], object] = lambda: None
        self.moving: list[threading.Thread] = []

    @override
    def bring_files(self, folder: Path, manifest: PartManifest, names: Sequence[str] | None = None) -> None:
        super().bring_files(folder, manifest, names)
        thread = threading.Thread(target=self.move)
        thread.start()
        thread.join(BLOCKED_S)
        self.moving.append(thread)


@pytest.fixture
def interrupted(store: PartStore, monkeypatch: pytest.MonkeyPatch) -> tuple[PartStore, Interrupted]:
    """A disk with two parts, of which `OTHER` has moved into the store."""
    stage_table(conform(rows(10), DEFINITION), DEFINITION, store.staging, prefix=store.staging_prefix("o"))
    store.staged.publish("o", {"all": OTHER})
    store.moved.to_share(OTHER, store.moved.put(OTHER, OTHER_SHARE))
    monkeypatch.setattr(disk_folders, "SharedFolders", Interrupted)
    made = PartStore(store.root)
    shared = made.shared
    assert isinstance(shared, Interrupted)
    shared.objects = store.shared.objects
    return made, shared


def taken_out(store: PartStore, shared: Interrupted, *parts: str) -> list[tuple[str, str | None]]:
    """Take parts out; return what is kept aside then, and where the rows of that are."""
    names = [folder.name for folder in map(store.detach, parts) if folder is not None]
    for thread in shared.moving:
        thread.join()
    assert sorted(names) == list(store.detached())
    return [(name, read_manifest(store.root / "detached" / name).share_id) for name in sorted(names)]


def test_rows_that_move_into_the_store_while_they_are_taken_out_are_kept_aside(
    interrupted: tuple[PartStore, Interrupted],
) -> None:
    disk, shared = interrupted
    disk.moved.note(PART, SHARE)
    manifest = disk.moved.put(PART, SHARE)
    shared.move = lambda: disk.moved.to_share(PART, manifest)
    assert taken_out(disk, shared, OTHER, PART) == [(f"removed_{PART}_0", None), (f"removed_{OTHER}_0", None)]
    assert {each.shares for each in shared.leaving()} == {(SHARE,), (OTHER_SHARE,)}


def test_rows_that_move_out_of_the_store_while_they_are_taken_out_are_kept_aside_once(
    interrupted: tuple[PartStore, Interrupted],
) -> None:
    disk, shared = interrupted
    disk.moved.note(OTHER, OTHER_SHARE)
    shared.move = lambda: disk.moved.to_disk(OTHER, OTHER_SHARE)
    assert taken_out(disk, shared, OTHER) == [(f"removed_{OTHER}_0", None)]
    assert {each.shares for each in shared.leaving()} == {(OTHER_SHARE,)}
