"""Old parts that are packed: readers, expiry, restarts and crashes give what they give without packs."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from shutil import copytree
from zipfile import ZIP_DEFLATED, ZipFile

import msgspec
import pytest

from replitree import private
from replitree.errors import StoreError
from replitree.protocol.core.effects import EntryId, Version
from replitree.protocol.upkeep.consumers import ConsumerNode, Consumers, ConsumerValue
from replitree.protocol.upkeep.tags import NO_TAGS
from replitree.replica.kit import old_parts, packed_parts
from replitree.replica.kit.old_parts import RETIRED
from replitree.replica.kit.packed_parts import PackedParts
from replitree.storage.disk.packs import PackIndex, Unpacked
from replitree.storage.disk.store import PartStore
from tests.replica.packing import AFTER_S, COUNT, Disk, filled, name, tags_of
from tests.storage.crashing import Crash, CrashingDisk


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs have few parts here, and copies go as soon as there is no lease on them."""
    monkeypatch.setattr(old_parts, "PACK_PARTS_MIN", 3)
    monkeypatch.setattr(old_parts, "PACK_PARTS_MAX", 5)
    monkeypatch.setattr(packed_parts, "COPY_S", 0.0)


@pytest.fixture
def store(tmp_path: Path) -> PartStore:
    return filled(tmp_path / "table")


@pytest.fixture
def disk(store: PartStore) -> Disk:
    found = Disk(store)
    found.retire(*range(COUNT))
    return found


def test_old_parts_that_something_keeps_are_packed_after_their_time(disk: Disk) -> None:
    size = disk.old.sizes()["old_bytes"]
    assert disk.pack(AFTER_S - 1.0) == 0
    # Two full packs; the rest waits as long again.
    assert disk.pack(1.0) == 10
    assert disk.store.packs.names() == ("0-4.zip", "5-9.zip")
    assert disk.folders == disk.marks == {name(10), name(11)}
    sizes = disk.old.sizes()
    assert (sizes["old_parts"], sizes["old_bytes"], sizes["packed_parts"], sizes["packs"]) == (COUNT, size, 10, 2)
    disk.retire(*range(10, COUNT))
    assert disk.pack() == 0, "two parts are not worth a pack"
    assert disk.read(*range(COUNT)) == {*range(COUNT)}
    assert disk.old.remove_copies() == 10
    assert disk.folders == disk.marks == {name(10), name(11)}


def test_parts_that_are_leased_large_or_not_needed_are_not_packed(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = disk.old.lease([name(0), name(1)], 3_600.0)
    disk.feed.first = 4
    assert disk.pack() == 8
    assert disk.store.packs.names() == ("4-8.zip", "9-11.zip")
    disk.old.release(lease)
    monkeypatch.setattr(old_parts, "PACKED_BYTES_MAX", 10)
    disk.feed.first = 0
    assert disk.pack() == 0


def test_a_reader_that_has_a_lease_keeps_its_copies_and_gets_them_in_one_pass(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.pack()
    opened, real = list[str](), disk.store.packs.unpack

    def unpack(pack: str, parts: Sequence[str], *, synced: bool = False) -> Unpacked:
        opened.append(pack)
        return real(pack, parts, synced=synced)

    monkeypatch.setattr(disk.store.packs, "unpack", unpack)
    lease = disk.old.lease(map(name, range(8)), 60.0)
    disk.old.unpack(map(name, range(8)))
    assert opened == ["0-4.zip", "5-9.zip"]
    disk.old.unpack(map(name, range(8)))
    assert len(opened) == 2
    assert disk.old.remove_copies() == 0
    disk.old.release(lease)
    assert disk.old.remove_copies() == 8


def test_a_pack_goes_with_the_last_of_its_parts_and_at_once_when_nothing_keeps_it(disk: Disk) -> None:
    disk.pack()
    disk.remove()
    assert disk.old.sizes()["feed_parts"] == COUNT
    # The time of the first two parts passes: less than half of the pack, and the others are needed.
    disk.feed.first = 2
    assert disk.remove() == 0
    assert disk.read(0, 1) == {0, 1}
    disk.old.remove_copies()
    disk.feed.first = 3
    assert disk.remove() == 3
    assert disk.store.packs.index("0-4.zip").parts == (name(3), name(4))
    assert disk.read(*range(COUNT)) == {*range(3, COUNT)}
    # The feed is turned off: everything goes at once.
    disk.feed.first = COUNT
    assert disk.remove() == COUNT - 3
    assert disk.store.packs.names() == ()
    assert disk.folders == disk.marks == set()
    assert disk.old.sizes()["old_parts"] == disk.old.sizes()["old_bytes"] == 0


def test_rows_that_must_go_at_once_leave_a_pack_of_which_a_tag_keeps_another_part(disk: Disk) -> None:
    disk.pack()
    tags = tags_of(name(0))
    disk.remove(tags)
    # The next round knows of the tag; the one after it does not look at the packs again.
    disk.remove(tags)
    disk.remove(tags)
    assert disk.old.sizes()["tagged_parts"] == 1
    disk.feed.first = COUNT
    data = (disk.store.root / "packs" / "0-4.zip").read_bytes()
    assert name(1).encode() in data
    disk.remove(tags)
    data = (disk.store.root / "packs" / "0-4.zip").read_bytes()
    assert name(1).encode() not in data
    assert disk.store.packs.names() == ("0-4.zip",)
    assert disk.read(*range(COUNT)) == {0}
    disk.remove(tags)
    assert disk.old.sizes()["tagged_parts"] == disk.old.sizes()["old_parts"] == 1


def a_consumer(index: int) -> Consumers:
    return Consumers(Version(0), (ConsumerNode("c", ConsumerValue(index, EntryId("c"), "r1"), Version(0)),))


def test_consumers_keep_packed_parts_and_their_bytes_are_counted(disk: Disk) -> None:
    disk.pack()
    disk.feed.first = COUNT
    consumers = a_consumer(7)
    disk.remove(consumers=consumers)
    assert disk.read(*range(COUNT)) == {*range(7, COUNT)}
    disk.old.remove_copies()
    disk.old.choose_due()
    sizes = disk.old.sizes()
    assert sizes["consumer_parts"] == sizes["old_parts"] == COUNT - 7
    assert disk.old.bytes_for(ConsumerValue(7, EntryId("c"), "r1")) == sizes["consumer_bytes"] == sizes["old_bytes"]


def test_a_lease_keeps_a_part_of_a_pack_whose_time_is_over(disk: Disk) -> None:
    disk.pack()
    lease = disk.old.lease([name(1)], 60.0)
    disk.old.unpack([name(1)])
    disk.feed.first = COUNT
    disk.remove()
    assert disk.store.packs.index("0-4.zip").parts == (name(1),)
    disk.store.verify(name(1))
    disk.old.release(lease)
    assert disk.remove() == 1
    assert disk.folders == disk.marks == set()


def test_a_packed_part_that_comes_back_has_a_folder_of_its_own(disk: Disk) -> None:
    disk.pack()
    disk.old.revive([name(1), name(2)])
    assert not disk.old.is_old(name(1))
    assert disk.old.remove_copies() == 0
    disk.start(PartStore(disk.store.root))
    assert not disk.old.is_old(name(1))
    assert {name(1), name(2)} <= disk.folders
    # It leaves the table once more, and the pack still has it.
    disk.retire(1)
    disk.old.remove_copies()
    assert name(1) not in disk.folders
    assert disk.read(0, 1) == {0, 1}
    disk.feed.first = COUNT
    disk.remove()
    assert disk.folders == {name(2)}


def test_a_damaged_part_is_not_here_any_more_and_the_others_are(disk: Disk) -> None:
    data = disk.store.file_path(name(1), "data-0.parquet").read_bytes()
    disk.pack()
    path = disk.store.packs.path("0-4.zip")
    spoiled = bytearray(path.read_bytes())
    spoiled[spoiled.index(data) + 9] ^= 1
    path.write_bytes(spoiled)
    assert disk.read(0, 1, 2) == {0, 2}
    (problem,) = disk.old.packed.problems()
    assert name(1) in problem
    assert disk.old.packed.problems() == []
    assert disk.store.detached() == ("broken_0-4_0",)
    disk.old.remove_copies()
    disk.start(PartStore(disk.store.root))
    assert disk.read(*range(COUNT)) == {*range(COUNT)} - {1}
    # Another replica has it: it is fetched, and is an old part like any other.
    other = filled(disk.store.root.parent / "other", 2)
    other.part_path(name(1)).rename(disk.store.part_path(name(1)))
    disk.retire(1)
    assert disk.read(*range(COUNT)) == {*range(COUNT)}


@pytest.mark.parametrize("left", [0, 100, 2_000])
def test_a_pack_that_is_cut_is_set_aside_at_a_start_or_by_a_reader(disk: Disk, left: int) -> None:
    disk.pack()
    path = disk.store.packs.path("5-9.zip")
    path.write_bytes(path.read_bytes()[:left])
    disk.start(PartStore(disk.store.root))
    assert disk.read(*range(COUNT)) == {*range(COUNT)} - {*range(5, 10)}
    assert len(disk.old.packed.problems()) == 1
    assert disk.store.packs.names() == ("0-4.zip",)
    assert disk.store.detached() == ("broken_5-9_0",)


class Killed(CrashingDisk):
    """Also counts the marks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop: int | None) -> None:
        super().__init__(monkeypatch, stop)
        monkeypatch.setattr(private, "touch", self._counted("touch", private.touch))
        real = Path.unlink
        monkeypatch.setattr(Path, "unlink", self._counted("unlink", real))


def kills(monkeypatch: pytest.MonkeyPatch, root: Path, do: Callable[[Disk], None]) -> Iterator[Disk]:
    """Do something with packed parts, killed at each of its steps; give what each next process finds."""
    Disk(filled(root / "first")).retire(*range(COUNT))
    for forgets in (False, True):
        for stop in range(500):
            copytree(root / "first", root / f"{stop}-{forgets}")
            disk = Disk(PartStore(root / f"{stop}-{forgets}"))
            with monkeypatch.context() as patch:
                killed = Killed(patch, stop)
                try:
                    do(disk)
                except Crash:
                    if forgets:
                        killed.forget_unsynced()
            disk.start(PartStore(disk.store.root))
            disk.store.sweep()
            yield disk
            if len(killed.steps) < stop:
                break


def test_a_kill_at_any_step_of_packing_and_reading_leaves_every_part_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def do(disk: Disk) -> None:
        disk.pack()
        disk.read(1, 2, 7)
        disk.old.remove_copies()

    monkeypatch.setattr(old_parts, "PACK_PARTS_MAX", 4)
    for disk in kills(monkeypatch, tmp_path, do):
        assert disk.old.remove_copies() == 0, "a start has removed the copies"
        packed = {part for each in disk.old.packed.packs for part in disk.old.packed.names_of(each)}
        assert packed.isdisjoint(disk.folders)
        assert packed | disk.folders == {*map(name, range(COUNT))}
        assert disk.read(*range(COUNT)) == {*range(COUNT)}
        assert disk.old.sizes()["old_parts"] == COUNT
        disk.feed.first = COUNT
        while disk.remove():
            pass
        disk.old.remove_copies()
        assert (disk.folders, disk.marks, disk.store.packs.names()) == (set(), set(), ())


def test_a_kill_at_any_step_of_expiry_or_of_a_return_loses_nothing_that_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def do(disk: Disk) -> None:
        disk.pack()
        disk.old.revive([name(8)])
        disk.feed.first = 3
        disk.remove()

    for disk in kills(monkeypatch, tmp_path, do):
        disk.feed.first = 3
        assert disk.read(*range(3, 8), *range(9, COUNT)) == {*range(3, 8), *range(9, COUNT)}
        # The table has this part: it is old as before, or it has a folder that no start removes.
        if not disk.old.is_old(name(8)):
            disk.store.verify(name(8))


class Both:
    """A disk with packs and one without, to which the same is done."""

    def __init__(self, root: Path, random: Random) -> None:
        self.packs, self.plain = (Disk(filled(root / kind)) for kind in ("packs", "plain"))
        self.random = random
        self.left, self.tags, self.leases = [*range(COUNT)], NO_TAGS, list[tuple[str, str]]()

    @property
    def disks(self) -> tuple[Disk, Disk]:
        return self.packs, self.plain

    def some_old(self, count: int) -> list[int]:
        there = [number for number in range(COUNT) if self.plain.old.is_old(name(number))]
        return self.random.sample(there, min(len(there), count))

    def retire(self) -> None:
        some, self.left = self.left[:3], self.left[3:]
        for disk in self.disks:
            disk.retire(*some)

    def pack(self) -> None:
        self.packs.pack()
        self.plain.now = self.packs.now

    def expire(self) -> None:
        first = self.random.randint(self.packs.feed.first, COUNT)
        for disk in self.disks:
            disk.feed.first = first
            while disk.remove(self.tags):
                pass

    def tag(self) -> None:
        self.tags = tags_of(*map(name, self.some_old(2)))
        for disk in self.disks:
            disk.old.tags = self.tags

    def lease(self) -> None:
        some = [*map(name, self.random.sample(range(COUNT), 3))]
        self.leases.append((self.packs.old.lease(some, 60.0), self.plain.old.lease(some, 60.0)))
        self.packs.old.unpack(some)

    def release(self) -> None:
        for disk, lease in zip(self.disks, self.leases.pop() if self.leases else ("", ""), strict=True):
            disk.old.release(lease)

    def start(self) -> None:
        self.leases.clear()
        for disk in self.disks:
            disk.start(PartStore(disk.store.root))
            disk.old.tags = self.tags

    def revive(self) -> None:
        for number in self.some_old(1):
            for disk in self.disks:
                disk.old.revive([name(number)])
                disk.store.verify(name(number))
            self.left.append(number)


def test_any_sequence_gives_what_it_gives_without_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the times that bound how often packs are looked at, and written again.
    monkeypatch.setattr(packed_parts, "REWRITE_S", 0.0)
    monkeypatch.setattr(old_parts, "LOOK_S", 0.0)
    for seed in range(30):
        random = Random(seed)
        both = Both(tmp_path / str(seed), random)
        for _ in range(25):
            does = (both.retire, both.retire, both.pack, both.pack, both.expire, both.tag, both.lease, both.release)
            do = random.choice((*does, both.start, both.revive))
            do()
            assert both.packs.read(*range(COUNT)) == both.plain.read(*range(COUNT)), (seed, do)
            assert both.packs.old.sizes()["old_bytes"] == both.plain.old.sizes()["old_bytes"], (seed, do)


def test_the_memory_of_packed_parts_does_not_grow_with_their_number(tmp_path: Path) -> None:
    store, each = PartStore(tmp_path), 1_000
    for folder in (store.packs.root, tmp_path / RETIRED):
        folder.mkdir()
    for first in range(0, 200 * each, each):
        parts = tuple(name(first + number) for number in range(each))
        index = PackIndex(since=1.0, parts=parts, bytes=(1_000,) * each)
        with ZipFile(store.packs.path(f"{first}-{first + each - 1}.zip"), "w", ZIP_DEFLATED) as packed:
            packed.writestr("parts.json", msgspec.json.encode(index))
    gc.collect()
    tracemalloc.start()
    found = PackedParts(store, tmp_path / RETIRED)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(pack.parts for pack in found.packs) == 200 * each
    assert held / (200 * each) < 2.0, "bytes for each packed part"
    assert found.pack_of(name(123_456)) is not None
    assert found.pack_of(name(200 * each)) is None


def test_what_a_full_disk_keeps_in_a_pack_goes_with_the_next_round(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.pack()
    tags = tags_of(name(0))
    disk.old.tags, disk.feed.first = tags, COUNT
    with monkeypatch.context() as patch:
        patch.setattr(disk.store.packs, "stage_rest", _refuse)
        with pytest.raises(StoreError):
            disk.remove(tags)
    assert disk.read(0, 1) == {0, 1}
    disk.remove(tags)
    assert disk.read(*range(COUNT)) == {0}


def _refuse(*_: object) -> None:
    raise StoreError("the disk is full")


def test_readers_and_maintenance_at_once_give_every_reader_whole_parts(disk: Disk) -> None:
    disk.pack()
    failures, is_over = list[object](), threading.Event()

    def read(first: int) -> None:
        try:
            while not is_over.is_set():
                assert disk.read(*range(first, first + 4)) == {*range(first, first + 4)}
        except BaseException as error:  # noqa: BLE001 - the test tells of it
            failures.append(error)

    readers = [threading.Thread(target=read, args=(first,)) for first in (0, 3, 8)]
    for reader in readers:
        reader.start()
    for number in range(300):
        disk.old.remove_copies()
        # Other tags let each pack be looked at again.
        disk.remove(tags_of(name(number % COUNT)))
        disk.pack(0.0)
    is_over.set()
    for reader in readers:
        reader.join()
    assert failures == []
