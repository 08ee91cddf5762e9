"""Data files on a disk and in a store: read alike, and what goes wrong is told as what it is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from replitree.errors import CorruptPart, StoreError
from replitree.storage.data_files import DataFile, footer_of, is_whole, open_parquet, reading_part
from replitree.storage.definition import TableDefinition, TableSettings, define_table
from replitree.storage.encode import stage_table
from replitree.storage.key_range import ranges_of_files
from replitree.storage.manifest import FileEntry, read_manifest
from replitree.storage.merge import merge_range
from replitree.storage.merge_sources import Source
from replitree.storage.read import StoredFile


@pytest.fixture
def table() -> TableDefinition:
    return define_table("t", "k bigint, s string", order_by="k", settings=TableSettings(row_group_rows=10))


def stored(path: Path) -> StoredFile:
    """A file as Arrow opens it in a store; here that is the disk."""
    return StoredFile(str(path), path.stat().st_size if path.exists() else 0, pafs.LocalFileSystem())


def part_of(table: TableDefinition, folder: Path, first: int) -> Path:
    keys = range(first, first + 50)
    stage_table(pa.table({"k": keys, "s": [f"s{key}" for key in keys]}), table, folder, sync=False)
    return folder / "all"


def as_stored(part: Path) -> Source:
    manifest = read_manifest(part)
    return Source(Path("all_0_0_0"), manifest, tuple(stored(part / file.name) for file in manifest.files))


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
    for place in (path, stored(path)):
        assert is_whole(place, entry)
        assert not is_whole(place, FileEntry(entry.name, entry.rows, entry.bytes + 1, entry.checksum))
        assert not is_whole(place, FileEntry(entry.name, entry.rows, entry.bytes, "0" * 32))
        assert footer_of(place).num_rows == 50
        with open_parquet(place, buffer_bytes=1 << 15) as opened:
            assert opened.read().num_rows == 50


def read(place: DataFile) -> None:
    with reading_part(Path("all_7_7_0"), place):
        footer_of(place)


def test_what_is_missing_is_told_of_the_part_and_what_is_not_known_of_the_store(tmp_path: Path) -> None:
    for place in (tmp_path / "none", stored(tmp_path / "none")):
        with pytest.raises(CorruptPart, match="all_7_7_0"):
            read(place)
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="did not answer for part all_7_7_0") as failed:
        read(stored(tmp_path / "folder"))
    assert not isinstance(failed.value, CorruptPart)
