"""The body of a log entry: the commands of one batch, in their order, as a MessagePack array."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from replitree.decoding import msgpack_decoder
from replitree.tablet.core.envelope import BadEntry

_encoder = msgspec.msgpack.Encoder()
_decoder = msgpack_decoder(list[bytes])


def encode_commands(commands: Sequence[bytes]) -> bytes:
    """Return a batch as bytes.

    >>> decode_commands(encode_commands([b"a", b""]))
    [b'a', b'']
    """
    return _encoder.encode(commands)


def decode_commands(body: bytes) -> list[bytes]:
    """Return the commands of a body; an empty body has none.

    Raises
    ------
    BadEntry
        It is not one that was encoded.
    """
    try:
        # An entry without commands has no body at all: one that only renews a lease, or a snapshot.
        return _decoder.decode(body) if body else []
    except msgspec.MsgspecError as error:
        raise BadEntry(f"the body of a log entry can't be read: {error}") from error
