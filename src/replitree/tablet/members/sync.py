"""Syncing the writes of a blob directory: after an error of the sync itself the content of the disk is unknown.

After such an error the system may mark the pages as clean: the next sync succeeds although the bytes are only in memory, and a
read shows them.  So "no space" is harmless at a write, but not here.  A file that can't be opened, as after a disk was taken
out, was not synced; the process that next finds it syncs it before it counts.

(PostgreSQL's "fsyncgate" of 2018; Rebello and others, "Can Applications Recover from fsync Failures?", 2020.)
"""

from __future__ import annotations

import os
from pathlib import Path

from replitree.storage.files import durable


class SyncFailed(OSError):
    """The content of the disk is not known; written bytes must not be read or synced again."""


def sync_data(descriptor: int) -> None:
    """Make a file's bytes durable.

    Raises
    ------
    SyncFailed
        They may be, or not.
    """
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        # The system may call the pages clean now: a second sync would succeed without having written them.
        raise SyncFailed(error.errno, error.strerror) from error


def sync_names(folder: Path) -> None:
    """Make the names in a folder durable.

    Raises
    ------
    OSError
        It can't be opened, as when it was moved away: nothing was synced, and it may be when it is back.
    SyncFailed
        They may be durable, or not.
    """
    with durable.opened(folder, os.O_DIRECTORY) as descriptor:
        _sync_all(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    """Make a new file with these bytes, durably; an error before they are to be synced leaves nothing unclear.

    Raises
    ------
    OSError
        It can't be made, or opened, or the disk takes no more.
    SyncFailed
        It is there, and may be on the disk, or not.
    """
    durable.write_file(path, data, sync=False)
    with durable.opened(path) as descriptor:
        _sync_all(descriptor)


def _sync_all(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror) from error
