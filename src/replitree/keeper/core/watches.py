"""Watches: which connections hear of a change, once or always.

Two tables, as in ZooKeeper: `data` is filled by `getData` and `exists`, `children` by `getChildren`.

=============  =======================  ======================================  ===============================
change         data table of the node   child table of the node                 child table of the parent
=============  =======================  ======================================  ===============================
created        CREATED                                                          CHILDREN_CHANGED
deleted        DELETED                  DELETED, unless it just heard that      CHILDREN_CHANGED
data changed   DATA_CHANGED
=============  =======================  ======================================  ===============================

A connection may watch a path in several modes at once; it hears of a change once for each table.

* STANDARD: ends when it fires.
* PERSISTENT: in both tables, ends when it is removed.
* RECURSIVE: in the data table only, ends when it is removed; it fires for the node and for all nodes below, with the path of
  the node that changed.

Watches end with their connection; nothing of it is left here then.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from replitree.keeper.core.paths import ROOT, parent_of
from replitree.keeper.core.tree import Change
from replitree.keeper.core.wire import Code, EventType, Refused

STANDARD: Final = 1
PERSISTENT: Final = 2
RECURSIVE: Final = 4

Connection = int
"""A connection of this leader, by a number that is never used again."""


class WatcherType(IntEnum):
    """Which watches `checkWatches` and `removeWatches` speak of."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    RECURSIVE = 5


class Event(NamedTuple):
    """An event for one connection; it hears of it if this ACL lets it read."""

    connection: Connection
    kind: EventType
    path: bytes
    acl: bytes


class WatchTable:
    """Watches of one kind: path to connections and their modes."""

    def __init__(self) -> None:
        self._paths: dict[bytes, dict[Connection, int]] = {}
        self._connections: dict[Connection, dict[bytes, None]] = {}
        self._recursive = 0

    def add(self, path: bytes, connection: Connection, mode: int) -> None:
        """Watch a path in one more mode."""
        modes = self._paths.setdefault(path, {})
        self._recursive += mode == RECURSIVE and not modes.get(connection, 0) & RECURSIVE
        modes[connection] = modes.get(connection, 0) | mode
        self._connections.setdefault(connection, {})[path] = None

    def modes(self, path: bytes, connection: Connection) -> int:
        """Return in which modes a connection watches a path."""
        return self._paths.get(path, {}).get(connection, 0)

    def remove(self, path: bytes, connection: Connection, modes: int) -> bool:
        """End these modes; whether there was one of them."""
        found = self.modes(path, connection)
        if not found & modes:
            return False
        self._recursive -= bool(found & modes & RECURSIVE)
        if left := found & ~modes:
            self._paths[path][connection] = left
            return True
        del self._paths[path][connection], self._connections[connection][path]
        if not self._paths[path]:
            del self._paths[path]
        if not self._connections[connection]:
            del self._connections[connection]
        return True

    def forget(self, connection: Connection) -> None:
        """End all watches of a connection."""
        for path in list(self._connections.get(connection, ())):
            self.remove(path, connection, STANDARD | PERSISTENT | RECURSIVE)

    def fire(self, path: bytes) -> list[Connection]:
        """Return the connections that watch a path, each once; standard watches of it end."""
        found = dict.fromkeys(self._paths.get(path, ()))
        for connection in found:
            self.remove(path, connection, STANDARD)
        at = path if self._recursive else ROOT
        while at != ROOT:
            at = parent_of(at)
            found |= dict.fromkeys(each for each, modes in self._paths.get(at, {}).items() if modes & RECURSIVE)
        return list(found)

    @property
    def size(self) -> tuple[int, int, int]:
        """Connections, paths, and pairs of them."""
        return len(self._connections), len(self._paths), sum(map(len, self._paths.values()))


class Watches:
    """Both tables."""

    def __init__(self) -> None:
        self.data = WatchTable()
        self.children = WatchTable()

    def add(self, path: bytes, connection: Connection, mode: int) -> None:
        """Add a watch that stays, PERSISTENT or RECURSIVE."""
        self.data.add(path, connection, mode)
        if mode == PERSISTENT:
            self.children.add(path, connection, mode)

    def has(self, path: bytes, connection: Connection, kind: int) -> bool:
        """Whether a connection has a watch of a kind on a path; `MARSHALLING_ERROR` if there is no such kind."""
        return any(table.modes(path, connection) & modes for table, modes in self._of(kind))

    def remove(self, path: bytes, connection: Connection, kind: int) -> bool:
        """Remove a connection's watches of a kind on a path; whether there were some."""
        removed = [table.remove(path, connection, modes) for table, modes in self._of(kind)]
        return any(removed)

    def _of(self, kind: int) -> list[tuple[WatchTable, int]]:
        match kind:
            case WatcherType.CHILDREN:
                return [(self.children, STANDARD)]
            case WatcherType.DATA:
                return [(self.data, STANDARD)]
            case WatcherType.ANY:
                every = STANDARD | PERSISTENT | RECURSIVE
                return [(self.children, every), (self.data, every)]
            case WatcherType.PERSISTENT:
                return [(self.children, PERSISTENT), (self.data, PERSISTENT)]
            case WatcherType.RECURSIVE:
                return [(self.data, RECURSIVE)]
        raise Refused(Code.MARSHALLING_ERROR)

    def forget(self, connection: Connection) -> None:
        """End all watches of a connection."""
        self.data.forget(connection)
        self.children.forget(connection)

    def fire(self, change: Change) -> Iterator[Event]:
        """Return the events of one change, in their order."""
        heard = self.data.fire(change.path)
        for connection in heard:
            yield Event(connection, change.kind, change.path, change.acl)
        if change.kind == EventType.DATA_CHANGED:
            return
        if change.kind == EventType.DELETED:
            # A connection that watches both the data and the children hears of the end once, and both watches are over.
            for connection in self.children.fire(change.path):
                if connection not in heard:
                    yield Event(connection, change.kind, change.path, change.acl)
        parent = parent_of(change.path)
        for connection in self.children.fire(parent):
            yield Event(connection, EventType.CHILDREN_CHANGED, parent, change.parent_acl)
