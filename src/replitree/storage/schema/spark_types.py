"""Names of column types as Spark's DDL has them, for people: a table shows ``bigint`` as its creator wrote it.

Guarantees: `parse_type(spark_type(t)) == t` for every type that a column can have.

Absent on purpose: the names that files and messages keep (`replitree.storage.schema.types.format_type`): those are a format.
"""

from __future__ import annotations

import pyarrow as pa

from replitree.storage.schema.types import TIMESTAMP_LOCAL, TIMESTAMP_UTC, TYPE_NAMES, write_type

_NAMES: dict[pa.DataType, str] = {
    **TYPE_NAMES,
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    TIMESTAMP_UTC: "timestamp",
    TIMESTAMP_LOCAL: "timestamp_ntz",
}


def spark_type(arrow: pa.DataType) -> str:
    """Return a column type's name in Spark's DDL.

    >>> spark_type(pa.list_(pa.int64()))
    'array<bigint>'
    >>> spark_type(pa.struct({"a b": pa.timestamp("us", "UTC")}))
    'struct<`a b`:timestamp>'
    """
    return write_type(arrow, _NAMES, "array")
