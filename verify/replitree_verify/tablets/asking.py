"""The moves of candidates and of operators: they begin, ask groups and hear members, agree, and are elected, or not.

Each is two places in procedures: one that asks groups, as `stand` does, and one in `carry_out`, which asks the members for it.
So ways that end with the same answer of a group meet again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from replitree.tablet.core.election import Candidate, NotElected, Won
from replitree.tablet.group.ids import Generation
from replitree_verify.tablets.leading import Leading
from replitree_verify.tablets.members import Members
from replitree_verify.tablets.running import Agreement, Ended, Groups, carrying, looking, standing
from replitree_verify.tablets.state import (
    ASKING,
    NAMED,
    OVER,
    UNASKED,
    Found,
    Loss,
    Move,
    Told,
    World,
    columns_of,
    with_seat,
)
from replitree_verify.world.kernel import END, Kernel


class Asking:
    """The moves of candidates and operators of one model; who is elected is handed on to `leading`."""

    def __init__(self, members: Members, leading: Leading) -> None:
        self._members = members
        self._model = members.model
        self._leading = leading
        self._stands = Kernel()

    def begin(self, world: World, seat: int) -> Iterator[Found]:
        """Let a candidate begin, or an operator, which names who is away."""
        generation = self._model.seats[seat].generation
        if self._is_operator(seat):
            place = self._stands.begin(looking, f"operator {seat}")
            named = tuple(NAMED if each else UNASKED for each in world.absent)
            world = with_seat(world, seat, (ASKING, place, END, named))
        else:
            candidate = Candidate(self._model.channels, f"c{seat}", Generation(generation))
            place = self._stands.begin(standing, candidate)
        yield self._ask_group(world, seat, place, (self._model.name_of(seat), " begins"))

    def hear(self, world: World, seat: int) -> Iterator[Found]:
        """Let a candidate hear a member, or an operator agree."""
        _, place, carry, columns = world.seats[seat]
        name = self._model.name_of(seat)
        if carry == END:
            yield self._ask_group(world, seat, self._stands.step(place, None), (name, " agrees"))
            return
        for told, after, replies, over in self._members.listen(world, (carry, columns), (name,)):
            if over:
                carried = self._members.carried(carry, replies)
                late = self._members.leave_late(after, carry, replies)
                yield self._ask_members(late, seat, place, carried, told)
            else:
                yield with_seat(after, seat, (ASKING, place, carry, replies)), Move(told)

    def _is_operator(self, seat: int) -> bool:
        return self._model.seats[seat].is_operator

    def _named(self, world: World, seat: int) -> tuple[int, ...]:
        """Return columns that say whom an operator has named; nothing for candidates."""
        return world.seats[seat][3] if self._is_operator(seat) else ()

    def _groups_for(self, named: tuple[int, ...]) -> Groups:
        """Return the numbers of the groups for a seat: an operator must hear all members that it has not named."""
        groups = self._model.groups
        return (replace(groups[0], read_min=len(named) - named.count(NAMED)),) if named else groups

    def _ask_group(self, world: World, seat: int, place: int, told: Told) -> Found:
        """Go on at a place of `stand`: ask the members for the group, or end."""
        effect, named = self._stands.effect(place), self._named(world, seat)
        if isinstance(effect, Ended):
            return self._end(world, seat, effect, told)
        if isinstance(effect, Agreement):
            return self._ask_operator(world, seat, place, effect, told)
        carry = self._members.begin(self._groups_for(named), carrying, effect)
        return self._ask_members(world, seat, place, carry, told)

    def _ask_operator(self, world: World, seat: int, place: int, effect: Agreement, told: Told) -> Found:
        """Let the operator think about it; no member is asked."""
        columns = tuple(NAMED if each == NAMED else UNASKED for each in self._named(world, seat))
        told = (*told, "; it would lose ", effect.found.unreadable)
        return with_seat(world, seat, (ASKING, place, END, columns)), Move(told, probes=("loss seen",))

    def _ask_members(self, world: World, seat: int, place: int, carry: int, told: Told) -> Found:
        """Go on at a place of `carry_out`: wait for the members, or hand the outcome to `stand`."""
        effect = self._members.carries.effect(carry)
        if isinstance(effect, Ended):
            return self._ask_group(world, seat, self._stands.step(place, effect.value), told)
        position = (ASKING, place, carry, columns_of(effect, self._named(world, seat)))
        return with_seat(world, seat, position), Move(told)

    def _end(self, world: World, seat: int, ended: Ended, told: Told) -> Found:
        result: Won | NotElected = ended.value
        if isinstance(result, NotElected):
            told = (*told, "; it gives up: ", result.reason)
            probe = "refused" if self._is_operator(seat) else "not elected"
            return with_seat(world, seat, OVER), Move(told, election=result, probes=(probe,))
        places = tuple((int(place[0]), int(place[1])) for place, _ in result.recovered.accepted)
        after = world._replace(elected=(*world.elected, (int(result.generation), places)))
        if ended.agreed is not None:
            loss = Loss(ended.agreed, self._asked_of(world, seat))
            told = (*told, "; the loss is accepted, what stays is ", places)
            return with_seat(after, seat, OVER), Move(told, election=result, probes=("loss accepted",), loss=loss)
        after = with_seat(after, seat, self._leading.elected(result))
        probes = (*(("accepted",) if places else ()), *(("declined",) if result.recovered.declined else ()))
        return after, Move((*told, "; it leads, with ", places), election=result, probes=probes)

    def _asked_of(self, world: World, seat: int) -> tuple[int, ...]:
        """Return what each member holds that an operator has not named."""
        named = self._named(world, seat)
        return tuple(held for held, column in zip(world.held, named, strict=True) if column != NAMED)
