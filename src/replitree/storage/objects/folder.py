"""Operations on a store in a folder that its client lacks.

* Replacing an object under a condition: a lock of the folder stands in.
* Removing the folders in which objects were, and making durable that something is gone.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import xxhash

from replitree.errors import StoreError
from replitree.storage.files.durable import sync_folder, write_file

_FRESH = "#0"
"""Ends the name of a file that is not in place yet; listings leave such names out."""

_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT})
"""Errors for a folder that is in use, or gone already."""


class NotAsItWas(Exception):
    """The file has other bytes than those that were read."""


def read_file(path: Path) -> tuple[bytes, str]:
    """Return a file's bytes and their tag; raise `FileNotFoundError` when there is none.

    Raises
    ------
    StoreError
        The disk does not give it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"can't read {path}: {error.strerror}; check the disk") from error
    return data, xxhash.xxh3_128_hexdigest(data)


def replace_file(path: Path, folder: Path, data: bytes, tag: str) -> None:
    """Put other bytes in the place of a file's, durably, if it still has those that were read.

    Parameters
    ----------
    path, folder
        The file, and the store's folder, whose lock is held meanwhile.
    data, tag
        The new bytes; the tag of the old ones.

    Raises
    ------
    NotAsItWas, FileNotFoundError
        It has other bytes, or is not there.
    StoreError
        The disk refused; the old bytes stand, or the new ones do.
    """
    fresh = path.with_name(path.name + _FRESH)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Ends with the process, whatever ends it: no stale lock is ever left.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if read_file(path)[1] != tag:
                raise NotAsItWas
            # Of a process that ended before its rename; while the lock is held no other process writes it.
            fresh.unlink(missing_ok=True)
            write_file(fresh, data)
            os.replace(fresh, path)  # noqa: PTH105 - says that it replaces
            sync_folder(path.parent)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"can't replace {path}: {error.strerror}; check the disk and make room on it") from error


def sync_gone(paths: Iterable[Path]) -> None:
    """Make durable that these files are gone.

    Raises
    ------
    OSError
        The disk refused: they may come back.
    """
    for parent in sorted({path.parent for path in paths}):
        with suppress(FileNotFoundError):  # it is gone itself
            sync_folder(parent)


def remove_empty(folder: Path) -> None:
    """Remove a folder and those below it, as far as nothing is in them, durably.

    Raises
    ------
    OSError
        The disk refused.
    """
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)  # noqa: PTH106 - says that it must be empty
        except OSError as error:
            # Another process may have put an object there since, and removed the folder itself.
            if error.errno not in _NOT_EMPTY:
                raise
    if not folder.exists():
        sync_gone([folder])


__all__ = ["NotAsItWas", "read_file", "remove_empty", "replace_file", "sync_gone"]
