"""The states of a model of a tablet, and the moves between them.

A state is a tuple of integers and tuples of them.  A candidate is a place in `stand` and one in `carry_out` (`asking`), a
leader what it knows and what is on its way (`leading`); what members are asked and answer is in `members`.

An operator that accepts a loss asks as a candidate does, and names who is away when it begins.

Moves, always in the same order: each seat begins, hears an answer, gives up waiting, agrees, commits, dies; a late
message arrives; a member goes away or comes back.  A message that can't change anything is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator

from typing_extensions import override

from replitree.tablet.core.commit import Ledger
from replitree.tablet.group.member import Holdings, Sweep, with_blobs
from replitree_verify.engine import small_search
from replitree_verify.tablets.asking import Asking
from replitree_verify.tablets.damage import rotting, with_hidden
from replitree_verify.tablets.leading import Leading
from replitree_verify.tablets.members import Members
from replitree_verify.tablets.model import Model
from replitree_verify.tablets.numbering import Numbering
from replitree_verify.tablets.state import (
    ASKING,
    IDLE,
    LEADING,
    OVER,
    PENDING,
    Found,
    Move,
    Position,
    TabletState,
    questions,
    replaced,
    with_seat,
)
from replitree_verify.world.faults import Fault, budget_of, remaining, spent


class Space(small_search.Space[TabletState]):
    """The states of one model.

    Parameters
    ----------
    model
        What is explored.

    Attributes
    ----------
    members, leading
        What members are asked; what leaders do.
    holdings
        What members hold, by its number in a state.
    probes
        The rare branches that `steps` has given.
    """

    def __init__(self, model: Model) -> None:
        self.model: Model = model
        self.probes = set[str]()
        self.members = Members(model)
        self.leading = Leading(self.members)
        self.holdings = self.members.holdings
        self._asking = Asking(self.members, self.leading)
        self._numbering = Numbering(self.members)
        self._in_order = list(range(model.members_of_all))

    def canonical(self, state: TabletState) -> TabletState:
        """Return the state that stands for all that differ from it in the members' numbers only."""
        return self._numbering.canonical(state)

    def ledger_of(self, position: Position) -> Ledger:
        """Return the ledger of a seat that leads."""
        return self.leading.leaders[position[1]].ledger

    # --- where it begins ----------------------------------------------------------------------------------------------------

    @override
    def first(self) -> TabletState:
        model = self.model
        nothing = self.holdings.number(Holdings())
        state = TabletState(
            held=(nothing,) * model.members_of_all,
            absent=(0,) * model.members_of_all,
            seats=(IDLE,) * len(model.seats),
            late=(),
            acked=(),
            elected=(),
            left=budget_of(model.faults),
        )
        if model.ahead:
            state = self._ahead(state, 0, model.prelude)
        for seat in range(1, 1 + model.relay):
            state = self._ahead(state, seat, len(model.seats[seat].commits))
        for number, blob in model.spoiled:
            state = self._changed(state, number, with_blobs(self.holdings[state.held[number]], {blob: None}))
        for number, begin, end in model.hidden:
            state = self._changed(state, number, with_hidden(self.holdings[state.held[number]], begin, end))
        # What the first leaders left on its way has arrived; only collections still may, while an operator looks at the group.
        late = (
            each for each in state.late if model.has_operators and isinstance(self.members.requests[each[1]], Sweep)
        )
        return state._replace(late=tuple(late))

    def _ahead(self, state: TabletState, seat: int, commits: int) -> TabletState:
        """Let a seat lead and commit without anything going wrong, all members answering."""
        while state.seats[seat][0] != LEADING:
            moves = self._asking.begin(state, seat) if state.seats[seat] == IDLE else self._asking.hear(state, seat)
            # The first way that an answer can go is without a fault.
            state = next(iter(moves))[0]
        for _ in range(commits):
            # The first move of a leader is the next thing that it commits.
            state = next(self.leading.moves(state, seat))[0]
            while state.seats[seat][0] == LEADING:
                later = next((after for after, move in self.leading.moves(state, seat) if not move.is_asked), None)
                if later is None:
                    break
                state = later
        return state

    # --- moves --------------------------------------------------------------------------------------------------------------

    @override
    def steps(self, state: TabletState, /) -> Iterator[tuple[Move, TabletState]]:
        for after, move in self.successors(state):
            self.probes.update(move.probes)
            yield move, after

    def successors(self, state: TabletState) -> Iterator[Found]:
        """Yield every state that a move leads to."""
        for seat, position in enumerate(state.seats):
            if position == IDLE:
                is_others_turn = self.model.in_turn and any(each[0] in (IDLE[0], ASKING) for each in state.seats[:seat])
                yield from () if is_others_turn else self._asking.begin(state, seat)
            elif position[0] == ASKING:
                yield from self._asking.hear(state, seat)
                yield from self._crash(state, seat)
            elif position[0] == LEADING:
                yield from self.leading.moves(state, seat)
                yield from self._crash(state, seat)
        for message in state.late:  # a late message arrives once, or never
            number, request = message
            if not state.absent[number]:
                without = state._replace(late=tuple(each for each in state.late if each != message))
                after, reply = self.members.deliver(without, number, request)
                asked = type(self.members.requests[request]).__name__
                told = (asked, " arrives late at member ", number, ": ", self.members.replies[reply])
                yield after, Move(told, probes=("late arrival",))
        yield from self._go_and_come(state)
        yield from self._rot(state)

    def _crash(self, state: TabletState, seat: int) -> Iterator[Found]:
        """Let a process die that waits for answers; if it waits for none, that is the same as a process that does nothing."""
        left, waiting = spent(state.left, Fault.CRASH), questions(state.seats[seat])
        if left is None or not waiting:
            return
        # Its questions stay on their way: a dead process's messages are as good as those of a live one.
        for carry, columns in waiting:
            state = self.members.leave_late(state, carry, columns)
        state = with_seat(state, seat, OVER)._replace(left=left)
        yield state, Move((self.model.name_of(seat), " dies"))

    def _rot(self, state: TabletState) -> Iterator[Found]:
        """Let an entry of a member become unreadable, and maybe its name, too."""
        left = spent(state.left, Fault.ROT)
        if left is None:
            return
        for number, held in enumerate(state.held):
            for blob in rotting(self.holdings[held], has_zeros=self.model.rots_zeros):
                damaged = with_blobs(self.holdings[held], {blob: None})
                told = (blob, " rots on member ", number)
                yield self._changed(state, number, damaged)._replace(left=left), Move(told, probes=("rot",))
                if self.model.hides:
                    hidden = with_hidden(self.holdings[held], blob, blob)
                    after = self._changed(state, number, hidden)._replace(left=left)
                    yield after, Move((*told, ", which can't tell it any more"), probes=("hidden",))

    def _changed(self, state: TabletState, number: int, held: Holdings) -> TabletState:
        return state._replace(held=replaced(state.held, number, self.holdings.number(held)))

    def _go_and_come(self, state: TabletState) -> Iterator[Found]:
        """Let members go away when a seat waits for no other member, and come back when there is a message for them.

        At other moments an absence is the same as messages that take their time; but an operator that begins sees who is away.
        """
        allowed, left = remaining(state.left, Fault.SILENT), spent(state.left, Fault.SILENT)
        asked = [columns for position in state.seats for _, columns in questions(position)]
        awaited, addressed = set[int](), {number for number, _ in state.late}
        for columns in asked:
            pending = [number for number, column in enumerate(columns) if column == PENDING]
            present = [number for number in pending if not state.absent[number]]
            addressed.update(pending)
            # All that are present have to go: as long as one of them may answer, the absence of others is not noticed.
            awaited.update(present if len(present) <= allowed else ())
        is_named = any(each == IDLE and self.model.seats[seat].is_operator for seat, each in enumerate(state.seats))
        if is_named:
            addressed.update(self._in_order)
            awaited.update(self._in_order if allowed else ())
        for number, is_absent in enumerate(state.absent):
            if is_absent and number in addressed:
                yield state._replace(absent=replaced(state.absent, number, 0)), Move(("member ", number, " is back"))
            elif left is not None and not is_absent and number in awaited:
                after = state._replace(absent=replaced(state.absent, number, 1), left=left)
                yield after, Move(("member ", number, " goes away"), probes=("away",))
