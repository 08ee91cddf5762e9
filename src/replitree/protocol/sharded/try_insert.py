"""A joint insert, tried once or in turns: what it takes the place of is read just before its commit.

An overwrite reads which shards it empties (`protocol.sharded.overwrite`), and a rewrite judges each log up to its end
(`protocol.sharded.rewrite`).  Both prove in the commit what they have read.  When it is not so any more, the insert has moved
on (`MovedOn`): certainly nothing was inserted, and everything is read again.
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.sharded.joint_insert import JointInsert, JointOutcome, MovedOn, joint_insert
from replitree.protocol.sharded.overwrite import read_emptied
from replitree.protocol.sharded.rewrite import place_rewrite

TURNS_MAX = 20
"""How often everything is read again because others write all the time."""


def insert_in_turns(insert: JointInsert, me: bytes) -> fx.Procedure[JointOutcome]:
    """Insert what is prepared, in the place of rows if it says so; parameters and result as of `joint_insert`."""
    for _ in range(TURNS_MAX):
        outcome = yield from try_insert(insert, me, ())
        if not isinstance(outcome, MovedOn):
            return outcome
    return fx.NotInserted("other writers move the logs of the shards all the time; try again")


def try_insert(insert: JointInsert, me: bytes, moves: tuple[fx.Operation, ...]) -> fx.Procedure[JointOutcome | MovedOn]:
    """Insert what is prepared, unless something moves on meanwhile; parameters and result as of `joint_insert`."""
    if insert.drops:
        found = yield from read_emptied(insert)
        if isinstance(found, fx.NotInserted):
            return found
        insert, moves = found.insert, (*moves, *found.proofs)
    if insert.rewrites:
        placed = yield from place_rewrite(insert)
        if isinstance(placed, fx.NotInserted):
            return placed
        insert, moves = placed.insert, (*moves, *placed.proofs)
    return (yield from joint_insert(insert, me, moves))


__all__ = ["insert_in_turns", "try_insert"]
