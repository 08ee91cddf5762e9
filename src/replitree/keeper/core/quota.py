"""Quotas: what a subtree holds is counted in a node, `/zookeeper/quota/PATH/zookeeper_stats`, as `count=N,bytes=N`.

A subtree is counted while `/zookeeper/quota/PATH/zookeeper_limits` exists; the innermost such subtree counts a node.  Limits
only warn.  Counting changes the data of the statistics node and nothing else of it: no version, no time, no event.

ZooKeeper 3.9.5 stops for good when the data of a statistics node is not of that form.  Here such a node is not counted in.
"""

from __future__ import annotations

import re
from typing import Final

from replitree.keeper.core.state import State, descendants
from replitree.keeper.core.wire import STAT_BYTES, buffer_bytes, stat_of

FOLDER: Final = b"/zookeeper/quota"
LIMITS: Final = b"/zookeeper_limits"
STATS: Final = b"/zookeeper_stats"

_COUNT_DIGITS: Final = 18
_STATS = re.compile(rb"count=(-?\d{1,%d}),bytes=(-?\d{1,%d})(.*)" % (_COUNT_DIGITS, _COUNT_DIGITS), re.DOTALL)


def created(state: State, path: bytes, size: int) -> None:
    """Count a node that was created."""
    if is_limit(path):
        state.put(state.limited, subject(path, LIMITS), True)
    elif path.startswith(FOLDER) and path.endswith(STATS):
        _count_anew(state, path)
    counted(state, path, size, 1)


def deleted(state: State, path: bytes, size: int) -> None:
    """Count a node that was deleted."""
    if is_limit(path):
        state.put(state.limited, subject(path, LIMITS), None)
    counted(state, path, -size, -1)


def counted(state: State, path: bytes, size: int, nodes: int) -> None:
    """Add bytes and nodes to what the innermost counted subtree holds that a path is in."""
    at = path if state.limited else b""
    while at:
        if at in state.limited:
            _add(state, FOLDER + at + STATS, size, nodes)
            return
        at = at[: at.rindex(b"/")]


def is_limit(path: bytes) -> bool:
    """Whether a node with this path makes a subtree counted."""
    return path.startswith(FOLDER) and path.endswith(LIMITS)


def subject(path: bytes, name: bytes) -> bytes:
    """Return the top of the subtree that a node of a quota, with the name `LIMITS` or `STATS`, is about."""
    return path[len(FOLDER) : -len(name)]


def _add(state: State, stats: bytes, size: int, nodes: int) -> None:
    record = state.nodes.get(stats)
    found = _STATS.fullmatch(record[4:-STAT_BYTES]) if record else None
    if found:
        _write(state, stats, int(found[1]) + nodes, int(found[2]) + size, found[3])


def _count_anew(state: State, stats: bytes) -> None:
    found = _STATS.fullmatch(state.nodes[stats][4:-STAT_BYTES])
    top = subject(stats, STATS)
    if not found or top not in state.nodes:
        return
    below = [top, *descendants(state, top)]
    size = sum(stat_of(state.nodes[path]).data_bytes for path in below)
    _write(state, stats, len(below), size, found[3])


def _write(state: State, stats: bytes, nodes: int, size: int, rest: bytes) -> None:
    data = b"count=%d,bytes=%d" % (nodes, size) + rest
    stat = stat_of(state.nodes[stats])._replace(data_bytes=len(data))
    state.put(state.nodes, stats, buffer_bytes(data) + stat.pack())
