"""Earlier entries: what replicas know of entries that the log in coordination has no more, and when they were written.

Each replica knows entries back to a gap or to where it joined (`replitree.replica.kit.version_log`).  They are facts of one
log, so the next replica goes on where the one before it had to stop.

Guarantees: the index of a time is returned only when every entry after it is known, and its time, from some replica.  Entries
are returned without a gap.
"""

from __future__ import annotations

import time
from urllib.parse import quote

from replitree.client.transport.http import HttpClient
from replitree.client.transport.routing import PAUSE_S_MAX, PAUSE_S_MIN, Router
from replitree.errors import NotAuthorized, ReplicaUnavailable, ReplitreeError
from replitree.wire.reached import Reached
from replitree.wire.remembered import PAGE_MAX, Earlier, Remembered

ASK_S = 15.0
"""How long one replica may be silent, in seconds: it may have to read many files."""

PATIENCE_S = 15.0
"""For how long replicas that do not answer are asked again, in seconds."""


class EarlierEntries:
    """Asks the replicas of one table.  Any thread may use it.

    Parameters
    ----------
    table
        The table's name.
    http, router
        The connection to its replicas, and which there are.
    """

    def __init__(self, table: str, http: HttpClient, router: Router) -> None:
        self._table, self._http, self._router = table, http, router

    def written_by(self, time_ms: int, reached: Reached) -> Reached:
        """Find the last entry that was written at or before a time, going on where a search had to stop.

        Parameters
        ----------
        time_ms
            Milliseconds since 1970 by coordination's clock.
        reached
            Where the search stopped: every entry from `reached.below` on was written later.

        Raises
        ------
        ReplicaUnavailable
            No entry was found, and an active replica that may know it did not answer.
        NotAuthorized
            A replica refused the token.
        """
        deadline, pause = time.monotonic() + PATIENCE_S, PAUSE_S_MIN
        while True:
            reached, silent = self._ask_all(time_ms, reached)
            if reached.index is not None or reached.below == 0 or not silent:
                return reached
            if time.monotonic() + pause > deadline:
                name, reason = next(iter(silent.items()))
                raise ReplicaUnavailable(
                    f"what was written by then is not known: replica {name} may know it and did not answer ({reason}); "
                    "try again in a moment"
                ) from reason
            time.sleep(pause)
            pause = min(PAUSE_S_MAX, 2 * pause)
            # One that has just started again has another address.
            self._router.forget()

    def before(self, below: int, limit: int) -> list[Remembered]:
        """Return entries below an index, the newest first, without a gap, as far as the active replicas that answer know them.

        Parameters
        ----------
        below
            The index that comes after the newest of them.
        limit
            Entries at most.

        Raises
        ------
        NotAuthorized
            A replica refused the token.
        """
        found, silent = list[Remembered](), set[str]()
        if below <= 0 or limit <= 0:
            return found
        try:
            asked = rest = [each for each in self._router.replicas() if each.active]
        except ReplicaUnavailable:
            # None has joined the table.
            return found
        while rest and below > 0 and len(found) < limit:
            replica, *rest = rest
            query = f"below={below}&limit={min(limit - len(found), PAGE_MAX)}"
            try:
                answer = self._http.request(
                    replica.address, "GET", f"/v1/tables/{quote(self._table)}/earlier?{query}", timeout_s=ASK_S
                ).decode(Earlier)
            except NotAuthorized:
                raise
            except ReplitreeError:
                # It does not answer, or its version has no such request: the others say what they know.
                silent.add(replica.name)
                continue
            if answer.entries:
                found += answer.entries
                below = answer.entries[-1].index
                # It may have more, and the others may know what comes before.
                rest = [replica, *(each for each in asked if each.name not in {replica.name, *silent})]
        return found

    def _ask_all(self, time_ms: int, reached: Reached) -> tuple[Reached, dict[str, ReplitreeError]]:
        """Ask each replica, again when another has come further; also return the errors of those that did not answer."""
        replicas = self._router.replicas()
        # A replica without a session may be gone for good.
        asked = [each for each in replicas if each.active] or list(replicas)
        done, silent = set[str](), dict[str, ReplitreeError]()
        while rest := [each for each in asked if each.name not in done]:
            replica = rest[0]
            done.add(replica.name)
            query = f"time_ms={max(0, time_ms)}&below={reached.below}"
            path = f"/v1/tables/{quote(self._table)}/written-by?{query}"
            try:
                found = self._http.request(replica.address, "GET", path, timeout_s=ASK_S).decode(Reached)
            except NotAuthorized:
                raise
            except ReplitreeError as error:
                silent[replica.name] = error
                continue
            if found.index is not None:
                return found, silent
            if found.below < reached.below:
                # The others may know what comes before.
                reached, done = found, {replica.name, *silent}
        return reached, silent


__all__ = ["EarlierEntries"]
