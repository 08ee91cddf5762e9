"""The participant: prepares rows for joint inserts, and gives up those that no coordinator has taken in time.

The process *holds* what it prepares from `AcceptRows` until `LetGoRows`: its activations sweep no folder that it holds.  It
lets go when the rows are certainly removed, or are in the log, or when only the next activation can tell (`Abandonment.LEFT`).

Nodes of earlier processes, and those that this process has let go without an answer, are forgotten by a stage of their own
after each activation: a commit that relies on them is refused by the epoch, or by the deletion.

Absent on purpose: clocks, and the rules of what may be removed when (`replitree.protocol.sharded.prepare`).
"""

from __future__ import annotations

from dataclasses import dataclass

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Epoch, RequestId, StagingId
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.stages import Accepted, End, MemoryEffect, Stage
from replitree.protocol.sharded.prepare import Participant, Preparer, abandon, forget_prepared, prepare
from replitree.protocol.state.start import list_idle_staging


@dataclass(frozen=True, slots=True)
class AcceptRows(MemoryEffect):
    """Wait until the process is active, then take the rows of a request, and hold their folder.  Outcome: `Accepted`."""

    request: RequestId


@dataclass(frozen=True, slots=True)
class Hold(MemoryEffect):
    """Keep what was prepared until a coordinator takes it, its client gives it up, or its time is over."""

    participant: Participant


@dataclass(frozen=True, slots=True)
class LetGoRows(MemoryEffect):
    """Do not hold what is staged under an id any more: the next activation sweeps it, unless it is in the queue."""

    staging: StagingId


@dataclass(frozen=True, slots=True)
class AwaitGivingUp(MemoryEffect):
    """Wait until something prepared is to be given up.  Outcome: `GiveUpTurn`."""


@dataclass(frozen=True, slots=True)
class GiveUpTurn:
    """What is given up, and by which process (as of `activate`)."""

    participant: Participant
    me: bytes


@dataclass(frozen=True, slots=True)
class AwaitForgetting(MemoryEffect):
    """Wait, while active, until nodes of what was prepared are to be forgotten.  Outcome: `ForgetTurn`."""


@dataclass(frozen=True, slots=True)
class ForgetTurn:
    """The process that forgets, and the epoch under which it is active."""

    me: bytes
    epoch: Epoch


def prepare_rows(replica: Replica, request: RequestId, schema_version: int, is_apart: bool) -> Stage:
    """Stage the rows of a request for a joint insert; find out what the coordinator needs, or why there is nothing.

    Parameters
    ----------
    schema_version
        Version of the columns that the rows have.
    is_apart
        Whether another process commits: then a node says that the rows are here.
    """
    accepted: Accepted = yield AcceptRows(request)
    place = layout.at_pointer(replica, accepted.log_from)
    preparer = Preparer(place, accepted.me, accepted.log_from, schema_version, is_apart)
    prepared = yield from prepare(preparer, accepted.epoch, accepted.staging, (request,))
    yield Hold(prepared) if isinstance(prepared, Participant) else LetGoRows(accepted.staging)
    return End(prepared)


def give_up_prepared() -> Stage:
    """Give up what was prepared, unless its joint insert has taken place; find out which of the two it is."""
    turn: GiveUpTurn = yield AwaitGivingUp()
    became = yield from abandon(turn.participant, turn.me)
    # After the removal: until then an activation must not sweep the folder, too.
    yield LetGoRows(turn.participant.staging)
    return End(became)


def forget_stale(replica: Replica) -> Stage:
    """Delete the nodes of what earlier processes have prepared, and of what this one does not hold; find out how many."""
    turn: ForgetTurn = yield AwaitForgetting()
    # Listed first: what is not held now is never held again, because no staging id is used twice.
    idle = yield from list_idle_staging()
    return End((yield from forget_prepared(replica, turn.me, turn.epoch, idle)))


__all__ = [
    "AcceptRows",
    "AwaitForgetting",
    "AwaitGivingUp",
    "ForgetTurn",
    "GiveUpTurn",
    "Hold",
    "LetGoRows",
    "forget_stale",
    "give_up_prepared",
    "prepare_rows",
]
