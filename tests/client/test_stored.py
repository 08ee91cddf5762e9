"""Reading in a table's store: who reaches it, who does not, and that this is proved by reading."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from replitree.client.read.snapshot import Snapshot
from replitree.client.table import Table
from replitree.client.transport.stored import StoredParts
from replitree.errors import BadInput, NotAuthorized, StoreError
from replitree.storage.objects import open_store
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.shares.shares import ShareObjects
from tests.client.conftest import FakeCluster
from tests.client.fake_replica import FakeReplica
from tests.client.test_snapshot import PARTS, serve
from tests.storage.objects.azure_server import AzureServer
from tests.storage.objects.conftest import AZURE_KEYS, KEYS
from tests.storage.objects.gcs_server import GcsServer
from tests.storage.objects.providers import LONG_S, Provider, service_account
from tests.storage.objects.s3_server import S3Server

SCHEMA = "k bigint not null, s string"


def publish(definition: TableDefinition, folder: Path, url: str) -> list[tuple[str, Path, PartManifest]]:
    """Put three parts of ten rows into a store, and their files into a folder."""
    # With the credentials of the environment that the test has made.
    objects, found = ShareObjects(lambda: open_store(url), definition.table_id), []
    for number, name in enumerate(PARTS):
        keys = pa.array(range(number * 10, number * 10 + 10), pa.int64())
        rows = pa.table({"k": keys, "s": [f"{k}" for k in keys.to_pylist()]}, schema=definition.arrow_schema)
        (folder / name).mkdir(parents=True)
        (manifest,) = stage_table(rows, definition, folder / name, sync=False)
        shared = manifest.shared_as(uuid.uuid4().hex)
        objects.put(str(shared.share_id), folder / name / "all", shared)
        found.append((name, folder / name / "all", shared))
    return found


class SharedTable:
    """A table in a store with three parts, and a scripted replica that serves them."""

    def __init__(self, cluster: FakeCluster, folder: Path, url: str) -> None:
        definition = define_table("t", SCHEMA, order_by="k", storage=url)
        cluster.catalog.create(definition)
        self.replica: FakeReplica = cluster.add_replica("t", "r1", machine="")
        self.table: Table = cluster.connect().table("t")
        self.parts = publish(self.table.definition, folder / "staged", url)
        serve(self.replica, self.parts)

    def fetched(self) -> int:
        """How many files the replica has sent."""
        return sum("/files/" in seen.path for seen in self.replica.seen)

    def keys(self, snapshot: Snapshot | None = None) -> list[int]:
        found: list[int] = (snapshot or self.table.snapshot()).to_arrow()["k"].to_pylist()
        return found


@pytest.fixture
def in_folder(cluster: FakeCluster, tmp_path: Path) -> SharedTable:
    return SharedTable(cluster, tmp_path, f"file://{tmp_path}/objects")


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server() as made:
        yield made


@pytest.fixture
def in_bucket(cluster: FakeCluster, tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> SharedTable:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return SharedTable(cluster, tmp_path, server.url())


def test_objects_in_a_folder_are_opened_where_they_are(in_folder: SharedTable, tmp_path: Path) -> None:
    snapshot = in_folder.table.snapshot()
    assert snapshot.is_local
    assert in_folder.keys(snapshot) == list(range(30))
    assert {path.parents[2] for path in snapshot.files()} == {tmp_path / "objects" / "tables"}
    assert in_folder.fetched() == 0


@pytest.fixture
def in_google(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedTable]:
    with GcsServer() as server, Provider(("token-one", LONG_S)) as provider:
        server.state.tokens = {"token-one"}
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(service_account(tmp_path, provider)))
        yield SharedTable(cluster, tmp_path, server.url())


@pytest.fixture
def in_azure(cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedTable]:
    for name, value in AZURE_KEYS.items():
        monkeypatch.setenv(name, value)
    with AzureServer() as server:
        yield SharedTable(cluster, tmp_path, server.url())


@pytest.mark.parametrize("place", ["in_google", "in_azure"])
def test_objects_of_other_clouds_are_brought_from_there(request: pytest.FixtureRequest, place: str) -> None:
    made: SharedTable = request.getfixturevalue(place)
    assert made.keys(made.table.snapshot().through("store")) == list(range(30))
    assert made.fetched() == 0


def test_objects_of_a_bucket_are_brought_from_there(in_bucket: SharedTable) -> None:
    assert in_bucket.keys() == list(range(30))
    assert in_bucket.fetched() == 0


def borrow(made: SharedTable, folder: Path, url: str) -> None:
    """Let the last part have its own rows, and beside them a file of the second one, which is not there any more."""
    objects = ShareObjects(lambda: open_store(url, environment=KEYS), made.table.definition.table_id)
    first, (_, lender, lending), (name, own, had) = made.parts
    folder.mkdir()
    shutil.copyfile(lender / "data-0.parquet", folder / "data-0.parquet")
    shutil.copyfile(own / "data-0.parquet", folder / "data-1.parquet")
    files = (lending.files[0], msgspec.structs.replace(had.files[0], name="data-1.parquet"))
    local = msgspec.structs.replace(had.as_local(), rows=20, bytes=sum(file.bytes for file in files), files=files)
    borrowing = local.shared_as(uuid.uuid4().hex, {"data-0.parquet": str(lending.share_id)})
    objects.put(str(borrowing.share_id), folder, borrowing)
    made.parts = [first, (name, folder, borrowing)]
    serve(made.replica, made.parts)


@pytest.mark.parametrize("place", ["in_folder", "in_bucket"])
def test_a_part_that_borrows_is_read_where_its_files_lie(
    request: pytest.FixtureRequest, tmp_path: Path, place: str
) -> None:
    made: SharedTable = request.getfixturevalue(place)
    borrow(made, tmp_path / "borrowing", made.table.definition.store_url)
    snapshot = made.table.snapshot().through("store")
    for _ in range(2):
        assert made.keys(snapshot) == list(range(30))
    assert snapshot.to_arrow(final=True).num_rows == 30
    assert made.fetched() == 0
    if place == "in_folder":
        shares = [path.resolve().parent.name for path in snapshot.files()]
        assert shares == [str(share) for share in (made.parts[0][2].share_id, *reversed(made.parts[1][2].shares))]
        assert made.keys(snapshot.through("replica")) == list(range(30))
        assert made.fetched() == 3


def test_a_replica_is_asked_when_it_shall_be(in_folder: SharedTable) -> None:
    assert in_folder.keys(in_folder.table.snapshot().through("replica")) == list(range(30))
    assert in_folder.fetched() == 3


def test_a_folder_that_is_another_one_here_proves_nothing(in_folder: SharedTable, tmp_path: Path) -> None:
    (tmp_path / "objects").rename(tmp_path / "elsewhere")
    (tmp_path / "objects").mkdir()
    assert in_folder.keys() == list(range(30))
    assert in_folder.fetched() == 3
    with pytest.raises(StoreError, match="let this process reach the store that the replicas use"):
        in_folder.table.snapshot().through("store")
    assert list((tmp_path / "objects").iterdir()) == [], "a reader makes nothing"


def test_another_manifest_under_the_share_proves_nothing(in_folder: SharedTable, tmp_path: Path) -> None:
    (_, _, manifest) = in_folder.parts[1]
    place = f"tables/{in_folder.table.definition.table_id}/{manifest.share_id}/manifest.json"
    (tmp_path / "objects" / place).write_bytes(manifest.as_local().encode())
    assert in_folder.keys() == list(range(30))
    assert in_folder.fetched() == 1


def test_who_has_no_credentials_reads_through_a_replica(
    in_bucket: SharedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert in_bucket.keys() == list(range(30))
    assert in_bucket.fetched() == 3
    with pytest.raises(NotAuthorized, match="set AWS_ACCESS_KEY_ID"):
        in_bucket.table.snapshot().through("store")


def test_an_object_that_is_gone_is_asked_of_a_replica(in_bucket: SharedTable, server: S3Server) -> None:
    snapshot = in_bucket.table.snapshot()
    share = in_bucket.parts[2][2].share_id
    server.state.objects = {key: data for key, data in server.state.objects.items() if f"/{share}/" not in key}
    assert in_bucket.keys(snapshot) == list(range(30))
    assert in_bucket.fetched() == 1


def test_a_part_whose_objects_are_gone_proves_nothing_about_the_others(
    in_bucket: SharedTable, server: S3Server
) -> None:
    gone, there = (manifest for _, _, manifest in in_bucket.parts[:2])
    server.state.objects = {key: data for key, data in server.state.objects.items() if f"/{gone.share_id}/" not in key}
    stored = StoredParts(in_bucket.table.definition, KEYS)
    assert isinstance(stored.problem(gone), StoreError)
    assert stored.problem(there) is None


def test_the_store_is_asked_once_whether_it_is_the_tables(in_bucket: SharedTable, server: S3Server) -> None:
    stored = StoredParts(in_bucket.table.definition, KEYS)
    begun = len(server.state.requests)
    for _, _, manifest in in_bucket.parts:
        assert stored.problem(manifest) is None
    assert len(server.state.requests) == begun + 1


def test_a_local_table_has_no_store(cluster: FakeCluster) -> None:
    cluster.create("local", SCHEMA)
    replica = cluster.add_replica("local", "r1")
    serve(replica, [])
    snapshot = cluster.connect().table("local").snapshot()
    assert snapshot.stored is None
    assert snapshot.through("store").to_arrow().num_rows == 0


def test_way_that_does_not_exist_is_refused() -> None:
    from replitree.client.transport.stored import through_of

    with pytest.raises(BadInput, match="through is store or replica, not 'both'"):
        through_of("both")
    assert through_of(None) is None
