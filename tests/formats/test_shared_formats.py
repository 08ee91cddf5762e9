"""What tables on an object store have on disks and in coordination stays readable."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import xxhash

from replitree.errors import CorruptPart, UnsupportedFormat
from replitree.storage.parts.manifest import MANIFEST_FILE, ColumnStats, decode_manifest, read_manifest
from replitree.storage.schema import definition
from replitree.storage.schema.definition import decode_definition
from replitree.storage.schema.retention import RowTtl
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


def test_definition_of_a_table_that_says_how_long_old_parts_stay_has_format_4() -> None:
    metadata, columns = (FROZEN / "metadata-4.json").read_bytes(), (FROZEN / "columns-1.json").read_bytes()
    keeping = replace(DEFINITION, keep="7d")
    assert decode_definition(metadata, columns) == keeping
    assert keeping.encode_metadata() == metadata
    assert keeping.keep_s == 604_800
    assert b"keep" not in DEFINITION.encode_metadata()


def test_definition_of_a_table_with_a_change_feed_has_format_6() -> None:
    metadata, columns = (FROZEN / "metadata-6.json").read_bytes(), (FROZEN / "columns-1.json").read_bytes()
    fed = replace(DEFINITION, keep="7d", feed="24h")
    assert decode_definition(metadata, columns) == fed
    assert fed.encode_metadata() == metadata
    assert fed.feed_s == 86_400
    assert b"feed" not in DEFINITION.encode_metadata()


def test_definition_of_a_table_whose_rows_go_or_that_has_bloom_filters_has_format_7() -> None:
    metadata, columns = (FROZEN / "metadata-7.json").read_bytes(), (FROZEN / "columns-1.json").read_bytes()
    going = replace(DEFINITION, keep="7d", feed="24h", ttl=RowTtl("t", "90d"), bloom=("s", "i64"))
    assert decode_definition(metadata, columns) == going
    assert going.encode_metadata() == metadata
    assert b'"format":7' in replace(DEFINITION, bloom=("s",)).encode_metadata()
    assert b"ttl" not in DEFINITION.encode_metadata()
    assert b"bloom" not in DEFINITION.encode_metadata()


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


def test_manifest_with_a_checksum_has_format_4_and_says_what_those_without_say() -> None:
    manifest = read_manifest(FROZEN / "part-4")
    assert manifest.encode() == (FROZEN / "part-4" / MANIFEST_FILE).read_bytes()
    assert manifest == read_manifest(FROZEN / "part-3").sealed()
    assert manifest.as_local() == read_manifest(FROZEN / "part-3").as_local().sealed()
    borrowed = manifest.files[0]
    assert manifest.as_local().shared_as(SHARE, {borrowed.name: LENDER}) == manifest
    assert manifest.content == manifest.content_hash


def test_manifest_of_format_5_has_a_content_that_covers_all_but_the_files() -> None:
    manifest = read_manifest(FROZEN / "part-5")
    assert manifest.encode() == (FROZEN / "part-5" / MANIFEST_FILE).read_bytes()
    assert manifest == msgspec.structs.replace(read_manifest(FROZEN / "part-4"), format=5)
    key = 9223372036854775807
    columns = [
        ["b", "boolean", True, True, 0],
        ["i64", "int64", key, key, 2],
        ["s", "string", "größe", "größe", 0],
        ["t", "timestamp[us,UTC]", 1517443199999999, 1517443199999999, 0],
    ]
    said = ["replitree part content 5", manifest.content_hash, 1, "2018-01-15-true", [576, 15, True], 3, columns]
    content = xxhash.xxh3_128_hexdigest(msgspec.msgpack.encode(said))
    assert manifest.content == content == "1a40253f82352561fed835627a126b84"
    local = manifest.as_local()
    assert (local.format, local.content) == (5, content)
    assert local.shared_as(SHARE, {manifest.files[0].name: LENDER}) == manifest


def test_numbers_in_a_content_are_those_of_their_columns_and_zero_has_no_sign() -> None:
    """JSON has one kind of number, and which of two zeros is the least depends on batches."""
    columns = {"d": ColumnStats("double", -0.0, 3.0), "f": ColumnStats("float", None, 1.5, 2)}
    manifest = msgspec.structs.replace(
        read_manifest(FROZEN / "part-5"), columns=columns, partition_values=(None, -0.0, "ß")
    )
    other = msgspec.structs.replace(
        manifest, columns={**columns, "d": ColumnStats("double", 0.0, 3)}, partition_values=(None, 0.0, "ß")
    )
    assert (
        manifest.content
        == other.content
        == decode_manifest(other.encode()).content
        == "1cb198bcc5cff16a1a0fd37b6e403c1c"
    )


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
