"""Bytes of a data file, each of them compared with a checksum before a reader gets it.

Where bytes come from is a `ByteSource`: a file of this machine (`DiskBytes`), or an object in a store
(`replitree.storage.shares.object_bytes`).  `CheckedBytes` verifies them, and goes on with a good copy when they are damaged;
`VerifiedBinaryFile` is what Arrow reads them through.

A large file is compared block by block (`replitree.storage.files.sums`), a small one as a whole each time.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

import xxhash
from typing_extensions import override

from replitree.storage.files.binary_file import BinaryFile
from replitree.storage.files.durable import file_sums
from replitree.storage.files.sums import BLOCK_BYTES, Sums, is_summed, read_sums
from replitree.storage.parts.manifest import FileEntry
from replitree.storage.parts.part_folder import DamagedFile

if TYPE_CHECKING:
    import pyarrow as pa

SUMS_BYTES_KEPT = 64 << 20
"""Bytes of sums that are kept in memory: those of about 300 GB of data files."""

Problem: TypeAlias = DamagedFile | FileNotFoundError
"""The ways in which a data file can be damaged."""


class ByteSource(Protocol):
    """Where bytes of one data file are read, as they are.  Any thread may use it."""

    @property
    def path(self) -> Path:
        """The path, for messages."""

    @property
    def is_remote(self) -> bool:
        """Whether the bytes come from another machine, so that reading them again may help."""

    def read(self, first: int, count: int) -> pa.Buffer:
        """Read exactly `count` bytes from byte `first` on.

        Raises
        ------
        DamagedFile, FileNotFoundError
            The file does not have them, or is not there.
        StoreError, NotAuthorized
            A store gives no answer: nothing is known of the file.
        """

    def sums(self) -> Sums:
        """Return the sums of a large file, verified.  Raises as `read`."""

    def close(self) -> None:
        """Close it; again does nothing."""


class VerifiedFile(Protocol):
    """A data file that is verified as it is read."""

    @property
    def entry(self) -> FileEntry:
        """The file's entry in the manifest."""

    def source(self) -> ByteSource:
        """Open it.  Raises as `ByteSource.read`."""

    def replaced(self, problem: Problem) -> Path:
        """Return the path of a good copy on this machine; without one raise what is wrong."""


class DiskBytes:
    """Bytes of a file of this machine, which is opened now.  Raises `DamagedFile`, `FileNotFoundError`."""

    is_remote = False

    def __init__(self, path: Path, entry: FileEntry) -> None:
        # `__del__` closes the descriptor also when `opened` has raised.
        self._descriptor = -1
        self.path = path
        self._entry = entry
        self._descriptor = opened(path, entry)

    def __del__(self) -> None:
        self.close()

    def read(self, first: int, count: int) -> pa.Buffer:
        """See `ByteSource`."""
        import pyarrow as pa

        found = pa.allocate_buffer(count)
        view = memoryview(found)
        done = 0
        with reading(self.path):
            # preadv moves no position, so threads share the descriptor; it may read fewer bytes than there is room for.
            while done < count and (read := os.preadv(self._descriptor, [view[done:]], first + done)):
                done += read
        if done < count:
            raise damaged(self.path, f"ends at byte {first + done}")
        return found

    def sums(self) -> Sums:
        """See `ByteSource`."""
        return sums_for(self.path, self._entry)

    def close(self) -> None:
        """See `ByteSource`."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class CheckedBytes:
    """The bytes of a data file, all of them verified.  Any thread may use it.

    Parameters
    ----------
    file
        Where they are.
    """

    def __init__(self, file: VerifiedFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._source: ByteSource | None = None
        self._is_replaced = False

    def read(self, first: int, count: int) -> pa.Buffer:
        """Read `count` bytes from byte `first` on, which the file has.

        Raises
        ------
        DamagedFile, FileNotFoundError
            They are not what the manifest says; what `replaced` of the file raises.
        StoreError, NotAuthorized
            A store gives no answer.
        """
        source: ByteSource | None = None
        try:
            with self._lock:
                if self._source is None:
                    self._source = self._file.source()
                source = self._source
            # The lock is released before the read: threads read ranges of one file at the same time.
            return self._read(source, first, count)
        except (DamagedFile, FileNotFoundError) as problem:
            source = self._replaced(source, problem)
        return self._read(source, first, count)

    def close(self) -> None:
        """Close the file; no other thread reads it any more."""
        with self._lock:
            if self._source is not None:
                self._source.close()
            self._source = None

    def _replaced(self, bad: ByteSource | None, problem: Problem) -> ByteSource:
        """Return the good copy; the first thread that finds the file damaged brings it."""
        with self._lock:
            # Another thread has fetched the good copy while this one was reading the bad one.
            if self._is_replaced and self._source is not None and self._source is not bad:
                return self._source
            # The copy is damaged, too.  One more fetch would not help, and each reader would fetch again.
            if self._is_replaced:
                raise problem
            path = self._file.replaced(problem)
            if bad is not None and not bad.is_remote:  # one thread has a file of this machine open
                bad.close()
            self._source, self._is_replaced = DiskBytes(path, self._file.entry), True
            return self._source

    def _read(self, source: ByteSource, first: int, count: int) -> pa.Buffer:
        size = self._file.entry.bytes
        # A small file has no sums: each read verifies all of it, at most `SUMMED_BYTES_MIN` bytes.
        if not is_summed(size):
            wanted = self._file.entry.checksum
            whole = self._verified(
                source, 0, size, lambda found: None if xxhash.xxh3_128_hexdigest(found) == wanted else 0
            )
            return whole.slice(first, count)
        sums = source.sums()
        if not count:
            import pyarrow as pa

            return pa.py_buffer(b"")
        start = first // BLOCK_BYTES
        # Checksums are of whole blocks: the range is widened to their edges, and cut again after they were compared.
        begin, end = start * BLOCK_BYTES, min(-(-(first + count) // BLOCK_BYTES) * BLOCK_BYTES, size)
        blocks = self._verified(source, begin, end, lambda found: first_changed(found, start, sums))
        return blocks.slice(first - begin, count)

    @staticmethod
    def _verified(source: ByteSource, begin: int, end: int, compare: Callable[[pa.Buffer], int | None]) -> pa.Buffer:
        """Read bytes and compare them: `compare` returns the number of the first block that has changed."""
        found = source.read(begin, end - begin)
        changed = compare(found)
        # The transfer may have gone wrong: read once more before the object is called damaged.
        if changed is not None and source.is_remote:
            found = source.read(begin, end - begin)
            changed = compare(found)
        if changed is None:
            return found
        raise damaged(source.path, f"has changed in block {changed}, between the bytes {begin} and {end}")


def first_changed(found: pa.Buffer, start: int, sums: Sums) -> int | None:
    """Return the number of the first block that has changed, of blocks from number `start` on; None when all are good."""
    view = memoryview(found)
    for number, first in enumerate(range(0, len(view), BLOCK_BYTES), start):
        if xxhash.xxh3_64_intdigest(view[first : first + BLOCK_BYTES]) != sums.blocks[number]:
            return number
    return None


class VerifiedBinaryFile(BinaryFile):
    """A large data file as Arrow reads it: every byte that `read` returns was verified."""

    def __init__(self, file: VerifiedFile) -> None:
        super().__init__(file.entry.bytes)
        self._bytes = CheckedBytes(file)

    def __del__(self) -> None:
        self.close()

    @override
    def read_range(self, begin: int, count: int) -> pa.Buffer:
        """Return verified bytes.  Raises as `CheckedBytes.read`."""
        return self._bytes.read(begin, count)

    @override
    def close(self) -> None:
        super().close()
        self._bytes.close()


class QuietFile(VerifiedBinaryFile):
    """The same, but no read raises: `note` gets the error, and the read returns no bytes."""

    def __init__(self, file: VerifiedFile, note: Callable[[Exception], None]) -> None:
        super().__init__(file)
        self._note = note

    @override
    def read(self, count: int = -1) -> pa.Buffer | bytes:
        try:
            return super().read(count)
        except Exception as error:  # noqa: BLE001 - the caller of `note` raises it
            import pyarrow as pa

            self._note(error)
            return pa.py_buffer(b"")


# --- files of this machine -----------------------------------------------------------------------------------------------


class reading:  # noqa: N801 - a context, used as a function is
    """A context in which a disk that can't read a file's bytes makes that file a damaged one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError) and error.errno in {errno.EIO, errno.EBADMSG, errno.EUCLEAN}:
            raise damaged(self._path, f"can't be read: {error.strerror}") from error


def damaged(path: Path, how: str) -> DamagedFile:
    """Return the error of a data file that is not what its manifest says."""
    return DamagedFile(f"{path} {how}, and is not what its manifest says; fetch the part again", path)


def opened(path: Path, entry: FileEntry) -> int:
    """Open a data file and compare its size; return the descriptor.  Raises `DamagedFile`, `FileNotFoundError`."""
    with reading(path):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (NotADirectoryError, IsADirectoryError) as error:
            raise damaged(path, "is no file") from error
    # Of the descriptor, not of the path: the file may be exchanged between two calls.
    size = os.fstat(descriptor).st_size
    if size != entry.bytes:
        os.close(descriptor)
        raise damaged(path, f"has {size} bytes, not {entry.bytes}")
    return descriptor


# --- sums -------------------------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_kept: OrderedDict[tuple[str, int], Sums] = OrderedDict()
_kept_bytes = 0


def sums_for(path: Path, entry: FileEntry) -> Sums:
    """Return the sums of a large data file: those that are kept, those beside it, or those of its bytes, all of which are read.

    Raises
    ------
    DamagedFile, FileNotFoundError
        There are no sums, and the file is not what the manifest says.
    """
    kept = kept_sums(entry)
    if kept is not None:
        return kept
    # The reader may have a link; the sums file lies beside the file itself.
    path = Path(os.path.realpath(path))
    found = read_sums(path, entry.bytes, entry.checksum)
    if found is None:
        # A file of another size is refused before all of its bytes are read.
        os.close(opened(path, entry))
        with reading(path):
            checksum, found = file_sums(path)
        if checksum != entry.checksum:
            raise damaged(path, "has changed")
    keep_sums(entry, found)
    return found


def kept_sums(entry: FileEntry) -> Sums | None:
    """Return the sums of a large data file if an earlier reader of this process has kept them."""
    # The content, not the path: the same file under another name, or on another disk, has the same sums.
    key = entry.checksum, entry.bytes
    with _lock:
        found = _kept.get(key)
        if found is not None:
            _kept.move_to_end(key)
        return found


def keep_sums(entry: FileEntry, sums: Sums) -> None:
    """Keep the verified sums of a data file for later readers; those that were used longest ago go."""
    key = entry.checksum, entry.bytes
    global _kept_bytes  # noqa: PLW0603 - one for the process
    with _lock:
        if key not in _kept:
            _kept_bytes += len(sums.encoded)
        _kept[key] = sums
        # The newest stays even if it alone is above the limit: its reader asks for it at every block.
        while _kept_bytes > SUMS_BYTES_KEPT and len(_kept) > 1:
            _, dropped = _kept.popitem(last=False)
            _kept_bytes -= len(dropped.encoded)


__all__ = [
    "ByteSource",
    "CheckedBytes",
    "DiskBytes",
    "Problem",
    "QuietFile",
    "VerifiedBinaryFile",
    "damaged",
    "keep_sums",
    "kept_sums",
    "opened",
    "reading",
    "sums_for",
]
