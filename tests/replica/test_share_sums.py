"""Shares of earlier versions have no sums objects: the check of parts puts them, and status counts the parts that are left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from replitree.errors import StoreError
from replitree.protocol.core import layout
from replitree.protocol.core.effects import ANY_VERSION, Commit, Set
from replitree.protocol.core.parts import inserted_part
from replitree.storage.files.sums import Sums, decode_sums
from replitree.storage.parts import checked_bytes
from replitree.storage.parts.manifest import SHARED_FORMAT, FileEntry, PartManifest, decode_manifest
from replitree.storage.shares.object_bytes import sums_key
from tests.replica.inprocess import wait_for
from tests.replica.test_check import check
from tests.replica.test_damaged_manifests import manifest_of
from tests.replica.test_sharing import SharedCluster

ROWS = 150_000
"""Of random numbers: more than a mebibyte, so that the data object is a large one."""


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, f"file://{tmp_path}/objects")
    for node in cluster.nodes:
        node.post("merges/pause")
    yield cluster
    cluster.close()


def insert_large(shared: SharedCluster, seed: int) -> str:
    numbers = np.random.default_rng(seed).random(ROWS)
    keys = range(seed * ROWS, (seed + 1) * ROWS)
    status, answer = shared.nodes[0].insert(pa.table({"k": keys, "v": numbers, "s": pa.nulls(ROWS, pa.string())}))
    assert status == 200
    shared.wait_alike()
    return inserted_part("all", answer["index"]).name


def make_earlier(shared: SharedCluster, *parts: str) -> dict[str, FileEntry]:
    """Make parts those of an earlier version, in their shares and on the disks.

    Returns each data file by the key of its missing sums object.
    """
    files: dict[str, FileEntry] = {}
    for part in parts:
        manifest = decode_manifest(manifest_of(shared.nodes[0], part).read_bytes())
        folder = f"tables/{shared.definition.table_id}/{manifest.share_id}"
        files[sums_key(f"{folder}/data-0.parquet")] = manifest.files[0]
        old = replace(manifest, format=SHARED_FORMAT)
        shared.objects.delete([f"{folder}/manifest.json", *files])
        shared.objects.create(f"{folder}/manifest.json", old.encode())
        for node in shared.nodes:
            registered = layout.part(node.table().replica, part)
            node.coordination.perform(Commit(Set(registered, old.content.encode(), ANY_VERSION)))
            manifest_of(node, part).write_bytes(old.encode())
    checked_bytes._kept.clear()  # noqa: SLF001 - another process wrote them
    for node in shared.nodes:
        node.restart()
    for node in shared.nodes:
        wait_for(lambda node=node: shared.is_active(node), f"{node.name} active")  # type: ignore[misc]
        node.post("merges/pause")
    return files


def has_sums(shared: SharedCluster, key: str, file: FileEntry) -> bool:
    data = shared.objects.get(key)
    return data is not None and decode_sums(data, file.bytes, file.checksum) is not None


def test_the_check_puts_the_sums_of_shares_of_an_earlier_version_and_status_counts_those_left(
    shared: SharedCluster,
) -> None:
    first, second = shared.nodes
    files = make_earlier(shared, *(insert_large(shared, seed) for seed in range(2)))
    assert first.get("status")["without_checksums"] == 2
    assert [has_sums(shared, *each) for each in files.items()] == [False, False]
    first.table().checker.check_next()
    assert first.get("status")["without_checksums"] == 1
    assert sorted(has_sums(shared, *each) for each in files.items()) == [False, True]
    assert check(second)["broken"] == []
    assert [has_sums(shared, *each) for each in files.items()] == [True, True]
    assert second.get("status")["without_checksums"] == 0
    shared.wait_equal(list(range(2 * ROWS)))


def test_the_check_puts_good_sums_in_the_place_of_damaged_ones(shared: SharedCluster) -> None:
    insert_large(shared, 0)
    (node, _), (share,) = shared.nodes, shared.shares()
    (file,) = node.table().store.manifest(next(iter(node.contents()))).files
    key = sums_key(f"tables/{shared.definition.table_id}/{share}/{file.name}")
    shared.objects.delete([key])
    shared.objects.create(key, b"crc")
    checked_bytes._kept.clear()  # noqa: SLF001 - another process wrote them
    assert check(node)["broken"] == []
    assert has_sums(shared, key, file)


def test_a_part_whose_sums_the_store_does_not_take_is_whole_and_counted(
    shared: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (key, file), *_ = make_earlier(shared, insert_large(shared, 0)).items()
    first, _ = shared.nodes
    objects = first.table().sharing.objects  # type: ignore[union-attr]
    create = objects.store.create

    def refuse(name: str, data: bytes | Path) -> None:
        if name == key:
            raise StoreError("this name is refused")
        create(name, data)

    with monkeypatch.context() as refusing:
        refusing.setattr(objects.store, "create", refuse)
        assert check(first)["broken"] == []
    assert first.get("status")["without_checksums"] == 1
    assert check(first)["broken"] == []
    assert (first.get("status")["without_checksums"], has_sums(shared, key, file)) == (0, True)


def test_no_sums_are_put_into_a_share_that_the_replica_no_longer_owns(
    shared: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part leaves while its objects are read for the check."""
    part = insert_large(shared, 0)
    make_earlier(shared, part)
    first, _ = shared.nodes
    manifest = first.table().store.manifest(part)
    objects = first.table().sharing.objects  # type: ignore[union-attr]
    unsummed = objects.unsummed

    def dropped_meanwhile(checked: PartManifest) -> dict[str, Sums]:
        found = unsummed(checked)
        first.post("drop", {"all": True}, wait_s=20)
        shared.wait_empty()
        return found

    monkeypatch.setattr(objects, "unsummed", dropped_meanwhile)
    first.table().sources.salvage.put_sums(part, manifest)
    assert shared.stored() == set()
