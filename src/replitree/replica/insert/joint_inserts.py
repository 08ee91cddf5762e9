"""Joint inserts that this replica commits for all their shards.

What the participants have prepared comes with the request; the replica's own rows are held here (`PreparedRows`).  The commit
and what becomes of the rows are the stages of `replitree.protocol.program.sharded.coordinator`.  A request whose insert has a
quorum is answered when its own shard's log says what became of it: all shards end together.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from replitree.errors import BadInput, ConcurrentChange, OutcomeUnknown, ReadOnly, ReplitreeError, TooFewReplicas
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import EVERY_PARTITION
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.log import ROLLED
from replitree.protocol.insert.quorum import count_replicas
from replitree.protocol.membership.activate import REPLACED, Replaced
from replitree.protocol.program.sharded.coordinator import (
    Became,
    CoordinatorOutcome,
    EndBeside,
    JointRequest,
    KeepOwn,
    OwnGone,
    OwnTurn,
    TakeOwn,
    insert_jointly,
)
from replitree.protocol.program.sharded.participant import LetGoRows
from replitree.protocol.program.stages import End, MemoryEffect, ReportTrouble, Then
from replitree.protocol.sharded.joint_batch import JointBatch, batch_token
from replitree.protocol.sharded.joint_insert import JointInserted, MapChanged, TokensTaken
from replitree.protocol.sharded.overwrite import parts_of_shards
from replitree.protocol.sharded.places import shard_number
from replitree.protocol.sharded.prepare import Participant, ParticipantGone
from replitree.protocol.sharded.views import view_node
from replitree.replica.insert.appends import Appends
from replitree.replica.insert.group_commit import PendingInsert
from replitree.replica.insert.inserts import Deliver, result_of
from replitree.replica.insert.prepared_rows import PreparedRows
from replitree.replica.insert.quorums import PATIENCE_S, Quorums, Wish, quorum_size
from replitree.replica.kit.evidence import Evidence
from replitree.replica.kit.payloads import Overwrite
from replitree.replica.perform.append_doubt import AppendDoubt, Perform
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.commit_size import check_insert
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.perform.store_performer import StorePerformer
from replitree.wire.block_ids import token_block
from replitree.wire.prepared_share import JointBody, PreparedPart, PreparedResult, PreparedShare
from replitree.wire.sent_batch import SentBatch


@dataclass(frozen=True, slots=True)
class JointCommit:
    """What became of a request.

    Attributes
    ----------
    outcome
        What the coordinator has found out.
    rows
        Of all shards.
    pending
        The request that waits for a quorum; None: the outcome is its answer.
    """

    outcome: CoordinatorOutcome
    rows: int
    pending: PendingInsert | None = None


class JointInserts:
    """Commits joint inserts, as a replica of one of their shards.

    Parameters
    ----------
    store_performer, quorums, appends
        As of `Inserts`.

    Attributes
    ----------
    prepared
        Holds the replica's own rows.
    """

    def __init__(
        self,
        context: TableContext,
        availability: Availability,
        store_performer: StorePerformer,
        quorums: Quorums,
        appends: Appends,
    ) -> None:
        self._context = context
        self._availability = availability
        self.prepared = PreparedRows(context, availability, store_performer)
        self._quorums = quorums
        self._appends = appends
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[fx.RequestId, PendingInsert] = {}

    def commit(
        self,
        body: JointBody,
        token: str | SentBatch,
        wish: Wish | None,
        deliver: Deliver,
        overwrite: Overwrite = Overwrite.NOTHING,
    ) -> JointCommit:
        """Commit a joint insert.

        Parameters
        ----------
        body
            What was prepared; the own share comes first.
        token
            Names the whole insert: a token, or the batch of a stream that it is.
        wish
            The quorum that is wished for in each shard; None: it counts at once.
        deliver
            Is called with the request when its quorum has ended.
        overwrite
            What it takes the place of, in all shards.

        Raises
        ------
        BadInput
            The request can't be right: the token, a share of another table, or a quorum that no shard can have; or an
            overwrite replaces more parts than one commit can take back.
        ReadOnly, TooFewReplicas, Unavailable
            Certainly nothing was inserted by this request.
        """
        own, *others = body.prepared
        self._check_own(own)
        self._availability.epoch()
        context, batch, staging, joint = self._context, None, fx.StagingId(own.staging), self._next_joint()
        if wish is not None and overwrite is not Overwrite.NOTHING:
            raise BadInput("an insert that overwrites can't have a quorum: what it replaces would be gone if it failed")
        if body.since and (wish is not None or overwrite is not Overwrite.NOTHING or isinstance(token, SentBatch)):
            raise BadInput(
                "a rewrite over shards has a token, and neither a quorum nor a batch, and overwrites nothing"
            )
        if isinstance(token, SentBatch):
            block, batch = batch_token(joint), JointBatch(token.of_stream, token.takes_over)
        else:
            block = token_block(token)
        if (wish is not None or overwrite is not Overwrite.NOTHING) and (body.targets or body.fills is not None):
            raise BadInput(
                "the rows of materialised views can't wait for a quorum, and take the place of none; nothing was inserted"
            )
        quorum = 0 if wish is None else self._needed(wish, others)
        participants = tuple(map(self._participant, others))
        root = layout.root_of(context.replica.table)
        targets = tuple((layout.sharded(root, name), fx.Version(version)) for name, version in body.targets.items())
        fills = (
            ""
            if body.fills is None
            else view_node(layout.sharded(root, body.fills.source), fx.EntryId(body.fills.view))
        )
        asked = JointRequest(
            joint,
            block,
            fx.Version(body.map_version),
            staging,
            participants,
            quorum,
            batch,
            drops=self._drops(body, overwrite),
            since=tuple(map(fx.LogIndex, body.since)),
            targets=targets,
            fills=fills,
        )
        rows, number = sum(share.rows for share in body.prepared), self.prepared.next_request()
        ended, outcome = self._run(number, asked, self.prepared.take(asked.own))
        if isinstance(outcome, fx.NotInserted) and outcome.reason == ROLLED:
            context.pull_signal.hurry()
        if not isinstance(ended, Then):
            return JointCommit(outcome, rows)
        pending = PendingInsert(number, block, None, rows, 0, alone=True, deliver=deliver, waits=True)
        with self._lock:
            self._waiting[number] = pending
        self._quorums.wait(ended.arguments[1], PATIENCE_S if wish is None else wish.patience_s)
        return JointCommit(outcome, rows, pending)

    def commit_rows(
        self,
        staged: Sequence[tuple[PreparedRows, Participant]],
        tokens: Sequence[fx.BlockId],
        map_version: int,
        rows: int,
    ) -> JointCommit:
        """Commit what this process has staged for all shards.

        Parameters
        ----------
        staged
            What, and where; this replica's own first.  Afterwards what is not inserted, nor in doubt, is held there.
        tokens
            Each names the rows of one client.
        map_version, rows
            The version of the map by which the rows were split, and how many there are.

        Raises
        ------
        ReadOnly, Unavailable
            Certainly nothing was inserted.
        """
        self._availability.epoch()
        (_, first), *others = staged
        first_token, *also = tokens
        asked = JointRequest(
            self._next_joint(), first_token, fx.Version(map_version), first.staging, (), also=tuple(also)
        )
        own = self.prepared.take(first.staging)
        beside = [(holder, holder.take(each.staging)) for holder, each in others]
        is_whole = own is not None and all(each is not None for _, each in beside)
        held = [(holder, each) for holder, each in beside if each is not None]
        number = self.prepared.next_request()
        _, outcome = self._run(number, asked, own if is_whole else None, held)
        if isinstance(outcome, fx.NotInserted) and outcome.reason == ROLLED:
            self._context.pull_signal.hurry()
        return JointCommit(outcome, rows)

    def _next_joint(self) -> fx.JointId:
        # The process may coordinate inserts of several shards, each with numbers of its own.
        shard = shard_number(self._context.replica.table.name)
        return fx.JointId(f"{self._context.identity.incarnation}-s{shard}-c{next(self._numbers)}")

    def _run(
        self,
        number: fx.RequestId,
        asked: JointRequest,
        own: Participant | None,
        beside: Sequence[tuple[PreparedRows, Participant]] = (),
    ) -> tuple[Then | End | None, CoordinatorOutcome]:
        """Run the coordinator's stage; after an error the outcome is what is known for certain, or the error is raised."""
        context, prepared = self._context, self.prepared

        def remember(effect: MemoryEffect) -> OwnTurn | None:
            match effect:
                case TakeOwn():
                    return OwnTurn(context.identity.encode(), own, tuple(each for _, each in beside))
                case EndBeside(became):
                    _end_beside(beside, became)
                case KeepOwn(staging):
                    prepared.keep(staging)
                case LetGoRows(staging):
                    prepared.let_go(staging)
                case ReportTrouble():
                    self._report(asked.own, "the answer to a joint insert's commit was lost")
                case _:
                    raise AssertionError(effect)
            return None

        perform: Perform = context.performer.perform
        if asked.quorum:
            perform = self._appends.noting(context.replica.table, perform)
        doubt = AppendDoubt(perform)
        try:
            ended = Driver(context.performer, remember, doubt.perform).run(
                Then(insert_jointly, (context.replica, number, asked))
            )
        except Exception as error:
            if not doubt.may_be_in_log:
                if own is not None:
                    prepared.keep(asked.own)
                _end_beside(beside, Became.KEPT)
                raise
            self._tell_broken_off(error)
            self._report(asked.own, "a joint insert's outcome is unknown")
            prepared.let_go(asked.own)
            _end_beside(beside, Became.LET_GO)
            return None, fx.InDoubt()
        assert ended is not None
        return ended, ended.outcome  # type: ignore[return-value]  # the stage says so

    def _tell_broken_off(self, error: Exception) -> None:
        if not isinstance(error, ReplitreeError | OSError):
            self._context.log.defect("a joint insert failed")
        self._context.log.error("joint insert ended without an answer", problem=repr(error))

    def _report(self, own: fx.StagingId, reason: str) -> None:
        """Report a commit in doubt: the next activation decides, and sweeps the rows unless the log has their entry."""
        # In this order: the activation must find the folder idle.  Until it is let go, no request takes the rows for gone.
        self.prepared.release(own)
        self._availability.trouble(Evidence.UNKNOWN, reason)

    def answer(self, request: fx.RequestId, answer: fx.ClientAnswer) -> bool:
        """Give a request that waits for a quorum its answer; False: it is none of these."""
        with self._lock:
            pending = self._waiting.pop(request, None)
        if pending is not None:
            pending.give(answer)
        return pending is not None

    # --- what a request says ----------------------------------------------------------------------------------------------

    def _check_own(self, own: PreparedShare) -> None:
        replica = self._context.replica
        here = (replica.table.name, replica.table.incarnation, replica.name)
        if (own.shard, own.incarnation, own.replica) != here:
            raise BadInput(f"the first share is not one that replica {replica.name} of table {here[0]} has prepared")

    def _participant(self, share: PreparedShare) -> Participant:
        """Return what another replica has prepared, as the protocol knows it."""
        own = self._context.replica.table
        replica = Replica(layout.beside(own, share.shard, share.incarnation), share.replica)
        parts = tuple(fx.StagedPart(each.partition, each.rows, each.bytes, each.content_hash) for each in share.parts)
        return Participant(
            layout.at_pointer(replica, share.log_from),
            fx.Epoch(share.epoch),
            fx.StagingId(share.staging),
            parts,
            fx.LogIndex(share.log_from),
            share.schema_version,
            results=tuple(fx.StagedResult(e.source, e.rows, e.bytes, e.content_hash) for e in share.results),
        )

    def _drops(self, body: JointBody, overwrite: Overwrite) -> tuple[str, ...]:
        """Return what an insert takes the place of, in every shard.

        Raises
        ------
        BadInput
            A shard has more parts of that than the commit can take back that executes it.
        """
        written = {share.shard: [part.partition for part in share.parts] for share in body.prepared}
        drops: tuple[str, ...] = ()
        if overwrite is Overwrite.ALL:
            drops = (EVERY_PARTITION,)
        elif overwrite is Overwrite.PARTITIONS:
            drops = tuple(sorted({partition for its in written.values() for partition in its}))
        if drops:
            for table, held in self._context.performer.look_up(parts_of_shards(self._context.replica.table)):
                check_insert(Replica(table, self._context.replica.name), written.get(table.name, ()), drops, held)
        return drops

    def _needed(self, wish: Wish, others: list[PreparedShare]) -> int:
        """Return how many replicas of each shard a quorum means now: of a word, as many as the shard with the most needs.

        Raises
        ------
        TooFewReplicas
            A shard does not have so many that can take part.
        """
        own_size, own = self._quorums.needed(wish), self._context.replica.table
        size, counted = own_size, {}
        for share in others:
            shard = layout.beside(own, share.shard, share.incarnation)
            counted[share.shard] = self._context.performer.look_up(count_replicas(shard))
            size = max(size, quorum_size(wish, counted[share.shard]))
        if size > own_size:
            # What the word means in a shard with more replicas must be possible in this one, too.
            self._quorums.needed(Wish(size))
        for name, replicas in counted.items():
            if size > len(replicas.live):
                raise TooFewReplicas(
                    f"shard {name}: a quorum of {size} was asked for, and of {replicas.count} replicas {len(replicas.live)}"
                    " can take part now; nothing was inserted: start the others, or ask for fewer"
                )
        return size if size > 1 else 0


def _end_beside(beside: Sequence[tuple[PreparedRows, Participant]], became: Became) -> None:
    """Let what this process has staged for other shards become what the coordinator's own rows become."""
    for holder, each in beside:
        match became:
            case Became.LET_GO:
                holder.let_go(each.staging)
            case Became.KEPT:
                holder.keep(each.staging)
            case Became.REMOVED:
                holder.drop(each.staging)


def prepared_share(made: Participant, map_version: int) -> PreparedShare:
    """Return what a participant tells its client, with the version of the map by which the client has split its rows."""
    replica, table = made.replica, made.replica.table
    return PreparedShare(
        table.name,
        table.incarnation,
        replica.name,
        made.epoch,
        made.staging,
        tuple(PreparedPart(part.partition, part.rows, part.bytes, part.content_hash) for part in made.parts),
        made.log_from,
        made.schema_version,
        map_version,
        coordinates=not made.is_apart,
        results=tuple(PreparedResult(each.source, each.rows, each.bytes, each.content_hash) for each in made.results),
    )


def joint_result(
    committed: JointCommit, own: Replica, token: str, answer: fx.ClientAnswer | None = None
) -> dict[str, object]:
    """Return the answer to a joint insert, or raise it.

    Parameters
    ----------
    own
        The coordinator.
    answer
        What became of the quorum that was waited for.

    Raises
    ------
    QuorumNotReached, ReadOnly, BadInput, StreamReplaced, OutcomeUnknown
        As of `result_of`.
    ConcurrentChange
        A rewrite does not count any more; nothing was changed.
    """
    outcome, rows = committed.outcome, committed.rows
    match outcome:
        case JointInserted(joint, written, is_duplicate):
            if answer is None:
                ended: dict[str, object] = {"outcome": "duplicate" if is_duplicate else "inserted", "rows": rows}
            else:
                ended = result_of(answer, rows, token, waited=True)
                ended.pop("index")
            return {**ended, "joint": joint, "shards": [{"shard": name, "index": index} for name, index in written]}
        case MapChanged():
            return {"outcome": "map_changed"}
        case ParticipantGone(gone, reason):
            whose = {"shard": gone.replica.table.name, "replica": gone.replica.name}
            return {"outcome": "participant_gone", **whose, "reason": reason}
        case OwnGone():
            reason = f"replica {own.name} of shard {own.table.name} does not hold the rows any more"
            return {"outcome": "participant_gone", "shard": own.table.name, "replica": own.name, "reason": reason}
        case TokensTaken():
            raise AssertionError("of several tokens the group tells which are taken")
        case Replaced():
            raise ReadOnly(f"nothing was inserted: {REPLACED}")
        case fx.InDoubt():
            raise OutcomeUnknown("the rows may be in the table; repeat the insert with the same token", token)
        case fx.NotInserted(reason, fx.Why.CHANGED):
            raise ConcurrentChange(reason)
        case fx.NotInserted():
            return result_of(outcome, rows, token)


__all__ = ["JointCommit", "JointInserts", "joint_result", "prepared_share"]
