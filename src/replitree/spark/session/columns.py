"""Columns: a DataFrame's columns in a table's form, and its partition transforms as Spark's expressions.

Guarantees: `conformed` has exactly the table's columns, in its order, with its types; only casts that keep every value
are done.  Rows have equal values of the columns from `partition_columns` exactly when `replitree.storage.schema.partition` puts
them into one partition (up to a collision of 64-bit hashes, which is found when the files are adopted, and refused).

Times are partitioned in UTC whatever zone the session has.

Absent on purpose: checks of nulls; the files' own counts show them, when they are adopted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StructType,
)

from replitree.errors import SchemaMismatch
from replitree.spark.session.types import spark_type
from replitree.storage.schema.definition import TableDefinition, Transform, TransformKind
from replitree.storage.schema.transforms import apply_transform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PARTITION_PREFIX = "__replitree_partition_"

_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000
_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
_WIDTHS: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)


def quoted(name: str) -> str:
    """Return a column's name as it stands in SQL.

    Examples
    --------
    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def literal(scalar: pa.Scalar) -> Column:
    """Return an Arrow value of a column's type as Spark's literal of the same type and value, whatever the session's zone."""
    kinds = pa.types
    target = spark_type(scalar.type)
    if not scalar.is_valid:
        return F.lit(None).cast(target)
    if kinds.is_date(scalar.type):
        return F.date_from_unix_date(F.lit(scalar.value))
    if kinds.is_timestamp(scalar.type):
        if scalar.type.tz is not None:
            return F.timestamp_micros(F.lit(scalar.value))
        # Counted from 1970 without a zone: a literal of Python's `datetime` would be read in the session's zone.
        return F.expr(f"timestampadd(MICROSECOND, {scalar.value}L, timestamp_ntz'1970-01-01 00:00:00')")
    return F.lit(scalar.as_py()).cast(target)


# --- into the table's form --------------------------------------------------------------------------------------------


def conformed(frame: DataFrame, definition: TableDefinition) -> DataFrame:
    """Return the frame with exactly the table's columns.

    Columns are found by name, in any order and case.  A missing column has its default, or is null.

    Raises
    ------
    SchemaMismatch
        A column is unknown, ambiguous, missing though it may not be null, or of a type that does not fit.
    """
    schema = frame.schema
    source = dict(zip(check_columns(schema, definition), schema.names, strict=True))
    columns = []
    for column in definition.columns:
        target = spark_type(column.arrow_type)
        name = source.get(column.name)
        if name is None:
            expression = literal(column.default_scalar)
        else:
            # By their texts: Spark's types differ in what may be null inside, which a cast does not change.
            same = schema[name].dataType.simpleString() == target.simpleString()
            expression = F.col(quoted(name)) if same else F.col(quoted(name)).cast(target)
        columns.append(expression.alias(column.name))
    return frame.select(*columns)


def check_columns(schema: StructType, definition: TableDefinition) -> list[str]:
    """Check that rows of a schema can be inserted; return the table's name of each of its columns.

    Raises
    ------
    SchemaMismatch
        A column is unknown, there twice, missing though it may not be null, or of a type that does not fit.
    """
    by_name = {column.name.lower(): column for column in definition.columns}
    names: list[str] = []
    for field in schema.fields:
        column = by_name.get(field.name.lower())
        if column is None:
            known = ", ".join(column.name for column in definition.columns)
            raise SchemaMismatch(f"table {definition.name} has no column {field.name!r}; it has {known}")
        if column.name in names:
            raise SchemaMismatch(f"column {column.name!r} is there twice; select one of them")
        target = spark_type(column.arrow_type)
        if not _fits(field.dataType, target):
            raise SchemaMismatch(
                f"column {column.name!r}: expected {target.simpleString()}, found {field.dataType.simpleString()};"
                " cast it first"
            )
        names.append(column.name)
    for column in definition.columns:
        if not column.nullable and not column.has_default and column.name not in names:
            raise SchemaMismatch(f"column {column.name!r} is missing, and may not be null: expected {column.type}")
    return names


def _fits(given: DataType, target: DataType) -> bool:
    """Tell whether every value of a type can be cast to another and keeps its value."""
    if isinstance(given, NullType) or given.simpleString() == target.simpleString():
        return True
    if type(given) in _WIDTHS:
        if type(target) in _WIDTHS:
            return _WIDTHS.index(type(given)) <= _WIDTHS.index(type(target))
        if isinstance(target, DecimalType):
            return target.precision - target.scale >= _DIGITS[type(given)]
        # A double has 53 bits: not every 64-bit integer is one.
        return isinstance(target, DoubleType) and not isinstance(given, LongType)
    if isinstance(given, DecimalType) and isinstance(target, DecimalType):
        return target.scale >= given.scale and target.precision - target.scale >= given.precision - given.scale
    return isinstance(given, FloatType) and isinstance(target, DoubleType)


# --- partitions -------------------------------------------------------------------------------------------------------


def partition_columns(definition: TableDefinition) -> dict[str, Column]:
    """Return one expression per partition transform, by the name of the column that it becomes."""
    return {
        f"{PARTITION_PREFIX}{number}": _partition_column(transform, definition.column(transform.column).arrow_type)
        for number, transform in enumerate(definition.partition_by)
    }


def _partition_column(transform: Transform, arrow: pa.DataType) -> Column:
    kind, kinds = transform.kind, pa.types
    name = quoted(transform.column)
    if kind in (TransformKind.YEAR, TransformKind.MONTH, TransformKind.DAY, TransformKind.HOUR):
        return F.expr(_calendar(kind, name, arrow))
    if kind is TransformKind.IDENTITY:
        # A whole number for every type: Spark writes strings of other values into paths.
        whole = name if kinds.is_integer(arrow) else f"xxhash64({name})"
        if kinds.is_date(arrow):
            whole = f"unix_date({name})"
        elif kinds.is_boolean(arrow):
            whole = f"cast({name} as int)"
        return F.expr(whole)
    if kind is TransformKind.TRUNCATE and kinds.is_integer(arrow):
        return F.expr(f"{name} - pmod({name}, {transform.argument})")
    if kind is TransformKind.TRUNCATE and (kinds.is_string(arrow) or kinds.is_binary(arrow)):
        return F.expr(f"xxhash64(substring({name}, 1, {transform.argument}))")
    is_whole = transform.kind is TransformKind.BUCKET
    result = LongType() if is_whole else spark_type(arrow)

    # Spark lacks the transform: Python workers compute it, batch by batch, by the code that replicas use.
    def compute(values: pa.Array) -> pa.Array:
        return apply_transform(transform, values if values.type == arrow else values.cast(arrow))

    # Spark takes the kind of function from its annotations and warns of any other way; its stubs want the other way.
    value = arrow_udf(compute, result)(F.col(name))  # type: ignore[call-overload]
    return value if is_whole else F.xxhash64(value)


def _calendar(kind: TransformKind, name: str, arrow: pa.DataType) -> str:
    """Give the year, month, day or hour as a number; zoned times by arithmetic in UTC, which knows no session zone."""
    kinds = pa.types
    day = name
    if kinds.is_timestamp(arrow) and arrow.tz is not None:
        micros = f"unix_micros({name})"
        if kind is TransformKind.HOUR:
            return f"({micros} - pmod({micros}, {_HOUR_US}L)) div {_HOUR_US}L"
        day = f"date_from_unix_date(cast(({micros} - pmod({micros}, {_DAY_US}L)) div {_DAY_US}L as int))"
    elif kinds.is_timestamp(arrow):
        day = f"cast({name} as date)"
        if kind is TransformKind.HOUR:
            return f"unix_date({day}) * 24L + hour({name})"
    if kind is TransformKind.YEAR:
        return f"year({day})"
    return f"year({day}) * 12 + month({day})" if kind is TransformKind.MONTH else f"unix_date({day})"
