"""The log entry of a keeper: what came in one turn of the leader's loop, as it came.

A batch holds requests, not results: a result exists when the batch is committed and applied, and not before.  It is one
MessagePack array of columns, because columns of numbers and bytes decode several times faster than an array for each request:

====================  ======================================================================================
field                 content
====================  ======================================================================================
rules                 version of the semantics, `state.RULES`
generation            of the leader
now_ms                its clock, in milliseconds since 1970; the only time that the semantics know
identities            lists of identities, each `[scheme, id]`; most connections of a batch have the same list
sessions              for each frame its session; 0 for a frame of the keeper itself
identity_indexes      for each frame its index in `identities`
frames                the frames; those of clients as they came, without their lengths
====================  ======================================================================================

A frame of session 0 is a MessagePack array that begins with its name: one of the classes of `Internal`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from replitree.decoding import msgpack_decoder
from replitree.errors import ReplitreeError


class BadBatch(ReplitreeError):
    """A log entry is not a batch that a keeper wrote, so that nothing after it can be applied."""


class Batch(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A batch; the columns of frames have the same length."""

    rules: int
    generation: int
    now_ms: int
    identities: list[list[tuple[bytes, bytes]]]
    sessions: list[int]
    identity_indexes: list[int]
    frames: list[bytes]


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """Choose what passwords are made with, unless an earlier leader has."""

    secret: bytes


class Open(msgspec.Struct, frozen=True, array_like=True, tag="open"):
    """Open a session, or give one that exists a longer timeout.

    Attributes
    ----------
    timeout_ms
        In milliseconds.
    session
        The session that exists; 0 for a new one.
    """

    timeout_ms: int
    session: int = 0


class Expire(msgspec.Struct, frozen=True, array_like=True, tag="expire"):
    """End a session that was silent for its timeout."""

    session: int


class Reap(msgspec.Struct, frozen=True, array_like=True, tag="reap"):
    """Delete a container, or a node with a time to live, if it is due at the time of the batch.

    Attributes
    ----------
    path, czxid
        The node; one that was deleted and created anew has another czxid.
    """

    path: bytes
    czxid: int


Internal: TypeAlias = Begin | Open | Expire | Reap

_encoder = msgspec.msgpack.Encoder()


def encode_batch(batch: Batch) -> bytes:
    """Return the bytes of a log entry."""
    return _encoder.encode(batch)


def decode_batch(entry: bytes) -> Batch:
    """Return the batch of a log entry.

    Raises
    ------
    BadBatch
        It is not one.
    """
    try:
        batch = msgpack_decoder(Batch).decode(entry)
    except msgspec.MsgspecError as error:
        raise BadBatch(f"a batch of the keeper can't be read: {error}") from error
    if not len(batch.sessions) == len(batch.identity_indexes) == len(batch.frames):
        raise BadBatch("the columns of a batch of the keeper have different lengths")
    if any(not 0 <= index < len(batch.identities) for index in batch.identity_indexes):
        raise BadBatch("a batch of the keeper names identities that it does not have")
    return batch


def encode_internal(frame: Internal) -> bytes:
    """Return a frame of session 0."""
    return _encoder.encode(frame)


def decode_internal(frame: bytes) -> Internal | None:
    """Return what a frame of session 0 asks for; None for one that this version does not know."""
    try:
        found: Internal = msgpack_decoder(Internal).decode(frame)
    except msgspec.MsgspecError:
        return None
    return found
