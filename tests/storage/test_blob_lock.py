"""One directory, several processes: nothing slips by a fence, and nobody misses what another one has changed."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from replitree.storage.files import durable
from replitree.tablet.group.admission import Admission
from replitree.tablet.group.effects import Overtaken
from replitree.tablet.group.ids import BlobId, Generation
from replitree.tablet.group.member import Contents, Done, Failed, Raise, Reply, Scan, Write
from replitree.tablet.members import directory as blob_directory
from replitree.tablet.members import lock as blob_lock
from replitree.tablet.members import state as blob_state
from replitree.tablet.members.directory import LOCK, BlobDirectory, make_blob_directory
from replitree.tablet.members.frames import scan
from tests.storage.blob_providers import GROUP, TABLET, blob_id, fence
from tests.waiting import wait_for

WriteParts = Callable[..., int]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_blob_directory(tmp_path / "0", GROUP, 0, "d0")
    return tmp_path / "0"


def write(directory: BlobDirectory, step: int, generation: int = 1) -> Reply:
    """Write a small blob."""
    return directory.answer(Write(((blob_id(generation, step), b"x"),)))


def names(directory: BlobDirectory) -> list[BlobId]:
    """Read everything."""
    reply = directory.answer(Scan(blob_id(1, 0), blob_id(9, 0)))
    assert isinstance(reply, Contents), reply
    return [blob for blob, _ in reply.blobs]


class Held:
    """A writer that stands between the look at the fence and the writing."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replies: list[Reply] = []
        self._is_there, self._go_on = threading.Event(), threading.Event()
        whole: WriteParts = durable.write_parts

        def waiting(*arguments: object) -> int:
            self._is_there.set()
            assert self._go_on.wait(30)
            return whole(*arguments)

        monkeypatch.setattr("replitree.tablet.members.segments.write_parts", waiting)
        self._thread = threading.Thread(target=lambda: self.replies.append(write(BlobDirectory(folder), 1)))
        self._thread.start()
        assert self._is_there.wait(30)

    def finish(self) -> None:
        """Let it write."""
        self._go_on.set()
        self._thread.join()


def test_21_no_put_slips_by_a_fence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Held(folder, monkeypatch)
    with (folder / LOCK).open("rb+") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    replies: list[Reply] = []
    raising = threading.Thread(target=lambda: replies.append(BlobDirectory(folder).answer(Raise(TABLET, fence(1)))))
    raising.start()
    writer.finish()
    raising.join()
    assert (writer.replies, replies) == ([Done()], [Done()])
    assert names(BlobDirectory(folder)) == [blob_id(1, 1)]
    assert write(BlobDirectory(folder), 2) == Overtaken(Generation(1))


def test_21_without_the_lock_a_put_slips_by(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    writer = Held(folder, monkeypatch)
    assert BlobDirectory(folder).answer(Raise(TABLET, fence(1))) == Done()
    assert names(BlobDirectory(folder)) == []  # a recovery declines it
    writer.finish()
    assert writer.replies == [Done()]  # and its client hears that it is stored


def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what is synced, by name."""
    found, whole = list[str](), os.fsync

    def fsync(descriptor: int) -> None:
        found.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        whole(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_22_fence_is_confirmed_when_its_file_and_name_are_durable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, found = BlobDirectory(folder), synced(monkeypatch)
    assert directory.answer(Raise(TABLET, fence(1))) == Done()
    assert found == [folder.name, f"{blob_state.NAME}.new", folder.name]  # first what another process may have left


def test_fence_of_another_process_that_was_killed_is_synced_before_it_is_confirmed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = BlobDirectory(folder)
    assert directory.answer(Raise(TABLET, fence(1))) == Done()
    assert BlobDirectory(folder).answer(Raise(TABLET, fence(2))) == Done()
    found = synced(monkeypatch)
    assert directory.answer(Raise(TABLET, fence(2))) == Done()
    assert directory.answer(Raise(TABLET, fence(2))) == Done()  # nothing new
    assert found == [folder.name]


def test_segment_of_another_process_that_was_killed_has_its_name_synced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert write(BlobDirectory(folder), 1) == Done()
    (segment,) = (folder / "blobs").rglob("*.seg")
    os.truncate(segment, 0)  # as before anything was appended to it
    directory, found = BlobDirectory(folder), synced(monkeypatch)
    assert write(directory, 1) == write(directory, 2) == Done()
    assert found == [folder.name, *(each.name for each in segment.parents[:3])]


class MovedAway:
    """Moves a directory away when something in it is to be opened to be synced, the first time or a later one."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self._folder, self._left = folder, number
        self._opened = durable.opened
        monkeypatch.setattr(durable, "opened", self.opened)

    def opened(self, path: Path, flags: int = 0) -> AbstractContextManager[int]:
        if not self._left:
            self._folder.rename(self._folder.with_name("away"))
        self._left -= 1
        return self._opened(path, flags)

    def bring_back(self) -> None:
        self._folder.with_name("away").rename(self._folder)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("is_same", [True, False])
def test_fence_in_a_directory_that_is_moved_away_is_confirmed_when_it_is_back_and_synced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_same: bool
) -> None:
    directory, moved = BlobDirectory(folder), MovedAway(folder, monkeypatch, number)
    assert isinstance(directory.answer(Raise(TABLET, fence(1))), Failed)
    assert isinstance(directory.answer(Raise(TABLET, fence(1))), Failed)
    assert not folder.exists()
    moved.bring_back()
    found = synced(monkeypatch)
    assert (directory if is_same else BlobDirectory(folder)).answer(Raise(TABLET, fence(1))) == Done()
    known = [] if is_same and number == 1 else [folder.name]  # it had synced what was there before
    assert found == [*known, *([] if number == 2 else [f"{blob_state.NAME}.new", folder.name])]


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("is_same", [True, False])
def test_blob_in_a_directory_that_is_moved_away_is_written_when_it_is_back_and_its_name_synced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_same: bool
) -> None:
    directory = BlobDirectory(folder)
    assert names(directory) == []
    moved = MovedAway(folder, monkeypatch, number)
    assert isinstance(write(directory, 1), Failed)
    assert not folder.exists()
    moved.bring_back()
    found = synced(monkeypatch)
    assert write(directory if is_same else BlobDirectory(folder), 1) == Done()
    (segment,) = (folder / "blobs").rglob("*.seg")
    assert found[-3:] == [each.name for each in segment.parents[:3]]
    assert names(BlobDirectory(folder)) == [blob_id(1, 1)]


@pytest.mark.parametrize("number", [0, 1])
def test_22_fence_that_could_not_be_synced_is_not_confirmed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    directory, left = BlobDirectory(folder), [None] * number

    def fsync(_: int) -> None:
        if not left:
            raise OSError(5, "Input/output error")
        left.pop()

    monkeypatch.setattr(os, "fsync", fsync)
    assert isinstance(directory.answer(Raise(TABLET, fence(1))), Failed)


# --- who changed it last -----------------------------------------------------------------------------------------------------


def test_writers_in_turn_see_what_each_other_wrote_and_fenced(folder: Path) -> None:
    one, other = BlobDirectory(folder), BlobDirectory(folder)
    for step in range(1, 9):
        assert write(one if step % 2 else other, step) == Done()
    assert names(one) == names(other) == [blob_id(1, step) for step in range(1, 9)]
    assert other.answer(Raise(TABLET, fence(1))) == Done()
    assert write(one, 9) == Overtaken(Generation(1))
    assert write(one, 1, generation=2) == Done()
    assert write(other, 2, generation=2) == Done()
    assert names(BlobDirectory(folder))[-2:] == [blob_id(2, 1), blob_id(2, 2)]


def test_who_only_fenced_still_reads_what_others_wrote_before_it_writes(folder: Path) -> None:
    one, other = BlobDirectory(folder), BlobDirectory(folder)
    write(one, 1)
    write(other, 2)
    assert one.answer(Raise(TABLET, fence(0))) == Done()  # now it was the last that changed something
    write(one, 3)
    assert names(BlobDirectory(folder)) == [blob_id(1, 1), blob_id(1, 2), blob_id(1, 3)]


def test_copy_in_the_directorys_place_is_read_anew(folder: Path, tmp_path: Path) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    exchange(folder, tmp_path)
    write(BlobDirectory(folder), 2)
    assert write(directory, 3) == Done()
    assert names(BlobDirectory(folder)) == [blob_id(1, 1), blob_id(1, 2), blob_id(1, 3)]


def test_older_copy_in_the_directorys_place_is_not_what_it_was(folder: Path, tmp_path: Path) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    shutil.copytree(folder, tmp_path / "older")
    write(directory, 2)
    folder.rename(tmp_path / "aside")
    (tmp_path / "older").rename(folder)
    assert isinstance(write(directory, 3), Failed)
    assert names(BlobDirectory(folder)) == [blob_id(1, 1)], "nobody who knows only this one can tell; sessions can"


def test_21_no_put_slips_by_a_fence_of_its_own_process(folder: Path) -> None:
    directory = BlobDirectory(folder)
    assert (write(directory, 1), write(directory, 2)) == (Done(), Done())  # the second one to files that are open
    assert directory.answer(Raise(TABLET, fence(1))) == Done()
    assert write(directory, 3) == Overtaken(Generation(1))
    assert names(BlobDirectory(folder)) == [blob_id(1, 1), blob_id(1, 2)], "nor is it there unsaid"


def test_write_to_open_files_of_a_directory_that_was_moved_away_is_not_confirmed(folder: Path, tmp_path: Path) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    folder.rename(tmp_path / "aside")
    assert isinstance(write(directory, 2), Failed)
    (tmp_path / "aside").rename(folder)
    assert names(BlobDirectory(folder)) == [blob_id(1, 1), blob_id(1, 2)], "like a write whose answer was lost"
    assert (write(directory, 2), write(directory, 3)) == (Done(), Done())
    assert names(directory) == names(BlobDirectory(folder)) == [blob_id(1, step) for step in (1, 2, 3)]


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("has_read", [False, True])
def test_write_after_an_exchange_touches_nothing_of_the_new_directory_before_it_has_its_lock(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_read: bool, generation: int
) -> None:
    directory, asked, whole = BlobDirectory(folder), list[int](), fcntl.flock

    def flock(file: int, how: int) -> None:
        asked.append(os.fstat(file).st_ino)
        whole(file, how)

    write(directory, 1)
    if has_read:  # which closes what was appended to
        assert names(directory) == [blob_id(1, 1)]
    exchange(folder, tmp_path)
    before = sorted(folder.rglob("*.seg"))
    with ThreadPoolExecutor(1) as pool, (folder / LOCK).open("rb+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        monkeypatch.setattr(fcntl, "flock", flock)
        writing = pool.submit(write, directory, 2, generation)
        wait_for(lambda: os.fstat(other.fileno()).st_ino in asked, "the lock of the new directory is asked for")
        assert sorted(folder.rglob("*.seg")) == before
        assert names_unlocked(folder) == [blob_id(1, 1)]
        other.close()
        assert writing.result(30) == Done()
    assert names(BlobDirectory(folder)) == [blob_id(1, 1), blob_id(generation, 2)]


def names_unlocked(folder: Path) -> list[BlobId]:
    """Read what is in the segments, whoever has the lock."""
    files = sorted(folder.rglob("*.seg"))
    return [frame.blob for file in files for frame in scan(file.read_bytes()).frames]


def test_directory_in_the_place_of_one_whose_sync_failed_is_used(folder: Path, tmp_path: Path) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    shutil.copytree(folder, tmp_path / "copy")
    (folder / LOCK).write_bytes(blob_lock.FAILED)
    replies = [write(directory, 2), write(directory, 2)]
    assert all(isinstance(each, Failed) and "could not be synced once" in each.reason for each in replies)
    folder.rename(tmp_path / "aside")
    (tmp_path / "copy").rename(folder)
    assert write(directory, 2) == Done()
    assert names(BlobDirectory(folder)) == [blob_id(1, 1), blob_id(1, 2)]


def test_state_that_was_put_back_in_place_is_found_before_a_write_is_confirmed(folder: Path) -> None:
    directory = BlobDirectory(folder)
    old = (folder / blob_state.NAME).read_bytes()
    assert directory.admit(2) == Done()
    admission = Admission("d0", 2)
    blobs = [Write(((blob_id(1, step), b"x"),)) for step in (1, 2, 3)]
    assert [directory.answer_as(admission, each) for each in blobs[:2]] == [Done(), Done()]
    (folder / blob_state.NAME).write_bytes(old)
    reply = directory.answer_as(admission, blobs[2])
    assert isinstance(reply, Failed)
    assert "forgotten session 2" in reply.reason


def exchange(folder: Path, aside: Path) -> None:
    """Put a copy of a directory in its place."""
    shutil.copytree(folder, aside / "copy")
    folder.rename(aside / "aside")
    (aside / "copy").rename(folder)


def test_directory_that_is_closed_has_no_open_files_and_opens_them_again(folder: Path) -> None:
    directory = BlobDirectory(folder)
    write(directory, 1)
    assert opened(folder) == {LOCK, "00000001-000000.seg"}
    directory.close()
    assert opened(folder) == set()
    write(BlobDirectory(folder), 2)
    assert write(directory, 3) == Done()
    assert names(directory) == [blob_id(1, step) for step in (1, 2, 3)]


def test_directory_whose_request_hangs_is_not_waited_for_when_it_is_closed_and_the_request_is_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_directory, "CLOSE_S", 0.0)
    directory = BlobDirectory(folder)
    other = os.open(folder / LOCK, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write, directory, 1)
        wait_for(lambda: len(opened(folder)) and directory._hold.mutex.locked(), "the request waits for the lock")  # noqa: SLF001 - nothing else shows it
        directory.close()
        assert not writing.done()
        os.close(other)
        assert writing.result(30) == Done()
    directory.close()
    assert opened(folder) == set()


def opened(folder: Path) -> set[str]:
    """Return the names of files below a folder that this process has open."""
    paths = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return {path.name for path in paths if path.is_relative_to(folder)}


def test_marks_that_nobody_looks_at_let_a_writer_spoil_what_others_wrote(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = BlobDirectory(folder), BlobDirectory(folder)
    write(one, 1)
    monkeypatch.setattr(blob_lock.DirectoryLock, "acquire", lambda _: True)
    monkeypatch.setattr(blob_lock.DirectoryLock, "release", lambda _: None)
    monkeypatch.setattr(blob_lock.DirectoryLock, "mark", lambda _: None)
    write(other, 1, generation=2)
    write(one, 2, generation=2)
    assert names(BlobDirectory(folder)) == [blob_id(1, 1), blob_id(2, 2)]


@pytest.mark.parametrize("taken", [1, 3, 700, 5000])
def test_parts_are_written_whole_however_little_the_system_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    parts = [bytes([number % 251]) * (number % 7) for number in range(1500)]
    whole = os.pwritev

    def little(descriptor: int, some: list[bytes], offset: int) -> int:
        return whole(descriptor, [b"".join(some)[:taken]], offset)

    monkeypatch.setattr(os, "pwritev", little)
    path = tmp_path / "file"
    path.write_bytes(b"before")
    descriptor = os.open(path, os.O_WRONLY)
    try:
        assert durable.write_parts(descriptor, parts, 6) == sum(map(len, parts))
    finally:
        os.close(descriptor)
    assert path.read_bytes() == b"before" + b"".join(parts)
