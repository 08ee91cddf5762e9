"""Group commit of joint inserts: rows that one process stages for all their shards, as the replica of each of them.

Such an insert takes one request.  No other process takes part, so nothing is announced (`replitree.protocol.sharded.prepare`).
Those that come at once and are of the same shards become one part and one entry in each shard, and one commit, as inserts into
a plain table do (`replitree.replica.insert.group_commit`).  Each request keeps its own token and gets its own answer.

============================================  ==================================================================
what becomes of a group                       its requests
============================================  ==================================================================
inserted, in doubt, the map has changed       all have this answer
tokens of some are taken                      these are inserted alone, which finds the duplicates; the others together, again
the rows or the commit are refused            each is inserted alone: one may fit where all did not
any other error                               all have this answer
============================================  ==================================================================

Absent on purpose: inserts with a quorum, and batches of streams, of which each is a commit of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from replitree.errors import BadInput, OutcomeUnknown, ReadOnly, ReplitreeError, StoreError
from replitree.protocol.core import effects as fx
from replitree.protocol.sharded.joint_insert import TokensTaken
from replitree.protocol.sharded.prepare import Participant
from replitree.replica.insert.group_commit import GroupCommitter, PendingInsert
from replitree.replica.insert.inserts import Deliver
from replitree.replica.insert.joint_inserts import JointCommit, JointInserts
from replitree.replica.insert.prepared_rows import KEEP_S, PreparedRows
from replitree.replica.kit.payloads import Rows
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import TableContext
from replitree.storage.parts.part_sync import SyncTogether
from replitree.wire.block_ids import token_block

STAGING_THREADS = 2
"""Threads that stage the rows of many shards: one writes while the disk syncs what the other one has written.  More of them
would wait for the interpreter, and the disk would sync less at once."""

Piece = tuple[PreparedRows, Rows]
"""Rows of a shard, and where the process stages them."""


@dataclass(slots=True, eq=False)
class JointRows:
    """What a request inserts, and what became of it.

    Attributes
    ----------
    pieces
        The rows of each shard; the coordinator's own first.
    token
        What the client names the insert with.
    map_version
        Version of the map by which its rows were split.
    committed, problem
        One of the two when it has its answer.
    """

    pieces: tuple[Piece, ...]
    token: str
    map_version: int
    committed: JointCommit | None = None
    problem: BaseException | None = None

    @property
    def kind(self) -> object:
        """Requests of one kind may share a commit: they are of the same shards, columns and map."""
        return self.map_version, tuple((id(shard), rows.definition.schema_version) for shard, rows in self.pieces)

    def count_parts(self) -> int:
        """Return how many parts its rows become."""
        from replitree.storage.schema.partition import count_partitions

        return sum(count_partitions(rows.table, rows.definition) for _, rows in self.pieces)

    def result(self) -> JointCommit:
        """Return what became of it, or raise the error with which it ended."""
        if self.committed is None:
            assert self.problem is not None
            raise self.problem
        return self.committed


class JointGroups:
    """Commits what one replica coordinates and its own process stages.  Any thread may use it.

    Parameters
    ----------
    inserts
        Commits for all shards.
    """

    def __init__(self, context: TableContext, availability: Availability, inserts: JointInserts) -> None:
        self._context = context
        self._availability = availability
        self._inserts = inserts
        self._lock = threading.Lock()
        self._committer: GroupCommitter | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """How many requests wait for a group."""
        return 0 if self._committer is None else self._committer.waiting

    def submit(self, pieces: tuple[Piece, ...], token: str, map_version: int, deliver: Deliver) -> PendingInsert:
        """Queue rows for the next group.

        Parameters
        ----------
        pieces, token, map_version
            As of `JointRows`.
        deliver
            Is called with the request when it has its answer; its `payload` is the `JointRows`.

        Raises
        ------
        BadInput
            The token can't be taken.
        ReadOnly
            The replica takes no inserts now.
        """
        self._availability.epoch()
        asked = JointRows(pieces, token, map_version)
        rows = sum(piece.table.num_rows for _, piece in pieces)
        size = sum(piece.table.get_total_buffer_size() for _, piece in pieces)
        number = self._inserts.prepared.next_request()
        pending = PendingInsert(
            number,
            token_block(token),
            asked,
            rows,
            size,
            False,
            deliver,
            count_parts=asked.count_parts,
            kind=asked.kind,
        )
        committer = self._begun()
        if committer is None or not committer.submit(pending):
            raise ReadOnly("the replica is shutting down or has too many inserts waiting; try another replica")
        return pending

    def close(self, timeout_s: float) -> bool:
        """Refuse further inserts and finish those that wait; False when that took longer than `timeout_s` seconds."""
        with self._lock:
            self._is_closed = True
            committer, pool = self._committer, self._pool
        is_done = committer is None or committer.close(timeout_s)
        if pool is not None:
            pool.shutdown(wait=False)
        return is_done

    def _begun(self) -> GroupCommitter | None:
        """Return the committer, whose thread begins with the first insert: most replicas coordinate none."""
        with self._lock:
            if self._committer is None and not self._is_closed:
                config = self._context.config
                self._committer = GroupCommitter(
                    f"{self._context.replica.table.name}-joint",
                    self._commit,
                    self._unanswered,
                    config.group_rows_max,
                    config.group_bytes_max,
                )
            return self._committer

    def _commit(self, group: Sequence[PendingInsert]) -> None:
        """Insert a group, by as few commits as its tokens and its size allow, and answer each request."""
        left = list(group)
        while len(left) > 1:
            try:
                committed = self._insert(left)
            except BadInput:
                break
            match committed.outcome:
                case TokensTaken(tokens):
                    for each in left:
                        if each.block in tokens:
                            self._insert_alone(each)
                    left = [each for each in left if each.block not in tokens]
                case fx.NotInserted(why=fx.Why.REQUEST):
                    break
                case _:
                    for each in left:
                        _give(each, JointCommit(committed.outcome, each.rows))
                    return
        for each in left:
            self._insert_alone(each)

    def _insert_alone(self, pending: PendingInsert) -> None:
        try:
            _give(pending, self._insert([pending]))
        except Exception as error:  # noqa: BLE001 - whatever it was, this client hears it, and the others go on
            self._unanswered((pending,), error)

    def _insert(self, group: Sequence[PendingInsert]) -> JointCommit:
        """Stage the rows of a group and commit them; what no commit can take any more is removed."""
        asked: list[JointRows] = [each.payload for each in group]
        shards = [[one.pieces[at] for one in asked] for at in range(len(asked[0].pieces))]
        staged = self._stage(shards)
        try:
            rows = sum(each.rows for each in group)
            return self._inserts.commit_rows(staged, [each.block for each in group], asked[0].map_version, rows)
        finally:
            # Nothing if the outcome has dealt with the rows: a client that tries again sends them again.
            _give_up(staged)

    def _stage(self, shards: Sequence[Sequence[Piece]]) -> list[tuple[PreparedRows, Participant]]:
        """Stage the rows of each shard, and sync them, about half of the shards at once."""
        if len(shards) == 1:
            return self._stage_some(shards)
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(STAGING_THREADS, f"stage-{self._context.replica.table.name}")
            pool = self._pool
        size = -(-len(shards) // STAGING_THREADS)
        futures: list[Future[list[tuple[PreparedRows, Participant]]]] = [
            pool.submit(self._stage_some, shards[first : first + size]) for first in range(0, len(shards), size)
        ]
        problems = [problem for each in futures if (problem := each.exception()) is not None]
        if problems:
            _give_up([one for each in futures if each.exception() is None for one in each.result()])
            raise problems[0]
        return [one for each in futures for one in each.result()]

    def _stage_some(self, shards: Sequence[Sequence[Piece]]) -> list[tuple[PreparedRows, Participant]]:
        """Stage the rows of some shards, one after the other, and sync all of them at once."""
        import pyarrow as pa

        staged, together = list[tuple[PreparedRows, Participant]](), SyncTogether()
        try:
            for pieces in shards:
                holder, rows = pieces[0]
                whole = Rows(pa.concat_tables([each.table for _, each in pieces]), rows.definition, together)
                made = holder.prepare(whole, rows.definition.schema_version, KEEP_S, coordinates=True)
                staged.append((holder, made))
            together.sync()
        except BaseException as error:
            _give_up(staged)
            if isinstance(error, StoreError):
                self._availability.disk_failed(str(error))
            raise
        return staged

    def _unanswered(self, left: Sequence[PendingInsert], problem: BaseException | None) -> None:
        """Answer requests with the error that their group has met; the commit itself raises none (`JointInserts`)."""
        if not isinstance(problem, ReplitreeError | OSError):
            self._context.log.error("joint insert ended without an answer", problem=repr(problem), requests=len(left))
        for each in left:
            known = isinstance(problem, ReplitreeError | OSError)
            error = OutcomeUnknown(
                "the rows may be in the table; repeat the insert with the same token", each.payload.token
            )
            each.payload.problem = problem if known else error
            each.give(fx.NotInserted(str(problem)) if known else fx.MaybeInserted())


def _give(pending: PendingInsert, committed: JointCommit) -> None:
    pending.payload.committed = committed
    pending.give(fx.MaybeInserted())


def _give_up(staged: Sequence[tuple[PreparedRows, Participant]]) -> None:
    for holder, participant in staged:
        holder.drop(participant.staging)
