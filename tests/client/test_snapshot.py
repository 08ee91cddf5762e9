from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from replitree.client.table import Table
from replitree.errors import BadInput, CorruptPart, ReplicaUnavailable, SnapshotExpired
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Set
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.sql.evolve import AddColumn, Alter, RenameColumn, apply_alter
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import Failure, FakeReplica

PARTS = ("all_0_0_0", "all_1_1_0", "all_2_2_0")


def publish(folder: Path, definition: TableDefinition) -> list[tuple[str, Path, PartManifest]]:
    """Write three parts of ten rows: keys 0 to 29, and the test's folder, so that no two tests have the same part."""
    found = []
    for number, name in enumerate(PARTS):
        keys = pa.array(range(number * 10, number * 10 + 10), pa.int64())
        columns = {"k": keys, "s": [f"s{k}" for k in keys.to_pylist()], "test": [str(folder)] * 10}
        table = pa.table(columns, schema=definition.arrow_schema)
        (manifest,) = stage_table(table, definition, folder / f"staging-{number}", sync=False)
        (folder / f"staging-{number}" / "all").rename(folder / name)
        found.append((name, folder / name, manifest))
    return found


def serve(replica: FakeReplica, parts: list[tuple[str, Path, PartManifest]], index: int = 3) -> None:
    rows = [{"part": name, "path": str(path), "manifest": msgspec.Raw(m.encode())} for name, path, m in parts]
    head = {"index": index, "schema_version": 1, "replica": replica.name, "machine": replica.machine}
    replica.snapshot = {**head, "parts": rows}
    for name, path, manifest in parts:
        for file in manifest.files:
            replica.files[f"{name}/{file.name}"] = (path / file.name).read_bytes()


def make(cluster: FakeCluster, folder: Path, machine: str | None = None) -> Table:
    cluster.create("t", "k bigint not null, s string, test string", order_by="k")
    replica = cluster.add_replica("t", "r1", machine=machine)
    table = cluster.connect().table("t")
    serve(replica, publish(folder, table.definition))
    return table


def test_rows_are_read_where_the_files_lie(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    snapshot = table.snapshot()
    assert (snapshot.index, snapshot.rows, snapshot.replica, snapshot.is_local) == (3, 30, "r1", True)
    assert snapshot.to_arrow()["k"].to_pylist() == list(range(30))
    assert table.to_arrow(columns=["s"], where="k >= 28").to_pylist() == [{"s": "s28"}, {"s": "s29"}]
    assert [batch.num_rows for batch in table.batches(where="k < 5")] == [5]
    assert table.to_arrow(columns=["s"], where="k % 10 = 3 and length(s) = 2").to_pylist() == [{"s": "s3"}]
    assert repr(snapshot) == "<Snapshot of t at 3 (r1): 3 parts, 30 rows>"
    assert repr(table) == "<Table t: k, s, test, order by k>"


def test_key_range_opens_only_the_parts_that_can_hold_it(cluster: FakeCluster, tmp_path: Path) -> None:
    snapshot = make(cluster, tmp_path).snapshot()
    assert [part.part for part in snapshot.select("k between 12 and 13")] == ["all_1_1_0"]
    assert snapshot.select("k > 100") == ()
    assert [path.parent.name for path in snapshot.files("k = 5")] == ["all_0_0_0"]
    with pytest.raises(BadInput, match="nope"):
        snapshot.to_arrow(where="nope = 1")
    with pytest.raises(BadInput, match="nope"):
        snapshot.to_arrow(columns=["nope"])


def test_snapshot_waits_for_own_writes_and_for_what_is_asked(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    replica = cluster.replicas["r1"]
    table.snapshot()
    table.insert({"k": [1]})
    table.insert({"k": [2]})
    table.snapshot()
    table.replica("r1").snapshot()
    table.snapshot(min_index=7)
    table.snapshot(min_index=-1)
    asked = [seen.query["min_index"] for seen in replica.seen if seen.path.endswith("/snapshot")]
    assert asked == ["0", "2", "2", "8", "0"]


def test_replica_that_lags_is_left_for_one_that_does_not(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    cluster.replicas["r1"].script.append(Failure(503, "ReplicaUnavailable", "executed up to 1, not yet to 3"))
    assert table.snapshot().rows == 30


def test_a_replica_that_knows_no_levels_is_not_believed(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    with pytest.raises(ReplicaUnavailable, match="replica r1 does not know linearizable reads: upgrade it"):
        table.snapshot(level="linearizable", timeout_s=0.2)
    assert table.snapshot(level="eventual").rows == 30


def test_part_that_is_gone_is_said_never_skipped(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    snapshot = table.snapshot()
    (tmp_path / "all_1_1_0").rename(tmp_path / "elsewhere")
    cluster.replicas["r1"].files.clear()
    with pytest.raises(SnapshotExpired, match="all_1_1_0"):
        snapshot.to_arrow()
    assert snapshot.to_arrow(where="k < 10").num_rows == 10, "a part that is not needed may be gone"


def test_parts_of_another_machine_are_fetched_once(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path, machine="elsewhere")
    replica = cluster.replicas["r1"]
    snapshot = table.snapshot()
    assert not snapshot.is_local
    assert snapshot.to_arrow()["k"].to_pylist() == list(range(30))
    asked = len(replica.seen)
    assert snapshot.to_arrow(where="k < 10").num_rows == 10
    assert len(replica.seen) == asked


def test_damaged_file_is_refused_and_another_replica_asked(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path, machine="elsewhere")
    r1, r2 = cluster.replicas["r1"], cluster.add_replica("t", "r2", machine="elsewhere")
    serve(r2, published(r1))
    for name in list(r1.files):
        r1.files[name] = b"damaged"
    snapshot = table.snapshot()
    assert snapshot.to_arrow(where="k < 10").num_rows == 10
    r2.files.clear()
    with pytest.raises(SnapshotExpired, match="can't be had"):
        snapshot.to_arrow(where="k > 25")


def published(replica: FakeReplica) -> list[tuple[str, Path, PartManifest]]:
    body = msgspec.json.decode(msgspec.json.encode(replica.snapshot))
    return [
        (part["part"], Path(part["path"]), msgspec.convert(part["manifest"], PartManifest)) for part in body["parts"]
    ]


def test_nobody_answers_is_not_an_expired_snapshot(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path, machine="elsewhere")
    snapshot = table.snapshot()
    cluster.replicas["r1"].close()
    with pytest.raises(ReplicaUnavailable):
        snapshot.to_arrow(where="k > 15")


@pytest.mark.parametrize("name", ["../../etc/passwd", "all_0_0", "a/b_0_0_0"])
def test_names_from_a_replica_are_not_believed(cluster: FakeCluster, tmp_path: Path, name: str) -> None:
    table = make(cluster, tmp_path)
    replica = cluster.replicas["r1"]
    parts = published(replica)
    serve(replica, [(name, *parts[0][1:])])
    with pytest.raises(BadInput, match="not the name of a part"):
        table.snapshot()
    manifest = msgspec.structs.replace(parts[0][2], partition="../x")
    serve(replica, [(PARTS[0], parts[0][1], manifest)])
    with pytest.raises(CorruptPart, match="damaged manifest"):
        table.snapshot()


def test_handle_follows_the_schema_of_what_it_reads(cluster: FakeCluster, tmp_path: Path) -> None:
    table = make(cluster, tmp_path)
    before = table.snapshot()
    altered = apply_alter(table.definition, Alter((RenameColumn("s", "text"), AddColumn("n", "int", default=7))))
    cluster.commit(Set(layout.columns(cluster.catalog.place("t")), altered.encode_columns(), 0))
    assert table.to_arrow(where="k = 1").column_names == ["k", "s", "test"], "no replica has said that there is more"
    replica = cluster.replicas["r1"]
    assert replica.snapshot is not None
    replica.snapshot = {**replica.snapshot, "schema_version": 2}
    snapshot = table.snapshot()
    assert snapshot.to_arrow(["text", "n"], "k = 29 and n = 7").to_pylist() == [{"text": "s29", "n": 7}]
    assert snapshot.select("n = 8") == ()
    assert table.schema.names == ["k", "text", "test", "n"]
    assert table.definition == altered
    assert before.to_arrow(["s"]).num_rows == 30, "a snapshot keeps its columns"


def test_part_of_a_newer_version_than_its_replica_says_is_read_with_its_columns(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    table = make(cluster, tmp_path)
    altered = apply_alter(table.definition, Alter((AddColumn("n", "int"),)))
    cluster.commit(Set(layout.columns(cluster.catalog.place("t")), altered.encode_columns(), 0))
    rows = pa.table({"k": [99], "s": ["a"], "test": [""], "n": [5]}).cast(altered.arrow_schema)
    (manifest,) = stage_table(rows, altered, tmp_path / "new", sync=False)
    serve(cluster.replicas["r1"], [("all_3_3_0", tmp_path / "new" / "all", manifest)], index=4)
    assert table.to_arrow(["n", "k"]).to_pylist() == [{"n": 5, "k": 99}]
