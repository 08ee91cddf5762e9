"""Readers of the change feed in a simulated cluster: each asks some replica for some range, and checks every row."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from replitree.errors import ReplicaUnavailable
from replitree.protocol.core.effects import LogIndex
from replitree.wire.feed_errors import OffsetExpired
from replitree_verify.feeds.asking import ask, judge, noted, rows_on, written_in
from replitree_verify.feeds.desk import Standing
from replitree_verify.feeds.rows import Emitted
from replitree_verify.simulation.cluster import Cluster
from replitree_verify.simulation.observer import Observer, Violated
from replitree_verify.simulation.options import Options
from replitree_verify.simulation.process import Process


class FeedReaders:
    """The readers of one run.

    Parameters
    ----------
    seed
        What they ask comes from it, and nothing else does.
    cluster, observer, processes
        The run.
    """

    def __init__(self, seed: int, cluster: Cluster, observer: Observer, processes: Mapping[str, Process]) -> None:
        # Draws of its own: readers change none of the other draws of a seed.
        self._random = Random(f"{seed}/feed readers")  # noqa: S311 - repeatable is what it must be
        self._cluster, self._observer, self._processes = cluster, observer, processes
        self._known: dict[str, Standing] = {}
        self._told: dict[LogIndex, Emitted] = {}

    def plan(self, options: Options) -> None:
        """Let readers ask, as often as the seed says, while faults happen."""
        for _ in range(options.feeds):
            self._cluster.after(self._random.randrange(options.duration), self.read)

    def read(self) -> None:
        """Ask a replica for the feed from some index on.

        Raises
        ------
        Violated
            A row is missing, or is there too often, or was another one for an earlier reader (F1, F2, F5).
        """
        name = self._random.choice(sorted(self._processes))
        process, memory, disk = self._processes[name], self._processes[name].memory, self._observer.disks[name]
        # A place that was read beside a pull in doubt is read again before readers get anything.
        if not process.is_active or memory.place is None or memory.torn:
            return
        log = self._observer.look({}, ()).log
        entries, pointer = written_in(log), memory.place.pointer.index
        self._known[name] = known = noted(self._known.get(name, Standing(name)), pointer, entries)
        # What is not executed yet, readers wait for.
        waiting = min((item.index for item in memory.queue), default=pointer)
        starts = [each.index for each in entries if each.index <= waiting] or [LogIndex(0)]
        try:
            fed = ask(known, memory, disk, entries, self._random.choice(starts))
        except OffsetExpired:
            self._observer.seen("feed expired")
            return
        except ReplicaUnavailable:
            self._observer.seen("feed not given now")
            return
        wrong = judge(fed, log, rows_on(disk), self._told)
        if wrong is not None:
            raise Violated(f"{wrong} (at {name})")
        for _, _, feed in fed.entries:
            for unit in feed.units:
                self._observer.seen(f"feed: {unit.type}")


__all__ = ["FeedReaders"]
