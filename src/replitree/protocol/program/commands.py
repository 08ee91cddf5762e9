"""Commands of users: put a command into the log, begin and end a materialised view, and kill a mutation."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Command, MutateEntry
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part
from replitree.protocol.core.views import NO_VIEWS, Views
from replitree.protocol.execute.mutate import kill_mutation
from replitree.protocol.insert.views import Backfill, fill_without_rows
from replitree.protocol.membership.activate import REPLACED, Replaced
from replitree.protocol.program.stages import (
    AcceptCommand,
    Accepted,
    AwaitMutation,
    End,
    KillTurn,
    LookAtParts,
    ReportTrouble,
    Stage,
    Then,
)
from replitree.protocol.propose.propose import Forgotten, NotProposed, Proposed, ProposeOutcome, Proposer, propose
from replitree.protocol.propose.views import NewView, create_view, drop_view
from replitree.protocol.state.mutation_scope import scoped
from replitree.protocol.state.pull import Place


class PartsSeen(Protocol):
    """What a replica knows of the table's parts at one moment."""

    @property
    def place(self) -> Place | None:
        """Where it stands in the log; None: that is in doubt, or it can't judge the condition."""

    def is_left(self, part: Part, /) -> bool:
        """Whether the mutation certainly leaves a part as it is."""


def accept_command(
    replica: Replica,
    request: fx.RequestId,
    command: Command,
    has_condition: bool = False,
    columns: tuple[bytes, int] | None = None,
    storage: tuple[fx.Operation, ...] = (),
    views: Views = NO_VIEWS,
) -> Stage:
    """Take a user's command once the process is active.

    Parameters
    ----------
    replica, request, command
        Which replica takes which command for whom.
    has_condition
        It is a mutation that may leave parts as they are: its scope is found first.
    columns, storage, views
        As of `propose`.
    """
    accepted: Accepted = yield AcceptCommand(request)
    proposer = proposer_of(replica, accepted)
    if has_condition:
        assert isinstance(command, MutateEntry), "only mutations have conditions"
        command = yield from find_scope(command)
    return Then(give_command, (proposer, accepted.epoch, request, command, columns, storage, views))


def find_scope(entry: MutateEntry) -> Generator[Any, Any, MutateEntry]:
    """Return a mutation with its scope (`replitree.protocol.state.mutation_scope`)."""
    seen: PartsSeen = yield LookAtParts(entry.command)
    return entry if seen.place is None else scoped(entry, seen.place, seen.is_left)


def give_command(
    proposer: Proposer,
    epoch: fx.Epoch,
    request: fx.RequestId,
    command: Command,
    columns: tuple[bytes, int] | None = None,
    storage: tuple[fx.Operation, ...] = (),
    views: Views = NO_VIEWS,
) -> Stage:
    """Put a user's command into the log and answer: `Duplicate` when its id was used so long ago that its entry is gone."""
    return (yield from answer_command(request, (yield from propose(proposer, epoch, command, columns, storage, views))))


def answer_command(request: fx.RequestId, outcome: ProposeOutcome) -> Generator[Any, Any, End]:
    """Answer a user's command, and end its stage."""
    answer: fx.ClientAnswer
    match outcome:
        case Proposed(index):
            answer = fx.Inserted(index)
        case Forgotten():
            answer = fx.Duplicate(None)
        case NotProposed(reason):
            answer = fx.NotInserted(reason)
        case Replaced():
            answer = fx.NotInserted(REPLACED)
            yield ReportTrouble()
        case fx.InDoubt():
            answer = fx.MaybeInserted()
            yield ReportTrouble()
    yield fx.Answer(request, answer)
    return End(answer)


# --- materialised views ---


def accept_view(replica: Replica, request: fx.RequestId, view: NewView) -> Stage:
    """Take the creation of a view of the replica's table, once the process is active."""
    accepted: Accepted = yield AcceptCommand(request)
    return Then(give_view, (proposer_of(replica, accepted), accepted.epoch, request, view))


def give_view(proposer: Proposer, epoch: fx.Epoch, request: fx.RequestId, view: NewView) -> Stage:
    """Create a view and answer."""
    return (yield from answer_command(request, (yield from create_view(proposer, epoch, view))))


def accept_drop(replica: Replica, request: fx.RequestId, command: fx.EntryId, name: str) -> Stage:
    """Take the drop of a view of the replica's table, once the process is active."""
    accepted: Accepted = yield AcceptCommand(request)
    return Then(give_drop, (proposer_of(replica, accepted), accepted.epoch, request, command, name))


def give_drop(proposer: Proposer, epoch: fx.Epoch, request: fx.RequestId, command: fx.EntryId, name: str) -> Stage:
    """Drop a view and answer."""
    return (yield from answer_command(request, (yield from drop_view(proposer, epoch, command, name))))


def mark_filled(replica: Replica, request: fx.RequestId, backfill: Backfill) -> Stage:
    """Mark a view as filled whose source had no rows for it; find out whether that is certain."""
    accepted: Accepted = yield AcceptCommand(request)
    return End((yield from fill_without_rows(replica, accepted.epoch, backfill)))


def proposer_of(replica: Replica, accepted: Accepted) -> Proposer:
    """Return the replica as it appends: below the parent that its pointer has reached."""
    return Proposer(layout.at_pointer(replica, accepted.log_from), accepted.me, accepted.log_from)


# --- kills ---


def kill(replica: Replica, mutation: fx.EntryId) -> Stage:
    """Kill a mutation that was pulled; find out how many parts it will not mutate any more."""
    turn: KillTurn = yield AwaitMutation(mutation)
    return End((yield from kill_mutation(replica, turn.epoch, turn.item)))


__all__ = [
    "PartsSeen",
    "accept_command",
    "accept_drop",
    "accept_view",
    "answer_command",
    "find_scope",
    "give_command",
    "give_drop",
    "give_view",
    "kill",
    "mark_filled",
]
