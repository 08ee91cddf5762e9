"""Changes of nodes, with everything that follows from them: Stat of node and parent, counters, ephemerals, quotas, events.

The caller has checked that a change is allowed.  What a change does to Stat:

=========  =====================================  ==============================
change     the node                               its parent
=========  =====================================  ==============================
create     all zxids its own, all versions 0      C + 1, pzxid
delete                                            pzxid
set data   version + 1, mzxid, mtime
set ACL    aversion + 1
=========  =====================================  ==============================

C counts the children that were ever created.  The cversion that clients see is 2 · C minus the number of children, so that
creating and deleting both raise it by one; C itself is the next sequential number.

A version is never -1, which means "any" in requests.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from replitree.keeper.core import quota
from replitree.keeper.core.acls import OPEN
from replitree.keeper.core.paths import name_of, parent_of
from replitree.keeper.core.state import State, acl_of
from replitree.keeper.core.wire import STAT_BYTES, EventType, Stat, buffer_bytes, int32, stat_of

PERSISTENT: Final = -1
"""Lifetime of a node that is neither container nor TTL node."""

CONTAINER: Final = 0
"""Lifetime of a container."""


class Change(NamedTuple):
    """One change of one node, for its watches.

    Attributes
    ----------
    kind
        CREATED, DELETED or DATA_CHANGED.
    path
        The node.
    acl
        Its ACL; of a node that was deleted, the last one.
    parent_acl
        The ACL of its parent.
    """

    kind: EventType
    path: bytes
    acl: bytes
    parent_acl: bytes


class Moment(NamedTuple):
    """When a change happens.

    Attributes
    ----------
    zxid
        Its transaction.
    now_ms
        The time of its batch, in milliseconds since 1970.
    """

    zxid: int
    now_ms: int


def create(
    state: State, path: bytes, data: bytes | None, acl: bytes, owner: int, lifetime_ms: int, at: Moment
) -> Change:
    """Create a node whose parent exists.

    Parameters
    ----------
    state
        Is changed.
    path, data, acl
        The node.
    owner
        The session that it ends with; 0 if it does not.
    lifetime_ms
        `PERSISTENT`, `CONTAINER`, or how long it may be without children and changes, in milliseconds.
    at
        Transaction and time.
    """
    parent = parent_of(path)
    stat = Stat(at.zxid, at.zxid, at.now_ms, at.now_ms, 0, 0, 0, owner, len(data or b""), 0, at.zxid)
    state.put(state.nodes, path, buffer_bytes(data) + stat.pack())
    state.put(state.counters, parent, int32(state.counters.get(parent, 0) + 1))
    if acl != OPEN:
        state.put(state.acls, path, acl)
    if lifetime_ms != PERSISTENT:
        state.put(state.lifetimes, path, lifetime_ms)
    if owner:
        state.put_in(state.ephemerals, owner, path, is_in=True)
    state.put_in(state.children, parent, name_of(path), is_in=True)
    _count_children(state, parent, at.zxid)
    quota.created(state, path, len(data or b""))
    return Change(EventType.CREATED, path, acl, acl_of(state, parent))


def delete(state: State, path: bytes, zxid: int) -> Change:
    """Delete a node that has no children."""
    parent, acl = parent_of(path), acl_of(state, path)
    stat = stat_of(state.nodes[path])
    state.put(state.nodes, path, None)
    for table in (state.counters, state.acls, state.lifetimes):
        if path in table:
            state.put(table, path, None)
    if stat.owner:
        state.put_in(state.ephemerals, stat.owner, path, is_in=False)
    state.put_in(state.children, parent, name_of(path), is_in=False)
    _count_children(state, parent, zxid)
    quota.deleted(state, path, stat.data_bytes)
    return Change(EventType.DELETED, path, acl, acl_of(state, parent))


def set_data(state: State, path: bytes, data: bytes | None, at: Moment) -> Change:
    """Replace a node's data."""
    stat = stat_of(state.nodes[path])
    changed = stat._replace(
        version=next_version(stat.version), mzxid=at.zxid, mtime_ms=at.now_ms, data_bytes=len(data or b"")
    )
    state.put(state.nodes, path, buffer_bytes(data) + changed.pack())
    quota.counted(state, path, changed.data_bytes - stat.data_bytes, 0)
    return Change(EventType.DATA_CHANGED, path, acl_of(state, path), b"")


def set_acl(state: State, path: bytes, acl: bytes) -> None:
    """Replace a node's ACL; no event reports it."""
    record = state.nodes[path]
    stat = stat_of(record)
    changed = stat._replace(aversion=next_version(stat.aversion))
    state.put(state.nodes, path, record[:-STAT_BYTES] + changed.pack())
    state.put(state.acls, path, None if acl == OPEN else acl)


def next_version(version: int) -> int:
    """Return the version after a change.

    >>> next_version(0), next_version(-2), next_version(2**31 - 1)
    (1, 0, -2147483648)
    """
    following = int32(version + 1)
    return 0 if following == -1 else following


def _count_children(state: State, parent: bytes, zxid: int) -> None:
    record = state.nodes[parent]
    count = len(state.children.get(parent, ()))
    cversion = int32(2 * state.counters.get(parent, 0) - count)
    changed = stat_of(record)._replace(cversion=cversion, children=count, pzxid=zxid)
    state.put(state.nodes, parent, record[:-STAT_BYTES] + changed.pack())


def ephemerals_of(state: State, session: int) -> list[bytes]:
    """Return the ephemeral nodes of a session in the order of their creation; those of one multi by their paths."""
    # Not the order of the table: a multi that failed, and a snapshot, may change that one.
    return sorted(state.ephemerals.get(session, ()), key=lambda path: (stat_of(state.nodes[path]).czxid, path))
