"""The sum of rows: 128 bits that two sets of rows share when they hold the same rows, in whatever order and as often.

A move of buckets compares the rows that it has read at one shard with the files that another shard has staged of them: sorted,
cut into partitions and encoded anew.  `content_hash` can't do that, for it depends on the order.

Guarantees: the sum depends on the columns' order, types and values only.  It does not depend on the order of the rows, on how
they are cut into batches and files, or on what lies under a null.

Each row has a hash of 64 bits; the sum is that of all hashes, and of all hashes scrambled once more, each modulo 2^64.

=======================  =====================================================================================
type                     the hash of a value
=======================  =====================================================================================
null                     a constant
types of a shard key     XXH64, as `row_buckets.xxhash64` computes it
float, double            the same of its bits: 0.0 and -0.0 differ, and so do two kinds of NaN
longer decimals          both halves of its 16 bytes
list, map                its elements, each scrambled with its position, and how many there are
struct                   its fields, in order
=======================  =====================================================================================

It finds accidents: a row that is lost, doubled or damaged.  It is no defence against rows that were made for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from replitree.storage.schema.row_buckets import BLOCK_ROWS, DECIMAL_DIGITS_MAX, xxhash64

_Words: TypeAlias = NDArray[np.uint64]

_NULL = np.uint64(0x9AE16A3B2F90404F)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)


class RowsSummer:
    """Sums rows up that come batch by batch.

    Attributes
    ----------
    rows
        How many there were.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._sums = [0, 0]

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch; every batch has the same columns in the same order."""
        self.rows += batch.num_rows
        for start in range(0, batch.num_rows, BLOCK_ROWS):
            block = batch.slice(start, BLOCK_ROWS)
            hashes = _joined([_hashes(column) for column in block.columns], block.num_rows)
            for at, each in enumerate((hashes, _scrambled(hashes + _STEP))):
                # numpy adds 64-bit words modulo 2^64.
                self._sums[at] = (self._sums[at] + int(each.sum(dtype=np.uint64))) % (1 << 64)

    def hexdigest(self) -> str:
        """Give the sum of all rows so far: 32 hexadecimal digits."""
        return "".join(f"{each:016x}" for each in self._sums)


def _hashes(values: pa.Array) -> _Words:
    """Give the hash of each value."""
    kinds, arrow = pa.types, values.type
    if not len(values):
        return np.empty(0, np.uint64)
    if kinds.is_dictionary(arrow):
        return _hashes(values.dictionary_decode())
    if kinds.is_struct(arrow):
        found = _joined([_hashes(field) for field in values.flatten()], len(values))
    elif kinds.is_map(arrow):
        as_list = pa.list_(pa.struct([("key", arrow.key_type), ("value", arrow.item_type)]))
        found = _of_lists(values.cast(as_list))
    elif kinds.is_list(arrow):
        found = _of_lists(values)
    elif kinds.is_null(arrow):
        found = np.zeros(len(values), np.uint64)
    elif kinds.is_floating(arrow):
        found = xxhash64([values.view(pa.int64() if arrow.bit_width == 64 else pa.int32())]).view(np.uint64)
    elif kinds.is_decimal(arrow) and arrow.precision > DECIMAL_DIGITS_MAX:
        halves = np.frombuffer(values.buffers()[1], "<i8", 2 * len(values), values.offset * 16)
        found = xxhash64([pa.array(halves[::2]), pa.array(halves[1::2])]).view(np.uint64)
    else:
        found = xxhash64([values]).view(np.uint64)
    if values.null_count:
        found = np.where(values.is_valid().to_numpy(zero_copy_only=False), found, _NULL)
    return found


def _of_lists(values: Any) -> _Words:
    """Give the hash of each list; of a null, anything."""
    lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    # `flatten` gives the elements of the lists that are not null, one list after the other.
    elements = _hashes(values.flatten())
    places = (np.arange(len(elements)) - np.repeat(starts, lengths)).astype(np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_scrambled(elements + (places + np.uint64(1)) * _STEP))])
    return _joined([sums[ends] - sums[starts], lengths.astype(np.uint64)], len(lengths))


def _joined(columns: Sequence[_Words], rows: int) -> _Words:
    """Give one hash of several for each row; their order counts."""
    found = np.full(rows, _NULL, np.uint64)
    for column in columns:
        found = _scrambled(found * _STEP ^ column)
    return found


def _scrambled(words: _Words) -> _Words:
    """Give words of which each bit depends on all bits: the finalizer of SplitMix64."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    return words ^ (words >> np.uint64(31))


__all__ = ["RowsSummer"]
