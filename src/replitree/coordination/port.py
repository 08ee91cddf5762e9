"""The interface of coordination for the protocol's interpreters, independent of the provider.

`Coordination` is one session.  Its guarantees, which one conformance suite asks of every provider:

* `perform` answers with exactly the outcome that the effect's docstring names.  A `Commit` always returns; everything that
  leaves its fate open is `Unknown`.  It is sent at most once: nothing here repeats a request.
* A read that can't be had raises `CoordinationUnavailable`.  No call takes longer than the time limit that the provider
  documents.
* Credentials that the server refuses raise `NotAuthorized`, of a commit too: certainly nothing was changed.
* A commit of more than `REQUEST_BYTES_MAX` bytes raises `BadInput`: nothing was sent.
* A session ends once, and at the latest when nothing was heard of coordination for its timeout and a tenth.  From then on
  reads are unavailable and commits unknown, until `reconnect` begins a new one; no new session takes the place of an old one
  silently.
* Listeners hear, from one thread and in order: `Watched` for a watch that fired, `Suspended` when the connection is gone,
  `Connected` when it is back, `SessionLost` when the session ended.  A watch fires once.  `Suspended` and `SessionLost` make
  all watches void: look again after `Connected`.
* `requests` counts what was sent to the server: one per commit, one for each `READS_MAX` nodes of a `GetMany` or
  `ChildrenMany`, none for pings.

Absent on purpose: retries, caches, locks, recipes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol, TypeAlias, overload

from replitree.errors import BadInput, CoordinationUnavailable
from replitree.protocol.core import effects as fx

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 1_000_000
"""Largest commit, in bytes of ZooKeeper's protocol.  A server cuts the connection on requests larger than its
``jute.maxbuffer``, 1 MiB unless configured; no client can ask a server how much it takes."""

READS_MAX = 64
"""Nodes of a `GetMany` or `ChildrenMany` that are read in one request: the answer is one message; both sides hold it whole."""

# --- events ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Watched:
    """A watch on this node (or on its children) fired: look again."""

    path: str


@dataclass(frozen=True, slots=True)
class Suspended:
    """The connection is gone.  The session may live on; every watch is void."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The connection is back, or a new session has begun: look again at everything."""


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The session ended, and its ephemeral nodes with it.  `reconnect` begins a new one."""


Event: TypeAlias = Watched | Suspended | Connected | SessionLost
Listener: TypeAlias = Callable[[Event], None]
Outcome: TypeAlias = fx.Node | fx.Many | bool | tuple[str, ...] | fx.Lists | int | fx.Committed | None


class Coordination(Protocol):
    """One session with the service that keeps the tree."""

    @property
    def session_id(self) -> int:
        """Number of the present session, or of the last one when it ended."""

    @property
    def session_timeout_s(self) -> float:
        """After how many seconds of silence the session ends."""

    def silent_s(self) -> float:
        """Return for how many seconds nothing has been heard of coordination, by the clock of this process.

        An idle connection is asked about three times in a session's timeout, so what is silent for longer than that can't be
        reached, whatever the state of the connection.
        """

    def has_gone_back(self) -> bool:
        """Whether coordination lacks transactions that an earlier session has seen: its data were lost, or are from a backup.

        To be asked in a session that has just begun; it says so once.

        Raises
        ------
        CoordinationUnavailable
            That can't be found out now.
        """

    def is_connected(self) -> bool:
        """Whether there is a connection on which a request can be sent now."""

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests sent so far, by kind: ``get``, ``exists``, ``children``, ``sync``, ``commit``."""

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
    def perform(self, effect: fx.CoordinationEffect) -> Outcome: ...
    def perform(self, effect: fx.CoordinationEffect) -> Outcome:
        """Perform one effect and return its outcome.  Any thread may call, but a listener should not wait for it.

        Raises
        ------
        CoordinationUnavailable
            A read could not be had in time.
        NotAuthorized
            The server does not let these credentials do this.
        BadInput
            A commit is larger than `REQUEST_BYTES_MAX`; nothing was sent.
        """

    def add_listener(self, listener: Listener) -> None:
        """Have `listener` called for every event from now on, by a thread of ours.  It should return soon."""

    def reconnect(self) -> None:
        """End the session, if it has not ended yet, and begin a new one.

        Its reads show no older state than any session before it.  The models rely on that: where a session may begin with an
        older state, the answer to an insert's commit is lost, and two sessions end, the insert takes itself for its duplicate
        and removes its rows.

        Raises
        ------
        CoordinationUnavailable
            No server answered in time.  The old session is over all the same.
        """

    def close(self) -> None:
        """End the session and release everything.  Harmless when called again."""


def check_size(commit: fx.Commit) -> None:
    """Do nothing with a commit that is no larger than coordination takes, by a measure that is a little too high.

    Raises
    ------
    BadInput
        It is larger than `REQUEST_BYTES_MAX`.
    """
    # Reckoned before it is sent: a server cuts the connection on a larger one, and the commit would be unknown.
    size = commit_bytes(commit)
    if size > REQUEST_BYTES_MAX:
        raise BadInput(f"a commit of {size} bytes is larger than {REQUEST_BYTES_MAX}; nothing was sent")


def commit_bytes(commit: fx.Commit) -> int:
    """Return about how many bytes a commit has in ZooKeeper's protocol: headers, paths, values, rights."""
    created = sum(isinstance(each, fx.Create) for each in commit.operations)
    values = sum(len(each.value) for each in commit.operations if isinstance(each, fx.Create | fx.Set))
    paths = sum(len(each.path) for each in commit.operations)
    return HEADER_BYTES * len(commit.operations) + RIGHTS_BYTES * created + paths + values


HEADER_BYTES, RIGHTS_BYTES = 25, 31
"""Bytes of an operation besides path and value, and of a created node's rights without credentials."""


# --- what providers share ----------------------------------------------------------------------------------------------


class RequestCounts:
    """Counts by kind, exact under threads."""

    KINDS = ("get", "exists", "children", "sync", "commit")

    def __init__(self) -> None:
        self._counts = dict.fromkeys(self.KINDS, 0)
        self._lock = threading.Lock()

    def add(self, kind: str, count: int = 1) -> None:
        """Count requests that are about to be sent."""
        with self._lock:
            self._counts[kind] += count

    def snapshot(self) -> dict[str, int]:
        """Return the counts of one moment."""
        with self._lock:
            return dict(self._counts)


class Dispatcher:
    """Calls listeners from one thread, in order, so that no other thread ever runs their code.

    The thread starts with the first listener; until then events go nowhere.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._listeners: tuple[Listener, ...] = ()
        self._queue: SimpleQueue[Event | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def add(self, listener: Listener) -> None:
        """Add a listener."""
        with self._lock:
            self._listeners = (*self._listeners, listener)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def post(self, event: Event) -> None:
        """Queue an event for the listeners.  Never blocks."""
        # Without a listener no event has a reader: the queue would grow for ever.
        if self._thread is not None:
            self._queue.put(event)

    def stop(self) -> None:
        """Deliver what is queued, then end."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._listeners = ()
        if thread is not None:
            self._queue.put(None)
            # A listener may close its own coordination.
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            for listener in self._listeners:
                try:
                    listener(event)
                except Exception:
                    log.exception("a listener failed on %r; the others are called all the same", event)


def make_root(coordination: Coordination, root: str) -> None:
    """Create the node `root` and its parents, unless they are there.

    Raises
    ------
    CoordinationUnavailable
        It could not be done, or not be known; do it again.
    """
    if coordination.perform(fx.Exists(root)):
        return
    names = root.split("/")[1:]
    for depth in range(1, len(names) + 1):
        path = "/" + "/".join(names[:depth])
        match coordination.perform(fx.Commit(fx.Create(path))):
            # Another process may create the same node at the same time.
            case fx.Applied() | fx.Refused(reason=fx.Reason.NODE_EXISTS):
                pass
            case fx.Refused() as refused:
                raise CoordinationUnavailable(f"{path} can't be created: {refused.reason.value}; try again")
            case fx.Unknown():
                raise CoordinationUnavailable(f"the connection was lost while {path} was created; try again")
