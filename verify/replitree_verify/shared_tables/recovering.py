"""A replica on an object store that was away for too long: it is lost, and takes over another one's state and shares."""

from __future__ import annotations

from dataclasses import dataclass

from replitree_verify.shared_tables.memory import AwaitActive
from replitree_verify.shared_tables.replicas import let_go
from replitree_verify.world.kernel import Running


@dataclass(frozen=True, slots=True)
class MissEntries:
    """The replica was away, once, and entries are gone that it had not pulled.  Outcome: None."""


def recover(name: str) -> Running:
    """Come back lost: the life thread takes over the state of the other replica; what that one has no more leaves the disk."""
    yield MissEntries()
    epoch = yield AwaitActive()
    yield from let_go(name, epoch)


__all__ = ["MissEntries", "recover"]
