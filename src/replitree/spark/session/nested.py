"""Nested columns whose insides were altered: what `storage.schema.nested` does to Arrow's values, as Spark's expressions.

Guarantees: fields are found by their stored names, never by their place; what a file lacks is null; a null struct, list or map
stays null.

Absent on purpose: columns without nested fields; their readers cast the types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from replitree.spark.session.columns import quoted
from replitree.spark.session.types import spark_type
from replitree.storage.schema.nested import KEY, VALUE
from replitree.storage.schema.types import parse_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from replitree.storage.schema.definition import TableDefinition


def reshaped(values: Column, found: pa.DataType, stored: pa.DataType, shown: pa.DataType) -> Column:
    """Give values of one type as values of another.

    Parameters
    ----------
    values, found
        The values, and their type, whose fields have stored names.
    stored, shown
        The type that is wanted, with stored names and with those that readers see.
    """
    if found == stored == shown:
        return values
    if pa.types.is_struct(shown):
        fields = []
        for known, field in zip(stored, shown, strict=True):
            place = found.get_field_index(known.name)
            if place < 0:
                value = F.lit(None).cast(spark_type(field.type))
            else:
                value = reshaped(values.getField(known.name), found.field(place).type, known.type, field.type)
            fields.append(value.alias(field.name))
        return F.when(values.isNotNull(), F.struct(*fields))
    if pa.types.is_list(shown):
        inner = found.value_type, stored.value_type, shown.value_type
        return F.transform(values, lambda value: reshaped(value, *inner))
    if pa.types.is_map(shown):

        def entry(pair: Column) -> Column:
            key = reshaped(pair.getField(KEY), found.key_type, stored.key_type, shown.key_type)
            value = reshaped(pair.getField(VALUE), found.item_type, stored.item_type, shown.item_type)
            return F.struct(key.alias(KEY), value.alias(VALUE))

        return F.map_from_entries(F.transform(F.map_entries(values), entry))
    return values.cast(spark_type(shown))


def with_stored_names(frame: DataFrame, definition: TableDefinition) -> DataFrame:
    """Give a frame with a table's columns the names that columns and fields have in data files."""
    columns = []
    for column in definition.columns:
        shown = column.arrow_type
        values = reshaped(F.col(quoted(column.name)), shown, shown, parse_type(column.stored_type))
        columns.append(values.alias(column.stored_name))
    return frame.select(*columns) if definition.history else frame
