"""An insert that a drop overtakes: it was inserted, its client hears so, the replica stays active, and no file is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from replitree.protocol.core import effects as fx
from replitree.replica.parts.making import Maker
from replitree.replica.perform.availability import State
from replitree.replica.perform.store_performer import StorePerformer
from tests.replica.inprocess import InProcessCluster, Node, rows, wait_for

PATIENCE_S = 60.0


class Overtaking:
    """Lets executors go on only when a drop has been pulled, too, and calls `around` with the publishing of an insert."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, around: Callable[[Overtaking, Callable[[], Any]], Any]) -> None:
        self.may_execute = threading.Event()
        view, perform = Maker.view, StorePerformer.perform

        def viewed_later(maker: Maker, batch: Any) -> Any:
            assert self.may_execute.wait(PATIENCE_S)
            return view(maker, batch)

        def watched(performer: StorePerformer, effect: Any) -> Any:
            if isinstance(effect, fx.Publish) and not effect.synced:
                return around(self, lambda: perform(performer, effect))
            return perform(performer, effect)

        monkeypatch.setattr(Maker, "view", viewed_later)
        monkeypatch.setattr(StorePerformer, "perform", watched)

    def drop_all(self, node: Node) -> None:
        """Drop everything, and let the replica execute its queue to the end."""
        progress = node.table().progress
        node.post("drop", {"all": True}, wait_s=0)
        wait_for(lambda: progress.pointer == 2, "insert and drop are pulled")
        self.may_execute.set()
        wait_for(lambda: progress.queue_length() == 0, "insert and drop are executed")


def left_on_disk(node: Node) -> list[str]:
    """The names of what is staged, and of published parts that are not marked for removal."""
    table = node.table()
    parts = [part for part in table.store.parts() if not table.old_parts.is_old(part)]
    return [*table.store.stagings(), *parts]


@pytest.fixture
def node(cluster: InProcessCluster) -> Node:
    """The replica that inserts; the other one is stopped."""
    first, second = cluster.nodes
    second.stop()
    return first


def test_insert_that_is_dropped_before_it_is_published_is_answered(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def drop_first(overtaking: Overtaking, publish: Callable[[], Any]) -> Any:
        overtaking.drop_all(node)
        # The executor removes the files after the entries have left the queue.
        wait_for(lambda: left_on_disk(node) == [], "what was staged is removed")
        return publish()

    Overtaking(monkeypatch, drop_first)
    states: list[Any] = []
    availability = node.table().availability
    monkeypatch.setattr(availability, "trouble", lambda *why: states.append(why))
    status, answer = node.insert(rows(0), "a")
    assert (status, answer["outcome"], answer["index"]) == (200, "inserted", 0)
    assert (availability.state, states) == (State.ACTIVE, [])


def test_insert_that_is_dropped_after_it_was_published_leaves_no_file(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    overtaking = Overtaking(monkeypatch, lambda _, publish: publish())
    status, answer = node.insert(rows(0), "a")
    assert (status, answer["outcome"]) == (200, "inserted")
    assert left_on_disk(node) == ["all_0_0_0"]
    overtaking.drop_all(node)
    wait_for(lambda: left_on_disk(node) == [], "the part that the table does not have is removed")
