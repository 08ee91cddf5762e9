"""Writes the table's log down as it grows, so that its fold can be told even when replicas have cleaned it.

It reads straight from the ensemble, through no link that can be cut, and should never lag so far that it misses an entry that
is cleaned: if it does, it says so and the fold is not compared.
"""

from __future__ import annotations

import threading

from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import CoordinationUnavailable
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Children, Get, GetMany, LogIndex, Sync
from replitree.protocol.core.entries import Entry, decode_entry
from replitree.protocol.core.log import log_start, next_index
from replitree.protocol.sharded.places import hosted_path

LOOK_S = 0.1
SESSION_S, OPERATION_S = 2.0, 2.0
"""A server of the ensemble that stands still is left soon."""

ENTRIES_MAX = 500


class Scribe:
    """Keeps every entry of a table's log.

    Parameters
    ----------
    url
        The ensemble's.
    table
        The table's name, or that of a shard.
    """

    def __init__(self, url: str, table: str) -> None:
        self._coordination = ZooKeeperCoordination(
            url, session_timeout_s=SESSION_S, operation_timeout_s=OPERATION_S, connect_timeout_s=OPERATION_S
        )
        self._table = layout.TablePlace(hosted_path(self._coordination.url.root, table))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scribe", daemon=True)
        self.log: list[tuple[LogIndex, Entry]] = []
        self.next = LogIndex(0)
        self.missed: LogIndex | None = None
        """First entry that was gone before it could be read."""
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._coordination.close()

    def catch_up(self) -> None:
        """Read up to the log's tail."""
        self._coordination.perform(Sync(layout.log(self._table)))
        while self.missed is None and self._read():
            pass

    def kept(self) -> int:
        """How many entries the log has now."""
        return len(self._coordination.perform(Children(layout.log(self._table))) or ())

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self.catch_up()
            except CoordinationUnavailable:
                self._renew()
            except BaseException as error:  # noqa: BLE001 - reported at the end of the run
                self.failure = error
                return

    def _renew(self) -> None:
        try:
            self._coordination.reconnect()
        except CoordinationUnavailable:
            return

    def _read(self) -> int:
        """Read the next entries; return how many there were."""
        begun, index = len(self.log), self.next
        paths = tuple(layout.log_entry(self._table, index + n) for n in range(ENTRIES_MAX))
        for path, node in zip(paths, self._coordination.perform(GetMany(paths)).nodes, strict=True):
            if node is None or self.next != index + len(self.log) - begun:
                break
            entry = decode_entry(node.value, path)
            self.log.append((self.next, entry))
            self.next = next_index(self.next, entry)
        if len(self.log) == begun:
            node = self._coordination.perform(Get(layout.log(self._table)))
            if node is not None and log_start(self._table, node).first > self.next:
                self.missed = self.next
        return len(self.log) - begun
