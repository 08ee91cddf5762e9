"""Copies of parts on a disk: found wherever they lie, verified byte by byte, and put back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from replitree.errors import CorruptPart, StoreError, UnsupportedFormat
from replitree.storage.disk import copies as disk_copies
from replitree.storage.disk import packs
from replitree.storage.disk.copies import put_back, put_back_packed, search
from replitree.storage.disk.packs import PackedPart
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest
from tests.storage.test_disk import NAMES, damage, stage

PART = "1_7_7_0"
FILE = "data-0.parquet"


@pytest.fixture
def store(tmp_path: Path) -> PartStore:
    """Two parts, of which one is then gone."""
    made = PartStore(tmp_path / "table")
    stage(made)
    made.staged.publish("s1", NAMES)
    return made


def taken(store: PartStore) -> PartManifest:
    """Take the part out of its place, into `detached`; return its manifest."""
    manifest = store.manifest(PART)
    assert store.quarantine(PART, "for a test") is not None
    return manifest


def copy_of(store: PartStore, manifest: PartManifest) -> dict[str, Path] | None:
    return search(store).files_of(manifest)


def test_a_copy_is_put_back_by_a_link_and_stays_where_it_is(store: PartStore) -> None:
    manifest = taken(store)
    copies = search(store)
    assert copies.manifests_of(PART, manifest.content) == (manifest,)
    files = copies.files_of(manifest)
    assert files is not None
    assert put_back(store, PART, manifest, files) == manifest
    assert store.verify(PART) == manifest
    assert store.file_path(PART, FILE).samefile(files[FILE])
    assert copy_of(store, manifest) is not None


@pytest.mark.parametrize(
    "place", ["leaving/x_0", "detached/broken_1_7_7_0_7", "frozen/kept/1_7_7_0", "parts/1_90_90_0"]
)
def test_a_copy_is_found_wherever_it_lies(store: PartStore, place: str) -> None:
    manifest = store.manifest(PART)
    target = store.root / place
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(store.part_path(PART), target)
    assert copy_of(store, manifest) == {FILE: target / FILE}


def test_a_damaged_copy_is_none_and_what_is_wrong_with_it_is_said(store: PartStore) -> None:
    manifest = taken(store)
    (name,) = store.detached()
    damage(store.root / "detached" / name / FILE)
    copies = search(store)
    assert copies.files_of(manifest) is None
    assert list(copies.unusable(PART, manifest.content).values()) == ["a data file is not what its checksum says"]
    (store.root / "detached" / name / FILE).unlink()
    assert list(search(store).unusable(PART, manifest.content).values()) == [f"{FILE} is missing"]


def test_files_and_manifest_may_lie_in_different_folders(store: PartStore) -> None:
    manifest = taken(store)
    (name,) = store.detached()
    other = store.root / "detached" / "by-hand"
    other.mkdir()
    (store.root / "detached" / name / FILE).rename(other / "data-7.parquet")
    copies = search(store)
    assert copies.manifests_of(PART, manifest.content) == (manifest,)
    assert copies.files_of(manifest) == {FILE: other / "data-7.parquet"}


def test_a_folder_without_a_manifest_has_files_that_count(store: PartStore) -> None:
    manifest = taken(store)
    (name,) = store.detached()
    (store.root / "detached" / name / MANIFEST_FILE).unlink()
    copies = search(store)
    assert copies.manifests_of(PART, manifest.content) == ()
    assert copies.files_of(manifest) is not None
    assert list(copies.unusable(PART, manifest.content).values()) == ["its manifest is missing or damaged"]


def test_a_copy_that_breaks_before_it_is_put_back_is_not_published(store: PartStore) -> None:
    manifest = taken(store)
    files = copy_of(store, manifest)
    assert files is not None
    damage(files[FILE])
    with pytest.raises(CorruptPart):
        put_back(store, PART, manifest, files)
    assert not store.has_part(PART)


def packed(store: PartStore, name: str = "5-9.zip") -> PartManifest:
    """Pack the part, and remove its folder; return its manifest."""
    manifest = store.manifest(PART)
    store.packs.stage(name, [PackedPart(PART, manifest.bytes)], 1.0)
    store.packs.publish(name)
    store.remove_parts((PART,))
    return manifest


def test_a_part_that_stands_whole_in_a_pack_is_put_back_and_stays_in_it(store: PartStore) -> None:
    content = packed(store).content
    found = search(store).packs
    assert put_back_packed(store, found, "1_4_4_0", content) is None
    assert put_back_packed(store, found, "1_8_8_0", content) is None
    assert put_back_packed(store, found, PART, "0" * 32) is None
    assert not store.has_part(PART)
    assert put_back_packed(store, found, PART, content) == "5-9.zip"
    assert store.verify(PART).content == content
    store.packs.verify("5-9.zip")
    assert list(store.staging.iterdir()) == []


def test_a_part_that_is_damaged_in_one_pack_comes_from_another_one(store: PartStore) -> None:
    data = store.file_path(PART, FILE).read_bytes()
    other = store.packs.path("7-7.zip")
    content = packed(store).content
    other.write_bytes(store.packs.path("5-9.zip").read_bytes())
    spoiled = bytearray(other.read_bytes())
    spoiled[spoiled.index(data) + 9] ^= 1
    store.packs.path("5-9.zip").write_bytes(spoiled)
    assert put_back_packed(store, ["4-9.zip", "5-9.zip"], PART, content) is None
    assert put_back_packed(store, search(store).packs, PART, content) == "7-7.zip"
    assert store.verify(PART).content == content


def test_a_pack_of_a_newer_version_may_have_the_part(store: PartStore, monkeypatch: pytest.MonkeyPatch) -> None:
    content = packed(store).content
    monkeypatch.setattr(packs, "FORMAT", 0)
    with pytest.raises(UnsupportedFormat):
        put_back_packed(store, search(store).packs, PART, content)


def test_a_folder_that_can_not_be_listed_ends_the_search(store: PartStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> PartManifest:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(disk_copies, "read_manifest", refused)
    with pytest.raises(StoreError, match="Permission denied"):
        search(store)
