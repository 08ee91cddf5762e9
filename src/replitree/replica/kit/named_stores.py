"""Object stores by name: ``[stores]`` in a server's configuration gives each a name, and coordination keeps it for the cluster.

A client says the name where a table is created or moved, and the table's definition gets the URL: what a name means may be
looked up once, and no table changes its store because a line of a file has changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from replitree.coordination.port import Coordination, make_root
from replitree.errors import BadInput
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Applied, Commit, Create, Get
from replitree.storage.schema.storage_policy import STORE_NAME

RESERVED = frozenset({"local", "tiered"})


def check_stores(stores: Mapping[str, str], where: str) -> None:
    """Do nothing with names and URLs of stores that can be used.

    Raises
    ------
    BadInput
        A name can't be one, or a URL is none of a store that replicas can share; says which, and of which file.
    """
    from replitree.storage.schema.definition_checks import check_storage

    for name, url in stores.items():
        if STORE_NAME.fullmatch(name) is None or name in RESERVED:
            raise BadInput(f"{where}: [stores] {name!r} is no name: begin with a-z, go on with a-z, 0-9, - and _")
        try:
            check_storage(url)
        except BadInput as error:
            raise BadInput(f"{where}: [stores] {name}: {error}") from error


def publish_stores(coordination: Coordination, root: str, stores: Mapping[str, str]) -> None:
    """Make the stores of a server's configuration known to the cluster.

    Raises
    ------
    BadInput
        The cluster knows another store by one of these names.
    """
    if stores:
        make_root(coordination, layout.stores(root))
    for name, url in sorted(stores.items()):
        path = layout.store(root, name)
        if isinstance(coordination.perform(Commit(Create(path, url.encode()))), Applied):
            continue
        node = coordination.perform(Get(path))
        if node is not None and node.value.decode() != url:
            raise BadInput(
                f"the store {name!r} is {url} in this server's configuration, and {node.value.decode()} in the cluster:"
                " give it another name, or the same URL"
            )


__all__ = ["check_stores", "publish_stores"]
