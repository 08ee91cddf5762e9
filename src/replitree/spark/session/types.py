"""Types: a table's columns as Spark's schema, and rows as exactly the Arrow batches that Spark wants.

Guarantees: every column of a Spark schema of ours may be null, inside and out, whatever the table says.  That is how
Spark reads Parquet, and a `not null` on one side of its exchange with Python that is missing on the other is an error
there.

Absent on purpose: types that a table can't have.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from replitree.errors import BadInput, SchemaMismatch
from replitree.storage.schema.definition import TableDefinition

_SIMPLE: dict[pa.DataType, DataType] = {
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us", "UTC"): TimestampType(),
    pa.timestamp("us"): TimestampNTZType(),
}


def spark_type(arrow: pa.DataType) -> DataType:
    """Return the Spark type of a column type.

    Examples
    --------
    >>> spark_type(pa.list_(pa.int64())).simpleString()
    'array<bigint>'
    """
    simple = _SIMPLE.get(arrow)
    if simple is not None:
        return simple
    kinds = pa.types
    if kinds.is_decimal(arrow):
        return DecimalType(arrow.precision, arrow.scale)
    if kinds.is_map(arrow):
        return MapType(spark_type(arrow.key_type), spark_type(arrow.item_type), valueContainsNull=True)
    if kinds.is_list(arrow):
        return ArrayType(spark_type(arrow.value_type), containsNull=True)
    if kinds.is_struct(arrow):
        return StructType([StructField(field.name, spark_type(field.type), nullable=True) for field in arrow])
    raise BadInput(f"Spark has no type for {arrow}")


def spark_schema(definition: TableDefinition, columns: Sequence[str] | None = None) -> StructType:
    """Return a table's schema for Spark.

    Parameters
    ----------
    columns
        Names, in the order wanted; all by default.

    Raises
    ------
    BadInput
        The table has no such column.
    """
    selected = definition.selected(columns)
    return StructType([StructField(column.name, spark_type(column.arrow_type), nullable=True) for column in selected])


def exchange_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark wants batches: same names, types and nullability, exactly."""
    return to_arrow_schema(schema, timezone="UTC")


def columns_of(schema: StructType, definition: TableDefinition) -> list[str]:
    """Return the table's columns that a schema given by a reader names, in its order.

    Raises
    ------
    SchemaMismatch
        A column is unknown or has another type than the table's.
    """
    by_name = {column.name.lower(): column for column in definition.columns}
    names = []
    for field in schema.fields:
        column = by_name.get(field.name.lower())
        if column is None:
            known = ", ".join(c.name for c in definition.columns)
            raise SchemaMismatch(f"table {definition.name} has no column {field.name!r}; it has {known}")
        expected = spark_type(column.arrow_type)
        if field.dataType.simpleString() != expected.simpleString():
            raise SchemaMismatch(
                f"column {column.name!r} is read as {field.dataType.simpleString()}, and the table has"
                f" {expected.simpleString()}: read it as that, then cast"
            )
        names.append(column.name)
    return names
