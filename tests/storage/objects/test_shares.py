"""The objects of shares, and a store that is not there: what is not found there is not missing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import xxhash

from replitree.errors import CorruptPart, StoreError
from replitree.storage.objects import open_store, store_id
from replitree.storage.parts.manifest import MANIFEST_FILE, FileEntry, PartManifest
from replitree.storage.shares.shares import ShareObjects
from tests.storage.objects.conftest import KEYS
from tests.storage.objects.s3_server import S3Server, meeting

SHARE, DATA = "5" * 32, b"rows"
FILE = FileEntry("data-0.parquet", 1, len(DATA), xxhash.xxh3_128_hexdigest(DATA))


@pytest.fixture
def objects(tmp_path: Path) -> ShareObjects:
    made = ShareObjects(lambda: open_store(f"file://{tmp_path}/objects"), "t1")
    made.store_id = store_id(made.store)
    made.store.create(made.key(SHARE, FILE.name), DATA)
    return made


def unmount(folder: Path, *, leaving: bool) -> None:
    """Take the store's folder away, as when its disk is not mounted; the empty folder may be there."""
    (folder / "objects").rename(folder / "away")
    if leaving:
        (folder / "objects").mkdir()


def test_an_object_that_is_not_there_is_missing(objects: ShareObjects, tmp_path: Path) -> None:
    objects.bring(SHARE, FILE, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == DATA
    objects.delete(SHARE)
    with pytest.raises(CorruptPart, match="is missing"):
        objects.bring(SHARE, FILE, tmp_path / "copy")
    objects.delete(SHARE)


@pytest.mark.parametrize("leaving", [False, True], ids=["gone", "empty"])
def test_of_a_store_that_is_not_there_nothing_is_missing_or_deleted(
    objects: ShareObjects, tmp_path: Path, leaving: bool
) -> None:
    unmount(tmp_path, leaving=leaving)
    with pytest.raises(StoreError, match="is its disk mounted"):
        objects.bring(SHARE, FILE, tmp_path / "copy")
    with pytest.raises(StoreError, match="is its disk mounted"):
        objects.delete(SHARE)


def test_nothing_is_put_where_the_store_is_not(objects: ShareObjects, tmp_path: Path) -> None:
    (tmp_path / FILE.name).write_bytes(DATA)
    manifest = PartManifest(
        partition="all", rows=1, bytes=len(DATA), schema_version=0, files=(FILE,), content_hash="0" * 32, share=SHARE
    )
    unmount(tmp_path, leaving=True)
    with pytest.raises(StoreError, match="is its disk mounted"):
        objects.put(SHARE, tmp_path, manifest)
    assert list((tmp_path / "objects").iterdir()) == []


def test_another_store_in_its_place_is_not_it(objects: ShareObjects, tmp_path: Path) -> None:
    unmount(tmp_path, leaving=True)
    other = open_store(f"file://{tmp_path}/objects")
    assert store_id(other) != objects.store_id
    with pytest.raises(StoreError, match="another store"):
        objects.delete(SHARE)


LENDER = "6" * 32


def lending(objects: ShareObjects, **changes: str) -> PartManifest:
    """Put the manifest of a share that has the file, and of one whose part borrows it; return the latter."""
    lent = PartManifest(
        partition="all", rows=1, bytes=len(DATA), schema_version=0, files=(FILE,), content_hash="0" * 32
    )
    entry = msgspec.structs.replace(FILE, **changes)
    objects.store.create(objects.key(SHARE, MANIFEST_FILE), msgspec.structs.replace(lent, files=(entry,)).encode())
    borrowing = lent.shared_as(LENDER, {FILE.name: SHARE})
    objects.put(LENDER, Path("nowhere"), borrowing)
    return borrowing


def test_a_part_that_borrows_is_here_when_its_lender_is(objects: ShareObjects) -> None:
    borrowing = lending(objects)
    assert objects.is_here(borrowing)
    objects.store.delete([objects.key(SHARE, MANIFEST_FILE)])
    assert not objects.is_here(borrowing)


def test_a_lender_with_another_file_of_this_name_is_not_the_one(objects: ShareObjects) -> None:
    assert not objects.is_here(lending(objects, checksum="0" * 32))


def test_the_files_of_a_part_and_its_lender_are_looked_at_together() -> None:
    """As many requests as there are meet in the store before the first of them is answered."""
    files = tuple(msgspec.structs.replace(FILE, name=f"data-{number}.parquet") for number in range(4))
    part = PartManifest(partition="all", rows=4, bytes=16, schema_version=0, files=files, content_hash="0" * 32)
    borrowing = part.shared_as(LENDER, {FILE.name: SHARE})
    with S3Server() as server:
        objects = ShareObjects(lambda: open_store(server.url(), environment=KEYS), "t1")
        for file in borrowing.files:
            objects.store.create(objects.key(str(borrowing.share_of(file)), file.name), DATA)
        objects.store.create(objects.key(SHARE, MANIFEST_FILE), part.encode())
        objects.store.create(objects.key(LENDER, MANIFEST_FILE), borrowing.encode())
        server.state.arrives = meeting(6)  # four files and two manifests
        assert objects.is_here(borrowing)
        server.state.arrives = meeting(4)
        assert objects.has_files(borrowing)
        server.state.arrives = lambda _: None
        objects.store.delete([objects.key(SHARE, FILE.name)])
        assert not objects.is_here(borrowing)


def test_a_borrowed_file_that_is_missing_is_not_here(objects: ShareObjects) -> None:
    borrowing = lending(objects)
    objects.store.delete([objects.key(SHARE, FILE.name)])
    assert not objects.is_here(borrowing)
