"""The users that may read the files of this project: every folder and file of a cluster gets its mode here.

A folder is made with mode 0700 and a file with 0600: rows, logs and coordination's data are read by the user that wrote
them.  The umask can only take away from that.

A *group folder* (0750 with the setgid bit, 2750) is one that the users of its group may read, such as Spark's executors under
a user of their own.  What is made in a group folder is a group folder, or a file of mode 0640, whatever the umask is, and the
kernel gives it the folder's group.  So a process that writes below a replica's folder, such as a Spark task, needs no setting.
`make_root` decides which of the two a tree is.

Folders of mode 0755 are no group folders: without the setgid bit nothing below them is open to a group.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, cast

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
GROUP_FOLDER, GROUP_FILE = 0o2750, 0o640

PRIVATE_UMASK, GROUP_UMASK = 0o077, 0o027
"""Of a server's process, and of Java's: for what writes files by itself, such as the object store's library and ZooKeeper."""

_GROUP_MARK = stat.S_ISGID | stat.S_IRGRP


def is_group_folder(folder: Path | str) -> bool:
    """Tell whether a folder's group may read what is in it; False when the folder is missing."""
    try:
        return os.stat(folder or ".").st_mode & _GROUP_MARK == _GROUP_MARK  # noqa: PTH116 - strings come here, too
    except OSError:
        return False


def open_file(path: Path, mode: str) -> BinaryIO:
    """Open a file to be written, as `Path.open` with a binary mode; a new file gets the mode of the tree that it is in."""
    return cast("BinaryIO", open(path, mode, opener=open_new))


def open_new(path: Path | str, flags: int, mode: int | None = None) -> int:
    """Open a file, as `os.open`; a new file gets the mode of the tree that it is in, which `make_folder` may have told."""
    if not flags & os.O_CREAT:
        return os.open(path, flags)
    if mode is None:
        mode = _file_mode(os.path.dirname(path))  # noqa: PTH120 - strings come here, too
    descriptor = os.open(path, flags, mode)
    if mode == GROUP_FILE:
        found = os.fstat(descriptor)
        # The umask may have taken rights from it; the file of another user stays as it is.
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != GROUP_FILE:
            os.fchmod(descriptor, GROUP_FILE)
    return descriptor


def _file_mode(folder: Path | str) -> int:
    return GROUP_FILE if is_group_folder(folder) else PRIVATE_FILE


def make_folder(path: Path, *, parents: bool = False, exist_ok: bool = False) -> int:
    """Make a folder, as `Path.mkdir`, with the mode of the tree that it is in; return the mode of the files in it."""
    if parents and not path.parent.is_dir():
        make_folder(path.parent, parents=True, exist_ok=True)
    is_group = is_group_folder(path.parent)
    try:
        path.mkdir(GROUP_FOLDER if is_group else PRIVATE_FOLDER)
    except FileExistsError:
        if not exist_ok or not path.is_dir():
            raise
        return _file_mode(path)
    if is_group:
        path.chmod(GROUP_FOLDER)  # `mkdir` takes no setgid bit, and the umask may have taken more
    return GROUP_FILE if is_group else PRIVATE_FILE


def write_file(path: Path, data: bytes) -> None:
    """Write a file, as `Path.write_bytes`, with the mode of the tree that it is in."""
    with open_file(path, "wb") as file:
        file.write(data)


def touch(path: Path) -> None:
    """Make an empty file if there is none, and set its times, as `Path.touch`, with the mode of the tree that it is in."""
    descriptor = open_new(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def fit(path: Path) -> None:
    """Give a file that was written elsewhere, and moved, the mode of the tree that it is in now, if it is this user's."""
    _set_mode(str(path), group=is_group_folder(path.parent))


def make_top(path: Path, *, group: bool = False) -> None:
    """Make a folder that holds trees of others, or close the one that is there; what is in it stays as it is.

    Raises
    ------
    OSError
        As of `make_root`.
    """
    make_folder(path, parents=True, exist_ok=True)
    if _set_mode(str(path), group=group) and group and not is_group_folder(path):
        raise PermissionError(
            f"the group of {path} is none of this process: chgrp GROUP {path}, with a group of its user"
        )


def make_root(path: Path, *, group: bool = False) -> list[Path]:
    """Make the topmost folder of a tree, or take one that is there, and give everything below it the modes of the tree.

    The folder itself comes last, so a tree whose topmost folder has the right mode is not walked again.

    Parameters
    ----------
    path
        The folder.
    group
        Whether the folder's group may read the tree.

    Returns
    -------
    list of Path
        What belongs to another user and is open to more users than it should be: its owner must change it.

    Raises
    ------
    PermissionError
        The folder's group can't be let in: it is no group of this process.
    OSError
        The folder can't be made.
    """
    wanted = GROUP_FOLDER if group else PRIVATE_FOLDER
    make_folder(path, parents=True, exist_ok=True)
    if stat.S_IMODE(path.stat().st_mode) == wanted:
        return []
    below = (f"{place}/{name}" for place, folders, files in os.walk(path) for name in (*folders, *files))
    left = [entry for entry in below if not _set_mode(entry, group=group)]
    if not _set_mode(str(path), group=group):
        left.append(str(path))
    elif group and not is_group_folder(path):
        raise PermissionError(
            f"the group of {path} is none of this process: chgrp GROUP {path}, with a group of its user"
        )
    return [Path(each) for each in left]


def _set_mode(path: str, *, group: bool) -> bool:
    """Give a file or folder its mode, and tell whether it has it now; a link has none of its own."""
    try:
        found = os.lstat(path).st_mode
        if stat.S_ISDIR(found):
            wanted = GROUP_FOLDER if group else PRIVATE_FOLDER
        elif stat.S_ISREG(found):
            wanted = (GROUP_FILE if group else PRIVATE_FILE) if found & 0o200 or not group else found & 0o640
        else:
            return True
        if stat.S_IMODE(found) != wanted:
            os.chmod(path, wanted)  # noqa: PTH101 - many are changed at once
    except FileNotFoundError:
        return True
    except PermissionError:
        return not os.lstat(path).st_mode & (0o027 if group else 0o077)
    return True
