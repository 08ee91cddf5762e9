"""Joined: pieces of one part that several processes have written become that part, without reading any row.

Guarantees: the bounds in the statistics hold for every row of all pieces, as those of each hold for its own; the files keep
their order, piece by piece, and each is a sorted run of its own.

The content hash is that of the pieces' hashes (`replitree.storage.parts.content_hash.joined_hash`), unless there is one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from replitree.errors import BadInput
from replitree.storage.parts.content_hash import joined_hash
from replitree.storage.parts.manifest import ColumnStats, PartManifest
from replitree.storage.schema.bounds import Bound, Scalar


def joined_manifest(pieces: Sequence[PartManifest]) -> PartManifest:
    """Return the manifest of the part that has the rows of all pieces.

    Parameters
    ----------
    pieces
        At least one, in the order of the rows; all of one partition, place and schema version, with files of different names.

    Raises
    ------
    BadInput
        They are of several partitions, places or schema versions.
    """
    first = pieces[0]
    if len({(each.partition, each.share_id, each.schema_version, each.partition_values) for each in pieces}) > 1:
        raise BadInput(
            f"these are no pieces of one part of partition {first.partition}: write all of it for one schema"
        )
    if len(pieces) == 1:
        return first
    return msgspec.structs.replace(
        first,
        rows=sum(each.rows for each in pieces),
        bytes=sum(each.bytes for each in pieces),
        files=tuple(file for each in pieces for file in each.files),
        columns={name: _joined(name, pieces) for name in first.columns},
        content_hash=joined_hash(each.content_hash for each in pieces),
    )


def _joined(column: str, pieces: Sequence[PartManifest]) -> ColumnStats:
    """Return the statistics of a column; a bound that one piece does not know is not known."""
    found = [each.columns.get(column) for each in pieces]
    stats = [each for each in found if each is not None]
    nulls, kind = sum(each.nulls for each in stats), stats[0].type
    if len(stats) < len(pieces) or any(each.type != kind for each in stats):
        raise BadInput(
            f"the pieces of a part tell of different columns than {column!r}: write all of it for one schema"
        )
    # A piece of nulls only has no bounds, and does not make those of the others unknown.
    with_values = [each for each, piece in zip(stats, pieces, strict=True) if each.nulls < piece.rows]
    low = _end([(each.low, each.min) for each in with_values], is_low=True)
    return ColumnStats(kind, low, _end([(each.high, each.max) for each in with_values], is_low=False), nulls)


def _end(bounds: Sequence[tuple[Bound | None, Scalar]], *, is_low: bool) -> Scalar:
    """Return the widest of some bounds, as it stands in a manifest; None when there is none, or one is not known."""
    widest: tuple[Any, Scalar] | None = None
    for bound, scalar in bounds:
        if bound is None:
            return None
        if widest is None or (bound < widest[0] if is_low else bound > widest[0]):
            widest = bound, scalar
    return None if widest is None else widest[1]


__all__ = ["joined_manifest"]
