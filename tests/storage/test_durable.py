"""The names in a folder, and its own name when it is new; many files at once."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import pytest

from replitree.storage.files import durable
from replitree.storage.files.durable import SYNC_AT_ONCE, make_folder, sync_files, sync_made


def test_a_new_folder_is_synced_after_its_names_and_then_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(durable, "sync_folder", synced.append)
    folder = tmp_path / "new"
    for _ in range(2):
        sync_made(folder, is_new=make_folder(folder))
    assert synced == [folder, tmp_path, folder]


OPEN = Path("/proc/self/fd")


def _name_of(descriptor: int) -> Path:
    return (OPEN / str(descriptor)).readlink()


@pytest.mark.parametrize("count", [1, 2, SYNC_AT_ONCE + 1])
def test_every_file_and_folder_is_synced_once_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(_name_of(descriptor)))
    paths = [tmp_path, *(tmp_path / f"{number}" for number in range(count - 1))]
    for path in paths[1:]:
        path.touch()
    gc.collect()  # files that earlier tests have left
    before = len(list(OPEN.iterdir()))
    sync_files(paths)
    assert sorted(synced) == sorted(paths)
    assert len(list(OPEN.iterdir())) == before


def test_a_disk_that_refuses_one_of_several_files_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        if _name_of(descriptor).name == "bad":
            raise OSError("no")

    monkeypatch.setattr(os, "fsync", refuse)
    for name in ("good", "bad"):
        (tmp_path / name).touch()
    sync_files([tmp_path / "good"])
    with pytest.raises(OSError, match="no"):
        sync_files([tmp_path / "bad", tmp_path / "good"])


def test_files_are_synced_at_once_and_one_of_them_in_the_thread_that_wants_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{number}" for number in range(4)]
    for path in paths:
        path.touch()
    at_once, threads = threading.Barrier(len(paths)), list[int]()

    def fsync(_: int) -> None:
        at_once.wait(5.0)
        threads.append(threading.get_ident())

    monkeypatch.setattr(os, "fsync", fsync)
    for _ in range(2):
        sync_files(paths)
    assert len(set(threads[:4])) == len(paths)
    assert threads.count(threading.get_ident()) == 2


def test_a_disk_that_refuses_is_heard_when_no_file_is_being_synced_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A descriptor that was closed under a running sync may be another file's."""
    ours, refused, synced = threading.get_ident(), threading.Event(), list[int]()

    def fsync(descriptor: int) -> None:
        if threading.get_ident() == ours:
            refused.set()
            raise OSError("no")
        refused.wait(5.0)
        os.fstat(descriptor)
        synced.append(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    paths = [tmp_path / f"{number}" for number in range(4)]
    for path in paths:
        path.touch()
    with pytest.raises(OSError, match="no"):
        sync_files(paths)
    assert len(synced) == 3
