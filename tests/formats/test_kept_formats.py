"""What a table's folder keeps beside parts, frozen: added to, never rewritten.

`restore` reads the definition years later; a replica that was upgraded reads the version log and the packs of the one before.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from zipfile import ZipFile

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.fold import Change
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.core.stamps import Zxid
from replitree.protocol.sharded.placement import Placement, decode_placement
from replitree.protocol.sharded.shard_map import Shard, decode_map, first_map
from replitree.replica.kit.version_log import EntryChange, Version, VersionLog
from replitree.storage.disk.kept_definition import FILE, keep_definition, read_definition
from replitree.storage.disk.kept_sharding import (
    SHARDING_FILE,
    STANDING_FILE,
    KeptStanding,
    keep_sharding,
    keep_standing,
    parts_digest,
    read_sharding,
    read_standing,
)
from replitree.storage.disk.packs import PackedPart, PackIndex
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.manifest import MANIFEST_FILE
from replitree.wire.reached import Reached
from replitree.wire.remembered import Remembered, Summary
from tests.formats.samples import FROZEN
from tests.formats.test_policy_formats import CLICKS


def test_a_kept_definition_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    frozen = FROZEN / "definition-2.json"
    shutil.copy(frozen, tmp_path / FILE)
    assert read_definition(tmp_path) == CLICKS
    (tmp_path / FILE).unlink()
    keep_definition(tmp_path, CLICKS)
    assert (tmp_path / FILE).read_bytes() == frozen.read_bytes()


def test_a_kept_definition_without_a_checksum_is_read_and_replaced(tmp_path: Path) -> None:
    shutil.copy(FROZEN / "definition-1.json", tmp_path / FILE)
    assert read_definition(tmp_path) == CLICKS
    keep_definition(tmp_path, CLICKS)
    assert (tmp_path / FILE).read_bytes() == (FROZEN / "definition-2.json").read_bytes()


def test_what_a_shard_keeps_of_its_table_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    for name in (SHARDING_FILE, STANDING_FILE):
        shutil.copy(FROZEN / name.replace(".json", "-1.json"), tmp_path / name)
    kept, standing = read_sharding(tmp_path), read_standing(tmp_path)
    assert kept is not None
    assert standing is not None
    assert (kept.table_id, kept.incarnation, kept.version) == ("00112233445566778899aabbccddeeff", "5f0c", 3)
    shard_map = decode_map(bytes(kept.map), "here")
    assert shard_map == first_map(["größe"], {Shard(0): 1, Shard(1): 1}, 8)
    assert decode_placement(bytes(kept.placement), "here") == Placement(((Shard(0), ("r1", "r2")),))
    assert standing == KeptStanding(
        ensemble="5f0c", first=8589934612, last=8589934699, parts=parts_digest(["all_0_0_0"])
    )
    for name in (SHARDING_FILE, STANDING_FILE):
        (tmp_path / name).unlink()
    keep_sharding(tmp_path, kept)
    keep_standing(tmp_path, standing)
    for name in (SHARDING_FILE, STANDING_FILE):
        assert (tmp_path / name).read_bytes() == (FROZEN / name.replace(".json", "-1.json")).read_bytes()


def parts(*names: str) -> tuple[Part, ...]:
    return tuple(map(parse_part, names))


def test_a_version_log_with_what_entries_did_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    frozen = FROZEN / "versions-1-entries"
    inserted, merged = parts("all_0_0_0", "all_1_1_0"), parts("all_0_1_1")
    summaries = (
        Summary("get", "r1", 3, 40),
        Summary("get", "r2", 5, 41, "overwrites partition all"),
        Summary("merge", "r1", text="all_0_0_0, all_1_1_0"),
        Summary("merge", "r2", text="all_0_0_0, all_1_1_0"),
        Summary("mutate", "r1", text='{"format":1,"kind":"delete","where":"k = 1"}'),
    )
    all_changes = (
        *(Change((), (part,)) for part in inserted), Change(inserted, merged), Change(), Change(merged, parts("all_0_1_1_4")),
    )  # fmt: skip
    changes = [
        EntryChange(LogIndex(index + 1), change, (), 1_764_210_600_250 + index, entry=entry)
        for index, (change, entry) in enumerate(zip(all_changes, summaries, strict=True))
    ]
    log = VersionLog(tmp_path / "versions", "5f0c")
    log.begin(Version(LogIndex(0), PartSet()))
    log.append(changes)
    assert (tmp_path / "versions" / "0").read_bytes() == (frozen / "0").read_bytes()
    expected = [Remembered(index, 1_764_210_600_250 + index, entry) for index, entry in enumerate(summaries)]
    known = VersionLog(frozen, "5f0c")
    assert known.before(LogIndex(5), 9) == expected[::-1]
    assert known.at(LogIndex(5)) == Version(LogIndex(5), PartSet.of(parts("all_0_1_1_4")))
    # What an earlier version has written says nothing of what entries did.
    assert [each.entry for each in VersionLog(FROZEN / "versions-1", "5f0c").before(LogIndex(9), 9)] == [None] * 5


def test_a_version_log_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    frozen = FROZEN / "versions-1"
    first, inserted, merged = parts("all_0_3_1"), parts("2024-01_4_4_0"), parts("all_0_5_2")
    begin = Version(LogIndex(4), PartSet.of(first))
    changes = [
        EntryChange(LogIndex(5), Change((), inserted), (LogIndex(4),), 1_764_210_600_250),
        EntryChange(LogIndex(6), Change((), parts("all_5_5_0")), (LogIndex(4),), 1_764_210_600_251),
        EntryChange(LogIndex(7), Change(), (), 1_764_210_600_200),
        EntryChange(LogIndex(8), Change((*first, *parts("all_5_5_0")), merged), (), 1_764_210_600_300),
    ]
    log = VersionLog(tmp_path / "versions", "5f0c")
    log.begin(begin)
    log.append(changes[:1])
    log.append(changes[1:])
    log.begin(Version(LogIndex(8), PartSet.of((*inserted, *merged))))
    log.append([EntryChange(LogIndex(9), Change())])
    for name in ("4", "8"):
        assert (tmp_path / "versions" / name).read_bytes() == (frozen / name).read_bytes()
    known = VersionLog(frozen, "5f0c")
    assert known.at(LogIndex(4)) == begin
    assert known.at(LogIndex(6)) == Version(
        LogIndex(6), PartSet.of((*first, *inserted, *parts("all_5_5_0"))), (LogIndex(4),)
    )
    assert known.at(LogIndex(8)) == Version(LogIndex(8), PartSet.of((*inserted, *merged)))
    assert known.open_end() == known.at(LogIndex(9)) == Version(LogIndex(9), PartSet.of((*inserted, *merged)))
    assert known.at(LogIndex(10)) is None
    assert known.written_by(1_764_210_600_250, LogIndex(8)) == Reached(index=7, below=7)
    assert known.written_by(1_764_210_600_199, LogIndex(8)) == Reached(below=4, written_ms=1_764_210_600_250)
    # The time of the last entry is unknown.
    assert known.written_by(1_764_210_600_250, LogIndex(9)) == Reached(below=9)


def test_a_version_log_that_is_the_feed_s_journal_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    frozen = FROZEN / "versions-1-feed"
    (inserted,) = parts("all_4_4_0")
    changes = [
        EntryChange(LogIndex(5), Change((), (inserted,)), (LogIndex(4),), 1_764_210_600_250, "get"),
        EntryChange(LogIndex(6), Change(), (), 1_764_210_600_200, "settle"),
        EntryChange(LogIndex(7), Change(), (), 1_764_210_600_300, "alter", schema_version=2),
        EntryChange(LogIndex(8), Change((inserted,), (inserted,)), (), 1_764_210_600_301, "lost", "all_4_4_0"),
    ]
    log = VersionLog(tmp_path / "versions", "5f0c")
    log.begin(Version(LogIndex(4), PartSet()))
    log.append(changes)
    log.begin(Version(LogIndex(8), PartSet.of((inserted,))))
    for name in ("4", "8"):
        assert (tmp_path / "versions" / name).read_bytes() == (frozen / name).read_bytes()
    first, _ = VersionLog(frozen, "5f0c").segments(LogIndex(4))
    assert [noted.changed for noted in first.entries] == changes
    assert [noted.timestamp_us % 1_000_000 for noted in first.entries] == [250_000, 250_001, 300_000, 301_000]


def test_a_version_log_of_a_shard_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    frozen = FROZEN / "versions-1-shard"
    (inserted,) = parts("all_4_4_0")
    changes = [
        EntryChange(
            LogIndex(5), Change((), (inserted,)), (LogIndex(4),), 1_764_210_600_250, "get", zxid=Zxid(8_589_934_612)
        ),
        EntryChange(LogIndex(6), Change(), (), 1_764_210_600_260, "settle", zxid=Zxid(8_589_934_615), of_move=True),
        EntryChange(LogIndex(7), Change((inserted,), (inserted,)), (), 1_764_210_600_300, "mutate"),
    ]
    log = VersionLog(tmp_path / "versions", "5f0c-1")
    log.begin(Version(LogIndex(4), PartSet()))
    log.append(changes)
    assert (tmp_path / "versions" / "4").read_bytes() == (frozen / "4").read_bytes()
    (first,) = VersionLog(frozen, "5f0c-1").segments(LogIndex(4))
    assert [noted.changed for noted in first.entries] == changes


def test_a_pack_of_old_parts_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    frozen = FROZEN / "pack-1.zip"
    store, files = PartStore(tmp_path), {"data-0.parquet": b"rows", MANIFEST_FILE: b"what they are"}
    folders = [store.part_path(part) for part in ("all_7_7_0", "all_9_9_0_12")]
    for folder in folders:
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
    blocks = store.packs.free_name((7, 9))
    store.packs.stage(blocks, [PackedPart(folder.name, 4) for folder in folders], 1_790_000_000.5)
    store.packs.publish(blocks)
    written = store.packs.path(blocks)
    with ZipFile(frozen) as packed:
        # The members, and not the file: zlib may compress the index otherwise one day.
        members = {info.filename: (info.compress_type, packed.read(info)) for info in packed.infolist()}
    with ZipFile(written) as packed:
        assert {info.filename: (info.compress_type, packed.read(info)) for info in packed.infolist()} == members
    shutil.copy(frozen, written)
    assert store.packs.index(blocks) == PackIndex(
        since=1_790_000_000.5, parts=("all_7_7_0", "all_9_9_0_12"), bytes=(4, 4)
    )
    store.packs.verify(blocks)
