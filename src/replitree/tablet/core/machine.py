"""The interface that a user of a tablet implements: a pure state machine, so the same wherever its commands are replayed."""

from __future__ import annotations

from typing import Protocol, TypeVar

from replitree.errors import ReplitreeError

State = TypeVar("State")


class Machine(Protocol[State]):
    """A state machine.  Its methods are functions of their arguments: no clock, no randomness, and states are never changed.

    Whatever a command says, `apply` has an answer.  An error in any of them ends the leader (`machine_failed`) and keeps
    others from leading, until the machine is mended.
    """

    def begin(self) -> State:
        """Return the state of a tablet that is new."""

    def apply(self, state: State, command: bytes) -> tuple[State, bytes]:
        """Return the state after a command, and the answer to its client."""

    def snapshot(self, state: State) -> bytes:
        """Return a state as bytes."""

    def restore(self, data: bytes) -> State:
        """Return the state that a snapshot was made of."""


def machine_failed(where: str, error: Exception) -> ReplitreeError:
    """Return what to say of an error of a machine."""
    return ReplitreeError(f"the state machine failed at {where}: {error!r}; mend it")
