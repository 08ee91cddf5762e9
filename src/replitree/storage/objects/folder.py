"""Replacing an object of a store in a folder: its client can't do that under a condition, so a lock of the folder stands in."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import xxhash

from replitree.errors import StoreError
from replitree.storage.durable import sync_folder, write_file

_FRESH = "#0"
"""Ends the name of a file that is not in place yet; listings leave such names out."""


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
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if read_file(path)[1] != tag:
                raise NotAsItWas
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


__all__ = ["NotAsItWas", "read_file", "replace_file"]
