"""Coordination without a server: sessions of one process over one `Tree`.

Guarantees: those of `port`, with ZooKeeper's semantics of nodes from `tree` and its semantics of watches:

* a node watch (`Exists`, `GetMany`) fires when the node is created, set or deleted, also when it was not there;
* a children watch fires when a child is created or deleted, and when the node is; there is none on a node that is not there;
* every commit is one step that all sessions see at once; a read is never stale.

Faults are made by the caller: `SharedTree.expire` ends a session as the server would, `MemoryCoordination.suspend` and
`resume` cut and mend the connection.

Absent on purpose: random faults and virtual time (the simulator has its own interpreter over `Tree`), durability, ACLs.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping
from typing import overload

from replitree.coordination.port import (
    READS_MAX,
    Connected,
    Dispatcher,
    Listener,
    Outcome,
    RequestCounts,
    SessionLost,
    Suspended,
    Watched,
    check_size,
)
from replitree.coordination.stamped import Asked, Told
from replitree.coordination.tree import Read, Session, Tree, answer, woken
from replitree.errors import CoordinationUnavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core.stamps import BEFORE_ALL, GetStamped, Stamped, StampedNode, Zxid, stamp


class SharedTree:
    """A tree and the sessions that use it.

    Parameters
    ----------
    tree
        What is there at the beginning.

    Attributes
    ----------
    now_ms
        The service's clock, in milliseconds.  Every commit moves it on by one; the caller may move it on by more.
    """

    def __init__(self, tree: Tree | None = None) -> None:
        self._tree = Tree() if tree is None else tree
        self._lock = threading.Lock()
        self._changed_ms: dict[str, int] = {}
        # What the tree had at the beginning was there before the first transaction.
        self._stamps = dict.fromkeys(self._tree.paths(), (BEFORE_ALL, BEFORE_ALL))
        self._zxid = BEFORE_ALL
        self._told: dict[Session, Zxid] = {}
        self.now_ms = 0
        self._last_session = 0
        self._sessions: dict[Session, MemoryCoordination] = {}
        self._node_watches: dict[str, set[Session]] = {}
        self._children_watches: dict[str, set[Session]] = {}

    @property
    def tree(self) -> Tree:
        """The tree as it is now."""
        return self._tree

    def expire(self, session: Session) -> None:
        """End a session as the server does when it hears nothing: its ephemeral nodes go, its owner gets `SessionLost`."""
        self.end(session, told=True)

    def begin(self, owner: MemoryCoordination) -> Session:
        """Begin a session."""
        with self._lock:
            self._last_session += 1
            self._sessions[self._last_session] = owner
            # A session begins with a sync.
            self._told[self._last_session] = self._zxid
            return self._last_session

    def end(self, session: Session, *, told: bool) -> None:
        """End a session, because its owner wants it or because the server says so; the latter is `told`."""
        with self._lock:
            owner = self._sessions.pop(session, None)
            # Ended already: expired, and then closed by its owner.
            if owner is None:
                return
            self._drop_watches(session)
            del self._told[session]
            # As one commit: other sessions see all of a session's nodes go at once, as with ZooKeeper.
            gone = [fx.Delete(path, fx.ANY_VERSION) for path in self._tree.ephemerals(session)]
            self._tree, outcome = self._tree.commit(gone, session)
            assert isinstance(outcome, fx.Applied)
            self._count(gone, outcome)
            self._fire(gone, outcome)
            if told:
                owner.tell(SessionLost())

    def read(self, session: Session, effect: Read | GetStamped) -> Told:
        """Answer a read and set its watch, in one step."""
        with self._lock:
            if session not in self._sessions:
                raise CoordinationUnavailable("the session ended; begin a new one with reconnect()")
            seen, self._told[session] = self._told[session], self._zxid
            if isinstance(effect, GetStamped):
                return Stamped(tuple(map(self._stamped, effect.paths)), seen)
            # Answer and watch under one lock: no change falls between them.
            found: Outcome = answer(self._tree, effect)
            # The tree has no clock: the time of a node's last change is put in here.
            if isinstance(found, fx.Node) and isinstance(effect, fx.Get):
                found = self._date(effect.path, found)
            elif isinstance(found, fx.Many) and isinstance(effect, fx.GetMany):
                pairs = zip(effect.paths, found.nodes, strict=True)
                nodes = tuple(None if node is None else self._date(path, node) for path, node in pairs)
                found = fx.Many(nodes, found.watched)
            match effect:
                case fx.Exists(path, watch=True) | fx.GetMany(watch=str(path)):
                    self._node_watches.setdefault(path, set()).add(session)
                # ZooKeeper sets no children watch on a node that is not there.
                case fx.Children(path, watch=True) if found is not None:
                    self._children_watches.setdefault(path, set()).add(session)
                case _:
                    pass
            return found

    def commit(self, session: Session, commit: fx.Commit) -> fx.Committed:
        """Perform a commit and fire the watches, in one step."""
        with self._lock:
            if session not in self._sessions:
                return fx.Unknown()
            self._tree, outcome = self._tree.commit(commit.operations, session)
            if isinstance(outcome, fx.Applied):
                self._count(commit.operations, outcome)
                self.now_ms += 1
                for operation in commit.operations:
                    if isinstance(operation, fx.Delete):
                        self._changed_ms.pop(operation.path, None)
                    elif isinstance(operation, fx.Set):
                        self._changed_ms[operation.path] = self.now_ms
                self._changed_ms.update(dict.fromkeys(outcome.created, self.now_ms))
                self._fire(commit.operations, outcome)
            self._told[session] = self._zxid
            return outcome

    def _count(self, operations: Iterable[fx.Operation], outcome: fx.Applied) -> None:
        """Give the next transaction number to what was changed."""
        self._zxid = Zxid(self._zxid + 1)
        stamp(self._stamps, operations, outcome, self._zxid)

    def _stamped(self, path: str) -> StampedNode | None:
        node = self._tree.get(path)
        if node is None:
            return None
        created, changed = self._stamps.get(path, (BEFORE_ALL, BEFORE_ALL))
        return StampedNode(node.value, node.version, created, changed, self._tree.next_sequence(path) or 0)

    def _date(self, path: str, node: fx.Node) -> fx.Node:
        return fx.Node(node.value, node.version, self._changed_ms.get(path, 0))

    def _fire(self, operations: Iterable[fx.Operation], outcome: fx.Applied) -> None:
        for nodes, folders in woken(operations, outcome):
            # A session hears of one operation once for each node.
            hit: dict[tuple[str, Session], None] = {}
            for watches, paths in ((self._node_watches, nodes), (self._children_watches, folders)):
                for path in paths:
                    hit.update(dict.fromkeys((path, session) for session in sorted(watches.pop(path, ()))))
            for path, session in hit:
                self._sessions[session].tell(Watched(path))

    def forget_watches(self, session: Session) -> None:
        """Make all watches of a session void, as the loss of its connection does."""
        with self._lock:
            self._drop_watches(session)

    def _drop_watches(self, session: Session) -> None:
        for watches in (self._node_watches, self._children_watches):
            for path in [path for path, sessions in watches.items() if session in sessions]:
                watches[path].discard(session)
                if not watches[path]:
                    del watches[path]


SESSION_TIMEOUT_S = 60.0
"""The timeout that a session reports, in seconds; it ends only when a test expires it."""


class MemoryCoordination:
    """One session over a `SharedTree`; implements `stamped.StampedCoordination`.

    Parameters
    ----------
    shared
        The tree, shared with other sessions; by default one of its own.
    """

    def __init__(self, shared: SharedTree | None = None) -> None:
        self.shared = SharedTree() if shared is None else shared
        self._requests = RequestCounts()
        self._dispatcher = Dispatcher("replitree-memory-events")
        self._suspended, self._suspended_at = False, 0.0
        self.session_timeout_s = SESSION_TIMEOUT_S
        self._session = self.shared.begin(self)

    def silent_s(self) -> float:
        """Return for how many seconds the connection has been cut; 0 while it is not."""
        return time.monotonic() - self._suspended_at if self._suspended else 0.0

    def has_gone_back(self) -> bool:
        """Return False: a tree in memory keeps what it has."""
        return False

    def is_connected(self) -> bool:
        """Whether the connection is not cut."""
        return not self._suspended

    @property
    def session_id(self) -> int:
        """Number of the present session, or of the last one when it ended."""
        return self._session

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests so far, by kind."""
        return self._requests.snapshot()

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
        """Perform one effect; see `port.Coordination.perform`."""
        if isinstance(effect, fx.Commit):
            check_size(effect)
            if self._suspended:
                # Certainly not sent; on a real connection the caller couldn't tell, so it hears the same here.
                return fx.Unknown()
            self._requests.add("commit")
            return self.shared.commit(self._session, effect)
        if self._suspended:
            raise CoordinationUnavailable("the connection is cut; resume() mends it")
        # As ZooKeeper's performer counts them, so that tests of costs hold for both.
        match effect:
            case fx.Get() | fx.NextNumber() | GetStamped():
                self._requests.add("get")
            case fx.GetMany(paths, watch):
                self._requests.add("get", math.ceil(len(paths) / READS_MAX))
                self._requests.add("exists", watch is not None)
            case fx.Exists():
                self._requests.add("exists")
            case fx.Children():
                self._requests.add("children")
            case fx.ChildrenMany(paths):
                self._requests.add("children", math.ceil(len(paths) / READS_MAX))
            case fx.Sync():
                self._requests.add("sync")
        return self.shared.read(self._session, effect)

    def add_listener(self, listener: Listener) -> None:
        """Have `listener` called for every event from now on, by a thread of ours."""
        self._dispatcher.add(listener)

    def tell(self, event: Watched | SessionLost) -> None:
        """Pass an event of this session on to the listeners."""
        self._dispatcher.post(event)

    def suspend(self) -> None:
        """Cut the connection: nothing gets through, all watches are void, the session lives on until it is expired."""
        if not self._suspended:
            self._suspended, self._suspended_at = True, time.monotonic()
            self.shared.forget_watches(self._session)
            self._dispatcher.post(Suspended())

    def resume(self) -> None:
        """Mend the connection."""
        if self._suspended:
            self._suspended = False
            self._dispatcher.post(Connected())

    def reconnect(self) -> None:
        """End the session, if it has not ended yet, and begin a new one."""
        self.shared.end(self._session, told=False)
        self._suspended = False
        self._session = self.shared.begin(self)
        self._dispatcher.post(Connected())

    def close(self) -> None:
        """End the session.  Harmless when called again."""
        self.shared.end(self._session, told=False)
        self._dispatcher.stop()
