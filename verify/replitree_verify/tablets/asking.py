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
from replitree_verify.tablets.running import Agreement, Ended, carrying, looking, standing
from replitree_verify.tablets.state import (
    ASKING,
    NAMED,
    OVER,
    UNASKED,
    Found,
    Loss,
    Move,
    TabletState,
    Told,
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

    def begin(self, state: TabletState, seat: int) -> Iterator[Found]:
        """Let a candidate begin, or an operator, which names who is away."""
        generation = self._model.seats[seat].generation
        if self._is_operator(seat):
            # An operator names those that are away just now, and is bound by that until it is done.
            place = self._stands.begin(looking, f"operator {seat}")
            named = tuple(NAMED if each else UNASKED for each in state.absent)
            state = with_seat(state, seat, (ASKING, place, END, named))
        else:
            candidate = Candidate(self._model.channels, f"c{seat}", Generation(generation))
            place = self._stands.begin(standing, candidate)
        yield self._ask_group(state, seat, place, (self._model.name_of(seat), " begins"))

    def hear(self, state: TabletState, seat: int) -> Iterator[Found]:
        """Let a candidate hear a member, or an operator agree."""
        _, place, carry, columns = state.seats[seat]
        name = self._model.name_of(seat)
        # Nothing is on its way: the operator was shown a loss, and has not agreed yet.
        if carry == END:
            yield self._ask_group(state, seat, self._stands.step(place, None), (name, " agrees"))
            return
        for told, after, replies, over in self._members.listen(state, (carry, columns), (name,)):
            if over:
                carried = self._members.carried(carry, replies)
                late = self._members.leave_late(after, carry, replies)
                yield self._ask_members(late, seat, place, carried, told)
            else:
                yield with_seat(after, seat, (ASKING, place, carry, replies)), Move(told)

    def _is_operator(self, seat: int) -> bool:
        return self._model.seats[seat].is_operator

    def _named(self, state: TabletState, seat: int) -> tuple[int, ...]:
        """Return columns that say whom an operator has named; nothing for candidates."""
        return state.seats[seat][3] if self._is_operator(seat) else ()

    def _ask_group(self, state: TabletState, seat: int, place: int, told: Told) -> Found:
        """Go on at a place of `stand`: ask the members for the group, or end."""
        effect, named = self._stands.effect(place), self._named(state, seat)
        if isinstance(effect, Ended) and isinstance(effect.value, NotElected):
            told = (*told, "; it gives up: ", effect.value.reason)
            probe = "refused" if self._is_operator(seat) else "not elected"
            return with_seat(state, seat, OVER), Move(told, election=effect.value, probes=(probe,))
        if isinstance(effect, Ended):
            result: Won = effect.value
            places = tuple((int(place[0]), int(place[1])) for place, _ in result.recovered.accepted)
            after = state._replace(elected=(*state.elected, (int(result.generation), places)))
            if effect.agreed is None:
                after = with_seat(after, seat, self._leading.elected(result))
                probes = (*(("accepted",) if places else ()), *(("declined",) if result.recovered.declined else ()))
                return after, Move((*told, "; it leads, with ", places), election=result, probes=probes)
            # An operator does not lead: it has written what stays, and a later candidate leads from there.
            asked = tuple(held for held, column in zip(state.held, named, strict=True) if column != NAMED)
            loss, told = Loss(effect.agreed, asked), (*told, "; the loss is accepted, what stays is ", places)
            return with_seat(after, seat, OVER), Move(told, election=result, probes=("loss accepted",), loss=loss)
        if isinstance(effect, Agreement):
            # The operator may think about it for as long as it likes: no member is asked meanwhile.
            columns = tuple(NAMED if each == NAMED else UNASKED for each in named)
            told = (*told, "; it would lose ", effect.found.unreadable)
            return with_seat(state, seat, (ASKING, place, END, columns)), Move(told, probes=("loss seen",))
        groups = self._model.groups
        if named:  # an operator must hear all members that it has not named
            groups = (replace(groups[0], read_min=len(named) - named.count(NAMED)),)
        carry = self._members.begin(groups, carrying, effect)
        return self._ask_members(state, seat, place, carry, told)

    def _ask_members(self, state: TabletState, seat: int, place: int, carry: int, told: Told) -> Found:
        """Go on at a place of `carry_out`: wait for the members, or hand the outcome to `stand`."""
        effect = self._members.carries.effect(carry)
        if isinstance(effect, Ended):
            return self._ask_group(state, seat, self._stands.step(place, effect.value), told)
        position = (ASKING, place, carry, columns_of(effect, self._named(state, seat)))
        return with_seat(state, seat, position), Move(told)
