"""Columns of whole numbers as numpy sees them, for the few questions that are asked of every small insert.

An Arrow kernel costs some microseconds before it looks at the first value: the choice of the kernel, a result array, a scalar,
a Python number.  Of a hundred rows that is nearly all of the cost; numpy asks a tenth.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.integer[Any]]]

_DTYPES: dict[int, tuple[str, int]] = {
    pa.int8().id: ("<i1", 1),
    pa.int16().id: ("<i2", 2),
    pa.int32().id: ("<i4", 4),
    pa.int64().id: ("<i8", 8),
    pa.date32().id: ("<i4", 4),
    pa.timestamp("us").id: ("<i8", 8),
}


def whole_numbers(values: pa.Array | pa.ChunkedArray) -> Numbers | None:
    """Show a column's values, without a copy; dates in days, timestamps in their unit, since 1970.

    None for a column that has nulls, several chunks, or other values than integers, dates and timestamps.
    """
    if isinstance(values, pa.ChunkedArray):
        # A join of the chunks would copy: the caller's kernels take chunks as they are.
        if values.num_chunks != 1:
            return None
        values = values.chunk(0)
    known = _DTYPES.get(values.type.id)
    if known is None or values.null_count:
        return None
    dtype, width = known
    return np.frombuffer(values.buffers()[1], dtype, len(values), values.offset * width)
