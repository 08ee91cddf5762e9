"""A part's manifest: what its files are and what its rows are like, in one small JSON file beside them.

Guarantees: `decode_manifest(m.encode()) == m`; the bounds in the statistics hold for every row (a bound that can't be held
exactly is left out or made wider, never narrower); file names are plain names inside the part's folder; a newer format is
refused.

Statistics are kept of key and partition columns only: the Parquet footers have the rest.

The data files lie beside the manifest, or in a share; and some of them may be borrowed: they are objects of other parts'
shares, under the names that they have there.  Who borrows of a part that borrows names the share in which the object lies.

=================  ==============================  ==========================================
type of column     `min` and `max` in JSON         `low` and `high`
=================  ==============================  ==========================================
boolean            true, false                     bool
integers           number                          int
date               days since 1970-01-01           int
timestamp          microseconds since 1970         int
float, double      number; none if infinite, NaN   float
decimal            text                            Decimal
string             at most 64 characters           str
binary             hexadecimal, at most 64 bytes   bytes
=================  ==============================  ==========================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from replitree.decoding import json_decoder
from replitree.errors import CorruptPart
from replitree.storage.formats import refuse_newer

FORMAT = 1
SHARED_FORMAT = 2
"""Format of a manifest whose data files are the objects of a share."""
BORROWING_FORMAT = 3
"""Format of a manifest of which some data files are objects of other parts' shares."""
SHARES_MAX = 8
"""A part with so many shares borrows no more: what it is made into has all its rows in a share of its own."""
MANIFEST_FILE = "manifest.json"
MANIFEST_BYTES_MAX = 16 << 20
"""A manifest that claims to be larger is damaged: don't read it into memory."""

Scalar: TypeAlias = bool | int | float | str | None
"""A value in JSON."""

Bound: TypeAlias = bool | int | float | Decimal | str | bytes
"""A value that compares with others of its column."""

Bytes: TypeAlias = bytes
"""The type, where a field of the same name hides it."""

_DATA_FILE = re.compile(r"data-(0|[1-9][0-9]{0,5})\.parquet")
_CHECKSUM = re.compile(r"[0-9a-f]{32}")
_PARTITION = re.compile(r"[A-Za-z0-9~=+-][A-Za-z0-9.~=+-]*")
_SHARE = re.compile(r"[0-9a-f]{32}")


class ColumnStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one column's values in a part.

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


class PartManifest(msgspec.Struct, frozen=True, kw_only=True):
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
        See `replitree.storage.content_hash`.
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
        return msgspec.structs.replace(self, share=share, format=number, files=files)

    def as_local(self) -> PartManifest:
        """Return the manifest of the same part with its data files beside it."""
        if self.share_id is None:
            return self
        return msgspec.structs.replace(
            self, share=UNSET, format=FORMAT, files=tuple(file.placed(None) for file in self.files)
        )

    def encode(self) -> Bytes:
        """Bytes of the manifest file; equal manifests have equal bytes."""
        return _encoder.encode(self)


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = json_decoder(PartManifest)


def encode_manifest(manifest: PartManifest) -> bytes:
    """Bytes of the manifest file."""
    return manifest.encode()


def decode_manifest(data: bytes, where: str = "manifest") -> PartManifest:
    """Read a manifest's bytes.

    Raises
    ------
    CorruptPart
        They are not a manifest, or one that contradicts itself.
    UnsupportedFormat
        A newer replitree wrote them.
    """
    try:
        refuse_newer(data, where, BORROWING_FORMAT)
        manifest = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptPart(f"{where} is not a part's manifest ({error}); fetch the part again") from error
    problem = manifest_problem(manifest)
    if problem is not None:
        raise CorruptPart(f"{where} contradicts itself: {problem}; fetch the part again")
    return manifest


def read_manifest(part: Path) -> PartManifest:
    """Read the manifest of the part in a folder.

    Raises
    ------
    CorruptPart
        It is missing, damaged, or contradicts itself.
    UnsupportedFormat
        A newer replitree wrote it.
    """
    path = part / MANIFEST_FILE
    try:
        with path.open("rb") as file:
            data = file.read(MANIFEST_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise CorruptPart(f"{path} is missing; fetch the part again") from error
    if len(data) > MANIFEST_BYTES_MAX:
        raise CorruptPart(f"{path} is larger than any manifest; fetch the part again")
    return decode_manifest(data, str(path))


def manifest_problem(manifest: PartManifest) -> str | None:
    """Say what a manifest contradicts, or None.  A manifest from another machine is believed only after this."""
    names = [file.name for file in manifest.files]
    if not names or len(set(names)) < len(names):
        return "it has no files, or one twice"
    for file in manifest.files:
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


def bound_of(type_text: str, value: Scalar) -> Bound | None:
    """Turn a value in JSON into one that compares with others of its column; None stays None."""
    if value is None:
        return None
    if isinstance(value, str):
        if type_text.startswith("decimal"):
            return Decimal(value)
        return bytes.fromhex(value) if type_text == "binary" else value
    if isinstance(value, int) and type_text in {"float", "double"}:
        return float(value)  # JSON has one kind of number
    return value
