"""The inventory of this machine's own files: one row for every file, folder and link that can be seen.

Guarantees: nothing is opened, only looked at; links are not followed; what can't be read is left out; names that are no
Unicode are shown with escapes; the walk is bounded in rows and in time.

Left out: file systems that are no disks (/proc, /sys, /dev, /run and their like), network file systems (a look at one may
hang), and the folders that the caller names.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

COLUMNS = (
    "path string not null, owner string not null, size bigint not null, modified timestamp, "
    "kind string not null, suffix string, walk int not null"
)
ORDER_BY = ("path",)
PARTITION_BY = ("kind",)
BATCH_ROWS = 5_000

SKIPPED_FOLDERS = ("/proc", "/sys", "/dev", "/run")
_NO_DISKS = (
    *("proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "bpf", "pstore"),
    *("configfs", "autofs", "mqueue", "hugetlbfs"),
)
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "fuse.sshfs", "fuse.rclone")
_SKIPPED_SYSTEMS = frozenset((*_NO_DISKS, *_NETWORK))
_KINDS = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link"))
# The end of the year 9999; some archives hold files with later times.
_YEARS_S = 253_402_300_799
_SUFFIX_LENGTH_MAX = 12


@dataclass(frozen=True, slots=True)
class WalkLimits:
    """Where a walk ends.

    Attributes
    ----------
    rows_max
        Rows of one piece of the walk.
    seconds_max
        Seconds of one piece of the walk.
    """

    rows_max: int = 200_000
    seconds_max: float = 25.0


def skipped_folders(extra: Sequence[Path] = ()) -> frozenset[str]:
    """Return the folders that a walk does not enter."""
    found = {*SKIPPED_FOLDERS, *(str(path.absolute()) for path in extra)}
    try:
        mounts = Path("/proc/mounts").read_text(errors="replace").splitlines()
    except OSError:
        # Another system than Linux has no such file.
        mounts = []
    for line in mounts:
        words = line.split()
        if len(words) > 2 and words[2] in _SKIPPED_SYSTEMS:
            found.add(words[1].replace("\\040", " "))
    return frozenset(found)


def starting_points(root: str, skipped: frozenset[str], wanted: int = 64) -> list[tuple[str, bool]]:
    """Divide the tree into pieces of work.

    Parameters
    ----------
    root
        Where the tree begins.
    skipped
        Folders to leave out.
    wanted
        Go down until there are about so many pieces.

    Returns
    -------
    list[tuple[str, bool]]
        Folders, and whether everything below belongs to the piece or only the folder's own entries that are no folders.
    """
    pieces: list[tuple[str, bool]] = []
    level = [root]
    while level and len(level) + len(pieces) < wanted:
        deeper: list[str] = []
        for folder in level:
            pieces.append((folder, False))
            deeper += [entry.path for entry in _entries(folder) if _is_folder(entry) and entry.path not in skipped]
        level = deeper
    return pieces + [(folder, True) for folder in level]


def walk(folder: str, deep: bool, skipped: frozenset[str]) -> Iterator[tuple[Any, ...]]:
    """Give a row for the folder itself and for everything in it, folder by folder.

    Parameters
    ----------
    folder
        Where to begin.
    deep
        Also go into the folders below; else these are left to another piece of work.
    skipped
        Folders not to enter.
    """
    try:
        top = os.lstat(folder)
    except OSError:
        # The folder is gone since it was listed, or this user must not see it.
        pass
    else:
        yield row(folder, top)
    waiting = [folder]
    while waiting:
        for entry in _entries(waiting.pop()):
            if _is_folder(entry):
                if not deep or entry.path in skipped:
                    continue
                waiting.append(entry.path)
            try:
                looked = entry.stat(follow_symlinks=False)
            except OSError:
                # The entry is gone meanwhile, or this user must not see it.
                continue
            yield row(entry.path, looked)


def row(path: str, looked: os.stat_result) -> tuple[Any, ...]:
    """Return path, owner, size, modification time in microseconds, kind and suffix."""
    kind = next((name for test, name in _KINDS if test(looked.st_mode)), "other")
    modified = looked.st_mtime_ns // 1000 if 0 <= looked.st_mtime <= _YEARS_S else None
    return (
        _readable(path),
        owner_name(looked.st_uid),
        looked.st_size,
        modified,
        kind,
        _suffix(path) if kind == "file" else None,
    )


@lru_cache(maxsize=4096)
def owner_name(user: int) -> str:
    """Return the name of a user, or the number when there is no name."""
    try:
        import pwd

        return pwd.getpwuid(user).pw_name
    except (ImportError, KeyError):
        return str(user)


def _readable(path: str) -> str:
    """Return the path as Unicode: bytes that are none become escapes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return path.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return path


def _suffix(path: str) -> str | None:
    """Return what follows the last dot of the file's name, in lower case.

    >>> _suffix("/a.b/c.Tar.GZ"), _suffix("/a/.profile"), _suffix("/a/Makefile")
    ('gz', None, None)
    """
    name = path.rpartition("/")[2].lstrip(".")
    stem, dot, suffix = name.rpartition(".")
    usable = bool(stem and dot) and 0 < len(suffix) <= _SUFFIX_LENGTH_MAX and suffix.isalnum()
    return _readable(suffix).lower() if usable else None


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        # The folder is gone, or this user must not read it.
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


# --- as a Spark job -----------------------------------------------------------------------------------------------------------


def arrow_schema() -> Any:
    """Return the columns as Spark passes them to and from Python."""
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    return pa.schema(
        [
            ("path", text),
            ("owner", text),
            ("size", number),
            ("modified", pa.timestamp("us", "UTC")),
            ("kind", text),
            ("suffix", text),
            ("walk", pa.int32()),
        ]
    )


def batches(
    pieces: Iterator[tuple[str, bool]], skipped: frozenset[str], number: int, limits: WalkLimits
) -> Iterator[Any]:
    """Walk pieces of work; give record batches until a limit is reached.

    Parameters
    ----------
    pieces
        See `starting_points`.
    skipped
        Folders not to enter.
    number
        Which walk this is, from 1.
    limits
        For these pieces alone.
    """
    import pyarrow as pa

    schema, deadline, total = arrow_schema(), time.monotonic() + limits.seconds_max, 0
    rows: list[tuple[Any, ...]] = []

    def batch() -> Any:
        columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=False)]
        return pa.RecordBatch.from_arrays([*columns, pa.array([number] * len(rows), pa.int32())], schema=schema)

    for folder, deep in pieces:
        for found in walk(folder, deep, skipped):
            rows.append(found)
            if len(rows) == BATCH_ROWS:
                yield batch()
                total += len(rows)
                rows = []
                if total >= limits.rows_max or time.monotonic() > deadline:
                    return
    if rows:
        yield batch()
