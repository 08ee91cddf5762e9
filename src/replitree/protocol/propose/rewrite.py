"""Rewrite: put the parts that a client has made of others into the log, and find out whether they count.

A client reads parts, makes others of them, and brings these.  Order; a crash between any two steps leaves the table without the
rewrite or with all of it:

1. *stage*    the new parts under a fresh id, synced           before: nothing; after: garbage for the sweep
2. *propose*  the entry and the command's id, one commit        unknown: a new epoch, then a look (`protocol.propose.propose`)
3. *pull*     the writer pulls its own entry, and its fold says whether the entry applies: only now it is known
4. *publish*  by `protocol.execute.rewrite`, and only if it applies: the names of the results say nothing before

A rewrite that does not apply has changed nothing on any replica: another entry has replaced a source, or what it relies on
has changed.  Its client reads again and makes another one, with an id of its own.

Absent on purpose: what keeps merges off the sources meanwhile.  A merge that comes first makes the rewrite start again, and
breaks nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import RewriteEntry, Unchanged
from replitree.protocol.membership.activate import REPLACED, Replaced
from replitree.protocol.propose.propose import Forgotten, NotProposed, Proposed, Proposer, propose


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What a client asks for.

    Attributes
    ----------
    id
        Names it: with the same id it is not done twice.
    schema_version
        Version of the columns that its rows were written with.
    unchanged
        What it relies on besides its sources; None: nothing.
    """

    id: fx.EntryId
    schema_version: int = 1
    unchanged: Unchanged | None = None


@dataclass(frozen=True, slots=True)
class NotStaged:
    """The rewrite is certainly not in the log, and `answer` is what its client hears.

    `must_activate`: the process must activate again.
    """

    answer: fx.NotInserted | fx.Duplicate | fx.MaybeInserted
    must_activate: bool = False


RewriteOutcome: TypeAlias = Proposed | NotStaged


def rewrite(
    proposer: Proposer, epoch: fx.Epoch, staging: fx.StagingId, request: fx.RequestId, rewriting: Rewriting
) -> fx.Procedure[RewriteOutcome]:
    """Stage a rewrite and put it into the log.

    Parameters
    ----------
    proposer, epoch
        The replica that proposes, and the epoch under which it is active.
    staging
        A fresh id.
    request
        What brings the parts.
    rewriting
        What is asked for.
    """
    staged: fx.Staged | fx.StoreFailed = yield fx.Stage(staging, (request,))
    if isinstance(staged, fx.StoreFailed):
        yield fx.RemoveStaging(staging)
        why = fx.Why.REQUEST if staged.by_request else fx.Why.STORE
        return NotStaged(fx.NotInserted(staged.reason, why))
    entry = RewriteEntry(
        proposer.replica.name,
        rewriting.id,
        staging,
        staged.results,
        staged.parts,
        rewriting.schema_version,
        unchanged=UNSET if rewriting.unchanged is None else rewriting.unchanged,
    )
    outcome = yield from propose(proposer, epoch, entry)
    # In doubt the staging folder may have the only copy: the next activation knows whether it has.
    if not isinstance(outcome, fx.InDoubt) and not (isinstance(outcome, Proposed) and outcome.insert == staging):
        yield fx.RemoveStaging(staging)
    match outcome:
        case Proposed():
            return outcome
        case Forgotten():
            return NotStaged(fx.Duplicate(None))
        case NotProposed(reason):
            return NotStaged(fx.NotInserted(reason))
        case Replaced():
            return NotStaged(fx.NotInserted(REPLACED), must_activate=True)
        case fx.InDoubt():
            return NotStaged(fx.MaybeInserted(), must_activate=True)


__all__ = ["NotStaged", "RewriteOutcome", "Rewriting", "rewrite"]
