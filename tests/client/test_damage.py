"""Reads of damaged files: they go on with a good copy and report the damage; without a copy they fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from replitree.client.read.snapshot import SnapshotBody, SnapshotPart
from replitree.client.transport.catalog import this_machine
from replitree.errors import CorruptPart, SnapshotExpired
from replitree.storage.files import sums
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import PartManifest
from tests.client.conftest import FakeCluster

PART = "all_0_0_0"
ROWS = 5000


@pytest.fixture(params=["whole", "blocks"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster) -> Path:
    """The data file of a part of table t that r1 shows on this machine; r2 has the same part."""
    if request.param == "blocks":
        monkeypatch.setattr(sums, "SUMMED_BYTES_MIN", 1000)
    cluster.create("t", "k bigint, s string", order_by="k", policy="replacing")
    folder, manifest = made(cluster, cluster.folder / "r1-disk", compression=None)
    for name in ("r1", "r2"):
        replica = cluster.add_replica("t", name)
        part = SnapshotPart(PART, str(folder), manifest)
        replica.snapshot = msgspec.to_builtins(SnapshotBody(1, 1, name, this_machine(), (part,)))
    data = folder / "data-0.parquet"
    cluster.replicas["r2"].files = {f"{PART}/data-0.parquet": data.read_bytes()}
    return data


def made(cluster: FakeCluster, folder: Path, compression: int | None) -> tuple[Path, PartManifest]:
    definition = cluster.catalog.definition("t")
    if compression is not None:
        settings = msgspec.structs.replace(definition.settings, compression_level=compression, row_group_rows=1000)
        definition = replace(definition, settings=settings)
    rows = pa.table({"k": range(ROWS), "s": [text(cluster, k) for k in range(ROWS)]}, definition.arrow_schema)
    (manifest,) = stage_table(rows, definition, folder, sync=False)
    return folder / "all", manifest


def text(cluster: FakeCluster, k: int) -> str:
    """Return a value that no other test has: what this process has fetched once it does not fetch again."""
    return f"{cluster.folder.name} {k * 7919}"


def spoil(path: Path, place: int = -50) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def reports(cluster: FakeCluster, name: str) -> int:
    return sum(
        seen.method == "POST" and seen.path.endswith(f"/parts/{PART}/check") for seen in cluster.replicas[name].seen
    )


@pytest.mark.parametrize("place", [-50, 0, 200])
def test_a_read_goes_on_with_another_replica(cluster: FakeCluster, path: Path, place: int) -> None:
    table = cluster.connect().table("t").replica("r1")
    expected = table.to_arrow().to_pylist()
    assert len(expected) == ROWS
    spoil(path, place)
    assert table.to_arrow().to_pylist() == expected
    assert pa.Table.from_batches(list(table.batches())).to_pylist() == expected
    assert table.to_arrow(final=True).to_pylist() == expected
    assert table.to_arrow(["s"], "k = 4000").to_pylist() == [{"s": text(cluster, 4000)}]
    assert all(
        file.read_bytes() == cluster.replicas["r2"].files[f"{PART}/data-0.parquet"] for file in table.snapshot().files()
    )
    assert reports(cluster, "r1") >= 1, "the replica whose file it is must verify it"
    assert reports(cluster, "r2") == 0
    assert not any("/files/" in seen.path for seen in cluster.replicas["r1"].seen), "it would send the damaged file"


def test_a_file_that_is_missing_in_its_folder_is_read_elsewhere(cluster: FakeCluster, path: Path) -> None:
    path.unlink()
    assert cluster.connect().table("t").replica("r1").to_arrow().num_rows == ROWS
    assert reports(cluster, "r1") == 1


def test_rows_that_another_replica_has_in_other_files_are_read_there(cluster: FakeCluster, path: Path) -> None:
    other, manifest = made(cluster, cluster.folder / "r2-disk", compression=9)
    data = (other / "data-0.parquet").read_bytes()
    assert data != path.read_bytes()
    cluster.replicas["r2"].files = {f"{PART}/data-0.parquet": data, f"parts/{PART}/manifest": manifest.encode()}
    table = cluster.connect().table("t").replica("r1")
    expected = table.to_arrow().to_pylist()
    spoil(path)
    assert table.to_arrow().to_pylist() == expected
    assert list(pa.Table.from_batches(list(table.batches(["k"]))).column("k").to_pylist()) == list(range(ROWS))
    assert table.to_arrow(final=True).to_pylist() == expected
    assert [file.read_bytes() for file in table.snapshot().files()] == [data]


@pytest.mark.parametrize("elsewhere", ["nothing", "damaged", "other rows"])
def test_without_a_good_copy_the_read_fails_and_says_what_to_do(
    cluster: FakeCluster, path: Path, elsewhere: str
) -> None:
    data = bytearray(path.read_bytes())
    data[100] ^= 4
    cluster.replicas["r2"].files = {} if elsewhere == "nothing" else {f"{PART}/data-0.parquet": bytes(data)}
    if elsewhere == "other rows":
        there = table_manifest(cluster)
        cluster.replicas["r2"].files[f"parts/{PART}/manifest"] = there.encode()
    spoil(path)
    table = cluster.connect().table("t").replica("r1")
    for read in (
        table.to_arrow,
        lambda: list(table.batches()),
        lambda: table.to_arrow(final=True),
        table.snapshot().files,
    ):
        with pytest.raises(CorruptPart, match="run: replitree check t"):
            read()
    assert reports(cluster, "r1") >= 1


def table_manifest(cluster: FakeCluster) -> PartManifest:
    _, manifest = made(cluster, cluster.folder / "others", compression=9)
    return msgspec.structs.replace(manifest, content_hash="0" * 32)


def test_a_part_that_has_left_the_disk_is_read_elsewhere_and_is_no_damage(cluster: FakeCluster, path: Path) -> None:
    snapshot = cluster.connect().table("t").replica("r1").snapshot()
    path.parent.rename(path.parent.with_name("gone"))
    assert snapshot.to_arrow().num_rows == ROWS
    assert reports(cluster, "r1") == 0


def test_a_part_that_has_left_every_disk_is_no_damage(cluster: FakeCluster, path: Path) -> None:
    snapshot = cluster.connect().table("t").replica("r1").snapshot()
    path.parent.rename(path.parent.with_name("gone"))
    cluster.replicas["r2"].files = {}
    with pytest.raises(SnapshotExpired):
        snapshot.to_arrow()
    assert reports(cluster, "r1") == 0


def test_a_snapshot_is_read_again_after_its_replica_has_set_the_damaged_part_aside(
    cluster: FakeCluster, path: Path
) -> None:
    snapshot = cluster.connect().table("t").replica("r1").snapshot()
    spoil(path)
    assert snapshot.to_arrow().num_rows == ROWS
    path.parent.rename(path.parent.with_name("broken"))
    assert snapshot.to_arrow(final=True).num_rows == ROWS
    assert len(snapshot.files()) == 1
