"""The states of a model of openings, and the moves between them.

Moves: a process begins, hears an answer, gives up waiting, looks again, dies; a late message arrives; a member
goes away or comes back, is copied, or is exchanged by the copy.

Whatever members are asked goes to all at once, and is answered in any order.  A request to a group is sent as what the member
is admitted just then, and sent again as `ask_admitted` says while the process waits; what is on its way when a question is over
arrives late, once, or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typing_extensions import override

from replitree.tablet.group.admission import Admission
from replitree.tablet.group.member import Done, Failed
from replitree.tablet.group.openings import AskAdmitted, AskEach, LookAgain, Opening
from replitree.tablet.group.quorum import Ask
from replitree.tablet.group.replacing import NameIt, Replacement
from replitree_verify.engine import small_search
from replitree_verify.openings.invariants import broken_acknowledgement, broken_reading
from replitree_verify.openings.lives import (
    Acknowledged,
    AskOpening,
    GivesUp,
    Opened,
    Recovered,
    Replied,
    ask_admitted,
    look_again,
    open_group,
    replace_member,
)
from replitree_verify.openings.members import VOTES, GroupMembers, Step
from replitree_verify.openings.model import EXCHANGED, INCARNATIONS, NEW, QUORUM, READ, Model
from replitree_verify.openings.state import (
    HEARD,
    IDLE,
    NOT_OPEN,
    SENT,
    TOLD,
    UNASKED,
    Column,
    GroupState,
    Looking,
    Position,
)
from replitree_verify.world.faults import Fault, budget_of
from replitree_verify.world.kernel import END, Interner, Kernel

LOST_ANSWER = Failed("its answer was lost")
SILENT = Failed("it is silent")
REFUSED = Failed("it does not take part, or did not answer")
"""Why a member of an open group did not do what it was asked makes no difference to the process that asks."""
BATCH_BYTES = 1

ENDURED = QUORUM.members - QUORUM.write
"""How many members may not do what they are asked."""


class Space(small_search.Space[GroupState]):
    """The states of one model."""

    def __init__(self, model: Model) -> None:
        self.model: Model = model
        self.members = GroupMembers(model)
        self.openings: Interner[Opening] = Interner()
        self._lives = Kernel()
        self.probes = set[str]()
        self._operator = -1 if model.replaces is None else len(model.seats)

    # --- the beginning --------------------------------------------------------------------------------------------------

    @override
    def first(self) -> GroupState:
        model, places = self.model, self.members.first()
        state = GroupState(
            places=places,
            forgot=(),
            away=model.absent,
            is_named=False,
            seats=(Position(),) * (len(model.seats) + (self._operator >= 0)),
            late=(),
            acked=(),
            fenced=(),
            found=(None,) * len(model.seats),
            ended=1,  # the group was opened once, with all its members
            copy=self.members.copy(places),
            left=budget_of(model.faults),
        )
        for number, seat in enumerate(model.seats):
            if not seat.ahead:
                continue
            _, state = self._begin(state, number)
            while state.found[number] is None or (seat.ahead != READ and not state.seats[number].is_over):
                # The first way that an answer can go is without a fault.
                state = next(after for _, after in (*self._hear(state, number), *self._give_up(state, number)))
        return state

    # --- moves ----------------------------------------------------------------------------------------------------------

    @override
    def steps(self, state: GroupState, /) -> Iterator[Step]:
        for number, position in enumerate(state.seats):
            if position.place == IDLE:
                yield self._begin(state, number)
            elif not position.is_over:
                yield from self._hear(state, number)
                yield from self._give_up(state, number)
                yield from self._look(state, number)
                dead = state.spend(Fault.CRASH) if number == self._operator else None
                if dead is not None:  # the operator begins again
                    self.probes.add("begun again")
                    after = self._left_late(dead, position, position.columns)
                    yield "the operator dies", _seated(after, number, Position())
        yield from self.members.arrive(state)
        awaited = set[int]()
        for position in state.seats:
            looked = () if position.looking is None else position.looking.columns
            for columns in (position.columns, looked):
                awaited.update(self._member(position, each) for each, _ in self._on_their_way(columns))
        yield from self.members.faults(state, awaited)

    def _name(self, number: int) -> str:
        return "the operator" if number == self._operator else f"c{self.model.seats[number].generation}"

    def _begin(self, state: GroupState, number: int) -> Step:
        position = Position(is_new=state.is_named)
        if number == self._operator:
            assert self.model.replaces is not None
            wanted = Replacement(QUORUM, self.model.replaces, INCARNATIONS, NEW, BATCH_BYTES)
            place = self._lives.begin(replace_member, wanted)
        else:
            place = self._lives.begin(open_group, self.model.seats[number], self._incarnations(position))
        return self._continue(state, number, position, place, f"{self._name(number)} begins")

    def _incarnations(self, position: Position) -> tuple[str, ...]:
        replaced = self.model.replaces if position.is_new else None
        return tuple(NEW if number == replaced else each for number, each in enumerate(INCARNATIONS))

    def _member(self, position: Position, column: int) -> int:
        """Return which member a column of a process's question is about."""
        return len(INCARNATIONS) if position.is_new and column == self.model.replaces else column

    # --- answers are heard ------------------------------------------------------------------------------------------------

    def _hear(self, state: GroupState, number: int) -> Iterator[Step]:
        """Let the members answer what a process asked."""
        position = state.seats[number]
        for each, column in self._on_their_way(position.columns):
            for text, after, reply in self._delivered(state, number, each, column):
                heard: Column = (HEARD, reply)
                # A question of a group that is open is a place in `ask_admitted`, which may ask once more.
                if position.opening != NOT_OPEN and column[2]:
                    asking = self._lives.step(column[2], self.members.replies[reply])
                    heard = self._continue_asking(position, each, asking, column[1])
                columns = _with(position.columns, each, heard)
                yield self._answered(after, number, position._replace(columns=columns), text)

    def _delivered(
        self, state: GroupState, number: int, each: int, column: Column
    ) -> Iterator[tuple[str, GroupState, int]]:
        """Yield what may become of a message: in words, the state after it, and the number of what is heard."""
        member, message = self._member(state.seats[number], each), column[1]
        if member == state.away:
            return
        after, reply = self.members.deliver(state, member, message)
        text = f"{self._name(number)}: member {member} {self.members.words(message, reply)}"
        yield text, after, reply
        lost = after.spend(Fault.UNKNOWN)
        if lost is not None and self.members.may_lose(state, member, message):
            self.probes.add("answer lost")
            yield f"{text}, which is lost", lost, self.members.replies.number(LOST_ANSWER)

    def _continue_asking(self, position: Position, each: int, place: int, message: int) -> Column:
        """Go on at a place of `ask_admitted`."""
        while True:
            effect = self._lives.effect(place)
            if isinstance(effect, Replied):
                # One failure for all reasons: the process does the same, and fewer states differ.
                reply = REFUSED if isinstance(effect.reply, Failed) else effect.reply
                return (HEARD, self.members.replies.number(reply))
            if isinstance(effect, LookAgain):
                self.probes.add("opened again")
                return (TOLD, message, place)
            assert isinstance(effect, AskAdmitted)
            terms = self.openings[position.opening].terms(each)
            if isinstance(terms, Admission):
                return (SENT, self.members.messages.number((terms, self.members.messages[message][1])), place)
            place = self._lives.step(place, Failed(terms))

    def _answered(self, state: GroupState, number: int, position: Position, text: str) -> Step:
        """Go on with an answer: in the process's life if that was the last one."""
        effect = self._lives.effect(position.place)
        if not self._is_over(effect, position):
            return text, _seated(state, number, position)
        state = self._left_late(state, position, position.columns)
        place = self._lives.step(position.place, self._outcome(position.columns))
        return self._continue(state, number, position, place, text)

    def _is_over(self, effect: AskEach | Ask, position: Position) -> bool:
        if not any(each[0] in (SENT, TOLD) for each in position.columns):
            return True
        if not isinstance(effect, Ask):
            return False
        # Enough have done what they were asked, or so many have not that it is over for the process that asks.
        heard = [self.members.replies[each[1]] for each in position.columns if each[0] == HEARD]
        refused = sum(not isinstance(each, VOTES) for each in heard)
        return sum(isinstance(each, Done) for each in heard) >= effect.wanted or refused > ENDURED

    def _outcome(self, columns: tuple[Column, ...]) -> tuple[Any, ...]:
        return tuple(self.members.replies[each[1]] if each[0] == HEARD else None for each in columns)

    def _on_their_way(self, columns: tuple[Column, ...]) -> list[tuple[int, Column]]:
        """Return what members are asked just now."""
        return [(each, column) for each, column in enumerate(columns) if column[0] == SENT]

    def _left_late(self, state: GroupState, position: Position, columns: tuple[Column, ...]) -> GroupState:
        """Leave what is on its way to arrive at any time."""
        on_its_way = [(self._member(position, each), column[1]) for each, column in self._on_their_way(columns)]
        return self.members.left_late(state, tuple(on_its_way)) if on_its_way else state

    # --- a process goes on ------------------------------------------------------------------------------------------------

    def _continue(self, state: GroupState, number: int, position: Position, place: int, text: str) -> Step:
        """Go on at a place of a process's life until members are asked, or it is over."""
        position = position._replace(columns=(), looking=None)
        while place != END:
            effect = self._lives.effect(place)
            if isinstance(effect, AskEach | Ask):
                position = position._replace(place=place, columns=self._questions(position, effect))
                questions = effect.questions if isinstance(effect, AskEach) else ()
                if len(questions) > len(INCARNATIONS) and not any(questions[:-1]):
                    # The new member alone is asked.  No other process asks it, so it answers at once: one order for all.
                    (*others, question) = questions
                    assert question is not None
                    message = self.members.messages.number((None, question))
                    state, reply = self.members.deliver(state, len(others), message)
                    outcome = (*others, self.members.replies[reply])
                elif not self._is_over(effect, position):
                    return text, _seated(state, number, position)
                else:
                    outcome = self._outcome(position.columns)
            else:
                state, position, outcome, more = self._take_report(state, number, position, effect)
                text += more
            place = self._lives.step(place, outcome)
        return text, _seated(state, number, Position(END))

    def _questions(self, position: Position, effect: AskEach | Ask) -> tuple[Column, ...]:
        if isinstance(effect, AskEach):
            return tuple(
                (UNASKED,) if each is None else (SENT, self.members.messages.number((None, each)), 0)
                for each in effect.questions
            )
        place = self._lives.begin(ask_admitted)
        return tuple(
            (UNASKED,)
            if each is None
            else self._continue_asking(position, number, place, self.members.messages.number((None, each)))
            for number, each in enumerate(effect.requests)
        )

    def _take_report(
        self, state: GroupState, number: int, position: Position, effect: Any
    ) -> tuple[GroupState, Position, Any, str]:
        """Take what a process says: the state, where it stands, the outcome, and more words."""
        match effect:
            case Opened(opening):
                # The session that member 0 itself was admitted to: a copy from before it is behind from now on.
                if (
                    self._member(position, EXCHANGED) == EXCHANGED
                    and opening.terms(EXCHANGED) == opening.admissions[EXCHANGED]
                ):
                    state = state._replace(ended=max(state.ended, opening.session))
                return state, self._opened(position, opening), None, f"; it has opened the group: {opening}"
            case Recovered(blobs):
                found = tuple(each for each, seat in enumerate(self.model.seats) if seat.blob in blobs)
                all_found = (*state.found[:number], found, *state.found[number + 1 :])
                wrong = broken_reading(self.model, state, number, found)
                fenced = tuple(sorted({*state.fenced, number}))
                state = state._replace(found=all_found, wrong=wrong, fenced=fenced)
                self.probes.add("read")
                return state, position, None, f"; it has read {[self._name(each) for each in found]}"
            case Acknowledged():
                wrong = state.wrong or broken_acknowledgement(self.model, state, number)
                self.probes.add("acknowledged")
                acked = tuple(sorted({*state.acked, number}))
                return state._replace(acked=acked, wrong=wrong), position, None, "; its blob is acknowledged"
            case AskOpening():
                opening = self.openings[position.opening]
                replaced = self.model.replaces
                if state.is_named and replaced is not None and opening.obstacles[replaced] is not None:
                    position = position._replace(is_new=True)
                return state, position, (opening, self._incarnations(position)), ""
            case NameIt():
                self.probes.add("made anew")
                return state._replace(is_named=True), position, None, "; the group's file names the new member"
            case GivesUp(reason):
                self.probes.add("gives up")
                return state, position, None, f"; it gives up: {reason}"
        raise AssertionError(f"no process says {effect}")

    def _opened(self, position: Position, opening: Opening) -> Position:
        position = position._replace(opening=self.openings.number(without_words(opening)))
        if opening.forgot is not None:
            self.probes.add("found to have forgotten")
        if any(opening.obstacles):
            self.probes.add("opened without one")
        return position

    # --- a process looks again --------------------------------------------------------------------------------------------

    def _look(self, state: GroupState, number: int) -> Iterator[Step]:
        """Let who was told that the group was opened again look how all members stand, one column at a time."""
        position = state.seats[number]
        looking = position.looking
        if looking is None:
            for each, column in enumerate(position.columns):
                if column[0] == TOLD:
                    opening = self.openings[position.opening]
                    place = self._lives.begin(look_again, opening, self._incarnations(position))
                    yield self._continue_looking(state, number, each, place, f"{self._name(number)} looks again")
            return
        for each, column in self._on_their_way(looking.columns):
            for text, after, reply in self._delivered(state, number, each, column):
                columns = _with(looking.columns, each, (HEARD, reply))
                yield self._answered_looking(after, number, looking._replace(columns=columns), text)

    def _answered_looking(self, state: GroupState, number: int, looking: Looking, text: str) -> Step:
        if any(each[0] == SENT for each in looking.columns):
            return text, _seated(state, number, state.seats[number]._replace(looking=looking))
        outcome = tuple(self.members.replies[each[1]] for each in looking.columns)
        place = self._lives.step(looking.place, outcome)
        return self._continue_looking(state, number, looking.column, place, text)

    def _continue_looking(self, state: GroupState, number: int, column: int, place: int, text: str) -> Step:
        """Go on at a place of `look_again`."""
        position, effect = state.seats[number], self._lives.effect(place)
        # Unless the model has slow looks, a look takes no time: it asks all members at one moment, and no other order is tried.
        while isinstance(effect, AskEach) and not self.model.slow_looks:
            members = [self._member(position, each) for each in range(len(effect.questions))]
            place = self._lives.step(
                place, tuple(SILENT if each == state.away else self.members.standing(state, each) for each in members)
            )
            effect = self._lives.effect(place)
        if isinstance(effect, AskEach):
            looking = Looking(column, place, self._questions(position, effect))
            return text, _seated(state, number, position._replace(looking=looking))
        assert isinstance(effect, Opened)
        position = self._opened(position, effect.opening)
        _, message, asking = position.columns[column]
        after = self._lives.step(asking, effect.opening.forgot is None)
        heard = self._continue_asking(position, column, after, message)
        position = position._replace(looking=None, columns=_with(position.columns, column, heard))
        return self._answered(state, number, position, f"{text}; it finds {effect.opening}")

    # --- a process waits no longer, or dies -------------------------------------------------------------------------------

    def _give_up(self, state: GroupState, number: int) -> Iterator[Step]:
        """Let a process wait no longer for the member that is away, when all others have answered."""
        position, text = state.seats[number], f"{self._name(number)} waits no longer"
        looking = position.looking
        columns = position.columns if looking is None else looking.columns
        awaited = [self._member(position, each) for each, _ in self._on_their_way(columns)]
        # A question that was told to look again waits for that look, not for a member.
        must_look = looking is None and any(each[0] == TOLD for each in columns)
        if must_look or not awaited or any(member != state.away for member in awaited):
            return
        after = self._left_late(state, position, columns)
        silent = (HEARD, self.members.replies.number(SILENT))
        for each, _ in self._on_their_way(columns):
            columns = _with(columns, each, silent)
        if looking is None:
            yield self._answered(after, number, position._replace(columns=columns), text)
        else:
            yield self._answered_looking(after, number, looking._replace(columns=columns), text)


def without_words(opening: Opening) -> Opening:
    """Return an opening without the words that people are told, which make no difference."""
    if opening.forgot is not None:
        return Opening(
            opening.session, (None,) * len(INCARNATIONS), (None,) * len(INCARNATIONS), "a member has forgotten"
        )
    obstacles = tuple(None if each is None else "it does not take part" for each in opening.obstacles)
    return Opening(opening.session, obstacles, opening.admissions)


def _with(columns: tuple[Column, ...], each: int, column: Column) -> tuple[Column, ...]:
    return (*columns[:each], column, *columns[each + 1 :])


def _seated(state: GroupState, number: int, position: Position) -> GroupState:
    return state._replace(seats=(*state.seats[:number], position, *state.seats[number + 1 :]))
