"""The replicas that can take part in a quorum: asked of coordination once, and again when something of it has changed.

What was heard holds until a watch says otherwise or the connection is lost, which voids the watches.  So an insert with a
quorum asks nothing, and goes by what a read of coordination would have told it a moment ago.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from replitree.protocol.insert.quorum import Replicas


class LiveReplicas:
    """The replicas of one table.  Any thread may ask.

    Parameters
    ----------
    count
        Asks coordination, and has it watched.
    """

    def __init__(self, count: Callable[[], Replicas]) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._known: Replicas | None = None
        self._changes = 0

    @property
    def known(self) -> Replicas | None:
        """What was heard last, if it still holds."""
        return self._known

    def ask(self) -> Replicas:
        """Ask coordination.

        Raises
        ------
        CoordinationUnavailable
            It does not answer.
        """
        before = self._changes
        found = self._count()
        with self._lock:
            # Otherwise a watch fired during the count, so the count may be out of date already.
            if self._changes == before:
                self._known = found
        return found

    def forget(self) -> None:
        """Take note that what was heard holds no longer."""
        with self._lock:
            self._changes += 1
            self._known = None
