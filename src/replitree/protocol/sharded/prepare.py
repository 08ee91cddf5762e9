"""Prepare: a replica stages the rows of one shard for a joint insert, and keeps them until that has taken place, or never will.

The replica is a *participant*.  It runs in a process of its own, apart from the coordinator's, so the two agree by a node::

1. *stage*     the rows as part files under a fresh id, synced           before: nothing; after: garbage for the sweep
2. *announce*  Check(host @ epoch), Create(prepared/<staging id>)        from here on a coordinator may commit the entry
3. *abandon*   Check(host @ epoch), Delete(prepared/<staging id>)        from here on no coordinator can
4. *remove*    the files

The value of the node names the process.  The commit of the joint insert deletes the same node
(`protocol.sharded.joint_insert`).  So step 3 and the joint insert exclude each other, and the files go only after step 3 has
certainly taken place (J3).  If the node is gone, the joint insert has taken place: the files stay, and the executor publishes
them when the replica has pulled the entry.

============================================  ==================================================================
the participant crashes                       what is left, and what becomes of it
============================================  ==================================================================
before 2                                      a folder that no entry names: the next start sweeps it
between 2 and 3                               a folder and a node.  The next activation has another epoch, so no coordinator can
                                              commit; the start sweeps the folder, and the node is forgotten after it
between 3 and 4                               a folder that no entry can name: the next start sweeps it
after the joint insert                        the entry is in the log: the start pulls it, keeps the folder, and publishes it
============================================  ==================================================================

*Doubt.*  When the answer to a commit of step 2 is lost, the epoch is renewed, and the commit tried again.  If that finds the
node, the first one has taken place: no other process creates it.  When the answer of step 3 is lost and the node is gone
afterwards, the participant or a coordinator has deleted it, and the log of the shard tells which.  If the log does not reach
back, the files stay for the sweep of the next activation, which looks at the queue.

*Held.*  The process holds the folder from step 1 on, so that its own activations do not sweep it (`protocol.state.start`).  It
lets it go when `abandon` has returned.

*A coordinator's own process* needs no node: it does not abandon while it commits.

Absent on purpose: clocks.  The process decides when to abandon; it is safe at any time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import Entry, GetEntry, RewriteEntry
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import NOT_SENT, ROLLED, reaches_back, search_log
from replitree.protocol.core.views import NO_VIEWS
from replitree.protocol.insert.insert import EPOCHS_MAX, SEARCH_WINDOW
from replitree.protocol.insert.quorum import FIRST_VERSION
from replitree.protocol.membership.activate import Activated, NoEpoch, newer_epoch, renew_epoch

FORGET_BATCH = 100
"""Nodes deleted in one commit."""


@dataclass(frozen=True, slots=True)
class Participant:
    """What a replica has staged for a joint insert.

    Attributes
    ----------
    replica
        The replica, as it appends: below the parent that its pointer has reached.
    epoch
        The epoch under which it is active: its next activation may sweep what was staged under an earlier one.
    staging, parts, results
        What is staged: one part per partition; of a rewrite also what takes the place of each of its sources.
    log_from
        An index that the log had reached before.
    schema_version
        Version of the columns that the rows have.
    is_apart
        Whether it runs in another process than the coordinator, which has created the node ``prepared/<staging id>``.
    """

    replica: Replica
    epoch: fx.Epoch
    staging: fx.StagingId
    parts: tuple[fx.StagedPart, ...]
    log_from: fx.LogIndex
    schema_version: int = 1
    is_apart: bool = True
    results: tuple[fx.StagedResult, ...] = ()

    def proofs(self, *, is_own: bool) -> tuple[fx.Operation, ...]:
        """Return what proves, in the commit, that the files are there and stay, and that the log of the shard takes entries.

        `is_own`: the commit checks the replica's epoch anyway, as that of the coordinator.
        """
        replica = self.replica
        fence: tuple[fx.Operation, ...] = () if is_own else (fx.Check(layout.host(replica), self.epoch),)
        apart: tuple[fx.Operation, ...] = ()
        if self.is_apart:
            apart = (
                fx.Check(layout.is_active(replica), fx.ANY_VERSION),
                fx.Delete(layout.prepared(replica, self.staging), FIRST_VERSION),
            )
        # The open parent's mark also proves that the shard has no materialised views, which would have to be computed.
        return *fence, *apart, *NO_VIEWS.unchanged(replica.table)

    def missed(self, by: fx.Refused) -> ParticipantGone | fx.NotInserted:
        """Return what it means that one of the proofs was refused."""
        replica, shard = self.replica, self.replica.table
        if by.operation.path != layout.open_log(shard):
            why = "has activated anew, has no session, or has given up the rows"
            return ParticipantGone(self, f"replica {replica.name} of shard {shard.name} {why}")
        if by.reason is fx.Reason.NO_NODE:
            return ParticipantGone(self, f"shard {shard.name}: {ROLLED}")
        # The first view of a table sets the mark of its log's open parent.
        return fx.NotInserted(
            f"shard {shard.name} has materialised views, which an insert into several shards can't compute: drop them first",
            fx.Why.REQUEST,
        )


@dataclass(frozen=True, slots=True)
class ParticipantGone:
    """Certainly nothing was inserted: `participant` does not have the rows ready any more; `reason` is for clients."""

    participant: Participant
    reason: str


@dataclass(frozen=True, slots=True)
class Preparer:
    """The replica that prepares; all as of `Participant`, and `me` as of `activate`."""

    replica: Replica
    me: bytes
    log_from: fx.LogIndex
    schema_version: int = 1
    is_apart: bool = True


class Abandonment(Enum):
    """What became of what was staged.

    REMOVED
        No joint insert has it or ever will; its files are gone.
    COMMITTED
        A joint insert has it: its files belong to the executor.
    LEFT
        The process can't tell now.  Its next activation, or that of the process which replaced it, sweeps the files, unless
        their entry is in the log.
    """

    REMOVED = "removed"
    COMMITTED = "committed"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class WrittenEntry:
    """The log entry of a shard's part of a joint insert, or of a rewrite over shards."""

    index: fx.LogIndex
    entry: GetEntry | RewriteEntry


def find_written(table: TablePlace, staging: fx.StagingId, log_from: fx.LogIndex) -> fx.Procedure[WrittenEntry | None]:
    """Search the log of a shard, from `log_from` on, for the entry that names what is staged; None: it is not there."""

    def is_it(index: fx.LogIndex, entry: Entry) -> WrittenEntry | None:
        return (
            WrittenEntry(index, entry)
            if isinstance(entry, GetEntry | RewriteEntry) and entry.insert == staging
            else None
        )

    return (yield from search_log(table, log_from, is_it, SEARCH_WINDOW))


def prepare(
    preparer: Preparer, epoch: fx.Epoch, staging: fx.StagingId, requests: tuple[fx.RequestId, ...]
) -> fx.Procedure[Participant | fx.NotInserted]:
    """Stage the rows of some requests for a joint insert, and announce them.

    Parameters
    ----------
    preparer, epoch
        The replica, and the epoch under which it is active.
    staging
        Names what is staged; never used twice.  The process holds its folder.
    requests
        Whose rows they are.

    Returns
    -------
    What the coordinator needs, or the answer to the client; then nothing is left but perhaps a node, which the next process
    forgets.
    """
    replica, path = preparer.replica, layout.prepared(preparer.replica, staging)
    staged = yield fx.Stage(staging, requests)
    if isinstance(staged, fx.StoreFailed):
        yield fx.RemoveStaging(staging)
        return fx.NotInserted(staged.reason, fx.Why.REQUEST if staged.by_request else fx.Why.STORE)
    terms = preparer.log_from, preparer.schema_version, preparer.is_apart
    participant = Participant(replica, epoch, staging, staged.parts, *terms, staged.results)
    if not preparer.is_apart:
        return participant
    parents: tuple[fx.Create, ...] = ()
    reason = "the replica's epoch changes all the time; try again"
    for _ in range(EPOCHS_MAX):
        host = fx.Check(layout.host(replica), participant.epoch)
        announced = yield fx.Commit(host, *parents, fx.Create(path, preparer.me))
        match announced:
            case fx.Applied():
                return participant
            case fx.Refused(operation=fx.Create(path=refused), reason=fx.Reason.NODE_EXISTS) if refused == path:
                # An earlier try, whose answer was lost, has created it; the check before has proved the epoch.
                return participant
            case fx.Refused(operation=fx.Create(), reason=why):
                # The replica's first joint insert creates the parent.
                parents = (fx.Create(layout.all_prepared(replica)),) if why is fx.Reason.NO_NODE else ()
                continue
            case fx.Unknown(is_sent=False):
                reason = NOT_SENT
                break
        # Under a newer epoch a commit without an answer has taken place or never will, and may be tried again.
        renewed = yield from newer_epoch(replica, preparer.me, participant.epoch)
        if isinstance(renewed, NoEpoch):
            reason = renewed.reason
            break
        participant = replace(participant, epoch=renewed.epoch)
    # No coordinator hears of what is staged here, so none commits it, also if the node is there.
    yield fx.RemoveStaging(staging)
    return fx.NotInserted(reason)


def abandon(participant: Participant, me: bytes) -> fx.Procedure[Abandonment]:
    """Give up what was prepared, unless its joint insert has taken place.

    Parameters
    ----------
    participant
        As `prepare` has returned it in this process.
    me
        As in `activate`.
    """
    replica, table, epoch = participant.replica, participant.replica.table, participant.epoch
    if not participant.is_apart:
        yield fx.RemoveStaging(participant.staging)
        return Abandonment.REMOVED
    deletes = fx.Delete(layout.prepared(replica, participant.staging), FIRST_VERSION)
    in_doubt = False
    for _ in range(EPOCHS_MAX):
        deleted = yield fx.Commit(fx.Check(layout.host(replica), epoch), deletes)
        match deleted:
            case fx.Applied():
                yield fx.RemoveStaging(participant.staging)
                return Abandonment.REMOVED
            case fx.Refused(operation=operation) if operation == deletes:
                if not in_doubt:
                    return Abandonment.COMMITTED
                # A joint insert has deleted the node, or the commit whose answer was lost.  The refusal came after both.
                if (yield from find_written(table, participant.staging, participant.log_from)) is not None:
                    return Abandonment.COMMITTED
                if not (yield from reaches_back(table, participant.log_from)):
                    return Abandonment.LEFT
                yield fx.RemoveStaging(participant.staging)
                return Abandonment.REMOVED
            case fx.Unknown(is_sent=True):
                in_doubt = True
            case fx.Unknown():
                return Abandonment.LEFT
        renewed = yield from renew_epoch(replica, me, epoch)
        if not isinstance(renewed, Activated):
            return Abandonment.LEFT
        epoch = renewed.epoch
    return Abandonment.LEFT


def forget_prepared(replica: Replica, me: bytes, epoch: fx.Epoch, idle: Collection[fx.StagingId]) -> fx.Procedure[int]:
    """Delete the nodes of what earlier processes have prepared, and of what this one does not hold; return how many are gone.

    A process does this once under each of its epochs, at any time after the activation: a node that is left is forgotten then.

    Parameters
    ----------
    replica, me, epoch
        The replica, its process as in `activate`, and its epoch: the activation has ended joint inserts with an earlier one.
    idle
        The staging folders that the process does not hold, as of `start.list_idle_staging`.
    """
    names: tuple[str, ...] = (yield fx.Children(layout.all_prepared(replica))) or ()
    paths = tuple(layout.prepared(replica, fx.StagingId(name)) for name in names)
    many: fx.Many = (yield fx.GetMany(paths)) if paths else fx.Many(())
    doomed = tuple(
        path
        for name, path, node in zip(names, paths, many.nodes, strict=True)
        if node is not None and (node.value != me or name in idle)
    )
    gone = 0
    for first in range(0, len(doomed), FORGET_BATCH):
        deletes = (fx.Delete(path, FIRST_VERSION) for path in doomed[first : first + FORGET_BATCH])
        forgotten = yield fx.Commit(fx.Check(layout.host(replica), epoch), *deletes)
        if not isinstance(forgotten, fx.Applied):
            break
        gone += len(doomed[first : first + FORGET_BATCH])
    return gone
