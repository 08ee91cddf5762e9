"""Objects as files that Arrow opens by itself: its own client reads column chunks side by side, outside of Python.

Only for reading what is known to be there; everything that changes a store goes through `replitree.storage.objects.store`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from replitree.errors import BadInput
from replitree.storage.objects.location import CONNECT_S_MAX, REQUEST_S_MAX, Keys, StoreLocation

if TYPE_CHECKING:
    import pyarrow.fs as pafs


def arrow_filesystem(location: StoreLocation, keys: Keys) -> pafs.FileSystem:
    """Return Arrow's client for a bucket; its paths begin with the bucket's name.

    Parameters
    ----------
    location
        Where the store is.
    keys
        What signs requests.

    Raises
    ------
    BadInput
        It is no bucket.
    """
    import pyarrow.fs as pafs

    if location.scheme != "s3":
        raise BadInput(f"{location} is no bucket")
    server = urlsplit(location.endpoint)
    return pafs.S3FileSystem(
        access_key=keys.access,
        secret_key=keys.secret,
        session_token=keys.session or None,
        region=location.region,
        scheme=server.scheme or "https",
        endpoint_override=server.netloc or None,
        connect_timeout=CONNECT_S_MAX,
        request_timeout=REQUEST_S_MAX,
    )


__all__ = ["arrow_filesystem"]
