"""What a successor would find that nothing disturbs: asked at every state, with every choice of members that is enough.

* I17: it is elected, in a bounded number of questions
* I12: it finds all that it needs; nothing was collected too early
* I16: recovering once more, with whichever members, finds the same, and changes nothing where the same members answer
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, TypeVar

from replitree.tablet import member, store
from replitree.tablet.effects import Fence, Overtaken, Procedure, RaiseFence
from replitree.tablet.election import Candidate, Elected, NotElected, stand
from replitree.tablet.ids import Generation
from replitree.tablet.member import Holdings
from replitree.tablet.quorum import Ask, carry_out
from replitree.tablet.recovery import MissingEntries, Recovered, recover
from replitree.verify.tablets.model import CHANNELS, GROUP, TABLET, Model

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
                outcome = self._carry_out(procedure.send(outcome))
                if self.asked > QUESTIONS_MAX:
                    procedure.close()
                    return None
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _carry_out(self, effect: Any) -> Any:
        carrying = (store.carry_out_on_store if self._model.on_store else carry_out)(self._model.quorum, effect)
        outcome: Any = None
        try:
            while True:
                outcome = self._ask(carrying.send(outcome))
        except StopIteration as stop:
            return stop.value

    def _ask(self, ask: Ask) -> tuple[Any, ...]:
        self.asked += 1
        answer: Any = store.answer if self._model.on_store else member.answer
        replies = list[Any]()
        for number, request in enumerate(ask.requests):
            if request is None or number not in self._present:
                replies.append(None)
                continue
            self.held[number], reply = answer(self.held[number], request)
            replies.append(reply)
        return tuple(replies)


def enough_of(model: Model) -> list[tuple[int, ...]]:
    """Return every choice of members that is enough to store something."""
    sizes = range(model.quorum.write, model.members + 1)
    return [present for size in sizes for present in combinations(range(model.members), size)]


def broken_aftermath(model: Model, held: tuple[Holdings, ...]) -> str | None:
    """Return what a successor would run into, or None."""
    enough = enough_of(model)
    for present in enough:
        broken = _broken_election(model, held, present) or _broken_repetition(model, held, present, enough)
        if broken is not None:
            return broken
    return None


def _broken_election(model: Model, held: tuple[Holdings, ...], present: tuple[int, ...]) -> str | None:
    members = Undisturbed(model, held, present)
    result = members.run(stand(Candidate(CHANNELS, ISSUER)))
    if result is None:
        return f"I17: a successor that hears members {present} asks without end"
    if isinstance(result, NotElected) and isinstance(result.reason, MissingEntries):
        return f"I12: a successor that hears members {present} misses {result.reason.places}"
    if not isinstance(result, Elected):
        return f"I17: a successor that hears members {present} is not elected: {result.reason}"
    return None


def _broken_repetition(
    model: Model, held: tuple[Holdings, ...], present: tuple[int, ...], enough: list[tuple[int, ...]]
) -> str | None:
    members = Undisturbed(model, held, present)
    fence = _fence_above(held)
    first = members.run(_recovering(fence))
    if not isinstance(first, Recovered):
        return None  # another candidate of this generation was here; `_broken_election` takes one that is free
    after = tuple(members.held)
    for others in enough:
        repeated = Undisturbed(model, after, others)
        again = repeated.run(_recovering(fence))
        if not isinstance(again, Recovered):
            return f"I16: recovering again with members {others} ends with {again}"
        if others == present and (again != first or tuple(repeated.held) != after):
            return f"I16: recovering again with members {others} changes something"
        if [each for each in first.accepted if each[0] >= _begin(again) and each not in again.accepted]:
            return f"I16: recovering with members {present}, and then with {others}, loses what was found"
    return None


def _begin(recovered: Recovered) -> tuple[int, int]:
    """Return the snapshot that covers everything before it, or the begin."""
    accepted = recovered.accepted
    return accepted[0][0] if accepted and accepted[0][1].is_snapshot else (0, 0)


def _fence_above(held: tuple[Holdings, ...]) -> Fence:
    """Return a fence above every fence and every entry."""
    fences = [fence.generation for each in held if (fence := each.fence(TABLET)) is not None]
    blobs = [blob.generation for each in held for blob in each.names]
    return Fence(Generation(max([0, *fences, *blobs]) + 1), ISSUER)


def _recovering(fence: Fence) -> Procedure[Any]:
    fenced = yield RaiseFence(GROUP, TABLET, fence)
    if isinstance(fenced, Overtaken):
        return fenced
    return (yield from recover(CHANNELS, fence))
