"""Names of blobs.

A blob's id is its tablet, channel, generation, step and cookie; ids are ordered by these, in this order, and their packed form
is ordered alike.  A blob is immutable, and no id is ever used twice: a leader writes under its own generation only, and no two
leaders have the same.

(The ids are those of YDB's distributed storage, without size and checksum: there, too, two blobs never differ in these alone.)
"""

from __future__ import annotations

import struct
from typing import NamedTuple, NewType

from typing_extensions import override

TabletId = NewType("TabletId", int)
"""Names a tablet; `TABLET_BITS` bits."""

Channel = NewType("Channel", int)
"""A stream of blobs of one tablet; 8 bits.  Channel 0 holds log entries and nothing else."""

Generation = NewType("Generation", int)
"""Which leader of a tablet is meant; 32 bits, from 1 on.  0 stands for none."""

Step = NewType("Step", int)
"""Counts the entries of one generation; 32 bits.  0 is the entry that opens the generation."""

Cookie = NewType("Cookie", int)
"""Tells blobs of one step apart; 24 bits."""

GroupId = NewType("GroupId", str)
"""Names a blob group."""

TABLET_BITS = 64

LOG = Channel(0)
ENTRY = Cookie(0)
SYNC = Cookie(1)
"""Cookies in the log: of an entry, and of one that only says how far the log is confirmed."""

GENERATION_MAX = (1 << 32) - 1
STEP_MAX = (1 << 32) - 1
COOKIE_MAX = (1 << 24) - 1

PACKED_FIELDS = "QBIIBH"
"""How an id is packed, big endian: the cookie is the last three bytes."""

_PACKED = struct.Struct(f">{PACKED_FIELDS}")

PACKED_BYTES = _PACKED.size


class GenStep(NamedTuple):
    """A generation and a step of it: a place in the log."""

    generation: Generation
    step: Step

    @override
    def __str__(self) -> str:
        return f"{self.generation}:{self.step}"


NOTHING = GenStep(Generation(0), Step(0))
"""Before everything."""


class BlobId(NamedTuple):
    """The name of a blob."""

    tablet: TabletId
    channel: Channel
    generation: Generation
    step: Step
    cookie: Cookie

    @property
    def place(self) -> GenStep:
        """Generation and step."""
        return GenStep(self.generation, self.step)

    def pack(self) -> bytes:
        """Return the id as 20 bytes that are ordered as ids are.

        Raises
        ------
        OverflowError
            A number is negative or too large.
        """
        tablet, channel, generation, step, cookie = self
        try:
            # Big endian, most significant field first: packed ids compare as bytes as ids do.
            return _PACKED.pack(tablet, channel, generation, step, cookie >> 16, cookie & 0xFFFF)
        except struct.error as error:
            raise OverflowError(f"{self}: {error}") from error

    @override
    def __str__(self) -> str:
        return f"{self.tablet}/{self.channel}/{self.generation}:{self.step}/{self.cookie}"


def unpack(packed: bytes) -> BlobId:
    """Return the id that was packed.

    >>> unpack(log_entry(TabletId(7), Generation(2), Step(5)).pack()).place
    GenStep(generation=2, step=5)
    """
    tablet, channel, generation, step, high, low = _PACKED.unpack(packed)
    return BlobId._make((tablet, channel, generation, step, high << 16 | low))


def log_entry(tablet: TabletId, generation: Generation, step: Step, cookie: Cookie = ENTRY) -> BlobId:
    """Return the id of a log entry."""
    return BlobId(tablet, LOG, generation, step, cookie)


def first_of(tablet: TabletId, channel: Channel, place: GenStep) -> BlobId:
    """Return the first id that a blob of this place, or a later one, may have."""
    return BlobId(tablet, channel, place.generation, place.step, Cookie(0))


def last_of(tablet: TabletId, channel: Channel, place: GenStep) -> BlobId:
    """Return the last id that a blob of this place, or an earlier one, may have."""
    return BlobId(tablet, channel, place.generation, place.step, Cookie(COOKIE_MAX))
