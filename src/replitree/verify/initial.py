"""The first state of a model: made by the production procedures, without faults."""

from __future__ import annotations

from typing import Any

from replitree.coordination.tree import Tree, answer
from replitree.protocol.effects import Children, Commit, Exists, Get, GetMany, Procedure, Sync
from replitree.protocol.layout import Replica
from replitree.protocol.table import create_table, join_table
from replitree.verify.disk import Disk
from replitree.verify.memory import Memory, State
from replitree.verify.model import TABLE, budget_of, first_session
from replitree.verify.space import LEFT, TREE, Space, World


def table_tree(replicas: tuple[str, ...]) -> Tree:
    """Return coordination with the table created and every replica joined."""
    tree = Tree()
    procedures: list[Procedure[Any]] = [create_table(TABLE, b"", b"")]
    procedures += [join_table(Replica(TABLE, name)) for name in replicas]
    for procedure in procedures:
        tree = run_on(procedure, tree)
    return tree


def run_on(procedure: Procedure[Any], tree: Tree) -> Tree:
    """Run a procedure that only uses coordination, and return the tree afterwards."""
    outcome: Any = None
    try:
        while True:
            effect = procedure.send(outcome)
            if isinstance(effect, Commit):
                tree, outcome = tree.commit(effect.operations, session=1)
            else:
                assert isinstance(effect, Get | GetMany | Exists | Children | Sync)
                outcome = answer(tree, effect)
    except StopIteration:
        return tree


def first_world(space: Space) -> World:
    """Return the first state: the table is there, every replica has joined, the model's `started` seats are active."""
    model = space.model
    world = [0] * space.size
    world[TREE] = space.trees.number(table_tree(model.replicas))
    for position in space.disk_at:
        world[position] = space.disks.number(Disk())
    for seat, (name, _) in enumerate(model.seats):
        state = State.STARTING if name in model.started else State.OFF
        world[space.memory_at[seat]] = space.memories.number(Memory(0, first_session(seat), state=state))
    for thread in space.threads:
        world[thread.position] = space.beginning(thread, 0)
    for thread in space.threads:
        if thread.kind == "life" and model.seats[thread.seat][0] in model.started:
            while moves := [move for move in space.moves(thread, tuple(world)) if not move.cost]:
                for position, number in moves[0].changes:
                    world[position] = number
    world[LEFT] = budget_of(model.faults)
    return tuple(world)
