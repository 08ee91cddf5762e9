"""A replica whose linearizable reads trust a `Sync`, which a deposed leader of coordination answers by itself.

``python -m tests.faults.sync_alone ADDRESS DISK CONFIG``

It is the server as the harness runs it (`tests.faults.process`), but that it syncs where it should commit a check.
"""

from __future__ import annotations

import sys

from replitree.protocol.core import effects as fx
from replitree.protocol.core.layout import TablePlace, log
from replitree.protocol.core.run import translate
from replitree.protocol.state.read import end_of_log
from replitree.replica.perform import end_of_log as asking
from tests.faults.process import serve

SYNC_ALONE = ("-m", "tests.faults.sync_alone")
"""The command of such a replica."""


def _ask_by_sync(table: TablePlace) -> fx.Procedure[fx.LogIndex | None]:
    """Ask as ever, with a `Sync` in place of the commit."""

    def each(effect: fx.Effect) -> fx.Procedure[object]:
        if not isinstance(effect, fx.Commit):
            return (yield effect)
        yield fx.Sync(log(table))
        return fx.Applied()

    return translate(end_of_log(table), each)


if __name__ == "__main__":
    vars(asking)["end_of_log"] = _ask_by_sync
    sys.exit(serve(*sys.argv[1:]))
