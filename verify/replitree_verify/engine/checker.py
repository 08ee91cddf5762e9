"""The invariants over the states of a space, each worked out once for each value of what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

from replitree.protocol.core.layout import table_at
from replitree_verify.engine.moves import FLIGHT, OBJECTS, TREE, Move, World
from replitree_verify.engine.space import Space
from replitree_verify.rules.invariants import READS, SEAT_READS, Look, quiet_states_agree
from replitree_verify.rules.shares import shares_hold, shares_settle
from replitree_verify.world.history import Log
from replitree_verify.world.model import TABLE


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Invariants that look at the same.

    Attributes
    ----------
    parts
        What takes that out of a state.
    invariants
        From a look at a state to what is wrong, or None.
    verdicts
        What was worked out so far.
    """

    parts: itemgetter[Any]
    invariants: tuple[Callable[[Look], str | None], ...]
    verdicts: dict[Any, str | None] = field(default_factory=dict)


class Checker:
    """Checks states.

    Parameters
    ----------
    space
        Whose states.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._logs: dict[int, Log] = {}
        groups = dict[tuple[str, ...], Group]()
        for names in dict.fromkeys(READS.values()):
            positions = [TREE]
            if "answers" in names:
                positions += sorted(space.answer_at.values())
            if "disks" in names:
                positions += space.disk_at
            if "memories" in names:
                positions += space.memory_at
            invariants = tuple(invariant for invariant, reads in READS.items() if reads == names)
            groups[names] = Group(itemgetter(*positions), invariants)
        # What looks at one seat is worked out for the values of that seat alone.
        of_seats = [
            Group(
                itemgetter(TREE, space.own_disk_at[seat], space.memory_at[seat]),
                tuple(partial(invariant, seats=(named,)) for invariant in SEAT_READS),
            )
            for seat, named in enumerate(space.model.seats)
        ]
        self._groups = [*groups.values(), *of_seats]
        with_memories = [group for names, group in groups.items() if "memories" in names]
        if space.model.stored:
            at_shares = (TREE, OBJECTS, *space.disk_at, *space.memory_at)
            of_shares = Group(itemgetter(*at_shares), (shares_hold,))
            self._groups.append(of_shares)
            with_memories.append(of_shares)
        self._of_memory = [(*with_memories, group) for group in of_seats]

    def broken(self, world: World, move: Move | None = None) -> str | None:
        """Return what is wrong in a state, or None.

        Parameters
        ----------
        world
            The state.
        move
            The move to it, from a state in which nothing is wrong.
        """
        # A plain move that changes no disk leaves tree, answers and disks as they were: what looks at these alone still holds.
        if move is None or not move.is_plain or move.has_seen:
            return self._first_wrong(world, self._groups)
        return self._first_wrong(world, self._of_memory[move.seat]) if move.has_thought else None

    def _first_wrong(self, world: World, groups: Iterable[Group]) -> str | None:
        for group in groups:
            key = group.parts(world)
            try:  # None is a verdict, so `get` would need a second look-up to tell it from one that is not known
                verdict = group.verdicts[key]
            except KeyError:
                look = self.look(world)
                found = (wrong for invariant in group.invariants if (wrong := invariant(look)) is not None)
                verdict = group.verdicts[key] = next(found, None)
            if verdict is not None:
                return verdict
        return None

    def broken_quiet(self, world: World) -> str | None:
        """Return what is wrong in a state in which nothing is left to do, or None."""
        look = self.look(world)
        settles = self._space.model.stored and not world[FLIGHT]
        return quiet_states_agree(look) or (shares_settle(look) if settles else None)

    def look(self, world: World) -> Look:
        """Return the values of a state."""
        space = self._space
        model = space.model
        log = self._logs.get(world[TREE])
        if log is None:  # a log decodes every entry of its tree, and most states have the tree of an earlier one
            tree = space.trees[world[TREE]]
            log = self._logs[world[TREE]] = Log(tree, table_at(TABLE.path, tree.get(TABLE.path)), model.killed)
        seats = [name for name, _ in model.seats]
        answers = {request: space.replies[world[position]] for request, position in space.answer_at.items()}
        if model.remade:
            # Of a request to a replica of a table that was dropped nothing is promised.
            is_there = log.tree.exists(log.table.path)
            for request in answers:
                if not is_there or model.place(model.asked[request]).table != log.table:
                    answers[request] = None
        return Look(
            model,
            log,
            answers,
            {name: space.disks[world[position]] for name, position in zip(model.disks, space.disk_at, strict=True)},
            {name: space.memories[world[position]] for name, position in zip(seats, space.memory_at, strict=True)},
            space.objects[world[OBJECTS]],
        )
