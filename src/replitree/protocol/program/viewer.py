"""Materialised views: take the commands that create and drop them (`replitree.protocol.propose.views`)."""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.program.commands import answer_command
from replitree.protocol.program.stages import AcceptCommand, Accepted, Stage, Then
from replitree.protocol.propose.propose import Proposer
from replitree.protocol.propose.views import NewView, create_view, drop_view


def accept_view(replica: Replica, request: fx.RequestId, view: NewView) -> Stage:
    """Take the creation of a view of the replica's table, once the process is active."""
    accepted: Accepted = yield AcceptCommand(request)
    return Then(give_view, (_proposer(replica, accepted), accepted.epoch, request, view))


def give_view(proposer: Proposer, epoch: fx.Epoch, request: fx.RequestId, view: NewView) -> Stage:
    """Create a view and answer."""
    return (yield from answer_command(request, (yield from create_view(proposer, epoch, view))))


def accept_drop(replica: Replica, request: fx.RequestId, command: fx.EntryId, name: str) -> Stage:
    """Take the drop of a view of the replica's table, once the process is active."""
    accepted: Accepted = yield AcceptCommand(request)
    return Then(give_drop, (_proposer(replica, accepted), accepted.epoch, request, command, name))


def give_drop(proposer: Proposer, epoch: fx.Epoch, request: fx.RequestId, command: fx.EntryId, name: str) -> Stage:
    """Drop a view and answer."""
    return (yield from answer_command(request, (yield from drop_view(proposer, epoch, command, name))))


def _proposer(replica: Replica, accepted: Accepted) -> Proposer:
    return Proposer(layout.at_pointer(replica, accepted.log_from), accepted.me, accepted.log_from)


__all__ = ["accept_drop", "accept_view", "give_drop", "give_view"]
