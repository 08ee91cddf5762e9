"""Objects that somebody else has put: what is compared with the manifest, and that little of them is read."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replitree.errors import BadInput, CorruptPart, SchemaMismatch
from replitree.storage.objects import open_store
from replitree.storage.objects.store import ObjectStore
from replitree.storage.parts.encode import stage_table
from replitree.storage.parts.manifest import MANIFEST_FILE, PartManifest
from replitree.storage.schema.definition import TableDefinition, define_table
from replitree.storage.shares.received import TAIL_BYTES, check_received, read_footer, remove_others
from replitree.storage.shares.shares import ShareObjects

SHARE = "a" * 32


class Put:
    """A part whose one data file is an object of a store in memory."""

    def __init__(self, folder: Path) -> None:
        self.definition: TableDefinition = define_table("t", "k bigint not null, s string", order_by="k")
        store = open_store("memory:///")
        self.objects = ShareObjects(lambda: store, "table")
        data = pa.table({"k": pa.array(range(10), pa.int64()), "s": [f"s{k}" for k in range(10)]})
        (manifest,) = stage_table(data, self.definition, folder / "part", sync=False)
        self.manifest = manifest.shared_as(SHARE)
        self.file = self.manifest.files[0]
        self.data = (folder / "part" / "all" / self.file.name).read_bytes()
        self.store.create(self.key, self.data)

    @property
    def store(self) -> ObjectStore:
        return self.objects.store

    @property
    def key(self) -> str:
        return self.objects.key(SHARE, self.file.name)

    def replace(self, data: bytes) -> PartManifest:
        """Put other bytes there; return the manifest that says their size."""
        self.store.delete([self.key])
        self.store.create(self.key, data)
        return self.said(bytes=len(data))

    def said(self, **of_file: int) -> PartManifest:
        """Return a manifest that says something else of the file."""
        file = msgspec.structs.replace(self.file, **of_file)
        return msgspec.structs.replace(self.manifest, files=(file,), rows=file.rows, bytes=file.bytes)

    def check(self, manifest: PartManifest, tag: str = "") -> None:
        check_received(self.objects, manifest, self.definition, {self.file.name: tag} if tag else {})


@pytest.fixture
def put(tmp_path: Path) -> Put:
    return Put(tmp_path)


def test_what_was_put_is_taken(put: Put) -> None:
    found = put.store.head(put.key)
    assert found is not None
    put.check(put.manifest, found.tag)
    put.check(put.manifest)


@pytest.mark.parametrize("said", [{"bytes": 7}, {"rows": 11}], ids=str)
def test_another_size_and_number_of_rows_are_refused(put: Put, said: dict[str, int]) -> None:
    with pytest.raises(CorruptPart, match="its manifest says"):
        put.check(put.said(**said))


def test_an_object_that_was_put_in_its_place_is_refused(put: Put) -> None:
    before = put.store.head(put.key)
    assert before is not None
    put.replace(put.data)
    with pytest.raises(CorruptPart, match="not the one"):
        put.check(put.manifest, before.tag)


def test_a_missing_object_is_refused(put: Put) -> None:
    put.store.delete([put.key])
    with pytest.raises(CorruptPart, match="is missing"):
        put.check(put.manifest)


@pytest.mark.parametrize("data", [b"", b"short", b"x" * 100, b"PAR1" * 5, b"x" * 92 + b"\xff\xff\xff\x7fPAR1"], ids=str)
def test_what_is_no_parquet_file_is_refused(put: Put, data: bytes) -> None:
    with pytest.raises(BadInput, match="Parquet"):
        put.check(put.replace(data))


@pytest.mark.parametrize(
    "columns",
    [{"k": pa.int64()}, {"k": pa.int64(), "s": pa.string(), "more": pa.int64()}, {"k": pa.int32(), "s": pa.string()}],
    ids=str,
)
def test_other_columns_are_refused(put: Put, columns: dict[str, pa.DataType]) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({name: pa.nulls(10, kind) for name, kind in columns.items()}), sink)
    with pytest.raises(SchemaMismatch):
        put.check(put.replace(sink.getvalue().to_pybytes()))


def test_a_footer_that_is_longer_than_what_is_read_first(put: Put) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": range(20_000)}), sink, row_group_size=20)
    data = sink.getvalue().to_pybytes()
    put.replace(data)
    footer = read_footer(put.store, put.key, len(data))
    assert footer.serialized_size > TAIL_BYTES
    assert (footer.num_rows, footer.num_row_groups) == (20_000, 1_000)


def test_what_a_share_has_besides_goes(put: Put) -> None:
    put.objects.put_manifest(put.manifest)
    put.objects.put_manifest(put.manifest)
    put.store.create(put.objects.key(SHARE, "data-9.parquet"), b"of an attempt that does not count")
    assert remove_others(put.objects, put.manifest) == 1
    left = sorted(found.key for found in put.store.list(put.objects.root))
    assert left == [put.key, put.objects.key(SHARE, MANIFEST_FILE)]


def test_another_manifest_is_refused(put: Put) -> None:
    put.objects.put_manifest(put.manifest)
    with pytest.raises(BadInput, match="another manifest"):
        put.objects.put_manifest(put.said(rows=11))


@pytest.mark.parametrize("rows", [10, 11])
def test_a_manifest_that_another_replica_has_just_put_is_compared(
    put: Put, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Two replicas create the same missing manifest again: both find none, and one is slower."""
    key, other, get = put.objects.key(SHARE, MANIFEST_FILE), put.said(rows=rows), put.store.get

    def get_and_lose(wanted: str) -> bytes | None:
        monkeypatch.setattr(put.store, "get", get)
        found = get(wanted)
        put.store.create(key, other.encode())
        return found

    monkeypatch.setattr(put.store, "get", get_and_lose)
    if rows == put.manifest.rows:
        put.objects.put_manifest(put.manifest)
    else:
        with pytest.raises(BadInput, match="another manifest"):
            put.objects.put_manifest(put.manifest)
    assert put.store.get(key) == other.encode()
