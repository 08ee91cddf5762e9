"""Replicas of `replitree up` that ended by themselves are started again, with pauses that grow, a bounded number of times.

Guarantees: one line says what ended and what is done about it; a replica that ends `RESTARTS_MAX` times, each time within
`STEADY_S` of its start, is left alone, and the line has the command that starts it.  A replica that ended with the exit status
0 was stopped by an operator (SIGTERM), for a `replitree restore` for instance, and is left alone at once.

Time is an argument: the caller that watches the cluster gives it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from replitree.errors import ReplitreeError

RESTARTS_MAX = 5
PAUSE_S_FIRST = 1.0
PAUSE_S_MAX = 30.0
"""Pause before a start: it doubles from the first to the most, in seconds."""

STEADY_S = 60.0
"""A replica that ran for so long, in seconds, is as one that never ended."""


class Entry(Protocol):
    """A replica's process."""

    @property
    def name(self) -> str:
        """The replica's name."""

    @property
    def pid(self) -> int:
        """Its process id; 0 when it does not run."""

    @property
    def config(self) -> str:
        """Its configuration file."""


class Processes(Protocol):
    """The cluster whose replicas are watched."""

    @property
    def processes(self) -> tuple[Entry, ...]:
        """Its replicas' processes."""

    def exit_status(self, name: str) -> int | None:
        """Return the exit status of a replica's process that has ended by itself."""

    def launch(self, name: str) -> None:
        """Start a replica, and do not wait until it serves."""


@dataclass(slots=True)
class _Watched:
    started_s: float
    ended: int = 0
    start_at_s: float | None = None


class Restarts:
    """Watches the replicas of a cluster.

    Parameters
    ----------
    cluster
        Whose replicas.
    say
        Takes a line for people.
    now_s
        How late it is, in seconds.
    """

    def __init__(self, cluster: Processes, say: Callable[[str], None], now_s: float) -> None:
        self._cluster = cluster
        self._say = say
        self._watched = {entry.name: _Watched(now_s) for entry in cluster.processes}

    def look(self, now_s: float) -> None:
        """Look which replicas have ended, and start those whose pause is over."""
        for entry in self._cluster.processes:
            watched = self._watched[entry.name]
            if entry.pid:
                continue
            by_hand = f"replitree server --config {entry.config}"
            if watched.start_at_s is None and self._cluster.exit_status(entry.name) == 0:
                watched.start_at_s = math.inf
                self._say(f"{entry.name} was stopped and is left alone; to start it: {by_hand}")
            elif watched.start_at_s is None:
                watched.ended = 1 if now_s - watched.started_s >= STEADY_S else watched.ended + 1
                pause_s = min(PAUSE_S_MAX, PAUSE_S_FIRST * 2 ** (watched.ended - 1))
                watched.start_at_s = now_s + pause_s
                if watched.ended <= RESTARTS_MAX:
                    self._say(f"{entry.name} ended; it is started again in {pause_s:.0f} s")
                else:
                    told = f"{entry.name} ended {watched.ended} times in a row and is left alone"
                    self._say(f"{told}; look at its log, then: {by_hand}")
            elif now_s >= watched.start_at_s and watched.ended <= RESTARTS_MAX:
                watched.started_s, watched.start_at_s = now_s, None
                try:
                    self._cluster.launch(entry.name)
                except (ReplitreeError, OSError) as error:
                    self._say(f"{entry.name} could not be started ({error})")
