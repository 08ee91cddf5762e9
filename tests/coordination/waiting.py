"""Waiting for a condition with a deadline, and recording events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from replitree.coordination.port import Event, Watched
from replitree.coordination.url import CoordinationUrl
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Get
from replitree.protocol.core.layout import TablePlace

PATIENCE_S = 60.0
"""Far more than anything takes on an idle machine: a test that waits this long has failed."""


def eventually(condition: Callable[[], object], what: str = "the condition", patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true within {patience_s:g} s"
        pause.wait(0.01)


def patient_session(url: str | CoordinationUrl) -> ZooKeeperCoordination:
    """Begin a session for looking, which outlives whatever keeps a busy machine from answering."""
    return ZooKeeperCoordination(url, session_timeout_s=PATIENCE_S, operation_timeout_s=PATIENCE_S)


def place_of(session: ZooKeeperCoordination, table: str) -> TablePlace:
    """Look where the nodes of a table, and those of its replicas, are."""
    path = layout.table_path(session.url.root, table)
    return layout.table_at(path, session.perform(Get(path)))


class Recorder:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.threads: set[str] = set()
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.events.append(event)
            self.threads.add(threading.current_thread().name)
            self._changed.notify_all()

    def wait_for(self, *expected: Event) -> None:
        """Wait until the events heard so far are exactly these, in this order."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.events) >= len(expected), PATIENCE_S)
            assert self.events == list(expected), f"heard {self.events}"

    def wait_watched(self, expected: list[str]) -> None:
        """Wait until the paths of the watches that fired are exactly these, in any order."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.watched()) >= len(expected), PATIENCE_S)
            assert sorted(self.watched()) == sorted(expected)

    def wait_until(self, condition: Callable[[list[str]], bool]) -> None:
        """Wait until the paths of the watches that fired fulfil a condition."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.watched()), PATIENCE_S), self.events

    def watched(self) -> list[str]:
        return [event.path for event in self.events if isinstance(event, Watched)]
