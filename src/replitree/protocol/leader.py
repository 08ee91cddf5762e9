"""Leader election: who chooses the merges.

Whoever wants to lead creates an ephemeral sequential node; the lowest one leads.  Nothing depends on there being one leader:
merges of two leaders are decided by the fold.  It only saves proposals that come to nothing.

What it promises: whoever stands and is active has exactly one node, and once all is quiet exactly one of them leads.  So a node
must not be left behind by a replica that believes that it does not stand, for then nobody would lead:

* When it is unknown whether the node was created, the request may still be on its way, and a second try could make a second
  node.  The caller activates again, which fences the request, before it stands again.
* When it is unknown whether the node was deleted, the caller resigns again.

(The recipe of the sources and of ZooKeeper's documentation; ClickHouse's leaders could assign merges that intersect, #1759.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol import layout
from replitree.protocol.effects import (
    ANY_VERSION,
    Applied,
    Check,
    Children,
    Commit,
    Create,
    Delete,
    Epoch,
    GetMany,
    Many,
    Procedure,
    Refused,
    Unknown,
)
from replitree.protocol.layout import Replica


@dataclass(frozen=True, slots=True)
class Leads:
    """The replica leads; `path` is its own node."""

    path: str


@dataclass(frozen=True, slots=True)
class Follows:
    """Another replica leads; the caller is woken when somebody joins or leaves the election."""

    path: str
    leader: str | None


@dataclass(frozen=True, slots=True)
class NotStanding:
    """The replica does not stand for leader: its epoch has passed, or its node is gone.  Stand again."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Whether the replica stands is unknown.  Activate again, then stand again."""


Election: TypeAlias = Leads | Follows | NotStanding | InDoubt


def stand(replica: Replica, epoch: Epoch) -> Procedure[Election]:
    """Stand for leader.

    A node that an earlier try or an earlier process has left behind is found by its value, and used.
    """
    mine = yield from _own_node(replica)
    if mine is not None:
        return (yield from look(replica, mine))
    create = Create(layout.leader_create(replica.table), replica.name.encode(), ephemeral=True, sequential=True)
    committed = yield Commit(Check(layout.host(replica), epoch), create)
    if isinstance(committed, Applied):
        return (yield from look(replica, committed.created[0]))
    return InDoubt() if isinstance(committed, Unknown) else NotStanding()


def look(replica: Replica, path: str) -> Procedure[Election]:
    """Look who leads, and watch for changes.

    Parameters
    ----------
    path
        This replica's own node.
    """
    names: tuple[str, ...] = (yield Children(layout.leader_election(replica.table), watch=True)) or ()
    own = path.rpartition("/")[2]
    if own not in names:
        return NotStanding()
    if names[0] == own:
        return Leads(path)
    node = yield GetMany((f"{layout.leader_election(replica.table)}/{names[0]}",))
    return Follows(path, None if node.nodes[0] is None else node.nodes[0].value.decode())


def resign(replica: Replica, epoch: Epoch, path: str) -> Procedure[bool]:
    """Leave the election; False when that is not certain: do it again, or end the session.

    Parameters
    ----------
    epoch
        The last one that the process has had.
    path
        This replica's own node.
    """
    committed = yield Commit(Check(layout.host(replica), epoch), Delete(path, ANY_VERSION))
    return isinstance(committed, Applied) or (
        isinstance(committed, Refused) and isinstance(committed.operation, Delete)
    )


def _own_node(replica: Replica) -> Procedure[str | None]:
    """Find this replica's own node of the election, of whatever process."""
    parent = layout.leader_election(replica.table)
    names = (yield Children(parent)) or ()
    paths = tuple(f"{parent}/{name}" for name in names)
    many: Many = (yield GetMany(paths)) if paths else Many(())
    own = (
        path
        for path, node in zip(paths, many.nodes, strict=True)
        if node is not None and node.value == replica.name.encode()
    )
    return next(own, None)
