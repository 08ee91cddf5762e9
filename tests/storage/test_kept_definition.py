"""The definition beside the parts: whole after any crash, and never of a newer replitree by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from replitree.errors import StoreError, UnsupportedFormat
from replitree.storage.disk.kept_definition import FILE, keep_definition, read_definition
from replitree.storage.files.sealed_json import seal, unseal
from replitree.storage.schema.definition import TableDefinition, define_table


@pytest.fixture
def definition() -> TableDefinition:
    return define_table("events", "k bigint not null, d date", order_by="k", partition_by="month(d)")


def test_what_is_kept_is_read(tmp_path: Path, definition: TableDefinition) -> None:
    keep_definition(tmp_path, definition)
    assert read_definition(tmp_path) == definition
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_newer_definition_takes_the_place_of_an_older_one(tmp_path: Path, definition: TableDefinition) -> None:
    keep_definition(tmp_path, definition)
    other = define_table("events", "k bigint")
    keep_definition(tmp_path, other)
    assert read_definition(tmp_path) == other


def test_the_same_definition_is_not_written_again(tmp_path: Path, definition: TableDefinition) -> None:
    keep_definition(tmp_path, definition)
    before = (tmp_path / FILE).stat()
    keep_definition(tmp_path, definition)
    after = (tmp_path / FILE).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_folder_without_one_keeps_none(tmp_path: Path) -> None:
    assert read_definition(tmp_path) is None


def test_a_draft_of_a_crash_is_written_over(tmp_path: Path, definition: TableDefinition) -> None:
    (tmp_path / f".{FILE}").write_bytes(b"{half")
    assert read_definition(tmp_path) is None
    keep_definition(tmp_path, definition)
    assert read_definition(tmp_path) == definition


def test_a_damaged_one_is_told_with_what_to_do(tmp_path: Path, definition: TableDefinition) -> None:
    keep_definition(tmp_path, definition)
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:-9])
    with pytest.raises(StoreError, match="take that of another replica"):
        read_definition(tmp_path)


def test_every_changed_byte_of_it_is_found_and_written_anew_at_the_next_start(
    tmp_path: Path, definition: TableDefinition
) -> None:
    keep_definition(tmp_path, definition)
    data = (tmp_path / FILE).read_bytes()
    for place in range(len(data)):
        (tmp_path / FILE).write_bytes(data[:place] + bytes([data[place] ^ 2]) + data[place + 1 :])
        with pytest.raises(StoreError, match="take that of another replica"):
            read_definition(tmp_path)
    keep_definition(tmp_path, definition)
    assert (tmp_path / FILE).read_bytes() == data


def test_one_of_a_newer_replitree_is_refused(tmp_path: Path, definition: TableDefinition) -> None:
    keep_definition(tmp_path, definition)
    data = unseal((tmp_path / FILE).read_bytes(), 2)
    (tmp_path / FILE).write_bytes(seal(data.replace(b'{"format":2', b'{"format":3')))
    with pytest.raises(UnsupportedFormat, match="format 3"):
        read_definition(tmp_path)


def test_a_disk_that_refuses_is_told(tmp_path: Path, definition: TableDefinition) -> None:
    with pytest.raises(StoreError, match="keep definition"):
        keep_definition(tmp_path / "nowhere", definition)
