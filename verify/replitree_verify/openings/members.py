"""The members of a model of openings: what they are asked and answer, and what may happen to them."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.tablet.group.admission import (
    Admission,
    Admit,
    Answer,
    AskRules,
    AskStanding,
    AskStreams,
    MemberState,
    Question,
    Remember,
    Standing,
    serve,
)
from replitree.tablet.group.member import Contents, Done, FenceIs, Holdings
from replitree_verify.openings.model import EXCHANGED, INCARNATIONS, NEW, Model
from replitree_verify.openings.state import HEARD, SENT, GroupState
from replitree_verify.tablets.forgetting import is_dead
from replitree_verify.world.faults import Fault
from replitree_verify.world.kernel import Interner

Message = tuple[Admission | None, Question]
Step = tuple[str, GroupState]

FOREIGN = Standing("another", 9, (9, 1, 1))
"""A directory of another group, which was opened more often, lately without its other members."""

# The answers with which a member counts for a quorum.
VOTES = (Done, Contents, FenceIs)

_SWAPS = Fault.SWAP.mask


class GroupMembers:
    """The members, and numbers for all that they are, are asked, and answer.

    Parameters
    ----------
    model
        What is explored.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.places: Interner[MemberState] = Interner()
        self.messages: Interner[Message] = Interner()
        self.replies: Interner[Answer] = Interner()
        self._served: dict[tuple[int, int], tuple[int, int]] = {}
        self._words: dict[tuple[int, int], str] = {}

    def first(self) -> tuple[int, ...]:
        """Return members of a group that was opened once, and the new one."""
        seen = (1,) * len(INCARNATIONS)
        old = [MemberState(Standing(each, 1, seen), Holdings()) for each in INCARNATIONS]
        new = [] if self.model.replaces is None else [MemberState(Standing(NEW, 0, ()), Holdings())]
        return tuple(self.places.number(each) for each in (*old, *new))

    def copy(self, places: tuple[int, ...]) -> int:
        """Return what may take the place of member 0, if it is there from the beginning."""
        if self.model.is_foreign:
            return self.places.number(MemberState(FOREIGN, Holdings()))
        return -1 if self.model.copies else places[EXCHANGED]

    def standing(self, state: GroupState, number: int) -> Standing:
        """Return how a member stands."""
        return self.places[state.places[number]].standing

    def held(self, state: GroupState, number: int) -> Holdings:
        """Return what a member holds."""
        return self.places[state.places[number]].held

    def deliver(self, state: GroupState, number: int, message: int) -> tuple[GroupState, int]:
        """Let a member do what it is asked; return the number of its answer."""
        key = (state.places[number], message)
        known = self._served.get(key)
        if known is None:
            admission, question = self.messages[message]
            place, answer = serve(self.places[key[0]], question, admission)
            known = self._served[key] = self.places.number(place), self.replies.number(answer)
        is_asked_to_vote = self.messages[message][0] is not None and not self.model.copies
        if number in state.forgot and is_asked_to_vote and isinstance(self.replies[known[1]], VOTES):
            state = state._replace(wrong=f"O2: member {number} votes, and has forgotten what it had said to have")
        return self.changed(state, number, known[0]), known[1]

    def words(self, message: int, reply: int) -> str:
        """Return what was asked and answered, for people."""
        known = self._words.get((message, reply))
        if known is None:
            admission, question = self.messages[message]
            who = "" if admission is None else f" as of session {admission.session}"
            known = self._words[message, reply] = f"answers {self.replies[reply]} to {question}{who}"
        return known

    def changed(self, state: GroupState, number: int, place: int) -> GroupState:
        """Return the state with a member that is something else; messages that can't change it any more are forgotten."""
        if state.places[number] == place:
            return state
        state = state._replace(places=(*state.places[:number], place, *state.places[number + 1 :]))
        return self.left_late(state, ())

    # --- late messages --------------------------------------------------------------------------------------------------

    def left_late(self, state: GroupState, more: tuple[tuple[int, int], ...]) -> GroupState:
        """Return the state in which these messages may arrive at any time, too."""
        late = {each for each in (*state.late, *more) if not self._is_dead(state, *each)}
        return state._replace(late=tuple(sorted(late)))

    def _is_dead(self, state: GroupState, number: int, message: int) -> bool:
        """Whether a message can't change a member any more, whatever else happens."""
        admission, question = self.messages[message]
        place = self.places[state.places[number]]
        may_go_back = number == EXCHANGED and bool(self.model.copies or state.left & _SWAPS or state.copy >= 0)
        match question:
            case Admit(session, stood):
                # Sessions only rise, unless an old copy takes the place of the member.
                is_other = stood is not None and stood.incarnation != place.standing.incarnation
                return is_other or (session <= place.standing.session and not may_go_back)
            case Remember(seen):
                known = place.standing.seen
                is_known = len(known) == len(seen) and all(old >= new for old, new in zip(known, seen, strict=True))
                return is_known and not may_go_back
        if may_go_back:  # a copy may be changed by what changes the member no more
            return isinstance(question, AskStanding)
        if admission is not None and place.standing.session > admission.session:
            return True
        return isinstance(question, AskStreams | AskRules | AskStanding) or is_dead(place.held, question)

    def arrive(self, state: GroupState) -> Iterator[Step]:
        """Let messages arrive late: no process waits for the answer."""
        for each in state.late:
            number, message = each
            if number != state.away:
                without = state._replace(late=tuple(other for other in state.late if other != each))
                after, reply = self.deliver(without, number, message)
                yield f"late, member {number} {self.words(message, reply)}", after

    # --- faults ---------------------------------------------------------------------------------------------------------

    def faults(self, state: GroupState, awaited: set[int]) -> Iterator[Step]:
        """Let member 0 be copied, and exchanged by the copy; a member that a process waits for go away, and come back."""
        yield from self._exchanged(state)
        if state.away >= 0:
            yield f"member {state.away} is back", state._replace(away=-1)
            return
        spent = state.spend(Fault.SILENT)
        if spent is None:
            return
        # As long as no process waits for a member, its absence is the same as messages that take their time.
        for number in sorted(awaited):
            after = spent._replace(away=number)
            if self.is_witnessed(after):
                yield f"member {number} goes away", after

    def _exchanged(self, state: GroupState) -> Iterator[Step]:
        now, copy = state.places[EXCHANGED], state.copy
        if self.model.copies and copy < 0:
            yield "member 0 is copied", state._replace(copy=now)
        spent = state.spend(Fault.SWAP)
        if spent is None or copy in (-1, now):
            return
        session = self.places[copy].standing.session
        if self.model.copies and session >= state.ended:
            return  # the copy knows all openings that have ended: no process could tell it from the member
        if not self.model.is_limit and self._is_being_admitted(state, session):
            return
        after = spent._replace(places=(copy, *state.places[1:]))
        # A copy that holds the same has forgotten nothing that counts.
        if self.places[copy].held != self.places[now].held:
            after = after._replace(forgot=(EXCHANGED,))
        # Members that have answered a question under way can not bear witness in it any more.
        if all(self.is_witnessed(after, *answered) for answered in ((), *self._answered(after, session))):
            yield "a copy takes the place of member 0", self.left_late(after, ())

    def _answered(self, state: GroupState, session: int) -> Iterator[tuple[int, ...]]:
        """Yield for each who asks how all stand, and has not heard member 0 yet, who has answered, and did not know better."""
        for position in state.seats:
            for columns in (position.columns, () if position.looking is None else position.looking.columns):
                asked = columns[EXCHANGED] if columns else (HEARD,)
                if asked[0] != SENT or not isinstance(self.messages[asked[1]][1], AskStanding):
                    continue
                heard = {number: self.replies[each[1]] for number, each in enumerate(columns) if each[0] == HEARD}
                if not any(isinstance(each, Standing) and each.seen[EXCHANGED] > session for each in heard.values()):
                    yield tuple(heard)

    def _is_being_admitted(self, state: GroupState, session: int) -> bool:
        """Whether member 0, as it stood at this session or before, is being admitted by a process that may know less.

        An opening that takes so long that another one begins and ends meanwhile can't tell a copy from the member that stood.
        """
        on_their_way = [message for number, message in state.late if number == EXCHANGED]
        for position in state.seats:
            on_their_way += [column[1] for column in position.columns[:1] if column[0] == SENT]
            heard = (
                self.replies[position.columns[0][1]] if position.columns and position.columns[0][0] == HEARD else None
            )
            if isinstance(heard, Standing) and heard.session <= session:
                return True
        asked = [self.messages[each][1] for each in on_their_way]
        return any(
            isinstance(each, Admit) and each.stood is not None and each.stood.session <= session for each in asked
        )

    def is_witnessed(self, state: GroupState, *silent: int) -> bool:
        """Whether a member that is not silent just now can say that member 0 has forgotten an opening, if it has.

        Two failures at once are more than the group promises to survive.
        """
        if self.model.is_limit:
            return True
        session = self.standing(state, EXCHANGED).session
        others = [number for number in range(len(INCARNATIONS)) if number != EXCHANGED]
        seen = {
            number: max(self.standing(state, number).seen[EXCHANGED : EXCHANGED + 1], default=0) for number in others
        }
        witnesses = [number for number in others if seen[number] > session]
        return not witnesses or any(number not in (state.away, *silent) for number in witnesses)

    def may_lose(self, state: GroupState, number: int, message: int) -> bool:
        """Whether the answer to a message may be lost, if any."""
        is_standing = isinstance(self.messages[message][1], AskStanding)
        return not is_standing or self.is_witnessed(state, number)
