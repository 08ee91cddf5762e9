"""The nodes ``streams/<id>``: which batch of each stream the table has last.

`protocol.insert.stream` says when they move.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from replitree.decoding import json_decoder
from replitree.protocol.core.effects import StagingId, StreamId
from replitree.protocol.core.values import decode_value

STREAM_FORMAT = 1

NO_BATCH = -1
"""Stands for the last batch of a stream of which the table has none: its first insert has failed."""


class StreamBatch(msgspec.Struct, frozen=True):
    """One batch of a stream.

    Attributes
    ----------
    stream
        The stream's id.
    query
        What sends the batches: a streaming query, by its id; empty for batch writes that number their versions.
    batch
        The batch's number, 0 or more; it ascends within a stream.
    """

    stream: StreamId
    query: str
    batch: int


class StreamValue(msgspec.Struct, frozen=True):
    """Value of a `streams` node.

    Attributes
    ----------
    query, batch
        The last batch that the table has, and the query that sent it; `NO_BATCH`: the table has none.
    insert
        The staging id of its insert.
    log_from
        An index that is not above the insert's entry: where a search for it starts.
    quorum
        How many replicas must have the insert before it counts.  UNSET: it counts by its own entry.
    before
        The value before the insert.  If the insert fails, the node gets it back.  UNSET: there was no node.
    """

    query: str
    batch: int
    insert: StagingId
    log_from: int
    format: int = STREAM_FORMAT
    quorum: int | UnsetType = UNSET
    before: StreamValue | UnsetType = UNSET


_decode = json_decoder(StreamValue).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_stream(value: StreamValue) -> bytes:
    """Return the bytes of a `streams` node."""
    return _encode(value)


def decode_stream(raw: bytes, where: str) -> StreamValue:
    """Read a `streams` node.

    Raises
    ------
    UnsupportedFormat
        It has a newer format or can't be read.
    """
    return decode_value(_decode, raw, where, STREAM_FORMAT)
