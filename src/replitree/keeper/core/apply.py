"""The state machine: what each frame of a committed batch does.

`applied` is total.  Any frame, however broken, has an outcome: a client's error changes nothing, and neither does an error of
this code, which is undone, answered with `SYSTEM_ERROR`, and reported in the outcome.  Only an entry that is no batch, or one
of semantics that this version does not know, stops the machine: going on would make another state than the leader had.

Every frame but `Begin` uses up a zxid, also when it is refused, as in ZooKeeper; one that can't be decoded does
not, unless it is a multi.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from replitree.errors import UnsupportedFormat
from replitree.keeper.core import tree
from replitree.keeper.core.acls import Identities, Identity
from replitree.keeper.core.batch import BadBatch, Batch, Begin, Expire, Internal, Open, Reap, decode_internal
from replitree.keeper.core.requests import read_request
from replitree.keeper.core.state import GENERATION_MAX, RULES, SESSIONS_MAX, ZXIDS_MAX, State
from replitree.keeper.core.wire import BadFrame, Code, Op, Reader, Refused, reply_bytes, request_header, stat_of
from replitree.keeper.core.writes import Request, perform

_HEADER_BYTES = 8


class Outcome(NamedTuple):
    """What one frame has done.

    Attributes
    ----------
    zxid
        Its transaction.
    reply
        The frame for the connection that it came on; empty for a frame of the keeper itself.
    changes
        What it changed, in its order, for watches.
    opened
        The session that it opened or prolonged; 0 for none.
    ended
        The session that it ended; 0 for none.
    fault
        An error of this code, with its type; empty for none.
    """

    zxid: int
    reply: bytes = b""
    changes: tuple[tree.Change, ...] = ()
    opened: int = 0
    ended: int = 0
    fault: str = ""


def applied(state: State, batch: Batch) -> Iterator[Outcome]:
    """Apply a batch, one frame for each outcome that is asked for; the state between two frames is whole.

    Parameters
    ----------
    state
        Is changed.
    batch
        The next one of the log.

    Raises
    ------
    UnsupportedFormat
        The rules of the batch are newer; nothing was changed.
    BadBatch
        Its generation is not one that may follow; nothing was changed.
    """
    if batch.rules != RULES:
        raise UnsupportedFormat(
            f"a batch of the keeper has rules {batch.rules}, this version knows {RULES}: upgrade it"
        )
    if not max(state.generation, 1) <= batch.generation <= GENERATION_MAX:
        raise BadBatch(f"a batch of generation {batch.generation} after one of generation {state.generation}")
    if batch.generation > state.generation:
        state.generation, state.requests, state.opened = batch.generation, 0, 0
    state.now_ms = max(state.now_ms, batch.now_ms)
    identities = [tuple(Identity(*each) for each in mine) for mine in batch.identities]
    for session, index, frame in zip(batch.sessions, batch.identity_indexes, batch.frames, strict=True):
        yield apply_frame(state, session, identities[index], frame)


def apply_frame(state: State, session: int, identities: Identities, frame: bytes) -> Outcome:
    """Apply one frame; it changes all that it should, or nothing, and it never raises but for want of memory."""
    internal = None if session else decode_internal(frame)
    if isinstance(internal, Begin):
        state.secret = state.secret or internal.secret
        return Outcome(state.zxid)
    xid, op = _header(frame)
    if state.requests >= ZXIDS_MAX:
        return Outcome(state.zxid, reply_bytes(xid, state.zxid, Code.SYSTEM_ERROR) if session else b"")
    try:
        outcome = _clients(state, session, identities, (xid, op, frame)) if session else _own(state, internal)
        state.settle()
    except Refused as error:
        state.undo()
        return Outcome(state.zxid, reply_bytes(xid, state.zxid, error.code))
    except MemoryError:
        # Other leaders may have enough of it: the outcome must not depend on that.
        raise
    except Exception as error:  # noqa: BLE001 - total: a fault of ours must neither stop the log nor leave half a change
        state.undo()
        fault = f"{type(error).__name__}: {error}"
        return Outcome(state.zxid, reply_bytes(xid, state.zxid, Code.SYSTEM_ERROR) if session else b"", fault=fault)
    return outcome


def _header(frame: bytes) -> tuple[int, int]:
    try:
        return request_header(frame)
    except BadFrame:
        # A front sends no such frame; a log may hold anything.
        return 0, 0


def _clients(state: State, session: int, identities: Identities, parsed: tuple[int, int, bytes]) -> Outcome:
    xid, op, frame = parsed
    body = Reader(frame, _HEADER_BYTES)
    if op == Op.CLOSE_SESSION:
        state.requests += 1
        if session not in state.sessions:
            raise Refused(Code.SESSION_EXPIRED)
        return Outcome(state.zxid, reply_bytes(xid, state.zxid), tuple(_ended(state, session)), ended=session)
    asked = read_request(op, body)
    # After the decoding: what can't be decoded uses up no zxid.
    state.requests += 1
    done = perform(state, Request(session, identities, tree.Moment(state.zxid, state.now_ms)), asked)
    return Outcome(state.zxid, reply_bytes(xid, state.zxid, 0, done.record), tuple(done.changes))


def _own(state: State, frame: Internal | None) -> Outcome:
    state.requests += 1
    match frame:
        case Open(timeout_ms, 0):
            return _opened(state, timeout_ms)
        case Open(timeout_ms, session) if session in state.sessions:
            state.put(state.sessions, session, max(timeout_ms, state.sessions[session]))
            return Outcome(state.zxid, opened=session)
        case Expire(session) if session in state.sessions:
            return Outcome(state.zxid, changes=tuple(_ended(state, session)), ended=session)
        case Reap(path, czxid) if is_due(state, path, state.now_ms) and stat_of(state.nodes[path]).czxid == czxid:
            return Outcome(state.zxid, changes=(tree.delete(state, path, state.zxid),))
    # What an entry asks for may be outdated when it is applied; and a frame may be one of another version.
    return Outcome(state.zxid)


def _opened(state: State, timeout_ms: int) -> Outcome:
    if state.opened >= SESSIONS_MAX:
        return Outcome(state.zxid)
    state.opened += 1
    session = state.generation << 24 | state.opened
    state.put(state.sessions, session, timeout_ms)
    return Outcome(state.zxid, opened=session)


def _ended(state: State, session: int) -> list[tree.Change]:
    """End a session together with its ephemeral nodes: one transaction."""
    state.put(state.sessions, session, None)
    return [tree.delete(state, path, state.zxid) for path in tree.ephemerals_of(state, session)]


# --- containers and times to live --------------------------------------------------------------------------------------------


def is_due(state: State, path: bytes, now_ms: int) -> bool:
    """Whether a container has lost its last child, or a node has outlived its time.

    Parameters
    ----------
    state
        Is not changed.
    path
        The node; it need not exist.
    now_ms
        The time, in milliseconds since 1970.
    """
    lifetime_ms = state.lifetimes.get(path)
    if lifetime_ms is None or path in state.children:
        return False
    if lifetime_ms == tree.CONTAINER:
        # One that never had a child may be about to get its first.
        return bool(state.counters.get(path, 0))
    is_over: bool = stat_of(state.nodes[path]).mtime_ms + lifetime_ms < now_ms
    return is_over


def due_nodes(state: State, now_ms: int, limit: int) -> list[Reap]:
    """Return frames for at most `limit` nodes that are due at a time; each is looked at again when it is applied."""
    due = (path for path in state.lifetimes if is_due(state, path, now_ms))
    return [Reap(path, stat_of(state.nodes[path]).czxid) for path in islice(due, limit)]
