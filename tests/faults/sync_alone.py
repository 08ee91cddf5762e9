"""A replica whose linearizable reads trust a `Sync`, which a deposed leader of coordination answers by itself.

``python -m tests.faults.sync_alone ADDRESS DISK CONFIG``

It is the server as the harness runs it (`tests.faults.process`), but that it syncs where it should commit a check.
"""

from __future__ import annotations

import sys

from replitree.protocol.effects import Applied, Commit, Effect, LogIndex, Procedure, Sync
from replitree.protocol.layout import Table, log
from replitree.protocol.read import end_of_log
from replitree.protocol.run import translate
from replitree.replica import end_of_log as asking
from tests.faults.process import serve

SYNC_ALONE = ("-m", "tests.faults.sync_alone")
"""The command of such a replica."""


def _ask_by_sync(table: Table) -> Procedure[LogIndex | None]:
    """Ask as ever, with a `Sync` in place of the commit."""

    def each(effect: Effect) -> Procedure[object]:
        if not isinstance(effect, Commit):
            return (yield effect)
        yield Sync(log(table))
        return Applied()

    return translate(end_of_log(table), each)


if __name__ == "__main__":
    vars(asking)["end_of_log"] = _ask_by_sync
    sys.exit(serve(*sys.argv[1:]))
