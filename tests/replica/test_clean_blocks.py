"""Deduplication ids: they are forgotten by number and by age, by the coordination service's clock, and never too early."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.upkeep.clean_blocks import Block, Blocks, Window, clean_blocks, outside
from tests.replica.inprocess import InProcessCluster, Node, rows
from tests.replica.longlife import TABLE, clean, entries, insert, long_life

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    cluster = long_life(tmp_path, deduplication_window=8, deduplication_window_s=100.0)
    yield cluster
    cluster.close()


def block_count(node: Node) -> int:
    return len(node.coordination.perform(fx.Children(layout.blocks(TABLE))) or ())


def notes(node: Node) -> tuple[str, ...]:
    return node.coordination.perform(fx.Children(layout.drops(TABLE))) or ()


def again(node: Node, first: int) -> Any:
    return node.insert(rows(first))[1]["outcome"]


def test_only_the_newest_ids_stay(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 12)
    cluster.wait_equal(list(range(120)))
    clean(first)
    assert block_count(first) == 8
    assert [again(second, 10 * number) for number in (4, 11)] == ["duplicate", "duplicate"]
    assert again(second, 0) == "inserted"
    assert again(second, 0) == "duplicate"


def test_old_ids_go_by_the_time_of_the_newest_one(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 3)
    cluster.shared.now_ms += DAY_MS
    clean(first)
    assert block_count(first) == 3  # nothing newer says that they are old
    insert(second, 500, 1)
    clean(first)
    assert block_count(first) == 1
    assert again(first, 500) == "duplicate"
    assert again(first, 0) == "inserted"


def test_an_id_is_read_once(cluster: InProcessCluster) -> None:
    first, _ = cluster.nodes
    insert(first, 0, 5)
    clean(first)
    before = first.coordination.requests["get"]
    asked: list[str] = []
    perform = first.coordination.perform

    def watched(effect: Any) -> Any:
        if isinstance(effect, fx.GetMany):
            asked.extend(path for path in effect.paths if path.startswith(layout.blocks(TABLE) + "/"))
        return perform(effect)

    first.coordination.perform = watched
    insert(first, 500, 1)
    clean(first)
    assert before > 0
    assert len(asked) == 1


def test_an_id_that_was_forgotten_and_taken_again_is_a_new_one(cluster: InProcessCluster) -> None:
    first, _ = cluster.nodes
    insert(first, 0, 12)
    stale = {
        fx.BlockId(name): _block(0) for name in first.coordination.perform(fx.Children(layout.blocks(TABLE))) or ()
    }
    epoch = first.table().availability.active_epoch()
    assert epoch is not None
    known: Blocks = stale
    for _ in range(8):  # what it remembers of them is wrong, and is mended as it comes to it
        known = first.table().performer.run(clean_blocks(first.table().replica, epoch, Window(8), known)).blocks
    assert block_count(first) == 8
    assert [again(first, 10 * number) for number in (0, 4, 11)] == ["inserted", "duplicate", "duplicate"]


def test_of_two_cleaners_at_once_one_removes(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 12)
    slow = clean_blocks(second.table().replica, _epoch(second), Window(8), {})
    outcome: Any = None
    while not isinstance(effect := slow.send(outcome), fx.Commit):
        outcome = second.table().performer.perform(effect)
    quick = first.table().performer.run(clean_blocks(first.table().replica, _epoch(first), Window(8), {}))
    assert quick.removed == 4
    assert again(first, 0) == "inserted"  # an id that the slow one has seen as an old one
    with pytest.raises(StopIteration) as stop:
        slow.send(second.table().performer.perform(effect))
    assert stop.value.value.removed == 0
    assert again(first, 0) == "duplicate"


# --- drops ------------------------------------------------------------------------------------------------------------------


def test_dropped_rows_may_be_inserted_again_when_the_log_has_forgotten_them(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 2)
    insert(first, 100, 4)
    clean(first)
    assert entries(first)[0] > 1  # the entries of the first two inserts are gone
    first.post("drop", {"partition": "0"})
    assert again(second, 0) == "inserted"  # before the drop's entry goes …
    assert again(second, 0) == "duplicate"
    assert again(second, 10) == "duplicate"
    first.post("drop", {"partition": "10"})
    clean(first)
    assert notes(first) == ("0", "10")
    insert(first, 200, 4)
    clean(first)
    clean(first)
    assert entries(first)[0] > 8  # … and after
    assert again(second, 10) == "inserted"
    assert again(second, 10) == "duplicate"
    cluster.wait_equal([*range(20), *range(100, 140), *range(200, 240)])


def test_rows_that_were_inserted_after_a_drop_are_no_more_inserted_again(cluster: InProcessCluster) -> None:
    first, second = cluster.nodes
    insert(first, 0, 1)
    first.post("drop", {"all": True})
    insert(first, 10, 1)
    assert again(second, 0) == "inserted"
    for number in range(4):
        clean(first)
        insert(first, 100 + 10 * number, 1)
    clean(first)
    assert entries(first)[0] > 3
    assert [again(second, 0), again(second, 10)] == ["duplicate", "duplicate"]


def test_a_note_of_a_drop_goes_when_no_id_is_older(cluster: InProcessCluster) -> None:
    first, _ = cluster.nodes
    insert(first, 0, 2)
    first.post("drop", {"partition": "0"})
    clean(first)
    assert notes(first) == ("0",)  # the other insert may be older, as far as its id says
    insert(first, 100, 8)
    clean(first)
    clean(first)
    assert notes(first) == ()


def test_a_repeated_command_is_no_insert_that_was_dropped(cluster: InProcessCluster) -> None:
    first, _ = cluster.nodes
    insert(first, 0, 1)
    command = {"sql": "DELETE FROM t WHERE k = 1", "id": "once"}
    done = first.post("mutations", command)
    first.post("drop", {"all": True})
    insert(first, 100, 5)
    clean(first)
    assert entries(first)[0] > done["index"]
    tail = entries(first)[-1]
    status, answer = first.request("POST", "/v1/tables/t/mutations", json.dumps(command).encode())
    assert entries(first)[-1] == tail
    assert status >= 400
    assert "once" in answer["message"]


# --- the window as a function -----------------------------------------------------------------------------------------------


def _block(changed_ms: int) -> Block:
    return Block(changed_ms, fx.StagingId(""), fx.LogIndex(0))


def _epoch(node: Node) -> fx.Epoch:
    epoch = node.table().availability.active_epoch()
    assert epoch is not None
    return epoch


@pytest.mark.parametrize(
    ("window", "gone"),
    [
        (Window(10, 1000), ""),
        (Window(2, 1000), "ab"),
        (Window(10, 15), "ab"),
        (Window(10, 20), "a"),
        (Window(3, 15), "ab"),
        (Window(1, 0), "abc"),
    ],
)
def test_the_window_is_by_number_and_by_age(window: Window, gone: str) -> None:
    blocks: Blocks = {fx.BlockId(name): _block(10 * number) for number, name in enumerate("abcd")}
    assert "".join(outside(blocks, window)) == gone


def test_nothing_is_outside_of_an_empty_window() -> None:
    assert outside({}, Window()) == ()
