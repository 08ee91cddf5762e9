"""What the threads of a replica do: they move a part, they remove it, they let go of what has left, they activate.

A task that a crash cuts off is done again by the next process, as far as it is not done.
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.shares import letting_go, moving, owning
from replitree_verify.moving.world import Note, shares_in
from replitree_verify.shared_tables.tasks import Task, new_epoch, replica_of, sharer_of

TRIES = 2


@dataclass(frozen=True, slots=True)
class AwaitActive:
    """Go on when the replica is active.  Outcome: its epoch."""


@dataclass(frozen=True, slots=True)
class AwaitTrouble:
    """Go on when the replica has to activate again.  Outcome: None."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The replica has to activate again.  Outcome: None."""


@dataclass(frozen=True, slots=True)
class Activate:
    """The replica is active.  Outcome: None."""


@dataclass(frozen=True, slots=True)
class AwaitTurn:
    """Go on when nobody claims the part.  Outcome: None."""

    part: str


@dataclass(frozen=True, slots=True)
class WhereIs:
    """Outcome: (whether a part is here, the share that its manifest names)."""

    part: str


@dataclass(frozen=True, slots=True)
class AwaitNote:
    """Go on when there is a note that may be worked off.  Outcome: that `Note`."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove a note: there is nothing left of it.  Outcome: None."""

    note: Note


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


# --- moving -------------------------------------------------------------------------------------------------------------------


def move(name: str, part: str, tries: int = TRIES) -> Task:
    """Move a part into the store, until it is there or gone."""
    for _ in range(tries):
        yield AwaitActive()
        is_here, own = yield WhereIs(part)
        if not is_here or own is not None:
            return
        outcome = yield from moving.move_to_store(sharer_of(name), part)
        if isinstance(outcome, fx.InDoubt):
            yield Trouble()
        if not isinstance(outcome, moving.Moved):
            yield AwaitTurn(part)


def bring(name: str, part: str) -> Task:
    """Move a part to the disk, until it is there or gone."""
    for _ in range(TRIES):
        yield AwaitActive()
        is_here, own = yield WhereIs(part)
        if not is_here or own is None:
            return
        yield from moving.move_to_disk(sharer_of(name), part, own)


# --- what goes on beside it ---------------------------------------------------------------------------------------------------


def leave(name: str, part: str) -> Task:
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


def mend(name: str, part: str) -> Task:
    """Find the part broken, take it away, and take it over again from another replica that has it in the store."""
    yield AwaitActive()
    is_here, own = yield WhereIs(part)
    if not is_here or own is not None:
        return
    yield Quarantine(part)
    if (yield Refetch(part)):
        gone = yield from owning.own_again(sharer_of(name), (part,))
        if not gone:
            yield Show(part)


def work_notes_off(name: str) -> Task:
    """Let go of one thing that is noted, with all its shares."""
    note: Note = yield AwaitNote()
    epoch = yield AwaitActive()
    if (yield from letting_go.let_go_of_all(sharer_of(name), epoch, note.part, shares_in(note.share))):
        yield Forget(note)


def live(name: str) -> Task:
    """Activate again after trouble."""
    yield AwaitTrouble()
    while True:
        epoch = yield from new_epoch(replica_of(name))
        assert epoch is not None
        if (yield from moving.give_up_claims(sharer_of(name))):
            break
    yield from letting_go.give_up_attempts(sharer_of(name), epoch)
    yield Activate()


__all__ = [
    "Activate",
    "AwaitActive",
    "AwaitNote",
    "AwaitTrouble",
    "AwaitTurn",
    "Forget",
    "LoseRows",
    "Quarantine",
    "Refetch",
    "Show",
    "Trouble",
    "WhereIs",
    "bring",
    "leave",
    "live",
    "mend",
    "move",
    "work_notes_off",
]
