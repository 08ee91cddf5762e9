"""Questions to a member of a blob group on another host, and its answers, as bytes.

::

    MessagePack [name, fields]  or  [name, fields, [incarnation, session]]    XXH3-64 of these (8 bytes)

A question may name the admission of the member (`Admission`): another member refuses it.

The name is that of the class; a newer version may send one that is not known here: then nothing is done, and
the answer is `Failed`.
"""

from __future__ import annotations

import msgspec
import xxhash

from replitree.decoding import msgpack_decoder
from replitree.errors import BadInput
from replitree.tablet.group.admission import (
    Admission,
    Admit,
    Answer,
    AskRules,
    AskStanding,
    AskStreams,
    Question,
    Remember,
    Reopened,
    Rules,
    Standing,
    Streams,
)
from replitree.tablet.group.effects import Overtaken
from replitree.tablet.group.member import (
    AskBarrier,
    AskFence,
    BarrierIs,
    Conflict,
    Contents,
    Done,
    Failed,
    FenceIs,
    Look,
    Raise,
    Scan,
    Sweep,
    Swept,
    Write,
)

PATH = "/v1/blobs"
MESSAGE_BYTES_MAX = 256 << 20
_SUM_BYTES = 8


_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Write, Raise, AskFence, Look, Scan, Sweep, AskStanding, Admit, Remember, AskStreams, AskRules, AskBarrier),
        *(Done, Overtaken, Conflict, Swept, FenceIs, Contents, Failed, Reopened, Standing, Streams, Rules, BarrierIs),
    )
}


class _MessageEnvelope(msgspec.Struct, array_like=True):
    name: str
    fields: msgspec.Raw
    admission: Admission | None = None


_envelope = msgpack_decoder(_MessageEnvelope)


def encode_message(message: Question | Answer, admission: Admission | None = None) -> bytes:
    """Return the bytes of a question or an answer."""
    named = (type(message).__name__, message)
    body = msgspec.msgpack.encode(named if admission is None else (*named, admission))
    return body + xxhash.xxh3_64_digest(body)


def decode_message(data: bytes) -> Question | Answer:
    """Return the question or the answer that was sent; raises as `decode_question`."""
    return decode_question(data)[0]


def decode_question(data: bytes) -> tuple[Question | Answer, Admission | None]:
    """Return the question or answer, and the admission under which the asking process admitted the member.

    Raises
    ------
    BadInput
        It was damaged on its way, or comes from a newer version.
    """
    body = data[:-_SUM_BYTES]
    if xxhash.xxh3_64_digest(body) != data[-_SUM_BYTES:]:
        raise BadInput("a message about blobs was damaged on its way; ask again")
    try:
        sent = _envelope.decode(body)
        message: Question | Answer = msgpack_decoder(_KINDS[sent.name]).decode(sent.fields)
    except (msgspec.MsgspecError, KeyError) as error:
        raise BadInput(f"a message about blobs can't be read ({error}): are both sides the same version?") from error
    return message, sent.admission
