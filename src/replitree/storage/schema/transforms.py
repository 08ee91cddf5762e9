"""Partition transforms, vectorised: from a column of values to a column of partition values.

Guarantees: the results are those of Iceberg's specification (appendix A: `year`, `month`, `day` and `hour` count from 1970,
rounding down; `bucket` is murmur3_x86_32 with seed 0 of the value's bytes, without its sign, modulo the number of buckets;
`truncate` rounds a number down to a multiple, and keeps the first characters of a string or bytes of a binary).  A null
becomes a null.

Absent on purpose: time zones (a timestamp with a zone is partitioned by UTC), loops over rows.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from replitree.storage.schema.definition import Transform, TransformKind

SCALAR_ROWS_MAX = 16
"""When so few values are this long, hashing them one by one is faster than all at once."""

_Integers: TypeAlias = NDArray[np.int64]
_Words: TypeAlias = NDArray[np.uint32]
_Octets: TypeAlias = NDArray[np.uint8]

_MICROSECONDS = {TransformKind.DAY: 86_400_000_000, TransformKind.HOUR: 3_600_000_000}
_CALENDAR = {TransformKind.YEAR: "datetime64[Y]", TransformKind.MONTH: "datetime64[M]"}


def apply_transform(transform: Transform, values: pa.Array) -> pa.Array:
    """Give the partition value of each value.

    Parameters
    ----------
    transform
        One that takes values of this type.
    values
        In one of the types that a table's column can have.
    """
    kind = transform.kind
    if kind is TransformKind.IDENTITY:
        return values
    if kind is TransformKind.BUCKET:
        assert transform.argument is not None
        return _with_nulls(bucket_hash(values) % np.int64(transform.argument), values)
    if kind is TransformKind.TRUNCATE:
        assert transform.argument is not None
        import pyarrow.compute as pc

        if pa.types.is_string(values.type):
            # Code points, as Iceberg says; `width` characters never cut one in two.
            return pc.utf8_slice_codeunits(values, 0, transform.argument)
        if pa.types.is_binary(values.type):
            return pc.binary_slice(values, 0, transform.argument)
        if pa.types.is_decimal(values.type):
            return _truncate_decimal(values, transform.argument)
        numbers = integers(values)
        return _with_nulls(numbers - numbers % transform.argument, values)
    numbers, are_days = integers(values), pa.types.is_date32(values.type)
    if kind in _CALENDAR:
        # numpy rounds down to the year or month, also before 1970.
        moments = numbers.astype("datetime64[D]" if are_days else "datetime64[us]")
        return _with_nulls(moments.astype(_CALENDAR[kind]).astype(np.int64), values)
    return _with_nulls(numbers if are_days else numbers // _MICROSECONDS[kind], values)


def _with_nulls(results: NDArray[Any], values: pa.Array) -> pa.Array:
    mask = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    return pa.array(results, mask=mask)


def integers(values: pa.Array) -> _Integers:
    """Give integers, dates (days) or timestamps (microseconds) as 64-bit integers, 0 for null."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    wide = values.cast(pa.int64())
    # `to_numpy` of an array with nulls makes it floating-point, and rounds.
    filled = wide.fill_null(0) if wide.null_count else wide
    return np.asarray(filled.to_numpy(), dtype=np.int64)


# --- truncate -------------------------------------------------------------------------------------------------------------


def _truncate_decimal(values: pa.Array, width: int) -> pa.Array:
    """Round the unscaled 128-bit integers down to a multiple of `width` (below 2^30, so that products fit 64 bits)."""
    filled = values.fill_null(0) if values.null_count else values
    halves = np.frombuffer(filled.buffers()[1], "<u8", 2 * len(filled), filled.offset * 16).reshape(-1, 2)
    low, high = halves[:, 0], halves[:, 1].view(np.int64)
    # Modulo of a 128-bit number by halves: 2^64 leaves a rest of its own for each unit of the upper half.
    high_rest = (high % width).astype(np.uint64)
    modulus = np.uint64(width)
    rest = (high_rest * np.uint64(2**64 % width) + low % modulus) % modulus
    result = np.empty_like(halves)
    result[:, 0] = low - rest
    # The borrow of the lower half.
    result[:, 1] = (high - (low < rest)).view(np.uint64)
    whole = pa.Array.from_buffers(values.type, len(values), [None, pa.py_buffer(result.tobytes())])
    if not values.null_count:
        return whole
    import pyarrow.compute as pc

    return pc.if_else(values.is_valid(), whole, pa.scalar(None, whole.type))


# --- bucket ---------------------------------------------------------------------------------------------------------------


def bucket_hash(values: pa.Array) -> _Integers:
    """Give Iceberg's 32-bit hash of each value without its sign; of a null, anything."""
    kinds = pa.types
    if kinds.is_string(values.type) or kinds.is_binary(values.type):
        _, positions, data = values.buffers()
        offsets = np.frombuffer(positions, "<i4", len(values) + 1, values.offset * 4).astype(np.int64)
        # Arrow has no buffer for texts that are all empty.
        octets = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        hashes = _hash_ragged(octets, offsets[:-1], np.diff(offsets))
    elif kinds.is_decimal(values.type):
        # The unscaled integers as the shortest big-endian two's complement bytes, as Java's BigInteger has them.
        little = np.frombuffer(values.buffers()[1], np.uint8, 16 * len(values), values.offset * 16).reshape(-1, 16)
        big = np.ascontiguousarray(little[:, ::-1])
        sign = np.where(big[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
        differs = big != sign
        # `argmax` of a row without a difference is 0, too: zero and minus one need one byte.
        leading = np.where(differs.any(axis=1), differs.argmax(axis=1), 16)
        first = big[np.arange(len(big)), np.minimum(leading, 15)]
        needs_sign = (leading == 16) | ((first >= 0x80) != (sign[:, 0] >= 0x80))
        lengths = (16 - leading + needs_sign).astype(np.int64)
        starts = np.arange(len(big), dtype=np.int64) * 16 + (16 - lengths)
        hashes = _hash_ragged(big.reshape(-1), starts, lengths)
    else:
        # Of eight little-endian bytes, also for 32-bit integers and dates: two blocks and no tail.
        halves = integers(values).view(np.uint32).reshape(-1, 2)
        hashes = _mix_block(_mix_block(np.zeros(len(values), np.uint32), halves[:, 0]), halves[:, 1])
        hashes = _finish(hashes, np.full(len(values), 8, np.uint32))
    return (hashes & np.uint32(0x7FFF_FFFF)).astype(np.int64)


def _hash_ragged(octets: _Octets, starts: _Integers, lengths: _Integers) -> _Words:
    """Murmur3 of values of different lengths, longest first so that the rows that still have a block are a prefix."""
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    hashes = np.zeros(len(order), np.uint32)
    blocks = lengths // 4
    for number in range(int(blocks[0]) if len(blocks) else 0):
        active = int(np.searchsorted(-blocks, -number, side="left"))  # rows with more than `number` blocks
        # What is left of a few long values is mixed one after the other: a single very long value would take a round of numpy
        # for every four of its bytes.
        if active <= SCALAR_ROWS_MAX:
            ends = starts[:active] + 4 * blocks[:active]
            for row, (start, end) in enumerate(
                zip((starts[:active] + 4 * number).tolist(), ends.tolist(), strict=True)
            ):
                state = int(hashes[row])
                for word in np.frombuffer(octets[start:end].tobytes(), "<u4").tolist():
                    mixed = word * 0xCC9E2D51 & 0xFFFFFFFF
                    state ^= (mixed << 15 | mixed >> 17) * 0x1B873593 & 0xFFFFFFFF
                    state = (state << 13 | state >> 19) * 5 + 0xE6546B64 & 0xFFFFFFFF
                hashes[row] = state
            break
        block = _little_endian(octets, starts[:active] + 4 * number, 4)
        hashes[:active] = _mix_block(hashes[:active], block)
    for width in (1, 2, 3):
        rows = np.flatnonzero(lengths % 4 == width)
        hashes[rows] ^= _scramble(_little_endian(octets, (starts + 4 * blocks)[rows], width))
    result = np.empty_like(hashes)
    result[order] = _finish(hashes, lengths.astype(np.uint32))
    return result


def _little_endian(octets: _Octets, starts: _Integers, width: int) -> _Words:
    words = np.zeros(len(starts), np.uint32)
    for i in range(width):
        words |= octets[starts + i].astype(np.uint32) << np.uint32(8 * i)
    return words


def _mix_block(hashes: _Words, block: _Words) -> _Words:
    return _rotate(hashes ^ _scramble(block), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _scramble(block: _Words) -> _Words:
    return _rotate(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotate(words: _Words, bits: int) -> _Words:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _finish(hashes: _Words, lengths: _Words) -> _Words:
    hashes = hashes ^ lengths
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
