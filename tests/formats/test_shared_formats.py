"""What tables on an object store have on disks and in coordination stays readable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replitree.errors import CorruptPart, UnsupportedFormat
from replitree.storage import definition
from replitree.storage.definition import decode_definition
from replitree.storage.manifest import MANIFEST_FILE, decode_manifest, read_manifest
from tests.formats.samples import DEFINITION, FROZEN

SHARED = replace(DEFINITION, storage="s3://lake/tables?endpoint=https://store:8333")
SHARE = "0123456789abcdef0123456789abcdef"
LENDER = "fedcba9876543210fedcba9876543210"


def test_definition_of_a_table_on_an_object_store_has_format_2() -> None:
    metadata, columns = (FROZEN / "metadata-2-storage.json").read_bytes(), (FROZEN / "columns-1.json").read_bytes()
    assert decode_definition(metadata, columns) == SHARED
    assert SHARED.encode_metadata() == metadata


@pytest.mark.parametrize(
    ("name", "known"), [("metadata-2-storage", (1,)), ("metadata-3-tiered", (1, 2)), ("metadata-3-leaving", (1, 2))]
)
def test_who_knows_no_shares_refuses_the_table(
    name: str, known: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata, columns = (FROZEN / f"{name}.json").read_bytes(), (FROZEN / "columns-1.json").read_bytes()
    assert decode_definition(metadata, columns).is_shared
    monkeypatch.setattr(definition, "FORMATS", known)
    with pytest.raises(UnsupportedFormat, match=f"format {max(known) + 1}"):
        decode_definition(metadata, columns)


@pytest.mark.parametrize(
    ("name", "storage"),
    [
        ("tiered", f"tiered({SHARED.storage}, older=7d, free=100GB)"),
        ("leaving", f"local({SHARED.storage})"),
    ],
)
def test_definition_of_a_table_whose_rows_move_has_format_3(name: str, storage: str) -> None:
    metadata, columns = (FROZEN / f"metadata-3-{name}.json").read_bytes(), (FROZEN / "columns-1.json").read_bytes()
    moving = replace(DEFINITION, storage=storage)
    assert decode_definition(metadata, columns) == moving
    assert moving.encode_metadata() == metadata
    assert moving.store_url == SHARED.storage


def test_manifest_of_a_part_in_a_share_has_format_2() -> None:
    manifest = read_manifest(FROZEN / "part-2")
    assert manifest.share_id == SHARE
    assert manifest.encode() == (FROZEN / "part-2" / MANIFEST_FILE).read_bytes()
    assert manifest.as_local() == read_manifest(FROZEN / "part-1")
    assert manifest.as_local().shared_as(SHARE) == manifest


def test_manifest_of_a_part_that_borrows_has_format_3() -> None:
    manifest = read_manifest(FROZEN / "part-3")
    borrowed, own = manifest.files
    assert (manifest.format, manifest.shares) == (3, (SHARE, LENDER))
    assert (manifest.share_of(borrowed), manifest.share_of(own)) == (LENDER, SHARE)
    assert (manifest.own_files, manifest.borrowed) == ((own,), {LENDER: (borrowed.placed(None),)})
    assert manifest.encode() == (FROZEN / "part-3" / MANIFEST_FILE).read_bytes()
    local = manifest.as_local()
    assert (local.format, local.shares, local.borrowed) == (1, (), {})
    assert b"share" not in local.encode()
    assert local.shared_as(SHARE, {borrowed.name: LENDER}) == manifest


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (LENDER, "../tables", "name of its share"),
        (LENDER, SHARE, "borrows of itself"),
        ('"format":3', '"format":2', "knows no borrowing"),
        (f',"share":"{SHARE}"', "", "no share of its own"),
    ],
)
def test_a_part_that_borrows_in_no_possible_way_is_refused(old: str, new: str, problem: str) -> None:
    whole = (FROZEN / "part-3" / MANIFEST_FILE).read_text()
    assert whole.count(old) == 1
    with pytest.raises(CorruptPart, match=problem):
        decode_manifest(whole.replace(old, new).encode())


def test_a_share_that_can_be_no_folder_of_objects_is_refused() -> None:
    damaged = (FROZEN / "part-2" / MANIFEST_FILE).read_bytes().replace(SHARE.encode(), b"../tables")
    with pytest.raises(CorruptPart, match="name of its share"):
        decode_manifest(damaged)
