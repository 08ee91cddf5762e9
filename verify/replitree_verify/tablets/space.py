"""The states of a model of a tablet, and the moves between them.

A state is a tuple of integers and tuples of them.  A candidate is a place in `stand` and one in `carry_out` (`asking`), a
leader what it knows and what is on its way (`leading`); what members are asked and answer is in `members`.

An operator that accepts a loss asks as a candidate does, and names who is away when it begins.

Moves, always in the same order: each seat begins, hears an answer, gives up waiting, agrees, commits, dies; a late
message arrives; a member goes away or comes back.  A message that can't change anything is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator

from replitree.tablet.core.commit import Ledger
from replitree.tablet.group.member import Holdings, Sweep, with_blobs
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
    World,
    questions,
    replaced,
    with_seat,
)


class Space:
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
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.members = Members(model)
        self.leading = Leading(self.members)
        self.holdings = self.members.holdings
        self._asking = Asking(self.members, self.leading)
        self._numbering = Numbering(self.members)
        self._in_order = list(range(model.members_of_all))

    def canonical(self, world: World) -> World:
        """Return the state that stands for all that differ from it in the members' numbers only."""
        return self._numbering.canonical(world)

    def ledger_of(self, position: Position) -> Ledger:
        """Return the ledger of a seat that leads."""
        return self.leading.leaders[position[1]].ledger

    # --- where it begins ----------------------------------------------------------------------------------------------------

    def first(self) -> World:
        """Return the state in which it begins."""
        model = self.model
        nothing = self.holdings.number(Holdings())
        world = World(
            (nothing,) * model.members_of_all,
            (0,) * model.members_of_all,
            (IDLE,) * len(model.seats),
            (),
            (),
            (),
            (model.crashes, model.lost, model.away, model.rots),
        )
        if model.ahead:
            world = self._ahead(world, 0, model.prelude)
        for seat in range(1, 1 + model.relay):
            world = self._ahead(world, seat, len(model.seats[seat].commits))
        for number, blob in model.spoiled:
            world = self._changed(world, number, with_blobs(self.holdings[world.held[number]], {blob: None}))
        for number, begin, end in model.hidden:
            world = self._changed(world, number, with_hidden(self.holdings[world.held[number]], begin, end))
        # What the first leaders left on its way has arrived; only collections still may, while an operator looks at the group.
        late = (
            each for each in world.late if model.has_operators and isinstance(self.members.requests[each[1]], Sweep)
        )
        return world._replace(late=tuple(late))

    def _ahead(self, world: World, seat: int, commits: int) -> World:
        """Let a seat lead and commit without anything going wrong, all members answering."""
        while world.seats[seat][0] != LEADING:
            moves = self._asking.begin(world, seat) if world.seats[seat] == IDLE else self._asking.hear(world, seat)
            world = next(iter(moves))[0]
        for _ in range(commits):
            world = next(self.leading.moves(world, seat))[0]
            while world.seats[seat][0] == LEADING:
                later = next((after for after, move in self.leading.moves(world, seat) if not move.is_asked), None)
                if later is None:
                    break
                world = later
        return world

    # --- moves --------------------------------------------------------------------------------------------------------------

    def successors(self, world: World) -> Iterator[Found]:
        """Yield every state that a move leads to."""
        for seat, position in enumerate(world.seats):
            if position == IDLE:
                is_others_turn = self.model.in_turn and any(each[0] in (IDLE[0], ASKING) for each in world.seats[:seat])
                yield from () if is_others_turn else self._asking.begin(world, seat)
            elif position[0] == ASKING:
                yield from self._asking.hear(world, seat)
                yield from self._crash(world, seat)
            elif position[0] == LEADING:
                yield from self.leading.moves(world, seat)
                yield from self._crash(world, seat)
        for message in world.late:  # a late message arrives once, or never
            number, request = message
            if not world.absent[number]:
                without = world._replace(late=tuple(each for each in world.late if each != message))
                after, reply = self.members.deliver(without, number, request)
                asked = type(self.members.requests[request]).__name__
                told = (asked, " arrives late at member ", number, ": ", self.members.replies[reply])
                yield after, Move(told, probes=("late arrival",))
        yield from self._go_and_come(world)
        yield from self._rot(world)

    def _crash(self, world: World, seat: int) -> Iterator[Found]:
        """Let a process die that waits for answers; if it waits for none, that is the same as a process that does nothing."""
        waiting = questions(world.seats[seat])
        if not world.left[0] or not waiting:
            return
        # Its questions stay on their way: a dead process's messages are as good as those of a live one.
        for carry, columns in waiting:
            world = self.members.leave_late(world, carry, columns)
        world = with_seat(world, seat, OVER)._replace(left=(world.left[0] - 1, *world.left[1:]))
        yield world, Move((self.model.name_of(seat), " dies"))

    def _rot(self, world: World) -> Iterator[Found]:
        """Let an entry of a member become unreadable, and maybe its name, too."""
        if not world.left[3]:
            return
        left = (*world.left[:3], world.left[3] - 1)
        for number, held in enumerate(world.held):
            for blob in rotting(self.holdings[held], has_zeros=self.model.rots_zeros):
                damaged = with_blobs(self.holdings[held], {blob: None})
                told = (blob, " rots on member ", number)
                yield self._changed(world, number, damaged)._replace(left=left), Move(told, probes=("rot",))
                if self.model.hides:
                    hidden = with_hidden(self.holdings[held], blob, blob)
                    after = self._changed(world, number, hidden)._replace(left=left)
                    yield after, Move((*told, ", which can't tell it any more"), probes=("hidden",))

    def _changed(self, world: World, number: int, held: Holdings) -> World:
        return world._replace(held=replaced(world.held, number, self.holdings.number(held)))

    def _go_and_come(self, world: World) -> Iterator[Found]:
        """Let members go away when a seat waits for no other member, and come back when there is a message for them.

        At other moments an absence is the same as messages that take their time; but an operator that begins sees who is away.
        """
        asked = [columns for position in world.seats for _, columns in questions(position)]
        awaited, addressed = set[int](), {number for number, _ in world.late}
        for columns in asked:
            pending = [number for number, column in enumerate(columns) if column == PENDING]
            present = [number for number in pending if not world.absent[number]]
            addressed.update(pending)
            # All that are present have to go: as long as one of them may answer, the absence of others is not noticed.
            awaited.update(present if len(present) <= world.left[2] else ())
        is_named = any(each == IDLE and self.model.seats[seat].is_operator for seat, each in enumerate(world.seats))
        if is_named:
            addressed.update(self._in_order)
            awaited.update(self._in_order if world.left[2] else ())
        for number, is_absent in enumerate(world.absent):
            if is_absent and number in addressed:
                yield world._replace(absent=replaced(world.absent, number, 0)), Move(("member ", number, " is back"))
            elif not is_absent and number in awaited:
                left = (*world.left[:2], world.left[2] - 1, world.left[3])
                after = world._replace(absent=replaced(world.absent, number, 1), left=left)
                yield after, Move(("member ", number, " goes away"), probes=("away",))
