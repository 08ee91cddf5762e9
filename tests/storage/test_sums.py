"""Sums files: their bytes, what makes one unbelievable, and that they come and go with their data files."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash

from replitree.storage.files import sums
from replitree.storage.files.sums import BLOCK_BYTES, SumsHasher, decode_sums, is_summed, read_sums, sums_of, sums_path
from replitree.storage.parts.adopt import adopt_files
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import PartManifest, read_manifest
from replitree.storage.parts.part_folder import link_part_folder, verify_files
from replitree.storage.parts.sums_files import unsummed_files
from replitree.storage.rewrite.merge import merge_parts
from replitree.storage.schema.definition import TableDefinition, TableSettings, define_table


def some_bytes(count: int) -> bytes:
    return random.Random(count).randbytes(count)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 5])
def test_a_sums_file_is_one_of_hadoop_with_more_behind_it(size: int) -> None:
    data = some_bytes(size)
    encoded = sums_of(data).encoded
    blocks = [data[first : first + BLOCK_BYTES] for first in range(0, size, BLOCK_BYTES)]
    hadoop = b"crc\0" + struct.pack(">i", BLOCK_BYTES) + b"".join(struct.pack(">I", zlib.crc32(b)) for b in blocks)
    assert encoded.startswith(hadoop + b"".join(struct.pack("<Q", xxhash.xxh3_64_intdigest(b)) for b in blocks))
    found = decode_sums(encoded, size, xxhash.xxh3_128_hexdigest(data))
    assert found is not None
    assert list(found.blocks) == [xxhash.xxh3_64_intdigest(block) for block in blocks]


def test_sums_do_not_depend_on_how_the_bytes_came() -> None:
    data, random_ = some_bytes(5 * BLOCK_BYTES + 123), random.Random(7)
    hasher, position = SumsHasher(), 0
    while position < len(data):
        count = random_.choice([1, 1000, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 1])
        hasher.update(data[position : position + count])
        position += count
    assert hasher.checksum == xxhash.xxh3_128_hexdigest(data)
    assert hasher.finish().encoded == sums_of(data).encoded


def test_a_sums_file_with_any_bit_changed_is_not_believed() -> None:
    data = some_bytes(BLOCK_BYTES + 1)
    encoded, checksum = sums_of(data).encoded, xxhash.xxh3_128_hexdigest(data)
    for bit in range(8 * len(encoded)):
        changed = bytearray(encoded)
        changed[bit // 8] ^= 1 << bit % 8
        assert decode_sums(bytes(changed), len(data), checksum) is None
    for cut in range(len(encoded)):
        assert decode_sums(encoded[:cut], len(data), checksum) is None


def test_sums_of_another_file_of_the_same_size_are_not_believed() -> None:
    data, other = some_bytes(100_000), bytes(100_000)
    assert decode_sums(sums_of(other).encoded, len(data), xxhash.xxh3_128_hexdigest(data)) is None


# --- files ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> TableDefinition:
    """A table whose data files have sums files although they are small."""
    monkeypatch.setattr(sums, "SUMMED_BYTES_MIN", 100)
    return define_table("t", "k bigint, s string", order_by="k", settings=TableSettings(row_group_rows=1000))


def part_of(table: TableDefinition, folder: Path, first: int = 0, rows: int = 5000) -> Path:
    keys = range(first, first + rows)
    stage_table(pa.table({"k": keys, "s": [f"s{key}" for key in keys]}), table, folder, sync=False)
    return folder / "all"


def has_all_sums(part: Path) -> bool:
    files = read_manifest(part).files
    return all(is_summed(file.bytes) and read_sums(part / file.name, file.bytes, file.checksum) for file in files)


def test_whoever_writes_a_large_data_file_writes_its_sums(table: TableDefinition, tmp_path: Path) -> None:
    one, two = part_of(table, tmp_path / "1"), part_of(table, tmp_path / "2", 2500)
    assert has_all_sums(one)
    merge_parts([one, two], table, tmp_path / "m", sync=False)
    assert has_all_sums(tmp_path / "m" / "all")
    link_part_folder(one, read_manifest(one), tmp_path / "linked")
    assert has_all_sums(tmp_path / "linked")
    (tmp_path / "files").mkdir()
    (two / "data-0.parquet").rename(tmp_path / "files" / "x.parquet")
    adopt_files([tmp_path / "files" / "x.parquet"], table, tmp_path / "adopted", sync=False)
    assert has_all_sums(tmp_path / "adopted" / "all")


def test_small_data_files_have_none(tmp_path: Path) -> None:
    part = part_of(define_table("t", "k bigint, s string", order_by="k"), tmp_path / "1")
    assert sorted(path.name for path in part.iterdir()) == ["data-0.parquet", "manifest.json"]
    assert unsummed_files(part, read_manifest(part)) == 0


@pytest.mark.parametrize("damage", ["missing", "empty", "changed", "of another file", "consistent and wrong"])
def test_the_check_of_a_part_makes_its_sums_again(table: TableDefinition, tmp_path: Path, damage: str) -> None:
    part = part_of(table, tmp_path / "1")
    path, manifest = sums_path(part / "data-0.parquet"), read_manifest(part)
    good = path.read_bytes()
    path.unlink()
    if damage == "missing":
        assert unsummed_files(part, manifest) == 1
    else:
        path.write_bytes(spoiled(good, damage, manifest))
    verify_files(part, manifest)
    assert path.read_bytes() == good
    assert unsummed_files(part, manifest) == 0


def spoiled(good: bytes, damage: str, manifest: PartManifest) -> bytes:
    if damage == "of another file":
        return sums_of(some_bytes(manifest.files[0].bytes)).encoded
    if damage == "consistent and wrong":
        body = good[:8] + bytes(4) + good[12:-16]
        return body + xxhash.xxh3_128_digest(body)
    return b"" if damage == "empty" else good[:20] + b"\xff" + good[21:]
