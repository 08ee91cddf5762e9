"""What a member of a blob group on another host is asked, and answers, as bytes.

::

    MessagePack [name, fields]    XXH3-64 of these (8 bytes)

The name is that of the class; a newer version may send one that is not known here: then nothing is done, and it is said so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import xxhash

from replitree.errors import BadInput
from replitree.storage.blob_member import Standing, Streams
from replitree.tablet.effects import Overtaken
from replitree.tablet.member import (
    AskFence,
    Conflict,
    Contents,
    Done,
    Failed,
    FenceIs,
    Look,
    Raise,
    Reply,
    Request,
    Scan,
    Sweep,
    Swept,
    Write,
)

PATH = "/v1/blobs"
MESSAGE_BYTES_MAX = 256 << 20
_SUM_BYTES = 8


@dataclass(frozen=True, slots=True)
class AskStanding:
    """Reply: `Standing`, `Failed`."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Remember that you take part in an opening.  Reply: `Done`, `Failed`."""

    session: int


@dataclass(frozen=True, slots=True)
class Remember:
    """Remember who takes part.  Reply: `Done`, `Failed`."""

    seen: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AskStreams:
    """Reply: `Streams`, `Failed`."""


Question: TypeAlias = Request | AskStanding | Admit | Remember | AskStreams
Answer: TypeAlias = Reply | Standing | Streams

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Write, Raise, AskFence, Look, Scan, Sweep, AskStanding, Admit, Remember, AskStreams),
        *(Done, Overtaken, Conflict, Swept, FenceIs, Contents, Failed, Standing, Streams),
    )
}
_envelope = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])


def encode_message(message: Question | Answer) -> bytes:
    """Return the bytes of a question or an answer."""
    body = msgspec.msgpack.encode((type(message).__name__, message))
    return body + xxhash.xxh3_64_digest(body)


def decode_message(data: bytes) -> Question | Answer:
    """Return the question or the answer that was sent.

    Raises
    ------
    BadInput
        It was damaged on its way, or comes from a newer version.
    """
    body = data[:-_SUM_BYTES]
    if xxhash.xxh3_64_digest(body) != data[-_SUM_BYTES:]:
        raise BadInput("a message about blobs was damaged on its way; ask again")
    try:
        name, fields = _envelope.decode(body)
        message: Question | Answer = msgspec.msgpack.decode(fields, type=_KINDS[name])
    except (msgspec.MsgspecError, KeyError) as error:
        raise BadInput(f"a message about blobs can't be read ({error}): are both sides the same version?") from error
    return message
