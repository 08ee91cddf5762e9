"""Names of object stores in what clients say: each is replaced by the URL that the servers of the cluster have for it."""

from __future__ import annotations

from dataclasses import replace

from replitree.client.transport.catalog import Catalog
from replitree.errors import BadInput
from replitree.storage.schema.storage_policy import STORE_NAME, parse_storage


def is_named(storage: str) -> bool:
    """Whether a storage policy names its store.

    >>> is_named("cold"), is_named("tiered(cold, older=7d)"), is_named("file:///lake"), is_named("local")
    (True, True, False, False)
    """
    return STORE_NAME.fullmatch(parse_storage(storage).url) is not None


def with_url(catalog: Catalog, storage: str) -> str:
    """Return a storage policy with the URL in the place of a store's name; one without a name as it is.

    Raises
    ------
    BadInput
        It is no policy, or the cluster has no store of this name; says which it has.
    """
    if not is_named(storage):
        return storage
    policy = parse_storage(storage)
    stores = catalog.stores()
    if policy.url not in stores:
        known = ", ".join(stores) or "none"
        raise BadInput(
            f"{storage!r}: the cluster has no store called {policy.url!r} (it has: {known}); name it in [stores] of a server's"
            " configuration and start that, or say the URL"
        )
    return replace(policy, url=stores[policy.url]).text


__all__ = ["is_named", "with_url"]
