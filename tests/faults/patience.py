"""Patience that does not depend on how busy the machine is: a run is stuck when its servers work and nothing comes of it.

A limit in seconds says little on a machine that other runs share: there an answer may take minutes, and a stuck server looks
just like a starved one.  `Patience` looks at what the servers get done: the positions of all replicas, the parts that have left
their tables, moves, and the answers that clients heard.  While any of that changes, it goes on waiting.  It is lost when
nothing has changed for `STILL_S` seconds and the servers have had `WORKED_S` seconds of CPU time meanwhile: a server that is
stuck gets that by its threads that look around, one that is starved does not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

from replitree.client.cluster import LocalCluster
from replitree.errors import ReplicaUnavailable, ReplitreeError
from tests.waiting import wait_for

STILL_S = 180.0
"""How long nothing may change, in seconds."""

WORKED_S = 20.0
"""The CPU time that the servers together must have had since then, in seconds."""

EVERY_S = 1.0
"""How long a look at the servers is good for, in seconds: a look costs them time, too."""

FOREVER_S = 24 * 3600.0


class Patience:
    """Tells whether a cluster gets something done.

    Parameters
    ----------
    cluster
        The cluster.
    answers
        Something that changes with each answer that a client hears.
    still_s, worked_s
        See `STILL_S` and `WORKED_S`.
    """

    def __init__(
        self,
        cluster: LocalCluster,
        answers: Callable[[], object],
        *,
        still_s: float = STILL_S,
        worked_s: float = WORKED_S,
    ) -> None:
        self._cluster, self._answers = cluster, answers
        self._still_s, self._worked_s = still_s, worked_s
        self._state: object = None
        self._since, self._worked = time.monotonic(), 0.0
        self._looked = float("-inf")

    def renew(self) -> None:
        """Begin to count anew: something else is waited for from now on, or servers were killed."""
        self._state, self._looked = None, float("-inf")

    def is_lost(self) -> bool:
        """Tell whether the servers have worked and nothing has come of it."""
        now = time.monotonic()
        if now < self._looked + EVERY_S:
            return False
        self._looked = now
        state, worked = self._now(), sum(cpu_s(each.pid) for each in self._cluster.processes)
        # A server that was started again has had less time than the one before it: that is counted from its own beginning.
        if state != self._state or worked < self._worked:
            self._state, self._since, self._worked = state, now, worked
        return now - self._since >= self._still_s and worked - self._worked >= self._worked_s

    def wait(self, look: Callable[[], bool], what: str) -> None:
        """Wait until something is so.

        Parameters
        ----------
        look
            Tells whether it is.
        what
            What is waited for.

        Raises
        ------
        AssertionError
            Patience is lost; the message has what each replica says of itself.
        """
        self.renew()

        def there_or_lost() -> bool:
            assert not self.is_lost(), f"stuck: {what}\n{self.story()}"
            return look()

        wait_for(there_or_lost, what, FOREVER_S)

    def start(self, name: str) -> None:
        """Start a server; one that is not ready in the time of `LocalCluster.start` is waited for here.

        Raises
        ------
        ReplicaUnavailable
            It has ended.
        AssertionError
            Patience is lost.
        """
        try:
            self._cluster.start(name)
        except ReplicaUnavailable:
            if self._cluster.exit_status(name) is not None:
                raise

        def serves() -> bool:
            # The session of this connection may have ended meanwhile, too.
            with suppress(ReplitreeError):
                return any(each.name == name and each.reachable for each in self._cluster.servers())
            return False

        self.wait(serves, f"{name} serves")

    def story(self) -> str:
        """Return what each replica says of itself."""
        try:
            return "\n".join(
                f"{table.name}: {each}" for table in self._cluster.status().tables for each in table.replicas
            )
        except ReplitreeError as error:
            return f"no status: {error}"

    def _now(self) -> object:
        try:
            status = self._cluster.status()
        except ReplitreeError:
            # That nothing can be told is no progress.
            return self._state
        # A mutation has thousands of parts to go through: each that it has replaced is one more that has left.
        work = attrgetter("name", "state", "log_pointer", "queue", "index", "old_parts")
        done = [(table.name, table.log_tail, work(each)) for table in status.tables for each in table.replicas]
        moved = [(each.name, each.buckets, each.batches, each.rows, len(each.moves)) for each in status.moving]
        return self._answers(), done, moved


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, in seconds; that which has passed by the clock where there is no /proc."""
    stat = Path(f"/proc/{pid}/stat")
    if not Path("/proc/self/stat").exists():
        return time.monotonic()
    try:
        # The name stands in parentheses and may have spaces; utime and stime are the 12th and 13th field behind it.
        fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
