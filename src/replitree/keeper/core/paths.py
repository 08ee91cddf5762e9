"""Paths of nodes, as UTF-8."""

from __future__ import annotations

import re
from typing import Final

from replitree.keeper.core.wire import Code, Refused

ROOT: Final = b"/"
SPECIAL: Final = frozenset((b"/", b"/zookeeper", b"/zookeeper/quota", b"/zookeeper/config"))
"""Nodes that can't be deleted."""

_RELATIVE = frozenset((b"", b".", b".."))
_ASCII_FORBIDDEN = re.compile(rb"[\x00-\x1f\x7f]")
# Java compares UTF-16 units, so that everything beyond U+FFFF counts as a surrogate, which is forbidden.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


def is_valid(path: bytes) -> bool:
    """Whether a node may have this path.

    >>> is_valid(b"/a/b"), is_valid(b"/"), is_valid(b"/a/"), is_valid(b"/a/../b"), is_valid(b"a")
    (True, True, False, False, False)
    """
    if path == ROOT:
        return True
    if not path.startswith(b"/") or not _RELATIVE.isdisjoint(path[1:].split(b"/")):
        return False
    if path.isascii():
        return not _ASCII_FORBIDDEN.search(path)
    return not _FORBIDDEN.search(path.decode("utf-8", "replace"))


def check_valid(path: bytes) -> None:
    """Refuse a path that no node may have."""
    if not is_valid(path):
        raise Refused(Code.BAD_ARGUMENTS)


def parent_of(path: bytes) -> bytes:
    """Return the parent of a path that has one slash at least: the root's own parent is the root.

    >>> parent_of(b"/a/b"), parent_of(b"/a"), parent_of(b"/a/")
    (b'/a', b'/', b'/a')
    """
    return path[: path.rindex(b"/")] or ROOT


def checked_parent(path: bytes) -> bytes:
    """Return the parent; refuse a path without a slash, or with a NUL."""
    if b"/" not in path or b"\0" in path:
        raise Refused(Code.BAD_ARGUMENTS)
    return parent_of(path)


def name_of(path: bytes) -> bytes:
    """Return the last component.

    >>> name_of(b"/a/b")
    b'b'
    """
    return path[path.rindex(b"/") + 1 :]


def node_at(path: bytes) -> bytes:
    """Return where to look for a node: the empty path is the root."""
    return path or ROOT
