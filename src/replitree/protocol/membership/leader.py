"""Leader election: which replica chooses the merges.

A replica that wants to lead creates an ephemeral sequential node; the lowest one leads.  Safety does not depend on there being
one leader: the fold decides between the merges of two.  One leader only saves proposals that the fold ignores.

Guarantee: an active replica that stands has exactly one node, and once the nodes stop changing exactly one of them leads.  So a
replica that believes that it does not stand must not have left a node, because then no active replica would lead:

* If it is unknown whether the node was created, the request may still be on its way, and a second try could make a second node.
  The caller activates again, which fences the request, before it stands again.
* If it is unknown whether the node was deleted, the caller resigns again.

(The recipe of the sources and of ZooKeeper's documentation; ClickHouse's leaders could assign merges that intersect, #1759.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.values import text_of


@dataclass(frozen=True, slots=True)
class Leads:
    """The replica leads; `path` is its own node."""

    path: str


@dataclass(frozen=True, slots=True)
class Follows:
    """Another replica leads; the caller is woken when a replica joins or leaves the election."""

    path: str
    leader: str | None


@dataclass(frozen=True, slots=True)
class NotStanding:
    """The replica does not stand for leader: its epoch has passed, or its node is gone.  Stand again."""


Election: TypeAlias = Leads | Follows | NotStanding | fx.InDoubt
"""After `InDoubt` the replica activates again, then stands again."""


def stand(replica: Replica, epoch: fx.Epoch) -> fx.Procedure[Election]:
    """Stand for leader.

    A node that an earlier try or an earlier process has left behind is found by its value, and used.
    """
    # An earlier process of this replica may have left a node, which its value names.
    parent = layout.leader_election(replica.table)
    names = (yield fx.Children(parent)) or ()
    paths = tuple(f"{parent}/{name}" for name in names)
    many: fx.Many = (yield fx.GetMany(paths)) if paths else fx.Many(())
    own = (
        path
        for path, node in zip(paths, many.nodes, strict=True)
        if node is not None and node.value == replica.name.encode()
    )
    mine = next(own, None)
    if mine is not None:
        return (yield from look(replica, mine))
    create = fx.Create(layout.leader_create(replica.table), replica.name.encode(), ephemeral=True, sequential=True)
    committed = yield fx.Commit(fx.Check(layout.host(replica), epoch), create)
    if isinstance(committed, fx.Applied):
        return (yield from look(replica, committed.created[0]))
    return fx.InDoubt() if isinstance(committed, fx.Unknown) else NotStanding()


def look(replica: Replica, path: str) -> fx.Procedure[Election]:
    """Look who leads, and watch for changes.

    Parameters
    ----------
    path
        This replica's own node.
    """
    names: tuple[str, ...] = (yield fx.Children(layout.leader_election(replica.table), watch=True)) or ()
    own = path.rpartition("/")[2]
    if own not in names:
        return NotStanding()
    if names[0] == own:
        return Leads(path)
    first = f"{layout.leader_election(replica.table)}/{names[0]}"
    node = yield fx.GetMany((first,))
    return Follows(path, None if node.nodes[0] is None else text_of(node.nodes[0].value, first))


def resign(replica: Replica, epoch: fx.Epoch, path: str) -> fx.Procedure[bool]:
    """Leave the election; False when that is not certain: do it again, or end the session.

    Parameters
    ----------
    epoch
        The last one that the process has had.
    path
        This replica's own node.
    """
    committed = yield fx.Commit(fx.Check(layout.host(replica), epoch), fx.Delete(path, fx.ANY_VERSION))
    return isinstance(committed, fx.Applied) or (
        isinstance(committed, fx.Refused) and isinstance(committed.operation, fx.Delete)
    )
