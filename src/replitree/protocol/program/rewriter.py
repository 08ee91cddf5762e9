"""A rewrite: takes what a client has made of parts, puts it into the log, and tells whether it counts."""

from __future__ import annotations

from replitree.protocol.core import layout
from replitree.protocol.core.effects import (
    Answer,
    ClientAnswer,
    Epoch,
    Get,
    Inserted,
    LogIndex,
    MaybeInserted,
    NotInserted,
    RemoveStaging,
    RequestId,
    StagingId,
    Why,
)
from replitree.protocol.core.entries import RewriteEntry, decode_entry
from replitree.protocol.core.fold import was_applied
from replitree.protocol.core.layout import Replica
from replitree.protocol.insert.insert import Request
from replitree.protocol.program.stages import (
    Accept,
    Accepted,
    AwaitPulled,
    End,
    PulledTurn,
    Release,
    ReportTrouble,
    Stage,
    Then,
)
from replitree.protocol.propose.propose import Proposed, Proposer, command_block
from replitree.protocol.propose.rewrite import NotStaged, Rewriting, rewrite

CHANGED = "the table has changed since it was read: a part is not what it was, or there are new rows; read it again"


def accept_rewrite(replica: Replica, request: RequestId, rewriting: Rewriting) -> Stage:
    """Take a client's rewrite once the process is active."""
    accepted: Accepted = yield Accept((Request(request, command_block(rewriting.id)),))
    proposer = Proposer(layout.at_pointer(replica, accepted.log_from), accepted.me, accepted.log_from)
    return Then(propose_rewrite, (proposer, accepted.epoch, accepted.staging, request, rewriting))


def propose_rewrite(
    proposer: Proposer, epoch: Epoch, staging: StagingId, request: RequestId, rewriting: Rewriting
) -> Stage:
    """Put a rewrite into the log, and answer if it certainly is not there, or if that is in doubt."""
    outcome = yield from rewrite(proposer, epoch, StagingId(f"{staging}.0"), request, rewriting)
    # What is staged is not held any more: a sweep spares it as long as the log may need it (`protocol.state.start`).
    yield Release(staging)
    match outcome:
        case Proposed(index, insert):
            return Then(judge_rewrite, (proposer.replica, request, index, insert))
        case NotStaged(answer, must_activate):
            if must_activate:
                yield ReportTrouble()
            yield Answer(request, answer)
            return End(answer)


def judge_rewrite(replica: Replica, request: RequestId, index: LogIndex, staging: StagingId | None) -> Stage:
    """Tell the client whether its rewrite applies, as soon as the process has pulled the entry."""
    turn: PulledTurn = yield AwaitPulled(index)
    applies = turn.applies
    if applies is None and turn.place is not None:
        # An earlier process has pulled it: what the table has since may still tell.
        path = layout.log_entry(replica.table, index)
        node = yield Get(path)
        entry = None if node is None else decode_entry(node.value, path)
        if isinstance(entry, RewriteEntry):
            applies = was_applied(turn.place.parts, index, entry)
    # The entry is pulled and not in the queue, so no execution needs what was staged.
    if turn.place is not None and applies is not True and staging is not None:
        yield RemoveStaging(staging)
    answer: ClientAnswer
    match applies:
        case True:
            answer = Inserted(index)
        case False:
            answer = NotInserted(CHANGED, Why.CHANGED)
        case None:
            answer = MaybeInserted()
    yield Answer(request, answer)
    return End(answer)


__all__ = ["CHANGED", "accept_rewrite", "judge_rewrite", "propose_rewrite"]
