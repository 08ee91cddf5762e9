"""The threads of a replica beside its mover and its upkeep, shortened: of an activation, only what it does to shares is left.

A replica activates after trouble (`live`); an entry of the log removes the part (`leave`); the mender finds it broken and takes
it over again (`mend`).  What a crash cuts off is done again by the next process, as far as it is not done.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.program.life_in_store import settle_shares
from replitree.protocol.program.stages import AwaitTrouble, Serve
from replitree.protocol.shares import owning
from replitree_verify.shared_tables.activation import new_epoch
from replitree_verify.shared_tables.world import replica_of, sharer_of

Shortened: TypeAlias = Generator[Any, Any, None]

TRIES = 2


@dataclass(frozen=True, slots=True)
class AwaitActive:
    """Go on when the replica is active.  Outcome: its epoch."""


@dataclass(frozen=True, slots=True)
class HasRows:
    """Outcome: whether a part is here, and its manifest names no share."""

    part: str


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Take a part's folder away, as one that is broken, and do not show it; its share is to be let go of.  Outcome: None."""

    part: str


@dataclass(frozen=True, slots=True)
class Refetch:
    """Publish a part again, as another replica has it in a share.  Outcome: whether one has."""

    part: str


@dataclass(frozen=True, slots=True)
class Show:
    """Show a part to reads.  Outcome: None."""

    part: str


@dataclass(frozen=True, slots=True)
class LoseRows:
    """Remove a part's files, all but its manifest.  Outcome: None."""

    part: str


def leave(name: str, part: str) -> Shortened:
    """Take a part's registration back, and remove it from the disk."""
    replica = replica_of(name)
    for _ in range(TRIES):
        epoch = yield AwaitActive()
        if (yield fx.Get(layout.part(replica, part))) is not None:
            yield fx.Commit(
                fx.Check(layout.host(replica), epoch), fx.Delete(layout.part(replica, part), fx.ANY_VERSION)
            )
        yield fx.Sync(layout.parts(replica))
        if (yield fx.Get(layout.part(replica, part))) is None:
            yield fx.RemovePart(part)
            return


def mend(name: str, part: str) -> Shortened:
    """Find the part broken, take it away, and take it over again from another replica that has it in the store."""
    yield AwaitActive()
    if not (yield HasRows(part)):
        return
    yield Quarantine(part)
    if (yield Refetch(part)):
        gone = yield from owning.own_again(sharer_of(name), (part,))
        if not gone:
            yield Show(part)


def live(name: str) -> Shortened:
    """Activate again after trouble."""
    yield AwaitTrouble()
    while True:
        epoch = yield from new_epoch(replica_of(name))
        assert epoch is not None, "no model of parts that move drops a replica"
        if (yield from settle_shares(sharer_of(name), epoch)):
            break
    yield Serve()


__all__ = [
    "AwaitActive",
    "HasRows",
    "LoseRows",
    "Quarantine",
    "Refetch",
    "Show",
    "leave",
    "live",
    "mend",
]
