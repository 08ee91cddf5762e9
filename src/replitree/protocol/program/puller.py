"""The puller: pulls whenever the next entry of the log is there."""

from __future__ import annotations

from collections.abc import Container

from replitree.protocol.core.layout import Replica
from replitree.protocol.insert.quorum import rejoin
from replitree.protocol.program.stages import (
    AwaitPull,
    BeginLoad,
    Missed,
    PullTurn,
    ReportTrouble,
    Stage,
    TakeIn,
    TakeOver,
    Then,
)
from replitree.protocol.state.pull import Fenced, Gap, PointerMoved, Pulled, load, pull_log


def pull_next(replica: Replica, count: int) -> Stage:
    """Pull once, up to `count` entries."""
    turn: PullTurn = yield AwaitPull()
    if turn.place is None:
        return Then(reload_state, (replica, count))
    pulled = yield from pull_log(replica, turn.epoch, turn.place, count)
    match pulled:
        case Pulled(place):
            yield TakeIn(place, pulled.entries)
        case PointerMoved():
            return Then(reload_state, (replica, count))
        case Fenced():
            yield ReportTrouble()
        case Gap(index):
            yield Missed(index)
    return Then(pull_next, (replica, count), pulled)


def reload_state(replica: Replica, count: int) -> Stage:
    """Take the replica's state from coordination; what was executed unnoticed becomes visible."""
    yield BeginLoad()
    loaded = yield from load(replica)
    if isinstance(loaded, Fenced):
        yield ReportTrouble()
        return Then(pull_next, (replica, count), loaded)
    lacking: Container[str] | None = yield TakeOver(loaded)
    if lacking is None:
        return Then(reload_state, (replica, count))
    yield from rejoin(replica, loaded, lacking)
    return Then(pull_next, (replica, count))


__all__ = ["pull_next", "reload_state"]
