"""What a part store does by hard links: clones, detached parts, frozen snapshots; and how parts leave for good."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from replitree.errors import BadInput, CorruptPart, InvalidName, UnsupportedFormat
from replitree.storage.disk.frozen import FROZEN_FILE, MAKING_PREFIX
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.manifest import MANIFEST_FILE
from tests.storage.crashing import Crash, CrashingDisk
from tests.storage.test_disk import DEFINITION, EVIL, NAMES, damage, stage

PART, OTHER = "1_7_7_0", "2_7_7_0"
CLONE = {"1": "1_7_7_0_9"}


@pytest.fixture
def store(tmp_path: Path) -> PartStore:
    return filled(tmp_path / "table")


def filled(root: Path) -> PartStore:
    store = PartStore(root)
    stage(store)
    store.staged.publish("s1", NAMES)
    return store


def is_same_file(one: Path, other: Path) -> bool:
    return one.samefile(other)


def until_it_is_done(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[PartStore], object],
    check: Callable[[PartStore], None],
    prepare: Callable[[PartStore], object] = PartStore.probe,
) -> list[str]:
    """Crash before each step of `act`, with and without the loss of what was not synced; then do it again, and check."""

    def run(root: Path, stop: int | None, *, forgets: bool) -> list[str]:
        store = filled(root)
        prepare(store)
        with monkeypatch.context() as patch:
            crashing = CrashingDisk(patch, stop)
            try:
                act(store)
            except Crash:
                if forgets:
                    crashing.forget_unsynced()
        again = PartStore(root)
        again.sweep()
        for part in again.parts():
            again.verify(part)
        act(again)
        check(again)
        assert (again.sweep(), list((root / "removing").iterdir())) == (0, [])
        return crashing.steps

    steps = run(tmp_path / "all", None, forgets=False)
    for stop in range(len(steps)):
        for forgets in (False, True):
            run(tmp_path / f"{stop}-{forgets}", stop, forgets=forgets)
    return steps


# --- clones -----------------------------------------------------------------------------------------------------------------


def test_a_linked_part_is_published_under_its_second_name_without_a_copy(store: PartStore) -> None:
    manifest = store.staged.link(PART, "m9", "1")
    assert store.staged.publish("m9", CLONE) == ()
    assert store.parts() == (PART, CLONE["1"], OTHER)
    assert store.verify(CLONE["1"]) == manifest == store.manifest(PART)
    assert is_same_file(store.file_path(PART, "data-0.parquet"), store.file_path(CLONE["1"], "data-0.parquet"))
    store.remove_parts((PART,))
    assert store.verify(CLONE["1"]) == manifest


def test_a_link_can_be_repeated_after_a_crash_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(store: PartStore) -> None:
        if not store.has_part(CLONE["1"]):
            store.staged.link(PART, "m9", "1")
        assert store.staged.publish("m9", CLONE) == ()

    def check(store: PartStore) -> None:
        assert store.verify(CLONE["1"]) == store.verify(PART)
        assert store.stagings() == ()

    assert until_it_is_done(tmp_path, monkeypatch, link, check) == [
        "remove_folder m9@1",
        "link_file data-0.parquet",
        "link_file manifest.json",
        "sync_folder m9@1",
        "sync_folder staging",
        "rename m9@1",
        "sync_folder parts",
    ]


def test_a_part_that_is_not_whole_or_of_another_partition_is_not_linked(store: PartStore) -> None:
    with pytest.raises(BadInput, match="of partition 1, not 2"):
        store.staged.link(PART, "m9", "2")
    with pytest.raises(CorruptPart, match="fetch"):
        store.staged.link("1_8_8_0", "m9", "1")
    store.file_path(PART, "data-0.parquet").unlink()
    with pytest.raises(CorruptPart):
        store.staged.link(PART, "m9", "1")
    assert store.stagings() == ()


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_links_are_not_possible_a_copy_is_made(
    store: PartStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    store.staged.link(PART, "m9", "1")
    store.staged.publish("m9", CLONE)
    assert store.verify(CLONE["1"]) == store.verify(PART)
    assert not is_same_file(store.file_path(PART, "data-0.parquet"), store.file_path(CLONE["1"], "data-0.parquet"))


def test_a_full_disk_while_linking_is_an_error_and_the_next_try_starts_anew(
    store: PartStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from replitree.errors import StoreError

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        with pytest.raises(StoreError, match="make room"):
            store.staged.link(PART, "m9", "1")
    store.staged.link(PART, "m9", "1")
    assert store.staged.publish("m9", CLONE) == ()


# --- removal ----------------------------------------------------------------------------------------------------------------


def test_removed_parts_are_gone_and_again(store: PartStore) -> None:
    assert store.remove_parts((PART, "1_8_8_0")) == (PART,)
    assert store.remove_parts((PART,)) == ()
    assert store.parts() == (OTHER,)
    assert list((store.root / "removing").iterdir()) == []
    with pytest.raises(CorruptPart):
        store.manifest(PART)


def test_a_removal_can_be_repeated_after_a_crash_at_every_step_and_never_shows_half_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(store: PartStore) -> None:
        assert store.parts() == ()

    steps = until_it_is_done(tmp_path, monkeypatch, lambda store: store.remove_parts((PART, OTHER)), check)
    assert steps == [
        f"rename {PART}",
        f"rename {OTHER}",
        "sync_folder removing",
        "sync_folder parts",
        f"remove_folder {PART}_0",
        f"remove_folder {OTHER}_0",
    ]


def test_a_repeated_removal_syncs_what_the_first_did_not(store: PartStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        CrashingDisk(patch, stop=1)  # renamed, nothing synced
        with pytest.raises(Crash):
            store.remove_parts((PART,))
    again = PartStore(store.root)
    with monkeypatch.context() as patch:
        crashing = CrashingDisk(patch, stop=None)
        again.remove_parts((PART,))
    assert crashing.steps == ["sync_folder removing", "sync_folder parts"]


def test_what_a_killed_removal_left_is_swept(store: PartStore) -> None:
    left = store.root / "removing" / f"{PART}_0"
    left.mkdir()
    (left / "data-0.parquet").write_bytes(b"x")
    assert store.sweep() == 1
    assert not left.exists()
    assert store.sweep() == 0


def kept_aside(store: PartStore, part: str) -> str:
    """Detach a part as a drop that keeps what it removes; return its name in `detached`."""
    (name,) = store.keep_aside((part,))
    store.remove_parts((part,))
    return name


# --- detached ---------------------------------------------------------------------------------------------------------------


def test_a_detached_part_can_be_attached_again_under_a_new_index(store: PartStore) -> None:
    manifest = store.manifest(PART)
    name = kept_aside(store, PART)
    assert (name, store.parts(), store.detached()) == (PART, (OTHER,), (name,))
    (found,) = store.attachable()
    assert (found.name, found.part, found.manifest, found.rows, found.bytes) == (
        name,
        PART,
        manifest,
        manifest.rows,
        manifest.bytes,
    )
    assert store.staged.attach(name, "a12") == manifest
    assert store.staged.publish("a12", {"1": "1_12_12_0"}) == ()
    store.remove_detached(name)
    assert store.verify("1_12_12_0") == manifest
    assert (store.detached(), store.attachable()) == ((), ())


def test_only_whole_parts_that_were_not_taken_out_as_wrong_are_attachable(store: PartStore) -> None:
    store.detach(PART)
    store.quarantine(OTHER, "test")
    stage(store, "s2")
    store.staged.publish("s2", NAMES)
    shutil.copytree(store.part_path(PART), store.root / "detached" / PART)
    (store.root / "detached" / "1_5_5_0").mkdir()
    (store.root / "detached" / "notes").mkdir()
    kept_aside(store, OTHER)
    assert [each.name for each in store.attachable()] == [PART, OTHER]
    assert store.detached() == (
        "1_5_5_0",
        PART,
        OTHER,
        f"broken_{OTHER}_0",
        "notes",
        f"removed_{PART}_0",
    )


def test_a_detached_part_that_has_changed_is_not_staged(store: PartStore) -> None:
    name = kept_aside(store, PART)
    damage(store.root / "detached" / name / "data-0.parquet")
    with pytest.raises(CorruptPart, match="checksum"):
        store.staged.attach(name, "a12")
    assert store.stagings() == ()


@pytest.mark.parametrize("name", [*EVIL, "1_5_5_0", "../parts/2_7_7_0"])
def test_what_is_not_detached_is_not_staged(store: PartStore, name: str) -> None:
    kept_aside(store, PART)
    with pytest.raises(BadInput, match=f"what can be attached: {PART}"):
        store.staged.attach(name, "a12")
    store.remove_detached(name)
    assert store.parts() == (OTHER,)


def test_detaching_and_attaching_can_be_repeated_after_a_crash_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def detach(store: PartStore) -> None:
        for part in (PART, OTHER):
            store.detach(part)

    def detached(store: PartStore) -> None:
        assert store.parts() == ()
        assert store.detached() == (f"removed_{PART}_0", f"removed_{OTHER}_0")

    steps = until_it_is_done(tmp_path / "d", monkeypatch, detach, detached)
    synced = ["sync_folder detached", "sync_folder parts"]
    assert steps == [f"rename {PART}", *synced, f"rename {OTHER}", *synced]

    def attach(store: PartStore) -> None:
        if not store.has_part("1_12_12_0"):
            store.staged.attach(PART, "a12")
        assert store.staged.publish("a12", {"1": "1_12_12_0"}) == ()
        store.remove_detached(PART)

    def attached(store: PartStore) -> None:
        store.verify("1_12_12_0")
        assert (store.attachable(), store.stagings()) == ((), ())

    steps = until_it_is_done(tmp_path / "a", monkeypatch, attach, attached, lambda store: kept_aside(store, PART))
    assert steps[:5] == [
        "remove_folder a12@1",
        "link_file data-0.parquet",
        "link_file manifest.json",
        "sync_folder a12@1",
        "sync_folder staging",
    ]


def test_a_part_that_is_dropped_is_kept_aside_and_stays_for_its_readers(store: PartStore) -> None:
    manifest = store.manifest(PART)
    assert store.keep_aside((PART,)) == store.keep_aside((PART,)) == (PART,)
    assert (store.parts(), store.detached()) == ((PART, OTHER), (PART,))
    store.remove_parts((PART,))
    assert store.keep_aside((PART,)) == (PART,)
    assert [each.manifest for each in store.attachable()] == [manifest]
    assert store.staged.attach(PART, "a12") == manifest
    with pytest.raises(CorruptPart, match="kept aside"):
        store.keep_aside(("1_8_8_0",))


def test_another_part_of_the_name_makes_way_and_is_kept_too(store: PartStore) -> None:
    shutil.copytree(store.part_path(OTHER), store.root / "detached" / PART)
    store.keep_aside((PART,))
    store.keep_aside((PART,))
    assert [(each.name, each.manifest.partition) for each in store.attachable()] == [
        (PART, "1"),
        (f"detached_{PART}_0", "2"),
    ]


def test_keeping_aside_can_be_repeated_after_a_crash_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(store: PartStore) -> None:
        assert [each.name for each in store.attachable()] == [PART, OTHER]
        assert store.detached() == store.parts() == (PART, OTHER)

    steps = until_it_is_done(tmp_path, monkeypatch, lambda store: store.keep_aside((PART, OTHER)), check)
    assert steps[-1] == "sync_folder detached"
    assert steps[:4] == [
        f"remove_folder {PART}",
        "link_file data-0.parquet",
        "link_file manifest.json",
        f"sync_folder {PART}",
    ]


# --- frozen -----------------------------------------------------------------------------------------------------------------


def test_a_frozen_snapshot_outlives_the_parts_and_says_what_it_is(store: PartStore) -> None:
    manifests = {part: store.manifest(part) for part in store.parts()}
    made = store.freeze((OTHER, PART), "before-cleaning", DEFINITION, 8, "by a test")
    store.remove_parts((PART, OTHER))
    assert store.frozen() == ("before-cleaning",)
    found = store.frozen_snapshot("before-cleaning")
    assert found == made
    assert (found.table, found.table_id, found.index, found.note) == ("bench", "0" * 32, 8, "by a test")
    assert found.definition == DEFINITION
    assert {p.name: (p.rows, p.bytes, p.content_hash) for p in found.parts} == {
        part: (m.rows, m.bytes, m.content) for part, m in manifests.items()
    }
    for part in (PART, OTHER):  # a person puts it back
        shutil.copytree(store.frozen_path("before-cleaning") / part, store.root / "detached" / part)
    assert [each.manifest for each in store.attachable()] == list(manifests.values())


def test_freezing_the_same_again_changes_nothing_and_something_else_is_refused(store: PartStore) -> None:
    made = store.freeze((PART,), "x", DEFINITION, 8)
    assert store.freeze((PART,), "x", DEFINITION, 8) == made
    for again in ((OTHER,), (PART, OTHER)):
        with pytest.raises(BadInput, match="already"):
            store.freeze(again, "x", DEFINITION, 8)
    with pytest.raises(BadInput, match="already"):
        store.freeze((PART,), "x", DEFINITION, 9)
    assert store.frozen_snapshot("x") == made


def test_a_part_that_is_not_whole_is_not_frozen(store: PartStore) -> None:
    store.file_path(PART, "data-0.parquet").unlink()
    with pytest.raises(CorruptPart):
        store.freeze((PART, OTHER), "x", DEFINITION, 8)
    assert store.frozen() == ()


def test_a_freeze_can_be_repeated_after_a_crash_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(store: PartStore) -> None:
        assert store.frozen() == ("x",)
        assert [part.name for part in store.frozen_snapshot("x").parts] == [PART, OTHER]
        for part in (PART, OTHER):
            assert is_same_file(store.file_path(part, MANIFEST_FILE), store.frozen_path("x") / part / MANIFEST_FILE)

    steps = until_it_is_done(
        tmp_path, monkeypatch, lambda store: store.freeze((PART, OTHER), "x", DEFINITION, 8, "note"), check
    )
    linked = ["remove_folder {0}", "link_file data-0.parquet", "link_file manifest.json", "sync_folder {0}"]
    assert steps == [
        "remove_folder .making-x",
        *(step.format(PART) for step in linked),
        *(step.format(OTHER) for step in linked),
        f"write_file {FROZEN_FILE}",
        "sync_folder .making-x",
        "rename .making-x",
        "sync_folder frozen",
    ]


def test_half_made_snapshots_are_not_listed_and_swept(store: PartStore) -> None:
    (store.root / "frozen" / f"{MAKING_PREFIX}x" / PART).mkdir(parents=True)
    assert store.frozen() == ()
    assert store.sweep() == 1
    assert list((store.root / "frozen").iterdir()) == []


def test_a_removed_snapshot_is_gone_and_the_parts_stay(store: PartStore) -> None:
    store.freeze((PART,), "x", DEFINITION, 8)
    store.remove_frozen("x")
    store.remove_frozen("x")
    assert store.frozen() == ()
    store.verify(PART)
    with pytest.raises(BadInput, match="no frozen snapshot 'x'"):
        store.frozen_snapshot("x")


def test_removing_a_snapshot_can_be_repeated_after_a_crash_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(store: PartStore) -> None:
        assert store.frozen() == ()

    def freeze(store: PartStore) -> None:
        store.freeze((PART,), "x", DEFINITION, 8)

    steps = until_it_is_done(tmp_path, monkeypatch, lambda store: store.remove_frozen("x"), check, freeze)
    assert steps == ["rename x", "sync_folder removing", "sync_folder frozen", "remove_folder x_0"]


def test_every_changed_byte_of_a_description_is_found(store: PartStore) -> None:
    store.freeze((PART,), "x", DEFINITION, 8)
    file = store.frozen_path("x") / FROZEN_FILE
    data = file.read_bytes()
    for place in range(len(data)):
        file.write_bytes(data[:place] + bytes([data[place] ^ 2]) + data[place + 1 :])
        with pytest.raises(CorruptPart, match=r"frozen\.json"):
            store.frozen_snapshot("x")


@pytest.mark.parametrize("text", [b"{}", b"nonsense", b'{"format":99}'])
def test_a_description_that_can_not_be_read_is_said_so(store: PartStore, text: bytes) -> None:
    store.freeze((PART,), "x", DEFINITION, 8)
    (store.frozen_path("x") / FROZEN_FILE).write_bytes(text)
    with pytest.raises((CorruptPart, UnsupportedFormat), match=r"frozen\.json"):
        store.frozen_snapshot("x")


@pytest.mark.parametrize("name", [*EVIL, ".making-x", "-x", "~x"])
def test_names_that_are_no_snapshots_are_refused(store: PartStore, name: str) -> None:
    with pytest.raises(InvalidName):
        store.freeze((PART,), name, DEFINITION, 8)
    with pytest.raises(InvalidName):
        store.remove_frozen(name)


# --- names and links ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*EVIL, "all", "../all_1_1_0"])
def test_names_that_are_no_parts_are_refused_before_anything_is_done(store: PartStore, name: str) -> None:
    with pytest.raises(BadInput):
        store.remove_parts((PART, name))
    with pytest.raises(BadInput):
        store.detach(name)
    with pytest.raises(BadInput):
        store.freeze((PART, name), "x", DEFINITION, 8)
    with pytest.raises(BadInput):
        store.staged.link(name, "m9", "1")
    assert store.parts() == (PART, OTHER)


def test_symbolic_links_are_not_followed(store: PartStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    store.part_path(PART).rename(outside)
    store.part_path(PART).symlink_to(outside)
    assert store.remove_parts((PART,)) == ()
    assert store.detach(PART) is None
    for refuse in (lambda: store.staged.link(PART, "m9", "1"), lambda: store.freeze((PART,), "x", DEFINITION, 8)):
        with pytest.raises(CorruptPart):
            refuse()
    (store.root / "detached" / PART).symlink_to(outside)
    assert store.attachable() == ()
    with pytest.raises(BadInput):
        store.staged.attach(PART, "a12")
    assert (outside / MANIFEST_FILE).exists()
