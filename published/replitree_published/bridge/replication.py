"""The mapping onto replication in `packed.models.replication_queues`: merges, mutations, drops, lost parts, lost replicas.

Which entries there are, and what each replica has and has executed, is in `pieces`.  Pulling changes nothing here: what was
not pulled was not executed.  Nor do settled quorums, changes of columns and another parent of the log, merges that come too
late, and the kill of a mutation, which decides what is in a part and not which parts there are.

Who is lost has executed nothing, whatever it once had; so a recovery is bringing and letting go of parts, and its end is that
all is executed which the source had.
"""

from __future__ import annotations

import msgspec

from replitree.coordination.tree import Tree
from replitree.errors import BadInput
from replitree.protocol.core.layout import Replica, TablePlace
from replitree_published.bridge.mapping import Mapping
from replitree_published.bridge.pieces import Holding, Pieces
from replitree_published.packed.models import replication_log as log_of
from replitree_published.packed.models import replication_queues as model
from replitree_published.packed.models.replication_log import QueueLimits
from replitree_verify.world.history import Log

RECORDS = 12
"""Entries for which there is room: more than any model has."""


class Shared(msgspec.Struct, frozen=True):
    """Log and replicas at one moment.

    Attributes
    ----------
    kinds, sources
        Of each piece of the log, as in `pieces.Piece`.
    replicas
        What each has, in an order that stays.
    """

    kinds: tuple[int, ...]
    sources: tuple[int, ...]
    replicas: tuple[Holding, ...]


def shared_of(tree: Tree, table: TablePlace, names: tuple[str, ...]) -> Shared:
    """Return what a tree shows of a table.

    Raises
    ------
    BadInput
        There are more entries than there is room for.
    NoState
        A replica has what follows from no log.
    """
    pieces = Pieces.of(Log(tree, table).raw)
    if len(pieces.all) > RECORDS:
        raise BadInput(f"the log has {len(pieces.all)} entries of {model.MODEL.name}; there is room for {RECORDS}")
    holdings = tuple(pieces.holding(tree, Replica(table, name)) for name in names)
    return Shared(tuple(piece.kind for piece in pieces.all), tuple(piece.sources for piece in pieces.all), holdings)


def limits_for(replicas: int) -> QueueLimits:
    """Return the limits of the packed model for so many replicas."""
    return QueueLimits(replicas=replicas, records=RECORDS)


def state_of(shared: Shared, limits: QueueLimits) -> int:
    """Return the state that an outline stands for."""
    state = 0
    for kind, sources in zip(shared.kinds, shared.sources, strict=True):
        state = log_of.appended(state, limits, kind, sources)
    for number, each in enumerate(shared.replicas):
        block = log_of.block_with(limits, each.has, each.broken, each.done, int(each.is_lost))
        state = log_of.with_block(state, limits, number, block)
    return state


def seen_of(state: int, _: QueueLimits) -> int:
    """Return the state without what outlines don't show: whether rows were let go of that nobody else had."""
    return state & ~log_of.LEFT


def is_between(state: int, start: int, goal: int, limits: QueueLimits) -> bool:
    """Tell whether a way may go through a state: its log is the goal's as far as it goes, and all that changes changes once.

    What comes to a replica comes in the order of the log, and so does what it executes: other orders lead to the same.
    """
    length = log_of.length_of(state)
    if length > log_of.length_of(goal) or (state ^ goal) & log_of.REGRET:
        return False
    for entry in range(log_of.length_of(start), length):
        kinds = log_of.kind_of(state, limits, entry), log_of.kind_of(goal, limits, entry)
        if kinds[0] != kinds[1] or log_of.sources_of(state, entry) != log_of.sources_of(goal, entry):
            return False
    return all(_moves(state, start, goal, limits, replica) for replica in range(limits.replicas))


def _moves(state: int, start: int, goal: int, limits: QueueLimits, replica: int) -> bool:
    """Tell whether a replica may stand so between two others: nothing is as neither of them, and what comes is in order.

    A part that is made whole by the execution of a loss may break before that is committed.
    """
    here, before, after = (log_of.block_of(each, limits, replica) for each in (state, start, goal))
    has, had, will = (log_of.has_in(block, limits) for block in (here, before, after))
    done, did, does = (log_of.done_in(block, limits) for block in (here, before, after))
    other = (here ^ before) & (here ^ after)
    if does & ~did & log_of.losses_in(goal, limits):
        other &= ~log_of.block_with(limits, 0, has, 0, 0)
    return other == 0 and _in_order(has & ~had, will & ~had) and _in_order(done & ~did, does & ~did)


def _in_order(come: int, wanted: int) -> bool:
    """Tell whether nothing has come that is above something still wanted."""
    left = wanted & ~come
    return left == 0 or come < left & -left


REPLICATION = Mapping("replication", model.MODEL, Shared, shared_of, limits_for, state_of, seen_of, is_between)
