"""Copies without Spark: what is chosen, what stays, and that nothing wrong is opened."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from replitree.client.read.part_cache import place_name
from replitree.client.read.snapshot import SnapshotPart
from replitree.errors import BadInput, SnapshotExpired
from replitree.spark.store.copies import FRAME_BYTES_OPTION, Claim, Copies, frame_bytes_max
from replitree.storage.objects import ObjectStore, open_store
from replitree.storage.parts.manifest import FileEntry, PartManifest
from tests.client.conftest import FakeCluster
from tests.client.test_stored import SharedTable
from tests.storage.objects.conftest import KEYS
from tests.storage.objects.s3_server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MUCH = 1 << 40


def part(number: int, size: int) -> SnapshotPart:
    """Return a part in a bucket; no two have the same number."""
    file = FileEntry("data-0.parquet", 1, size, f"{number:032}")
    manifest = PartManifest(
        partition="all", rows=1, bytes=size, schema_version=1, files=(file,), content_hash=f"{number:032}"
    )
    return SnapshotPart(f"all_{number}_{number}_0", "", manifest.shared_as(f"{number:032x}"))


class Plan:
    """A plan of the JVM, as a weak reference to it shows it."""

    def __init__(self) -> None:
        self.is_there = True

    def get(self) -> Plan | None:
        return self if self.is_there else None


class Brought(Copies):
    """Copies that need no store: what is claimed lies there at once."""

    def take(self, *parts: SnapshotPart, most: int = MUCH) -> Claim:
        claim = self.claim(parts, most)
        for place in claim.places:
            (self.folder / place).mkdir(exist_ok=True)
        return claim

    def frame(self, *parts: SnapshotPart) -> Plan:
        """Make a frame of parts, which must all find room; return its plan."""
        claim, plan = self.take(*parts), Plan()
        assert len(claim.places) == len(parts)
        claim.plans.append(plan)
        return plan

    def has(self, *parts: SnapshotPart) -> bool:
        """Whether the copies of these parts lie there, and no others."""
        return {path.name for path in self.folder.iterdir()} == {place_name(part.part, part.manifest) for part in parts}


@pytest.fixture
def copies(tmp_path: Path) -> Brought:
    return Brought(tmp_path, 100)


A, B, C, D = (part(number, 40) for number in range(4))


def test_the_smallest_parts_are_copied_up_to_the_limit_of_a_frame(copies: Brought) -> None:
    large, small, middle = part(10, 60), part(11, 5), part(12, 30)
    for most, chosen in ((95, [small, middle, large]), (94, [small, middle]), (34, [small]), (4, []), (0, [])):
        claim = copies.claim([large, small, middle], most)
        assert [each for each in (small, middle, large) if each in claim] == chosen


def test_what_no_plan_reads_goes_when_room_is_needed_the_longest_unused_first(copies: Brought) -> None:
    first, second = copies.frame(A), copies.frame(B)
    first.is_there = second.is_there = False
    assert copies.has(A, B), "there is room"
    copies.frame(A).is_there = False
    copies.frame(C)
    assert copies.has(A, C), "the first one was used again"


def test_what_is_wanted_again_does_not_go_for_what_is_new(copies: Brought) -> None:
    copies.frame(A).is_there = copies.frame(B).is_there = False
    brought = copies.folder / place_name(A.part, A.manifest) / "data-0.parquet"
    brought.touch()
    copies.frame(A, C)
    assert copies.has(A, C)
    assert brought.exists()


def test_what_a_plan_reads_stays_and_others_are_not_copied(copies: Brought) -> None:
    frames = copies.frame(A), copies.frame(B)
    assert not copies.take(C).places
    assert copies.has(A, B)
    frames[0].is_there = False
    assert copies.take(C, D).places == {place_name(C.part, C.manifest)}, "there is room for one"
    assert copies.has(B, C)


def test_two_frames_of_the_same_parts_have_one_copy_until_both_are_gone(copies: Brought) -> None:
    frames = copies.frame(A, B), copies.frame(B, A)
    for frame, others in zip(frames, (set(), {place_name(C.part, C.manifest)}), strict=True):
        frame.is_there = False
        assert copies.take(C).places == others


def test_copies_stay_while_a_frame_is_made_and_not_when_that_failed(copies: Brought) -> None:
    making = copies.take(A, B)
    assert not copies.take(C).places
    assert making.places == {place_name(A.part, A.manifest), place_name(B.part, B.manifest)}
    del making
    gc.collect()
    assert copies.take(C, D).places == {place_name(C.part, C.manifest), place_name(D.part, D.manifest)}
    assert copies.has(C, D)


def test_what_is_forgotten_leaves_room(copies: Brought) -> None:
    frame = copies.frame(A, B)
    copies.forget()
    assert copies.has()
    assert frame.get() is not None
    copies.frame(C, D)
    assert copies.has(C, D)


def test_claims_of_many_threads_keep_the_limit(copies: Brought) -> None:
    parts = [part(number, 30) for number in range(20)]
    found: list[int] = []

    def claim(number: int) -> None:
        for step in range(50):
            made = copies.take(parts[(number + step) % 20], parts[(3 * number + step) % 20])
            found.append(sum(1 for place in made.places if not (copies.folder / place).is_dir()))

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(found) == 0, "what is claimed is there"
    assert len(list(copies.folder.iterdir())) <= 3


class Session:
    """A Spark session as far as its settings go."""

    def __init__(self, value: str | None) -> None:
        self.conf = {} if value is None else {FRAME_BYTES_OPTION: value}


def test_the_limit_of_a_session_is_a_number() -> None:
    def limit(value: str | None) -> int:
        session: SparkSession = Session(value)  # type: ignore[assignment] # its settings are all that is asked
        return frame_bytes_max(session)

    assert (limit("0"), limit("12"), limit(None)) == (0, 12, 64 << 20)
    for wrong in ("-1", "64m", ""):
        with pytest.raises(BadInput, match="a number of bytes, 0 or more"):
            limit(wrong)


# --- a bucket -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server() as made:
        yield made


@pytest.fixture
def table(cluster: FakeCluster, tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> SharedTable:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return SharedTable(cluster, tmp_path, server.url())


@pytest.fixture
def store(table: SharedTable) -> ObjectStore:
    return open_store(table.table.definition.store_url, environment=KEYS)


def brought(table: SharedTable, copies: Copies) -> list[str] | None:
    snapshot = table.table.snapshot()
    return copies.claim(snapshot.parts, MUCH).bring(snapshot, snapshot.parts)


def damage(table: SharedTable, store: ObjectStore) -> None:
    """Change one byte of the second part's only object."""
    _, _, manifest = table.parts[1]
    key = f"tables/{table.table.definition.table_id}/{manifest.share_id}/data-0.parquet"
    data = bytearray(store.get(key) or b"")
    data[len(data) // 2] ^= 1
    store.delete([key])
    store.create(key, bytes(data))


def rows(files: list[str] | None) -> list[int]:
    assert files is not None
    found: list[int] = pq.ParquetDataset(files).read(columns=["k"])["k"].to_pylist()
    return sorted(found)


def test_copies_come_from_the_bucket_and_once(table: SharedTable, server: S3Server, tmp_path: Path) -> None:
    copies = Copies(tmp_path / "copies")
    first = brought(table, copies)
    assert rows(first) == list(range(30))
    objects = [request for request in server.state.requests if "data-0" in request]
    assert brought(table, copies) == first
    assert [request for request in server.state.requests if "data-0" in request] == objects
    assert table.fetched() == 0


def test_a_damaged_object_is_taken_from_a_replica(table: SharedTable, store: ObjectStore, tmp_path: Path) -> None:
    damage(table, store)
    assert rows(brought(table, Copies(tmp_path / "copies"))) == list(range(30))
    assert table.fetched() == 1


def test_what_is_damaged_everywhere_is_an_error_and_no_file(
    table: SharedTable, store: ObjectStore, tmp_path: Path
) -> None:
    damage(table, store)
    table.replica.files = {name: data[:-1] for name, data in table.replica.files.items()}
    with pytest.raises(SnapshotExpired, match="can't be had any more"):
        brought(table, Copies(tmp_path / "copies"))
    name, _, _ = table.parts[1]
    (folder,) = (tmp_path / "copies").glob(f"{name}-*")
    assert list(folder.iterdir()) == []


def test_where_there_is_no_room_on_the_disk_nothing_is_copied(table: SharedTable, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    assert brought(table, Copies(tmp_path / "a file")) is None
