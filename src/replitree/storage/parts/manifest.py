"""A part's manifest: what its files are and what its rows are like, in one small JSON file beside them.

Guarantees: `decode_manifest(m.encode()) == m`; the bounds in the statistics hold for every row (a bound that can't be held
exactly is left out or made wider, never narrower); file names are plain names inside the part's folder; a newer format is
refused; a manifest of format 4 or later whose bytes have changed in any way is refused as damaged.

A manifest has a checksum of its own bytes (`replitree.storage.files.sealed_json`).  The checksum proves the bytes.  The part's
*content*, with which every replica registers the part, proves that they are the bytes of this part's manifest (see
`expecting`): from format 5 on it is a digest of all that is the same on every replica (`PartManifest.content`).  So two
manifests with the same content differ at most in how the rows lie in files, and each file has a checksum of its own; the
part's name is not in the manifest, because a read takes nothing from it that the content does not fix.

The content of formats 1 to 4 is the content hash, which does not cover the schema version: columns that were dropped and added
again under their names have other rows then.  A part keeps that content until it is merged or mutated.  Manifests of formats 1
to 3 have no checksum, either; the check of parts compares them with the rows and writes them anew
(`replitree.storage.parts.sealing`).

Statistics are kept of key and partition columns only: the Parquet footers have the rest.  Their bounds are those of
`replitree.storage.schema.bounds`.

The data files lie beside the manifest, or in a share; and some of them may be borrowed: they are objects of other parts'
shares, under the names that they have there.  A part that borrows from a part that borrows names the share in which the object
lies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import msgspec
import xxhash
from msgspec import UNSET, UnsetType

from replitree.decoding import json_decoder
from replitree.errors import CorruptPart, UnsupportedFormat
from replitree.storage.files.formats import refuse_newer
from replitree.storage.files.sealed_json import seal, unseal
from replitree.storage.schema.bounds import Bound, Scalar, are_bounds_of, bound_of

UNSEALED_FORMAT = 1
"""Format of an earlier version's manifest, without a checksum, whose data files lie beside it."""
SHARED_FORMAT = 2
"""Format of an earlier version's manifest, without a checksum, whose data files are the objects of a share."""
BORROWING_FORMAT = 3
"""The same; some of its data files are objects of other parts' shares."""
SEALED_FORMAT = 4
"""Format of an earlier version's manifest with a checksum, wherever its data files are."""
FORMAT = 5
"""The same; the part's content is a digest of all that is the same on every replica."""
SHARES_MAX = 8
"""A part with so many shares borrows no more: what it is made into has all its rows in a share of its own."""
MANIFEST_FILE = "manifest.json"
MANIFEST_BYTES_MAX = 16 << 20
"""A manifest that claims to be larger is damaged: don't read it into memory."""

Bytes: TypeAlias = bytes
"""The type, where a field of the same name hides it."""

_DATA_FILE = re.compile(r"data-(0|[1-9][0-9]{0,5})\.parquet")
_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_PARTITION = re.compile(r"[A-Za-z0-9~=+-][A-Za-z0-9.~=+-]*")
_SHARE = re.compile(r"[0-9a-f]{32}")


class ColumnStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """Statistics of one column's values in a part.

    Attributes
    ----------
    type
        Text form of the column's type when the part was written.
    min, max
        No value is below or above these.  None when there are no values, or when the bound is not known.
    nulls
        Rows without a value.
    """

    type: str
    min: Scalar = None
    max: Scalar = None
    nulls: int = 0

    @property
    def low(self) -> Bound | None:
        """`min` as a value that compares, or None."""
        return bound_of(self.type, self.min)

    @property
    def high(self) -> Bound | None:
        """`max` as a value that compares, or None."""
        return bound_of(self.type, self.max)


class FileEntry(msgspec.Struct, frozen=True):
    """One data file of a part: a sorted run of rows.

    Attributes
    ----------
    checksum
        XXH3-128 of the file's bytes, 32 hexadecimal digits.
    share
        The share that the file is borrowed of, in which it has the same name; left out when it lies where the part does.
    """

    name: str
    rows: int
    bytes: int
    checksum: str
    share: str | UnsetType = UNSET

    @property
    def borrowed_of(self) -> str | None:
        """The share of another part in which the file lies; None when it lies where the part does."""
        return None if isinstance(self.share, UnsetType) else self.share

    def placed(self, share: str | None) -> FileEntry:
        """Return the entry of the same file, borrowed of a share, or where the part lies."""
        return msgspec.structs.replace(self, share=UNSET if share is None else share)


class PartManifest(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Everything that is known of a part without opening its data files.

    Attributes
    ----------
    partition
        The partition's id.
    partition_values
        Values of the table's partition transforms, in their order.
    rows, bytes
        Of all data files together.
    schema_version
        Version of the columns that the rows were written with.
    files
        In the order of the rows.
    columns
        Statistics of the key and partition columns, by name.
    content_hash
        That of the rows, see `replitree.storage.parts.content_hash`; coordination knows `content`.
    share
        The part's own share, whose objects are the data files that are not borrowed, 32 hexadecimal digits; left out when all
        of them lie beside the manifest.
    """

    format: int = FORMAT
    partition: str
    partition_values: tuple[Scalar, ...] = ()
    rows: int
    bytes: int
    schema_version: int
    files: tuple[FileEntry, ...]
    columns: dict[str, ColumnStats] = {}
    content_hash: str
    share: str | UnsetType = UNSET

    @property
    def share_id(self) -> str | None:
        """The part's own share; None when its data files lie beside the manifest."""
        return None if isinstance(self.share, UnsetType) else self.share

    @property
    def shares(self) -> tuple[str, ...]:
        """All shares that the part has objects of: its own, then those that it borrows of; none when its files are here."""
        return () if self.share_id is None else (self.share_id, *self.borrowed)

    @property
    def borrowed(self) -> dict[str, tuple[FileEntry, ...]]:
        """The files of other parts' shares, as those have them, by share."""
        found: dict[str, list[FileEntry]] = {}
        for file in self.files:
            if file.borrowed_of is not None:
                found.setdefault(file.borrowed_of, []).append(file.placed(None))
        return {share: tuple(files) for share, files in found.items()}

    @property
    def own_files(self) -> tuple[FileEntry, ...]:
        """The data files that are not borrowed."""
        return tuple(file for file in self.files if file.borrowed_of is None)

    def share_of(self, file: FileEntry) -> str | None:
        """Return the share in which a data file of this part lies; None when it lies beside the manifest."""
        return file.borrowed_of or self.share_id

    def shared_as(self, share: str, borrowed: Mapping[str, str] = MappingProxyType({})) -> PartManifest:
        """Return the manifest of the same part with its data files in a share; `borrowed`: but these, by name, in others."""
        files = tuple(file.placed(borrowed.get(file.name)) for file in self.files)
        number = BORROWING_FORMAT if borrowed else SHARED_FORMAT
        return msgspec.structs.replace(self, share=share, format=self.format if self.is_sealed else number, files=files)

    def named_in(self, share: str, first: int) -> PartManifest:
        """Return the manifest of the same part with its data files in a share, where they are numbered from `first` on."""
        files = tuple(
            FileEntry(data_file(number), file.rows, file.bytes, file.checksum)
            for number, file in enumerate(self.files, first)
        )
        return msgspec.structs.replace(self, files=files).shared_as(share)

    def as_local(self) -> PartManifest:
        """Return the manifest of the same part with its data files beside it."""
        if self.share_id is None:
            return self
        number = self.format if self.is_sealed else UNSEALED_FORMAT
        return msgspec.structs.replace(
            self, share=UNSET, format=number, files=tuple(file.placed(None) for file in self.files)
        )

    @property
    def is_sealed(self) -> bool:
        """Whether the manifest file has a checksum; those of earlier versions have none."""
        return self.format >= SEALED_FORMAT

    def sealed(self) -> PartManifest:
        """Return the same manifest in a format that has a checksum.  Only for what was verified against the part's rows.

        The content stays as it is: the part is registered with it.
        """
        # Not `FORMAT`: the number decides what the content is, and replicas compare the content of registered parts.
        return self if self.is_sealed else msgspec.structs.replace(self, format=SEALED_FORMAT)

    @cached_property  # each replica asks three times for the content of a part that it inserts or fetches
    def content(self) -> str:
        """The digest that the part is registered with, 32 hexadecimal digits: equal where a read shows the same."""
        if self.format < FORMAT:
            return self.content_hash
        # The XXH3-128 of what is the same on every replica, as one MessagePack array (frozen by `tests/formats`): magic,
        # content hash, schema version, partition, partition values, rows, and for each column by ascending name an array of
        # name, type, min, max, nulls.  Integers are as short as MessagePack allows, other numbers doubles, without a negative
        # zero: which of two zeros is the least depends on how rows were cut into batches.
        columns = [
            (
                name,
                stats.type,
                _canonical(stats.type, stats.min),
                _canonical(stats.type, stats.max),
                _number(stats.nulls),
            )
            for name, stats in sorted(self.columns.items())
        ]
        values = [_canonical("", value) for value in self.partition_values]
        fields = (_CONTENT_MAGIC, self.content_hash, _number(self.schema_version), self.partition, values)
        return xxhash.xxh3_128_hexdigest(_content_encoder.encode((*fields, _number(self.rows), columns)))

    @property
    def is_bound(self) -> bool:
        """Whether no other manifest passes for this one; an earlier version's may, but not if it has no rows to show."""
        return self.format >= FORMAT or self.rows == 0

    def encode(self) -> Bytes:
        """Bytes of the manifest file; equal manifests have equal bytes."""
        data = _encoder.encode(self)
        return seal(data) if self.is_sealed else data


_CONTENT_MAGIC = "replitree part content 5"
_FLOATS = frozenset({"float", "double"})
_content_encoder = msgspec.msgpack.Encoder()


def _canonical(type_text: str, value: Scalar) -> Scalar:
    match value:
        case None | str() | bool():
            return value
        case float():
            return value + 0.0  # -0.0 + 0.0 is 0.0
    number = _number(value)
    is_whole = isinstance(number, int) and type_text in _FLOATS
    return float(number) if is_whole else number  # JSON has one kind of number


def _number(value: int) -> int | str:
    """Return an integer of 64 bits; of another, which no writer has put there and MessagePack can't hold, its text."""
    return value if -(1 << 63) <= value < 1 << 64 else hex(value)


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = json_decoder(PartManifest)


def decode_manifest(data: bytes, where: str = "manifest") -> PartManifest:
    """Read a manifest's bytes.

    Raises
    ------
    CorruptPart
        They are not a manifest, are not what their checksum says, or contradict themselves.
    UnsupportedFormat
        A newer replitree wrote them.
    """
    try:
        # The checksum comes first: a damaged format number must not be taken for a newer format.
        data = unseal(data, SEALED_FORMAT)
        refuse_newer(data, where, FORMAT)
        manifest = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptPart(f"{where} is not a part's manifest ({error}); fetch the part again") from error
    problem = manifest_problem(manifest)
    if problem is not None:
        raise CorruptPart(f"{where} contradicts itself: {problem}; fetch the part again")
    return manifest


def is_same_manifest(data: bytes | None, manifest: PartManifest) -> bool:
    """Whether the bytes of a manifest file (None: there is none) are those of a manifest, with a checksum or without."""
    # Equal bytes are the common case, and need no decoding.
    if data is None or data == manifest.encode():
        return data is not None
    try:
        return decode_manifest(data).sealed() == manifest.sealed()
    except (CorruptPart, UnsupportedFormat):
        return False


def read_manifest(part: Path) -> PartManifest:
    """Read the manifest of the part in a folder.

    Raises
    ------
    CorruptPart
        It is missing, damaged, or contradicts itself.
    UnsupportedFormat
        A newer replitree wrote it.
    """
    path = os.path.join(part, MANIFEST_FILE)  # noqa: PTH118 - a start reads tens of thousands: pathlib takes as long as all else
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            is_too_large = os.fstat(file.fileno()).st_size > MANIFEST_BYTES_MAX
            data = b"" if is_too_large else file.readall()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise CorruptPart(f"{path} is missing; fetch the part again") from error
    if is_too_large:
        raise CorruptPart(f"{path} is larger than any manifest; fetch the part again")
    return decode_manifest(data, path)


def manifest_problem(manifest: PartManifest) -> str | None:
    """Say what a manifest contradicts, or None.  A manifest from another machine is believed only after this."""
    names = [file.name for file in manifest.files]
    if not names or len(set(names)) < len(names):
        return "it has no files, or one twice"
    for file in manifest.files:
        # The manifest may come from another machine: a name with a slash would leave the part's folder.
        if not is_data_file(file.name):
            return f"{file.name!r} is not the name of a data file"
        if file.rows < 0 or file.bytes < 0 or _CHECKSUM.fullmatch(file.checksum) is None:
            return f"the entry of {file.name} is damaged"
    if sum(file.rows for file in manifest.files) != manifest.rows:
        return "its files have not as many rows as it says"
    if sum(file.bytes for file in manifest.files) != manifest.bytes:
        return "its files have not as many bytes as it says"
    if not is_partition_id(manifest.partition) or _CHECKSUM.fullmatch(manifest.content_hash) is None:
        return "its partition or content hash is damaged"
    for name, stats in manifest.columns.items():
        if not are_bounds_of(stats.type, stats.min, stats.max):
            return f"the bounds of column {name!r} are not of its type {stats.type[:80]!r}"
    return _share_problem(manifest)


def _share_problem(manifest: PartManifest) -> str | None:
    if any(_SHARE.fullmatch(share) is None for share in manifest.shares):
        return "the name of its share is damaged"
    if manifest.borrowed and manifest.share_id is None:
        return "it borrows files and has no share of its own"
    if manifest.borrowed and (manifest.share_id in manifest.borrowed or manifest.format < BORROWING_FORMAT):
        return "it borrows of itself, or in a format that knows no borrowing"
    return None


def is_data_file(name: str) -> bool:
    """Tell whether a part's data file can have this name: nothing that leaves the part's folder."""
    return _DATA_FILE.fullmatch(name) is not None


def data_file(number: int) -> str:
    """Name of a part's data file.

    Examples
    --------
    >>> data_file(0)
    'data-0.parquet'
    """
    return f"data-{number}.parquet"


def is_partition_id(text: str) -> bool:
    """Tell whether a partition's id can have this form; a folder of this name stays where it is put."""
    return len(text) <= 80 and _PARTITION.fullmatch(text) is not None
