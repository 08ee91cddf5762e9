"""Whether an object store can be shared by replicas, tried from this process."""

from __future__ import annotations

from replitree.errors import NotAuthorized


def check_usable(url: str) -> None:
    """Do nothing with an object store that replicas can share and that keeps what it is given.

    Raises
    ------
    BadInput
        It is no URL of such a store, or the store ignores conditions.
    StoreError
        It can't be reached from here.
    NotAuthorized
        It refuses this process, or there are no credentials.
    """
    from replitree.storage.objects.opening import open_store
    from replitree.storage.objects.probe import probe
    from replitree.storage.schema.definition_checks import check_storage

    check_storage(url)
    try:
        probe(open_store(url))
    except NotAuthorized as error:
        raise NotAuthorized(
            f"{error} (in the environment of that replica's server, which has to be started again with it)"
        ) from error


__all__ = ["check_usable"]
