"""Members that nothing disturbs: what a procedure would run into if it were alone, asked at any state."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any, TypeVar

from replitree.tablet.group import member, store
from replitree.tablet.group.effects import Procedure
from replitree.tablet.group.member import Holdings
from replitree.tablet.group.quorum import Ask
from replitree_verify.tablets.model import Model
from replitree_verify.tablets.running import carried_out

T = TypeVar("T")

QUESTIONS_MAX = 60
"""How often a successor may ask the members."""

ISSUER = "successor"


class Undisturbed:
    """Members that do what they are asked at once.

    Parameters
    ----------
    model
        What is explored.
    held
        What each member holds.
    present
        Those that answer.
    """

    def __init__(self, model: Model, held: tuple[Holdings, ...], present: tuple[int, ...]) -> None:
        self.held = list(held)
        self.asked = 0
        self._model = model
        self._present = present

    def run(self, procedure: Procedure[T]) -> T | None:
        """Run a procedure; None if it asks too often."""
        outcome: Any = None
        try:
            while True:
                outcome = self.do(procedure.send(outcome))
                if self.asked > QUESTIONS_MAX:  # it would ask for ever: I17
                    procedure.close()
                    return None
        except StopIteration as stop:
            result: T = stop.value
            return result

    def do(self, effect: Any) -> Any:
        """Carry out one effect."""
        carrying = carried_out(self._model.groups, effect, self._model.on_store)
        answer: Any = store.answer if self._model.on_store else member.answer
        replies: tuple[Any, ...] | None = None
        while True:
            try:
                ask: Ask = carrying.send(replies)
            except StopIteration as stop:
                return stop.value
            self.asked += 1
            found = list[Any]()
            for number, request in enumerate(ask.requests):
                reply = None  # a member that is away is given up at once
                if request is not None and number in self._present:
                    self.held[number], reply = answer(self.held[number], request)
                found.append(reply)
            replies = tuple(found)


def enough_of(model: Model) -> list[tuple[int, ...]]:
    """Return every choice of members that is enough to store something in every group."""
    first, choices = 0, list[list[tuple[int, ...]]]()
    for group in model.groups:
        members = range(first, first + group.members)
        # Of every size: one member more may hold what changes the outcome.
        sizes = range(group.write, group.members + 1)
        choices.append([present for size in sizes for present in combinations(members, size)])
        first += group.members
    return [tuple(number for part in parts for number in part) for parts in product(*choices)]
