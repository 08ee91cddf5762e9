from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from replitree.errors import CorruptPart, UnsupportedFormat
from replitree.storage.manifest import (
    BORROWING_FORMAT,
    MANIFEST_BYTES_MAX,
    MANIFEST_FILE,
    ColumnStats,
    FileEntry,
    PartManifest,
    decode_manifest,
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
    data = manifest(format=BORROWING_FORMAT + 1).encode()
    with pytest.raises(UnsupportedFormat, match="upgrade"):
        decode_manifest(data)
    with pytest.raises(UnsupportedFormat):
        decode_manifest(b'{"format":4,"everything":"else"}')


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
