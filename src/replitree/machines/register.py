"""A compare-and-set register: values under names, each with a version that counts its changes.

A command says which version it has seen; if that is the version still, the value is replaced.  So of two clients that have
seen the same version one wins, and a client that does not know the result of its command reads the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from replitree.decoding import msgpack_decoder


class Cell(msgspec.Struct, frozen=True, array_like=True):
    """The register of a name; version 0 and an empty value where nothing was ever set."""

    version: int = 0
    value: str = ""


class CompareAndSet(msgspec.Struct, frozen=True, array_like=True):
    """Replace a value if its version is `expected`."""

    name: str
    expected: int
    value: str


class CompareAndSetResult(msgspec.Struct, frozen=True, array_like=True):
    """Whether it was replaced, and what is there now."""

    is_done: bool
    cell: Cell


Registers: TypeAlias = Mapping[str, Cell]

NEVER_SET = Cell()


class Register:
    """The machine: `CompareAndSet` to `CompareAndSetResult`, both MessagePack."""

    def begin(self) -> Registers:
        """Return no values at all."""
        return {}

    def apply(self, state: Registers, command: bytes) -> tuple[Registers, bytes]:
        """Replace a value, or say why not."""
        asked = msgpack_decoder(CompareAndSet).decode(command)
        cell = state.get(asked.name, NEVER_SET)
        if cell.version != asked.expected:
            return state, msgspec.msgpack.encode(CompareAndSetResult(is_done=False, cell=cell))
        fresh = Cell(cell.version + 1, asked.value)
        return {**state, asked.name: fresh}, msgspec.msgpack.encode(CompareAndSetResult(is_done=True, cell=fresh))

    def snapshot(self, state: Registers) -> bytes:
        """Return all values as bytes."""
        return msgspec.msgpack.encode(state)

    def restore(self, data: bytes) -> Registers:
        """Return the values of a snapshot."""
        return msgpack_decoder(dict[str, Cell]).decode(data)
