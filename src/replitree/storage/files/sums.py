"""Block checksums of a data file, in a small file beside it: with them a reader verifies only the bytes that it reads.

A manifest has one checksum for a whole data file.  A reader of a large file that needs two columns of sixteen would have to
read all of the file to verify these two.  So a data file of more than `SUMMED_BYTES_MIN` bytes, ``data-0.parquet``, has a
*sums file* beside it, ``.data-0.parquet.crc``, with checksums of each block of `BLOCK_BYTES` bytes:

==========================  =====================================================================================
bytes                       what they are
==========================  =====================================================================================
4                           ``crc`` and a zero byte
4                           bytes of a block, big-endian
4 for each block            CRC-32 of the block, big-endian
8 for each block            XXH3-64 of the block, little-endian
8                           `MAGIC`
8                           bytes of the data file, little-endian
16                          XXH3-128 of the data file: the checksum that its manifest has
16                          XXH3-128 of everything before, in this file
==========================  =====================================================================================

The first three rows are the format of Hadoop's ``LocalFileSystem``.  It reads the sums file with every file of this machine
that it opens, and compares the CRC-32 of each block that it reads.  So Spark's JVM verifies every byte that it uses, page
headers and footers included, without any code of ours.  Arrow's readers use XXH3-64
(`replitree.storage.parts.verified`), which tells more changes apart.

Guarantees: `decode_sums` returns sums only if the sums file is undamaged and was made of bytes that have the checksum of the
manifest.  So sums are believed as much as the manifest is, wherever they were found.

In an object store, a *sums object* with the same bytes lies beside each large data object
(`replitree.storage.shares.object_bytes`).

A sums file can be lost or damaged without harm: it is made again from the data file when that is verified as a whole.  So it
is not listed in the manifest, is not sent to other replicas, and its content is not part of what replicas compare.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass
from pathlib import Path

import xxhash
from zlib_ng import zlib_ng  # its CRC-32 takes a sixth of the time of zlib's

SUMMED_BYTES_MIN = 1 << 20
"""A data file of more bytes has a sums file; a smaller one is verified as a whole each time that it is opened."""

BLOCK_BYTES = 1 << 16
"""Bytes of a block: what a reader reads beyond what it needs, at either end of a range."""

SUMS_BYTES_MAX = 64 << 20
"""Bytes of a sums file at most: that of a data file of 300 GB."""

MAGIC = b"RTSUMS01"

_HEAD = struct.Struct(">4si")
_HADOOP = b"crc\0"
_TAIL = struct.Struct("<8sQ16s16s")


def sums_path(path: Path) -> Path:
    """Return where the sums file of a data file is.

    Examples
    --------
    >>> sums_path(Path("p_1_1_0/data-0.parquet")).name
    '.data-0.parquet.crc'
    """
    return path.with_name(sums_name(path.name))


def sums_name(name: str) -> str:
    """Return the name of the sums file of a data file, or of the sums object of a data object.

    Examples
    --------
    >>> sums_name("data-0.parquet")
    '.data-0.parquet.crc'
    """
    return f".{name}.crc"


def sums_bytes(size: int) -> int:
    """Return how many bytes the sums file of a data file of so many bytes has."""
    return _HEAD.size + 12 * -(-size // BLOCK_BYTES) + _TAIL.size


def is_summed(size: int) -> bool:
    """Tell whether a data file of so many bytes has a sums file."""
    return size > SUMMED_BYTES_MIN


@dataclass(frozen=True, slots=True)
class Sums:
    """The checksums of the blocks of one data file.

    Attributes
    ----------
    encoded
        The bytes of its sums file.
    blocks
        XXH3-64 of each block.
    """

    encoded: bytes
    blocks: array[int]


class SumsHasher:
    """Computes the checksum of a file, and those of its blocks, from its bytes in their order."""

    def __init__(self) -> None:
        self._whole = xxhash.xxh3_128()
        self._block = xxhash.xxh3_64()
        self._crc = 0
        self._filled = 0
        self._crcs = array("I")
        self._sums = array("Q")
        self.bytes = 0

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes."""
        # Arrow hands over views of other item sizes: lengths below are bytes.
        view = memoryview(data).cast("B")
        self._whole.update(view)
        self.bytes += view.nbytes
        position = 0
        # Few writes are a multiple of a block: the rest of the last one is filled first.
        if self._filled:
            position = self._fill(view[: BLOCK_BYTES - self._filled])
        end = position + (view.nbytes - position) // BLOCK_BYTES * BLOCK_BYTES
        for first in range(position, end, BLOCK_BYTES):
            block = view[first : first + BLOCK_BYTES]
            self._crcs.append(zlib_ng.crc32(block))
            self._sums.append(xxhash.xxh3_64_intdigest(block))
        if end < view.nbytes:
            self._fill(view[end:])

    def _fill(self, piece: memoryview) -> int:
        """Add bytes to the block that is not full; return how many."""
        self._crc = zlib_ng.crc32(piece, self._crc)
        self._block.update(piece)
        self._filled += piece.nbytes
        if self._filled == BLOCK_BYTES:
            self._end_block()
        return piece.nbytes

    def _end_block(self) -> None:
        self._crcs.append(self._crc)
        self._sums.append(self._block.intdigest())
        self._block.reset()
        self._crc = self._filled = 0

    @property
    def checksum(self) -> str:
        """XXH3-128 of the bytes so far: 32 hexadecimal digits."""
        return self._whole.hexdigest()

    def finish(self) -> Sums:
        """Return the sums of the file that ends here; no bytes follow."""
        if self._filled:
            self._end_block()
        crcs, sums = _swapped(self._crcs, "big"), _swapped(self._sums, "little")
        body = b"".join((_HEAD.pack(_HADOOP, BLOCK_BYTES), crcs, sums))
        tail = _TAIL.pack(MAGIC, self.bytes, self._whole.digest(), bytes(16))[:-16]
        return Sums(b"".join((body, tail, xxhash.xxh3_128_digest(body + tail))), self._sums)


def _swapped(values: array[int], order: str) -> bytes:
    if sys.byteorder == order:
        return values.tobytes()
    swapped = array(values.typecode, values)
    swapped.byteswap()
    return swapped.tobytes()


def sums_of(data: bytes | memoryview) -> Sums:
    """Return the sums of a file with these bytes."""
    hasher = SumsHasher()
    hasher.update(data)
    return hasher.finish()


def decode_sums(data: bytes, size: int, checksum: str) -> Sums | None:
    """Read the bytes of a sums file.

    Parameters
    ----------
    data
        The bytes.
    size, checksum
        Of the data file, as its manifest has them.

    Returns
    -------
    Sums or None
        None when the bytes are damaged, or belong to a file with other bytes.
    """
    blocks = -(-size // BLOCK_BYTES)
    first = _HEAD.size + 4 * blocks
    # The length first: from here on every place that is read lies inside of the bytes.
    if len(data) != sums_bytes(size) or data[: _HEAD.size] != _HEAD.pack(_HADOOP, BLOCK_BYTES):
        return None
    magic, summed, whole, digest = _TAIL.unpack_from(data, len(data) - _TAIL.size)
    if (magic, summed, whole.hex()) != (MAGIC, size, checksum):
        return None
    # Last: it is the only step that reads all of the sums.
    if xxhash.xxh3_128_digest(memoryview(data)[:-16]) != digest:
        return None
    found = array("Q", data[first : first + 8 * blocks])
    if sys.byteorder == "big":
        found.byteswap()
    return Sums(data, found)


def read_sums(path: Path, size: int, checksum: str) -> Sums | None:
    """Read the sums file beside a data file; parameters and result as `decode_sums`, None also when there is none."""
    try:
        with sums_path(path).open("rb") as file:
            data = file.read(SUMS_BYTES_MAX + 1)
    # A sums file that can't be read counts as missing: sums are
    # made of the data file again, and verified by its checksum.
    except OSError:
        return None
    return decode_sums(data, size, checksum)


__all__ = [
    "BLOCK_BYTES",
    "SUMMED_BYTES_MIN",
    "Sums",
    "SumsHasher",
    "decode_sums",
    "is_summed",
    "read_sums",
    "sums_bytes",
    "sums_name",
    "sums_of",
    "sums_path",
]
