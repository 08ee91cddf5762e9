"""How the columns of a Parquet file are written: compression, encodings, statistics.

Guarantees: Spark's vectorised reader reads what is chosen here, and no reader that prunes by the footers misses a row.

* zstd, row groups of `row_group_rows`, statistics, page index, data pages of version 1, no Arrow schema in the footer (the
  table's definition has it).
* Page checksums only for tables on an object store: they are all that readers of a bucket can compare.  On a local disk readers
  compare blocks of the file (`replitree.storage.files.sums`), which are all of its bytes, and a second checksum of
  every page costs 4 % of the writing.
* A dictionary where a sample shows that values repeat: on a column without repetition it costs three times the writing and then
  falls back.
* Differences (DELTA_BINARY_PACKED) for whole numbers of the order key, which hardly grow from row to row.
* The order key as the file's `sorting_columns`: readers may skip, join and aggregate by it.  It ends before a floating-point
  column, of which Parquet does not say where NaN stands.
* Bloom filters of the columns that the table says (`TableDefinition.bloom`), where the installed pyarrow can write them.  A
  writer that can't leaves them out: readers need none.
* No statistics for a floating-point column that has NaN.  Parquet's minimum and maximum leave NaN out, and Spark, for which
  NaN is above every number, prunes by them all the same: ``where("v > 1")`` would not find the NaN rows (so does Spark 4.3.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from replitree.errors import BadInput
from replitree.storage.schema.definition import TableDefinition

SAMPLE_ROWS = 4096
SAMPLES = 2
DICTIONARY_ROWS_MIN = 4096
"""With fewer rows a dictionary saves nothing that zstd does not."""

DICTIONARY_SHARE_MAX = 0.5
"""Distinct values per row of the sample up to which a dictionary pays."""


def writer_options(
    rows: pa.Table, definition: TableDefinition, *, with_nan: frozenset[str] | None = None
) -> dict[str, Any]:
    """Give the options of pyarrow's Parquet writer for these rows, or for a file that begins with them.

    Parameters
    ----------
    with_nan
        Parquet paths of the leaf columns that may have NaN; by default those of the rows that do.
    """
    dictionary, delta = choose_encodings(rows, definition)
    nan_columns = columns_with_nan(rows) if with_nan is None else with_nan
    return {
        "compression": "zstd",
        "compression_level": definition.settings.compression_level,
        "use_dictionary": dictionary or False,
        "column_encoding": dict.fromkeys(delta, "DELTA_BINARY_PACKED") or None,
        "write_statistics": not nan_columns
        or [path for field in rows.schema for path, _ in leaf_types(field.name, field.type) if path not in nan_columns],
        "write_page_index": True,
        "write_page_checksum": definition.is_shared,
        "store_schema": False,
        "sorting_columns": _sorting_columns(rows.schema, definition),
        **_bloom_filters(rows, definition),
        "version": "2.6",
        "data_page_version": "1.0",
    }


BLOOM_FALSE = 0.01
"""Share of values that a Bloom filter takes for one that is there, at most: two bytes for each row of a row group."""


@lru_cache(maxsize=1)
def can_write_bloom() -> bool:
    """Whether the installed pyarrow can write Bloom filters."""
    import inspect

    import pyarrow.parquet as pq

    return "bloom_filter_options" in inspect.signature(pq.ParquetWriter.__init__).parameters


def check_bloom(columns: Sequence[str]) -> None:
    """Do nothing if this process can write Bloom filters, or none are wanted.

    Raises
    ------
    BadInput
        The installed pyarrow can't.
    """
    if columns and not can_write_bloom():
        raise BadInput(
            f"bloom: pyarrow {pa.__version__}, which is installed here, can't write Bloom filters; pyarrow 26 can"
        )


def _bloom_filters(rows: pa.Table, definition: TableDefinition) -> dict[str, Any]:
    if not definition.bloom or not can_write_bloom():
        return {}
    # As many values as a row group can have: pyarrow sizes all filters of a file by this number.
    values = max(1, min(rows.num_rows, definition.settings.row_group_rows))
    # pyarrow takes the dot of a column's name for a path into a struct.
    names = [name for name in definition.bloom if "." not in name]
    return {"bloom_filter_options": {name: {"ndv": values, "fpp": BLOOM_FALSE} for name in names}} if names else {}


def _sorting_columns(schema: pa.Schema, definition: TableDefinition) -> Any:
    import pyarrow.parquet as pq

    # Parquet counts leaf columns.
    places, leaf = dict[str, int](), 0
    for field in schema:
        places[field.name] = leaf
        leaf += sum(1 for _ in leaf_types(field.name, field.type))
    found = []
    for name in definition.order_by:
        if pa.types.is_floating(schema.field(name).type):
            break
        found.append(pq.SortingColumn(places[name], nulls_first=True))
    return found or None


def choose_encodings(rows: pa.Table, definition: TableDefinition) -> tuple[list[str], list[str]]:
    """Choose the columns that get a dictionary, and those that get differences.

    Returns
    -------
    dictionary, delta
        Parquet paths of leaf columns.
    """
    dictionary: list[str] = []
    if rows.num_rows >= DICTIONARY_ROWS_MIN:
        import pyarrow.compute as pc

        # Runs of neighbours, no rows at random: what counts is how values repeat inside of a row group.
        last = max(0, rows.num_rows - SAMPLE_ROWS)
        starts = [last * number // max(1, SAMPLES - 1) for number in range(SAMPLES)] if last else [0]
        samples = pa.concat_tables([rows.slice(start, SAMPLE_ROWS) for start in starts]).combine_chunks()
        for path, values in leaves(samples):
            # Parquet stores a boolean in a bit: no dictionary is smaller.
            if pa.types.is_boolean(values.type) or len(values) < SAMPLE_ROWS // 4:
                continue
            if pc.count_distinct(values).as_py() <= len(values) * DICTIONARY_SHARE_MAX:
                dictionary.append(path)
    kinds, delta = pa.types, []
    for name in definition.order_by:
        arrow = rows.schema.field(name).type
        is_whole = kinds.is_int32(arrow) or kinds.is_int64(arrow) or kinds.is_date(arrow) or kinds.is_timestamp(arrow)
        # pyarrow takes the dot of a column's name for a path into a struct.
        if is_whole and name not in dictionary and "." not in name:
            delta.append(name)
    return dictionary, delta


# --- statistics -----------------------------------------------------------------------------------------------------------


def columns_with_nan(rows: pa.Table) -> frozenset[str]:
    """Give the Parquet paths of the leaf columns that have NaN."""
    names = [field.name for field in rows.schema if _has_floats(field.type)]
    found = set()
    for path, values in leaves(rows.select(names)):
        if pa.types.is_float64(values.type) and not values.null_count:
            # For each insert of a few rows: a kernel of Arrow's costs ten times as much before its first value.
            numbers = np.frombuffer(values.buffers()[1], "<f8", len(values), values.offset * 8)
            has_nan = bool(np.isnan(numbers).any())
        elif pa.types.is_floating(values.type):
            import pyarrow.compute as pc

            has_nan = bool(pc.any(pc.is_nan(values)).as_py())
        else:
            has_nan = False
        if has_nan:
            found.add(path)
    return frozenset(found)


@lru_cache(maxsize=1024)
def _has_floats(arrow: pa.DataType) -> bool:
    return any(pa.types.is_floating(leaf) for _, leaf in leaf_types("", arrow))


# --- leaf columns -----------------------------------------------------------------------------------------------------------


def leaf_types(path: str, arrow: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Give the leaf columns inside a column: Parquet path and type."""
    kinds = pa.types
    if kinds.is_struct(arrow):
        for field in arrow:
            yield from leaf_types(f"{path}.{field.name}", field.type)
    elif kinds.is_map(arrow):
        yield from leaf_types(f"{path}.key_value.key", arrow.key_type)
        yield from leaf_types(f"{path}.key_value.value", arrow.item_type)
    elif kinds.is_list(arrow):
        yield from leaf_types(f"{path}.list.element", arrow.value_type)
    else:
        yield path, arrow


def leaves(rows: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Give the leaf columns of a table, by their Parquet paths, chunk by chunk."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        for chunk in column.chunks:
            yield from _leaves_of(name, chunk)


def _leaves_of(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kinds = pa.types
    if kinds.is_struct(values.type):
        for field, inner in zip(values.type, values.flatten(), strict=True):
            yield from _leaves_of(f"{path}.{field.name}", inner)
    elif kinds.is_map(values.type):
        # The pairs as a list: offsets, slices and nulls are then handled as those of any list.
        pairs = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
        yield from _leaves_of(f"{path}.key_value", pairs.flatten())
    elif kinds.is_list(values.type):
        yield from _leaves_of(f"{path}.list.element", values.flatten())
    else:
        yield path, values
