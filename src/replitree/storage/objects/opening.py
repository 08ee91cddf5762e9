"""Opening an object store: the client of its kind, with the identity that this process has.

::

    location   which store, from a URL
    identity   which one we have there: keys that were written down, or the provider's chain (`amazon`, `google`, `azure`)
    store      what is done with the client

What the client libraries of the stores promise, and rely on:

========  ==================================  ===========================================  ================================
store     create only what is not there       replace only what is as it was read          a listing
========  ==================================  ===========================================  ================================
``s3``    ``If-None-Match: *``                ``If-Match`` with the ETag                   in order, from any key on
``gs``    ``x-goog-if-generation-match: 0``   the same with the generation                 in order, from any key on
``az``    ``If-None-Match: *``                ``If-Match`` with the ETag                   taken as of no order
========  ==================================  ===========================================  ================================
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store

from replitree import private
from replitree.errors import StoreError
from replitree.storage.objects.amazon import amazon_source
from replitree.storage.objects.azure import azure_source
from replitree.storage.objects.google import google_source
from replitree.storage.objects.identity import CredentialSource, StoreIdentity
from replitree.storage.objects.location import AMAZON, AZURE, GOOGLE, StoreLocation
from replitree.storage.objects.store import PIECE_PATIENCE_S, PIECE_TRIES, ObjectStore

if TYPE_CHECKING:
    from obstore.store import RetryConfig

    Client = S3Store | GCSStore | AzureStore

CONNECT_S_MAX = 5
REQUEST_S_MAX = 60

ONCE: RetryConfig = {"max_retries": 0}
"""Retries of all requests but pieces of uploads: `ObjectStore` must know when an answer did not come."""

PIECE_RETRIES: RetryConfig = {
    "max_retries": PIECE_TRIES,
    "retry_timeout": timedelta(seconds=PIECE_PATIENCE_S),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2},
}


def open_store(
    location: StoreLocation | str, *, environment: Mapping[str, str] | None = None, **settings: Any
) -> ObjectStore:
    """Open an object store.  Nothing is asked of it yet; see `probe`.

    Parameters
    ----------
    location
        Where it is.
    environment
        Where credentials are looked for; the process's own by default, and only then by the provider's chain, too.
    settings
        As of `ObjectStore`.

    Raises
    ------
    BadInput
        It is no such URL.
    NotAuthorized
        There are no credentials, their file can't be read, or the extra that an identity needs is not installed.
    StoreError
        The folder can't be made, or the provider of the identity does not answer.
    """
    if isinstance(location, str):
        location = StoreLocation.parse(location)
    if location.scheme == "memory":
        return ObjectStore(MemoryStore(), str(location), **settings)
    if location.scheme == "file":
        folder = Path(location.place)
        try:
            private.make_folder(folder, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"can't make the folder {folder} for objects: {error.strerror}") from error
        return ObjectStore(LocalStore(folder), str(location), folder=folder, **settings)
    bucket = _Bucket(location, identity_for(location, environment))
    raw, pieces = bucket.open()
    return ObjectStore(raw, str(location), pieces=pieces, renew=bucket.renew, **settings)


def identity_for(location: StoreLocation, environment: Mapping[str, str] | None = None) -> StoreIdentity:
    """Find the identity of this process at a store that is a server's.

    Parameters
    ----------
    location, environment
        As of `open_store`.

    Raises
    ------
    NotAuthorized, StoreError
        As of `open_store`.
    """
    given = None if environment is os.environ else environment
    finders: dict[str, Callable[..., CredentialSource]] = {
        AMAZON: partial(amazon_source, given, location.region),
        GOOGLE: google_source,
        AZURE: partial(azure_source, given),
    }
    find = finders[location.scheme]
    return StoreIdentity(find(), partial(find, is_fresh=True))


class _Bucket:
    """A bucket and the identity that it was opened with, which may be replaced while it is in use."""

    def __init__(self, location: StoreLocation, identity: StoreIdentity) -> None:
        self._location, self._identity = location, identity

    def open(self) -> tuple[Client, Client]:
        """Return the clients of `ObjectStore`: for requests, and for uploads in pieces."""
        return _client(self._location, self._identity, ONCE), _client(self._location, self._identity, PIECE_RETRIES)

    def renew(self) -> tuple[Client, Client] | None:
        """Return clients with the credentials that are there now; None if they are those that were refused."""
        # A file may have been rewritten, a role may have been given to the machine.
        renewed = self._identity.renewed()
        if renewed is None:
            return None
        self._identity = renewed
        return self.open()


def _client(location: StoreLocation, identity: StoreIdentity, retries: RetryConfig) -> Client:
    shared: dict[str, Any] = {
        "prefix": location.prefix or None,
        "credential_provider": identity,
        "client_options": {
            "allow_http": location.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=CONNECT_S_MAX),
            "timeout": timedelta(seconds=REQUEST_S_MAX),
        },
        "retry_config": retries,
    }
    if location.scheme == AMAZON:
        # By both names: a variable of the environment would come before the first one.
        named = ("endpoint", "aws_endpoint_url_s3") if location.endpoint else ()
        endpoint: dict[str, Any] = dict.fromkeys(named, location.endpoint)
        return S3Store(location.place, region=location.region, **endpoint, **shared)
    if location.scheme == GOOGLE:
        # Given also where it is Google's: the environment could name another one.
        return GCSStore(location.place, base_url=location.endpoint or "https://storage.googleapis.com", **shared)
    return AzureStore(location.place, account_name=location.account, endpoint=_azure_server(location), **shared)


def _azure_server(location: StoreLocation) -> str:
    """Return the URL below which an account's containers are.

    >>> _azure_server(StoreLocation("az", "lake", account="example"))
    'https://example.blob.core.windows.net'
    >>> _azure_server(StoreLocation("az", "lake", endpoint="http://127.0.0.1:10000", account="example"))
    'http://127.0.0.1:10000/example'
    """
    if not location.endpoint:
        return f"https://{location.account}.blob.core.windows.net"
    server = location.endpoint.rstrip("/")
    # A host that is not named after the account is told of it at the begin of the path, as Azurite is.
    is_named = (urlsplit(server).hostname or "").startswith(f"{location.account}.")
    return server if is_named else f"{server}/{location.account}"


__all__ = ["identity_for", "open_store"]
