"""Packs: many small parts in one ZIP file, and back, whatever crashes and whatever is damaged."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pytest

from replitree.errors import CorruptPart, UnsupportedFormat
from replitree.storage.disk import packs
from replitree.storage.disk.aside_check import damage_aside
from replitree.storage.disk.packs import PackedPart, blocks_of
from replitree.storage.disk.store import PartStore
from replitree.storage.parts.encode import stage_table
from replitree.storage.schema.definition import define_table
from tests.storage.crashing import Crash, CrashingDisk

DEFINITION = define_table("t", pa.schema([("k", pa.int64()), ("v", pa.float64())]), order_by="k")
COUNT = 5
PACK = "0-4.zip"


def filled(root: Path, count: int = COUNT) -> PartStore:
    """Return a store with the parts all_0_0_0, all_1_1_0 and so on."""
    store = PartStore(root)
    for number in range(count):
        rows = pa.table({"k": [number], "v": [0.5]}, DEFINITION.arrow_schema)
        prefix = store.staging_prefix(f"s{number}")
        list(stage_table(rows, DEFINITION, store.staging, prefix=prefix))
        assert store.staged.publish(f"s{number}", {"all": f"all_{number}_{number}_0"}) == ()
    return store


def packed(store: PartStore) -> list[PackedPart]:
    return [PackedPart(part, store.manifest(part).bytes) for part in store.parts()]


def pack(store: PartStore) -> list[PackedPart]:
    """Pack all parts, and remove their folders."""
    parts = packed(store)
    store.packs.stage(PACK, parts, 100.0)
    store.packs.publish(PACK)
    store.remove_parts([part.name for part in parts])
    return parts


def spoil(path: Path, what: bytes) -> None:
    """Change one byte in the middle of the first place where a file has some bytes."""
    data = bytearray(path.read_bytes())
    data[data.index(what) + len(what) // 2] ^= 1
    path.write_bytes(data)


def test_a_pack_gives_back_every_byte_of_every_part(tmp_path: Path) -> None:
    store = filled(tmp_path)
    before = {path.relative_to(store.root): path.read_bytes() for path in store.part_path("all_3_3_0").iterdir()}
    parts = pack(store)
    assert store.parts() == ()
    assert store.packs.names() == (PACK,)
    index = store.packs.index(PACK)
    assert (index.parts, index.bytes, index.since) == (*zip(*parts, strict=True), 100.0)
    store.packs.verify(PACK)
    found = store.packs.unpack(PACK, ["all_3_3_0", "all_1_1_0"])
    assert (found.parts, found.damaged) == (("all_3_3_0", "all_1_1_0"), {})
    assert {
        path.relative_to(store.root): path.read_bytes() for path in store.part_path("all_3_3_0").iterdir()
    } == before
    for part in store.parts():
        store.verify(part)


def test_an_operator_can_open_a_pack_with_a_common_tool(tmp_path: Path) -> None:
    store = filled(tmp_path / "table")
    pack(store)
    # Python's own tool: not every machine that runs the tests has `unzip`.
    subprocess.run([sys.executable, "-m", "zipfile", "--extract", store.packs.path(PACK), tmp_path / "out"], check=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *(f"all_{number}_{number}_0" for number in range(COUNT)),
        "parts.json",
    ]


def test_the_same_parts_make_the_same_bytes_which_their_owner_alone_may_read(tmp_path: Path) -> None:
    store = filled(tmp_path)
    for name in (PACK, "0-4~2.zip"):
        store.packs.stage(name, packed(store), 5.0)
        store.packs.publish(name)
    first, second = (store.packs.path(name) for name in (PACK, "0-4~2.zip"))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_mode & 0o777 == 0o600


def test_packing_can_be_repeated_after_a_crash_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = _pack_until(tmp_path / "all", None, monkeypatch, forgets=False)
    assert steps[:4] == ["sync_files 1 files", f"rename pack-{PACK}", "sync_folder packs", "rename all_0_0_0"]
    for stop in range(len(steps)):
        for forgets in (False, True):
            _pack_until(tmp_path / f"{stop}-{forgets}", stop, monkeypatch, forgets=forgets)


def _pack_until(root: Path, stop: int | None, monkeypatch: pytest.MonkeyPatch, *, forgets: bool) -> list[str]:
    store = filled(root)
    manifests = {part: store.manifest(part) for part in store.parts()}
    # The folder of the packs is there: making it comes once in the life of a table.
    store.packs.root.mkdir()
    with monkeypatch.context() as patch:
        disk = CrashingDisk(patch, stop)
        try:
            pack(store)
        except Crash:
            if forgets:
                disk.forget_unsynced()
    again = PartStore(root)
    there = {part for part in again.parts() if again.has_part(part)}
    for name in again.packs.names():
        again.packs.verify(name)
        there.update(again.packs.index(name).parts)
    assert there == manifests.keys()
    again.sweep()
    assert list(again.staging.iterdir()) == []
    if again.packs.names():
        assert set(again.packs.unpack(PACK, sorted(manifests)).parts) == manifests.keys()
    assert {part: again.verify(part) for part in again.parts()} == manifests
    return disk.steps


@pytest.mark.parametrize("synced", [False, True])
def test_unpacking_can_be_repeated_after_a_crash_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, synced: bool
) -> None:
    for stop in range(100):
        store = filled(tmp_path / str(stop), 2)
        wanted = [part.name for part in pack(store)]
        with monkeypatch.context() as patch:
            disk = CrashingDisk(patch, stop)
            try:
                store.packs.unpack(PACK, wanted, synced=synced)
            except Crash:
                disk.forget_unsynced()
        again = PartStore(store.root)
        again.sweep()
        assert list(again.staging.iterdir()) == []
        assert again.packs.unpack(PACK, wanted).parts == tuple(wanted)
        for part in wanted:
            again.verify(part)
        if len(disk.steps) < stop:
            return
    raise AssertionError("it has more than 100 steps")


def test_a_pack_is_written_again_without_some_of_its_parts(tmp_path: Path) -> None:
    store = filled(tmp_path)
    parts = pack(store)
    assert store.packs.stage_rest(PACK, parts[1:3], 100.0) == {}
    store.packs.publish(PACK)
    store.packs.verify(PACK)
    assert store.packs.index(PACK).parts == ("all_1_1_0", "all_2_2_0")
    assert {name.partition("/")[0] for name in ZipFile(store.packs.path(PACK)).namelist()} == {
        "parts.json",
        "all_1_1_0",
        "all_2_2_0",
    }


def test_a_part_that_is_damaged_in_a_pack_is_named_and_the_others_are_whole(tmp_path: Path) -> None:
    store = filled(tmp_path)
    data = (store.part_path("all_2_2_0") / "data-0.parquet").read_bytes()
    parts = pack(store)
    spoil(store.packs.path(PACK), data)
    found = store.packs.unpack(PACK, [part.name for part in parts])
    assert found.damaged.keys() == {"all_2_2_0"}
    assert len(found.parts) == COUNT - 1
    assert not store.part_path("all_2_2_0").exists()
    assert [place for place, _ in damage_aside(store)] == [f"packs/{PACK}"]
    assert store.packs.stage_rest(PACK, parts, 100.0).keys() == {"all_2_2_0"}
    store.packs.publish(PACK)
    store.packs.verify(PACK)
    assert len(store.packs.index(PACK).parts) == COUNT - 1


@pytest.mark.parametrize("kept", [0, 10, 200, 0.5, 0.99])
def test_a_pack_that_was_cut_is_an_error_and_never_fewer_parts(tmp_path: Path, kept: float) -> None:
    store = filled(tmp_path)
    pack(store)
    path = store.packs.path(PACK)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept if kept >= 1 else kept * len(data))])
    with pytest.raises(CorruptPart, match="damaged"):
        store.packs.unpack(PACK, ["all_1_1_0"])
    with pytest.raises(CorruptPart):
        store.packs.verify(PACK)
    store.packs.set_aside(PACK, "it was cut")
    assert store.packs.names() == ()
    (aside,) = (store.root / "detached").iterdir()
    assert sorted(each.name for each in aside.iterdir()) == [PACK, "reason.txt"]


def test_every_changed_byte_of_an_index_is_noticed(tmp_path: Path) -> None:
    store = filled(tmp_path, 2)
    pack(store)
    path = store.packs.path(PACK)
    data, index = path.read_bytes(), store.packs.index(PACK)
    for at in range(data.index(b"all_0_0_0/")):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        with suppress(CorruptPart):
            assert store.packs.index(PACK) == index


def test_a_pack_of_a_newer_version_is_refused_and_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path)
    pack(store)
    monkeypatch.setattr(packs, "FORMAT", 0)
    with pytest.raises(UnsupportedFormat):
        store.packs.index(PACK)


def test_packs_of_the_same_blocks_have_different_names_and_stand_in_the_order_of_their_blocks(tmp_path: Path) -> None:
    store = filled(tmp_path)
    for blocks in ((10, 20), (2, 30), (2, 30)):
        name = store.packs.free_name(blocks)
        store.packs.stage(name, packed(store), 1.0)
        store.packs.publish(name)
    assert store.packs.names() == ("2-30.zip", "2-30~2.zip", "10-20.zip")
    assert blocks_of("2-30~2.zip") == (2, 30)
    store.packs.remove(["2-30.zip", "2-30.zip", "10-20.zip"])
    assert store.packs.names() == ("2-30~2.zip",)
