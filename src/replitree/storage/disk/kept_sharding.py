"""What a shard's folder says of its sharded table: `replitree restore` needs it when coordination has lost everything.

* ``sharding.json``: which sharded table it is, its map and its placement; replaced as a whole, and synced
* ``standing.json``: at which cuts the parts of this folder are all that the shard had; replaced as a whole, and not synced

Both have a checksum of their own bytes.  A machine that fails may lose the last ``standing.json``, or keep an earlier one; then
its parts are not those on the disk, or its checksum is wrong, and it is not known where the shard stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec
import xxhash

from replitree.decoding import json_decoder
from replitree.errors import StoreError, UnsupportedFormat
from replitree.storage.disk.kept_definition import keep_sealed
from replitree.storage.files.durable import store_errors
from replitree.storage.files.sealed_json import unseal

SHARDING_FILE, STANDING_FILE = "sharding.json", "standing.json"
SHARDING_FORMAT = 1

T = TypeVar("T", "KeptSharding", "KeptStanding")


class KeptSharding(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``sharding.json``.

    Attributes
    ----------
    table_id, incarnation
        Of the sharded table.
    version
        Of its node ``map``.
    map, placement
        The values of its nodes ``map`` and ``placement``.
    """

    format: int = SHARDING_FORMAT
    table_id: str
    incarnation: str
    version: int
    map: msgspec.Raw
    placement: msgspec.Raw


class KeptStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``standing.json``.

    Attributes
    ----------
    ensemble, first, last
        The id of the ensemble, and the first and the last transaction at which the shard was what its parts are.
    parts
        Which parts these are (`parts_digest`).
    """

    format: int = SHARDING_FORMAT
    ensemble: str
    first: int
    last: int
    parts: str


def parts_digest(parts: Iterable[str]) -> str:
    """Return what tells one set of parts from another; the order of the names does not matter.

    >>> parts_digest(["b", "a"]) == parts_digest(["a", "b"]), parts_digest(["a"]) == parts_digest([])
    (True, False)
    """
    return xxhash.xxh3_128_hexdigest("\n".join(sorted(parts)).encode())


def keep_sharding(root: Path, value: KeptSharding) -> None:
    """Write ``sharding.json``, durably, unless it is there already.

    Raises
    ------
    StoreError
        The disk is full or failing.
    """
    keep_sealed(root / SHARDING_FILE, msgspec.json.encode(value))


def keep_standing(root: Path, value: KeptStanding) -> None:
    """Write ``standing.json``; it is not synced.

    Raises
    ------
    StoreError
        The disk is full or failing.
    """
    keep_sealed(root / STANDING_FILE, msgspec.json.encode(value), durable=False)


def read_sharding(root: Path) -> KeptSharding | None:
    """Read ``sharding.json``; None: there is none.

    Raises
    ------
    UnsupportedFormat
        It was written by a newer replitree.
    StoreError
        It can't be read, or is not what its checksum says.
    """
    path = root / SHARDING_FILE
    with store_errors(f"read {path}"):
        if not path.exists():
            return None
        content = path.read_bytes()
    return _decoded(path, content, KeptSharding)


def read_standing(root: Path) -> KeptStanding | None:
    """Read ``standing.json``; None: there is none, or it is damaged, as a failing machine may leave it.

    Raises
    ------
    UnsupportedFormat
        It was written by a newer replitree.
    """
    path = root / STANDING_FILE
    try:
        return _decoded(path, path.read_bytes(), KeptStanding)
    except (StoreError, OSError):
        return None


def _decoded(path: Path, content: bytes, kind: type[T]) -> T:
    try:
        found = json_decoder(kind).decode(unseal(content, SHARDING_FORMAT))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} can't be read ({error}); take that of another replica of the shard") from error
    if found.format > SHARDING_FORMAT:
        raise UnsupportedFormat(f"{path} has format {found.format}, this replitree knows {SHARDING_FORMAT}; upgrade it")
    return found


__all__ = [
    "SHARDING_FILE",
    "STANDING_FILE",
    "KeptSharding",
    "KeptStanding",
    "keep_sharding",
    "keep_standing",
    "parts_digest",
    "read_sharding",
    "read_standing",
]
