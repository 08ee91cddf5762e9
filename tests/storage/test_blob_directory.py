"""What can happen to a directory of a blob group, and to nothing that lies in memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from replitree.errors import StoreError
from replitree.tablet.group.effects import Blobs, Collection, NotKnown, Put, ReadBlobs, Stored
from replitree.tablet.group.ids import BlobId, Channel, Generation
from replitree.tablet.group.member import Contents, Done, Failed, Raise, Reply, Scan, Sweep, Write
from replitree.tablet.members.directory import LOCK, BlobDirectory, make_blob_directory
from replitree.tablet.members.frames import frame_of
from replitree.tablet.members.lock import MARK_BYTES, DirectoryLock
from replitree.tablet.members.state import NAME
from tests.storage.blob_providers import GROUP, TABLET, InDirectories, at, blob_id, do, fence, open_group

ALL = Scan(blob_id(1, 0), blob_id(9, 0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_blob_directory(tmp_path / "0", GROUP, 0, "d0")
    return tmp_path / "0"


def write(directory: BlobDirectory, *steps: int, size: int = 5, generation: int = 1) -> Reply:
    """Write blobs of one generation."""
    return directory.answer(Write(tuple((blob_id(generation, step), b"x" * size) for step in steps)))


def segment(folder: Path) -> Path:
    """Find the only segment."""
    (found,) = folder.glob("blobs/*/*/*.seg")
    return found


def contents(directory: BlobDirectory) -> Contents:
    """Read everything."""
    reply = directory.answer(ALL)
    assert isinstance(reply, Contents)
    return reply


def names(directory: BlobDirectory) -> list[BlobId]:
    """Read everything and say what is whole."""
    return [blob for blob, _ in contents(directory).blobs]


@pytest.mark.parametrize("part", [1, 20, 40])
def test_torn_frame_is_absent_and_the_next_one_takes_its_place(folder: Path, part: int) -> None:
    write(BlobDirectory(folder), 1)
    with segment(folder).open("ab") as file:
        file.write(frame_of(blob_id(1, 2), b"never synced")[:part])
    directory = BlobDirectory(folder)
    assert contents(directory) == Contents(((blob_id(1, 1), b"xxxxx"),))
    assert write(directory, 3) == Done()
    assert names(BlobDirectory(folder)) == [blob_id(1, 1), blob_id(1, 3)]
    assert contents(BlobDirectory(folder)).doubts == ()


def test_header_that_can_not_be_read_leaves_a_doubt_about_its_generation(folder: Path) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    write(directory, 2)
    data = bytearray(segment(folder).read_bytes())
    data[10] ^= 1
    segment(folder).write_bytes(data)
    found = contents(BlobDirectory(folder))
    assert [blob for blob, _ in found.blobs] == [blob_id(1, 2)]
    ((first, last),) = found.doubts
    assert first <= blob_id(1, 1) <= last < blob_id(2, 0)
    reply = BlobDirectory(folder).answer(Scan(blob_id(2, 0), blob_id(9, 0)))
    assert reply == Contents()


def fail_to_sync(monkeypatch: pytest.MonkeyPatch, number: int, what: str = "fdatasync", name: str = "") -> None:
    """Let what syncs fail, or what syncs files and folders of one name."""
    whole = getattr(os, what)

    def fail(descriptor: int) -> None:
        if not name or Path(f"/proc/self/fd/{descriptor}").readlink().name == name:
            raise OSError(number, os.strerror(number))
        whole(descriptor)

    monkeypatch.setattr(os, what, fail)


ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@pytest.mark.parametrize("number", ERRORS)
def test_41_directory_that_could_not_be_synced_is_used_by_no_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    directory, other = BlobDirectory(folder), BlobDirectory(folder)
    write(directory, 1)
    assert names(other) == [blob_id(1, 1)]
    fail_to_sync(monkeypatch, number)
    assert isinstance(write(directory, 2), Failed)
    monkeypatch.undo()
    reply = write(directory, 2)
    assert isinstance(reply, Failed)
    assert "replace the disk" in reply.reason
    for each in (directory, other, BlobDirectory(folder)):
        assert isinstance(
            each.answer(ALL), Failed
        )  # the bytes are in memory, and another sync would say that all is well
        assert isinstance(write(each, 3), Failed)
        assert isinstance(each.standing(), Failed)
    reply = BlobDirectory(folder).answer(ALL)
    assert isinstance(reply, Failed)
    assert "replitree tablet replace" in reply.reason


def test_41_operator_who_has_mended_the_disk_takes_the_mark_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(BlobDirectory(folder), 1)
    with monkeypatch.context() as patched:
        fail_to_sync(patched, errno.EIO)
        assert isinstance(write(BlobDirectory(folder), 2), Failed)
    for size in (0, MARK_BYTES):
        os.truncate(folder / LOCK, size)
    assert write(BlobDirectory(folder), 3) == Done()


def test_41_without_the_mark_the_next_process_calls_stored_what_may_not_be_on_the_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    monkeypatch.setattr(DirectoryLock, "mark_failed", lambda _: None)
    fail_to_sync(monkeypatch, errno.EIO)
    assert isinstance(write(directory, 2), Failed)
    monkeypatch.undo()
    assert names(BlobDirectory(folder)) == [blob_id(1, 1), blob_id(1, 2)]


def test_41_fence_whose_name_could_not_be_synced_is_never_confirmed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = BlobDirectory(folder)
    fail_to_sync(monkeypatch, errno.ENOSPC, "fsync", folder.name)
    assert isinstance(directory.answer(Raise(TABLET, fence(1))), Failed)
    monkeypatch.undo()
    for each in (directory, BlobDirectory(folder)):
        assert isinstance(each.answer(Raise(TABLET, fence(1))), Failed)  # the file says that it is so


@pytest.mark.parametrize("number", ERRORS)
def test_41_state_that_could_not_be_synced_breaks_the_directory_for_every_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    directory, other = BlobDirectory(folder), BlobDirectory(folder)
    write(directory, 1)
    fail_to_sync(monkeypatch, number, "fsync", f"{NAME}.new")
    assert isinstance(directory.answer(Raise(TABLET, fence(1))), Failed)
    monkeypatch.undo()
    for each in (directory, other, BlobDirectory(folder)):
        for reply in (each.answer(Raise(TABLET, fence(1))), each.answer(ALL), each.standing()):
            assert isinstance(reply, Failed)
            assert "replitree tablet replace" in reply.reason


def test_41_what_another_process_left_and_can_not_be_synced_breaks_the_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(BlobDirectory(folder), 1)
    fail_to_sync(monkeypatch, errno.ENOSPC)
    assert isinstance(BlobDirectory(folder).answer(ALL), Failed)
    monkeypatch.undo()
    assert isinstance(BlobDirectory(folder).answer(ALL), Failed)


def test_error_of_a_read_breaks_the_directory_for_the_process_that_met_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    monkeypatch.setattr("replitree.tablet.members.segments._sizes", _io_error)
    assert isinstance(directory.answer(ALL), Failed)
    monkeypatch.undo()
    assert isinstance(directory.answer(ALL), Failed)
    assert names(BlobDirectory(folder)) == [blob_id(1, 1)]


def _io_error(_: str) -> dict[str, int]:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("name", ["x.seg", "00000001.seg.seg", "00000001-000000 (copy).seg"])
def test_segment_with_a_name_that_nobody_gives_is_a_doubt_not_nothing(folder: Path, name: str) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    stray = segment(folder).with_name(name)
    stray.write_bytes(b"")
    for each in (directory, BlobDirectory(folder)):
        reply = each.answer(ALL)
        assert isinstance(reply, Failed)
        assert "move it out of" in reply.reason
    stray.unlink()
    assert names(directory) == [blob_id(1, 1)]


def test_41_copy_of_a_disk_that_failed_to_sync_once_counts_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = InDirectories(tmp_path, lambda *_: None)
    group, whole, left = open_group(provider), os.fdatasync, [OSError(errno.EIO, "Input/output error")]

    def fail_once(descriptor: int) -> None:
        if left and str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith(f"{tmp_path}/0/"):
            raise left.pop()
        whole(descriptor)

    monkeypatch.setattr(os, "fdatasync", fail_once)
    put, get = Put(GROUP, blob_id(1, 1), b"x"), ReadBlobs(GROUP, (blob_id(1, 1),))
    assert do(group, put) == Stored()
    assert do(group, get) == Blobs(((blob_id(1, 1), b"x"),))
    assert not left
    provider.take_away(1)
    assert isinstance(do(group, get), NotKnown)  # the one that failed says neither yes nor no
    group.close()


@pytest.mark.parametrize("damage", [b"", b"RTBS", None])
def test_directory_without_its_state_does_not_answer(folder: Path, damage: bytes | None) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    if damage is None:
        (folder / NAME).unlink()
    else:
        (folder / NAME).write_bytes(damage)
    assert isinstance(directory.answer(ALL), Failed)
    assert isinstance(directory.standing(), Failed)
    assert isinstance(directory.admit(3), Failed)


def test_directory_without_its_blobs_does_not_answer(folder: Path) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    (folder / "blobs").rename(folder / "aside")
    for each in (directory, BlobDirectory(folder)):
        for reply in (each.answer(ALL), write(each, 2), each.standing(), each.streams()):
            assert isinstance(reply, Failed)
            assert "bring it back" in reply.reason
    (folder / "aside").rename(folder / "blobs")
    for each in (directory, BlobDirectory(folder)):
        assert names(each) == [blob_id(1, 1)]


@pytest.mark.parametrize("is_cut", [True, False])
def test_blobs_that_were_there_and_are_not_any_more_are_not_absent(folder: Path, is_cut: bool) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    kept = segment(folder).read_bytes()
    write(directory, 2)
    path, whole = segment(folder), segment(folder).read_bytes()
    if is_cut:
        path.write_bytes(kept)
    else:
        path.unlink()
    for reply in (directory.answer(ALL), write(directory, 3), directory.answer(ALL)):
        assert isinstance(reply, Failed)
        assert f"such as {blob_id(1, 2 if is_cut else 1)}" in reply.reason
    path.write_bytes(whole)
    assert names(directory) == [blob_id(1, 1), blob_id(1, 2)]
    assert write(directory, 3) == Done()


def test_segment_that_is_cut_and_says_so_is_a_doubt(folder: Path) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    write(directory, 2)
    data = bytearray(segment(folder).read_bytes()[:-1])
    data[10] ^= 1
    segment(folder).write_bytes(data)
    assert contents(directory).doubts != ()


def test_segment_that_was_deleted_and_begun_again_has_lost_nothing(folder: Path) -> None:
    directory, other = BlobDirectory(folder), BlobDirectory(folder)
    write(directory, 1, size=100)
    assert names(other) == [blob_id(1, 1)]
    directory.answer(Sweep(Collection(TABLET, Channel(0), (Generation(2), 1), at(1, 1))))
    write(directory, 2)
    assert segment(folder).stat().st_size < 100
    assert names(other) == [blob_id(1, 2)]


def test_directory_that_was_made_anew_in_the_place_of_another_one_has_lost_nothing(folder: Path) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    folder.rename(folder.parent / "aside")
    make_blob_directory(folder, GROUP, 0, "another")
    assert names(directory) == []
    assert write(directory, 2) == Done()
    assert names(BlobDirectory(folder)) == [blob_id(1, 2)]


def test_state_that_was_not_put_in_place_is_forgotten(folder: Path) -> None:
    directory = BlobDirectory(folder)
    (folder / f"{NAME}.new").write_bytes(b"half a st")
    assert directory.answer(Raise(TABLET, fence(1))) == Done()
    assert write(BlobDirectory(folder), 1, generation=2) == Done()


def test_full_segment_is_followed_by_another_one(folder: Path) -> None:
    directory = BlobDirectory(folder, segment_bytes=200)
    for step in range(1, 7):
        write(directory, step, size=100)
    assert len(list(folder.glob("blobs/*/*/*.seg"))) == 3
    assert names(BlobDirectory(folder)) == [blob_id(1, step) for step in range(1, 7)]


def test_segments_without_a_blob_that_is_needed_are_deleted(folder: Path) -> None:
    directory, other = BlobDirectory(folder, segment_bytes=200), BlobDirectory(folder)
    for step in range(1, 7):
        write(directory, step, size=100)
    assert len(names(other)) == 6
    order = (Generation(2), 1)
    directory.answer(Sweep(Collection(TABLET, Channel(0), order, at(1, 4), keep=(blob_id(1, 3),))))
    assert len(list(folder.glob("blobs/*/*/*.seg"))) == 2
    assert names(other) == names(directory) == [blob_id(1, 3), blob_id(1, 5), blob_id(1, 6)]
    assert write(directory, 7) == Done()
    assert names(BlobDirectory(folder))[-1] == blob_id(1, 7)


def test_directory_is_made_once(folder: Path) -> None:
    with pytest.raises(StoreError, match="already"):
        make_blob_directory(folder, GROUP, 0, "again")
