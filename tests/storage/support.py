"""Tables of every type: what the storage tests draw from."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.schema.types import list_of

BENCH = "d date, k bigint, v double, s string"

EVERY_TYPE = (
    "b boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f float, x double, m decimal(12,2), s string, y binary, "
    "d date, t timestamp, n timestamp_ntz, l array<string>, r struct<a: bigint, b: array<decimal(38,10)>>, "
    "p map<string, array<struct<q: timestamp, w: boolean>>>"
)

PLAIN_TYPES: list[pa.DataType] = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(12, 2),
    pa.decimal128(38, 0),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
]


def bench_table(**options: Any) -> TableDefinition:
    """The table of the benchmarks: by month, ordered by k."""
    return define_table(
        "bench", BENCH, **{"order_by": "k", "partition_by": "month(d)", "table_id": "0" * 32, **options}
    )


def types() -> st.SearchStrategy[pa.DataType]:
    """Any column type, nested up to three levels."""
    return st.recursive(st.sampled_from(PLAIN_TYPES), _nested, max_leaves=4)


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(list_of),
        st.lists(inner, min_size=1, max_size=3).map(lambda ts: pa.struct([(f"f{i}", t) for i, t in enumerate(ts)])),
        st.tuples(st.sampled_from([pa.string(), pa.int32(), pa.date32()]), inner).map(lambda kv: pa.map_(*kv)),
    )


def values(arrow: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type as Python objects, None included."""
    return st.one_of(st.none(), _present(arrow))


def _present(arrow: pa.DataType) -> st.SearchStrategy[Any]:
    kinds = pa.types
    if kinds.is_map(arrow):
        pairs = st.tuples(_present(arrow.key_type), values(arrow.item_type))
        return st.lists(pairs, max_size=3, unique_by=lambda pair: str(pair[0]))
    if kinds.is_list(arrow):
        return st.lists(values(arrow.value_type), max_size=3)
    if kinds.is_struct(arrow):
        return st.fixed_dictionaries({field.name: values(field.type) for field in arrow})
    return _plain(arrow)


def _plain(arrow: pa.DataType) -> st.SearchStrategy[Any]:
    kinds = pa.types
    if kinds.is_integer(arrow):
        limit = 2 ** (arrow.bit_width - 1)
        return st.integers(-limit, limit - 1)
    if kinds.is_floating(arrow):
        return st.floats(width=32 if arrow.bit_width == 32 else 64)
    if kinds.is_decimal(arrow):
        limit = 10**arrow.precision - 1
        return st.integers(-limit, limit).map(lambda n: _decimal(n, arrow.scale))
    if kinds.is_timestamp(arrow):
        zones = st.just(dt.UTC) if arrow.tz else st.none()
        return st.datetimes(timezones=zones)
    return {
        pa.bool_(): st.booleans(),
        pa.string(): st.text(max_size=6),
        pa.binary(): st.binary(max_size=6),
        pa.date32(): st.dates(),
    }[arrow]


def _decimal(unscaled: int, scale: int) -> Decimal:
    sign, digits = (1, str(-unscaled)) if unscaled < 0 else (0, str(unscaled))
    return Decimal((sign, tuple(int(c) for c in digits), -scale))


@st.composite
def arrays(draw: st.DrawFn, arrow: pa.DataType | None = None, max_size: int = 12) -> pa.Array:
    """An array of any type, or of the given one."""
    arrow = draw(types()) if arrow is None else arrow
    return pa.array(draw(st.lists(values(arrow), max_size=max_size)), type=arrow)


def chunked(array: pa.Array, cuts: list[int], padding: int) -> pa.ChunkedArray:
    """The same values in chunks, each a slice at an offset of a larger array, with rubbish on both sides."""
    rubbish = array.slice(0, min(padding, len(array)))
    ends = sorted({min(cut, len(array)) for cut in cuts} | {0, len(array)})
    chunks = []
    for start, end in itertools.pairwise(ends):
        padded = pa.concat_arrays([rubbish, array.slice(start, end - start), rubbish])
        chunks.append(padded.slice(len(rubbish), end - start))
    return pa.chunked_array(chunks, type=array.type)


def ipc_stream(table: pa.Table, codec: str | None = None, *, deltas: bool = False) -> bytes:
    """Return a table as an Arrow IPC stream; `deltas`: a dictionary that has grown is sent by its new values."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=deltas)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found
