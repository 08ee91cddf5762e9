"""Reduce: what becomes of rows with equal order keys under the policies `replacing` and `summing`.

Rows come sorted by the order key, piece by piece; of equal keys, the earlier inserted comes first.  Guarantees: the result
does not depend on where one piece ends and the next begins, so that replicas with other memory limits get the same rows; what
is held back between pieces is one row, however often a key repeats.

Two keys are equal when neither is below the other: null equals null, NaN equals NaN, 0.0 equals -0.0.

*Replacing* keeps one row of each key: the one with the highest version (null is below every version), of equal versions the
last inserted; without a version column, the last inserted.

* A row whose delete marker is true, or a number other than 0, is kept like any other: older rows of its key may lie in other
  parts, or come later.  A final read leaves it out after the reduction (`without_deleted`).  A marker without a value deletes
  nothing.

*Summing* makes one row of each key: its numbers are added, from the first inserted to the last; the other columns are those of
the first.  Null adds nothing; the sum of nothing but nulls is null.

* A row whose sums are all zero or null is left out: it changes no sum over the table.
* A sum that its column can't hold is not made: where the next addition would not fit, a new row begins, and several rows with
  this key remain.  No merge fails, and a sum over the rows is still right.
* ``float`` is added as ``double`` and rounded at the end.  -0.0 becomes 0.0, and there is one NaN: the bits of a sum do not
  depend on the processor.

Absent on purpose: equality across partitions.  Rows of two partitions are never in one merge.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from replitree.storage.parts.order import sort_keys
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.merge_policy import PolicyKind

_Numbers = NDArray[np.int64]

_NEARLY = 1 - 2.0**-20
"""A sum of magnitudes below this share of the limit, computed in floating point, is certainly below the limit."""

_EXACT = decimal.Context(prec=100)


class Reducer(Protocol):
    """Applies a policy to sorted rows that come piece by piece."""

    def reduce(self, rows: pa.Table) -> pa.Table:
        """Give the rows that nothing later can change; the last key is held back."""

    def finish(self) -> pa.Table:
        """Give what was held back."""


def reducer_of(definition: TableDefinition, schema: pa.Schema | None = None) -> Reducer | None:
    """Give what applies the table's policy; None when every row stays.

    Parameters
    ----------
    schema
        Of the rows, when they do not have all columns; those of the order key and of the policy must be there.
    """
    rows_schema = definition.arrow_schema if schema is None else schema
    policy = definition.policy
    if policy.kind is PolicyKind.PLAIN:
        return None
    if policy.kind is PolicyKind.REPLACING:
        return _Replacing(rows_schema, definition.order_by, policy.version)
    return _Summing(rows_schema, definition.order_by, summed_columns(definition))


def without_deleted(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """Return the rows that do not say that their key is deleted.

    Parameters
    ----------
    rows
        What the table's policy has left, with the column that is its delete marker, if it has one.
    definition
        The table, its columns named as in `rows`.
    """
    import pyarrow.compute as pc

    if definition.policy.deleted is None:
        return rows
    marker = rows.column(definition.policy.deleted)
    return rows.filter(pc.invert(marker.cast(pa.bool_()).fill_null(False)))


def summed_columns(definition: TableDefinition) -> tuple[str, ...]:
    """Give the columns that the table's policy adds."""
    return definition.policy.summed(definition.arrow_schema, definition.key_columns)


def group_starts(rows: pa.Table, order_by: Sequence[str]) -> _Numbers:
    """Give the first row of each key, in sorted rows.

    Returns
    -------
    ndarray
        Ascending row numbers; empty only when there are no rows.
    """
    import pyarrow.compute as pc

    if rows.num_rows < 2:
        return np.arange(rows.num_rows)
    changes = np.zeros(rows.num_rows - 1, np.bool_)
    for key in sort_keys(rows, order_by):
        differs = pc.not_equal(key.slice(0, len(key) - 1), key.slice(1))
        changes |= differs.to_numpy(zero_copy_only=False)
    return np.concatenate(([0], np.flatnonzero(changes) + 1))


# --- replacing --------------------------------------------------------------------------------------------------------------


class _Replacing:
    """Keeps one row of each key."""

    def __init__(self, schema: pa.Schema, order_by: Sequence[str], version: str | None) -> None:
        self._order_by = order_by
        self._version = version
        self._held = schema.empty_table()

    def reduce(self, rows: pa.Table) -> pa.Table:
        joined = pa.concat_tables([self._held, rows])
        if not joined.num_rows:
            return joined
        starts = group_starts(joined, self._order_by)
        kept = np.append(starts[1:], joined.num_rows) - 1
        if self._version is not None and len(starts) < joined.num_rows:
            # For each group, the last row among those with its highest version.
            version, groups = joined.column(self._version), _groups(starts, joined.num_rows)
            valid = version.is_valid().to_numpy()
            # Null is below every version, unless the whole key has nothing else.
            eligible = valid | ~np.logical_or.reduceat(valid, starts)[groups]
            numbers = np.where(valid, _integers(version), np.iinfo(np.int64).min)
            newest = np.flatnonzero(eligible & (numbers == np.maximum.reduceat(numbers, starts)[groups]))
            kept = np.empty(len(starts), np.int64)
            # Of several rows of a group numpy keeps the last one written.
            kept[groups[newest]] = newest
        # The last key may go on in the next window.
        self._held = joined.take(kept[-1:])
        return joined.slice(0, len(kept) - 1) if len(kept) == joined.num_rows else joined.take(kept[:-1])

    def finish(self) -> pa.Table:
        return self._held


def _groups(starts: _Numbers, rows: int) -> _Numbers:
    """Give each row's group number."""
    groups = np.zeros(rows, np.int64)
    groups[starts[1:]] = 1
    return np.cumsum(groups)


def _integers(values: pa.ChunkedArray) -> _Numbers:
    """Give whole numbers, dates or timestamps as 64-bit integers, nulls as 0."""
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return np.asarray(values.fill_null(0).cast(pa.int64()).to_numpy())


# --- summing ----------------------------------------------------------------------------------------------------------------


class _Summing:
    """Makes one row of each key.  Inside, a ``float`` column is a ``double`` one: what is held back is not rounded."""

    def __init__(self, schema: pa.Schema, order_by: Sequence[str], summed: Sequence[str]) -> None:
        self._schema = schema
        self._order_by = order_by
        self._summed = summed
        self._floats = [name for name in summed if pa.types.is_floating(schema.field(name).type)]
        self._inside = pa.schema([_widened(field) if field.name in summed else field for field in schema])
        self._held = self._inside.empty_table()

    def reduce(self, rows: pa.Table) -> pa.Table:
        joined = pa.concat_tables([self._held, self._widened(rows)])
        if not joined.num_rows:
            return rows
        starts, sums = group_starts(joined, self._order_by), joined
        if len(starts) < joined.num_rows:
            columns = {name: joined.column(name) for name in self._summed}
            # Before the sums: none of them overflows then, and no merge fails.
            starts = _with_cuts(starts, columns)
            sums = joined.take(starts)
            for name, column in columns.items():
                number = joined.schema.get_field_index(name)
                sums = sums.set_column(number, joined.schema.field(number), _sums(column, starts))
        last = sums.num_rows - 1
        self._held = sums.take([last])
        return self._finished(sums.slice(0, last))

    def finish(self) -> pa.Table:
        return self._finished(self._held)

    def _widened(self, rows: pa.Table) -> pa.Table:
        import pyarrow.compute as pc

        found = rows.cast(self._inside)
        for name in self._floats:
            # -0.0 + 0.0 is 0.0: the sum's bits must not depend on which zero came first.
            values = pc.add(found.column(name), 0.0)
            one_nan = pc.if_else(pc.is_nan(values), math.nan, values)
            found = found.set_column(found.schema.get_field_index(name), found.schema.field(name), one_nan)
        return found

    def _finished(self, sums: pa.Table) -> pa.Table:
        """Give the rows as the table has them, without those that add nothing."""
        import pyarrow.compute as pc

        rows = sums.cast(self._schema)
        empty: Any = True
        for name in self._summed:
            column = rows.column(name)
            empty = pc.and_(pc.equal(column, _zero(column.type)).fill_null(True), empty)
        return rows.filter(pc.invert(empty)) if pc.any(empty).as_py() else rows


def _widened(field: pa.Field) -> pa.Field:
    return field.with_type(pa.float64()) if pa.types.is_floating(field.type) else field


def _sums(values: pa.ChunkedArray, starts: _Numbers) -> pa.Array:
    """Add each group, from its first row to its last.  All sums fit."""
    if pa.types.is_decimal(values.type):
        groups = pa.array(_groups(starts, len(values)))
        table = pa.table({"group": groups, "value": values})
        summed = table.group_by("group", use_threads=False).aggregate([("value", "sum")])
        return summed.column("value_sum").cast(values.type).combine_chunks()
    nothing = ~np.logical_or.reduceat(values.is_valid().to_numpy(), starts)
    if pa.types.is_floating(values.type):
        # Not `reduceat`: it adds floating-point numbers in an order that depends on how many there are.
        sums = np.bincount(_groups(starts, len(values)), values.fill_null(0.0).to_numpy())
        return pa.array(np.where(np.isnan(sums), math.nan, sums), pa.float64(), mask=nothing)
    return pa.array(np.add.reduceat(_integers(values), starts), pa.int64(), mask=nothing).cast(values.type)


def _with_cuts(starts: _Numbers, columns: dict[str, pa.ChunkedArray]) -> _Numbers:
    """Add the rows at which a new sum must begin because the next addition would not fit."""
    exact = {name: values for name, values in columns.items() if not pa.types.is_floating(values.type)}
    doubtful = np.zeros(len(starts), np.bool_)
    for values in exact.values():
        # By magnitudes: only where these add up to the limit may an addition not fit, in whatever order it is made.
        magnitudes = np.abs(values.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy())
        sums = np.bincount(_groups(starts, len(values)), magnitudes)
        doubtful |= np.asarray(sums >= float(_limit(values.type)) * _NEARLY)
    if not doubtful.any():
        return starts
    ends = np.append(starts[1:], len(next(iter(exact.values()))))
    cuts = [cut for group in np.flatnonzero(doubtful) for cut in _cuts(int(starts[group]), int(ends[group]), exact)]
    return np.union1d(starts, np.array(cuts, np.int64))


def _limit(arrow: pa.DataType) -> int | decimal.Decimal:
    """Give the least magnitude that a type can't hold as a positive number."""
    if pa.types.is_decimal(arrow):
        return decimal.Decimal(1).scaleb(arrow.precision - arrow.scale)
    bits: int = arrow.bit_width
    return 1 << (bits - 1)


def _cuts(start: int, end: int, columns: dict[str, pa.ChunkedArray]) -> list[int]:
    """Add one group's rows exactly, one after the other; give the rows that must begin a new sum.

    A loop over rows: only keys whose sums come near the limits of a column get here.
    """
    lists = [values.slice(start, end - start).fill_null(_zero(values.type)).to_pylist() for values in columns.values()]
    rows = zip(*lists, strict=True)
    limits = [_limit(values.type) for values in columns.values()]
    sums: list[Any] | None = None
    cuts = []
    with decimal.localcontext(_EXACT):
        for number, row in enumerate(rows, start):
            added = list(row) if sums is None else [a + b for a, b in zip(sums, row, strict=True)]
            # The lowest integer has no positive one beside it; the bounds of a decimal are alike.
            fits = all(
                -limit <= value < limit if isinstance(value, int) else abs(value) < limit
                for value, limit in zip(added, limits, strict=True)
            )
            if not fits:
                cuts.append(number)
            sums = added if fits else list(row)
    return cuts


def _zero(arrow: pa.DataType) -> pa.Scalar:
    return pa.scalar(decimal.Decimal(0) if pa.types.is_decimal(arrow) else 0, arrow)
