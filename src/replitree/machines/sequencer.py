"""A sequencer: ranges of numbers under names, each number given to one client at most.

A client that does not know the result of its command asks again: the numbers of the lost answer are lost, and no client has
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from replitree.decoding import msgpack_decoder


class Take(msgspec.Struct, frozen=True, array_like=True):
    """Take the next numbers, `count` of them."""

    name: str
    count: int = 1


class NumberRange(msgspec.Struct, frozen=True, array_like=True):
    """The first and the last number; they belong to the client that asked."""

    first: int
    last: int


Sequences: TypeAlias = Mapping[str, int]
"""The last number that was given, by name."""


class Sequencer:
    """The machine: `Take` to `NumberRange`, both MessagePack."""

    def begin(self) -> Sequences:
        """Return no sequences at all; each begins with 1."""
        return {}

    def apply(self, state: Sequences, command: bytes) -> tuple[Sequences, bytes]:
        """Give the next numbers."""
        asked = msgpack_decoder(Take).decode(command)
        last = state.get(asked.name, 0)
        taken = NumberRange(last + 1, last + asked.count)
        return {**state, asked.name: taken.last}, msgspec.msgpack.encode(taken)

    def snapshot(self, state: Sequences) -> bytes:
        """Return all sequences as bytes."""
        return msgspec.msgpack.encode(state)

    def restore(self, data: bytes) -> Sequences:
        """Return the sequences of a snapshot."""
        return msgpack_decoder(dict[str, int]).decode(data)
