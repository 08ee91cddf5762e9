"""Sums objects: put after each large data object, used by whoever reads it, deleted with it, and missed by nobody."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from typing_extensions import override

from replitree.client.insert.stored_upload import _put
from replitree.errors import NotAuthorized, StoreError
from replitree.protocol.shares.share import ShareId
from replitree.storage.files.sums import SUMMED_BYTES_MIN, sums_of
from replitree.storage.objects import ObjectStore, open_store
from replitree.storage.objects.location import StoreLocation
from replitree.storage.parts import checked_bytes
from replitree.storage.parts.manifest import MANIFEST_FILE, FileEntry, PartManifest
from replitree.storage.parts.sums_files import write_sums
from replitree.storage.shares.inventory import Inventory
from replitree.storage.shares.object_bytes import sums_key
from replitree.storage.shares.received import remove_others
from replitree.storage.shares.shares import ShareObjects

SHARE, LENDER = "5" * 32, "6" * 32
SMALL, LARGE = b"rows", random.Random(1).randbytes(SUMMED_BYTES_MIN + 100_000)


def entry(number: int, data: bytes) -> FileEntry:
    return FileEntry(f"data-{number}.parquet", 1, len(data), xxhash.xxh3_128_hexdigest(data))


FILES = (entry(0, LARGE), entry(1, SMALL))
PART = PartManifest(
    partition="all", rows=2, bytes=len(LARGE) + len(SMALL), schema_version=0, files=FILES, content_hash="0" * 32
).shared_as(SHARE)


class Recording(ObjectStore):
    """Remembers the names of what was created, in their order, and may refuse some."""

    def __init__(self, behind: ObjectStore, folder: Path | None = None) -> None:
        super().__init__(behind._raw, behind.name, folder=folder)  # noqa: SLF001 - the same objects
        self.created: list[str] = []
        self.refuses: Callable[[str], Exception | None] = lambda _: None

    @override
    def create(self, key: str, data: bytes | Path) -> None:
        name = key.rpartition("/")[2]
        if problem := self.refuses(name):
            raise problem
        super().create(key, data)
        self.created.append(name)


@pytest.fixture
def store() -> Recording:
    return Recording(open_store("memory:///"))


@pytest.fixture
def objects(store: Recording) -> ShareObjects:
    checked_bytes._kept.clear()  # noqa: SLF001 - of earlier tests
    return ShareObjects(lambda: store, "t1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of a part, with a sums file beside the large one."""
    for file, data in zip(FILES, (LARGE, SMALL), strict=True):
        (tmp_path / file.name).write_bytes(data)
    write_sums(tmp_path / FILES[0].name, sums_of(LARGE))
    return tmp_path


def names(objects: ShareObjects) -> set[str]:
    return {found.key.rpartition("/")[2] for found in objects.store.list(objects.root)}


SUMS = ".data-0.parquet.crc"
ALL = {"data-0.parquet", SUMS, "data-1.parquet", MANIFEST_FILE}


def test_a_sums_object_is_put_after_its_data_object_and_before_the_manifest(
    objects: ShareObjects, store: Recording, folder: Path
) -> None:
    objects.put(SHARE, folder, PART)
    assert set(store.created) == ALL, "a small object has none"
    assert store.created.index("data-0.parquet") < store.created.index(SUMS)
    assert store.created[-1] == MANIFEST_FILE
    assert store.get(objects.key(SHARE, SUMS)) == sums_of(LARGE).encoded


@pytest.mark.parametrize("problem", [StoreError("away"), NotAuthorized("this name is refused")])
def test_a_store_that_refuses_a_sums_object_takes_the_part_all_the_same(
    objects: ShareObjects, store: Recording, folder: Path, problem: Exception
) -> None:
    store.refuses = lambda name: problem if name == SUMS else None
    objects.put(SHARE, folder, PART)
    assert objects.is_here(PART)
    key = objects.key(SHARE, "data-2.parquet")
    store.refuses = lambda name: problem if name.endswith(".crc") else None
    assert _put(objects, folder / "data-0.parquet", key, FILES[0]) == str(store.head(key) and store.head(key).tag)  # type: ignore[union-attr]
    assert store.get(sums_key(key)) is None


def test_without_a_sums_file_beside_the_data_file_none_is_put(objects: ShareObjects, folder: Path) -> None:
    (folder / SUMS).write_bytes(sums_of(SMALL).encoded)
    objects.put(SHARE, folder, PART)
    assert names(objects) == ALL - {SUMS}, "that was of another file"


def test_who_borrows_uses_the_sums_object_of_the_lender(objects: ShareObjects, store: Recording, folder: Path) -> None:
    objects.put(LENDER, folder, PART.as_local().shared_as(LENDER))
    borrowing = PART.as_local().shared_as(SHARE, {"data-0.parquet": LENDER})
    objects.put(SHARE, folder, borrowing)
    assert store.get(objects.key(SHARE, SUMS)) is None
    source = objects.file(borrowing, borrowing.files[0]).source()
    data_reads: list[str] = []
    read = store.get_range

    def get_range(key: str, first: int, size: int) -> bytes | None:
        data_reads.append(key)
        return read(key, first, size)

    store.get_range = get_range  # type: ignore[method-assign]
    assert source.sums().encoded == sums_of(LARGE).encoded
    assert data_reads == [objects.key(LENDER, SUMS)]


def test_a_share_is_deleted_with_its_sums_objects(objects: ShareObjects, folder: Path) -> None:
    objects.put(SHARE, folder, PART)
    assert objects.data_in(SHARE) == {file.name: file.bytes for file in FILES}
    objects.delete(SHARE)
    assert names(objects) == set()


def test_an_object_that_is_created_again_has_its_sums_object_again(objects: ShareObjects, folder: Path) -> None:
    objects.put(SHARE, folder, PART)
    objects.store.delete([objects.key(SHARE, name) for name in ("data-0.parquet", SUMS)])
    objects.put_again(SHARE, FILES[0], folder / "data-0.parquet")
    assert names(objects) == ALL


def test_of_an_upload_the_sums_objects_of_its_files_stay_and_others_go(objects: ShareObjects, folder: Path) -> None:
    objects.put(SHARE, folder, PART)
    late = objects.key(SHARE, "data-7.parquet")
    objects.store.create(late, SMALL)
    objects.store.create(sums_key(late), SMALL)
    assert remove_others(objects, PART) == 2
    assert names(objects) == ALL


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_fsck_sees_no_sums_object_beside_its_data_object(kind: str, folder: Path, tmp_path: Path) -> None:
    url = "memory:///" if kind == "memory" else f"file://{tmp_path}/objects"
    store = open_store(url)
    objects = ShareObjects(lambda: store, "t1")
    objects.put(SHARE, folder, PART)
    inventory = Inventory(store, StoreLocation.parse(url), "t1")
    assert {found.file for found in inventory.listing().objects} == ALL - {SUMS}
    store.delete([objects.key(SHARE, "data-0.parquet")])
    assert {(found.share, found.file) for found in inventory.listing().objects} == {
        (ShareId(SHARE), name) for name in ALL - {"data-0.parquet"}
    }, "one that is alone takes room for nothing"
    objects.delete(SHARE)
    assert inventory.is_empty()


def test_objects_without_sums_objects_are_verified_as_a_whole_first(objects: ShareObjects, folder: Path) -> None:
    """As those of earlier versions, which have put none."""
    (folder / SUMS).unlink()
    objects.put(SHARE, folder, PART)
    assert objects.file(PART, FILES[0]).source().sums().encoded == sums_of(LARGE).encoded
    checked_bytes._kept.clear()  # noqa: SLF001 - as another process
    key = objects.key(SHARE, "data-0.parquet")
    objects.store.delete([key])
    objects.store.create(key, LARGE[:-1] + b"x")
    with pytest.raises(StoreError, match="has changed"):
        objects.file(PART, FILES[0]).source().sums()
