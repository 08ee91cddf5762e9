"""A replica whose linearizable reads believe what its server of coordination has, however old: what a checker must catch.

``python -m tests.faults.unsynced ADDRESS DISK CONFIG``

It is the server as the harness runs it (`tests.faults.process`), but that it asks for the end of the log without the question
that would make the answer new.
"""

from __future__ import annotations

import sys

from replitree.protocol.core import effects as fx
from replitree.protocol.core.layout import TablePlace
from replitree.protocol.core.run import translate
from replitree.protocol.state.read import end_of_log
from replitree.replica.perform import end_of_log as asking
from tests.faults.process import serve

UNSYNCED = ("-m", "tests.faults.unsynced")
"""The command of such a replica."""


def _ask_without_sync(table: TablePlace) -> fx.Procedure[fx.LogIndex | None]:
    """Ask as ever, and perform neither a `Sync` nor a commit."""

    def each(effect: fx.Effect) -> fx.Procedure[object]:
        if isinstance(effect, fx.Commit):
            return fx.Applied()
        return None if isinstance(effect, fx.Sync) else (yield effect)

    return translate(end_of_log(table), each)


if __name__ == "__main__":
    vars(asking)["end_of_log"] = _ask_without_sync
    sys.exit(serve(*sys.argv[1:]))
