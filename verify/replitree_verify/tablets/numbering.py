"""States that differ in the numbers of the members of a group only are one: the state that stands for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replitree_verify.tablets.members import Members
from replitree_verify.tablets.state import ASKING, LEADING, Position, TabletState, questions


class Numbering:
    """Renumbers members within their groups."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._first = members.model.members
        self._in_order = tuple(range(members.model.members_of_all))

    def canonical(self, state: TabletState) -> TabletState:
        """Return the state that stands for all that differ from it in the members' numbers only.

        A procedure that asks a second time knows who answered what the first time: that is reordered with the rest.
        """
        columns: list[Sequence[Any]] = [state.held, state.absent]
        for position in state.seats:
            for carry, asked in questions(position):
                columns.append(asked)
                if carry not in self._members.fresh:
                    columns += self._members.past_of(carry)
        if state.late:  # most states have none, and this is asked of every state
            late = [list[int]() for _ in state.held]
            for number, request in state.late:
                late[number].append(request)
            columns.append(late)
        # Members of one group with equal signatures are interchangeable, so any sorted order stands for all.
        signatures = list(zip(*columns, strict=True))
        order = (
            *sorted(self._in_order[: self._first], key=signatures.__getitem__),
            *sorted(self._in_order[self._first :], key=signatures.__getitem__),
        )
        if order == self._in_order:
            return state

        def moved(column: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(column[number] for number in order)

        carried, seats = self._members.moved, list[Position]()
        for position in state.seats:
            if position[0] == ASKING:
                seats.append((ASKING, position[1], carried(position[2], order), moved(position[3])))
            elif position[0] == LEADING:
                works = (
                    work._replace(carry=carried(work.carry, order), columns=moved(work.columns)) for work in position[3]
                )
                seats.append((*position[:3], tuple(sorted(works))))
            else:
                seats.append(position)
        messages = tuple(sorted((order.index(member), request) for member, request in state.late))
        return state._replace(held=moved(state.held), absent=moved(state.absent), seats=tuple(seats), late=messages)
