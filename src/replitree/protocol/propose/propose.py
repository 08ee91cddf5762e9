"""Propose: append an entry to the log.

*Merges* are proposed without looking back: a proposal that was lost is made again, one that was applied unnoticed is seen at
the next pull, and one that comes too late changes nothing.

*Commands* of users (mutate, rewrite, drop, alter, storage, view) must have a certain end, and be done once, also when a client
that heard "outcome unknown" asks another replica.  Each has an id, and the commit creates ``blocks/command-<id>``, as an insert
does for its block ids: so of any number of proposals of one id exactly one takes place, and the others answer with its index.
After an unknown outcome the replica takes a new epoch, which fences the old request, and then looks for that node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    BlockValue,
    Command,
    Entry,
    MergeEntry,
    MutateEntry,
    RewriteEntry,
    decode_block,
    encode_block,
    encode_entry,
)
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import NOT_SENT, ROLLED, reaches_back, search_log
from replitree.protocol.core.views import NO_VIEWS, Views
from replitree.protocol.membership.activate import Activated, NoEpoch, Replaced, newer_epoch, renew_epoch

EPOCHS_MAX = 8

STORAGE_CHANGED = "the table's storage was changed meanwhile; look at it and try again"
VIEWS_CHANGED = "the table's materialised views were changed meanwhile; look at them and try again"
COLUMNS_CHANGED = "the columns were changed meanwhile; look at them and try again"


@dataclass(frozen=True, slots=True)
class Proposer:
    """The replica that proposes.

    Attributes
    ----------
    replica, me
        As in `activate`.
    log_from
        An index that the log had reached before; searches for the entry start there.
    """

    replica: Replica
    me: bytes
    log_from: fx.LogIndex


@dataclass(frozen=True, slots=True)
class Proposed:
    """The command is in the log at `index`.  Whether it applies, its pull tells.

    `insert`: of a rewrite the staging id that its entry names: that of the try which has got into the log.
    """

    index: fx.LogIndex
    insert: fx.StagingId | None = None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A command with this id was in the log, and its entry is gone by now."""


@dataclass(frozen=True, slots=True)
class NotProposed:
    """The command is certainly not in the log: `reason` is for the client; `refused`: by which of its `storage` operations."""

    reason: str
    refused: fx.Refused | None = None


ProposeOutcome: TypeAlias = Proposed | Forgotten | NotProposed | Replaced | fx.InDoubt
"""After `Replaced` the command is certainly not in the log; after `InDoubt` its id tells later whether it is."""


def command_block(command: fx.EntryId) -> fx.BlockId:
    """Return the name under ``blocks`` of a command's id; no insert has a block id that begins like this.

    >>> command_block(fx.EntryId("nightly/2026-11-21"))
    'command-nightly%00002f2026-11-21'
    """
    safe = (each if each.isascii() and (each.isalnum() or each in "-_") else f"%{ord(each):06x}" for each in command)
    return fx.BlockId(f"command-{''.join(safe)}")


def propose_merges(replica: Replica, epoch: fx.Epoch, merges: Sequence[MergeEntry]) -> fx.Procedure[fx.Committed]:
    """Append merges, all in one commit.  The outcome is for the caller to know whether to go on, not whether to repeat."""
    path = layout.log_create(replica.table)
    creates = (fx.Create(path, encode_entry(merge), sequential=True) for merge in merges)
    open_log = fx.Check(layout.open_log(replica.table), fx.ANY_VERSION)
    committed: fx.Committed = yield fx.Commit(fx.Check(layout.host(replica), epoch), open_log, *creates)
    return committed


def propose(
    proposer: Proposer,
    epoch: fx.Epoch,
    command: Command,
    columns: tuple[bytes, int] | None = None,
    storage: tuple[fx.Operation, ...] = (),
    views: Views = NO_VIEWS,
) -> fx.Procedure[ProposeOutcome]:
    """Append a user's command.

    Parameters
    ----------
    proposer, epoch
        The replica that proposes, and the epoch under which it is active.
    command
        The entry.  When a command with its id is in the log already, that one is the answer.
    columns
        Of an alter: the new value of the `columns` node, and the version of the one that it was made from.
    storage
        Of a change of storage: what changes the `metadata` node, and makes or deletes the nodes of the store.  Of a view:
        what changes the nodes of its tables.
    views
        Of an alter: the materialised views that it leaves whole, and that the table must still have.
    """
    table = proposer.replica.table
    operations = _operations(proposer, command, columns, storage, views)
    for _ in range(EPOCHS_MAX):
        committed: fx.Committed = yield fx.Commit(fx.Check(layout.host(proposer.replica), epoch), *operations)
        fenced: Activated | ProposeOutcome
        match committed:
            case fx.Applied(created=created):
                return _proposed(layout.index_of(table, created[-1]), command)
            case fx.Refused(operation=fx.Create(path=path)) if path == operations[0].path:
                known = yield from find_command(table, command.id)
                # If the node is gone, it was cleaned since.
                return Forgotten() if known is None else known
            case fx.Refused(operation=fx.Check(path=path)) if path == layout.host(proposer.replica):
                newer = yield from newer_epoch(proposer.replica, proposer.me, epoch)
                fenced = NotProposed(newer.reason) if isinstance(newer, NoEpoch) else newer
            case fx.Refused(operation=fx.Check(path=path), reason=why) if path in (
                layout.open_log(table),
                layout.views(table),
            ):
                return NotProposed(ROLLED if why is fx.Reason.NO_NODE else VIEWS_CHANGED)
            case fx.Refused(operation=operation) if operation in storage:
                return NotProposed(STORAGE_CHANGED, committed)
            case fx.Refused(operation=fx.Set() | fx.Check()):
                return NotProposed(COLUMNS_CHANGED)
            case fx.Refused():
                return NotProposed("the table is being dropped")
            case fx.Unknown(is_sent=False):
                return NotProposed(NOT_SENT)
            case fx.Unknown():
                fenced = yield from _settle(proposer, epoch, command)
        if not isinstance(fenced, Activated):
            return fenced
        epoch = fenced.epoch
    return NotProposed("the replica's epoch changes all the time; try again")


def _proposed(index: fx.LogIndex, entry: Entry) -> Proposed:
    return Proposed(index, entry.insert if isinstance(entry, RewriteEntry) else None)


def _operations(
    proposer: Proposer,
    command: Command,
    columns: tuple[bytes, int] | None,
    storage: tuple[fx.Operation, ...],
    views: Views,
) -> tuple[fx.Operation, ...]:
    """Return what a command's commit does after the check of the epoch: first of all it takes the id."""
    table = proposer.replica.table
    block = encode_block(BlockValue(fx.StagingId(command.id), proposer.log_from))
    take = fx.Create(layout.block(table, command_block(command.id)), block)
    append = fx.Create(layout.log_create(table), encode_entry(command), sequential=True)
    open_log = fx.Check(layout.open_log(table), fx.ANY_VERSION)
    if columns is not None:
        # A view that has come since may read, or write, a column that goes.
        return take, *views.unchanged(table), fx.Set(layout.columns(table), *columns), append
    # The check of the columns proves that no earlier part has later columns than the mutation, or the rewrite, knows.
    if isinstance(command, MutateEntry | RewriteEntry):
        return take, open_log, fx.Check(layout.columns(table), command.schema_version - 1), append
    return take, open_log, *storage, append


def _settle(proposer: Proposer, epoch: fx.Epoch, command: Command) -> fx.Procedure[Activated | ProposeOutcome]:
    """Find out what became of a commit whose outcome is unknown: fence it, then look.

    Returns
    -------
    `Activated`, `Replaced`: it never took place, and this process has a newer epoch, or another process has the replica.
    """
    renewed = yield from renew_epoch(proposer.replica, proposer.me, epoch)
    if not isinstance(renewed, Activated | Replaced):
        return fx.InDoubt()
    yield fx.Sync(layout.blocks(proposer.replica.table))
    table = proposer.replica.table
    known: Proposed | Forgotten | None = yield from find_command(table, command.id)
    # The commit never took place, or its node was cleaned since: then the log has the entry, or had it.
    if known is None:
        known = yield from _search(table, command.id, proposer.log_from)
        if known is None and not (yield from reaches_back(table, proposer.log_from)):
            return fx.InDoubt()
    if known is not None:
        return known
    return renewed


def find_command(table: TablePlace, command: fx.EntryId) -> fx.Procedure[Proposed | Forgotten | None]:
    """Find a command by its id; None when there is none, or when it was so long ago that its id was cleaned."""
    path = layout.block(table, command_block(command))
    many: fx.Many = yield fx.GetMany((path,))
    (node,) = many.nodes
    if node is None:
        return None

    proposed = yield from _search(table, command, fx.LogIndex(decode_block(node.value, path).log_from))
    return Forgotten() if proposed is None else proposed


def _search(table: TablePlace, command: fx.EntryId, log_from: fx.LogIndex) -> fx.Procedure[Proposed | None]:
    """Search the log for a command, from `log_from` on."""

    def is_it(index: fx.LogIndex, entry: Entry) -> Proposed | None:
        named = isinstance(entry, Command) and entry.id == command
        return _proposed(index, entry) if named else None

    return (yield from search_log(table, log_from, is_it))
