"""The quorum waiter: answers an insert with a quorum by what the log says of it, and gives up one that takes too long."""

from __future__ import annotations

from replitree.protocol.core.effects import MaybeInserted
from replitree.protocol.core.layout import Replica
from replitree.protocol.insert.quorum import Awaited, answer_all, answer_awaited, find_end, give_up, give_up_overdue
from replitree.protocol.program.stages import AwaitDecided, AwaitOpen, OpenTurn, QuorumTurn, Stage, Then


def await_quorum(replica: Replica, awaited: tuple[Awaited, ...], is_given_up: bool = False) -> Stage:
    """Answer the requests of the first of these inserts, then those of the others.

    Parameters
    ----------
    replica
        The replica that has taken the requests.
    awaited
        At least one insert.
    is_given_up
        This replica has given up the first one: the log says what became of it, or will before long.
    """
    first, left = awaited[0], awaited[1:]
    turn: QuorumTurn = yield AwaitDecided(first.index, is_given_up)
    ended = turn.ended
    if ended is None and not turn.is_decided:
        # The replica may be behind: an insert that has ended already is answered, not given up.
        ended = yield from find_end(replica.table, first.index)
    if ended is not None or turn.is_decided:
        yield from answer_awaited(replica.table, first, ended)
    elif (
        not is_given_up
        # The insert that a duplicate repeats is given up by its own writer.
        and not first.is_duplicate
        and turn.epoch is not None
        and (yield from give_up(replica, turn.epoch, first.index, first.entry))
    ):
        # Not answered yet: a replica that completed the number at the same moment has settled the insert.  The log decides.
        return Then(await_quorum, (replica, awaited, True))
    else:
        yield from answer_all(first, MaybeInserted())
    return Then(await_quorum, (replica, left)) if left else None


def give_up_abandoned(replica: Replica, age_ms: int) -> Stage:
    """Give up the inserts that no replica has joined for `age_ms` milliseconds: their writers are gone.  For the leader."""
    turn: OpenTurn = yield AwaitOpen()
    given_up = yield from give_up_overdue(replica, turn.epoch, turn.opened, age_ms)
    return Then(give_up_abandoned, (replica, age_ms), given_up)


__all__ = ["await_quorum", "give_up_abandoned"]
