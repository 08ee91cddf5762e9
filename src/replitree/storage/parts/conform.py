"""Conform: whatever a caller has becomes an Arrow table with exactly the table's schema, or nothing is taken.

Guarantees: the result has the definition's columns in its order, with its types; no null where none may be; every value is the
one that was given.  What can't be had exactly is refused with `SchemaMismatch`, which names the column and what was expected
and found.  The input is not changed, and its buffers are shared where they fit as they are.

Which values are taken, per kind of column (nulls everywhere that nulls may be):

==============  =====================================================================================================
integers        integers of any width and signedness, decimals and floating-point numbers, if each value fits exactly
float, double   integers and floating-point numbers that fit exactly (a Python float is rounded to a `float` column)
decimal         integers and decimals that fit exactly
string, binary  strings and binaries (a string must be UTF-8)
date            dates
timestamp       timestamps in whole microseconds; those without a zone are in the caller's zone, UTC by default
timestamp_ntz   timestamps without a zone, in whole microseconds
==============  =====================================================================================================

Lists, structs (fields by name, in any order; missing ones are null) and maps likewise, inside.  Layouts (dictionary, large,
view, run-end encoded) don't matter.

A column that is not given is the column's default in every row, or null if it has none.  So is a key that a dict of a list of
dicts lacks.

A timestamp without a zone is UTC because everything else takes it for UTC: text in files, conditions, partitions, and the
sessions of `spark_session`.  A caller that means another zone names it.

Absent on purpose: parsing text into numbers or dates, dropping columns that the table does not have.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from replitree.errors import BadInput, SchemaMismatch
from replitree.storage.parts.plain_arrays import SCALES_MAX, Budget, is_plain, plain_table, slot_bytes_min
from replitree.storage.schema.columns import UTC, Column
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.types import format_type, is_list_like, is_nested

DECIMAL_BITS = 128
"""Bits of a column's decimals."""

ARRAY_BYTES_MAX = 1 << 30
"""Arrays above this are cut before a cast: Arrow's plain strings and lists end at 2^31 - 1."""


@dataclass(frozen=True, slots=True)
class _ConversionContext:
    """Where in which column we are, for errors, and what may be allocated for it.

    `rounds` when the values come from Python, whose floats are all doubles; `zone` is that of timestamps without one.
    """

    path: str
    budget: Budget
    rounds: bool = False
    zone: str = UTC

    def inside(self, name: str) -> _ConversionContext:
        return replace(self, path=f"{self.path}.{name}")

    def mismatch(self, expected: pa.DataType, found: object, why: str = "") -> SchemaMismatch:
        detail = f": {why}" if why else ""
        return SchemaMismatch(f"column {self.path!r}: expected {format_type(expected)}, found {found}{detail}")


def conform(
    data: Any, definition: TableDefinition, budget: Budget | None = None, zone: str = UTC, *, sound: bool = False
) -> pa.Table:
    """Give the rows in the table's schema.

    Parameters
    ----------
    data
        A pyarrow Table, RecordBatch or RecordBatchReader, anything that has ``__arrow_c_stream__`` (other data frames), a
        dict of columns, or a list of dicts.
    definition
        The table.
    budget
        How many bytes the result may take; None: as many as it needs.
    zone
        Time zone of timestamps that have none, for columns that have one.
    sound
        The rows have passed `check_sound`, which reads every byte of text.

    Raises
    ------
    SchemaMismatch
        A column is unknown, missing, or has values that do not fit.
    BadInput
        The data is of no such kind, or exceeds the budget.
    """
    budget = budget or Budget()
    try:
        table, rounds = _table_of(data, definition)
        # Rows of our own client have the schema to the letter.  Equality of nested types says too little: see `_is_exactly`.
        if table.schema.equals(definition.arrow_schema, check_metadata=True) and _is_flat(definition.columns):
            if not sound:
                check_sound(table)
        else:
            # Names are compared before any value is looked at: a wrong column is the common mistake, and the cheap answer.
            _check_names(table.column_names, definition)
            # Layouts that are not plain are not validated by Arrow: its checks
            # trust the references in them.  `plain_table` checks these.
            if not sound:
                check_sound(table, only_plain=True)
            table = plain_table(table, budget)
            places = [_ConversionContext(column.name, budget, rounds, zone) for column in definition.columns]
            columns = [_column(table, column, place) for column, place in zip(definition.columns, places, strict=True)]
            table = pa.Table.from_arrays(columns, schema=definition.arrow_schema)
        for number, column in enumerate(definition.columns):
            if not column.nullable and (nulls := table.column(number).null_count):
                row = int(table.column(number).is_null().index(True).as_py())
                raise SchemaMismatch(
                    f"column {column.name!r}: expected {column.type}, which may not be null; found null in row {row} "
                    f"({nulls} in all)"
                )
    except MemoryError as error:
        raise BadInput(f"there is not enough memory for the rows: insert fewer at once ({error})") from error
    # Types and names that Arrow's reader lets pass.
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise SchemaMismatch(f"the rows are damaged: {error}") from error
    return table


@lru_cache(maxsize=256)
def _is_flat(columns: tuple[Column, ...]) -> bool:
    return not any(is_nested(column.arrow_type) for column in columns)


# --- from what a caller has to an Arrow table --------------------------------------------------------------------------


def _table_of(data: Any, definition: TableDefinition) -> tuple[pa.Table, bool]:
    """Give the data as an Arrow table, and whether its values come from Python."""
    if isinstance(data, pa.Table):
        return data, False
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data]), False
    # All of it: the names, nulls and types of every batch are judged before anything is staged.
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all(), False
    # Before `Mapping` and `Sequence`: data frames speak Arrow, and some of them are mappings of columns, too.
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        try:
            return pa.table(data), False
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise BadInput(f"can't take the rows of a {type(data).__name__}: {error}") from error
    if isinstance(data, Mapping):
        names = [str(name) for name in data]
        _check_names(names, definition)
        arrays = [_array_of(values, definition, name) for name, values in zip(names, data.values(), strict=True)]
        lengths = {name: len(array) for name, array in zip(names, arrays, strict=True)}
        if len(set(lengths.values())) > 1:
            raise SchemaMismatch(f"the columns have different numbers of rows: {lengths}")
        return pa.table(arrays, names=names), True
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _table_of_rows(data, definition), True
    raise BadInput(
        f"can't insert a {type(data).__name__}: give an Arrow table, batch or reader, a data frame that speaks Arrow, "
        "a dict of columns, or a list of dicts"
    )


def _table_of_rows(rows: Sequence[Any], definition: TableDefinition) -> pa.Table:
    names: dict[str, None] = {}
    # One by one, for Python objects can't be taken in any other way.
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise BadInput(f"row {number} is a {type(row).__name__}: give a list of dicts, one per row")
        names.update(dict.fromkeys(row))
    _check_names([str(name) for name in names], definition)
    # A key that one dict lacks is the column's default in this row, even when other rows have the key.
    given = {c.name: c.default_scalar.as_py() for c in definition.columns if c.has_default}
    columns = {name: [row.get(name, given.get(name)) for row in rows] for name in names}
    arrays = [_array_of(values, definition, name) for name, values in columns.items()]
    if columns:
        return pa.table(arrays, names=list(columns))
    # An Arrow table without columns has no number of rows: dicts without keys are rows of defaults.
    first = definition.columns[0]
    return pa.table([pa.repeat(first.default_scalar, len(rows))], names=[first.name])


def _array_of(values: Any, definition: TableDefinition, name: str) -> pa.Array | pa.ChunkedArray:
    """Give a Python sequence as an array of whatever type it has by itself."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    target = definition.column(name).arrow_type
    try:
        # By the column's type: Arrow would make a struct of a dict.
        if _has_map(target):
            return pa.array(_listed(values), type=target)
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        return pa.array(_listed(values))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _ConversionContext(name, Budget()).mismatch(
            target, "values that do not fit together", str(error)
        ) from error


def _listed(values: Any) -> Any:
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise TypeError(f"a column is a sequence of values, not a {type(values).__name__}")
    return values if hasattr(values, "__len__") else list(values)


def _has_map(arrow: pa.DataType) -> bool:
    if pa.types.is_map(arrow):
        return True
    if pa.types.is_struct(arrow):
        return any(_has_map(field.type) for field in arrow)
    return bool(pa.types.is_list(arrow)) and _has_map(arrow.value_type)


# --- checks of the whole ----------------------------------------------------------------------------------------------


def _check_names(names: Sequence[str], definition: TableDefinition) -> None:
    known = {column.name: column for column in definition.columns}
    for name in names:
        if name not in known:
            columns = [column.name for column in definition.columns]
            by_lower = {known.lower(): known for known in columns}
            near = [by_lower[n] for n in difflib.get_close_matches(name.lower(), by_lower, n=1)]
            hint = f"; did you mean {near[0]!r}?" if near else f"; its columns are {', '.join(columns[:20])}"
            raise SchemaMismatch(f"table {definition.name} has no column {name!r}{hint}")
    # `count` for each name is quadratic: it runs only when the set says that a name stands twice.
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise SchemaMismatch(f"column {twice[0]!r} is given twice")
    missing = [c for c in definition.columns if not c.nullable and not c.has_default and c.name not in set(names)]
    if missing:
        column = missing[0]
        raise SchemaMismatch(f"column {column.name!r} is missing: expected {column.type}, which may not be null")


# Every insert asks; Arrow's answer is a quarter of what a small insert costs the client.
@lru_cache(maxsize=64)
def check_zone(zone: str) -> str:
    """Return the name of a time zone that timestamps without one may be in.

    Raises
    ------
    BadInput
        There is no such zone.
    """
    import pyarrow.compute as pc

    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), zone)
    except (pa.ArrowException, TypeError) as error:
        raise BadInput(f"there is no time zone {zone!r}: name one such as UTC or Europe/Berlin") from error
    return zone


def check_sound(table: pa.Table | pa.RecordBatch, *, only_plain: bool = False) -> None:
    """Check offsets and text of columns that are plain: rows may come from another machine, and kernels trust them.

    Parameters
    ----------
    only_plain
        Leave out columns that `replitree.storage.parts.plain_arrays` checks when it makes them plain.

    Raises
    ------
    SchemaMismatch
        An array is damaged.
    """
    if only_plain and not all(is_plain(field.type) for field in table.schema):
        table = table.select([number for number, field in enumerate(table.schema) if is_plain(field.type)])
    try:
        table.validate(full=True)
    except (pa.ArrowException, UnicodeError) as error:
        raise SchemaMismatch(f"the rows are damaged: {error}") from error


# --- one column ---------------------------------------------------------------------------------------------------------


def _column(table: pa.Table, column: Column, place: _ConversionContext) -> pa.ChunkedArray:
    index, target = table.schema.get_field_index(column.name), column.arrow_type
    if index < 0:
        # A default of a megabyte times a million rows is refused before it is made.
        place.budget.take(table.num_rows * pa.repeat(column.default_scalar, 1).nbytes)
        return pa.chunked_array([pa.repeat(column.default_scalar, table.num_rows)])
    values = table.column(index)
    if _is_exactly(values.type, target):
        return values
    # A cast to plain text may need more than 2 GiB of offsets: large chunks are halved until each fits.
    chunks = [piece for chunk in values.chunks for piece in _cut(chunk)]
    return pa.chunked_array([_convert(chunk, target, place) for chunk in chunks], type=target)


def _is_exactly(found: pa.DataType, target: pa.DataType) -> bool:
    """Arrow takes two lists for equal whose elements have different names or differ in whether they may be null."""
    return bool(found == target) and (not is_nested(target) or str(found) == str(target))


def _cut(array: pa.Array) -> list[pa.Array]:
    if array.nbytes <= ARRAY_BYTES_MAX or len(array) <= 1:
        return [array]
    half = len(array) // 2
    return _cut(array.slice(0, half)) + _cut(array.slice(half))


def _convert(array: pa.Array, target: pa.DataType, place: _ConversionContext) -> pa.Array:
    """Give the same values as another type, exactly, or raise."""
    if _is_exactly(array.type, target):
        return array
    kinds = pa.types
    # A column of nulls, or of no buffers at all, becomes this many bytes.
    place.budget.take(len(array) * slot_bytes_min(target))
    if kinds.is_null(array.type):
        return pa.nulls(len(array), target)
    # Nested types first: their converters raise errors with the
    # path of the field inside, and are not wrapped in `_checked`.
    for is_kind, converter in _NESTED:
        if is_kind(target):
            return converter(array, target, place)
    for accepts, converter in _CONVERSIONS:
        if accepts(array.type, target):
            return _checked(converter, array, target, place)
    hint = ""
    if kinds.is_timestamp(array.type) and kinds.is_timestamp(target):
        hint = "the column has no time zone: give the values without one, or make the column a timestamp"
    elif _is_text(array.type):
        hint = "text is not parsed; convert it first"
    elif _is_float(array.type) and _is_decimal(target):
        hint = "a decimal can't be had exactly from binary floating point; give decimals"
    raise place.mismatch(target, array.type, hint)


_Converter = Callable[[pa.Array, pa.DataType, _ConversionContext], pa.Array]


def _checked(converter: _Converter, array: pa.Array, target: pa.DataType, place: _ConversionContext) -> pa.Array:
    try:
        return converter(array, target, place)
    except pa.ArrowException as error:
        raise place.mismatch(target, array.type, str(error)) from error


def _cast(array: pa.Array, target: pa.DataType, place: _ConversionContext) -> pa.Array:
    del place
    return array.cast(target)


def _in_zone(array: pa.Array, target: pa.DataType, place: _ConversionContext) -> pa.Array:
    """Give local times as moments; a time that the zone skips, or has twice, is refused."""
    import pyarrow.compute as pc

    return pc.assume_timezone(array, place.zone).cast(target)


def _from_decimal(array: pa.Array, target: pa.DataType, place: _ConversionContext) -> pa.Array:
    """Change the scale of decimals, only as far as Arrow has powers of ten for it: it does not check."""
    found = array.type
    # Arrow's table of powers of ten is that of the source's width: a narrow decimal has too few of them.
    if found.bit_width < DECIMAL_BITS:
        array = array.cast(pa.decimal128(SCALES_MAX[DECIMAL_BITS], found.scale))
    scale = target.scale if _is_decimal(target) else 0
    if abs(scale - found.scale) > SCALES_MAX[array.type.bit_width]:
        raise place.mismatch(target, found, "its scale is too far from the column's")
    return array.cast(target)


def _float_to_float(array: pa.Array, target: pa.DataType, place: _ConversionContext) -> pa.Array:
    # No value can change; and Arrow has no comparisons of 16-bit floats.
    if target.bit_width > array.type.bit_width:
        return array.cast(target)
    import pyarrow.compute as pc

    # Arrow casts a double to a float without an error, also when it becomes infinite: the values are compared afterwards.
    narrow = array.cast(target)
    after = narrow.cast(array.type)
    # Python's floats are all doubles: of those only the ones that become infinite are too large for a `float` column.
    same = pc.equal(pc.is_inf(array), pc.is_inf(after)) if place.rounds else pc.equal(array, after)
    # NaN equals nothing, also not itself, and null compares to null: neither was changed.
    fine = pc.fill_null(pc.or_(same, pc.is_nan(array)), True)
    if not pc.all(fine, min_count=0).as_py():
        changed = float(array[fine.index(False).as_py()].as_py())
        raise place.mismatch(target, array.type, f"{changed!r} does not fit")
    return narrow


_is_integer = pa.types.is_integer
_is_float = pa.types.is_floating
_is_decimal = pa.types.is_decimal
_is_timestamp = pa.types.is_timestamp


def _is_text(arrow: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_string(arrow)
        or kinds.is_large_string(arrow)
        or kinds.is_string_view(arrow)
        or kinds.is_binary(arrow)
        or kinds.is_large_binary(arrow)
        or kinds.is_binary_view(arrow)
        or kinds.is_fixed_size_binary(arrow)
    )


_CONVERSIONS: tuple[tuple[Callable[[pa.DataType, pa.DataType], bool], _Converter], ...] = (
    # Arrow would refuse by the type alone; the detour lets it look at the values.
    (
        lambda found, target: _is_integer(found) and _is_decimal(target),
        lambda array, target, _: array.cast(pa.decimal128(20, 0)).cast(target),
    ),
    (lambda found, target: _is_float(found) and _is_float(target), _float_to_float),
    (lambda found, target: _is_integer(found) and (_is_integer(target) or _is_float(target)), _cast),
    (lambda found, target: _is_float(found) and _is_integer(target), _cast),
    (lambda found, target: _is_decimal(found) and (_is_decimal(target) or _is_integer(target)), _from_decimal),
    (lambda found, target: _is_text(found) and _is_text(target), _cast),
    (lambda found, target: pa.types.is_date(found) and pa.types.is_date(target), _cast),
    (
        lambda found, target: (
            _is_timestamp(found) and _is_timestamp(target) and (found.tz is None) == (target.tz is None)
        ),
        _cast,
    ),
    # The other way round is refused: a moment without its zone would be another local time for each reader.
    (lambda found, target: _is_timestamp(found) and _is_timestamp(target) and found.tz is None, _in_zone),
)


# --- lists, structs, maps ---------------------------------------------------------------------------------------------


def _convert_list(array: pa.Array, target: pa.DataType, place: _ConversionContext) -> pa.Array:
    if not is_list_like(array.type):
        raise place.mismatch(target, array.type)
    # Large and fixed-size lists have other offsets; from here on there are those of plain lists only.
    if not isinstance(array, pa.ListArray):
        array = _checked(_cast, array, pa.list_(array.type.value_type), place)
    # `flatten`, not `values`: the latter has what lies under null lists and outside of the slice.
    elements = _convert(array.flatten(), target.value_type, place.inside("element"))
    return pa.ListArray.from_arrays(_dense_offsets(array), elements, type=target, mask=_mask(array))


def _convert_map(array: pa.Array, target: pa.DataType, place: _ConversionContext) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise place.mismatch(target, array.type)
    pairs = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    keys, values = pairs.flatten().flatten()
    return pa.MapArray.from_arrays(
        _dense_offsets(pairs),
        _convert(keys, target.key_type, place.inside("key")),
        _convert(values, target.item_type, place.inside("value")),
        target,
        mask=_mask(array),
    )


def _convert_struct(array: pa.Array, target: pa.DataType, place: _ConversionContext) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise place.mismatch(target, array.type)
    found = dict(zip([field.name for field in array.type], array.flatten(), strict=True))
    # `array.flatten` gives the fields with the struct's own nulls
    # applied; a dict drops the second of two fields of one name.
    unknown = sorted(found.keys() - {field.name for field in target})
    if unknown or len(found) < array.type.num_fields:
        raise place.mismatch(
            target, array.type, f"field {unknown[0]!r} is unknown" if unknown else "a field stands twice"
        )
    fields = [
        _convert(found[f.name] if f.name in found else pa.nulls(len(array)), f.type, place.inside(f.name))
        for f in target
    ]
    return pa.StructArray.from_arrays(fields, fields=list(target), mask=_mask(array))


_NESTED: tuple[tuple[Callable[[pa.DataType], bool], _Converter], ...] = (
    (pa.types.is_list, _convert_list),
    (pa.types.is_map, _convert_map),
    (pa.types.is_struct, _convert_struct),
)


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _dense_offsets(array: pa.Array) -> pa.Array:
    """Offsets into the flattened elements, in which nulls have none."""
    import pyarrow.compute as pc

    # `flatten` has dropped the elements under null lists: the array's own offsets no longer fit.
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum(lengths)
    return pa.concat_arrays([pa.array([0], pa.int32()), ends.cast(pa.int32())])
