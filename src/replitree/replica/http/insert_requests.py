"""Requests for an insert: rows as an Arrow IPC stream are queued for a group, and their answer is waited for, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from replitree.errors import BadInput, OutcomeUnknown, SchemaMismatch
from replitree.replica.http.bodies import Bodies, decode, is_quick
from replitree.replica.insert.group_commit import PendingInsert
from replitree.replica.insert.inserts import Deliver, Token, known_by, result_of
from replitree.replica.insert.mailbox import Mailbox, Waiter
from replitree.replica.insert.quorums import Wish
from replitree.replica.kit.config import ServerConfig
from replitree.replica.kit.payloads import Overwrite
from replitree.replica.table.table_replica import TableReplica
from replitree.storage.parts.ipc_extent import Extent
from replitree.wire.sent_batch import sent_batch_of


class InsertRequests:
    """The inserts of one server; made on its loop.

    Parameters
    ----------
    config
        Has the limits of a body, and the seconds after which an insert's outcome is unknown.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.timeout_s = config.insert_timeout_s
        self.mailbox = Mailbox()
        self.bodies = Bodies(config)

    async def insert(
        self, table: TableReplica, body: bytes, token: Token, overwrite: str, wish: Wish | None = None
    ) -> dict[str, object]:
        """Insert the rows of an Arrow IPC stream, wait for the answer, and return it.

        Raises
        ------
        ReplitreeError
            The rows can't be taken, or what became of them is not known.
        """
        extent = self.bodies.measure(body)
        await self.back_pressure(table)
        waiter = self.mailbox.expect()
        checked = None if wish is None else table.quorums.checked(wish)

        def take() -> PendingInsert:
            return self.take(table, body, extent, token, overwrite, waiter.deliver, checked or wish)

        known = table.definition
        try:
            if is_quick(extent, len(known.columns)) and (wish is None or checked is not None):
                pending = take()
            else:
                pending = await self.bodies.in_thread(take)
        except SchemaMismatch:
            # Another replica may have changed the columns a moment ago.
            if await asyncio.to_thread(table.definitions.refresh) is known:
                raise
            pending = await self.bodies.in_thread(take)
        return await self._answer(table, pending, waiter, token)

    def take(
        self,
        table: TableReplica,
        body: bytes,
        extent: Extent,
        token: Token,
        overwrite: str,
        deliver: Deliver,
        wish: Wish | None = None,
    ) -> PendingInsert:
        """Queue the rows of an Arrow IPC stream, which was measured, for the next group.  Raises as `Inserts.rows`."""
        rows, replaced = decode(body, extent), overwrite_of(overwrite)
        return table.inserts.rows(rows, token, deliver, replaced, wish, bytes_max=self.bodies.decoded_bytes_max)

    async def submit(
        self, table: TableReplica, take: Callable[[Deliver], PendingInsert], token: Token
    ) -> dict[str, object]:
        """Queue an insert, and wait for its answer."""
        waiter = self.mailbox.expect()
        # A thread queues it, because it may have to read the table's definition.
        pending = await asyncio.to_thread(take, waiter.deliver)
        return await self._answer(table, pending, waiter, token)

    async def back_pressure(self, table: TableReplica) -> None:
        """Wait as long as a partition with many parts demands.  Raises as `Inserts.delay_s`."""
        delay_s = table.inserts.delay_s()
        if delay_s:
            await asyncio.sleep(delay_s)
            table.inserts.delay_s()

    async def _answer(
        self, table: TableReplica, pending: PendingInsert, waiter: Waiter, token: Token
    ) -> dict[str, object]:
        """Wait for an insert's answer as long as the configuration allows."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        known_as = known_by(token, pending.block)
        async with self.in_time(known_as, pending.patience_s):
            answer = await waiter.answer
        table.meter.answered(answer, pending.rows, loop.time() - began)
        return result_of(answer, pending.rows, known_as, waited=pending.waits, differs=pending.differs)

    @asynccontextmanager
    async def in_time(self, known_as: str, patience_s: float = 0.0) -> AsyncIterator[None]:
        """Say "outcome unknown" when it takes longer than the configuration allows, besides the patience with a quorum."""
        timeout_s = self.timeout_s + patience_s
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError:
            raise OutcomeUnknown(
                f"no answer within {timeout_s:g} s; repeat the insert with the same token", known_as
            ) from None


def token_of(query: Mapping[str, str]) -> Token:
    """Return by what the query of a request names its insert.  Raises as `sent_batch_of`."""
    return sent_batch_of(query) or query.get("token")


def overwrite_of(text: str) -> Overwrite:
    """Return what a query says of overwriting.

    Raises
    ------
    BadInput
        Nothing that there is.
    """
    try:
        return Overwrite(text)
    except ValueError:
        raise BadInput(f"overwrite={text!r}: say all or partitions, or leave it out") from None
