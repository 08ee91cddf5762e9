"""Where the data files of a table's parts lie: on every replica's disk, in an object store that the replicas share, or both.

===================================  =========================================================================================
``local``                            every replica has its own copy on its disk
a URL                                in that store; see `replitree.storage.objects.location`
``tiered(URL, older=7d)``            new parts on the disks; those that have lain there for so long are moved into the store
``tiered(URL, free=100GB)``          …, and, while a disk has less room than that, those that have lain there longest
``local(URL)``                       on the disks; what still lies in that store is moved out of it
===================================  =========================================================================================

`older` and `free` may both be given.  Users never say ``local(URL)``: a table that leaves its store has it until nothing of it
is left there.

Absent on purpose: which part is moved when (`replitree.replica.table.mover`), and how (`replitree.protocol.shares.moving`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from replitree.errors import BadInput

STORE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
"""Names that a store may have; no URL looks like this."""

LOCAL = "local"
"""Storage policy of a table of which every replica has its own copy."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_CALL = re.compile(
    r"(?P<kind>tiered|local)\(\s*(?P<url>.+?)\s*(?:,\s*older\s*=\s*(?P<older>[0-9]{1,9}[smhd]))?"
    r"\s*(?:,\s*free\s*=\s*(?P<free>[0-9]{1,15}(?:B|KB|MB|GB|TB)))?\s*\)"
)


class StorageKind(Enum):
    """Where new parts go, and where old ones are moved to."""

    LOCAL = "local"
    SHARED = "shared"
    TIERED = "tiered"


@dataclass(frozen=True, slots=True)
class StoragePolicy:
    """A storage policy taken apart.

    Attributes
    ----------
    kind
        Where the data files belong.
    url
        Of the object store; empty for a table that has none.
    older, free
        Of a tiered table, as they were written, or empty: for how long parts lie on a disk, and the room that is to be there.
    """

    kind: StorageKind
    url: str = ""
    older: str = ""
    free: str = ""

    @property
    def text(self) -> str:
        """The form that a table's node stores; `parse_storage` reads it."""
        match self.kind:
            case StorageKind.LOCAL:
                return f"local({self.url})" if self.url else LOCAL
            case StorageKind.SHARED:
                return self.url
        when = [f"older={self.older}"] if self.older else []
        when += [f"free={self.free}"] if self.free else []
        return f"tiered({', '.join([self.url, *when])})"

    @property
    def older_s(self) -> int | None:
        """For how many seconds a part lies on a disk; None: as long as there is room."""
        return int(self.older[:-1]) * _SECONDS[self.older[-1]] if self.older else None

    @property
    def free_bytes(self) -> int:
        """Below how many free bytes of a disk parts are moved into the store."""
        found = re.fullmatch(r"([0-9]+)([A-Z]+)", self.free)
        return 0 if found is None else int(found.group(1)) * _BYTES[found.group(2)]


@lru_cache(maxsize=256)
def parse_storage(text: str) -> StoragePolicy:
    """Read a storage policy.  Whether replicas can share the store is left to `check_storage`.

    Raises
    ------
    BadInput
        It is none of the forms.

    Examples
    --------
    >>> parse_storage("tiered( s3://lake/t , older=7d)").text
    'tiered(s3://lake/t, older=7d)'
    >>> parse_storage("tiered(file:///lake, free=20GB)").free_bytes
    20000000000
    """
    if text == LOCAL:
        return StoragePolicy(StorageKind.LOCAL)
    call = _CALL.fullmatch(text.strip())
    if call is None:
        if text.startswith(("tiered", "local")):
            raise BadInput(
                f"{text!r} is no storage policy: say tiered(URL, older=7d), tiered(URL, free=100GB), a URL, or local; units are"
                f" {', '.join(_SECONDS)} and {', '.join(_BYTES)}"
            )
        return StoragePolicy(StorageKind.SHARED, text)
    kind, older, free = StorageKind(call["kind"]), call["older"] or "", call["free"] or ""
    if kind is StorageKind.TIERED and not (older or free):
        raise BadInput(
            f"{text!r} does not say when parts are moved into the store: add older=7d, or free=100GB, or both;"
            f" units are {', '.join(_SECONDS)} and {', '.join(_BYTES)}"
        )
    if kind is StorageKind.LOCAL and (older or free):
        raise BadInput(f"{text!r}: parts of a local table are moved nowhere; leave {'older' if older else 'free'} out")
    return StoragePolicy(kind, call["url"], older, free)


def switched(before: StoragePolicy, asked: StoragePolicy) -> StoragePolicy:
    """Return the policy that a table has when another one is asked for.

    Raises
    ------
    BadInput
        The table's parts lie in another store: one thing after the other.
    """
    if asked.kind is StorageKind.LOCAL:
        # Parts that lie in the store are still read from there until the last one was moved out.
        return replace(asked, url=before.url)
    if before.url and before.url != asked.url:
        raise BadInput(
            f"the table's parts lie in {before.url}: switch to local first, and to {asked.url} when nothing is left there"
        )
    return asked


__all__ = ["LOCAL", "StorageKind", "StoragePolicy", "parse_storage", "switched"]
