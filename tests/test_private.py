"""Who may read what is written: the modes of new files and folders, and of those that were there before."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree import private
from replitree.storage.files.durable import HashingFile, copy_file, make_folder, write_file


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(root: Path) -> dict[str, int]:
    """The modes of everything below a folder, and of itself."""
    found = {".": root, **{str(path.relative_to(root)): path for path in root.rglob("*")}}
    return {name: stat.S_IMODE(path.lstat().st_mode) for name, path in found.items() if not path.is_symlink()}


def fill(root: Path) -> None:
    """Write below a folder in every way that there is."""
    private.make_folder(root / "a" / "b", parents=True)
    make_folder(root / "c")
    write_file(root / "a" / "one", b"1")
    private.write_file(root / "a" / "b" / "two", b"2")
    private.touch(root / "three")
    copy_file(root / "a" / "one", root / "c" / "four")
    HashingFile(root / "five").close()
    with private.open_file(root / "six", "ab") as file:
        file.write(b"6")
    mode = private.make_folder(root / "d")
    assert mode == private.make_folder(root / "d", exist_ok=True)
    write_file(root / "d" / "seven", b"7", mode=mode)


@pytest.mark.usefixtures("umask")
def test_files_and_folders_are_private(tmp_path: Path) -> None:
    private.make_root(tmp_path / "tree")
    fill(tmp_path / "tree")
    found = modes(tmp_path / "tree")
    assert len(found) == 12
    assert {name: mode for name, mode in found.items() if mode & 0o077} == {}


@pytest.mark.usefixtures("umask")
def test_a_group_reads_a_group_folder_whatever_the_umask_is(tmp_path: Path) -> None:
    private.make_root(tmp_path / "tree", group=True)
    fill(tmp_path / "tree")
    for name, mode in modes(tmp_path / "tree").items():
        assert mode == (0o2750 if (tmp_path / "tree" / name).is_dir() else 0o640), name


@pytest.mark.parametrize("group", [False, True])
def test_a_tree_of_an_earlier_version_is_closed_once(tmp_path: Path, group: bool) -> None:
    root = tmp_path / "tree"
    (root / "a").mkdir(parents=True)
    (root / "a" / "rows").write_bytes(b"1")
    (root / "a" / "rows").chmod(0o644)
    # The umask of the process may have closed them already.
    root.chmod(0o755)
    (root / "a").chmod(0o755)
    (tmp_path / "outside").write_bytes(b"2")
    (tmp_path / "outside").chmod(0o644)
    (root / "link").symlink_to(tmp_path / "outside")
    assert private.make_root(root, group=group) == []
    folder, file = (0o2750, 0o640) if group else (0o700, 0o600)
    assert modes(root) == {".": folder, "a": folder, "a/rows": file}
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o644
    (root / "a" / "rows").chmod(0o604)
    private.make_root(root, group=group)
    assert modes(root)["a/rows"] == 0o604, "a tree whose topmost folder is closed is not walked again"
    assert private.make_root(root, group=not group) == []
    assert modes(root)["a/rows"] == (0o600 if group else 0o640)


def test_a_shared_folder_without_the_mark_opens_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert not private.is_group_folder(tmp_path)
    private.write_file(tmp_path / "file", b"")
    assert modes(tmp_path)["file"] == 0o600


def test_a_moved_file_gets_the_mode_of_its_new_tree(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "file").chmod(0o666)
    private.make_root(tmp_path / "group", group=True)
    (tmp_path / "file").rename(tmp_path / "group" / "file")
    private.fit(tmp_path / "group" / "file")
    assert modes(tmp_path / "group")["file"] == 0o640
