"""The fast path of small inserts and snapshots: connections that carry nothing else are served without the general HTTP server.

A small insert costs a replica less than a millisecond, and routing, headers, streams and tasks of a general server are a large
part of that.  And a replica that starts answers readers before the general server is loaded.  So every connection begins in
`replitree.replica.http.connections`.  As long as its requests are plain inserts (known length, at most 1 MiB, HTTP/1.1, nothing
unusual in the head) or snapshots they are served here, one after the other.

Guarantees: checks, errors and answers are those of ``POST /v1/tables/<table>/insert`` and ``GET …/snapshot`` of the general
server; an insert that has to wait or may have to (back-pressure, a schema that seems to have changed), or that has many rows,
takes the same way through `InsertRequests.insert`.

Everything here runs on the loop.  Absent on purpose: chunked bodies, HTTP/1.0, trailers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from http import HTTPStatus
from urllib.parse import parse_qsl

from replitree.errors import BadInput, OutcomeUnknown, SchemaMismatch
from replitree.replica.http.bodies import is_quick
from replitree.replica.http.connections import Connections, General, ServedConnection, stop_listening
from replitree.replica.http.gate import Gate, JsonAnswer, encode_json
from replitree.replica.http.heads import INSERT, Head
from replitree.replica.http.insert_requests import InsertRequests, token_of
from replitree.replica.http.listening import why_not_listening
from replitree.replica.http.snapshot_requests import snapshot
from replitree.replica.insert.group_commit import PendingInsert
from replitree.replica.insert.inserts import result_of
from replitree.replica.insert.quorums import wish_of
from replitree.replica.kit.config import ServerConfig
from replitree.replica.table.table_replica import TableReplica
from replitree.storage.parts.ipc_extent import Extent
from replitree.tls import Contexts
from replitree.wire import tracing
from replitree.wire.sent_batch import SentBatch
from replitree.wire.tracing import TracedSpan


class FastPath:
    """The fast path of one server.  Made on the loop.

    Parameters
    ----------
    config
        Has the limits of connections.
    gate
        Stands before every request.
    inserts
        Takes them.
    general
        Serves everything else.
    tls
        With which every connection begins; None: all are in clear text.
    """

    def __init__(
        self,
        config: ServerConfig,
        gate: Gate,
        inserts: InsertRequests,
        general: General,
        tls: Contexts | None = None,
    ) -> None:
        self._gate = gate
        self._inserts = inserts
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._all = Connections(config, gate, inserts.bodies.held, general, self.serve, tls)

    @property
    def connections(self) -> set[ServedConnection]:
        """The connections that the general server does not have."""
        return self._all.open

    async def listen(self, host: str, port: int) -> int:
        """Listen for connections and return the port.

        Raises
        ------
        BadInput
            The address can't be listened on: it is used by another process, or not this machine's, or not allowed.
        """
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(lambda: ServedConnection(self._all, loop), host, port)
        except OSError as error:
            raise BadInput(why_not_listening(host, port, error)) from error
        self._all.begin(loop)
        found: int = self._listener.sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        """Stop listening, and close every connection that is still open."""
        if self._listener is not None:
            await stop_listening(self._listener)
        self._all.close()
        for task in self._tasks:
            task.cancel()

    def serve(self, head: Head, body: bytes, connection: ServedConnection) -> None:
        """Take a request; the connection gets the answer later, or at once when there is an error."""
        span = tracing.begin("request", kind="server", traceparent=head.traceparent).attach()
        span.note(table=head.table, action=head.action)
        try:
            self._serve(head, body, connection, span)
        finally:
            span.detach()

    def _serve(self, head: Head, body: bytes, connection: ServedConnection, span: TracedSpan) -> None:
        try:
            later = self._begin(head, body, connection, span)
        except Exception as error:  # noqa: BLE001 - the gate knows what to say
            connection.answer(self._gate.answer_to(error, head.action))
            span.failed(error)
            span.end()
            later = None
        if later is None:
            self._inserts.bodies.held.give(head.length)
            return
        body_later = later

        async def answer_later() -> None:
            try:
                answer = JsonAnswer(HTTPStatus.OK, await body_later)
            except Exception as error:  # noqa: BLE001 - the gate knows what to say
                answer = self._gate.answer_to(error, head.action)
                span.failed(error)
            span.end()
            self._inserts.bodies.held.give(head.length)
            connection.answer(answer)

        task = asyncio.get_running_loop().create_task(answer_later())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _begin(
        self, head: Head, body: bytes, connection: ServedConnection, span: TracedSpan
    ) -> Awaitable[bytes] | None:
        """Begin a request; return its answer if it has to be waited for here, None if `_PendingInsert` will give it."""
        # A parameter that is there twice counts with its first value.
        query: dict[str, str] = {}
        for name, value in parse_qsl(head.query, keep_blank_values=True) if head.query else ():
            query.setdefault(name, value)
        table = self._gate.find(head.table)
        if head.action != INSERT:
            return snapshot(table, query)
        token, overwrite, wish = token_of(query), query.get("overwrite", ""), wish_of(query)
        extent = self._inserts.bodies.measure(body)
        try:
            is_at_once = wish is None and not table.inserts.delay_s()
            if is_at_once and not isinstance(token, SentBatch) and is_quick(extent, len(table.definition.columns)):
                _PendingInsert(self._gate, self._inserts, connection, table, token, span).begin(body, extent, overwrite)
                return None
        except SchemaMismatch:
            # The table's columns may have changed, which only coordination knows: that takes a thread.
            pass

        async def slowly() -> bytes:
            return encode_json(await self._inserts.insert(table, body, token, overwrite, wish))

        return slowly()


class _PendingInsert:
    """An insert that waits for its group."""

    def __init__(
        self,
        gate: Gate,
        inserts: InsertRequests,
        connection: ServedConnection,
        table: TableReplica,
        token: str | None,
        span: TracedSpan,
    ) -> None:
        self._gate = gate
        self._inserts = inserts
        self._connection = connection
        self._table = table
        self._token = token
        self._span = span
        self._loop = connection.loop
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._known_as = token or ""
        self._answered = False

    def begin(self, body: bytes, extent: Extent, overwrite: str) -> None:
        """Queue the rows for the next group.  Raises as `Inserts.rows`."""
        pending = self._inserts.take(self._table, body, extent, self._token, overwrite, self.deliver)
        self._known_as = self._token or pending.block
        self._timer = self._loop.call_later(self._inserts.timeout_s, self._late, self._inserts.timeout_s)

    def deliver(self, pending: PendingInsert) -> None:
        """Take the answer, from any thread."""
        self._inserts.mailbox.put(self._loop, self, pending)

    def arrived(self, pending: PendingInsert) -> None:
        """Send the answer, on the loop."""
        if self._answered or pending.answer is None:
            return
        self._end(type(pending.answer).__name__.lower())
        self._table.meter.answered(pending.answer, pending.rows, self._loop.time() - self._began)
        try:
            known_as, differs = self._known_as, pending.differs
            told = result_of(pending.answer, pending.rows, known_as, waited=pending.waits, differs=differs)
            body = encode_json(told)
        except Exception as error:  # noqa: BLE001 - the gate knows what to say
            self._connection.answer(self._gate.answer_to(error, INSERT))
            return
        self._connection.answer(JsonAnswer(HTTPStatus.OK, body))

    def _late(self, timeout_s: float) -> None:
        if not self._answered:
            self._end("unknown")
            late = OutcomeUnknown(
                f"no answer within {timeout_s:g} s; repeat the insert with the same token", self._known_as
            )
            self._connection.answer(self._gate.answer_to(late, INSERT))

    def _end(self, outcome: str) -> None:
        self._answered = True
        self._span.end(token=self._known_as, outcome=outcome)
        if self._timer is not None:
            self._timer.cancel()
