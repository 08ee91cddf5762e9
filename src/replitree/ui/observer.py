"""How the cluster is, asked once for all viewers, and only while a browser shows it.

Guarantees:

* Without a viewer, the observer asks nothing.
* The status is asked at most every `LOOK_S`, and the rest between two looks is at least `REST` times as long as the last look
  took, so a slow cluster is asked less: a replica is busy for a part of a look only.  The doctor looks every `DOCTOR_S`, and
  rests `DOCTOR_REST` times as long as it looked.  A rest ends after `REST_S_MAX` or `DOCTOR_REST_S_MAX`: one look that
  took long, such as the first one of a table with many parts, does not leave the page without news.
* A look that fails is told as a sentence; the last state that was seen stays, with its time.
* `HISTORY_MAX` looks are remembered, so a browser that joins has the curves of the last minutes.

Absent on purpose: a copy of anything on disk.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from replitree.client.admin.doctor import examine
from replitree.errors import ReplitreeError
from replitree.ui.table_view import TableView

if TYPE_CHECKING:
    from replitree.client.admin.status import ClusterStatus
    from replitree.client.connection import Connection

LOOK_S = 2.0
DOCTOR_S = 15.0
REST, DOCTOR_REST = 100.0, 200.0
REST_S_MAX, DOCTOR_REST_S_MAX = 60.0, 300.0
"""How long a rest is at most, in seconds."""

HISTORY_MAX = 900
VIEWS_MAX = 200
"""Logs that are remembered at once; the one that was asked for first is forgotten first."""


class Observer:
    """What viewers see of a cluster.  Any thread may use it.

    Parameters
    ----------
    connection
        The cluster.
    publish
        Called from the observer's thread with each new overview.
    """

    def __init__(self, connection: Connection, publish: Callable[[dict[str, Any]], None]) -> None:
        self._connection = connection
        self._publish = publish
        self._lock = threading.Lock()
        self._views: dict[str, TableView] = {}
        self._viewers = 0
        self._wanted = threading.Event()
        self._stop = threading.Event()
        self._looks: deque[dict[str, Any]] = deque(maxlen=HISTORY_MAX)
        nothing = dict.fromkeys(("tables", "servers", "unreadable", "moving"), ())
        self._latest: dict[str, Any] = {"url": connection.url, **nothing, "at": None, "problem": "", "findings": None}
        self._coordination: Any = None
        self._thread = threading.Thread(target=self._run, name="replitree-observer", daemon=True)
        self._thread.start()

    @property
    def latest(self) -> dict[str, Any]:
        """The last overview."""
        return self._latest

    def looks(self) -> list[dict[str, Any]]:
        """Return the positions and states that were seen, oldest first."""
        with self._lock:
            return list(self._looks)

    def join(self) -> None:
        """Count one more viewer."""
        with self._lock:
            self._viewers += 1
            self._wanted.set()

    def leave(self) -> None:
        """Count one viewer less; without any, nothing is asked."""
        with self._lock:
            self._viewers -= 1
            if not self._viewers:
                self._wanted.clear()

    def view(self, name: str) -> TableView:
        """Return what the page knows of one log.

        Raises
        ------
        InvalidName, TableNotFound
            There is no such log.
        """
        with self._lock:
            known = self._views.get(name)
        if known is not None:
            return known
        # Only names that exist take memory.
        self._connection.hosted(name)
        with self._lock:
            while len(self._views) >= VIEWS_MAX:
                del self._views[next(iter(self._views))]
            return self._views.setdefault(name, TableView(self._connection, name))

    def forget(self, name: str) -> None:
        """Forget a log that could not be read: it may have been dropped, and made anew under its name."""
        with self._lock:
            self._views.pop(name, None)

    def close(self) -> None:
        """End the thread; a look that is under way is finished."""
        self._stop.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        findings: Any = None
        next_doctor = 0.0
        while True:
            self._wanted.wait()
            if self._stop.is_set():
                return
            began = time.monotonic()
            try:
                status = self._connection.status()
                self._see(status, findings)
                if time.monotonic() >= next_doctor:
                    # The doctor looks at more: until it has, the first viewer sees the rest.
                    self._publish(self._latest)
                    asked = time.monotonic()
                    state = self._connection.look_over()
                    findings = msgspec.to_builtins(examine(state))
                    self._coordination = msgspec.to_builtins(state.coordination)
                    ended = time.monotonic()
                    next_doctor = ended + min(DOCTOR_REST_S_MAX, max(DOCTOR_S, DOCTOR_REST * (ended - asked)))
                    began += ended - asked
                    self._latest = {**self._latest, "findings": findings, "coordination": self._coordination}
            except ReplitreeError as error:
                self._latest = {**self._latest, "problem": f"{type(error).__name__}: {error}"}
                next_doctor = 0.0
            self._publish(self._latest)
            self._stop.wait(min(REST_S_MAX, max(LOOK_S, REST * (time.monotonic() - began))))

    def _see(self, status: ClusterStatus, findings: Any) -> None:
        now = time.time()
        seen = msgspec.to_builtins(status)
        servers = [
            {key: each[key] for key in ("name", "address", "active", "reachable")} | _told(each["answer"] or {})
            for each in seen.pop("servers")
        ]
        self._latest = {**seen, "servers": servers, "at": now, "problem": "", "findings": findings}
        self._latest["coordination"] = self._coordination
        positions = {
            table.name: {
                "tail": table.log_tail,
                "rows": table.rows,
                "parts": table.parts,
                "replicas": {
                    each.name: [each.state if each.mark == "good" else each.mark, each.lag, each.queue]
                    for each in table.replicas
                },
            }
            for table in status.tables
        }
        with self._lock:
            self._looks.append({"at": now, "tables": positions})


def _told(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of what a server says about itself."""
    return {key: answer.get(key) for key in ("version", "disk_free_bytes", "disk_bytes", "disk_reserve_bytes")}
