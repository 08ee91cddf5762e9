"""The extent of a stream is known before it is decoded, and whatever would take more than a limit is refused."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
import tracemalloc

import pyarrow as pa
import pytest

from replitree.errors import BadInput
from replitree.replica.http.bodies import decode
from replitree.storage.parts.ipc_extent import FIELDS_MAX, Extent, measure
from tests.project.source import ROOT
from tests.storage.support import ipc_stream

LARGE = 1 << 40


def extent(data: bytes, rows_max: int = LARGE, bytes_max: int = LARGE) -> Extent:
    return measure(data, rows_max=rows_max, bytes_max=bytes_max)


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_rows_and_bytes_are_those_of_the_decoded_table(codec: str | None) -> None:
    data = pa.table({"k": range(100_000), "s": ["text"] * 100_000})
    found = extent(ipc_stream(data, codec))
    assert found.rows == 100_000
    assert data.nbytes <= found.bytes <= data.nbytes + 400_000
    assert found.is_plain
    assert found.messages == 1 + len(data.to_batches())


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a"]).dictionary_encode(),
        pa.array(["a"], pa.string_view()),
        pa.array([[1]], pa.list_view(pa.int64())),
        pa.array([["a"]], pa.list_(pa.string_view())),
        pa.RunEndEncodedArray.from_arrays(pa.array([1]), pa.array([1])),
    ],
)
def test_what_may_expand_is_not_plain(array: pa.Array) -> None:
    assert not extent(ipc_stream(pa.table({"c": array}))).is_plain


def test_a_stream_above_a_limit_is_refused() -> None:
    data = ipc_stream(pa.table({"k": range(10_000)}), "zstd")
    assert extent(data, 10_000, 100_000).rows == 10_000
    with pytest.raises(BadInput, match="more than 9,999 rows"):
        extent(data, rows_max=9_999)
    with pytest.raises(BadInput, match="more than 80,000 bytes"):
        extent(data, bytes_max=80_000)


def test_batches_and_arrays_without_rows_count_too() -> None:
    schema, sink = pa.schema([(f"c{number}", pa.int64()) for number in range(100)]), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for _ in range(1000):
            writer.write_batch(pa.RecordBatch.from_pylist([], schema))
    data = sink.getvalue().to_pybytes()
    assert extent(data).bytes >= 100 * 1000 * 500


def test_each_piece_of_a_growing_dictionary_counts_with_all_before_it() -> None:
    values = [f"value {number:05}" for number in range(1000)]
    batches = [pa.record_batch({"c": pa.DictionaryArray.from_arrays([0], values[:end])}) for end in range(1, 1000)]
    data = ipc_stream(pa.Table.from_batches(batches), deltas=True)
    assert extent(data).bytes > 1000 * 999 / 2 * 11
    with pytest.raises(BadInput, match="insert_decoded_bytes_max"):
        extent(data, bytes_max=5_000_000)


def test_a_schema_has_limits() -> None:
    wide = pa.schema([(f"c{number}", pa.int8()) for number in range(FIELDS_MAX + 1)])
    with pytest.raises(BadInput, match="more than 20,000 fields"):
        extent(ipc_stream(wide.empty_table()))
    with pytest.raises(BadInput, match="bytes of names and metadata"):
        extent(ipc_stream(pa.table({"k": [1]}).replace_schema_metadata({"a": "x" * 5_000_000})))
    with pytest.raises(BadInput, match="bytes of names and metadata"):
        extent(ipc_stream(pa.table({"k" * 5_000_000: [1]})))


def test_references_to_one_field_are_counted_each_time() -> None:
    """A schema of 2 kB whose fields all lie in one place: as a tree it has 10^8 fields."""
    began = time.process_time()
    with pytest.raises(BadInput, match="more than 20,000 fields"):
        extent(schema_message(fan_out=100, depth=4))
    assert time.process_time() - began < 5.0


def schema_message(*, fan_out: int = 0, depth: int = 0, big_endian: bool = False) -> bytes:
    """Return a message with a schema whose fields are structs that have `fan_out` times the same field, on `depth` levels."""
    message = struct.pack("<I HHHHH xx iBxxxI", 16, 10, 12, 0, 4, 8, 12, 1, 12)
    schema = struct.pack("<HHHH iIHxx", 8, 12, 8 if big_endian else 0, 4, 8, 8, big_endian)
    data = message + schema
    for level in range(depth):
        size, is_last = 4 + 4 * fan_out, level == depth - 1
        data += struct.pack("<I", fan_out) + b"".join(struct.pack("<I", size + 16 - at) for at in range(4, size, 4))
        data += struct.pack("<HH6H iBxxxI", 16, 12, 0, 0, 4, 0, 0, 0 if is_last else 8, 16, 13, 4)
    data += struct.pack("<I", 0)
    return struct.pack("<iI", -1, len(data)) + data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no schema"),
        (b"\x00" * 8, "no schema"),
        (b"\xff\xff\xff\xff", "unpack_from"),
        (b"\xff\xff\xff\xff\xff\xff\xff\x7f", "beyond the body"),
        (b"\xff\xff\xff\xff\x08\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", "unpack_from"),
        (b"PAR1" * 4, "beyond the body"),
    ],
)
def test_what_is_no_stream_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        extent(data)


def test_a_big_endian_stream_is_refused() -> None:
    assert extent(schema_message()).rows == 0
    with pytest.raises(BadInput, match="big-endian"):
        extent(schema_message(big_endian=True))


def test_mutated_streams_end_no_process_and_are_no_defect() -> None:
    command = [sys.executable, "-m", "tests.replica.hostile_streams", "2026", "3000"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert '"defects": {}' in ran.stdout


def test_large_schemas_are_not_kept_in_memory() -> None:
    tracemalloc.start()
    for number in range(20):
        data = ipc_stream(pa.table({"k": [1]}).replace_schema_metadata({"a": f"{number:010}" * 100_000}))
        decode(data, extent(data))
    data = b""
    assert tracemalloc.get_traced_memory()[0] < 2_000_000
    tracemalloc.stop()
