"""Requests of HTTP clients to each machine, and the answers: JSON outside, the machine's commands inside.

==========  =====================  ====================================  ========================================
method      path                   body                                  answer
==========  =====================  ====================================  ========================================
GET         /values/NAME                                                 ``{"version": 3, "value": "a"}``
PUT         /values/NAME           ``{"expected": 3, "value": "b"}``     200, or 409: what is there now
GET         /sequences/NAME                                              ``{"last": 17}``
POST        /sequences/NAME        ``{"count": 5}``                      ``{"first": 18, "last": 22}``
==========  =====================  ====================================  ========================================
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from replitree.decoding import json_decoder, msgpack_decoder
from replitree.errors import BadInput
from replitree.machines.register import NEVER_SET, CompareAndSet, CompareAndSetResult, Register, Registers
from replitree.machines.sequencer import NumberRange, Sequencer, Sequences, Take

COUNT_MAX = 1_000_000
Answer = tuple[int, Mapping[str, Any]]


class Api(Protocol):
    """A machine as HTTP clients see it.

    Attributes
    ----------
    machine
        The machine.
    path
        The first word of its paths.
    method
        By which commands are given.
    """

    machine: Any
    path: str
    method: str

    def look(self, state: Any, name: str) -> Mapping[str, Any]:
        """Return what a state says of a name."""

    def command(self, name: str, body: bytes) -> bytes:
        """Return the machine's command for a request; `BadInput` if it is none."""

    def answer(self, answer: bytes) -> Answer:
        """Return status and body for what the machine answered."""


class _RegisterWrite(msgspec.Struct, forbid_unknown_fields=True):
    expected: int
    value: str


class _Count(msgspec.Struct, forbid_unknown_fields=True):
    count: int = 1


class RegisterApi:
    """The register."""

    machine = Register()
    path = "values"
    method = "PUT"

    def look(self, state: Registers, name: str) -> Mapping[str, Any]:
        """Return version and value."""
        return _plain(state.get(name, NEVER_SET))

    def command(self, name: str, body: bytes) -> bytes:
        """Read a change."""
        asked = _parsed(body, _RegisterWrite)
        return msgspec.msgpack.encode(CompareAndSet(name, asked.expected, asked.value))

    def answer(self, answer: bytes) -> Answer:
        """Return what is there now; 409 when it was not what was expected."""
        outcome = msgpack_decoder(CompareAndSetResult).decode(answer)
        return HTTPStatus.OK if outcome.is_done else HTTPStatus.CONFLICT, _plain(outcome.cell)


class SequencerApi:
    """The sequencer."""

    machine = Sequencer()
    path = "sequences"
    method = "POST"

    def look(self, state: Sequences, name: str) -> Mapping[str, Any]:
        """Return the last number that was given."""
        return {"last": state.get(name, 0)}

    def command(self, name: str, body: bytes) -> bytes:
        """Read how many are wanted."""
        count = _parsed(body, _Count).count
        if not 1 <= count <= COUNT_MAX:
            raise BadInput(f"a count of {count}: ask for 1 to {COUNT_MAX:,}")
        return msgspec.msgpack.encode(Take(name, count))

    def answer(self, answer: bytes) -> Answer:
        """Return the numbers that were given."""
        taken = msgpack_decoder(NumberRange).decode(answer)
        return HTTPStatus.OK, {"first": taken.first, "last": taken.last}


APIS: Mapping[str, Api] = {"register": RegisterApi(), "sequencer": SequencerApi()}


def _plain(cell: Any) -> Mapping[str, Any]:
    return {"version": cell.version, "value": cell.value}


def _parsed(body: bytes, kind: Any) -> Any:
    try:
        # A request without a body has all defaults.
        return json_decoder(kind).decode(body or b"{}")
    except msgspec.MsgspecError as error:
        raise BadInput(f"the body of the request can't be read: {error}") from error
