"""The connections of a leader: bytes in, batches out; committed batches in, bytes out.

The caller reads and writes sockets, stores batches, and watches the clock and the lease.  It calls `received` and `tick` only
while it may answer reads by itself, and `close_all` when it may no longer.

```
received ─┬─ read, no unanswered request before it ─▶ answered at once
          └─ write ─▶ take_batch ─▶ (log) ─▶ committed, in the order of the log ─▶ replies and events ─▶ take_output
```

What a client may rely on:

* One reply for each request, in the order of the requests of its connection, on that connection.  A reply that can't be given
  is never made up: the connection is closed.
* A read behind an unanswered write of its own connection waits, and sees exactly the state after that write.
* An event comes before every reply of its transaction or of a later one; events come in the order of transactions.
* Authentication counts for the requests that come after it, whatever they wait for.
* A session that is resumed closes its older connection.  What that one sent and is in no batch yet is dropped; what is in a
  batch takes effect, and its client does not hear of it.
* "Expired" is said only when the end of the session is committed.

Absent: four-letter words, TLS, limits of connections; those belong to the server.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from replitree.keeper.core import acls
from replitree.keeper.core.acls import Identities, Identity, authenticated, permits
from replitree.keeper.core.apply import Outcome, applied, due_nodes
from replitree.keeper.core.batch import Batch, Expire, Internal, Open, encode_internal
from replitree.keeper.core.reads import READS, Asker, answer
from replitree.keeper.core.requests import WRITES
from replitree.keeper.core.sessions import NO_PASSWORD, Limits, Silence, is_password, password_of
from replitree.keeper.core.state import RULES, State
from replitree.keeper.core.watches import Connection, Event, Watches
from replitree.keeper.core.wire import (
    NO_ZXID,
    XID_PING,
    BadFrame,
    Code,
    ConnectRequest,
    Op,
    Reader,
    Refused,
    connect_request,
    connect_response,
    event_bytes,
    reply_bytes,
    request_header,
    take_frame,
)

_HEADER_BYTES: Final = 8

REAPED_MAX: Final = 10_000
"""Containers and nodes with a time to live that one call of `reap` proposes to delete."""


class Phase(Enum):
    """Where a connection is."""

    NEW = "waits for its first frame"
    WAITING = "resumes a session whose end is on its way"
    OPENING = "its session is on its way"
    OPEN = "sends requests"
    ENDING = "its last request has come"
    CLOSED = "is closed when its output is written"


@dataclass(slots=True)
class _Slot:
    """A request that was not replied to yet."""

    xid: int
    op: int
    frame: bytes
    identities: Identities
    reply: bytes | None = None
    barrier: int = 0  # of a sync: how many frames of the log must be applied before it
    is_last: bool = False


@dataclass(slots=True)
class _Link:
    """One connection."""

    number: Connection
    identities: Identities
    phase: Phase = Phase.NEW
    session: int = 0
    timeout_ms: int = 0
    handshake: ConnectRequest | None = None
    received: bytearray = field(default_factory=bytearray)
    slots: deque[_Slot] = field(default_factory=deque)
    output: list[bytes] = field(default_factory=list)


class _Pending(NamedTuple):
    """A frame for the log, and the connection and the request that wait for its outcome."""

    session: int
    identities: Identities
    frame: bytes
    link: _Link | None
    slot: _Slot | None


class Output(NamedTuple):
    """Bytes for a connection, and whether it is to be closed when they are written."""

    connection: Connection
    data: bytes
    is_closed: bool


class Front:
    """All connections of one leader.

    Parameters
    ----------
    state
        The state when the leader begins to serve; the secret is chosen.  It is changed by `committed` only.
    generation
        The leader's.
    limits
        Of session timeouts.
    now_ns
        The time, in nanoseconds of a clock that is never set.
    super_digest
        The digest of the user `super`, which may do everything; None for no such user.
    """

    def __init__(
        self, state: State, generation: int, limits: Limits, now_ns: int, super_digest: bytes | None = None
    ) -> None:
        assert state.secret
        self.state = state
        self.watches = Watches()
        self.faults: list[str] = []
        self._generation = generation
        self._limits = limits
        self._super_digest = super_digest
        self._now_ns = now_ns
        self._silence = Silence(limits, state.sessions, now_ns)
        self._links: dict[Connection, _Link] = {}
        self._connections = 0
        self._attached: dict[int, _Link] = {}
        self._ending: set[int] = set()
        self._resuming: dict[Connection, _Link] = {}
        self._syncing: dict[Connection, _Link] = {}
        self._pending: list[_Pending] = []
        self._sent: deque[list[_Pending]] = deque()
        self._sent_frames = 0
        self._applied_frames = 0

    # --- sockets -------------------------------------------------------------------------------------------------------------

    def connected(self, address: str) -> Connection:
        """Note a new connection.

        Parameters
        ----------
        address
            The client's IP address, which is its first identity.
        """
        self._connections += 1
        self._links[self._connections] = _Link(self._connections, (Identity(b"ip", address.encode()),))
        return self._connections

    def received(self, connection: Connection, data: bytes, now_ns: int) -> None:
        """Take bytes of a connection; those of one that was closed are dropped."""
        self._now_ns = now_ns
        link = self._links.get(connection)
        if link is None or link.phase in (Phase.ENDING, Phase.CLOSED):
            return
        if link.phase is Phase.OPEN:
            self._silence.hear(link.session, link.timeout_ms, now_ns)
        link.received += data
        self._read(link)

    def disconnected(self, connection: Connection) -> None:
        """Note that a client closed its connection; what it has sent still takes effect."""
        if link := self._links.pop(connection, None):
            self._close(link)

    def close_all(self) -> None:
        """Close all connections: this leader may answer no longer."""
        self._pending.clear()
        for link in self._links.values():
            self._close(link)

    def take_output(self) -> list[Output]:
        """Return what is to be written; connections that are closed are forgotten."""
        found = [
            Output(link.number, b"".join(link.output), link.phase is Phase.CLOSED)
            for link in self._links.values()
            if link.output or link.phase is Phase.CLOSED
        ]
        for each in found:
            self._links[each.connection].output.clear()
            if each.is_closed:
                del self._links[each.connection]
        return found

    def unanswered(self, connection: Connection) -> tuple[int, int]:
        """Return how many requests of a connection wait, and their bytes; the server stops reading at its limits."""
        link = self._links.get(connection)
        slots = link.slots if link else ()
        return len(slots), sum(len(slot.frame) for slot in slots)

    # --- the log -------------------------------------------------------------------------------------------------------------

    def take_batch(self, now_ms: int) -> Batch | None:
        """Return what has come since the last call as one log entry; None if nothing has.

        Parameters
        ----------
        now_ms
            The wall clock, in milliseconds since 1970.
        """
        if not self._pending:
            return None
        taken, self._pending = self._pending, []
        self._sent.append(taken)
        self._sent_frames += len(taken)
        known: dict[Identities, int] = {}
        indexes = [known.setdefault(each.identities, len(known)) for each in taken]
        return Batch(
            RULES,
            self._generation,
            max(now_ms, self.state.now_ms),
            [[(each.scheme, each.id) for each in identities] for identities in known],
            [each.session for each in taken],
            indexes,
            [each.frame for each in taken],
        )

    def committed(self, batch: Batch) -> None:
        """Apply a batch of `take_batch`, the oldest that is not applied yet, and answer its clients."""
        waiting = self._sent.popleft()
        for each, outcome in zip(waiting, applied(self.state, batch), strict=True):
            self._applied_frames += 1
            if outcome.fault:
                self.faults.append(outcome.fault)
            for change in outcome.changes:
                for event in self.watches.fire(change):
                    self._tell(event, outcome.zxid)
            self._settle(each, outcome)
            # Before the next frame: a read behind a sync must not see what its own connection wrote after it.
            for link in list(self._syncing.values()):
                self._answer_ready(link)

    def _settle(self, pending: _Pending, outcome: Outcome) -> None:
        """Tell the one that waits for a frame what came of it."""
        link, slot = pending.link, pending.slot
        if outcome.opened:
            # Also if its client is gone by now: then the session ends by its timeout.
            self._silence.hear(outcome.opened, self.state.sessions[outcome.opened], self._now_ns)
        if link is not None and slot is not None:
            slot.reply = outcome.reply
            self._answer_ready(link)
        elif link is not None and link.phase is Phase.OPENING:
            if outcome.opened:
                self._open(link, outcome.opened)
            else:
                self._refuse(link)
        if outcome.ended:
            self._silence.forget(outcome.ended)
            self._ending.discard(outcome.ended)
            resuming, self._resuming = self._resuming, {}
            for each in resuming.values():
                self._connect(each)

    # --- time ----------------------------------------------------------------------------------------------------------------

    def tick(self, now_ns: int) -> None:
        """Propose to end the sessions that were silent for their timeouts.

        The caller has read all its sockets since its own last pause: a leader that stood still heard no client.
        """
        self._now_ns = now_ns
        for session in self._silence.due(now_ns):
            if session in self.state.sessions and session not in self._ending:
                self._ending.add(session)
                self._propose(Expire(session))
                if link := self._attached.get(session):
                    self._close(link)

    def reap(self, now_ms: int) -> None:
        """Propose to delete containers and nodes with a time to live that are due."""
        for each in due_nodes(self.state, now_ms, REAPED_MAX):
            self._propose(each)

    def _propose(self, frame: Internal, link: _Link | None = None) -> None:
        self._pending.append(_Pending(0, (), encode_internal(frame), link, None))

    # --- handshakes ----------------------------------------------------------------------------------------------------------

    def _read(self, link: _Link) -> None:
        try:
            # What is pipelined behind a handshake stays where it is until the session is open.
            while link.phase in (Phase.NEW, Phase.OPEN) and (frame := take_frame(link.received)) is not None:
                if link.phase is Phase.NEW:
                    link.handshake = connect_request(frame)
                    self._connect(link)
                else:
                    self._request(link, frame)
        except BadFrame:
            self._close(link)

    def _connect(self, link: _Link) -> None:
        handshake = link.handshake
        assert handshake is not None
        link.timeout_ms = self._limits.negotiated(handshake.timeout_ms)
        if handshake.last_zxid > self.state.zxid:
            # The client has seen a state that this keeper never had: it belongs to another one, or entries were lost.
            self._close(link)
            return
        session = handshake.session
        if session == 0:
            link.phase = Phase.OPENING
            self._propose(Open(link.timeout_ms), link)
        elif session in self._ending:
            # Whether it has ended is not known yet, and neither answer may be taken back.
            link.phase = Phase.WAITING
            self._resuming[link.number] = link
        elif session in self.state.sessions and is_password(self.state.secret, session, handshake.password):
            self._resume(link, session)
        else:
            self._refuse(link)

    def _resume(self, link: _Link, session: int) -> None:
        if older := self._attached.get(session):
            self._drop_pending(older)
            self._close(older)
        self._attached[session] = link
        link.session = session
        self._silence.hear(session, link.timeout_ms, self._now_ns)
        if link.timeout_ms > self.state.sessions[session]:
            # A successor would give the session the shorter one: it must know of the longer one before the client does.
            link.phase = Phase.OPENING
            self._propose(Open(link.timeout_ms, session), link)
        else:
            self._open(link, session)

    def _drop_pending(self, link: _Link) -> None:
        self._pending = [each for each in self._pending if each.link is not link]
        for other in self._links.values():
            for slot in other.slots:
                slot.barrier = min(slot.barrier, self._sent_frames + len(self._pending))

    def _open(self, link: _Link, session: int) -> None:
        assert link.handshake is not None
        link.phase, link.session = Phase.OPEN, session
        self._attached[session] = link
        self._silence.hear(session, link.timeout_ms, self._now_ns)
        password = password_of(self.state.secret, session)
        response = connect_response(link.timeout_ms, session, password, with_read_only=link.handshake.has_read_only)
        link.output.append(response)
        self._read(link)

    def _refuse(self, link: _Link) -> None:
        assert link.handshake is not None
        link.output.append(connect_response(0, 0, NO_PASSWORD, with_read_only=link.handshake.has_read_only))
        self._close(link)

    def _close(self, link: _Link) -> None:
        link.phase = Phase.CLOSED
        link.slots.clear()
        self._resuming.pop(link.number, None)
        self._syncing.pop(link.number, None)
        self.watches.forget(link.number)
        if self._attached.get(link.session) is link:
            del self._attached[link.session]

    # --- requests ------------------------------------------------------------------------------------------------------------

    def _request(self, link: _Link, frame: bytes) -> None:
        xid, op = request_header(frame)
        slot = _Slot(xid, op, frame, link.identities)
        if op == Op.AUTH:
            self._authenticate(link, slot)
        elif op in WRITES:
            self._pending.append(_Pending(link.session, link.identities, frame, link, slot))
            if op == Op.CLOSE_SESSION:
                slot.is_last = True
                self._ending.add(link.session)
        elif op == Op.SYNC:
            slot.barrier = self._sent_frames + len(self._pending)
        elif op not in READS and op != Op.PING:
            slot.reply, slot.is_last = reply_bytes(xid, NO_ZXID, Code.UNIMPLEMENTED), True
        if slot.is_last:
            link.phase = Phase.ENDING
        link.slots.append(slot)
        self._answer_ready(link)

    def _authenticate(self, link: _Link, slot: _Slot) -> None:
        """Give a connection its identities at once; the reply waits for its place."""
        body = Reader(slot.frame, _HEADER_BYTES)
        code = Code.OK
        try:
            body.integer()  # a type that is always 0
            scheme, credentials = body.text(), body.buffer() or b""
            gained = authenticated(scheme, credentials, self._super_digest)
            link.identities = tuple(dict.fromkeys(link.identities + gained))
        except Refused as error:
            code, slot.is_last = error.code, True
        slot.reply = reply_bytes(slot.xid, 0, code)

    def _answer_ready(self, link: _Link) -> None:
        """Write all replies that are next."""
        while link.slots and link.phase is not Phase.CLOSED:
            slot = link.slots[0]
            if slot.reply is None:
                if slot.op in WRITES:
                    return
                if slot.barrier > self._applied_frames:
                    self._syncing[link.number] = link
                    return
                self._syncing.pop(link.number, None)
                slot.reply = self._answer(link, slot)
            link.slots.popleft()
            link.output.append(slot.reply)
            if slot.is_last:
                self._close(link)

    def _answer(self, link: _Link, slot: _Slot) -> bytes:
        zxid = self.state.zxid
        if slot.op == Op.PING:
            return reply_bytes(XID_PING, zxid)
        asker = Asker(link.number, link.session, slot.identities)
        try:
            found = answer(self.state, self.watches, asker, slot.op, Reader(slot.frame, _HEADER_BYTES))
        except Refused as error:
            return reply_bytes(slot.xid, zxid, error.code)
        except Exception as error:  # noqa: BLE001 - a fault of ours costs one client one answer, and is counted
            self.faults.append(f"{type(error).__name__}: {error}")
            return reply_bytes(slot.xid, zxid, Code.SYSTEM_ERROR)
        for event in found.events:
            self._tell(event, NO_ZXID)
        return reply_bytes(slot.xid, zxid, 0, found.record)

    def _tell(self, event: Event, zxid: int) -> None:
        link = self._links.get(event.connection)
        if link is not None and permits(event.acl, acls.READ, link.identities):
            link.output.append(event_bytes(event.kind, event.path, zxid))
