"""Rows that this replica has prepared for joint inserts, and holds until a coordinator takes them.

What is prepared is memory and a staging folder, and a node if another process is to commit it.  It ends in one of four ways:

=====================================  ====================================================================================
the entry is in the log                seen by the puller (`committed`), or when it is given up: the executor has the files
its client gives it up                 `give_up`: the node goes, then the files
its time is over                       the same, in `look`
this process ends, or activates anew   no commit relies on it any more: the next process sweeps the files, and `look` of that
                                       one forgets the node
=====================================  ====================================================================================

The rules are those of `replitree.protocol.sharded.prepare`, run as the stages of
`replitree.protocol.program.sharded.participant`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from replitree.errors import BadInput, CorruptPart, ReadOnly, ReplitreeError, StoreError, Unavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.program.sharded import participant
from replitree.protocol.program.sharded.participant import (
    AcceptRows,
    AwaitForgetting,
    AwaitGivingUp,
    ForgetTurn,
    GiveUpTurn,
    Hold,
    LetGoRows,
)
from replitree.protocol.program.stages import Accepted, End, MemoryEffect, Then
from replitree.protocol.sharded.feed import moved_group
from replitree.protocol.sharded.moves.batch import RowsSum
from replitree.protocol.sharded.prepare import Abandonment, Participant
from replitree.replica.kit.payloads import Payload, Rows, StagedRewrite, StagedUpload
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.commit_size import PARTS_MAX, check_insert
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver
from replitree.replica.perform.store_performer import StorePerformer

if TYPE_CHECKING:
    import pyarrow as pa

KEEP_S = 60.0
"""How long what was prepared is kept, unless its client says otherwise."""

KEEP_S_MAX = 3_600.0

REQUESTS_FROM = 1 << 62
"""Number of the first request of a joint insert: those of other inserts never come so far."""

PREPARED_MAX = 1_000
"""What one table replica holds at once."""


class _Use(Enum):
    """What is being done with what is held: nothing, a commit of this process, or giving it up."""

    WAITS = "waits"
    COMMITTING = "committing"
    ENDING = "ending"


@dataclass(slots=True, eq=False)
class _Held:
    """What was prepared, and how long it is kept.

    Attributes
    ----------
    until
        When it is given up, in seconds of the clock.
    holds
        What is held with it.
    upload
        The upload that it was made of; "": of rows.
    use
        What is being done with it.
    """

    participant: Participant
    until: float
    holds: ExitStack
    upload: str
    use: _Use = _Use.WAITS


class PreparedRows:
    """What one table replica has prepared.  Any thread may use it.

    Parameters
    ----------
    store_performer
        Stages the rows, and keeps them from being swept.
    clock
        Seconds that never go back.
    """

    def __init__(
        self,
        context: TableContext,
        availability: Availability,
        store_performer: StorePerformer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._availability = availability
        self._store_performer = store_performer
        self._clock = clock
        self._numbers, self._requests = itertools.count(), itertools.count(REQUESTS_FROM)
        self._lock = threading.Lock()
        self._held: dict[fx.StagingId, _Held] = {}
        self._forgot_under: fx.Epoch | None = None
        self._is_shard = "~" in context.replica.table.name

    def __len__(self) -> int:
        """Return how much is held."""
        return len(self._held)

    def next_request(self) -> fx.RequestId:
        """Return a number that no other request of this table has."""
        return fx.RequestId(next(self._requests))

    # --- preparing ------------------------------------------------------------------------------------------------------

    def taken(self, data: pa.Table, bytes_max: int) -> Rows:
        """Return rows with the types of the table's columns as they are now.

        Parameters
        ----------
        bytes_max
            Bytes that may be allocated for that.

        Raises
        ------
        SchemaMismatch, BadInput
            They can't be taken, or the commit that registers them would be too large.
        """
        from replitree.storage.parts.conform import conform
        from replitree.storage.parts.plain_arrays import Budget
        from replitree.storage.schema.partition import split_by_partition

        definition = self._context.definitions.current
        table = conform(data, definition, Budget(bytes_max))
        if table.num_rows == 0:
            raise BadInput("the insert has no rows")
        # Each row is of one partition, so few rows need no count.
        if table.num_rows > PARTS_MAX:
            pieces = split_by_partition(table, definition)
            check_insert(self._context.replica, [piece.partition for piece in pieces])
        return Rows(table, definition)

    def prepare(
        self,
        payload: Payload,
        schema_version: int,
        keep_s: float,
        *,
        coordinates: bool,
        beside: AbstractContextManager[object] | None = None,
        moves: bool = False,
    ) -> Participant:
        """Stage rows for a joint insert, and hold them.

        Parameters
        ----------
        payload, schema_version
            The rows, or an upload, and the version of the columns that they have.
        keep_s
            Seconds for which they are kept.
        coordinates
            Whether this process is to commit them: then there is no node.
        beside
            Is entered now, and left when they are not held any more.
        moves
            Whether they come from another shard: then they are staged under a name that says so.

        Raises
        ------
        ReadOnly
            The replica takes no inserts now.
        BadInput, ReplitreeError, OSError
            The rows can't be taken.  Nothing is prepared.
        """
        context, epoch = self._context, self._availability.epoch()
        if not self._is_shard:
            raise BadInput(
                f"table {context.replica.table.name} is no shard of a sharded table: insert into it as it is"
            )
        if isinstance(payload, StagedUpload):
            check_insert(context.replica, [manifest.partition for manifest in payload.manifests])
        if len(self._held) >= PREPARED_MAX:
            raise Unavailable(
                f"table {context.replica.table.name}: {PREPARED_MAX} prepared inserts wait; commit or give up some first"
            )
        place = context.progress.place
        log_from = place.pointer.index if place is not None else fx.LogIndex(0)
        number, incarnation = next(self._numbers), context.identity.incarnation
        group = moved_group(incarnation, number) if moves else f"{incarnation}-j{number}"
        accepted = Accepted(context.identity.encode(), epoch, log_from, fx.StagingId(f"{group}.0"))
        holds, staging = ExitStack(), ExitStack()
        kept, upload = list[_Held](), payload.folder.name if isinstance(payload, StagedUpload | StagedRewrite) else ""

        def remember(effect: MemoryEffect) -> Accepted | None:
            match effect:
                case AcceptRows(request):
                    # The folder is held under the name of the group, which stays; the rows only until they are staged.
                    holds.enter_context(self._store_performer.holding(fx.StagingId(group), {}))
                    staging.enter_context(self._store_performer.holding(accepted.staging, {request: payload}))
                    return accepted
                case Hold(prepared):
                    kept.append(_Held(prepared, self._clock() + keep_s, holds, upload))
                case LetGoRows():
                    pass
                case _:
                    raise AssertionError(effect)
            return None

        asked = (context.replica, self.next_request(), schema_version, not coordinates)
        try:
            if beside is not None:
                holds.enter_context(beside)
            with staging:
                ended = Driver(context.performer, remember).run(Then(participant.prepare_rows, asked))
        except BaseException:
            # No coordinator hears of it, so what is staged is garbage, and what an upload has staged is put back.
            with suppress(StoreError, OSError):
                self._store_performer.discard(fx.StagingId(group))
            self._close(fx.StagingId(group), holds)
            raise
        assert isinstance(ended, End)
        if isinstance(ended.outcome, fx.NotInserted):
            self._close(fx.StagingId(group), holds)
            if ended.outcome.why is fx.Why.REQUEST:
                raise BadInput(ended.outcome.reason)
            raise ReadOnly(f"nothing was prepared: {ended.outcome.reason}")
        (held,) = kept
        with self._lock:
            self._held[accepted.staging] = held
        return held.participant

    def _close(self, group: fx.StagingId, holds: ExitStack) -> None:
        self._store_performer.forget(group)
        holds.close()

    def of_upload(self, upload: str, keep_s: float) -> Participant | None:
        """Return what was made of an upload, kept for so many seconds from now; None: that is not held, or being ended."""
        with self._lock:
            found = [held for held in self._held.values() if held.upload == upload and held.use is _Use.WAITS]
            for held in found:
                held.until = self._clock() + keep_s
            return found[0].participant if found else None

    # --- what clients ask -----------------------------------------------------------------------------------------------

    def renew(self, staging: str, keep_s: float) -> None:
        """Keep what was prepared for so many seconds from now.

        Raises
        ------
        BadInput
            It is not held any more.
        """
        with self._lock:
            held = self._held.get(fx.StagingId(staging))
            if held is None or held.use is _Use.ENDING:
                raise BadInput("this replica does not hold what was prepared any more: prepare the rows again")
            held.until = self._clock() + keep_s

    def give_up(self, staging: str) -> Abandonment:
        """Give up what was prepared; `LEFT` if this process does not hold it (any more).

        Raises
        ------
        BadInput
            It is being committed.
        """
        with self._lock:
            held = self._held.get(fx.StagingId(staging))
            if held is None:
                return Abandonment.LEFT
            if held.use is not _Use.WAITS:
                raise BadInput("what was prepared is being committed, or given up; ask for the insert by its token")
            held.use = _Use.ENDING
        return self._end(held)

    def sum_of(self, staging: str) -> RowsSum:
        """Read the files of what was prepared, and return the sum of their rows.

        Raises
        ------
        Unavailable
            It is not held any more, or a file is damaged.
        """
        from replitree.storage.parts.verified import CheckedPart
        from replitree.storage.rewrite.read import read_batches
        from replitree.storage.rewrite.rows_sum import RowsSummer

        held = self._held.get(fx.StagingId(staging))
        if held is None:
            raise Unavailable("this replica does not hold what was prepared any more: prepare the rows again")
        definition = self._context.definitions.at(held.participant.schema_version)
        parts = [CheckedPart(*each) for each in self._store_performer.staged(fx.StagingId(staging))]
        summer = RowsSummer()
        try:
            for batch in read_batches(parts, definition) if parts else ():
                summer.update(batch)
        except (CorruptPart, StoreError, OSError) as error:
            raise Unavailable(f"what was prepared can't be read again: {error}; prepare the rows again") from error
        return RowsSum(summer.rows, summer.hexdigest())

    # --- what this process does -------------------------------------------------------------------------------------------

    def take(self, staging: fx.StagingId) -> Participant | None:
        """Take what this process is to commit; None: it does not hold it.

        Raises
        ------
        Unavailable
            It is being committed, or given up.
        """
        with self._lock:
            held = self._held.get(staging)
            if held is None or held.participant.is_apart:
                return None
            if held.use is not _Use.WAITS:
                raise Unavailable(
                    "the rows of this shard are being committed, or given up; try again with the same token"
                )
            held.use = _Use.COMMITTING
            return held.participant

    def keep(self, staging: fx.StagingId) -> None:
        """Keep what was taken for another try."""
        with self._lock:
            held = self._held.get(staging)
            if held is not None:
                held.use = _Use.WAITS

    def release(self, staging: fx.StagingId) -> None:
        """Let the next activation sweep the files of what was taken; it stays taken until it is let go."""
        with self._lock:
            held = self._held.get(staging)
        if held is not None:
            self._close(fx.StagingId(staging.rpartition(".")[0]), held.holds)

    def let_go(self, staging: fx.StagingId) -> None:
        """Do not hold it any more."""
        with self._lock:
            held = self._held.pop(staging, None)
        if held is not None:
            self._close(fx.StagingId(staging.rpartition(".")[0]), held.holds)

    def drop(self, staging: fx.StagingId) -> None:
        """Give up what was staged for a commit of this process, which has ended without it; nothing if it is not held."""
        self.keep(staging)
        with suppress(BadInput):
            self.give_up(staging)

    def committed(self, staging: fx.StagingId) -> None:
        """Take note that an entry in the log names what is staged under an id."""
        with self._lock:
            held = self._held.get(staging)
            # The thread that uses it lets it go.
            if held is None or held.use is not _Use.WAITS:
                return
        self.let_go(staging)

    def look(self) -> None:
        """Give up what is over, and forget, once under each epoch, the nodes of what is not held."""
        epoch = self._availability.active_epoch()
        if epoch is None or not self._is_shard:
            return
        if epoch != self._forgot_under:
            self._forget(epoch)
            self._forgot_under = epoch
        now, over = self._clock(), list[_Held]()
        with self._lock:
            for held in self._held.values():
                if held.until <= now and held.use is _Use.WAITS:
                    held.use = _Use.ENDING
                    over.append(held)
        for held in over:
            became = self._end(held)
            staging = held.participant.staging
            self._context.log.info("prepared rows given up: their time is over", staging=staging, became=became.value)

    def _end(self, held: _Held) -> Abandonment:
        """Give up what was taken to be given up."""
        context = self._context

        def remember(effect: MemoryEffect) -> GiveUpTurn | None:
            match effect:
                case AwaitGivingUp():
                    return GiveUpTurn(held.participant, context.identity.encode())
                case LetGoRows(staging):
                    self.let_go(staging)
                case _:
                    raise AssertionError(effect)
            return None

        try:
            ended = Driver(context.performer, remember).run(Then(participant.give_up_prepared, ()))
        except (ReplitreeError, OSError) as error:
            # The deletion may be on its way, and a second one could not tell its own from a coordinator's.
            context.log.warning("prepared rows are left to the next activation", problem=str(error))
            self.let_go(held.participant.staging)
            return Abandonment.LEFT
        assert isinstance(ended, End)
        assert isinstance(ended.outcome, Abandonment)
        return ended.outcome

    def _forget(self, epoch: fx.Epoch) -> None:
        def remember(effect: MemoryEffect) -> ForgetTurn:
            assert isinstance(effect, AwaitForgetting)
            return ForgetTurn(self._context.identity.encode(), epoch)

        ended = Driver(self._context.performer, remember).run(Then(participant.forget_stale, (self._context.replica,)))
        assert isinstance(ended, End)
        if ended.outcome:
            self._context.log.info("nodes of earlier prepared rows are gone", nodes=ended.outcome)


__all__ = ["KEEP_S", "KEEP_S_MAX", "PREPARED_MAX", "PreparedRows"]
