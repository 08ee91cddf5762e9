"""Whether a share can be taken over: told by reading what is in the store here, not by its name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import xxhash

from replitree.errors import StoreError
from replitree.storage.disk.store import PartStore
from replitree.storage.objects import open_store, store_id
from replitree.storage.parts.manifest import MANIFEST_FILE, FileEntry, PartManifest
from replitree.storage.shares.shares import ShareObjects

SHARE, LENT = "5" * 32, "6" * 32
OWN, BORROWED = "data-1.parquet", "data-0.parquet"


def entry(name: str, data: bytes) -> FileEntry:
    return FileEntry(name, 1, len(data), xxhash.xxh3_128_hexdigest(data))


def manifest_of(*files: FileEntry) -> PartManifest:
    size = sum(file.bytes for file in files)
    return PartManifest(
        partition="all", rows=len(files), bytes=size, schema_version=0, files=files, content_hash="0" * 32
    )


class Places:
    """A store with a part that borrows a file of another one, and a copy of that store: the one that is reached from here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        source = ShareObjects(lambda: open_store(f"file://{folder}/there"), "t1")
        store_id(source.store)
        work = folder / "work"
        work.mkdir()
        lent, own = entry(BORROWED, b"lent rows"), entry(OWN, b"rows")
        (work / BORROWED).write_bytes(b"lent rows")
        (work / OWN).write_bytes(b"rows")
        source.put(LENT, work, manifest_of(lent).shared_as(LENT))
        self.manifest = manifest_of(lent, own).shared_as(SHARE, {BORROWED: LENT})
        source.put(SHARE, work, self.manifest)
        shutil.copytree(folder / "there", folder / "here")
        self.objects = ShareObjects(lambda: open_store(f"file://{folder}/here"), "t1")
        self.objects.store_id = store_id(self.objects.store)
        self.disk = PartStore(folder / "disk")
        self.disk.shared.objects = self.objects

    def path(self, share: str, file: str) -> Path:
        return self.folder / "here" / self.objects.key(share, file)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def without_share(places: Places) -> None:
    shutil.rmtree(places.path(SHARE, OWN).parent)


def with_another_manifest(places: Places) -> None:
    """The same key, of another store: equal sizes, other rows."""
    other = msgspec.structs.replace(places.manifest, content_hash="1" * 32)
    _overwrite(places.path(SHARE, MANIFEST_FILE), other.encode())


def without_a_file(places: Places) -> None:
    places.path(SHARE, OWN).unlink()


def with_a_shorter_file(places: Places) -> None:
    _overwrite(places.path(SHARE, OWN), b"row")


def without_the_lender(places: Places) -> None:
    places.path(LENT, MANIFEST_FILE).unlink()


def with_another_lender(places: Places) -> None:
    _overwrite(places.path(LENT, MANIFEST_FILE), manifest_of(entry(BORROWED, b"sent rows")).shared_as(LENT).encode())


def without_a_borrowed_file(places: Places) -> None:
    places.path(LENT, BORROWED).unlink()


def _overwrite(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


HARMS = (
    without_share,
    with_another_manifest,
    without_a_file,
    with_a_shorter_file,
    without_the_lender,
    with_another_lender,
    without_a_borrowed_file,
)


def test_what_is_here_whole_can_be_taken_over(places: Places) -> None:
    assert places.objects.is_here(places.manifest)
    assert places.disk.fetched.can_take_over(places.manifest)


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_what_is_not_here_whole_is_not_taken_over(places: Places, harm: Callable[[Places], None]) -> None:
    harm(places)
    assert not places.objects.is_here(places.manifest)
    assert not places.disk.fetched.can_take_over(places.manifest)


def believes_the_name(objects: ShareObjects, manifest: PartManifest) -> bool:
    """Mutant: takes whatever it is sent."""
    return manifest.share_id is not None and bool(objects.root)


def asks_for_the_manifest(objects: ShareObjects, manifest: PartManifest) -> bool:
    """Mutant: an object with the key of the manifest is enough."""
    return objects.store.get(objects.key(str(manifest.share_id), MANIFEST_FILE)) is not None


def compares_manifests_only(objects: ShareObjects, manifest: PartManifest) -> bool:
    """Mutant: looks at no data file."""
    return objects.store.get(objects.key(str(manifest.share_id), MANIFEST_FILE)) == manifest.encode()


def looks_at_files_only(objects: ShareObjects, manifest: PartManifest) -> bool:
    """Mutant: compares no manifest."""
    return objects.has_files(manifest)


def believes_lenders(objects: ShareObjects, manifest: PartManifest) -> bool:
    """Mutant: looks only at the part's own share, and at sizes."""
    return compares_manifests_only(objects, manifest) and objects.has_files(manifest)


@pytest.mark.parametrize(
    ("mutant", "missed"),
    [
        (believes_the_name, HARMS),
        (asks_for_the_manifest, [each for each in HARMS if each is not without_share]),
        (compares_manifests_only, [each for each in HARMS if each not in (without_share, with_another_manifest)]),
        (looks_at_files_only, [with_another_manifest, without_the_lender, with_another_lender]),
        (believes_lenders, [without_the_lender, with_another_lender]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_who_looks_at_less_takes_over_what_is_not_here(
    tmp_path: Path, mutant: Callable[[ShareObjects, PartManifest], bool], missed: list[Callable[[Places], None]]
) -> None:
    taken = []
    for harm in HARMS:
        folder = tmp_path / harm.__name__
        folder.mkdir()
        places = Places(folder)
        harm(places)
        if mutant(places.objects, places.manifest):
            taken.append(harm)
    assert taken == list(missed)


def test_a_share_that_was_found_broken_is_not_taken_over_again(places: Places) -> None:
    places.disk.shared.distrust(LENT, "data-0.parquet")
    assert not places.disk.fetched.can_take_over(places.manifest)


def test_of_a_store_that_gives_no_answer_nothing_is_taken_over(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_answer(_manifest: PartManifest) -> bool:
        raise StoreError("the store gave no answer")

    monkeypatch.setattr(places.objects, "is_here", no_answer)
    assert not places.disk.fetched.can_take_over(places.manifest)


def test_a_disk_without_a_store_takes_nothing_over(places: Places) -> None:
    places.disk.shared.objects = None
    assert not places.disk.fetched.can_take_over(places.manifest)
