"""Small parts that come whole from another replica: checked, and made durable together."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.errors import CorruptPart, StoreError
from replitree.storage.disk import folders as disk_folders
from replitree.storage.disk.fetch import ReceivedPart
from replitree.storage.disk.store import PartStore
from tests.storage.crashing import Crash, CrashingDisk
from tests.storage.test_disk import NAMES, stage


@pytest.fixture
def store(tmp_path: Path) -> PartStore:
    return PartStore(tmp_path / "table")


@pytest.fixture
def source(tmp_path: Path) -> PartStore:
    source = PartStore(tmp_path / "source")
    stage(source)
    source.staged.publish("s1", NAMES)
    return source


def _receive(source: PartStore, target: PartStore, part: str, content_hash: str | None = None) -> ReceivedPart:
    manifest = source.manifest(part)
    files = [source.file_path(part, file.name).read_bytes() for file in manifest.files]
    return target.fetched.receive(part, manifest, manifest.encode(), content_hash or manifest.content, files)


def test_small_parts_that_arrive_together_are_published_together(source: PartStore, store: PartStore) -> None:
    batch = [_receive(source, store, part) for part in source.parts()]
    assert len(batch) == 2
    assert (store.parts(), store.fetches()) == ((), source.parts())
    store.fetched.publish(batch)
    assert (store.parts(), store.fetches()) == (source.parts(), ())
    for part in source.parts():
        assert store.verify(part) == source.manifest(part)
    store.fetched.publish([_receive(source, store, part) for part in source.parts()])
    assert (store.parts(), store.fetches(), store.detached()) == (source.parts(), (), ())


def test_a_small_part_that_arrives_damaged_is_not_written(source: PartStore, store: PartStore) -> None:
    manifest = source.manifest("1_7_7_0")
    files = [source.file_path("1_7_7_0", file.name).read_bytes() for file in manifest.files]
    raw = manifest.encode()
    with pytest.raises(CorruptPart, match="as its checksum says"):
        store.fetched.receive("1_7_7_0", manifest, raw, manifest.content, [files[0][:-1] + b"?"])
    with pytest.raises(CorruptPart, match="as its checksum says"):
        store.fetched.receive("1_7_7_0", manifest, raw, manifest.content, [files[0][:-1]])
    with pytest.raises(CorruptPart, match="the log says"):
        store.fetched.receive("1_7_7_0", manifest, raw, "0" * 32, files)
    with pytest.raises(CorruptPart, match="of partition 1"):
        store.fetched.receive("2_7_7_0", manifest, raw, None, files)
    assert store.fetches() == ()


def test_a_part_with_other_content_makes_way_for_one_that_arrives_whole(source: PartStore, store: PartStore) -> None:
    stage(store, text="something else")
    store.staged.publish("s1", NAMES)
    store.fetched.publish([_receive(source, store, "1_7_7_0")])
    assert store.verify("1_7_7_0") == source.manifest("1_7_7_0")
    assert store.detached() == ("broken_1_7_7_0_0",)


def test_parts_that_arrive_together_can_be_received_again_after_a_crash_at_every_step(
    source: PartStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = _receive_until(source, tmp_path / "all", None, monkeypatch, forgets=False)
    assert [step.partition(" ")[0] for step in steps] == [
        *("write_file",) * 4,
        "sync_parts",
        *("rename",) * 2,
        "sync_folder",
    ]
    assert steps[-1] == "sync_folder parts"
    for stop in range(len(steps)):
        for forgets in (False, True):
            _receive_until(source, tmp_path / f"{stop}-{forgets}", stop, monkeypatch, forgets=forgets)


def _receive_until(
    source: PartStore, root: Path, stop: int | None, monkeypatch: pytest.MonkeyPatch, *, forgets: bool
) -> list[str]:
    store = PartStore(root)
    with monkeypatch.context() as patch:
        disk_ = CrashingDisk(patch, stop)
        try:
            store.fetched.publish([_receive(source, store, part) for part in source.parts()])
        except Crash:
            if forgets:
                disk_.forget_unsynced()
    again = PartStore(root)
    for part in again.parts():
        assert again.verify(part) == source.manifest(part)
    again.fetched.publish([_receive(source, again, part) for part in source.parts()])
    assert (again.parts(), again.fetches(), again.detached()) == (source.parts(), (), ())
    return disk_.steps


def test_what_was_synced_ahead_is_not_synced_again(
    source: PartStore, store: PartStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (_receive(source, store, part) for part in source.parts())
    with monkeypatch.context() as patch:
        counted = CrashingDisk(patch, None)
        one = store.fetched.sync_received(one)
        assert counted.steps == ["sync_parts 1 files"]
        assert store.parts() == ()
        store.fetched.publish([one, other])
        assert counted.steps[1] == "sync_parts 1 files"
    assert store.parts() == source.parts()


def test_names_are_synced_once_and_again_after_a_failure(store: PartStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise OSError("no")

    stage(store)
    store.staged.publish("s1", NAMES, sync_names=False)
    with monkeypatch.context() as patch:
        patch.setattr(disk_folders, "sync_folder", refuse)
        with pytest.raises(StoreError, match="no"):
            store.sync_names()
    with monkeypatch.context() as patch:
        counted = CrashingDisk(patch, None)
        store.sync_names()
        store.sync_names()
        assert store.staged.publish("s1", NAMES) == ()
        assert counted.steps == ["sync_folder parts"]


def test_a_name_that_is_given_during_a_sync_is_synced_by_the_next_one(
    source: PartStore, store: PartStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = [_receive(source, store, "1_7_7_0")]
    stage(store, keys=(2,))
    synced: list[tuple[str, ...]] = []

    def sync(folder: Path) -> None:
        if folder == store.root / "parts":
            synced.append(store.parts())
            if len(synced) == 1:
                store.staged.publish("s1", {"2": "2_7_7_0"}, sync_names=False)

    monkeypatch.setattr(disk_folders, "sync_folder", sync)
    store.fetched.publish(batch)
    store.sync_names()
    store.sync_names()
    assert synced == [("1_7_7_0",), ("1_7_7_0", "2_7_7_0")]
