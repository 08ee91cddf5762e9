"""The names that a replica gives for data files which a client puts into the table's object store itself."""

from __future__ import annotations

import msgspec


class ShareNames(msgspec.Struct, frozen=True):
    """Names for the data files of one partition: in a share, numbered from `first` on."""

    share: str
    first: int
