"""The data folder of a server: one process has it at a time, and its files are closed to other users."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from replitree import private
from replitree.errors import ReplicaBusy
from replitree.replica.kit.logs import Log
from replitree.storage.files.durable import store_errors


def lock_data_folder(data: Path, *, group: bool | None = None) -> int:
    """Take the data folder for this process, with the modes of its files; return the lock's file descriptor.

    Parameters
    ----------
    data
        The folder.
    group
        Whether the users of its group may read it; None: as it is now.

    Raises
    ------
    ReplicaBusy
        Another process has it.
    StoreError
        The disk does not let it be used.
    """
    with store_errors(f"use the data folder {data}"):
        private.make_folder(data, parents=True, exist_ok=True)
        lock = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ReplicaBusy(f"another process uses the data folder {data}: stop it or choose another folder") from None
    with store_errors(f"use the data folder {data}"):
        open_to_others = private.make_root(data, group=private.is_group_folder(data) if group is None else group)
    if open_to_others:
        Log().warning(
            "files of another user can be read by more users than they should be: chown or chmod them",
            folder=str(data),
            files=len(open_to_others),
            first=str(open_to_others[0]),
        )
    return lock
