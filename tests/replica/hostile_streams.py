"""Mutated Arrow streams, against all that an insert does with a body: ``python -m tests.replica.hostile_streams SEED INPUTS``.

Run as a process of its own, so that a crash is seen.  It prints one line of JSON: how many inputs had which outcome, and the
outcomes that are defects, with the input that led to each.
"""

from __future__ import annotations

import base64
import json
import random
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from replitree.errors import BadInput, SchemaMismatch
from replitree.replica.http.bodies import decode
from replitree.storage.parts.conform import conform
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.ipc_extent import measure
from replitree.storage.parts.plain_arrays import Budget
from replitree.storage.schema.definition import TableDefinition, define_table
from tests.storage.support import ipc_stream

BYTES_MAX = 16 << 20
ROWS_MAX = 100_000
MEMORY_BYTES = 4 << 30
"""Address space of the process: threads, allocators and the limits above fit in, a bomb does not."""

INTERESTING = (
    0,
    1,
    -1,
    2,
    7,
    8,
    12,
    13,
    127,
    128,
    255,
    256,
    1 << 15,
    1 << 16,
    (1 << 31) - 1,
    -(1 << 31),
    1 << 31,
    -(1 << 63),
)
TABLE = define_table(
    "t",
    "k bigint, f double, s string, b binary, d date, t timestamp, m decimal(12,2), o boolean, l array<string>,"
    " a struct<x:int,y:string>, p map<string,bigint>",
    order_by=["k", "s"],
    partition_by="bucket(4, k)",
)
WORDS = ["a", None, "longer than twelve bytes", "", "ü" * 20, "a", "b", "c"]


def columns() -> Iterator[tuple[str, pa.Array]]:
    """Give for each column of the table arrays that it takes, in every layout."""
    numbers = pa.array([5, None, 3, 3, 3, 1, 0, 9], pa.int64())
    text, lists = pa.array(WORDS), pa.array([[word] if word else word for word in WORDS], pa.list_(pa.string()))
    yield "k", numbers
    yield "k", numbers.cast(pa.uint8())
    yield "k", pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 8]), pa.array([5, None, 3]))
    yield "k", pa.nulls(8)
    yield "f", numbers.cast(pa.float64())
    yield "f", numbers.cast(pa.float16())
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        yield "s", text.cast(kind)
    yield "s", text.dictionary_encode()
    yield "s", pa.DictionaryArray.from_arrays(pa.array([2, None] * 4, pa.uint16()), pa.array(WORDS, pa.string_view()))
    yield "b", text.cast(pa.binary_view())
    yield "b", pa.array([b"1234"] * 8, pa.binary(4))
    yield "d", numbers.cast(pa.int32()).cast(pa.date32())
    yield "d", pa.array([86_400_000 * n for n in range(8)], pa.int64()).cast(pa.date64())
    yield "t", numbers.cast(pa.timestamp("s", "Europe/Berlin"))
    yield "m", numbers.cast(pa.decimal128(21, 2))
    yield "m", numbers.cast(pa.decimal256(30, 4))
    yield "o", pa.array([True, None] * 4)
    yield "l", lists
    yield "l", lists.cast(pa.large_list(pa.string_view()))
    yield "l", pa.array(lists.to_pylist(), pa.list_view(pa.string()))
    yield "l", pa.array([["a", "b"], None] * 4, pa.list_(pa.dictionary(pa.int8(), pa.string())))
    yield "l", pa.array([["a", "b"], None] * 4, pa.list_(pa.string_view(), 2))
    yield "a", pa.array([{"x": 1, "y": "z"}, None] * 4, pa.struct([("x", pa.int32()), ("y", pa.string())]))
    yield "a", pa.array([{"y": "z" * 20}, None] * 4, pa.struct([("y", pa.string_view())]))
    yield "p", pa.array([[("k", 1)], None] * 4, pa.map_(pa.string(), pa.int64()))
    yield "p", pa.array([[("k", 1)], None] * 4, pa.map_(pa.string_view(), pa.int8()))


def corpus() -> list[bytes]:
    """Return right streams: each column alone, and all of them, in every compression; dictionaries with deltas."""
    every = list(columns())
    tables = [pa.table({name: array}) for name, array in every]
    tables += [pa.table(dict(every)), pa.table(dict(reversed(every)))]
    streams = [ipc_stream(table, codec) for codec in (None, "lz4", "zstd") for table in tables]
    growing = [pa.array(WORDS[:end]).dictionary_encode() for end in (1, 4, 8)]
    batches = [pa.record_batch({"s": array}) for array in growing]
    return [*streams, ipc_stream(pa.Table.from_batches(batches), deltas=True)]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Damage a stream at one to four places."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        last = len(found) - 1  # where the buffers are; before are the messages, of which most damages are found at once
        at = chance.choice((chance.randrange(len(found)), last - chance.randrange(max(1, last // 2))))
        width = chance.choice((1, 4, 8))
        match chance.randrange(6):
            case 0:
                found[at] ^= 1 << chance.randrange(8)
            case 1 | 2 | 3:
                at -= at % width
                number = chance.choice(INTERESTING) % (1 << 8 * width)
                found[at : at + width] = number.to_bytes(width, "little")
            case 4:
                source = chance.randrange(len(found))
                found[at : at + 16] = found[source : source + 16]
            case _:
                found = found[: at + 1]
    return bytes(found)


def outcome(body: bytes, table: TableDefinition, folder: Path) -> str:
    """Insert a body as a replica does; return what became of it, or raise what is a defect."""
    try:
        extent = measure(body, rows_max=ROWS_MAX, bytes_max=BYTES_MAX)
        rows = conform(decode(body, extent), table, Budget(BYTES_MAX))
        content_hash(rows, table.arrow_schema)
        if rows.num_rows:
            stage_table(rows, table, folder, sync=False)
    except (BadInput, SchemaMismatch) as error:
        return type(error).__name__
    return "taken"


def main(seed: int, inputs: int) -> None:
    """Run as many inputs as asked for."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    chance, bodies, counts, defects = random.Random(seed), corpus(), Counter[str](), dict[str, str]()
    with tempfile.TemporaryDirectory() as folder:
        for body in bodies:
            assert outcome(body, TABLE, Path(folder) / f"right-{len(counts)}-{counts.total()}") == "taken", body
            counts["right"] += 1
        for number in range(inputs):
            body = mutated(chance.choice(bodies), chance)
            try:
                counts[outcome(body, TABLE, Path(folder) / str(number))] += 1
            except Exception as error:  # noqa: BLE001 - each kind is reported
                counts["defect"] += 1
                defects.setdefault(f"{type(error).__name__}: {error}"[:200], base64.b64encode(body).decode())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"counts": counts, "peak_mb": peak, "defects": defects}))  # noqa: T201 - for the test


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
