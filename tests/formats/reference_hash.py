"""The content hash once more, value by value as its description says: slow, plain, and independent of Arrow's buffers."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import xxhash

from replitree.storage.schema.types import format_type

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def reference_hash(table: pa.Table) -> str:
    parts = [b"replitree content 1\n"]
    for field in table.schema:
        parts += [_text(field.name), _text(format_type(field.type))]
    parts.append(struct.pack("<Q", table.num_rows))
    for field, column in zip(table.schema, table.columns, strict=True):
        parts += [xxhash.xxh3_128_digest(stream) for stream in _streams(field.type, column.to_pylist())]
    return xxhash.xxh3_128_hexdigest(b"".join(parts))


def unscaled(value: Decimal) -> int:
    """Digits without the point; not by arithmetic, which rounds to 28 digits."""
    sign, digits, _ = value.as_tuple()
    return int("".join(map(str, digits))) * (-1 if sign else 1)


def _text(text: str) -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode()


def _streams(arrow: pa.DataType, values: list[Any]) -> Iterator[bytes]:
    yield b"".join(struct.pack("<Q", i) for i, value in enumerate(values) if value is None)
    present = [value for value in values if value is not None]
    kinds = pa.types
    if kinds.is_struct(arrow):
        for field in arrow:
            yield from _streams(field.type, [value[field.name] for value in present])
    elif kinds.is_map(arrow):
        yield _lengths(present)
        entries = [{"key": k, "value": v} for value in present for k, v in value]
        yield from _streams(pa.struct([("key", arrow.key_type), ("value", arrow.item_type)]), entries)
    elif kinds.is_list(arrow):
        yield _lengths(present)
        yield from _streams(arrow.value_type, [element for value in present for element in value])
    elif kinds.is_string(arrow) or kinds.is_binary(arrow):
        octets = [value.encode() if isinstance(value, str) else value for value in present]
        yield _lengths(octets)
        yield b"".join(octets)
    else:
        yield b"".join(_plain(arrow, value) for value in present)


def _lengths(values: list[Any]) -> bytes:
    return b"".join(struct.pack("<i", len(value)) for value in values)


def _plain(arrow: pa.DataType, value: Any) -> bytes:
    kinds = pa.types
    if kinds.is_decimal(arrow):
        return unscaled(value).to_bytes(16, "little", signed=True)
    if kinds.is_date(arrow):
        return struct.pack("<i", (value - EPOCH.date()).days)
    if kinds.is_timestamp(arrow):
        moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return struct.pack("<q", (moment - EPOCH) // dt.timedelta(microseconds=1))
    if kinds.is_floating(arrow):
        return struct.pack("<f" if arrow.bit_width == 32 else "<d", value)
    return struct.pack({8: "<b", 16: "<h", 32: "<i", 64: "<q"}.get(arrow.bit_width, "<?"), value)
