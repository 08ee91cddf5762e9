"""What a user of a tablet writes: a state machine, pure, and so the same wherever its commands are replayed."""

from __future__ import annotations

from typing import Protocol, TypeVar

State = TypeVar("State")


class Machine(Protocol[State]):
    """A state machine.  Its methods are functions of their arguments: no clock, no randomness, and states are never changed.

    Whatever a command says, `apply` has an answer; an error in it ends the leader and every later one.
    """

    def begin(self) -> State:
        """Return the state of a tablet that is new."""

    def apply(self, state: State, command: bytes) -> tuple[State, bytes]:
        """Return the state after a command, and what whoever gave it is told."""

    def snapshot(self, state: State) -> bytes:
        """Return a state as bytes."""

    def restore(self, data: bytes) -> State:
        """Return the state that a snapshot was made of."""
