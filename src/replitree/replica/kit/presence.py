"""Where the servers of a cluster are: each says so in coordination, for as long as it has a session.

The nodes of a table say where its replicas serve.  When coordination has lost its tables these are gone, and no server could be
asked what lies on the disks: with these nodes the doctor can ask all the same.  It is said again when it is lost, too.
"""

from __future__ import annotations

from replitree.coordination.port import Coordination, make_root
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Commit, Create, Exists
from replitree.wire.identity import Identity


def announce(coordination: Coordination, root: str, name: str, identity: Identity) -> None:
    """Say where this server is, unless that is said already, and be woken when the node goes.

    Parameters
    ----------
    coordination, root
        The server's session, and the node below which the cluster's nodes lie.
    name, identity
        Of its replicas, and of its process: no two processes share a node.

    Raises
    ------
    CoordinationUnavailable
        It could not be done, or not be known; do it again.
    """
    path = layout.server(root, name, identity.incarnation)
    if not coordination.perform(Exists(path)):
        make_root(coordination, layout.servers(root))
        coordination.perform(Commit(Create(path, identity.encode(), ephemeral=True)))
    coordination.perform(Exists(path, watch=True))


__all__ = ["announce"]
