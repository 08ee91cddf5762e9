"""Coordination by a ZooKeeper ensemble, through kazoo.

Guarantees: those of `port`, and:

* **Time.**  `perform` returns within `operation_timeout_s` (for each `PIPELINE_MAX` reads of a `GetMany`), the constructor and
  `reconnect` within `connect_timeout_s`, `close` within `CLOSE_S_MAX`, whatever servers and network do.
* **Lost connections.**  A read whose connection is lost is asked again on the next one, a commit never is.
* **Doubt.**  A commit is `Unknown` whenever its answer did not come: connection lost, session expired, time up, client
  closed.  `Refused` needs the server's own word.
* **Sessions.**  An answer that comes after the end of the session is not believed.
* **Secrets.**  With credentials, the nodes that are created can be read and written by them alone.  The password is neither in
  ``repr`` nor in any log.

Absent on purpose: retries of requests, caches, and SASL.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, assert_never, overload

from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError

from replitree.coordination.gathering import Gathering
from replitree.coordination.port import (
    READS_MAX,
    REQUEST_BYTES_MAX,
    Dispatcher,
    Event,
    Listener,
    Outcome,
    RequestCounts,
)
from replitree.coordination.requests import (
    encode_transaction,
    send_children_many,
    send_exists,
    send_get,
    send_get_many,
    send_get_stamped,
    send_transaction,
)
from replitree.coordination.session import ZooKeeperSession
from replitree.coordination.stamped import Asked, Told
from replitree.coordination.url import CoordinationUrl, parse_url
from replitree.errors import BadInput, CoordinationUnavailable, NotAuthorized
from replitree.protocol.core import effects as fx
from replitree.protocol.core.stamps import GetStamped, Stamped
from replitree.tls import NO_FILES, Contexts

if TYPE_CHECKING:
    from replitree.coordination.trace import CommitTrace

SESSION_TIMEOUT_S = 10.0
# As long as the session: an answer that takes longer comes when the session has ended, or is about to.
OPERATION_TIMEOUT_S = 10.0
# Longer than one session: the ensemble may have to elect a leader first.
CONNECT_TIMEOUT_S = 15.0
# A session that is not closed by then ends at the servers by itself.
CLOSE_S_MAX = 5.0

PIPELINE_MAX = 1_024
"""Reads that one `GetMany` has on the way at once: a bound on what both sides hold."""
_T = TypeVar("_T")
_Result: TypeAlias = Any  # a `Reply`, or kazoo's AsyncResult; kazoo ships no types

_REASONS: dict[type[Exception], fx.Reason] = {
    NoNodeError: fx.Reason.NO_NODE,
    NodeExistsError: fx.Reason.NODE_EXISTS,
    BadVersionError: fx.Reason.BAD_VERSION,
    NotEmptyError: fx.Reason.NOT_EMPTY,
    NoChildrenForEphemeralsError: fx.Reason.NO_CHILDREN_FOR_EPHEMERALS,
}

Read: TypeAlias = fx.Get | fx.GetMany | fx.Exists | fx.Children | fx.ChildrenMany | fx.NextNumber | fx.Sync | GetStamped

_NOT_THE_CAUSE = (RolledBackError, RuntimeInconsistency)
"""How a refused transaction marks the operations before and after the one that did not hold."""


_Answer: TypeAlias = fx.Node | Exception


@dataclass(frozen=True, slots=True, eq=False)
class _Reads:
    """What a thread reads of a session within some time: at most `PIPELINE_MAX` nodes, and one that is watched from then on."""

    session: ZooKeeperSession
    paths: tuple[str, ...]
    watch: str | None
    deadline: float


class ZooKeeperCoordination:
    """One session with a ZooKeeper ensemble; implements `stamped.StampedCoordination`.

    Parameters
    ----------
    url
        The ensemble, as `parse_url` takes it.
    session_timeout_s
        After how many seconds of silence the ensemble ends the session (it may allow more or less).
    operation_timeout_s
        After how many seconds an unanswered read is unavailable and an unanswered commit unknown.
    connect_timeout_s
        How many seconds the first connection, and `reconnect`, may take.
    trace
        Writes down every commit.
    tls
        What TLS is made with where the url wants it; by default the authorities that the operating system trusts.
    connect
        False: the caller calls `connect` later, and may call `close` meanwhile, which ends it.

    Raises
    ------
    CoordinationUnavailable
        No server answered in time.
    BadInput
        The url is wrong.
    """

    def __init__(
        self,
        url: str | CoordinationUrl,
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        operation_timeout_s: float = OPERATION_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        trace: CommitTrace | None = None,
        connect: bool = True,
        tls: Contexts | None = None,
    ) -> None:
        self._tls = tls or Contexts(NO_FILES)
        self.url = parse_url(url) if isinstance(url, str) else url
        self._trace = trace
        self._session_timeout_s = session_timeout_s
        self._operation_timeout_s = operation_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._requests = RequestCounts()
        self._dispatcher = Dispatcher("replitree-zookeeper-events")
        self._beginning = threading.Lock()
        self._closed = False
        self._seen_before = 0
        self._reads = Gathering(self._read_together, lambda asked: len(asked.paths), PIPELINE_MAX)
        self._session = self._make_session()
        if trace is not None:
            trace.seen = lambda: self._session.seen
        if connect:
            self.connect()

    def __repr__(self) -> str:  # type: ignore[explicit-override]  # `typing.override` is not in Python 3.11
        """Show where and who, not the password."""
        return f"ZooKeeperCoordination({str(self.url)!r}, session_id={self.session_id:#x})"

    @property
    def session_id(self) -> int:
        """Number of the present session, or of the last one when it ended."""
        return self._session.number

    @property
    def session_timeout_s(self) -> float:
        """After how many seconds of silence the session ends, as the ensemble has granted it."""
        return self._session.timeout_s

    def silent_s(self) -> float:
        """Return for how many seconds nothing has been heard of the ensemble; see `port.Coordination.silent_s`."""
        return time.monotonic() - self._session.heard_at

    def has_gone_back(self) -> bool:
        """Whether the ensemble lacks transactions that an earlier session has seen; see `port.Coordination.has_gone_back`.

        After a `Sync` a member has every transaction that was committed before, and says with its answer which was the last.
        """
        self.perform(fx.Sync("/"))
        seen, before = self._session.seen, self._seen_before
        # Said once: the caller acts on it, and the next session compares with what there is now.
        self._seen_before = min(seen, before)
        return seen < before

    def is_connected(self) -> bool:
        """Whether there is a connection on which a request can be sent now."""
        return self._session.is_connected

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests sent so far, by kind."""
        return self._requests.snapshot()

    def add_listener(self, listener: Listener) -> None:
        """Have `listener` called for every event from now on, by a thread of ours."""
        self._dispatcher.add(listener)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Begin the first session.

        Raises
        ------
        CoordinationUnavailable
            No server answered in time, or `close` was called meanwhile.
        """
        try:
            with self._beginning:
                self._start_session(is_first=True)
        except BaseException:
            self._dispatcher.stop()
            raise

    def reconnect(self) -> None:
        """End the session, if it has not ended yet, and begin a new one with a new client.

        Raises
        ------
        CoordinationUnavailable
            No server answered in time.  The old session is over all the same.
        """
        with self._beginning:
            if self._closed:
                raise CoordinationUnavailable("this coordination was closed; connect anew")
            self._session.discard()
            # Before the session is exchanged: the new one counts from what its servers tell.
            self._seen_before = max(self._seen_before, self._session.seen)
            self._session = self._make_session(self._session.heard_at)
            self._start_session(is_first=False)

    def close(self) -> None:
        """End the session and release everything.  Harmless when called again."""
        self._closed = True
        # A `reconnect` that waits for the session gives up.
        self._session.discard()
        with self._beginning:
            self._session.discard().join(CLOSE_S_MAX)
            self._dispatcher.stop()

    def _make_session(self, heard_at: float | None = None) -> ZooKeeperSession:
        return ZooKeeperSession(self.url, self._session_timeout_s, self._on_event, self._tls, heard_at)

    def _start_session(self, *, is_first: bool) -> None:
        """Start the session that is ours already, so that nothing that happens to it is missed."""
        if not self._session.start(self._connect_timeout_s, is_first=is_first):
            self._session.discard()
            if self._session.problem:
                raise CoordinationUnavailable(f"no session with ZooKeeper: {self._session.problem}")
            secure = (
                "" if self.url.is_secure else ", and that it speaks clear text (of one by TLS the url ends with ?tls)"
            )
            raise CoordinationUnavailable(
                f"no ZooKeeper at {self.url.servers} answered within {self._connect_timeout_s:g} s;"
                f" check the address and that a server runs there{secure}"
            )

    def _on_event(self, session: ZooKeeperSession, event: Event) -> None:
        # Events of a session that was replaced mean nothing any more.
        if session is self._session:
            self._dispatcher.post(event)

    # --- effects --------------------------------------------------------------------------------------------------------

    @overload
    def perform(self, effect: fx.Get) -> fx.Node | None: ...
    @overload
    def perform(self, effect: fx.GetMany) -> fx.Many: ...
    @overload
    def perform(self, effect: fx.Exists) -> bool: ...
    @overload
    def perform(self, effect: fx.Children) -> tuple[str, ...] | None: ...
    @overload
    def perform(self, effect: fx.ChildrenMany) -> fx.Lists: ...
    @overload
    def perform(self, effect: fx.NextNumber) -> int | None: ...
    @overload
    def perform(self, effect: fx.Sync) -> None: ...
    @overload
    def perform(self, effect: fx.Commit) -> fx.Committed: ...
    @overload
    def perform(self, effect: GetStamped) -> Stamped: ...
    @overload
    def perform(self, effect: fx.CoordinationEffect) -> Outcome: ...
    def perform(self, effect: Asked) -> Told:
        """Perform one effect within `operation_timeout_s`; see `port.Coordination.perform`.

        Raises
        ------
        CoordinationUnavailable
            A read could not be had in time.
        NotAuthorized
            The ensemble does not let these credentials do this.
        BadInput
            A commit is larger than `REQUEST_BYTES_MAX`, or ZooKeeper does not allow a path; nothing was done.
        """
        session = self._session
        deadline = time.monotonic() + self._operation_timeout_s
        if isinstance(effect, fx.Commit):
            number = 0 if self._trace is None else self._trace.sent(session.number, effect.operations)
            # Of this session alone: a commit is never sent again on another one.
            outcome, zxid = self._commit(session, effect.operations, deadline)
            if self._trace is not None:
                self._trace.ended(number, outcome, zxid)
            return outcome
        answer: Told
        try:
            while True:
                try:
                    answer = self._read(session, effect, deadline)
                    break
                except ConnectionLoss:
                    # A read may be asked again, on the next connection: it changes nothing.
                    if time.monotonic() >= deadline:
                        raise
        except NoAuthError as error:
            raise NotAuthorized(f"{self.url} does not allow {effect}: check user and password") from error
        except (BadArgumentsError, ValueError) as error:
            raise BadInput(f"ZooKeeper does not allow the path of {effect}; nothing was done") from error
        except (KazooException, KazooTimeoutError) as error:
            # By its kind: errors of kazoo have mostly no text.
            name = type(error).__name__.removesuffix("Error")
            raise CoordinationUnavailable(f"ZooKeeper at {self.url.servers} did not answer ({name})") from error
        # The session may have ended while the answer was on its way: what it says may be of a tree without our nodes.
        if session.over:
            raise CoordinationUnavailable("the ZooKeeper session ended; begin a new one with reconnect()")
        return answer

    def _read(self, session: ZooKeeperSession, effect: Read, deadline: float) -> Told:
        client = session.client(deadline)
        match effect:
            case fx.Get(path):
                self._requests.add("get")
                try:
                    value, stat = _wait(send_get(client, path), deadline)
                except NoNodeError:
                    return None
                # ZooKeeper knows nodes without a value, which other clients make; here a value is always bytes.
                return fx.Node(value or b"", fx.Version(stat.version), stat.mtime)
            case fx.GetMany(paths, watch):
                return self._get_many(session, paths, watch, deadline)
            case GetStamped(paths):
                assert 0 < len(paths) <= READS_MAX, f"{len(paths)} nodes are not one request"
                self._requests.add("get")
                reply = send_get_stamped(client, paths)
                nodes = tuple(map(_found, _wait(reply, deadline)))
                return Stamped(nodes, reply.seen)
            case fx.Exists(path, watch):
                self._requests.add("exists")
                return _wait(send_exists(client, path, session.on_watch if watch else None), deadline) is not None
            case fx.Children(path, watch):
                self._requests.add("children")
                asked = client.get_children_async(path, session.on_watch if watch else None)
                try:
                    return tuple(sorted(_wait(asked, deadline)))
                except NoNodeError:
                    return None
            case fx.ChildrenMany(paths):
                return self._children_many(session, paths, deadline)
            case fx.NextNumber(path):
                self._requests.add("get")
                try:
                    _, stat = _wait(send_get(client, path), deadline)
                except NoNodeError:
                    return None
                # Of all children that there ever were: ZooKeeper tells twice that number, less those that there are now.
                number: int = (stat.cversion + stat.numChildren) // 2
                return number
            case fx.Sync(path):
                self._requests.add("sync")
                _wait(client.sync_async(path), deadline)
                return None
            case _:
                assert_never(effect)

    def _get_many(
        self, session: ZooKeeperSession, paths: tuple[str, ...], watch: str | None, deadline: float
    ) -> fx.Many:
        nodes: list[fx.Node | None] = []
        watched = False
        for start in range(0, max(len(paths), 1), PIPELINE_MAX):
            # Of many reads, each pipeline has a time limit of its own.
            deadline = max(deadline, time.monotonic() + self._operation_timeout_s)
            is_last = start + PIPELINE_MAX >= len(paths)
            asked = _Reads(session, paths[start : start + PIPELINE_MAX], watch if is_last else None, deadline)
            found, watched = self._reads.ask(asked)
            nodes += map(_found, found)
        return fx.Many(tuple(nodes), watched)

    def _read_together(self, asked: list[_Reads]) -> list[tuple[list[_Answer], bool]]:
        """Send the reads of several threads, all at once; return the answers of each, and whether its watched node is there."""
        session, deadline = asked[0].session, max(each.deadline for each in asked)
        if any(each.session is not session for each in asked):
            # Each goes by the session with which it began: after this error each is asked by itself.
            raise ConnectionLoss
        client, paths = session.client(deadline), [path for each in asked for path in each.paths]
        pieces = [paths[first : first + READS_MAX] for first in range(0, len(paths), READS_MAX)]
        watches = [each.watch for each in asked if each.watch is not None]
        self._requests.add("get", len(pieces))
        self._requests.add("exists", len(watches))
        results = [send_get_many(client, piece) for piece in pieces]
        exist = [send_exists(client, watch, session.on_watch) for watch in watches]
        # Answers come in the order of the requests: a thread that waits for the last one wakes up once.
        for last in (exist or results)[-1:]:
            last.wait(max(0.0, deadline - time.monotonic()))
        found = iter([node for result in results for node in _wait(result, deadline)])
        there = iter([_wait(each, deadline) is not None for each in exist])
        return [([next(found) for _ in each.paths], each.watch is not None and next(there)) for each in asked]

    def _children_many(self, session: ZooKeeperSession, paths: tuple[str, ...], deadline: float) -> fx.Lists:
        lists: list[tuple[str, ...] | None] = []
        for start in range(0, len(paths), READS_MAX):
            # Each request has a time limit of its own.
            deadline = max(deadline, time.monotonic() + self._operation_timeout_s)
            self._requests.add("children")
            result = send_children_many(session.client(deadline), paths[start : start + READS_MAX])
            lists += map(_found, _wait(result, deadline))
        return tuple(lists)

    def _commit(
        self, session: ZooKeeperSession, operations: tuple[fx.Operation, ...], deadline: float
    ) -> tuple[fx.Committed, int]:
        """Send a commit; return what became of it, and its transaction number if it was answered."""
        for operation in operations:
            # ZooKeeper's client drops the slash, and the node would have another name.
            assert operation.path[-1] != "/" or isinstance(operation, fx.Check), f"{operation} has no name"
        try:
            client = session.client(deadline)
        # Without a connection kazoo has not seen the request: certainly nothing was sent.
        except CoordinationUnavailable:
            return fx.Unknown(is_sent=False), 0
        try:
            data = encode_transaction(client, operations)
            # With credentials rights are longer than the estimate of `check_size`: this is the true length.
            if len(data) > REQUEST_BYTES_MAX:
                raise BadInput(f"a commit of {len(data)} bytes is larger than {REQUEST_BYTES_MAX}; nothing was sent")
            self._requests.add("commit")
            reply = send_transaction(client, data)
            results = _wait(reply, deadline)
        except (KazooException, KazooTimeoutError):
            # The request is queued: ZooKeeper may have it, or get it later in this session.  Only an answer tells.
            return fx.Unknown(), 0
        # kazoo itself refuses paths that go up.
        except ValueError as error:
            raise BadInput(f"ZooKeeper does not allow the path of one of {operations}; nothing was done") from error
        if session.over:
            return fx.Unknown(), 0
        return self._outcome(operations, results), reply.zxid

    def _outcome(self, operations: tuple[fx.Operation, ...], results: list[Any]) -> fx.Committed:
        """Tell from kazoo's list of results and errors what became of a transaction."""
        # A refused transaction has an error for every operation.
        if not any(isinstance(result, Exception) for result in results):
            return fx.Applied(tuple(result for result in results if isinstance(result, str)))
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, _NOT_THE_CAUSE):
                continue
            if isinstance(result, NoAuthError | InvalidACLError):
                raise NotAuthorized(f"{self.url} does not allow this on {operation.path}: check user and password")
            if isinstance(result, BadArgumentsError):
                raise BadInput(f"ZooKeeper does not allow the path {operation.path!r}; nothing was done")
            reason = _REASONS.get(type(result))
            return fx.Refused(operation, reason) if reason is not None else fx.Unknown()
        return fx.Unknown()


def _wait(result: _Result, deadline: float) -> Any:
    return result.get(timeout=max(0.0, deadline - time.monotonic()))


def _found(answer: _T | Exception) -> _T | None:
    """Return one of the answers to several reads; None: there is no such node."""
    if isinstance(answer, NoNodeError):
        return None
    if isinstance(answer, Exception):
        raise answer
    return answer
