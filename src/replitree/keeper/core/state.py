"""The state of a keeper: tables that are changed in place, with a journal for undo and a digest.

* Each change of a table is in the journal until `settle`; `undo` takes all of them back, the digest included.  So a request, or
  a multi, changes everything or nothing, whatever goes wrong in between.
* The digest is a sum of hashes of all entries of all tables.  It depends on the content, not on the order in which it came.
* Nothing of connections or watches is here: those end with the leader, the state does not.

A node is one immutable byte string, the body of the reply to `getData`: length, data, and a Stat of 68 bytes.  What few nodes
have lies in tables beside it.
"""

from __future__ import annotations

from typing import Any, Final

import xxhash

from replitree.keeper.core.acls import OPEN, READ_ONLY
from replitree.keeper.core.paths import ROOT
from replitree.keeper.core.wire import Stat, buffer_bytes

RULES: Final = 1
"""Version of the semantics: what a log means.  It is raised when `apply` gives another state for an old batch."""

ZXIDS_MAX: Final = 2**32 - 1
"""Write requests of one generation; a leader steps down in time."""

SESSIONS_MAX: Final = 2**24 - 1
"""New sessions of one generation; a leader steps down in time."""

GENERATION_MAX: Final = 2**31 - 1


class Table(dict[Any, Any]):
    """One table of the state.

    Parameters
    ----------
    kind
        Distinguishes its entries in the digest; empty for a table that follows from the others.
    """

    __slots__ = ("kind",)

    def __init__(self, kind: bytes = b"") -> None:
        super().__init__()
        self.kind = kind


class State:
    """Everything that a log of batches makes.

    Attributes
    ----------
    nodes
        Path to record.
    counters
        Path to the number of children ever created (C), a signed integer of 4 bytes, of nodes that had some.
    acls
        Path to ACL, of nodes whose ACL is not open.
    lifetimes
        Path to time to live in milliseconds; 0 for a container.
    sessions
        Session to its timeout in milliseconds.
    children
        Path to the names of its children, of nodes that have some.
    ephemerals
        Session to the paths of its ephemeral nodes.
    limited
        Paths whose subtrees are counted because `zookeeper_limits` exists for them.
    generation
        Of the last batch; 0 before the first.
    requests, opened
        How many write requests, and new sessions, the generation has had.
    now_ms
        Time of the last batch, in milliseconds since 1970.  It never goes back.
    secret
        What passwords of sessions are made with; empty until a leader has chosen it.
    digest
        Sum of hashes of all entries of `nodes`, `counters`, `acls`, `lifetimes`, `sessions`.
    """

    def __init__(self) -> None:
        self.nodes = Table(b"n")
        self.counters = Table(b"c")
        self.acls = Table(b"a")
        self.lifetimes = Table(b"l")
        self.sessions = Table(b"s")
        self.children = Table()
        self.ephemerals = Table()
        self.limited = Table()
        self.generation = 0
        self.requests = 0
        self.opened = 0
        self.now_ms = 0
        self.secret = b""
        self.digest = 0
        self._journal: list[tuple[dict[Any, Any], Any, Any]] = []
        self._settled_digest = 0

    @property
    def zxid(self) -> int:
        """Zxid of the last write request."""
        return self.generation << 32 | self.requests

    def put(self, table: Table, key: Any, value: Any) -> None:
        """Change one entry; None removes it."""
        old = table.get(key)
        if table.kind:
            if old is not None:
                self.digest -= _hashed(table.kind, key, old)
            if value is not None:
                self.digest += _hashed(table.kind, key, value)
            self.digest &= 0xFFFFFFFFFFFFFFFF
        self._replace(table, key, value)

    def put_in(self, table: Table, key: Any, member: bytes, *, is_in: bool) -> None:
        """Add a member to a set of a derived table, or remove it; a set that is empty is not kept."""
        members = table.get(key)
        if members is None:
            if not is_in:
                return
            self.put(table, key, members := {})
        self._replace(members, member, True if is_in else None)
        if not members:
            self.put(table, key, None)

    def _replace(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._journal.append((table, key, table.get(key)))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value

    def settle(self) -> None:
        """Keep all changes since the last `settle` or `undo`."""
        self._journal.clear()
        self._settled_digest = self.digest

    def undo(self) -> None:
        """Take back all changes since the last `settle` or `undo`."""
        while self._journal:
            table, key, old = self._journal.pop()
            if old is None:
                table.pop(key, None)
            else:
                table[key] = old
        self.digest = self._settled_digest


def _hashed(kind: bytes, key: Any, value: Any) -> int:
    key_bytes = key if isinstance(key, bytes) else key.to_bytes(8, "big", signed=True)
    value_bytes = value if isinstance(value, bytes) else value.to_bytes(8, "big", signed=True)
    # The length of the key, too: otherwise two entries could be one string of bytes.
    return xxhash.xxh3_64_intdigest(kind + len(key_bytes).to_bytes(4, "big") + key_bytes + value_bytes)


def begin() -> State:
    """Return the state of a new keeper: the root and ZooKeeper's own four nodes."""
    state = State()
    for path, children in ((b"/", 1), (b"/zookeeper", 2), (b"/zookeeper/quota", 0), (b"/zookeeper/config", 0)):
        # ZooKeeper makes them without counting them as created (C is 0), and the last one by a change of its ACL to version -1.
        aversion = -1 if path == b"/zookeeper/config" else 0
        stat = Stat(0, 0, 0, 0, 0, -children, aversion, 0, 0, children, 0)
        state.put(state.nodes, path, buffer_bytes(b"") + stat.pack())
    for parent, name in ((b"/", b"zookeeper"), (b"/zookeeper", b"quota"), (b"/zookeeper", b"config")):
        state.put_in(state.children, parent, name, is_in=True)
    state.put(state.acls, b"/zookeeper/config", READ_ONLY)
    state.settle()
    return state


def acl_of(state: State, path: bytes) -> bytes:
    """Return the ACL of a node."""
    acl: bytes = state.acls.get(path, OPEN)
    return acl


def descendants(state: State, path: bytes) -> list[bytes]:
    """Return the paths of all nodes below one."""
    found, waiting = list[bytes](), [path]
    while waiting:
        at = waiting.pop()
        prefix = b"/" if at == ROOT else at + b"/"
        below = [prefix + name for name in state.children.get(at, ())]
        found += below
        waiting += below
    return found
