"""Data files on a disk and in a store: read alike, and what goes wrong is told as what it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.errors import CorruptPart, StoreError
from replitree.storage.files import sums
from replitree.storage.objects import open_store
from replitree.storage.parts.checked_bytes import ByteSource
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import FileEntry, read_manifest
from replitree.storage.parts.verified import CheckedFile, Problem, StoredFile
from replitree.storage.rewrite.data_files import DataFile, footer_of, is_whole, open_parquet, reading_part
from replitree.storage.rewrite.key_range import ranges_of_files
from replitree.storage.rewrite.merge import merge_range
from replitree.storage.rewrite.merge_sources import MergeSource
from replitree.storage.schema.definition import TableDefinition, TableSettings, define_table
from replitree.storage.shares.object_bytes import ObjectBytes


@pytest.fixture
def table() -> TableDefinition:
    return define_table("t", "k bigint, s string", order_by="k", settings=TableSettings(row_group_rows=10))


def stored(path: Path, entry: FileEntry) -> StoredFile:
    """A file as an object of a store; here that is the folder which the file is in."""
    store = open_store(f"file://{path.parent}")
    return StoredFile(path, entry, lambda: ObjectBytes(store, path.name, entry))


def part_of(table: TableDefinition, folder: Path, first: int) -> Path:
    keys = range(first, first + 50)
    stage_table(pa.table({"k": keys, "s": [f"s{key}" for key in keys]}), table, folder, sync=False)
    return folder / "all"


def as_stored(part: Path) -> MergeSource:
    manifest = read_manifest(part)
    return MergeSource(Path("all_0_0_0"), manifest, tuple(stored(part / file.name, file) for file in manifest.files))


def test_ranges_of_parts_in_a_store_are_merged_as_those_on_a_disk(table: TableDefinition, tmp_path: Path) -> None:
    parts = [part_of(table, tmp_path / f"{first}", first) for first in (0, 20, 40)]
    sources = [as_stored(part) for part in parts]
    files = [place for source in sources for place, _ in source.entries]
    ranges = ranges_of_files(files, table, 3)
    assert len(ranges) == 3
    for number, key_range in enumerate(ranges):
        here = merge_range(parts, table, tmp_path / f"here-{number}", key_range)
        there = merge_range(sources, table, tmp_path / f"there-{number}", key_range)
        assert (here.content_hash, here.files) == (there.content_hash, there.files)


def test_a_file_is_whole_only_as_its_manifest_says(table: TableDefinition, tmp_path: Path) -> None:
    part = part_of(table, tmp_path / "part", 0)
    (entry,) = read_manifest(part).files
    path = part / entry.name
    for place in (path, stored(path, entry)):
        assert is_whole(place, entry)
        assert not is_whole(place, FileEntry(entry.name, entry.rows, entry.bytes + 1, entry.checksum))
        assert not is_whole(place, FileEntry(entry.name, entry.rows, entry.bytes, "0" * 32))
        assert footer_of(place).num_rows == 50
        with open_parquet(place, buffer_bytes=1 << 15) as opened:
            assert opened.read().num_rows == 50


def test_a_damaged_file_that_has_a_good_copy_is_whole(
    table: TableDefinition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "SUMMED_BYTES_MIN", 100)
    part = part_of(table, tmp_path / "part", 0)
    (entry,) = read_manifest(part).files
    path, copy = part / entry.name, tmp_path / "copy.parquet"
    copy.write_bytes(path.read_bytes())
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    path.write_bytes(damaged)
    place, asked = stored(path, entry), list[Path]()

    def replaced(file: CheckedFile, _: Problem) -> Path:
        asked.append(file.path)
        return copy

    assert not is_whole(place, entry)
    assert is_whole(replace(place, replace=replaced), entry)
    assert asked == [path]


def read(place: DataFile) -> None:
    with reading_part(Path("all_7_7_0")):
        footer_of(place)


def test_what_is_missing_is_told_of_the_part_and_what_is_not_known_of_the_store(tmp_path: Path) -> None:
    entry = FileEntry("none", 1, 5, "0" * 32)
    for place in (tmp_path / "none", stored(tmp_path / "none", entry)):
        with pytest.raises(CorruptPart, match="all_7_7_0"):
            read(place)

    def away() -> ByteSource:
        raise StoreError("the store does not answer")

    with pytest.raises(StoreError, match="does not answer") as failed:
        read(StoredFile(tmp_path / "none", entry, away))
    assert not isinstance(failed.value, CorruptPart)


def test_of_a_part_in_a_store_no_damaged_byte_is_merged(
    table: TableDefinition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "SUMMED_BYTES_MIN", 100)
    part = part_of(table, tmp_path / "part", 0)
    source = as_stored(part)
    files = [place for place, _ in source.entries]
    upper = ranges_of_files(files, table, 2)[1]
    path = part / "data-0.parquet"
    good = path.read_bytes()
    for place in (5, len(good) // 2, len(good) - 20):
        path.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        with pytest.raises(CorruptPart):
            merge_range([source], table, tmp_path / "made", upper)
