"""Named nodes: a table's tags and consumers, each a node below one parent whose version counts their changes.

Every change is one commit: it proves the epoch of the replica that makes it, raises the version of the parent, and creates,
replaces or deletes one node.  So a replica that knows the nodes at a version of the parent reads them again only when that has
changed; and of a change whose answer is lost the next epoch says whether it took place.

A node is replaced or deleted by compare-and-set, and what is compared is the version of the parent: a node that was deleted and
created again may have the version of the earlier one.

A replica that deletes what named nodes keep reads them after it has chosen what to delete, and before it deletes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from replitree.errors import InvalidName
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.activate import Activated, NoEpoch, Replaced, newer_epoch, renew_epoch

NODE_BYTES_MAX = 900_000
"""Bytes of a named node at most: ZooKeeper takes 1 MB in one commit."""

TRIES_MAX = 10
"""Tries of a commit while others change named nodes at the same time."""

NAME_LENGTH_MAX = 100

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")

Answer = TypeVar("Answer")


class NodeValue(Protocol):
    """The value of a named node."""

    @property
    def id(self) -> fx.EntryId:
        """The id of the command that made it."""


Value = TypeVar("Value", bound=NodeValue)


def check_node_name(name: str, what: str) -> str:
    """Return `name` if a tag or a consumer may have it: an index or a time never looks like one.

    Parameters
    ----------
    name
        The name.
    what
        Whose it is, for the error: "a tag".

    Raises
    ------
    InvalidName
        It is not a letter followed by letters, digits, ``_``, ``.`` and ``-``, or is too long.
    """
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise InvalidName(
            f"{name!r} can't be {what}'s name: use letters, digits, _, . and -, a letter first,"
            f" at most {NAME_LENGTH_MAX} characters"
        )
    return name


@dataclass(frozen=True, slots=True)
class NodeList:
    """The nodes below a parent by name, ascending, and a version of the parent at which they were so, or newer."""

    version: fx.Version | None = None
    nodes: tuple[tuple[str, fx.Node], ...] = ()


def list_nodes(parent: str, known: fx.Version | None) -> fx.Procedure[NodeList | None]:
    """Read the nodes below a parent; None: it still has the version that is known.

    Parameters
    ----------
    parent
        The parent's path; the parent comes with the first node.
    known
        The version of the parent when its nodes were read last; None: they were not.
    """
    node: fx.Node | None = yield fx.Get(parent)
    if node is None:
        return NodeList()
    if node.version == known:
        return None
    # The version is read before the list: a change in between is read the next time.
    names: tuple[str, ...] = (yield fx.Children(parent)) or ()
    many: fx.Many = yield fx.GetMany(tuple(f"{parent}/{name}" for name in names))
    found = zip(names, many.nodes, strict=True)
    return NodeList(node.version, tuple((name, each) for name, each in found if each is not None))


@dataclass(frozen=True, slots=True)
class NodeThere(Generic[Value]):
    """What has the name now; None: nothing.  It is this command's own when it has its id."""

    value: Value | None


@dataclass(frozen=True, slots=True)
class NotChanged:
    """Nothing was changed, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class NodeChange(Generic[Answer]):
    """What is done to a node if it is as it was read, and the answer when it is done; None: nothing is done."""

    operation: fx.Set | fx.Delete | None
    answer: Answer


Decode: TypeAlias = Callable[[bytes, str], Value]
"""Reads the value of a node, given its path for errors."""

Failure: TypeAlias = NotChanged | Replaced | fx.InDoubt
"""After `InDoubt` the change may take place until the replica has another epoch."""

BUSY = NotChanged("others change the same all the time; try again")


def make_node(
    replica: Replica, me: bytes, epoch: fx.Epoch, path: str, value: Value, encoded: bytes, decode: Decode[Value]
) -> fx.Procedure[NodeThere[Value] | Failure]:
    """Create a named node, and its parent with the first one.

    Parameters
    ----------
    replica, me, epoch
        The replica that makes it, the process that acts for it, and its epoch.
    path, value, encoded
        The node.
    decode
        Reads a node that is there.
    """
    parent, has_parent = path.rpartition("/")[0], True
    for _ in range(TRIES_MAX):
        counted = fx.Set(parent, b"", fx.ANY_VERSION) if has_parent else fx.Create(parent)
        outcome = yield from _commit(replica, me, epoch, counted, fx.Create(path, encoded))
        match outcome:
            case fx.Applied():
                return NodeThere(value)
            case int(newer):
                epoch = fx.Epoch(newer)
            case fx.Refused(operation=fx.Create(path=refused)) if refused == path:
                return (yield from _found(path, decode))
            case fx.Refused():
                has_parent = not has_parent
                continue
            case _:
                return outcome
        # An earlier commit of this call may have taken place.
        known = yield from _found(path, decode)
        if known.value is not None:
            return known
    return BUSY


def change_node(
    replica: Replica,
    me: bytes,
    epoch: fx.Epoch,
    path: str,
    decide: Callable[[fx.Node | None, fx.Node | None], NodeChange[Answer]],
) -> fx.Procedure[Answer | Failure]:
    """Replace or delete a named node by compare-and-set.

    Parameters
    ----------
    replica, me, epoch
        As `make_node`.
    path
        The node's.
    decide
        Returns what is to be done with the node as it is now.  Its second argument is the node
        as it was before a commit of this call whose answer was lost; None: there is no such commit.
    """
    parent, tried = path.rpartition("/")[0], None
    for _ in range(TRIES_MAX):
        yield fx.Sync(parent)
        counted: fx.Node | None = yield fx.Get(parent)
        # The version is read before the node, so a change in between refuses the commit.
        node: fx.Node | None = None if counted is None else (yield fx.Get(path))
        decided = decide(node, tried)
        if decided.operation is None:
            return decided.answer
        assert counted is not None, "a node has a parent"
        tried = node
        outcome = yield from _commit(replica, me, epoch, fx.Set(parent, b"", counted.version), decided.operation)
        match outcome:
            case fx.Applied():
                return decided.answer
            case int(newer):
                epoch = fx.Epoch(newer)
            case fx.Refused():
                tried = None
            case _:
                return outcome
    return BUSY


def delete_node(
    replica: Replica, me: bytes, epoch: fx.Epoch, path: str, decode: Decode[Value]
) -> fx.Procedure[NodeThere[Value] | Failure]:
    """Delete a named node; return what it was, or that there is none.  Parameters as `make_node`."""

    def decide(node: fx.Node | None, tried: fx.Node | None) -> NodeChange[NodeThere[Value]]:
        deleted = None if tried is None else decode(tried.value, path)
        value = None if node is None else decode(node.value, path)
        # An earlier commit of this call was applied although its answer was lost.
        if deleted is not None and (value is None or value.id != deleted.id):
            return NodeChange(None, NodeThere(deleted))
        return NodeChange(None if value is None else fx.Delete(path, fx.ANY_VERSION), NodeThere(value))

    return (yield from change_node(replica, me, epoch, path, decide))


def _found(path: str, decode: Decode[Value]) -> fx.Procedure[NodeThere[Value]]:
    """Look what is there now."""
    yield fx.Sync(path.rpartition("/")[0])
    node: fx.Node | None = yield fx.Get(path)
    return NodeThere(None if node is None else decode(node.value, path))


def _commit(
    replica: Replica, me: bytes, epoch: fx.Epoch, *operations: fx.Operation
) -> fx.Procedure[fx.Applied | fx.Refused | fx.Epoch | Failure]:
    """Commit a change of named nodes; an epoch: look again, and commit under it."""
    committed: fx.Committed = yield fx.Commit(fx.Check(layout.host(replica), epoch), *operations)
    match committed:
        case fx.Refused(operation=fx.Check()):
            newer = yield from newer_epoch(replica, me, epoch)
            return NotChanged(newer.reason) if isinstance(newer, NoEpoch) else newer.epoch
        case fx.Unknown():
            # The new epoch decides it: it took place by now, or never will.
            renewed = yield from renew_epoch(replica, me, epoch)
            if isinstance(renewed, Activated):
                return renewed.epoch
            return renewed if isinstance(renewed, Replaced) else fx.InDoubt()
    return committed


__all__ = [
    "NODE_BYTES_MAX",
    "Failure",
    "NodeChange",
    "NodeList",
    "NodeThere",
    "NotChanged",
    "change_node",
    "check_node_name",
    "delete_node",
    "list_nodes",
    "make_node",
]
