"""Log entries and the small values beside them: what is written into coordination, byte for byte.

Everything is JSON with a format number.  A reader that meets a newer format or an unknown kind stops with
`UnsupportedFormat` and changes nothing: an older replica must never skip an entry that it does not understand.

Kinds of entries: `get` (an insert).  The others that the design names (`settle`, `fail`, `merge`, `mutate`, `drop`, `lost`,
`alter`) are not written by this version.
"""

from __future__ import annotations

import msgspec

from replitree.errors import UnsupportedFormat
from replitree.protocol.effects import BlockId, StagedPart, StagingId
from replitree.protocol.parts import inserted_part

FORMAT = 1


class GetEntry(msgspec.Struct, frozen=True, tag="get", tag_field="kind"):
    """An insert: every replica gets these parts.

    Attributes
    ----------
    replica, insert
        Who wrote it, and the staging id under which its files lie there until they are published.
    parts
        One part per partition.
    blocks
        The deduplication ids of all the requests in it.
    schema_version
        Version of the columns that the rows were written with.
    """

    replica: str
    insert: StagingId
    parts: tuple[StagedPart, ...]
    blocks: tuple[BlockId, ...]
    schema_version: int = 1
    format: int = FORMAT


Entry = GetEntry


class _Envelope(msgspec.Struct):
    kind: str
    format: int


class BlockValue(msgspec.Struct, frozen=True):
    """Value of a `blocks` node.

    Attributes
    ----------
    insert
        The staging id of the insert that the request became part of.
    log_from
        An index that is not above the insert's entry: where a search for it starts.
    """

    insert: StagingId
    log_from: int
    format: int = FORMAT


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_get = msgspec.json.Decoder(GetEntry).decode
_decode_block = msgspec.json.Decoder(BlockValue).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of a log entry."""
    return _encode(entry)


def decode_entry(raw: bytes, where: str) -> Entry:
    """Read a log entry.

    Parameters
    ----------
    raw
        The node's value.
    where
        The node's path, for the error.

    Raises
    ------
    UnsupportedFormat
        It has a newer format, an unknown kind, or is no entry at all.
    """
    try:
        envelope = _decode_envelope(raw)
        if envelope.format > FORMAT or envelope.kind != "get":
            raise UnsupportedFormat(
                f"{where} has kind {envelope.kind!r} in format {envelope.format}; this replitree knows 'get' up to format "
                f"{FORMAT}. Upgrade this replica; it stopped before the entry and lost nothing."
            )
        return _decode_get(raw)
    except msgspec.DecodeError as error:
        raise UnsupportedFormat(
            f"{where} can't be read ({error}); upgrade this replica or restore the node. It stopped before the entry."
        ) from error


def encode_block(value: BlockValue) -> bytes:
    """Return the bytes of a `blocks` node."""
    return _encode(value)


def decode_block(raw: bytes, where: str) -> BlockValue:
    """Read a `blocks` node.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    try:
        value = _decode_block(raw)
    except msgspec.DecodeError as error:
        raise UnsupportedFormat(f"{where} can't be read ({error}); upgrade this replica") from error
    if value.format > FORMAT:
        raise UnsupportedFormat(f"{where} has format {value.format}, this replitree knows {FORMAT}; upgrade it")
    return value


def part_names(entry: Entry, index: int) -> tuple[tuple[str, str], ...]:
    """Return (partition, part name) of each part that the entry at `index` makes."""
    return tuple((part.partition, inserted_part(part.partition, index).name) for part in entry.parts)
