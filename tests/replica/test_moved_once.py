"""Rows that move into the store: when they lie there once, when several times, and what becomes of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from replitree.errors import StoreError
from replitree.storage.disk.moving import MovedParts
from replitree.storage.parts.manifest import PartManifest
from replitree.storage.rewrite import merge
from replitree.storage.schema.definition import TableDefinition
from replitree.storage.shares.shares import ShareObjects
from tests.replica.inprocess import Node, rows, wait_for
from tests.replica.test_moving import MovingCluster, hurry
from tests.shared.stores import FOLDER, on

NOT_KNOWN = "it is not known whether the store has it"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def moving(tmp_path: Path, store_url: str) -> Iterator[MovingCluster]:
    cluster = MovingCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


def reasons(node: Node, part: str) -> list[str]:
    """Return why a part waits that is to be moved."""
    return [row["reason"] for row in node.get("status")["moving"]["waiting"] if row["part"] == part]


def let_first_move(moving: MovingCluster, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first replica move a part into the store; the others can't put it meanwhile."""
    first = moving.nodes[0].table().store.moved
    put_part = MovedParts.put

    def put(moved: MovedParts, *arguments: Any) -> PartManifest:
        if moved is not first:
            raise StoreError("the bucket is full")
        return put_part(moved, *arguments)

    with monkeypatch.context() as full:
        full.setattr(MovedParts, "put", put)
        moving.nodes[0].post("storage", {"storage": moving.url})
        wait_for(lambda: moving.places(moving.nodes[0])[part], "the first replica has moved it", 60.0)


def silent_store(moving: MovingCluster, silenced: pytest.MonkeyPatch) -> None:
    """Let the store not say to the last replica what it has."""
    is_here, last = ShareObjects.is_here, moving.nodes[2].table().store

    def no_answer(objects: ShareObjects, manifest: PartManifest) -> bool:
        if objects is last.shared.objects:
            raise StoreError("the store gave no answer")
        return is_here(objects, manifest)

    silenced.setattr(ShareObjects, "is_here", no_answer)


def silent_replicas(moving: MovingCluster, silenced: pytest.MonkeyPatch) -> None:
    """Let no replica answer the last one."""

    def no_answer(*_: object) -> None:
        raise TimeoutError("timed out")

    silenced.setattr(moving.nodes[2].table().exchange, "_request", no_answer)


@on(FOLDER)
@pytest.mark.parametrize("silence", [silent_store, silent_replicas], ids=lambda silence: silence.__name__)
def test_a_part_is_not_put_again_while_nothing_says_whether_it_is_there(
    moving: MovingCluster, monkeypatch: pytest.MonkeyPatch, silence: Any
) -> None:
    assert moving.nodes[0].insert(rows(0))[0] == 200
    (part,) = moving.wait_alike()
    last = moving.nodes[2]
    with monkeypatch.context() as silenced:
        silence(moving, silenced)
        let_first_move(moving, part, monkeypatch)
        wait_for(lambda: any(NOT_KNOWN in each for each in reasons(last, part)), "the last one says why it waits", 60.0)
        assert moving.places(last) == {part: None}
    moving.wait_in_store()
    assert len(moving.stored()) == 1


@on(FOLDER)
def test_a_part_is_put_again_when_there_is_no_answer_for_too_long(
    tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = MovingCluster(tmp_path, store_url, fetch_wait_s=0.2)
    try:
        assert moving.nodes[0].insert(rows(0))[0] == 200
        (part,) = moving.wait_alike()
        with monkeypatch.context() as silenced:
            silent_store(moving, silenced)
            let_first_move(moving, part, monkeypatch)
            moving.wait_stored()
        assert len(moving.stored()) == 2
        moving.wait_equal(list(range(10)))
        moving.nodes[1].post("drop", {"all": True})
        wait_for(lambda: not moving.stored() and not moving.owners(), "nothing is left", 60.0)
    finally:
        moving.close()


@on(FOLDER)
def test_a_result_that_replicas_began_to_make_for_themselves_goes_into_the_store_once(
    moving: MovingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New parts belong on disks when all replicas begin to merge, and in the store when they have merged."""
    first, merge_parts = moving.nodes[0], merge.merge_parts
    first.post("storage", {"storage": f"tiered({moving.url}, older=1h)"})
    wait_for(lambda: all(node.table().sharing is not None for node in moving.nodes), "all have a store")
    for number in range(2):
        assert first.insert(rows(10 * number))[0] == 200
    moving.wait_alike()
    switched, merging = threading.Event(), list[Path]()

    def late(sources: Any, definition: TableDefinition, folder: Path, **options: Any) -> PartManifest:
        merging.append(folder)
        assert switched.wait(60)
        return merge_parts(sources, definition, folder, **options)

    monkeypatch.setattr(merge, "merge_parts", late)
    first.post("optimize", {"final": True}, wait_s=0)
    wait_for(lambda: len(set(merging)) == len(moving.nodes), "all replicas merge")
    first.post("storage", {"storage": moving.url}, wait_s=0)
    wait_for(
        lambda: all(node.table().followed_storage.maker_for_all() is not None for node in moving.nodes),
        "all have heard of it",
    )
    switched.set()
    wait_for(lambda: {len(moving.places(node)) for node in moving.nodes} == {1}, "all have merged")
    moving.wait_in_store()
    moving.wait_equal(list(range(20)))


@on(FOLDER)
def test_replicas_with_different_files_of_the_same_rows_have_a_share_each_and_leave_nothing(
    moving: MovingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers may have begun with the files of each, so none of them can take the place of the other."""
    first, second, third = moving.nodes
    for number in range(2):
        assert first.insert(rows(10 * number))[0] == 200
    moving.wait_alike()
    merge_parts = merge.merge_parts

    def differing(sources: Any, definition: TableDefinition, folder: Path, **options: Any) -> PartManifest:
        is_second = folder.is_relative_to(second.table().store.root)
        other = replace(definition, storage=moving.url) if is_second else definition  # with checksums of pages
        return merge_parts(sources, other, folder, **options)

    monkeypatch.setattr(merge, "merge_parts", differing)
    first.post("optimize", {"final": True}, wait_s=20)
    wait_for(lambda: len(moving.wait_alike()) == 1, "there is one part")
    (part,) = moving.wait_alike()
    assert first.table().store.manifest(part) == third.table().store.manifest(part)
    assert first.table().store.manifest(part) != second.table().store.manifest(part)
    first.post("storage", {"storage": moving.url})
    moving.wait_stored()
    places = {node.name: moving.places(node)[part] for node in moving.nodes}
    assert places["r1"] == places["r3"] != places["r2"]
    moving.wait_equal(list(range(20)))
    second.post("drop", {"all": True})
    wait_for(lambda: not moving.stored() and not moving.owners(), "nothing is left", 60.0)
