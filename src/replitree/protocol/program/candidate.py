"""The candidate: stands for leader, looks who leads, and resigns when the replica is not active."""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core.layout import Replica
from replitree.protocol.membership.leader import Follows, Leads, look, resign, stand
from replitree.protocol.program.stages import AwaitElection, Elected, ElectionTurn, ReportTrouble, Stage, Then


def stand_next(replica: Replica, path: str | None) -> Stage:
    """Stand for leader, look who leads, or resign; `path` is the replica's own node of the election."""
    turn: ElectionTurn = yield AwaitElection(path)
    if turn.resigns and path is not None:
        yield Elected(leads=False)
        resigned = yield from resign(replica, turn.epoch, path)
        return Then(stand_next, (replica, None if resigned else path))
    election = yield from (stand(replica, turn.epoch) if path is None else look(replica, path))
    yield Elected(leads=isinstance(election, Leads))
    if isinstance(election, fx.InDoubt):
        yield ReportTrouble()
    return Then(stand_next, (replica, election.path if isinstance(election, Leads | Follows) else None), election)


__all__ = ["stand_next"]
