"""What members are asked in a model of a tablet, and what they answer: places in procedures, replies, messages that come late.

Members are numbered through all groups, those of the log's group first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from replitree.tablet.group import member, store
from replitree.tablet.group.effects import Procedure
from replitree.tablet.group.ids import BlobId
from replitree.tablet.group.member import Done, Holdings, Reply, Request
from replitree.tablet.group.quorum import Ask, Quorum
from replitree_verify.tablets.forgetting import is_dead
from replitree_verify.tablets.model import Model
from replitree_verify.tablets.state import PENDING, SILENT, TabletState, Told, Waiting, Work, columns_of, replaced
from replitree_verify.world.faults import Fault, spent
from replitree_verify.world.kernel import END, Interner, Kernel


class Members:
    """The members of one model, and the procedures that ask them."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.holdings: Interner[Holdings] = Interner()
        self.requests: Interner[Request] = Interner()
        self.replies: Interner[Reply] = Interner()
        self.carries = Kernel()
        self.fresh = {END}
        self.moves: dict[tuple[int, tuple[int, ...]], int] = {}
        self._answer: Callable[[Holdings, Any], tuple[Holdings, Any]] = (
            store.answer if model.on_store else member.answer
        )
        self._answers: dict[tuple[int, int], tuple[int, int]] = {}
        self._dead: dict[tuple[int, int], bool] = {}
        self._asked: dict[tuple[int, int], int] = {}
        self._steps: dict[tuple[int, tuple[int, ...]], int] = {}
        self._past: dict[int, tuple[tuple[int, ...], ...]] = {}

    # --- places in procedures -----------------------------------------------------------------------------------------------

    def begin(self, groups: tuple[Quorum, ...], what: Callable[..., Procedure[None]], *asked: object) -> int:
        """Return the place where a procedure begins that asks members."""
        carry = self.carries.begin(what, groups, *asked, self.model.on_store)
        self.fresh.add(carry)
        return carry

    def work(self, blob: BlobId, what: Callable[..., Procedure[None]], *asked: object) -> Work:
        """Return what a leader begins to wait for."""
        carry = self.begin(self.model.groups, what, *asked)
        return Work(blob, carry, columns_of(self.carries.effect(carry)))

    def request(self, carry: int, number: int) -> int:
        """Return the number of what a procedure asks a member where it stands."""
        known = self._asked.get((carry, number))
        if known is None:
            known = self.requests.number(self.carries.effect(carry).requests[number])
            self._asked[carry, number] = known
        return known

    def carried(self, carry: int, columns: tuple[int, ...]) -> int:
        """Return where a procedure stands when the members have said this."""
        # Remembered, because most states repeat a question and its answers: a step replays the whole procedure.
        known = self._steps.get((carry, columns))
        if known is None:
            replies = tuple(self.replies[column] if column >= 0 else None for column in columns)
            known = self._steps[carry, columns] = self.carries.step(carry, replies)
        return known

    def past_of(self, carry: int) -> tuple[tuple[int, ...], ...]:
        """Return what each member has answered to the questions of a procedure so far, question by question."""
        known = self._past.get(carry)
        if known is None:
            outcomes = self.carries.conversation(carry).outcomes
            known = tuple(
                tuple(-1 if each is None else self.replies.number(each) for each in told) for told in outcomes
            )
            self._past[carry] = known
        return known

    def moved(self, carry: int, order: tuple[int, ...]) -> int:
        """Return the place of a procedure that was told the same by members in another order."""
        # Where nothing was answered yet no member differs from another.
        if carry in self.fresh:
            return carry
        key = (carry, order)
        known = self.moves.get(key)
        if known is None:
            told = self.carries.conversation(carry)
            known = self.carries.begin(told.stage, *told.arguments)
            for outcome in told.outcomes:
                known = self.carries.step(known, tuple(outcome[number] for number in order))
            self.moves[key] = known
        return known

    # --- messages -----------------------------------------------------------------------------------------------------------

    def listen(
        self, state: TabletState, waiting: Waiting, who: Told
    ) -> Iterator[tuple[Told, TabletState, tuple[int, ...], bool]]:
        """Yield what may happen to a question: (for people, the state, its columns, whether it is answered)."""
        carry, columns = waiting
        ask = self.carries.effect(carry)
        present = [number for number, column in enumerate(columns) if column == PENDING and not state.absent[number]]
        left = spent(state.left, Fault.UNKNOWN)
        for number in present:
            request = self.request(carry, number)
            after, reply = self.deliver(state, number, request)
            heard = replaced(columns, number, reply)
            asked = type(ask.requests[number]).__name__
            said = (*who, ": member ", number, " answers ", self.replies[reply], " to ", asked)
            yield said, after, heard, self._is_over(ask, heard)
            if left is not None:
                lost = replaced(columns, number, SILENT)
                after = after._replace(left=left)
                yield (*said, ", which is lost"), after, lost, self._is_over(ask, lost)
        # All that have not answered are away: the process waits no longer, because nothing else ends its question.
        if not present and PENDING in columns:
            yield (*who, " waits no longer"), state, columns, True

    def deliver(self, state: TabletState, number: int, request: int) -> tuple[TabletState, int]:
        """Let a member do what it is asked; return the number of its reply."""
        # An answer depends on what the member holds and on what it is asked, and on nothing else.
        key = (state.held[number], request)
        known = self._answers.get(key)
        if known is None:
            held, reply = self._answer(self.holdings[key[0]], self.requests[request])
            known = self._answers[key] = self.holdings.number(held), self.replies.number(reply)
        if known[0] == key[0]:
            return state, known[1]
        # The member has changed: late messages to it that can't change it any more are forgotten, so that states meet again.
        late = tuple(each for each in state.late if each[0] != number or not self._is_dead(known[0], each[1]))
        return state._replace(held=replaced(state.held, number, known[0]), late=late), known[1]

    def _is_over(self, ask: Ask, columns: tuple[int, ...]) -> bool:
        if PENDING not in columns:
            return True
        # So many have done it that the process does not wait for the others.
        return sum(column >= 0 and isinstance(self.replies[column], Done) for column in columns) >= ask.wanted

    def leave_late(self, state: TabletState, carry: int, columns: tuple[int, ...]) -> TabletState:
        """Leave the messages that were not answered to arrive at any time."""
        more = [
            (number, request)
            for number, column in enumerate(columns)
            if column == PENDING and not self._is_dead(state.held[number], request := self.request(carry, number))
        ]
        return state._replace(late=tuple(sorted({*state.late, *more}))) if more else state

    def _is_dead(self, held: int, request: int) -> bool:
        key = (held, request)
        known = self._dead.get(key)
        if known is None:
            known = self._dead[key] = is_dead(self.holdings[held], self.requests[request])
        return known
