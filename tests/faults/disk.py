"""Disks that are full, fail, or lie: what the harness does to the disk of one replica.

Two ways, the same faults for the replica:

* *injected*: a file says which error operations on the data folder end with; `tests.faults.process` obeys.  Needs nothing.
* *mounted*: the data folder is a small file system in memory, which is made smaller than what is on it needs.  Needs root.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
from pathlib import Path

import msgspec

MOUNTED_MIB = 1024
SHRINK_TRIES_MAX = 100
INJECTED = "(injected)"
"""Ends the text of an injected error."""


class Fault(msgspec.Struct, frozen=True):
    """What is wrong with a disk.

    Attributes
    ----------
    number
        The error's number: ``ENOSPC`` hits what needs room, ``EIO`` everything that writes.
    share
        So many of the operations fail, 0 to 1.
    seed
        Which ones.
    """

    number: int
    share: float
    seed: int


class Disk:
    """The disk of one replica.

    Parameters
    ----------
    folder
        The replica's folder.
    mounted
        Whether its data are on a file system of their own; see `mount`.
    """

    def __init__(self, folder: Path, *, mounted: bool = False) -> None:
        self.control = folder / "disk.json"
        self._data = folder / "data"
        self._mounted = mounted

    def mount(self) -> None:
        """Make the file system, where there is to be one."""
        self.control.unlink(missing_ok=True)
        if self._mounted:
            self._data.mkdir(parents=True, exist_ok=True)
            _run("mount", "-t", "tmpfs", "-o", f"size={MOUNTED_MIB}m", "tmpfs", str(self._data))

    def unmount(self) -> None:
        """Remove the file system, and all that is on it."""
        if self._mounted and self._data.is_mount():
            _run("umount", str(self._data))

    def fill(self) -> None:
        """Leave no room."""
        if not self._mounted:
            self._write(Fault(errno.ENOSPC, 1.0, 0))
            return
        for _ in range(SHRINK_TRIES_MAX):  # it can't be made smaller than what is on it by then
            found = os.statvfs(self._data)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            if _resize(self._data, max(used, 4096)):
                return
        raise AssertionError(f"{self._data} can't be filled: it grows all the time")

    def fail(self, share: float, seed: int) -> None:
        """Let this share of what writes fail."""
        self._write(Fault(errno.EIO, share, seed))

    def mend(self) -> None:
        """Be a good disk again."""
        self.control.unlink(missing_ok=True)
        if self._mounted and self._data.is_mount():
            assert _resize(self._data, MOUNTED_MIB << 20)

    def parts(self) -> dict[str, Path]:
        """Return the data files of its parts by the parts' names."""
        return {file.parent.name: file for file in sorted(self._data.glob("tables/*/parts/*/data-0.parquet"))}

    def _write(self, fault: Fault) -> None:
        draft = self.control.with_suffix(".draft")
        draft.write_bytes(msgspec.json.encode(fault))
        draft.replace(self.control)


def flip(file: Path, chance: random.Random) -> bool:
    """Flip the bits of one byte of a file; False when it has left meanwhile."""
    try:
        with file.open("r+b") as content:
            place = chance.randrange(file.stat().st_size)
            content.seek(place)
            byte = content.read(1)[0]
            content.seek(place)
            content.write(bytes([byte ^ 0xFF]))
    except FileNotFoundError:
        return False
    return True


def can_mount(folder: Path) -> bool:
    """Tell whether this process may make file systems of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if made.returncode == 0:
        _run("umount", str(folder))
    return made.returncode == 0


def _resize(folder: Path, size: int) -> bool:
    """Change how many bytes fit on a mounted folder; False when more are on it."""
    done = subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], capture_output=True, check=False)
    return done.returncode == 0


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
