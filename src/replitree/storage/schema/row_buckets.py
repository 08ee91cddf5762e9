"""Buckets of a sharded table: which bucket each row belongs to, and which rows go to which shard.

It stands beside the partition transforms, for it is one more function from a row's values to where the row belongs.

Guarantees: `xxhash64` gives what Spark's function of this name gives for the same columns: XXH64 with seed 42, where the hash
of each column is the seed of the next one, and a null leaves the hash as it is.  So a row has the same bucket whether an
executor, this process or a reader that prunes computes it.  `split_by_shard` gives every row to exactly one shard, and keeps
their order.

==================================  =============================================================
type                                what is hashed, little-endian
==================================  =============================================================
boolean, int8, int16, int32, date   4 bytes: 1 or 0, the number, the days since 1970
int64, timestamp                    8 bytes: the number, the microseconds since 1970
decimal with 18 digits at most      8 bytes: the number without its point
string, binary                      its bytes
==================================  =============================================================

These are the types that a key column may have, and it may not be null.  Others are refused: equal floating-point numbers can
have different bits, Spark hashes larger decimals in another way, and a list or struct as a key has no use that its fields lack.

Rows are hashed by numpy, a step of the algorithm for many values of one length at once.  What is too long or too rare for that
goes through the package `xxhash`, value by value.

The algorithm: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md (XXH64).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from replitree.errors import BadInput
from replitree.protocol.sharded.shard_map import Shard, ShardMap
from replitree.storage.schema.columns import Column
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.partition import rows_by_code
from replitree.storage.schema.transforms import integers
from replitree.storage.schema.type_kinds import MOMENTS, WHOLE_NUMBERS, kind_of

SEED = 42

DECIMAL_DIGITS_MAX = 18
"""Digits of a decimal that Spark hashes as a 64-bit integer."""

BLOCK_ROWS = 1 << 16
"""Rows that are hashed at once: many values of each length, and what numpy makes on the way stays in the processor's cache."""

GROUP_ROWS_MIN = 64
"""Fewer values of one length are hashed one by one: numpy's steps would cost more."""

GROUP_BYTES_MAX = 64
"""So are longer ones: of those the hash itself is the cost."""

_Words: TypeAlias = NDArray[np.uint64]
_Octets: TypeAlias = NDArray[Any]

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_KEY_KINDS = WHOLE_NUMBERS | MOMENTS | {"boolean", "string", "binary"}


class ShardRows(NamedTuple):
    """The rows of one shard."""

    shard: Shard
    rows: pa.Table


def shard_key(definition: TableDefinition, key: Sequence[str]) -> tuple[Column, ...]:
    """Return the key columns of a sharded table.

    Parameters
    ----------
    definition
        The table.
    key
        Their names in data files, as its map has them.

    Raises
    ------
    BadInput
        A table can't be sharded by one of them; says what is allowed.
    """
    stored, by_id = definition.stored, {column.id: column for column in definition.columns}
    columns = tuple(by_id[stored.column(name).id] for name in key)
    for column in columns:
        if not is_key_column(column):
            raise BadInput(
                f"rows can't be sharded by {column.name!r}, {column.type}{'' if column.nullable else ' not null'}: a key column"
                " is not null, and an integer, string, binary, date, timestamp, boolean, or decimal of at most"
                f" {DECIMAL_DIGITS_MAX} digits"
            )
    return columns


def is_key_column(column: Column) -> bool:
    """Whether a table can be sharded by a column."""
    arrow = column.arrow_type
    is_short = pa.types.is_decimal(arrow) and arrow.precision <= DECIMAL_DIGITS_MAX
    return not column.nullable and (kind_of(column.type) in _KEY_KINDS or bool(is_short))


def keeps_buckets(found: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether equal values keep their bucket when a key column of type `found` is widened to `target`.

    Whole numbers of up to 32 bits have one hash, whatever their type; a 64-bit one has another.
    """
    kinds = pa.types
    if kinds.is_decimal(found) and kinds.is_decimal(target):
        return bool(found.scale == target.scale and target.precision <= DECIMAL_DIGITS_MAX)
    return bool(kinds.is_integer(found) and kinds.is_integer(target) and max(found.bit_width, target.bit_width) <= 32)


def check_key_kept(before: TableDefinition, after: TableDefinition, key: Sequence[str]) -> None:
    """Raise unless every row of a sharded table stays in its bucket when the columns change.

    Parameters
    ----------
    before, after
        The table before and after the change.
    key
        As of `shard_key`.

    Raises
    ------
    BadInput
        A column of the shard key would go, could be null, or would have a type whose values hash in another way.
    """
    by_id = {column.id: column for column in after.columns}
    for column in shard_key(before, key):
        changed = by_id.get(column.id)
        found, target = column.arrow_type, None if changed is None else changed.arrow_type
        is_same = target is not None and (found == target or keeps_buckets(found, target))
        if changed is None or changed.nullable or not is_same:
            raise BadInput(
                f"{column.name!r} is a column of the shard key, whose values say which shard has a row: it can be renamed, and"
                " widened up to int, and nothing else"
            )


def split_by_shard(rows: pa.Table, definition: TableDefinition, shard_map: ShardMap) -> list[ShardRows]:
    """Split rows by the owners of their buckets.

    Parameters
    ----------
    rows
        In the definition's schema.
    definition
        The sharded table.
    shard_map
        Its map.

    Returns
    -------
    list
        By the number of the shard, without shards that get no rows.  The rows of each are in the order in which they came.

    Raises
    ------
    BadInput
        The key has a column that no key can have.
    """
    shards, runs = shard_map.shards, shard_map.owner
    owner = np.repeat(np.searchsorted(shards, [run.shard for run in runs]), [run.buckets for run in runs])
    codes = owner[row_buckets(rows, definition, shard_map)]
    present = np.flatnonzero(np.bincount(codes, minlength=len(shards)))
    if not len(present):
        return []
    # Without gaps, as the grouping of partitions has its codes.
    dense = np.zeros(len(shards), np.int64)
    dense[present] = np.arange(len(present))
    pieces = rows_by_code(rows, dense[codes], len(present))
    return [ShardRows(shards[at], piece) for at, piece in zip(present.tolist(), pieces, strict=True)]


def row_buckets(rows: pa.Table, definition: TableDefinition, shard_map: ShardMap) -> NDArray[np.uint16]:
    """Return the bucket of each row.  Takes and raises what `split_by_shard` does."""
    key = [column.name for column in shard_key(definition, shard_map.key)]
    blocks = rows.select(key).to_batches(max_chunksize=BLOCK_ROWS)
    found = [key_buckets(block.columns, shard_map.buckets) for block in blocks]
    return np.concatenate(found) if found else np.empty(0, np.uint16)


def key_buckets(columns: Sequence[pa.Array], buckets: int) -> NDArray[np.uint16]:
    """Return the bucket of each key.

    Parameters
    ----------
    columns
        The key columns, one or more arrays of one length, without nulls.
    buckets
        How many there are: a power of two.
    """
    # No key column may be null: readers that prune look for no such row.
    assert not any(column.null_count for column in columns)
    # The low bits of a number in two's complement are its positive remainder by a power of two.
    return (xxhash64(columns) & np.int64(buckets - 1)).astype(np.uint16)


def xxhash64(columns: Sequence[pa.Array]) -> NDArray[np.int64]:
    """Return what Spark's ``xxhash64(column, …)`` returns for each row.

    Parameters
    ----------
    columns
        One or more arrays of one length, of types that a key column may have; here nulls are allowed.
    """
    hashes = np.full(len(columns[0]), SEED, np.uint64)
    kinds = pa.types
    # Arrow may leave out the buffers of arrays without values.
    for values in columns if len(hashes) else ():
        if kinds.is_string(values.type) or kinds.is_binary(values.type):
            hashed = _hash_texts(values, hashes)
        elif kinds.is_decimal(values.type):
            # 16 bytes each, of which the lower half says it all.
            halves = np.frombuffer(values.buffers()[1], "<u8", 2 * len(values), values.offset * 16)
            hashed = _hash_fixed(np.ascontiguousarray(halves[::2]), 8, hashes)
        else:
            numbers = integers(values.cast(pa.int8()) if kinds.is_boolean(values.type) else values)
            is_wide = values.type.bit_width == 64
            hashed = _hash_fixed(numbers if is_wide else numbers.astype("<i4"), 8 if is_wide else 4, hashes)
        hashes = (
            np.where(values.is_valid().to_numpy(zero_copy_only=False), hashed, hashes) if values.null_count else hashed
        )
    return hashes.view(np.int64)


def _hash_texts(values: pa.Array, seeds: _Words) -> _Words:
    """Hash strings or binaries, those of one length together; of a null, anything."""
    # What lies under a null may have a length.
    values = values.fill_null(b"") if values.null_count else values
    offsets = np.frombuffer(values.buffers()[1], "<i4", len(values) + 1, values.offset * 4)
    lengths = np.diff(offsets)
    # numpy sorts 16 bits by radix, and wider numbers by comparisons.
    order = np.argsort(lengths.astype(np.uint16) if lengths.max() < 1 << 16 else lengths, kind="stable")
    lengths, seeds = lengths[order], seeds[order]
    # Now the bytes of all values of one length follow one another.
    _, positions, texts = values.take(pa.array(order)).buffers()
    starts = np.frombuffer(positions, "<i4", len(values) + 1)
    # Arrow has no buffer for texts that are all empty.
    octets = np.frombuffer(texts, np.uint8) if texts is not None else np.empty(0, np.uint8)
    hashes = np.empty(len(values), np.uint64)
    changes = (np.flatnonzero(np.diff(lengths)) + 1).tolist()
    for first, end in zip([0, *changes], [*changes, len(lengths)], strict=True):
        width, group = int(lengths[first]), seeds[first:end]
        block = octets[starts[first] : starts[first] + width * len(group)]
        if len(group) >= GROUP_ROWS_MIN and width <= GROUP_BYTES_MAX:
            hashes[first:end] = _hash_fixed(block, width, group)
        else:
            data = block.tobytes()
            hashes[first:end] = [
                xxhash.xxh64_intdigest(data[width * number : width * (number + 1)], seed)
                for number, seed in enumerate(group.tolist())
            ]
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


def _hash_fixed(octets: _Octets, width: int, seeds: _Words) -> _Words:
    """Hash values of `width` bytes each, which follow one another in memory; one seed for each."""

    def word(at: int, kind: str = "<u8") -> _Words:
        """Give the number that begins at byte `at` of each value."""
        return np.ndarray(len(seeds), kind, octets, at, (width,)).astype(np.uint64)

    stripes, words, halves = width // 32 * 32, width // 8 * 8, width // 4 * 4
    hashes = seeds + _P5
    if stripes:
        lanes = [seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1]
        for at in range(0, stripes, 32):
            lanes = [_mixed(lane + word(at + 8 * number) * _P2) for number, lane in enumerate(lanes)]
        hashes = _rotated(lanes[0], 1) + _rotated(lanes[1], 7) + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
        for lane in lanes:
            hashes = (hashes ^ _mixed(lane * _P2)) * _P1 + _P4
    hashes = hashes + np.uint64(width)
    for at in range(stripes, words, 8):
        hashes = _rotated(hashes ^ _mixed(word(at) * _P2), 27) * _P1 + _P4
    if halves > words:
        hashes = _rotated(hashes ^ word(words, "<u4") * _P1, 23) * _P2 + _P3
    for at in range(halves, width):
        hashes = _rotated(hashes ^ word(at, "u1") * _P5, 11) * _P1
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))


def _mixed(words: _Words) -> _Words:
    return _rotated(words, 31) * _P1


def _rotated(words: _Words, bits: int) -> _Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
