"""Files that are there after a power failure: the few operations on disk that the storage room uses.

Guarantees: `write_file` and `sync_folder` return when the disk has the bytes, or the names; a disk that refuses raises
`StoreError` with what it said.  No function follows a symbolic link in the last step of a path.

A name is durable when its folder was synced, content when its file was; both are needed.  Everything that changes a disk goes
through this module, so that a test can crash after each step; the modes of new files are those of `replitree.private`.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

import xxhash

from replitree import private
from replitree.errors import StoreError
from replitree.storage.files.sums import Sums, SumsHasher

READ_BYTES = 1 << 20
"""Bytes that are read at a time."""

Bytes: TypeAlias = bytes
"""The type, where a property of the same name hides it."""

PARTS_AT_ONCE = 512
"""Parts of a file that are written at once; systems allow at least 1,024."""

SYNC_THREADS = 8
SYNC_AT_ONCE = 256
"""Files that are open at once to be synced."""

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | _NO_FOLLOW
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of a disk without hard links, without links between these folders, or with no further link for this file."""

_HINTS = {
    errno.ENOSPC: "the disk is full: make room; inserts go on by themselves then",
    errno.EDQUOT: "the disk quota is used up: raise it or make room",
    errno.EIO: "the disk is failing: replace it; the other replicas have the parts",
    errno.EROFS: "the file system is read-only: check the disk, then mount it again",
    errno.EACCES: "the folder may not be written: check its owner and mode",
}


@contextmanager
def store_errors(doing: str) -> Iterator[None]:
    """Turn whatever the operating system refuses into a `StoreError` that says what was being done."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "check the disk and the folder")
        raise StoreError(f"can't {doing}: {error}; {hint}") from error


def write_file(path: Path | str, data: bytes, *, sync: bool = True, mode: int | None = None) -> None:
    """Create a file that must not exist yet, with these bytes, and sync it; `mode`: as of `private.open_new`."""
    descriptor = private.open_new(path, _WRITE_FLAGS, mode)
    try:
        write_all(descriptor, data)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte: the operating system may take fewer at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_parts(descriptor: int, parts: Sequence[bytes | memoryview], offset: int) -> int:
    """Write every byte of some parts, one after the other from an offset on, and return how many; nothing is joined before."""
    written = 0
    for first in range(0, len(parts), PARTS_AT_ONCE):
        some = parts[first : first + PARTS_AT_ONCE]
        size, done = sum(map(len, some)), os.pwritev(descriptor, some, offset + written)
        # `pwritev` may write less than it was given, on a full disk or after a signal: only then the rest is joined.
        if done < size:
            rest = memoryview(b"".join(some))[done:]
            while rest:
                count = os.pwrite(descriptor, rest, offset + written + size - len(rest))
                rest = rest[count:]
        written += size
    return written


def sync_files(paths: Sequence[Path | str]) -> None:
    """Make the content of files durable, and the names in folders.

    The disk is asked for all of them at once: it writes its journal and empties its cache about once, not once for each.
    """
    # A process may have 1,024 files open; a batch of parts may have more.
    for first in range(0, len(paths), SYNC_AT_ONCE):
        some = paths[first : first + SYNC_AT_ONCE]
        descriptors: list[int] = []
        try:
            for path in some:
                descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC | _NO_FOLLOW))
                # A hint to the system to begin writing the pages now; with as many threads as files fsync does that itself.
                if len(some) > SYNC_THREADS and hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(descriptors[-1], 0, 0, os.POSIX_FADV_DONTNEED)
            *others, own = descriptors
            synced = _Synced(len(descriptors))
            if others:
                tasks = _syncing(os.getpid())
                for descriptor in others:
                    tasks.put((descriptor, synced))
            # The last one waits in this thread.
            synced.note(_sync(own))
            # All of them, before one raises: a descriptor that is closed under a running fsync may be another file's.
            for problem in synced.await_all():
                if problem is not None:
                    raise problem
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


class _Synced:
    """What became of each of some files that are synced at once; the thread that waits is woken once, by the last of them."""

    def __init__(self, count: int) -> None:
        self._problems: list[BaseException | None] = []
        self._left = iter(range(count - 1, -1, -1))
        self._all = threading.Lock()
        self._all.acquire()

    def note(self, problem: BaseException | None) -> None:
        """Take note of what a sync has raised, or of one that has ended well."""
        self._problems.append(problem)
        # `next` is one step of the interpreter: no two threads are the last.
        if not next(self._left):
            self._all.release()

    def await_all(self) -> list[BaseException | None]:
        """Wait until every file is noted."""
        with self._all:
            return self._problems


def _sync(descriptor: int) -> BaseException | None:
    """Sync a file; return what it raises, so that another thread can."""
    try:
        os.fsync(descriptor)
    except BaseException as problem:  # noqa: BLE001 - the thread that wants the file on the disk raises it
        return problem
    return None


@cache
def _syncing(process: int) -> SimpleQueue[tuple[int, _Synced]]:
    """Return the queue of the threads that wait for the disk: one process's, because a fork has none of its parent's threads.

    They are no `ThreadPoolExecutor`: its futures cost an insert, which syncs four files, as much as the system calls do.
    """
    # The argument is the cache's key: a fork copies the queue and none of its threads, and a task would wait for ever.
    del process
    tasks: SimpleQueue[tuple[int, _Synced]] = SimpleQueue()

    def work() -> None:
        while True:
            descriptor, synced = tasks.get()
            synced.note(_sync(descriptor))

    for number in range(SYNC_THREADS):
        threading.Thread(target=work, name=f"sync-{number}", daemon=True).start()
    return tasks


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    with opened(path, os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


@contextmanager
def opened(path: Path, flags: int = 0) -> Iterator[int]:
    """Open what is there to be synced; `flags`: besides those for reading, as of `os.open`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _NO_FOLLOW | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Give a folder or file another name at once; durable after `sync_folder` of both parents."""
    source.rename(target)


def link_file(source: Path, target: Path) -> None:
    """Give a file a second name, which must not exist yet; where the disk has no such links, a synced copy gets it."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        # Only a disk that has no links gets a copy: a full or failing disk raises.
        if error.errno not in _NO_LINKS:
            raise
        copy_file(source, target)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file to a name that must not exist yet, and sync the copy.  Reads a little at a time."""
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC | _NO_FOLLOW)
    try:
        writing = private.open_new(target, _WRITE_FLAGS)
        try:
            while data := os.read(reading, READ_BYTES):
                write_all(writing, data)
            os.fsync(writing)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def make_folder(path: Path) -> bool:
    """Create a folder, and tell whether it is new.  Its parent must exist."""
    # Another process may make it in between: `exist_ok`, and then both sync its name, which is harmless.
    if path.is_dir():
        return False
    private.make_folder(path, exist_ok=True)
    return True


def sync_made(folder: Path, *, is_new: bool) -> None:
    """Make the names of what was put into a folder durable; when `make_folder` made it, its own as well."""
    sync_folder(folder)
    if is_new:
        sync_folder(folder.parent)


def is_folder(path: Path) -> bool:
    """Tell whether there is a real folder of this name, not a link to one."""
    found = _stat(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def file_bytes(path: Path) -> int | None:
    """Size of a regular file, or None if there is none of this name (a link is none)."""
    found = _stat(path)
    return found.st_size if found is not None and stat.S_ISREG(found.st_mode) else None


def _stat(path: Path) -> os.stat_result | None:
    try:
        # `lstat`: a link is neither a folder nor a file of ours, wherever it leads.
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        # A file where a folder of the path should be means the same: there is nothing of this name.
        return None


def on_one_disk(source: Path, target: Path) -> bool:
    """Tell whether a rename can go from one to the other."""
    return source.lstat().st_dev == target.lstat().st_dev


def file_checksum(path: Path) -> str:
    """XXH3-128 of a file's bytes: 32 hexadecimal digits.  Reads a little at a time."""
    hasher = xxhash.xxh3_128()
    for piece in _pieces(path):
        hasher.update(piece)
    return hasher.hexdigest()


def file_sums(path: Path) -> tuple[str, Sums]:
    """XXH3-128 of a file's bytes, as `file_checksum`, and the checksums of its blocks."""
    hasher = SumsHasher()
    for piece in _pieces(path):
        hasher.update(piece)
    return hasher.checksum, hasher.finish()


def _pieces(path: Path) -> Iterator[memoryview]:
    """Read a file, up to `READ_BYTES` at a time; a piece is overwritten by the next one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _NO_FOLLOW)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        buffer = bytearray(READ_BYTES)
        view = memoryview(buffer)
        # One buffer for the whole file: callers hash each piece at once and keep nothing of it.
        while count := file.readinto(buffer):
            yield view[:count]


class HashingFile:
    """A new file whose checksum is known when it is written; Arrow writes to it as to any Python file.

    Once closed it takes nothing: a Parquet writer whose end has failed tries again when it is collected, and by then the
    descriptor may be another file's, or a connection's.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = private.open_new(path, _WRITE_FLAGS)
        self._hasher = SumsHasher()
        self.closed = False

    @property
    def bytes(self) -> int:
        """Bytes so far."""
        return self._hasher.bytes

    @property
    def checksum(self) -> str:
        """XXH3-128 of the bytes so far: 32 hexadecimal digits."""
        return self._hasher.checksum

    def sums(self) -> Sums:
        """Return the checksums of the file's blocks; no bytes follow."""
        return self._hasher.finish()

    def write(self, data: Bytes | memoryview) -> int:
        """Append bytes."""
        if self.closed:
            raise ValueError("the file is closed")
        view = memoryview(data)
        write_all(self._descriptor, view)
        self._hasher.update(view)
        return view.nbytes

    def tell(self) -> int:
        """Bytes so far."""
        return self.bytes

    def flush(self) -> None:
        """Nothing is held back."""

    def sync(self) -> None:
        """Make the content durable."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; again does nothing."""
        if not self.closed:
            # Before `close`: when that raises the descriptor is closed
            # all the same, and may be another file's on a second try.
            self.closed = True
            os.close(self._descriptor)
