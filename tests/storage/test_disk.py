from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.errors import BadInput, CorruptPart, InvalidName, StoreError, UnsupportedFormat
from replitree.storage.disk import folders as disk_folders
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest
from tests.storage.crashing import Crash, CrashingDisk
from tests.storage.support import bench_table

DEFINITION = bench_table(partition_by="k")
NAMES = {"1": "1_7_7_0", "2": "2_7_7_0"}


@pytest.fixture
def store(tmp_path: Path) -> PartStore:
    return PartStore(tmp_path / "table")


def stage(store: PartStore, staging: str = "s1", keys: tuple[int, ...] = (1, 2), text: str = "x") -> list[PartManifest]:
    rows = pa.table({"d": pa.nulls(len(keys)), "k": list(keys), "v": [0.5] * len(keys), "s": [text] * len(keys)})
    prefix = store.staging_prefix(staging)
    return list(stage_table(rows.cast(DEFINITION.arrow_schema), DEFINITION, store.staging, prefix=prefix))


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


# --- publish ----------------------------------------------------------------------------------------------------------------


def test_publish_gives_staged_parts_their_names(store: PartStore) -> None:
    staged = stage(store)
    assert store.stagings() == ("s1",)
    assert store.staged.publish("s1", NAMES) == ()
    assert store.parts() == ("1_7_7_0", "2_7_7_0")
    assert store.stagings() == ()
    assert [store.manifest(part) for part in store.parts()] == staged
    assert [store.verify(part) for part in store.parts()] == staged


def test_publish_again_changes_nothing(store: PartStore) -> None:
    stage(store)
    store.staged.publish("s1", NAMES)
    assert store.staged.publish("s1", NAMES) == ()
    assert PartStore(store.root).staged.publish("s1", NAMES) == ()
    assert store.parts() == ("1_7_7_0", "2_7_7_0")


def test_publish_tells_which_parts_are_nowhere(store: PartStore) -> None:
    stage(store, keys=(1,))
    assert store.staged.publish("s1", NAMES) == ("2_7_7_0",)
    assert store.staged.publish("never", NAMES) == ("2_7_7_0",)
    assert store.parts() == ("1_7_7_0",)


@pytest.mark.parametrize("file", ["data-0.parquet", MANIFEST_FILE])
def test_publish_does_not_take_a_staged_part_that_is_not_whole(store: PartStore, file: str) -> None:
    stage(store)
    path = store.staged_path("s1", "2") / file
    path.write_bytes(path.read_bytes()[:-1])
    assert store.staged.publish("s1", NAMES) == ("2_7_7_0",)
    assert store.parts() == ("1_7_7_0",)
    assert store.stagings() == ("s1",)


def test_publish_does_not_take_a_part_of_another_partition(store: PartStore) -> None:
    stage(store)
    store.staged_path("s1", "2").rename(store.staged_path("s1", "3"))
    assert store.staged.publish("s1", {"3": "3_7_7_0"}) == ("3_7_7_0",)


def test_publish_puts_a_damaged_part_aside_for_a_staged_one(store: PartStore) -> None:
    stage(store)
    store.staged.publish("s1", NAMES)
    store.file_path("1_7_7_0", "data-0.parquet").unlink()
    stage(store, "s2")
    assert PartStore(store.root).staged.publish("s2", NAMES) == ()
    assert store.detached() == ("broken_1_7_7_0_0",)
    store.verify("1_7_7_0")


def test_publish_can_be_repeated_after_a_crash_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _publish_until(tmp_path / "all", None, monkeypatch, forgets=False)
    assert steps == [
        "rename s1@1",
        "rename s1@2",
        "sync_folder parts",
    ]
    for stop in range(len(steps)):
        for forgets in (False, True):
            _publish_until(tmp_path / f"{stop}-{forgets}", stop, monkeypatch, forgets=forgets)


def _publish_until(root: Path, stop: int | None, monkeypatch: pytest.MonkeyPatch, *, forgets: bool) -> list[str]:
    store = PartStore(root)
    staged = stage(store)
    with monkeypatch.context() as patch:
        disk_ = CrashingDisk(patch, stop)
        try:
            store.staged.publish("s1", NAMES)
        except Crash:
            if forgets:
                disk_.forget_unsynced()
    again = PartStore(root)
    assert again.staged.publish("s1", NAMES) == ()
    assert [again.verify(part) for part in again.parts()] == staged
    assert again.stagings() == ()
    return disk_.steps


# --- staging --------------------------------------------------------------------------------------------------------------


def test_staging_is_removed_with_everything_in_it_and_again(store: PartStore) -> None:
    stage(store)
    store.staged.remove("s1")
    store.staged.remove("s1")
    assert store.stagings() == ()
    assert list(store.staging.iterdir()) == []


def upload(folder: Path, keys: tuple[int, ...] = (1, 2)) -> list[PartManifest]:
    """Write what a client uploads: files without manifests."""
    rows = pa.table({"d": pa.nulls(len(keys)), "k": list(keys), "v": [0.5] * len(keys), "s": ["x"] * len(keys)})
    manifests = list(stage_table(rows.cast(DEFINITION.arrow_schema), DEFINITION, folder))
    for manifest in manifests:
        (folder / manifest.partition / MANIFEST_FILE).unlink()
    return manifests


def test_an_upload_is_sealed_only_when_its_files_are_what_they_should_be(store: PartStore, tmp_path: Path) -> None:
    manifests = upload(tmp_path / "up")
    path = tmp_path / "up" / "2" / "data-0.parquet"
    whole = path.read_bytes()
    damage(path)
    with pytest.raises(CorruptPart, match="checksum"):
        store.staged.seal_upload(tmp_path / "up", manifests)
    path.write_bytes(whole)
    store.staged.seal_upload(tmp_path / "up", manifests)
    store.staged.seal_upload(tmp_path / "up", manifests)
    store.staged.adopt(tmp_path / "up", "s1")
    assert store.staged.publish("s1", NAMES) == ()


def test_an_upload_can_be_adopted_again_after_a_crash_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = _adopt_until(tmp_path / "all", None, monkeypatch)
    assert steps == ["rename 1", "rename 2", "sync_folder staging", "remove_folder up"]
    for stop in range(len(steps)):
        _adopt_until(tmp_path / str(stop), stop, monkeypatch)


def _adopt_until(root: Path, stop: int | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    store = PartStore(root)
    store.staged.seal_upload(root / "up", upload(root / "up"))
    with monkeypatch.context() as patch, contextlib.suppress(Crash):
        disk_ = CrashingDisk(patch, stop)
        store.staged.adopt(root / "up", "s1")
    store.staged.adopt(root / "up", "s1")
    assert not (root / "up").exists()
    assert store.staged.publish("s1", NAMES) == ()
    return disk_.steps


def test_an_upload_with_a_manifest_that_lies_is_refused(store: PartStore, tmp_path: Path) -> None:
    (manifest,) = upload(tmp_path / "up", keys=(1,))
    import msgspec

    with pytest.raises(BadInput, match="contradicts itself"):
        store.staged.seal_upload(tmp_path / "up", [msgspec.structs.replace(manifest, rows=99)])


# --- fetch ----------------------------------------------------------------------------------------------------------------


def _copy_to_fetch(source: PartStore, part: str, target: PartStore) -> Path:
    folder = target.fetched.begin(part)
    shutil.copytree(source.part_path(part), folder, dirs_exist_ok=True)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> PartStore:
    source = PartStore(tmp_path / "source")
    stage(source)
    source.staged.publish("s1", NAMES)
    return source


def test_a_fetched_part_is_published_when_its_checksums_hold(source: PartStore, store: PartStore) -> None:
    _copy_to_fetch(source, "1_7_7_0", store)
    assert store.fetches() == ("1_7_7_0",)
    assert store.stagings() == ()
    expected = source.manifest("1_7_7_0")
    assert store.fetched.finish("1_7_7_0", expected.content) == expected
    assert (store.parts(), store.fetches()) == (("1_7_7_0",), ())
    assert store.fetched.finish("1_7_7_0", expected.content) == expected


def test_a_damaged_file_is_fetched_again_and_the_others_are_kept(source: PartStore, store: PartStore) -> None:
    folder = _copy_to_fetch(source, "1_7_7_0", store)
    damage(folder / "data-0.parquet")
    with pytest.raises(CorruptPart):
        store.fetched.finish("1_7_7_0")
    assert [path.name for path in store.fetched.begin("1_7_7_0").iterdir()] == [MANIFEST_FILE]
    shutil.copy(source.file_path("1_7_7_0", "data-0.parquet"), folder)
    store.fetched.finish("1_7_7_0")


def test_a_fetched_part_with_other_content_than_the_log_says_is_thrown_away(
    source: PartStore, store: PartStore
) -> None:
    _copy_to_fetch(source, "1_7_7_0", store)
    with pytest.raises(CorruptPart, match="the log says"):
        store.fetched.finish("1_7_7_0", "0" * 32)
    assert store.fetches() == ()
    shutil.copytree(source.part_path("1_7_7_0"), store.fetched.begin("2_7_7_0"), dirs_exist_ok=True)
    with pytest.raises(CorruptPart, match="of partition 1"):
        store.fetched.finish("2_7_7_0")


def test_a_part_with_other_content_makes_way_for_the_right_one(source: PartStore, store: PartStore) -> None:
    stage(store, text="something else")
    store.staged.publish("s1", NAMES)
    expected = source.manifest("1_7_7_0")
    _copy_to_fetch(source, "1_7_7_0", store)
    assert store.fetched.finish("1_7_7_0", expected.content) == expected
    assert store.verify("1_7_7_0") == store.manifest("1_7_7_0") == expected
    assert store.detached() == ("broken_1_7_7_0_0",)


def test_a_fetch_can_be_repeated_after_a_crash_at_every_step(
    source: PartStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = _fetch_until(source, tmp_path / "all", None, monkeypatch, forgets=False)
    assert steps == [
        "sync_part fetch-1_7_7_0",
        "rename fetch-1_7_7_0",
        "sync_folder parts",
    ]
    for stop in range(len(steps)):
        for forgets in (False, True):
            _fetch_until(source, tmp_path / f"{stop}-{forgets}", stop, monkeypatch, forgets=forgets)


def _fetch_until(
    source: PartStore, root: Path, stop: int | None, monkeypatch: pytest.MonkeyPatch, *, forgets: bool
) -> list[str]:
    store = PartStore(root)
    _copy_to_fetch(source, "1_7_7_0", store)
    with monkeypatch.context() as patch:
        disk_ = CrashingDisk(patch, stop)
        try:
            store.fetched.finish("1_7_7_0")
        except Crash:
            if forgets:
                disk_.forget_unsynced()
    again = PartStore(root)
    if not again.has_part("1_7_7_0"):
        assert again.fetches() == ("1_7_7_0",)
    again.fetched.finish("1_7_7_0")
    again.verify("1_7_7_0")
    assert again.fetches() == ()
    return disk_.steps


def test_a_name_that_was_not_synced_is_synced_by_the_next_try(
    source: PartStore, store: PartStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _copy_to_fetch(source, "1_7_7_0", store)
    with monkeypatch.context() as patch:
        CrashingDisk(patch, stop=2)  # renamed, not synced
        with pytest.raises(Crash):
            store.fetched.finish("1_7_7_0")
    again = PartStore(store.root)
    assert again.has_part("1_7_7_0")
    with monkeypatch.context() as patch:
        disk_ = CrashingDisk(patch, stop=None)
        again.fetched.finish("1_7_7_0")
    assert disk_.steps[-1] == "sync_folder parts"


def test_an_abandoned_fetch_leaves_nothing(source: PartStore, store: PartStore) -> None:
    _copy_to_fetch(source, "1_7_7_0", store)
    store.fetched.abandon("1_7_7_0")
    store.fetched.abandon("1_7_7_0")
    assert store.fetches() == ()


# --- health ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["data-0.parquet", MANIFEST_FILE])
def test_a_changed_byte_is_detected_and_the_part_taken_out(store: PartStore, file: str) -> None:
    stage(store)
    store.staged.publish("s1", NAMES)
    damage(store.file_path("1_7_7_0", file))
    with pytest.raises((CorruptPart, UnsupportedFormat)):
        store.verify("1_7_7_0")
    moved = store.quarantine("1_7_7_0", "a byte changed")
    assert moved is not None
    assert (moved / "reason.txt").read_text() == "a byte changed\n"
    assert store.parts() == ("2_7_7_0",)
    with pytest.raises(CorruptPart, match="missing"):
        store.manifest("1_7_7_0")


@pytest.mark.parametrize("cut", [0, 10])
def test_a_missing_or_short_file_is_detected_without_reading(store: PartStore, cut: int) -> None:
    stage(store)
    store.staged.publish("s1", NAMES)
    path = store.file_path("1_7_7_0", "data-0.parquet")
    if cut:
        path.write_bytes(path.read_bytes()[:-cut])
    else:
        path.unlink()
    assert not store.has_part("1_7_7_0")
    assert store.has_part("2_7_7_0")
    with pytest.raises(CorruptPart):
        store.verify("1_7_7_0")


def test_parts_taken_out_again_and_again_are_all_kept_until_deleted(store: PartStore) -> None:
    for number in range(3):
        stage(store, f"s{number}", keys=(1,))
        store.staged.publish(f"s{number}", {"1": "1_7_7_0"})
        assert store.detach("1_7_7_0") is not None
    assert store.detach("1_7_7_0") is None
    assert store.quarantine("1_7_7_0", "gone") is None
    assert store.detached() == tuple(f"removed_1_7_7_0_{n}" for n in range(3))
    store.remove_detached("removed_1_7_7_0_1")
    store.remove_detached("../parts")
    assert store.detached() == ("removed_1_7_7_0_0", "removed_1_7_7_0_2")


def test_manifests_in_memory_are_bounded(store: PartStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_folders, "MANIFESTS_CACHED_MAX", 1)
    stage(store)
    store.staged.publish("s1", NAMES)
    for _ in range(2):
        assert [store.manifest(part).partition for part in store.parts()] == ["1", "2"]
    store.file_path("1_7_7_0", MANIFEST_FILE).unlink()
    assert store.manifest("2_7_7_0").partition == "2"
    with pytest.raises(CorruptPart):
        store.manifest("1_7_7_0")


def test_room_on_the_disk_is_known_and_probed(store: PartStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.free_bytes() > 0
    store.probe()

    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match="disk is full"):
        store.probe()
    monkeypatch.undo()
    store.probe()
    assert store.stagings() == ()


def test_a_failing_disk_is_a_store_error_and_publish_goes_on_later(
    store: PartStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = stage(store)

    def refuse(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(disk_folders, "sync_folder", refuse)
        with pytest.raises(StoreError, match="failing"):
            store.staged.publish("s1", NAMES)
    assert store.staged.publish("s1", NAMES) == ()
    assert [store.verify(part) for part in store.parts()] == staged


def test_several_threads_may_use_a_store(store: PartStore) -> None:
    def work(number: int) -> None:
        stage(store, f"s{number}", keys=(number,))
        store.staged.publish(f"s{number}", {str(number): f"{number}_{number}_{number}_0"})
        store.manifest(f"{number}_{number}_{number}_0")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.parts()) == 8


# --- names ----------------------------------------------------------------------------------------------------------------

EVIL = ["", ".", "..", "../x", "a/b", "/etc", "a\x00b", "a\nb", "..\\x", "x" * 300]


@pytest.mark.parametrize("name", [*EVIL, "all", "all_1_1", "../all_1_1_0", ".._1_1_0", "all_1_1_0/", "all_\u0661_1_0"])
def test_names_that_are_no_parts_are_refused(store: PartStore, name: str) -> None:
    for use in (store.part_path, store.manifest, store.verify, store.fetched.begin, store.fetched.finish, store.detach):
        with pytest.raises(BadInput):
            use(name)
    with pytest.raises(BadInput):
        store.staged.publish("s1", {"all": name})


@pytest.mark.parametrize("name", [*EVIL, "fetch-all_1_1_0", ".probe", "-x"])
def test_names_that_are_no_staging_ids_are_refused(store: PartStore, name: str) -> None:
    with pytest.raises(InvalidName):
        store.staging_prefix(name)
    with pytest.raises(InvalidName):
        store.staged.remove(name)


@pytest.mark.parametrize(
    "name", [*EVIL, "data-.parquet", "data-01.parquet", "data-0.parquet.tmp", "other", "data-1\n.parquet"]
)
def test_names_that_are_no_files_of_parts_are_refused(store: PartStore, name: str) -> None:
    with pytest.raises(InvalidName):
        store.file_path("all_1_1_0", name)


@pytest.mark.parametrize("name", [*EVIL, ".x", "a_b", "~ä"])
def test_names_that_are_no_partitions_are_refused(store: PartStore, name: str) -> None:
    with pytest.raises(InvalidName):
        store.staged_path("s1", name)


def test_links_are_not_followed(store: PartStore, tmp_path: Path) -> None:
    stage(store)
    store.staged.publish("s1", NAMES)
    outside = tmp_path / "outside"
    store.part_path("1_7_7_0").rename(outside)
    store.part_path("1_7_7_0").symlink_to(outside)
    assert store.parts() == ("2_7_7_0",)
    assert not store.has_part("1_7_7_0")
    assert store.detach("1_7_7_0") is None
    path = store.file_path("2_7_7_0", "data-0.parquet")
    path.rename(tmp_path / "data")
    path.symlink_to(tmp_path / "data")
    assert not store.has_part("2_7_7_0")
    with pytest.raises(CorruptPart):
        store.verify("2_7_7_0")
    store.staged_path("s9", "1").symlink_to(outside)
    store.staged.remove("s9")
    assert (outside / MANIFEST_FILE).exists()


def test_a_folder_of_the_table_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "table" / "parts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="links"):
        PartStore(tmp_path / "table")


def test_what_is_no_part_in_the_folder_is_not_listed(store: PartStore) -> None:
    (store.root / "parts" / "lost+found").mkdir()
    (store.root / "parts" / "file").write_text("x")
    stage(store)
    store.staged.publish("s1", NAMES)
    assert store.parts() == ("1_7_7_0", "2_7_7_0")
