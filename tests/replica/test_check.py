"""The check of parts: what is broken on disk is found, set aside and fetched again."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from replitree.errors import CorruptPart
from replitree.protocol.core.effects import FetchPart
from replitree.storage.parts.manifest import PartManifest
from tests.replica.inprocess import InProcessCluster, Node, rows, wait_for


def rot(node: Node, part: str) -> None:
    """Change one byte of a part's data."""
    file = node.table().store.file_path(part, "data-0.parquet")
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(bytes(content))


def insert_parts(cluster: InProcessCluster, count: int) -> list[str]:
    """Insert parts that stay as they are; return their names."""
    for node in cluster.nodes:
        node.post("merges/pause")
    for number in range(count):
        assert cluster.nodes[0].insert(rows(100 * number, 100))[0] == 200
    cluster.wait_equal(list(range(100 * count)))
    return sorted(cluster.nodes[1].table().progress.visible()[1])


def check(node: Node) -> dict[str, Any]:
    answer: dict[str, Any] = node.post("check")
    return answer


def test_all_parts_are_checked_and_a_whole_table_is_whole(cluster: InProcessCluster) -> None:
    insert_parts(cluster, 3)
    assert check(cluster.nodes[1]) == {"parts": 3, "done": 3, "running": False, "broken": []}
    assert cluster.nodes[1].get("check") == {"parts": 3, "done": 3, "running": False, "broken": []}


def test_what_is_broken_gone_or_another_part_is_found_and_fetched_again(cluster: InProcessCluster) -> None:
    _, second = cluster.nodes
    first_part, second_part, third_part, _ = insert_parts(cluster, 4)
    store = second.table().store
    rot(second, first_part)
    shutil.rmtree(store.part_path(second_part))
    shutil.rmtree(store.part_path(third_part))
    shutil.copytree(cluster.nodes[0].table().store.part_path(second_part), store.part_path(third_part))
    answer = check(second)
    assert answer["parts"] == 4
    problems = {each["part"]: each["problem"] for each in answer["broken"]}
    assert sorted(problems) == [first_part, second_part, third_part]
    assert "checksum" in problems[first_part]
    assert "is registered with" in problems[third_part]
    wait_for(lambda: second.table().lacking == {}, "fetched again")
    assert check(second)["broken"] == []
    cluster.wait_equal(list(range(400)))
    assert len(store.detached()) == 2


def test_a_part_that_no_replica_sends_is_named_at_every_check(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = cluster.nodes
    (part,) = insert_parts(cluster, 1)
    with monkeypatch.context() as cut:
        cut.setattr(
            "replitree.protocol.state.fetch.refetch", lambda _, parts: _nothing(tuple(name for name, _ in parts))
        )
        rot(second, part)
        assert [each["part"] for each in check(second)["broken"]] == [part]
        assert [each["problem"] for each in check(second)["broken"]] == [
            "its files are broken or gone; it is being fetched again"
        ]
    wait_for(lambda: second.table().lacking == {}, "fetched again")


def _nothing(names: tuple[str, ...]) -> Any:
    yield from ()
    return names


def test_a_part_that_was_made_whole_since_it_was_found_broken_stays(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check and a reader find the same rot; the part is whole again before the check sets it aside."""
    table = cluster.nodes[1].table()
    (part,) = insert_parts(cluster, 1)
    verify, was_asked, was_whole = table.store.verify, threading.Event(), list[bool]()

    def verified_slowly(name: str) -> PartManifest:
        try:
            return verify(name)
        except CorruptPart:
            if not was_asked.is_set():
                was_asked.set()
                was_whole.append(table.suspect(name))
                wait_for(lambda: table.lacking == {}, "fetched again")
            raise

    monkeypatch.setattr(table.store, "verify", verified_slowly)
    rot(cluster.nodes[1], part)
    assert check(cluster.nodes[1])["broken"] == []
    assert was_whole == [False], "the reader found it broken"
    assert table.store.detached() == (f"broken_{part}_0",), "set aside once"
    assert part in table.progress.visible()[1]


def test_one_round_of_mending_ends_before_the_next_one_begins(
    cluster: InProcessCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would receive the part in one folder, and the second one removes what the first one has there."""
    table = cluster.nodes[1].table()
    (part,) = insert_parts(cluster, 1)
    fetch, at_once, most = table.exchange.fetch, list[str](), list[int]()

    def counted(fetches: Sequence[FetchPart]) -> Any:
        at_once.append(part)
        most.append(len(at_once))
        try:
            return fetch(fetches)
        finally:
            at_once.pop()

    monkeypatch.setattr(table.exchange, "fetch", counted)
    rot(cluster.nodes[1], part)
    assert check(cluster.nodes[1])["broken"] != []
    rounds = [threading.Thread(target=table.mending.mend) for _ in range(4)]
    for each in rounds:
        each.start()
    for each in rounds:
        each.join()
    assert table.lacking == {}
    assert set(most) == {1}


def test_rot_is_found_without_being_asked_for(tmp_path: Path) -> None:
    cluster = InProcessCluster(tmp_path, check_interval_s=0.02)
    cluster.create_table()
    _, second = cluster.nodes
    *_, last = insert_parts(cluster, 3)
    rot(second, last)
    wait_for(lambda: second.table().store.detached() == (f"broken_{last}_0",), "found")
    wait_for(lambda: second.table().lacking == {}, "fetched again")
    assert second.keys() == list(range(300))
    cluster.close()
