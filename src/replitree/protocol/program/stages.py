"""Stages, and the effects on the memory of a process that they use besides the protocol's.

A *stage* is a procedure of one thread that ends in `Then`: the next stage with its arguments.  A checker's state holds where a
stage stands, so it forgets what earlier stages have read.

The effects of this module change or read the memory that the threads of one process share.  Those whose name begins with
``Await`` end when there is something to do.

The threads of a process keep four rules, besides calling the procedures:

1. An entry is *running* from the moment that an executor takes it until it gives it back.  It stays in the queue as long, and
   keeps what it changes, whatever is loaded meanwhile: so a drop waits for it (`registration.blockers`).  When what was loaded
   does not have it any more, it leaves the queue as soon as it is given back, in whatever way.
2. A loaded state counts only if no part was shown or hidden since the loading began; otherwise it is loaded again.  So what
   reads see never goes back.
3. A place is never exchanged for an older one.  With an older one an entry of the queue seems to be dropped already.
4. Merges and mutations have a lane of their own.  In each lane one batch runs at a time, and an entry that is postponed again
   and again does not keep the others of its lane from their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from replitree.protocol.core.effects import Effect, EntryId, Epoch, LogIndex, RequestId, StagingId
from replitree.protocol.core.views import NO_VIEWS, Views
from replitree.protocol.insert.insert import Request
from replitree.protocol.insert.quorum import QuorumEnded
from replitree.protocol.shares.moving import MoveOutcome
from replitree.protocol.shares.share import ShareId
from replitree.protocol.shares.share_effects import Sharer
from replitree.protocol.state.pull import Loaded, Place, Queued
from replitree.protocol.state.registration import Postponed, View


@dataclass(frozen=True, slots=True)
class Then:
    """The end of a stage.

    Attributes
    ----------
    stage, arguments
        What the thread does next.
    outcome
        What the stage found out, for the process's log and status: the outcome of a procedure, or a sentence.  No stage
        depends on it.
    """

    stage: Callable[..., Generator[Any, Any, Any]]
    arguments: tuple[Any, ...]
    outcome: object = None


@dataclass(frozen=True, slots=True)
class End:
    """The end of a stage that no other follows, with what it found out: the thread ends."""

    outcome: Any


Stage: TypeAlias = Generator[Any, Any, Then | End | None]
"""A running stage; None at its end: the thread ends, and found out nothing."""


class MemoryEffect(Effect):
    """Base of what a stage asks of the memory of its process."""

    __slots__ = ()


# --- activation -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Quieten(MemoryEffect):
    """Forget the trouble: an activation begins, which deals with it."""


@dataclass(frozen=True, slots=True)
class AwaitReplica(MemoryEffect):
    """Wait until no process holds the replica: the ephemeral node at `is_active` is gone."""

    is_active: str


@dataclass(frozen=True, slots=True)
class AwaitSource(MemoryEffect):
    """Wait until another replica is good, or this one was declared good."""


@dataclass(frozen=True, slots=True)
class AwaitIdle(MemoryEffect):
    """Wait until no entry is being executed: what ran under an earlier epoch has been given back."""


@dataclass(frozen=True, slots=True)
class Forget(MemoryEffect):
    """Begin anew, with an empty memory: the replica does not belong to the table any more."""


@dataclass(frozen=True, slots=True)
class Opened(MemoryEffect):
    """The object store is the table's, and this is the replica's incarnation."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class CurrentSharer(MemoryEffect):
    """Outcome: the `Sharer` that this process is."""


@dataclass(frozen=True, slots=True)
class BeginLoad(MemoryEffect):
    """The loading of the replica's state begins."""


@dataclass(frozen=True, slots=True)
class TakeOver(MemoryEffect):
    """Take the state as coordination has it, unless parts were shown or hidden since `BeginLoad`.

    Outcome: the names of the registered parts that must be fetched again; None: the state was not taken.
    """

    loaded: Loaded


@dataclass(frozen=True, slots=True)
class Lack(MemoryEffect):
    """These parts, (name, content hash) of each, must be fetched again, besides those that lack already."""

    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Serve(MemoryEffect):
    """Be active, unless there was trouble meanwhile."""


@dataclass(frozen=True, slots=True)
class AwaitTrouble(MemoryEffect):
    """Wait until the process must activate again."""


@dataclass(frozen=True, slots=True)
class Stop(MemoryEffect):
    """The process ends.

    Attributes
    ----------
    outcome
        Why: another process has the replica (`Replaced`), or it can't join its table (a `TableOutcome`).
    """

    outcome: object


# --- every thread -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Missed(MemoryEffect):
    """The entry at `index` seems to be gone: the process must activate again, and find out where it stands."""

    index: LogIndex


@dataclass(frozen=True, slots=True)
class AskReload(MemoryEffect):
    """Let the puller load pointer and queue before its next pull."""


@dataclass(frozen=True, slots=True)
class ReportTrouble(MemoryEffect):
    """Be read-only until the process has activated again."""


# --- the puller -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitPull(MemoryEffect):
    """Wait, while active, for a request to reload, or until the next log entry is there, or was there.  Outcome: `PullTurn`."""


@dataclass(frozen=True, slots=True)
class PullTurn:
    """What the puller works with; without a place it must load the replica's state first."""

    epoch: Epoch
    place: Place | None


@dataclass(frozen=True, slots=True)
class TakeIn(MemoryEffect):
    """Take what a pull read: the place after it, and the entries, also those that do not apply."""

    place: Place
    entries: tuple[Queued, ...]


# --- the executors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitWork(MemoryEffect):
    """Wait, while active, for entries of one lane that can be executed; they are running then.  Outcome: `WorkTurn`.

    Attributes
    ----------
    makes
        The lane of merges and mutations; otherwise that of everything else.
    """

    makes: bool


@dataclass(frozen=True, slots=True)
class WorkTurn:
    """What an executor works with."""

    epoch: Epoch
    view: View
    batch: tuple[Queued, ...]


@dataclass(frozen=True, slots=True)
class GiveBack(MemoryEffect):
    """A batch does not run any more: executed entries leave the queue, postponed ones wait."""

    batch: tuple[LogIndex, ...]
    done: tuple[LogIndex, ...]
    postponed: tuple[Postponed, ...]


# --- the keeper and the candidate -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitStrays(MemoryEffect):
    """Wait, while active, for a registered part that another one covers.  Outcome: the epoch."""


@dataclass(frozen=True, slots=True)
class AwaitElection(MemoryEffect):
    """Wait until there is something to do about the election: to stand, to look again, or (not active) to resign `path`.

    Outcome: `ElectionTurn`.
    """

    path: str | None


@dataclass(frozen=True, slots=True)
class ElectionTurn:
    """What a candidate works with: the last epoch of its process, and whether it must leave the election."""

    epoch: Epoch
    resigns: bool


@dataclass(frozen=True, slots=True)
class Elected(MemoryEffect):
    """From now on the process believes that it leads, or that it does not."""

    leads: bool


# --- inserts and commands -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accept(MemoryEffect):
    """Wait until the process is active, then take a group of requests.  Outcome: `Accepted`.

    The process holds the folders of the group's staging id until `Release`: no sweep removes them.
    """

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Release(MemoryEffect):
    """The process does not hold a group's staging folders any more.

    `views`: those that the group has found the table to have; None: it did not have to look.
    """

    staging: StagingId
    views: Views | None = None


@dataclass(frozen=True, slots=True)
class AcceptCommand(MemoryEffect):
    """Wait until the process is active, then take a user's command.  Outcome: `Accepted`."""

    request: RequestId


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a user's request works with.

    Attributes
    ----------
    me, epoch
        The process, and the epoch under which it is active.
    log_from
        An index that the log has reached.
    staging
        Under which id a group of inserts stages its parts.
    views
        The views that the table has had when an insert looked last.
    """

    me: bytes
    epoch: Epoch
    log_from: LogIndex
    staging: StagingId
    views: Views = NO_VIEWS


@dataclass(frozen=True, slots=True)
class AwaitPulled(MemoryEffect):
    """Wait until the entry at `index` is pulled, but not longer than its client has patience.  Outcome: `PulledTurn`."""

    index: LogIndex


@dataclass(frozen=True, slots=True)
class PulledTurn:
    """What the process knows of an entry.

    Attributes
    ----------
    place
        Where the replica stands, behind the entry; None: it is not pulled yet, or that is in doubt.
    applies
        Whether the entry applies; it does if it is in the queue.  None: it is not, and the process does not remember why.
    """

    place: Place | None
    applies: bool | None = None


@dataclass(frozen=True, slots=True)
class LookAtParts(MemoryEffect):
    """Look at what the process knows of the table, to find the scope of a mutation.  Outcome: `commands.PartsSeen`."""

    command: str


@dataclass(frozen=True, slots=True)
class AwaitMutation(MemoryEffect):
    """Wait, while active, until a mutation is in the queue.  Outcome: `KillTurn`."""

    id: EntryId


@dataclass(frozen=True, slots=True)
class KillTurn:
    """What a kill works with."""

    epoch: Epoch
    item: Queued


# --- the leader -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitParts(MemoryEffect):
    """Wait, while active (and leading, where there are elections), until the table has these parts at the pointer.

    Outcome: `LeadTurn`.
    """

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeadTurn:
    """What a leader works with: `pointer` is the next entry that it will pull."""

    epoch: Epoch
    pointer: LogIndex


@dataclass(frozen=True, slots=True)
class AwaitPlace(MemoryEffect):
    """Wait, while active, until so many entries below the present parent of the log are pulled.  Outcome: `PlaceTurn`."""

    pulled: int = 0


@dataclass(frozen=True, slots=True)
class PlaceTurn:
    """What the upkeep of results and of the log works with."""

    epoch: Epoch
    place: Place


# --- the cleaner ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitCleaning(MemoryEffect):
    """Wait, while active, until it is this replica's turn to clean.  Outcome: the epoch."""


# --- the quorum waiter ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitDecided(MemoryEffect):
    """Wait for the end of the insert at `index`, but not longer than its client has patience.  Outcome: `QuorumTurn`.

    `is_given_up`: the replica has given it up, and waits for no more than the entry that says what became of it.
    """

    index: LogIndex
    is_given_up: bool


@dataclass(frozen=True, slots=True)
class QuorumTurn:
    """What the quorum waiter works with.

    Attributes
    ----------
    is_decided
        The insert is not open any more where the replica stands in the log.
    epoch
        The epoch under which the replica could give it up; None while it is not active.
    ended
        What became of it, if the process has read that entry and knows it still, pulled or not.
    """

    is_decided: bool
    epoch: Epoch | None
    ended: QuorumEnded | None = None


@dataclass(frozen=True, slots=True)
class AwaitOpen(MemoryEffect):
    """Wait, while active, until inserts are open where the replica stands in the log.  Outcome: `OpenTurn`."""


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """What the leader works with: the inserts that are open."""

    epoch: Epoch
    opened: tuple[LogIndex, ...]


# --- the upkeep of shares ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitUpkeep(MemoryEffect):
    """Wait, while active, until shares are to be looked after, and find what has left the disk.  Outcome: `UpkeepTurn`."""


@dataclass(frozen=True, slots=True)
class LeftDisk:
    """A part that has left the disk: what the process calls it, its name (empty: it was only staged), and its shares."""

    name: str
    part: str
    shares: tuple[ShareId, ...]


@dataclass(frozen=True, slots=True)
class UpkeepTurn:
    """What the upkeep of shares works with: what is to be let go of next; None: nothing now."""

    sharer: Sharer
    epoch: Epoch
    left: LeftDisk | None


@dataclass(frozen=True, slots=True)
class LetGoEnded(MemoryEffect):
    """Forget a part that has left the disk if it `is_gone` from coordination, too; otherwise try again later."""

    left: LeftDisk
    is_gone: bool


# --- the mover --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AwaitMove(MemoryEffect):
    """Wait, while active, until a part is not where it belongs and may be moved.  Outcome: `MoveTurn`."""


@dataclass(frozen=True, slots=True)
class MoveTurn:
    """What the mover works with: a part, and the share in which its rows are; None: they are on the disk."""

    sharer: Sharer
    part: str
    share: ShareId | None


@dataclass(frozen=True, slots=True)
class MoveEnded(MemoryEffect):
    """Note what became of a move, and when it is tried again, if it is."""

    turn: MoveTurn
    outcome: MoveOutcome


# --- the uploader -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoteUpload(MemoryEffect):
    """The disk notes, durably, that an upload has these shares."""

    shares: tuple[ShareId, ...]


@dataclass(frozen=True, slots=True)
class ForgetUpload(MemoryEffect):
    """The disk forgets these shares of an upload: no client has heard their names."""

    shares: tuple[ShareId, ...]


__all__ = [
    "Accept",
    "AcceptCommand",
    "Accepted",
    "AskReload",
    "AwaitCleaning",
    "AwaitDecided",
    "AwaitElection",
    "AwaitIdle",
    "AwaitMove",
    "AwaitMutation",
    "AwaitOpen",
    "AwaitParts",
    "AwaitPlace",
    "AwaitPull",
    "AwaitPulled",
    "AwaitReplica",
    "AwaitSource",
    "AwaitStrays",
    "AwaitTrouble",
    "AwaitUpkeep",
    "AwaitWork",
    "BeginLoad",
    "CurrentSharer",
    "Elected",
    "ElectionTurn",
    "End",
    "Forget",
    "ForgetUpload",
    "GiveBack",
    "KillTurn",
    "Lack",
    "LeadTurn",
    "LeftDisk",
    "LetGoEnded",
    "LookAtParts",
    "MemoryEffect",
    "Missed",
    "MoveEnded",
    "MoveTurn",
    "NoteUpload",
    "OpenTurn",
    "Opened",
    "PlaceTurn",
    "PullTurn",
    "PulledTurn",
    "Quieten",
    "QuorumTurn",
    "Release",
    "ReportTrouble",
    "Serve",
    "Stage",
    "Stop",
    "TakeIn",
    "TakeOver",
    "Then",
    "UpkeepTurn",
    "WorkTurn",
]
