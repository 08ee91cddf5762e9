"""Key ranges: a merge or a final read in pieces that know nothing of each other.

The rows of a partition are cut by the first column of the order key: each range has the rows at or above its lower bound
and below its upper one; rows without a value come first, in the range without a lower bound.  Rows with equal keys are always
in one range.  So the pieces' results, one after the other, are the result of the whole, for every policy.

Any values do as bounds, for they only say where to cut.  `ranges_of` takes them from the footers of the data files, so that
each range has about as many rows as any other.

Absent on purpose: order keys that begin with a number that may be NaN, a boolean or a decimal; such a table is one range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from replitree.storage.parts.manifest import PartManifest
from replitree.storage.parts.verified import CheckedPart
from replitree.storage.rewrite.data_files import DataFile, footer_of
from replitree.storage.schema.definition import TableDefinition

if TYPE_CHECKING:
    import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows by the first column of the order key.

    Attributes
    ----------
    column
        Its stored name.
    lower, upper
        From the one (included) to the other (not included), of the column's type; None: no bound.
    """

    column: str
    lower: pa.Scalar | None
    upper: pa.Scalar | None

    def keep(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are in the range.

        Parameters
        ----------
        rows
            Sorted by the order key.
        """
        # The rows are sorted: counting those below a bound gives the place where it begins.
        first = 0 if self.lower is None else _count_below(rows.column(self.column), self.lower)
        end = rows.num_rows if self.upper is None else _count_below(rows.column(self.column), self.upper)
        return rows.slice(first, max(0, end - first))

    def groups(self, metadata: pq.FileMetaData) -> tuple[int, ...]:
        """Return the row groups of a file that may have rows of the range, by its footer."""
        bound = self.lower if self.lower is not None else self.upper
        # A range without bounds has all rows, so the type does not matter.
        arrow = pa.null() if bound is None else bound.type
        groups = []
        for number in range(metadata.num_row_groups):
            found = _bounds(metadata.row_group(number), self.column, arrow)
            # Nulls sort first: a group that has some is in the first range, whatever its least value is.
            if found is not None and not (self.lower is None and found.has_nulls):
                if self.upper is not None and not _is_below(found.least, self.upper):
                    continue
                if self.lower is not None and _is_below(found.most, self.lower):
                    continue
            groups.append(number)
        return tuple(groups)


def can_be_cut(definition: TableDefinition) -> bool:
    """Tell whether a table's order key begins with a column by which partitions can be cut."""
    if not definition.order_by:
        return False
    kinds, arrow = pa.types, definition.column(definition.order_by[0]).arrow_type
    tests = (kinds.is_integer, kinds.is_date, kinds.is_timestamp, kinds.is_string, kinds.is_binary)
    return any(test(arrow) for test in tests)


def ranges_of(
    parts: Sequence[tuple[Path, PartManifest]], definition: TableDefinition, count: int
) -> tuple[KeyRange | None, ...]:
    """Cut the rows of parts into ranges of about equally many rows.

    Parameters
    ----------
    parts
        Folder and manifest of each.
    definition, count
        As `ranges_of_files`.
    """
    files = [file for folder, manifest in parts for file in CheckedPart(folder, manifest).files]
    return ranges_of_files(files, definition, count)


def ranges_of_files(files: Sequence[DataFile], definition: TableDefinition, count: int) -> tuple[KeyRange | None, ...]:
    """Cut the rows of data files into ranges of about equally many rows.

    Parameters
    ----------
    files
        Where they are opened.
    definition
        The table.
    count
        How many ranges to make; fewer when footers do not say where to cut.

    Returns
    -------
    tuple
        The ranges, ascending; one None when everything is in one.
    """
    if count < 2 or not can_be_cut(definition):
        return (None,)
    table = definition.stored
    column = table.order_by[0]
    # The least key of each row group, and the rows that begin there.
    weights = []
    for metadata in map(footer_of, files):
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            found = _bounds(group, column, table.column(column).arrow_type)
            if found is not None:
                weights.append((found.least, group.num_rows))
    if not weights:
        return (None,)
    import pyarrow.compute as pc

    # Values at which to cut, ascending and different: before each at least its share of the rows begins.
    values = pa.array([value for value, _ in weights], weights[0][0].type)
    total, done, cuts = sum(rows for _, rows in weights), 0, list[pa.Scalar]()
    for index in pc.array_sort_indices(values).to_pylist():
        value, rows = weights[index]
        # Equal keys must not be cut: a key that repeats makes one range larger, and gives the next no bound.
        is_new = not cuts or _is_below(cuts[-1], value)
        if done >= total * (len(cuts) + 1) / count and is_new and len(cuts) < count - 1:
            cuts.append(value)
        done += rows
    bounds = [None, *cuts, None]
    return tuple(KeyRange(column, low, high) for low, high in pairwise(bounds)) if cuts else (None,)


@dataclass(frozen=True, slots=True)
class _Bounds:
    least: pa.Scalar
    most: pa.Scalar
    has_nulls: bool


def _bounds(group: pq.RowGroupMetaData, column: str, arrow: pa.DataType) -> _Bounds | None:
    """Return the bounds of a column in a row group, as values of the column's type; None when the footer has none."""
    leaf = next((c for i in range(group.num_columns) if (c := group.column(i)).path_in_schema == column), None)
    statistics = leaf.statistics if leaf is not None and leaf.is_stats_set else None
    if statistics is None or not statistics.has_min_max:
        return None
    try:
        least, most = (pa.scalar(value, arrow) for value in (statistics.min, statistics.max))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # An older version of the column has values that are written in another way.
        return None
    return _Bounds(least, most, not statistics.has_null_count or statistics.null_count > 0)


def _is_below(one: pa.Scalar, other: pa.Scalar) -> bool:
    import pyarrow.compute as pc

    return bool(pc.less(one, other).as_py())


def _count_below(values: pa.ChunkedArray, bound: pa.Scalar) -> int:
    """Count the rows that come before a bound: those below it, and those without a value."""
    import pyarrow.compute as pc

    return int(values.null_count) + int(pc.sum(pc.less(values, bound)).as_py() or 0)
