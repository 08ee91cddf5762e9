"""What a start finds on the disk of a replica on an object store, when the others went on without it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.storage.disk.shared import write_manifest
from replitree.storage.parts.manifest import read_manifest
from tests.replica.inprocess import rows, wait_for
from tests.replica.test_sharing import SharedCluster

GONE = "9" * 32


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


def test_a_part_that_was_not_registered_and_whose_objects_are_gone_does_not_keep_a_replica_from_starting(
    shared: SharedCluster,
) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    wait_for(lambda: second.contents() == first.contents() != {}, "the other one has it")
    (part,) = second.contents()
    folder = second.table().store.part_path(part)
    second.stop()
    left = folder.with_name("gone_0_0_0")  # as a process leaves it that ends between publication and registration
    shutil.copytree(folder, left)
    write_manifest(left, read_manifest(left).shared_as(GONE))
    second.restart()
    wait_for(lambda: shared.is_active(second), "it is active")
    assert not left.exists()
    assert second.table().store.detached() == ()
    shared.wait_equal(list(range(10)))
    shared.wait_settled()


def test_a_part_that_the_table_no_longer_has_keeps_its_rows_aside(shared: SharedCluster) -> None:
    first, second = shared.nodes
    assert first.insert(rows(0))[0] == 200
    wait_for(lambda: second.contents() == first.contents() != {}, "the other one has it")
    (part,) = second.contents()
    folder = second.table().store.part_path(part)
    second.stop()
    shutil.copytree(folder, folder.with_name("gone_0_0_0"))
    second.restart()
    wait_for(lambda: shared.is_active(second), "it is active")
    wait_for(lambda: second.table().store.detached() == ("removed_gone_0_0_0_0",), "its rows are kept aside")
    shared.wait_equal(list(range(10)))
    shared.wait_settled()
