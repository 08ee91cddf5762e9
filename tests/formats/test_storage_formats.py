"""What is on disks and in coordination stays readable.

The files under ``storage/`` were written once.  They are added to (a new format gets new files), never rewritten: a test that
fails here has found a change that would make existing tables unreadable, or equal rows unequal.
"""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash

from replitree.storage.files.durable import file_checksum
from replitree.storage.files.sums import BLOCK_BYTES, decode_sums, sums_of
from replitree.storage.parts.content_hash import content_hash
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import MANIFEST_FILE, read_manifest
from replitree.storage.rewrite.read import read_parts
from replitree.storage.schema.definition import decode_definition, define_table
from replitree.storage.schema.partition import partition_id, split_by_partition
from tests.formats.reference_hash import reference_hash
from tests.formats.samples import DEFINITION, FROZEN, rows

PART = FROZEN / "part-1"
CONTENT = "1295b53e583ff658511e9b7b3db179ce"


def test_definition_of_format_1() -> None:
    metadata, columns = (FROZEN / "metadata-1.json").read_bytes(), (FROZEN / "columns-1.json").read_bytes()
    assert decode_definition(metadata, columns) == DEFINITION
    assert DEFINITION.encode_columns() == columns


def test_part_of_format_1() -> None:
    manifest = read_manifest(PART)
    assert manifest.encode() == (PART / MANIFEST_FILE).read_bytes()
    assert [file.checksum for file in manifest.files] == [file_checksum(PART / file.name) for file in manifest.files]
    found = read_parts([PART], DEFINITION)
    assert found.to_pylist() == rows().to_pylist()
    assert manifest.content_hash == content_hash(found, DEFINITION.arrow_schema) == CONTENT
    [part] = split_by_partition(found, DEFINITION)
    assert (part.partition, part.values) == (manifest.partition, manifest.partition_values)


def test_part_of_this_version_says_of_the_rows_what_that_of_format_1_says(tmp_path: Path) -> None:
    frozen = read_manifest(PART)
    [staged] = stage_table(rows(), DEFINITION, tmp_path / "s1")
    assert (staged.partition, staged.columns, staged.content_hash) == (
        frozen.partition,
        frozen.columns,
        frozen.content_hash,
    )


HASHES = [
    (pa.array([], pa.int64()), "d85ad83a649c5e5e70818dc3f115e34a"),
    (pa.array([True, None, False]), "4628fed5749971f5557285cf2c3df303"),
    (pa.array([1, None, -3], pa.int16()), "eaddbce7cc4ae716c1335dd706ad566c"),
    (pa.array([0.0, -0.0, math.inf, None]), "e0755fcd54e6c201d0e8ed9b87911be8"),
    (pa.array(["", None, "größe"]), "6362fe5b909137d91ca5e8e13e037ac8"),
    (pa.array([None, None], pa.binary()), "1c877b557cd17cb9b8c3a1e868aeb61d"),
    (pa.array([[1, None], None, []], pa.list_(pa.int32())), "6624c6a0122c116c8bd249b665124cfb"),
    (
        pa.array([{"a": 1, "b": None}, None], pa.struct([("a", pa.int8()), ("b", pa.string())])),
        "9cde5d2c4bd1c7685be71985f99a90b3",
    ),
    (pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())), "867a38ac24dd73cdf4d036edb49e55bf"),
]


def test_sums_file_of_format_1() -> None:
    data = bytes(number % 251 for number in range(BLOCK_BYTES + 100))
    frozen = (FROZEN / "sums-1" / ".data-0.parquet.crc").read_bytes()
    assert sums_of(data).encoded == frozen
    assert decode_sums(frozen, len(data), xxhash.xxh3_128_hexdigest(data)) is not None


@pytest.mark.parametrize(("column", "expected"), HASHES)
def test_content_hashes_never_change(column: pa.Array, expected: str) -> None:
    table = pa.table({"c": column})
    assert content_hash(table, table.schema) == reference_hash(table) == expected


def test_partition_ids_never_change() -> None:
    definition = define_table("t", "s string, k bigint", partition_by=["s", "k"])
    found = {text: partition_id((text, -1), definition) for text in ("a", "a-b", "", "a" * 41)}
    assert found == {
        "a": "a-~m1",
        "a-b": "~hd1ffbac3b281adbbf5e2d74ca89ebe1f-~m1",
        "": "~h99aa06d3014798d86001c324468d497f-~m1",
        "a" * 41: "~h50a270ba6d6a0874bf2c3cfd87fea3c2-~m1",
    }
