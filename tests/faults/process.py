"""A replica as the fault harness runs it: the server, on an address and on a disk that can be told to misbehave.

``python -m tests.faults.process ADDRESS DISK CONFIG``

* Its connections to other processes come from ``ADDRESS`` (127.0.1.1, …), by which the fronts of `tests.faults.proxy` know who
  calls.
* While the file ``DISK`` exists, operations on files below the data folder fail as it says: see `tests.faults.disk`.

Everything else is the server as it is.  No root is needed, unlike for a file system of its own.
"""

from __future__ import annotations

import errno
import os
import random
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from replitree.replica.kit.config import load_config
from replitree.replica.server_process import main
from tests.faults.disk import INJECTED, Fault

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_NEW_ROOM = ("os.mkdir", "os.link")
_CHANGES = (*_NEW_ROOM, "os.rename", "os.remove", "os.rmdir", "os.truncate")


class BrokenDisk:
    """Makes operations below a folder fail while a file says so.

    Opening for writing, making, linking, renaming and removing go through Python's audit events; ``write``, ``fsync`` and
    ``statvfs`` are replaced.  Reading goes on, as it mostly does on a disk that refuses writes.
    """

    def __init__(self, folder: Path, control: Path) -> None:
        self._below = f"{folder}{os.sep}"
        self._control = str(control)
        self._random = random.Random()
        self._seed: int | None = None

    def install(self) -> None:
        """Be in the way from now on."""
        sys.addaudithook(self._audit)
        for name in ("write", "fsync", "fdatasync"):
            setattr(os, name, self._guarded(getattr(os, name)))
        os.statvfs = self._statvfs(os.statvfs)

    def _fault(self) -> Fault | None:
        """Return what is wrong now; reads the file past Python's own events."""
        if not os.path.lexists(self._control):
            return None
        try:
            descriptor = os.open(self._control, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            fault = msgspec.json.decode(os.read(descriptor, 4096), type=Fault)
        finally:
            os.close(descriptor)
        if fault.seed != self._seed:
            self._seed, self._random = fault.seed, random.Random(fault.seed)
        return fault

    def _strike(self, path: str, *, needs_room: bool) -> None:
        if not path.startswith(self._below):
            return
        fault = self._fault()
        if fault is None or (fault.number == errno.ENOSPC and not needs_room):
            return
        if self._random.random() < fault.share:
            raise OSError(fault.number, f"{os.strerror(fault.number)} {INJECTED}", path)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING:
                name = _text(path)
                self._strike(name, needs_room=bool(flags & os.O_CREAT) and not os.path.lexists(name))
        elif event in _CHANGES:
            self._strike(_text(arguments[0]), needs_room=event in _NEW_ROOM)

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(descriptor: int, *arguments: Any) -> Any:
            if os.path.lexists(self._control):
                self._strike(_path_of(descriptor), needs_room=True)
            return function(descriptor, *arguments)

        return guarded

    def _statvfs(self, function: Callable[..., os.statvfs_result]) -> Callable[..., os.statvfs_result]:
        def statvfs(path: Any) -> os.statvfs_result:
            found = function(path)
            fault = self._fault()
            if fault is None or fault.number != errno.ENOSPC:
                return found
            fields = list(found)
            fields[3] = fields[4] = 0  # free blocks, and those for everybody
            return os.statvfs_result(fields)

        return statvfs


def _text(path: object) -> str:
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""


def _path_of(descriptor: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


def call_from(address: str) -> None:
    """Have connections that this process begins come from an address of this machine."""
    connect = socket.create_connection

    def create_connection(target: Any, timeout: Any = None, source_address: Any = None, **more: Any) -> socket.socket:
        return connect(target, timeout, source_address or (address, 0), **more)

    socket.create_connection = create_connection  # type: ignore[assignment]


def serve(own_address: str, disk: str, config: str) -> int:
    """Be a replica's server; return its exit status."""
    call_from(own_address)
    BrokenDisk(Path(load_config(Path(config)).data).resolve(), Path(disk)).install()
    return main(config)


if __name__ == "__main__":
    sys.exit(serve(*sys.argv[1:]))
