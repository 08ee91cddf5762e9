"""Which of the log's next entries this replica has appended itself, while a client waits for an entry after them.

Of an insert with a quorum the writer waits for the end, not for its own entry; and the replica that settles one knows what it
has written.  So the puller need not pull such an entry at once: it watches the entry behind it, and pulls both together.
"""

from __future__ import annotations

import threading
from typing import Any

from replitree.protocol.core import layout
from replitree.protocol.core.effects import Applied, Effect, LogIndex
from replitree.protocol.core.layout import TablePlace
from replitree.replica.perform.append_doubt import Perform, appends

COMMIT_S_MAX = 0.01
"""How long the puller waits for a commit of ours whose entry it has perhaps seen already, in seconds."""


class Appends:
    """The entries of one table replica.  Any thread may use it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._committing = 0
        self._indexes: set[LogIndex] = set()

    def noting(self, table: TablePlace, perform: Perform) -> Perform:
        """Return what performs effects as `perform` does, and takes note of the entries that they append."""

        def perform_and_note(effect: Effect) -> Any:
            if not appends(effect):
                return perform(effect)
            found: tuple[str, ...] = ()
            with self._changed:
                self._committing += 1
            try:
                outcome = perform(effect)
                found = outcome.created if isinstance(outcome, Applied) else ()
            finally:
                with self._changed:
                    self._committing -= 1
                    in_log = (path for path in found if path.startswith(layout.log(table)))
                    self._indexes.update(layout.index_of(table, path) for path in in_log)
                    self._changed.notify_all()
            return outcome

        return perform_and_note

    def from_on(self, pointer: LogIndex) -> tuple[int, bool]:
        """Look at the entries from a pointer on, once no commit is on its way.

        Returns
        -------
        How many of the next ones are ours without a gap, and whether any is at all.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._committing, COMMIT_S_MAX)
            self._indexes = {index for index in self._indexes if index >= pointer}
            count = 0
            while pointer + count in self._indexes:
                count += 1
            return count, bool(self._indexes)
