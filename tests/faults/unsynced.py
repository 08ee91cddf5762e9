"""A replica whose linearizable reads believe what its server of coordination has, however old: what a checker must catch.

``python -m tests.faults.unsynced ADDRESS DISK CONFIG``

It is the server as the harness runs it (`tests.faults.process`), but that it asks for the end of the log without the question
that would make the answer new.
"""

from __future__ import annotations

import sys

from replitree.protocol.effects import Applied, Commit, Effect, LogIndex, Procedure, Sync
from replitree.protocol.layout import Table
from replitree.protocol.read import end_of_log
from replitree.protocol.run import translate
from replitree.replica import end_of_log as asking
from tests.faults.process import serve

UNSYNCED = ("-m", "tests.faults.unsynced")
"""The command of such a replica."""


def _ask_without_sync(table: Table) -> Procedure[LogIndex | None]:
    """Ask as ever, and perform neither a `Sync` nor a commit."""

    def each(effect: Effect) -> Procedure[object]:
        if isinstance(effect, Commit):
            return Applied()
        return None if isinstance(effect, Sync) else (yield effect)

    return translate(end_of_log(table), each)


if __name__ == "__main__":
    vars(asking)["end_of_log"] = _ask_without_sync
    sys.exit(serve(*sys.argv[1:]))
