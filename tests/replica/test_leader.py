"""How often the leader looks for merges."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from replitree.protocol.layout import Replica, Table
from replitree.replica.leader import IDLE_S_MAX, IDLE_S_MIN, Leader


def leader_of(progress: Any, choices: list[Any]) -> tuple[Leader, list[object]]:
    """A leader that is not started, and what it asked the selector about."""
    asked: list[object] = []

    def choose() -> list[Any]:
        asked.append(progress.place)
        return choices

    host: Any = SimpleNamespace(
        replica=Replica(Table("/t"), "r1"), progress=progress, merges=SimpleNamespace(choose=choose)
    )
    return Leader(host, threading.Event().is_set), asked


def pauses(leader: Leader, times: int) -> list[float]:
    found = []
    for _ in range(times):
        leader._choose()
        found.append(leader._idle_s)
    return found


def test_it_looks_less_and_less_often_while_nothing_changes() -> None:
    leader, asked = leader_of(SimpleNamespace(place=1, held=()), [])
    assert pauses(leader, 5) == [IDLE_S_MIN, 2 * IDLE_S_MIN, IDLE_S_MAX, IDLE_S_MAX, IDLE_S_MAX]
    assert asked == [1]


def test_it_looks_soon_again_while_parts_come_in() -> None:
    """A selector that has just found nothing finds something a moment later, at a hundred inserts a second."""
    progress = SimpleNamespace(place=1, held=())
    leader, asked = leader_of(progress, [])
    for place in range(1, 6):
        progress.place = place
        assert pauses(leader, 1) == [IDLE_S_MIN]
    assert asked == [1, 2, 3, 4, 5]


def test_it_asks_again_at_once_as_long_as_there_is_something_to_merge() -> None:
    leader, asked = leader_of(SimpleNamespace(place=1, held=()), ["a merge"])
    assert pauses(leader, 3) == [IDLE_S_MIN] * 3
    assert asked == [1, 1, 1]
