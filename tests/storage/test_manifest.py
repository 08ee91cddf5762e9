from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from replitree.errors import CorruptPart, UnsupportedFormat
from replitree.storage.parts.manifest import (
    BORROWING_FORMAT,
    FORMAT,
    MANIFEST_BYTES_MAX,
    MANIFEST_FILE,
    SEALED_FORMAT,
    UNSEALED_FORMAT,
    ColumnStats,
    FileEntry,
    PartManifest,
    decode_manifest,
    is_same_manifest,
    manifest_problem,
    read_manifest,
)

CHECKSUM = "0123456789abcdef" * 2


def manifest(**changes: Any) -> PartManifest:
    fields: dict[str, Any] = {
        "partition": "2018-01",
        "partition_values": (576,),
        "rows": 3,
        "bytes": 30,
        "schema_version": 1,
        "files": (FileEntry("data-0.parquet", 2, 20, CHECKSUM), FileEntry("data-1.parquet", 1, 10, CHECKSUM)),
        "columns": {"k": ColumnStats("int64", -5, 7, 1)},
        "content_hash": CHECKSUM,
    }
    return PartManifest(**{**fields, **changes})


def test_a_manifest_is_read_back_from_its_bytes(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_FILE).write_bytes(manifest().encode())
    assert read_manifest(tmp_path) == manifest()


def test_the_content_is_computed_once_for_each_manifest_and_anew_for_a_changed_one() -> None:
    first = manifest()
    assert first.content is first.content
    changed = structs.replace(first, rows=4)
    assert changed.content == manifest(rows=4).content != first.content
    assert decode_manifest(first.encode()) == first


@pytest.mark.parametrize(
    ("kind", "stored", "value"),
    [
        ("int64", -5, -5),
        ("double", 1, 1.0),
        ("decimal(5,2)", "1.50", Decimal("1.50")),
        ("string", "1.50", "1.50"),
        ("binary", "00ff", b"\x00\xff"),
        ("boolean", True, True),
        ("date", 17532, 17532),
    ],
)
def test_bounds_compare_as_the_values_of_their_column(kind: str, stored: Any, value: Any) -> None:
    stats = ColumnStats(kind, stored, stored)
    assert (stats.low, stats.high) == (value, value)
    assert type(stats.low) is type(value)


def test_a_newer_format_is_refused() -> None:
    data = manifest(format=FORMAT + 1).encode()
    with pytest.raises(UnsupportedFormat, match="upgrade"):
        decode_manifest(data)


def test_every_changed_bit_of_a_manifest_is_found() -> None:
    data = manifest(share="ab" * 16).encode()
    assert decode_manifest(data) == manifest(share="ab" * 16)
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptPart):
            decode_manifest(bytes(changed))


def test_every_shorter_manifest_is_found_damaged() -> None:
    data = manifest().encode()
    for length in range(len(data)):
        with pytest.raises(CorruptPart):
            decode_manifest(data[:length])


def test_a_manifest_without_a_checksum_is_refused_unless_an_earlier_version_wrote_it() -> None:
    data = manifest(format=UNSEALED_FORMAT).encode()
    assert b"checksum" not in data.partition(b'"files"')[0]
    assert decode_manifest(data) == manifest(format=UNSEALED_FORMAT)
    for number in (FORMAT, FORMAT + 1):
        with pytest.raises(CorruptPart, match="checksum"):
            decode_manifest(data.replace(b'"format":1', b'"format":%d' % number))


def test_a_manifest_is_the_same_with_a_checksum_and_without() -> None:
    old = manifest(format=BORROWING_FORMAT, share="ab" * 16)
    assert is_same_manifest(old.encode(), old.sealed())
    assert is_same_manifest(old.sealed().encode(), old)
    assert not is_same_manifest(manifest(rows=4).encode(), old)
    assert not is_same_manifest(b"{", old)
    assert not is_same_manifest(None, old)


DIFFERENT: list[dict[str, Any]] = [
    {"partition": "2018-02"},
    {"partition_values": (577,)},
    {"partition_values": ()},
    {"rows": 4},
    {"schema_version": 2},
    {"columns": {}},
    {"columns": {"j": ColumnStats("int64", -5, 7, 1)}},
    {"columns": {"k": ColumnStats("int32", -5, 7, 1)}},
    {"columns": {"k": ColumnStats("int64", -5, 6, 1)}},
    {"columns": {"k": ColumnStats("int64", -4, 7, 1)}},
    {"columns": {"k": ColumnStats("int64", -5, 7)}},
    {"content_hash": CHECKSUM[::-1]},
    {"rows": 1 << 70},
    {"columns": {"k": ColumnStats("double", 1 << 70, 1 << 5000)}},
]


def test_manifests_that_differ_in_what_a_read_takes_from_them_have_different_contents() -> None:
    contents = {manifest(**changes).content for changes in [{}, *DIFFERENT]}
    assert len(contents) == len(DIFFERENT) + 1


def test_the_content_of_a_part_does_not_tell_how_its_rows_lie_in_files() -> None:
    one = (FileEntry("data-0.parquet", 3, 31, CHECKSUM),)
    for changes in ({"files": one, "bytes": 31}, {"share": "ab" * 16}):
        assert manifest(**changes).content == manifest().content


def test_a_part_of_an_earlier_version_keeps_its_content_and_is_not_told_from_another_with_its_rows() -> None:
    old = manifest(format=UNSEALED_FORMAT)
    assert old.content == old.sealed().content == CHECKSUM
    assert (old.is_bound, old.sealed().is_bound, manifest().is_bound) == (False, False, True)
    assert manifest(format=SEALED_FORMAT, schema_version=2).content == CHECKSUM


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"\xff", b'{"format":1}', manifest().encode()[:-1], b'{"format":0}']
)
def test_damaged_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptPart):
        decode_manifest(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"files": ()},
        {"files": (FileEntry("data-0.parquet", 2, 20, CHECKSUM), FileEntry("data-0.parquet", 1, 10, CHECKSUM))},
        {"files": (FileEntry("../data-0.parquet", 3, 30, CHECKSUM),)},
        {"files": (FileEntry("data-0.parquet", 3, 30, "x"),)},
        {"files": (FileEntry("data-0.parquet", 4, 31, CHECKSUM), FileEntry("data-1.parquet", -1, -1, CHECKSUM))},
        {"rows": 4},
        {"bytes": 4},
        {"partition": "../x"},
        {"partition": ".."},
        {"partition": "a_b"},
        {"content_hash": "?"},
        {"columns": {"k": ColumnStats("decimal(5,2)", "x", "1.00")}},
        {"columns": {"k": ColumnStats("decimal(5,2)", "1.00", "NaN")}},
        {"columns": {"k": ColumnStats("binary", "0g")}},
        {"columns": {"k": ColumnStats("int64", "0", 1)}},
        {"columns": {"k": ColumnStats("timestamp[us,UTC]", 0, "1")}},
        {"columns": {"k": ColumnStats("string", "a", 7)}},
        {"columns": {"k": ColumnStats("boolean", 0, 1.5)}},
    ],
)
def test_a_manifest_that_contradicts_itself_is_corrupt(changes: dict[str, Any]) -> None:
    assert manifest_problem(manifest()) is None
    with pytest.raises(CorruptPart, match="contradicts itself"):
        decode_manifest(manifest(**changes).encode())


def test_a_missing_or_absurd_manifest_file_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(CorruptPart, match="missing"):
        read_manifest(tmp_path)
    with (tmp_path / MANIFEST_FILE).open("wb") as file:
        file.truncate(MANIFEST_BYTES_MAX + 1)
    with pytest.raises(CorruptPart, match="larger than any"):
        read_manifest(tmp_path)
