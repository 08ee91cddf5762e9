"""Bounds of a partition: what its values alone say of every row in it, for parts of which nothing else is known.

Guarantees: the manifest that `bounds_manifest` returns proves of no row that it can't match when it might (see
`replitree.storage.sql.predicate`).  It names no files: it is for choosing parts, never for reading them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from replitree.storage.parts.manifest import ColumnStats, PartManifest
from replitree.storage.schema.bounds import Scalar
from replitree.storage.schema.definition import TableDefinition, Transform, TransformKind

_UNITS = {TransformKind.YEAR: "Y", TransformKind.MONTH: "M", TransformKind.DAY: "D", TransformKind.HOUR: "h"}
"""Numpy's units of the transforms that count from 1970."""


def bounds_manifest(definition: TableDefinition, partition: str, values: Sequence[Scalar] | None) -> PartManifest:
    """Return a manifest that says of a part only what its partition says.

    Parameters
    ----------
    values
        What the table's partition transforms give for its rows; None: not known either, and the part may match anything.
    """
    transforms = definition.partition_by
    known = tuple(values) if values is not None and len(values) == len(transforms) else ()
    columns: dict[str, ColumnStats] = {}
    for transform, value in zip(transforms, known, strict=len(known) == len(transforms)):
        stats = _stats(definition.column(transform.column).type, transform, value)
        if stats is not None:
            columns[transform.column] = stats
    return PartManifest(
        partition=partition,
        partition_values=known,
        rows=1,
        bytes=0,
        schema_version=definition.schema_version,
        files=(),
        columns=columns,
        content_hash="0" * 32,
    )


def _stats(type_text: str, transform: Transform, value: Scalar) -> ColumnStats | None:
    """Return what a partition value says of its column in a part that has one row; None: nothing that prunes."""
    # The partition may be that of NaN, which has no bounds; null proves nothing of a bound either.
    if value is None or type_text in ("float", "double"):
        return None
    if transform.kind is TransformKind.IDENTITY:
        return ColumnStats(type_text, value, value)
    unit = _UNITS.get(transform.kind)
    if unit is None or not isinstance(value, int):
        return None
    stored = "D" if type_text == "date" else "us"
    # The first moment of the next month or day, less one: calendar units have no fixed length.
    ends = np.array([value, value + 1]).astype(f"datetime64[{unit}]").astype(f"datetime64[{stored}]").astype(np.int64)
    return ColumnStats(type_text, int(ends[0]), int(ends[1]) - 1)


__all__ = ["bounds_manifest"]
