"""Propose: append an entry to the log.

*Merges* are proposed without looking back: a proposal that was lost is made again, one that was applied unnoticed is seen at
the next pull, and one that comes too late changes nothing.

*Commands* of users (mutate, drop, alter) must have a certain end.  Each has an id of its own; after an unknown outcome the
replica takes a new epoch, which fences the old request, and then looks for the id in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol import layout
from replitree.protocol.activate import Activated, NoEpoch, Replaced, newer_epoch, renew_epoch
from replitree.protocol.effects import (
    Applied,
    Check,
    Commit,
    Committed,
    Create,
    Epoch,
    GetMany,
    LogIndex,
    Operation,
    Procedure,
    Refused,
    Set,
    Sync,
    Unknown,
)
from replitree.protocol.entries import (
    AlterEntry,
    Command,
    DropEntry,
    MergeEntry,
    MutateEntry,
    decode_entry,
    encode_entry,
)
from replitree.protocol.layout import Replica

EPOCHS_MAX = 8
SEARCH_WINDOW = 64
"""Log entries read at once in the search for a command."""


@dataclass(frozen=True, slots=True)
class Proposer:
    """Who proposes.

    Attributes
    ----------
    replica, me
        As in `activate`.
    log_from
        An index that the log had reached before; a search for the entry starts there.
    """

    replica: Replica
    me: bytes
    log_from: LogIndex


@dataclass(frozen=True, slots=True)
class Proposed:
    """The command is in the log at `index`.  Whether it applies, its pull tells."""

    index: LogIndex


@dataclass(frozen=True, slots=True)
class NotProposed:
    """The command is certainly not in the log: `reason` is for the client."""

    reason: str


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Whether the command is in the log can't be found out now; its id tells later."""


ProposeOutcome: TypeAlias = Proposed | NotProposed | InDoubt


def propose_merges(replica: Replica, epoch: Epoch, merges: Sequence[MergeEntry]) -> Procedure[Committed]:
    """Append merges, all in one commit.  The outcome is for the caller to know whether to go on, not whether to repeat."""
    path = layout.log_create(replica.table)
    creates = (Create(path, encode_entry(merge), sequential=True) for merge in merges)
    committed: Committed = yield Commit(Check(layout.host(replica), epoch), *creates)
    return committed


def propose(
    proposer: Proposer, epoch: Epoch, command: Command, columns: tuple[bytes, int] | None = None
) -> Procedure[ProposeOutcome]:
    """Append a user's command.

    Parameters
    ----------
    proposer, epoch
        Who proposes, and the epoch under which it is active.
    command
        The entry; its id was never used before.
    columns
        Of an alter: the new value of the `columns` node, and the version of the one that it was made from.
    """
    table = proposer.replica.table
    create = Create(layout.log_create(table), encode_entry(command), sequential=True)
    operations: tuple[Operation, ...] = (create,)
    if columns is not None:
        operations = (Set(layout.columns(table), *columns), create)
    elif isinstance(command, MutateEntry):  # no earlier part may have later columns than the mutation knows
        operations = (Check(layout.columns(table), command.schema_version - 1), create)
    for _ in range(EPOCHS_MAX):
        committed: Committed = yield Commit(Check(layout.host(proposer.replica), epoch), *operations)
        fenced: Activated | Proposed | NotProposed | InDoubt
        match committed:
            case Applied(created=created):
                return Proposed(layout.index_of(table, created[-1]))
            case Refused(operation=Check(path=path)) if path == layout.host(proposer.replica):
                newer = yield from newer_epoch(proposer.replica, proposer.me, epoch)
                fenced = NotProposed(newer.reason) if isinstance(newer, NoEpoch) else newer
            case Refused(operation=Set() | Check()):
                return NotProposed("the columns were changed meanwhile; look at them and try again")
            case Refused():
                return NotProposed("the table is being dropped")
            case Unknown():
                fenced = yield from _settle(proposer, epoch, command)
        if not isinstance(fenced, Activated):
            return fenced
        epoch = fenced.epoch
    return NotProposed("the replica's epoch changes all the time; try again")


def _settle(
    proposer: Proposer, epoch: Epoch, command: Command
) -> Procedure[Activated | Proposed | NotProposed | InDoubt]:
    """Find out what became of a commit whose outcome is unknown: fence it, then look.  `Activated`: it never took place."""
    renewed = yield from renew_epoch(proposer.replica, proposer.me, epoch)
    if not isinstance(renewed, Activated | Replaced):
        return InDoubt()
    yield Sync(layout.log(proposer.replica.table))
    index = yield from find_command(proposer, command)
    if index is not None:
        return Proposed(index)
    if isinstance(renewed, Replaced):
        return NotProposed("another process took over this replica; ask that one")
    return renewed


def find_command(proposer: Proposer, command: Command) -> Procedure[LogIndex | None]:
    """Search the log for a command by its id, from `log_from` to the tail."""
    table, index = proposer.replica.table, proposer.log_from
    while True:
        paths = tuple(layout.log_entry(table, i) for i in range(index, index + SEARCH_WINDOW))
        many = yield GetMany(paths)
        for path, node in zip(paths, many.nodes, strict=True):
            if node is None:
                return None
            entry = decode_entry(node.value, path)
            if isinstance(entry, MutateEntry | DropEntry | AlterEntry) and entry.id == command.id:
                return layout.index_of(table, path)
        index = LogIndex(index + SEARCH_WINDOW)
