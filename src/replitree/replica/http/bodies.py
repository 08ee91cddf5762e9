"""Bodies of inserts: how much memory they may take, and how they become rows.

Memory is bounded by the configuration, whatever clients send:

* bodies that are being received or wait to be decoded: together `bodies_bytes_max` (`HeldBytes`);
* rows of one body: `insert_rows_max` rows and `insert_decoded_bytes_max` bytes, checked before anything is decoded
  (`replitree.storage.parts.ipc_extent`), and again when the rows get the table's types;
* bodies that are decoded at once: `decode_threads`, none of them on the loop.

A body whose decoded size is provably small (`is_quick`) is decoded on the loop, because a thread would cost more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from replitree.errors import BadInput, Unavailable
from replitree.replica.kit.config import ServerConfig
from replitree.storage.parts.ipc_extent import REMEMBERED_BYTES_MAX, Extent, measure

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

QUICK_BYTES_MAX = 2 << 20
"""Decoded bytes of a body that is decoded on the loop."""

QUICK_SLOTS_MAX = 1 << 18
"""Rows times columns of the table of such a body: columns that are not given are filled in."""


class HeldBytes:
    """Counts the bytes of bodies that are in memory.  Used on the loop only.

    Parameters
    ----------
    bytes_max
        The limit.
    """

    def __init__(self, bytes_max: int) -> None:
        self._max = bytes_max
        self.bytes = 0

    def take(self, size: int) -> None:
        """Count bytes that are about to be received.

        Raises
        ------
        Unavailable
            They would exceed the limit.
        """
        if self.bytes + size > self._max:
            raise Unavailable(
                f"the replica holds {self.bytes:,} bytes of requests that are not finished, and may hold {self._max:,} "
                "(bodies_bytes_max); try again, or at another replica"
            )
        self.bytes += size

    def give(self, size: int) -> None:
        """Count bytes that are no longer in memory."""
        self.bytes -= size


class Bodies:
    """Decodes the bodies of one server's inserts.

    Parameters
    ----------
    config
        Has the limits.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.held = HeldBytes(config.bodies_bytes_max)
        self.decoded_bytes_max = config.insert_decoded_bytes_max
        self._rows_max = config.insert_rows_max
        self._threads = ThreadPoolExecutor(config.decode_threads, "decode")

    def measure(self, body: bytes) -> Extent:
        """Return how much a body's rows are.  Raises `BadInput` as `replitree.storage.parts.ipc_extent.measure`."""
        return measure(body, rows_max=self._rows_max, bytes_max=self.decoded_bytes_max)

    async def in_thread(self, decode: Callable[[], T]) -> T:
        """Decode a body in a thread; when all threads decode it waits."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, decode)

    def close(self) -> None:
        """Stop decoding."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def is_quick(extent: Extent, columns: int) -> bool:
    """Tell whether rows can be decoded on the loop for a table with so many columns."""
    return extent.is_plain and extent.bytes <= QUICK_BYTES_MAX and extent.rows * columns <= QUICK_SLOTS_MAX


def decode(body: bytes, extent: Extent) -> pa.Table:
    """Read an Arrow IPC stream that was measured.

    Raises
    ------
    BadInput
        It is not one, or is damaged.
    """
    import pyarrow as pa

    try:
        if extent.messages == 2 and extent.is_plain and extent.schema_end <= REMEMBERED_BYTES_MAX:
            schema = _schema_of(body[: extent.schema_end])
            batch = pa.ipc.read_record_batch(pa.py_buffer(body).slice(extent.schema_end), schema)
            return pa.Table.from_batches([batch], schema)
        return pa.ipc.open_stream(body).read_all()
    except (pa.ArrowException, OSError, EOFError, UnicodeError) as error:
        raise BadInput(f"the body is not an Arrow IPC stream: {error}") from error


@lru_cache(maxsize=256)
def _schema_of(message: bytes) -> pa.Schema:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(message))
