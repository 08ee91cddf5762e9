"""Taking inserts: checks before anything is written, groups, and the answer to each client.

Every insert has one block id (`replitree.wire.block_ids`), or is a batch of a stream.  An insert that overwrites goes alone,
and so does a batch.  A detached part that is attached has the block id of its name and content, so it is attached once,
whichever replica is asked.

Rows keep the schema version that they were checked against; when the columns change meanwhile they become a part of the older
version, which is read as any other.

An insert with a quorum is committed with its group, and answered when it is known what became of it (`replica.insert.quorums`).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from replitree.errors import (
    BadInput,
    OutcomeUnknown,
    QuorumNotReached,
    ReadOnly,
    ReplitreeError,
    SchemaMismatch,
    StoreError,
    StreamReplaced,
    TooManyParts,
)
from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import EVERY_PARTITION
from replitree.protocol.core.log import ROLLED
from replitree.protocol.core.views import NO_VIEWS
from replitree.protocol.insert.earlier import find_earlier, find_earlier_batch
from replitree.protocol.insert.quorum import Awaited
from replitree.protocol.insert.views import Backfill, InsertOrigin
from replitree.protocol.program.inserter import accept_insert
from replitree.protocol.program.stages import Accept, Accepted, MemoryEffect, Release, ReportTrouble, Then
from replitree.protocol.sharded.places import is_shard_name, sharded_name
from replitree.replica.insert.appends import Appends
from replitree.replica.insert.group_commit import GroupCommitter, PendingInsert
from replitree.replica.insert.insert_fate import Fate, Fates
from replitree.replica.insert.quorums import PATIENCE_S, Quorums, Wish
from replitree.replica.insert.reused_token import has_other_rows
from replitree.replica.kit.evidence import Evidence
from replitree.replica.kit.payloads import Detached, Overwrite, Rows, StagedUpload
from replitree.replica.perform.append_doubt import Perform
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.commit_size import PARTS_MAX, check_insert
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.perform.store_performer import StorePerformer
from replitree.storage.parts.manifest import PartManifest
from replitree.wire import tracing
from replitree.wire.block_ids import block_of, content_block, token_block
from replitree.wire.sent_batch import SentBatch

if TYPE_CHECKING:
    import pyarrow as pa

COUNT_CACHE_S = 0.1
DELAY_S_MAX = 1.0

Token: TypeAlias = str | SentBatch | None
"""By what a client names an insert: a token, a batch of a stream, or its content."""

Deliver = Callable[[PendingInsert], None]
"""Tells the one who asked that a request has its answer."""


class Inserts:
    """Takes the inserts of one table replica.

    Parameters
    ----------
    store_performer
        Writes the rows, and keeps at hand what it writes.
    quorums
        The inserts that wait for a quorum.
    appends
        Takes note of the entries that are appended here.
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
        self._store_performer = store_performer
        self._quorums = quorums
        self._appends = appends
        self._numbers = itertools.count()
        self._groups = itertools.count()
        self._answers: dict[fx.RequestId, PendingInsert] = {}
        self._lock = threading.Lock()
        self._parts_count, self._parts_counted_at = 0, 0.0
        self._views = NO_VIEWS
        name, limits = context.replica.table.name, (context.config.group_rows_max, context.config.group_bytes_max)
        self._committer = GroupCommitter(name, self._commit_traced, self._unanswered, *limits)
        self._uploads = GroupCommitter(f"{name}-uploads", self._commit_traced, self._unanswered, *limits)

    def delay_s(self) -> float:
        """Return how many seconds an insert has to wait because a partition has many parts.

        Raises
        ------
        TooManyParts
            A partition has so many parts that inserts are refused.
        """
        settings = self._context.definitions.current.settings
        now = time.monotonic()
        if now - self._parts_counted_at > COUNT_CACHE_S or 2 * self._parts_count >= settings.parts_delay:
            self._parts_count, self._parts_counted_at = self._context.progress.partition_parts_max(), now
        count = self._parts_count
        if count >= settings.parts_max:
            raise TooManyParts(
                f"table {self._context.replica.table.name}: a partition has {count} parts, the limit parts_max is "
                f"{settings.parts_max}; insert larger blocks, use fewer partitions, or raise the limit"
            )
        if count < settings.parts_delay:
            return 0.0
        return DELAY_S_MAX * (count - settings.parts_delay + 1) / (settings.parts_max - settings.parts_delay)

    def rows(
        self,
        data: pa.Table,
        token: Token,
        deliver: Deliver,
        overwrite: Overwrite = Overwrite.NOTHING,
        wish: Wish | None = None,
        *,
        bytes_max: int | None = None,
    ) -> PendingInsert:
        """Queue rows for the next group.

        Parameters
        ----------
        bytes_max
            Bytes that may be allocated to give the rows the table's types; None: any number.

        Raises
        ------
        TooFewReplicas
            They can't reach the quorum that is wished for.
        SchemaMismatch, BadInput
            The rows or the token can't be taken.
        ReadOnly
            The replica takes no inserts now.
        """
        from replitree.storage.parts.conform import conform
        from replitree.storage.parts.content_hash import content_hash
        from replitree.storage.parts.plain_arrays import Budget
        from replitree.storage.schema.partition import count_partitions, split_by_partition

        definition = self._context.definitions.current
        table = conform(data, definition, Budget(bytes_max))
        if table.num_rows == 0:
            raise BadInput("the insert has no rows")
        count_parts = partial(count_partitions, table, definition)
        # Each row is of one partition.  Small inserts are not counted: that would be a tenth of what they cost the event loop.
        is_checked = table.num_rows > min(PARTS_MAX, definition.settings.partitions_per_insert_max)
        is_large = is_checked and count_parts() > PARTS_MAX
        drops: tuple[str, ...] = ()
        if is_large or overwrite is not Overwrite.NOTHING:
            partitions = sorted(piece.partition for piece in split_by_partition(table, definition))
            drops = self._drops(overwrite, partitions)
        batch = token if isinstance(token, SentBatch) else None
        block = _block(token, drops, lambda: (content_hash(table, definition.arrow_schema),))
        pending = PendingInsert(
            fx.RequestId(next(self._numbers)),
            block,
            Rows(table, definition),
            table.num_rows,
            table.get_total_buffer_size(),
            bool(drops) or batch is not None,
            deliver,
            definition.schema_version,
            drops,
            count_parts=count_parts,
            batch=batch,
        )
        self._ask_quorum(pending, wish)
        return self._submit(self._committer, pending)

    def _drops(self, overwrite: Overwrite, partitions: Sequence[str]) -> tuple[str, ...]:
        """Return what an insert into these partitions replaces.

        Raises
        ------
        BadInput
            Its commits would be too large.
        """
        drops: tuple[str, ...] = ()
        if overwrite is Overwrite.ALL:
            drops = (EVERY_PARTITION,)
        elif overwrite is Overwrite.PARTITIONS:
            drops = tuple(sorted(partitions))
        place = self._context.progress.place
        check_insert(self._context.replica, partitions, drops, place.parts if place is not None and drops else ())
        return drops

    def _ask_quorum(self, pending: PendingInsert, wish: Wish | None) -> None:
        """Find out how many replicas a wish means now."""
        if wish is None:
            return
        if pending.drops:
            raise BadInput("an insert that overwrites can't have a quorum: what it replaces would be gone if it failed")
        # This is asked before anything is written, so a refusal leaves nothing behind.
        self._availability.epoch()
        pending.quorum, pending.patience_s = self._quorums.needed(wish), wish.patience_s

    def upload(
        self,
        upload: StagedUpload,
        token: Token,
        deliver: Deliver,
        overwrite: Overwrite = Overwrite.NOTHING,
        wish: Wish | None = None,
    ) -> PendingInsert:
        """Queue an upload; it becomes an insert of its own.

        Raises
        ------
        SchemaMismatch
            The parts were written for columns of which one was dropped since, or for several versions.
        BadInput
            The parts were written for columns that the table never had, or are too many; or the token can't be taken.
        ReadOnly
            The replica takes no inserts now.
        """
        version = self.version_of(upload.manifests)
        drops = self._drops(overwrite, [manifest.partition for manifest in upload.manifests])
        block = _block(token, drops, lambda: tuple(manifest.content_hash for manifest in upload.manifests))
        rows = sum(manifest.rows for manifest in upload.manifests)
        batch = token if isinstance(token, SentBatch) else None
        number = fx.RequestId(next(self._numbers))
        pending = PendingInsert(number, block, upload, rows, 0, True, deliver, version, drops, batch=batch)
        self._ask_quorum(pending, wish)
        return self._submit(self._uploads, pending)

    def earlier(self, manifests: Sequence[PartManifest], token: Token, overwrite: Overwrite) -> fx.Duplicate | None:
        """Look whether an upload that is gone was inserted; None: it certainly was not, and can't be any more.

        Raises
        ------
        ReadOnly
            That is not certain, because the replica is not active.
        OutcomeUnknown
            The quorum of the insert is still open.
        """
        # Without an epoch, an earlier commit of this replica may still be under way.
        self._availability.epoch()
        if token is None and overwrite is not Overwrite.NOTHING:
            return None
        hashes, table = tuple(manifest.content_hash for manifest in manifests), self._context.replica.table
        if isinstance(token, SentBatch):
            block, looked = token.name, find_earlier_batch(table, token.of_stream)
        else:
            block = token_block(token) if token is not None else content_block(hashes or ("",))
            looked = find_earlier(table, block)
        found = self._context.performer.look_up(looked)
        if isinstance(found, fx.MaybeInserted):
            raise OutcomeUnknown("its quorum is still open; ask again with the same token", known_by(token, block))
        return found

    def attach(self, detached: Detached, deliver: Deliver) -> PendingInsert:
        """Queue a detached part; it becomes an insert of its own.  Raises as `upload`."""
        manifest = detached.manifest
        version = self.version_of((manifest,))
        block = token_block(f"attach {detached.part} {manifest.content_hash}")
        # The views have had its rows when they were inserted.
        number, terms = fx.RequestId(next(self._numbers)), (manifest.rows, 0, True, deliver, version)
        return self._submit(
            self._uploads, PendingInsert(number, block, detached, *terms, origin=InsertOrigin(fires=False))
        )

    def backfill(self, rows: pa.Table, token: str, backfill: Backfill, deliver: Deliver) -> PendingInsert:
        """Queue the rows from before a materialised view, in this table's columns; they become an insert of their own.

        Raises
        ------
        ReadOnly
            The replica takes no inserts now.
        """
        definition, number = self._context.definitions.current, fx.RequestId(next(self._numbers))
        terms = (rows.num_rows, rows.get_total_buffer_size(), True, deliver, definition.schema_version)
        pending = PendingInsert(
            number, token_block(token), Rows(rows, definition), *terms, origin=InsertOrigin(backfill=backfill)
        )
        return self._submit(self._committer, pending)

    def version_of(self, manifests: Sequence[PartManifest]) -> int:
        """Return the schema version of parts that a client wrote; all their columns must still be there.

        Raises
        ------
        SchemaMismatch
            Not all are, or the parts are of several versions.
        """
        versions = {manifest.schema_version for manifest in manifests}
        if len(versions) != 1:
            raise SchemaMismatch("the parts were written for several schema versions: write them for one")
        (version,) = versions
        written = self._context.definitions.at(version)
        now = self._context.definitions.current
        known = {column.id for column in now.columns}
        gone = [column.name for column in written.columns if column.id not in known]
        if gone:
            raise SchemaMismatch(
                f"the parts were written for schema version {version}, and column {gone[0]!r} was dropped since: "
                f"write them for version {now.schema_version}"
            )
        return version

    def close(self, timeout_s: float) -> bool:
        """Refuse further inserts and finish those that wait; False when that took longer than `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        return all(
            committer.close(max(0.0, deadline - time.monotonic())) for committer in (self._committer, self._uploads)
        )

    def _submit(self, committer: GroupCommitter, pending: PendingInsert) -> PendingInsert:
        if is_shard_name(self._context.replica.table.name):
            # An insert into one shard alone proves no version of the map: its rows may belong elsewhere.
            raise BadInput(
                f"{self._context.replica.table.name} is a shard of a sharded table: insert into"
                f" {sharded_name(self._context.replica.table.name)}, which writes to all shards that get rows"
            )
        self._availability.epoch()
        pending.traced = tracing.current()
        if not committer.submit(pending):
            raise ReadOnly("the replica is shutting down or has too many inserts waiting; try another replica")
        return pending

    def _commit_traced(self, group: Sequence[PendingInsert]) -> None:
        """Insert one group, as a step of the requests in it."""
        links = [each.traced for each in group[1:]] if tracing.is_on() else ()
        with tracing.begin("group", parent=group[0].traced, links=links) as span:
            replica = self._context.replica
            span.note(
                table=replica.table.name, replica=replica.name, requests=len(group), rows=sum(p.rows for p in group)
            )
            self._commit(group)

    def _commit(self, group: Sequence[PendingInsert]) -> None:
        """Insert one group by the stages of `replitree.protocol.program.inserter`."""
        context, first, epoch = self._context, group[0], self._availability.epoch()
        place = context.progress.place
        log_from = place.pointer.index if place is not None else fx.LogIndex(0)
        staging = fx.StagingId(f"{context.identity.incarnation}-{next(self._groups)}")
        accepted = Accepted(context.identity.encode(), epoch, log_from, staging, self._views)
        with self._lock:
            self._answers.update({pending.id: pending for pending in group})
        perform: Perform = context.performer.perform
        if first.quorum:
            perform = self._appends.noting(context.replica.table, perform)
        fates, awaited, held = Fates(context.replica.table, perform), tuple[Awaited, ...](), ExitStack()

        def remember(effect: MemoryEffect) -> Accepted | None:
            match effect:
                case Accept():
                    payloads = {pending.id: pending.payload for pending in group}
                    held.enter_context(self._store_performer.holding(staging, payloads))
                    return accepted
                case Release(_, views):
                    self._views = views or self._views
                    self._store_performer.forget(staging)
                    held.close()
                case ReportTrouble():
                    self._availability.trouble(Evidence.UNKNOWN, "the answer to an insert's commit was lost")
                case _:
                    raise AssertionError(effect)
            return None

        driver, tokens = (
            Driver(context.performer, remember, fates.perform),
            tuple((each.id, each.block) for each in group),
        )
        of_stream = (None, False) if first.batch is None else (first.batch.of_stream, first.batch.takes_over)
        asked = (context.replica, tokens, first.drops, first.quorum, first.schema_version, *of_stream, first.origin)
        try:
            # After an error the stage is closed before its blocks are released.
            with held:
                taken = driver.run(Then(accept_insert, asked))
                assert isinstance(taken, Then), "a group that was taken is inserted"
                following = driver.run(taken)
            awaited = following.arguments[1] if isinstance(following, Then) else ()
            waits = {request for each in awaited for request in each.requests}
            for pending in group:
                pending.waits = pending.id in waits
        except Exception as error:  # noqa: BLE001 - whatever it was, each client hears what is certain of its request
            self._broken_off(group, staging, fates, error)
        finally:
            with self._lock:
                for pending in group:
                    if not pending.waits:
                        self._answers.pop(pending.id, None)
        self._quorums.wait(awaited, first.patience_s or PATIENCE_S)
        if any(isinstance(each.answer, fx.NotInserted) and each.answer.reason == ROLLED for each in group):
            # The log goes on below another parent, which the replica knows once it has pulled.
            context.pull_signal.hurry()
        context.metrics.groups.labels(context.replica.table.name).inc()

    def _broken_off(
        self, group: Sequence[PendingInsert], staging: fx.StagingId, fates: Fates, error: Exception
    ) -> None:
        """Answer the requests of a group whose procedure has ended with an error, each by what is known for certain."""
        context, left = self._context, [pending for pending in group if pending.answer is None]
        if not isinstance(error, ReplitreeError | OSError):
            context.log.defect("an insert failed")
        context.log.error("insert ended without an answer", problem=repr(error), requests=len(left))
        unsent = [pending for pending in left if fates.of(pending.id) is Fate.UNSENT]
        # No request of the group was sent, so what is staged is garbage for certain.
        if not any(fates.of(pending.id) is Fate.SENT for pending in group):
            # If the disk fails, the next activation sweeps the folder.
            with suppress(StoreError, OSError):
                self._store_performer.discard(staging)
        self._store_performer.forget(staging)
        if isinstance(error, BadInput) and len(group) > 1:
            # The commit of one request may fit where the commit of all did not.
            for pending in unsent:
                self._commit((pending,))
        why = fx.Why.REQUEST if isinstance(error, BadInput) else fx.Why.TABLE
        for pending in left:
            # This one was inserted alone, and is in the log.
            if pending.waits:
                continue
            pending.give(fx.NotInserted(str(error), why) if pending in unsent else fx.MaybeInserted())
        if any(isinstance(each.answer, fx.MaybeInserted) and fates.of(each.id) is Fate.SENT for each in group):
            self._availability.trouble(Evidence.UNKNOWN, "an insert's outcome is unknown")

    def answer(self, request: fx.RequestId, answer: fx.ClientAnswer) -> None:
        """Give a client its answer; the first one counts."""
        pending = self._answers.get(request)
        if pending is not None:
            if isinstance(answer, fx.Duplicate):
                pending.differs = has_other_rows(self._context.performer, self._context.replica.table, pending, answer)
            pending.give(answer)
            if pending.waits:
                with self._lock:
                    self._answers.pop(request, None)

    def _unanswered(self, left: Sequence[PendingInsert], problem: BaseException | None) -> None:
        """Answer the requests that a commit left open."""
        # `ReadOnly` is raised before anything is sent; after any other error the commit may have happened.
        if isinstance(problem, ReadOnly):
            answer: fx.ClientAnswer = fx.NotInserted(str(problem))
        else:
            answer = fx.MaybeInserted()
            self._context.log.error("insert ended without an answer", problem=repr(problem), requests=len(left))
            self._availability.trouble(Evidence.UNKNOWN, "an insert's outcome is unknown")
        for pending in left:
            pending.give(answer)


def _block(token: Token, drops: tuple[str, ...], hashes: Callable[[], Sequence[str]]) -> fx.BlockId:
    """Return the block id of an insert; that of a batch is only its name.  Parameters and errors as of `block_of`."""
    return token.name if isinstance(token, SentBatch) else block_of(token, drops, hashes)


def known_by(token: Token, block: fx.BlockId) -> str:
    """Return what a client repeats an insert with: its token; otherwise the block id, or the name of its batch."""
    return token if isinstance(token, str) and token else block


def result_of(
    answer: fx.ClientAnswer, rows: int, token: str, *, waited: bool = False, differs: bool = False
) -> dict[str, object]:
    """Return the result of an insert for its client, or raise it.

    Parameters
    ----------
    waited
        Whether it waited for a quorum.
    differs
        Whether a duplicate has certainly other rows than the insert that had its token before.

    Raises
    ------
    QuorumNotReached
        It was in the table and not visible to strict reads, and was taken back for good.
    ReadOnly
        Certainly nothing was inserted.
    BadInput
        Nothing was inserted, and the same rows are refused everywhere.
    StreamReplaced
        Nothing was inserted: the stream belongs to another query.
    OutcomeUnknown
        The rows may be in the table.
    """
    match answer:
        case fx.Inserted(index, settled):
            return _told("inserted", index, settled, rows)
        case fx.Duplicate(index, settled):
            told = _told("duplicate", index, settled, rows)
            return {**told, "differs": True} if differs else told
        case fx.NotInserted(reason, fx.Why.REQUEST):
            raise BadInput(reason)
        case fx.NotInserted(reason, fx.Why.STREAM, theirs):
            raise StreamReplaced(reason, *(theirs or ()))
        case fx.NotInserted(reason) if waited:
            raise QuorumNotReached(f"the insert has failed: {reason}")
        case fx.NotInserted(reason):
            raise ReadOnly(f"nothing was inserted: {reason}")
        case fx.MaybeInserted():
            raise OutcomeUnknown("the rows may be in the table; repeat the insert with the same token", token)


def _told(outcome: str, index: fx.LogIndex | None, settled: fx.LogIndex | None, rows: int) -> dict[str, object]:
    told: dict[str, object] = {"outcome": outcome, "index": index, "rows": rows}
    return told if settled is None else {**told, "settled": settled}
