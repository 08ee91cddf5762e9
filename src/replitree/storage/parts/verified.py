"""Verified data files: a reader gets no byte that was not compared with a checksum.

Arrow reads a file of this machine through `CheckedFile.open` and an object of a store through `StoredFile.open`.  Spark's JVM
gets the path of a file that `sound_path` returns; objects it reads at a gateway that reads them with `CheckedBytes`.

=========================  ===============================================  ==========================================
a data file                Arrow, and the gateway                           Spark's JVM, a file of this machine
=========================  ===============================================  ==========================================
of at most 1 MiB           read into memory as a whole; its checksum is     its checksum is compared before the JVM
                           compared                                         gets the path
larger, with a sums file   each block that is read is compared with its     Hadoop compares each block that it reads
                           checksum                                         with its CRC-32
larger, without            its checksum is compared when it is opened for   the same; then the JVM gets a link to it,
                           the first time; then as above                    with a sums file beside the link
=========================  ===============================================  ==========================================

Everything that is read is compared: pages and their headers, the footer with its statistics and offsets, indexes.

Sums (`replitree.storage.files.sums`) are kept in memory for later readers of the same content.  They say what bytes a file with
this checksum has, not that some file has them: the bytes themselves are compared each time that they are read.  So a file
that changes in place is noticed, whether its size and times tell so or not.

Bytes that another machine has sent are read once more before they are called damaged: a transfer may have gone wrong.  A file
that is missing, damaged or can't be read is replaced, where the reader says how (`Replace`): the read goes on with a
good copy.  Otherwise it fails with `DamagedFile`, or `FileNotFoundError`.

Absent on purpose: how an object is read from a store (`replitree.storage.shares.object_bytes`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import xxhash

from replitree import private
from replitree.storage.files.durable import file_checksum
from replitree.storage.files.sums import is_summed, read_sums, sums_path
from replitree.storage.parts.checked_bytes import (
    ByteSource,
    CheckedBytes,
    DiskBytes,
    Problem,
    QuietFile,
    VerifiedBinaryFile,
    damaged,
    keep_sums,
    kept_sums,
    opened,
    reading,
    sums_for,
)
from replitree.storage.parts.manifest import FileEntry, PartManifest
from replitree.storage.parts.part_folder import DamagedFile

if TYPE_CHECKING:
    # An engine that reads files by itself needs no Arrow, which takes longer to load than a small query.
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A data file on this machine that is verified as it is read.

    Attributes
    ----------
    path
        Where it is; a link is followed.
    entry
        What the manifest says of it.
    replace
        Returns the path of a good copy, or raises what the reader is to raise; None: there is no other copy.
    """

    path: Path
    entry: FileEntry
    replace: Replace | None = field(default=None, repr=False, compare=False)

    def open(self) -> pa.NativeFile:
        """Open the file for Arrow.  A small file is read now; see `read`.  Of a large file each read raises what is wrong."""
        return _opened(self)

    def source(self) -> ByteSource:
        """Open the file to read ranges of it.  Raises `DamagedFile`, `FileNotFoundError`."""
        return DiskBytes(self.path, self.entry)

    def read(self) -> pa.Buffer:
        """Read a small file.

        Raises
        ------
        DamagedFile, FileNotFoundError
            It is not what the manifest says; what `replace` raises.
        """
        import pyarrow as pa

        try:
            data = whole_file(self.path, self.entry)
        except (DamagedFile, FileNotFoundError) as problem:
            data = whole_file(self.replaced(problem), self.entry)
        return pa.py_buffer(data)

    def replaced(self, problem: Problem) -> Path:
        """Return the path of a good copy; without one raise what is wrong."""
        if self.replace is None:
            raise problem
        return self.replace(self, problem)


Replace: TypeAlias = Callable[[CheckedFile, Problem], Path]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file that is an object in a store, verified as it is read.

    Attributes
    ----------
    path
        What messages call it.
    entry
        What the manifest says of it.
    source
        Opens it to read ranges of it.
    replace
        As of `CheckedFile`.
    """

    path: Path
    entry: FileEntry
    source: Callable[[], ByteSource] = field(repr=False, compare=False)
    replace: Replace | None = field(default=None, repr=False, compare=False)

    def open(self) -> pa.NativeFile:
        """Open the object for Arrow.  A small one is read now; see `read`.  Of a large one each read raises what is wrong."""
        return _opened(self)

    def read(self) -> pa.Buffer:
        """Read all of it.

        Raises
        ------
        DamagedFile, FileNotFoundError
            It is not what the manifest says; what `replace` raises.
        StoreError, NotAuthorized
            The store gives no answer.
        """
        return CheckedBytes(self).read(0, self.entry.bytes)

    def replaced(self, problem: Problem) -> Path:
        """Return the path of a good copy on this machine; without one raise what is wrong."""
        if self.replace is None:
            raise problem
        return self.replace(CheckedFile(self.path, self.entry), problem)


def _opened(file: CheckedFile | StoredFile) -> pa.NativeFile:
    import pyarrow as pa

    return (
        pa.PythonFile(VerifiedBinaryFile(file), mode="r")
        if is_summed(file.entry.bytes)
        else pa.BufferReader(file.read())
    )


def quiet_file(file: CheckedFile, note: Callable[[Exception], None]) -> pa.NativeFile:
    """Open a data file for Arrow as `CheckedFile.open` does; of a large one no read raises.

    Parameters
    ----------
    file
        The file.
    note
        Is called with what a read would raise; the read returns no bytes, which ends what Arrow does with the file.
    """
    import pyarrow as pa

    if not is_summed(file.entry.bytes):
        return pa.BufferReader(file.read())
    return pa.PythonFile(QuietFile(file, note), mode="r")


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """A part on this machine whose data files are verified as they are read; attributes as those of `CheckedFile`."""

    folder: Path
    manifest: PartManifest
    replace: Replace | None = field(default=None, repr=False, compare=False)

    @property
    def files(self) -> tuple[CheckedFile, ...]:
        """Its data files, in the manifest's order."""
        return tuple(CheckedFile(self.folder / file.name, file, self.replace) for file in self.manifest.files)


# --- files of this machine -----------------------------------------------------------------------------------------------


def whole_file(path: Path, entry: FileEntry) -> bytes:
    """Read a small data file and compare its checksum.

    Raises
    ------
    DamagedFile
        It is not what the manifest says.
    FileNotFoundError
        It is not there.
    """
    descriptor = opened(path, entry)
    with reading(path), os.fdopen(descriptor, "rb", buffering=0) as file:
        data = file.read(entry.bytes)
        # A read may end early; only an empty one is the end of the file.
        while len(data) < entry.bytes and (more := file.read(entry.bytes - len(data))):
            data += more
    if xxhash.xxh3_128_hexdigest(data) != entry.checksum:
        raise damaged(path, "has changed")
    return data


def is_whole_file(file: CheckedFile) -> bool:
    """Tell whether a data file is there and is what its manifest says; every byte is read."""
    try:
        # The size first: one that differs proves the damage without a read.
        os.close(opened(file.path, file.entry))
        with reading(file.path):
            return file_checksum(Path(os.path.realpath(file.path))) == file.entry.checksum
    except (DamagedFile, FileNotFoundError):
        return False


# --- Spark's JVM ------------------------------------------------------------------------------------------------------------


def sound_path(file: CheckedFile, links: Callable[[CheckedFile], Path]) -> Path:
    """Return the path of a data file that Spark's JVM may read: what it reads there is verified, by us before or by it then.

    Parameters
    ----------
    file
        On this machine.
    links
        Returns the path of a file that does not exist or is a link to this file, in a folder of this process.

    Raises
    ------
    DamagedFile, FileNotFoundError
        It is not what the manifest says; what `CheckedFile.replace` raises.
    """
    try:
        return _sound(file.path, file, links)
    except (DamagedFile, FileNotFoundError) as problem:
        return _sound(file.replaced(problem), file, links)


def _sound(path: Path, file: CheckedFile, links: Callable[[CheckedFile], Path]) -> Path:
    entry = file.entry
    if not is_summed(entry.bytes):
        whole_file(path, entry)
        return path
    os.close(opened(path, entry))
    if read_sums(path, entry.bytes, entry.checksum) is not None:
        return path
    # Read here, too: Hadoop would believe the file, or complain of a sums file that is damaged.
    sums = sums_for(path, entry)
    link = links(file)
    # A thread's own draft: two readers of one file make the same link at the same time.
    draft = link.with_name(f".{threading.get_ident()}-{link.name}")
    draft.unlink(missing_ok=True)
    private.write_file(draft, sums.encoded)
    # The sums file first: Hadoop reads a file without one unverified.
    draft.replace(sums_path(link))
    draft.symlink_to(os.path.realpath(path))
    draft.replace(link)
    return link


__all__ = [
    "ByteSource",
    "CheckedBytes",
    "CheckedFile",
    "CheckedPart",
    "Problem",
    "Replace",
    "StoredFile",
    "damaged",
    "is_whole_file",
    "keep_sums",
    "kept_sums",
    "quiet_file",
    "sound_path",
    "sums_for",
    "whole_file",
]
