"""What is done to one of the directories of a blob group, with the real files and the real kernel.

==========  ===========================================================================================
`missing`   it is not there
`stale`     an old copy is in its place, from before the group was opened last
`rot`       bytes of one of its segments are changed, of the log or of a snapshot
`full`      its file system has no room; only of a member on a file system of its own (needs root)
==========  ===========================================================================================

`heal` brings back what was there before: the same disk, without what was written meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import subprocess
from pathlib import Path

KINDS = ("missing", "stale", "rot", "full")

MOUNTED_MIB = 96
ROTTEN_BYTES = 8


def mount(folder: Path) -> bool:
    """Make a small file system of its own; tell whether that was allowed."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={MOUNTED_MIB}m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(folder: Path) -> None:
    """Remove it."""
    if folder.is_mount():
        subprocess.run(["umount", str(folder)], capture_output=True, check=True)


class MemberDisk:
    """The directory of one member.

    Parameters
    ----------
    folder
        Where it is.
    spare
        Where to keep what is taken away.
    """

    def __init__(self, folder: Path, spare: Path) -> None:
        self._folder = folder
        self._spare = spare
        self._kind: str | None = None
        spare.mkdir()

    def can_be(self, kind: str) -> bool:
        """Whether this can be done to it: one needs a file system of its own, another a copy from before the last opening."""
        match kind:
            case "full":
                return self._folder.parent.is_mount()
            case "stale":
                return (self._spare / "older").is_dir()
            case _:
                return True

    @property
    def is_free(self) -> bool:
        """Whether nobody holds it for a request."""
        try:
            with (self._folder / "lock").open("rb+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except FileNotFoundError:
            pass  # it is away
        return True

    def keep_copy(self) -> None:
        """Keep a copy, once between two openings; the one before can take the directory's place."""
        shutil.rmtree(self._spare / "older", ignore_errors=True)
        if (self._spare / "copy").is_dir():
            (self._spare / "copy").rename(self._spare / "older")
        with (self._folder / "lock").open("rb+") as lock:  # so that it is a copy of one moment
            fcntl.flock(lock, fcntl.LOCK_EX)
            shutil.copytree(self._folder, self._spare / "copy")

    def hurt(self, kind: str, draw: random.Random) -> str:
        """Do one of these; return what was done, for people."""
        assert self._kind is None
        self._kind = kind
        match kind:
            case "missing":
                self._folder.rename(self._aside)
            case "stale":
                shutil.copytree(self._spare / "older", self._beside("fresh"))
                self._folder.rename(self._aside)
                self._beside("fresh").rename(self._folder)
            case "rot":
                return f"rot at {self._rot(draw)}"
            case "full":
                self._fill()
        return kind

    def heal(self) -> None:
        """Bring back what was there before."""
        kind, self._kind = self._kind, None
        match kind:
            case "missing":
                self._aside.rename(self._folder)
            case "stale":
                self._folder.rename(self._beside("old"))
                self._aside.rename(self._folder)
                shutil.rmtree(self._beside("old"))
            case "full":
                (self._folder.parent / "filler").unlink()
            case _:
                pass  # what rotted stays: the next leader writes it anew, and its snapshot takes the place of the rest

    @property
    def _aside(self) -> Path:
        return self._beside("aside")

    def _beside(self, name: str) -> Path:
        return self._folder.with_name(f"{self._folder.name}-{name}")

    def _rot(self, draw: random.Random) -> str:
        newest = [sorted(path for path in folder.glob("*.seg") if path.stat().st_size) for folder in self._channels()]
        if not any(newest):
            return "nothing"
        path = draw.choice([segments[-1] for segments in newest if segments])
        with path.open("r+b") as file:
            position = draw.randrange(max(1, path.stat().st_size - ROTTEN_BYTES))
            file.seek(position)
            before = file.read(ROTTEN_BYTES)
            file.seek(position)
            file.write(bytes(byte ^ 0x5A for byte in before))
        return f"{path.parent.name}/{path.name}:{position}"

    def _channels(self) -> list[Path]:
        return sorted(self._folder.glob("blobs/*/*"))

    def _fill(self) -> None:
        with (self._folder.parent / "filler").open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                while True:
                    try:
                        os.write(file.fileno(), bytes(size))
                    except OSError:
                        break
