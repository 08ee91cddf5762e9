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
from replitree_verify.openings.world import AWAY, COPIES, HEARD, LOST, SENT, SWAPS, World
from replitree_verify.tablets.forgetting import is_dead
from replitree_verify.world.kernel import Interner

Message = tuple[Admission | None, Question]
Step = tuple[str, World]

FOREIGN = Standing("another", 9, (9, 1, 1))
"""A directory of another group, which was opened more often, lately without its other members."""

VOTES = (Done, Contents, FenceIs)


class Members:
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

    def standing(self, world: World, number: int) -> Standing:
        """Return how a member stands."""
        return self.places[world.places[number]].standing

    def held(self, world: World, number: int) -> Holdings:
        """Return what a member holds."""
        return self.places[world.places[number]].held

    def deliver(self, world: World, number: int, message: int) -> tuple[World, int]:
        """Let a member do what it is asked; return the number of its answer."""
        key = (world.places[number], message)
        known = self._served.get(key)
        if known is None:
            admission, question = self.messages[message]
            place, answer = serve(self.places[key[0]], question, admission)
            known = self._served[key] = self.places.number(place), self.replies.number(answer)
        is_asked_to_vote = self.messages[message][0] is not None and not self.model.copies
        if number in world.forgot and is_asked_to_vote and isinstance(self.replies[known[1]], VOTES):
            world = world._replace(wrong=f"O2: member {number} votes, and has forgotten what it had said to have")
        return self.changed(world, number, known[0]), known[1]

    def words(self, message: int, reply: int) -> str:
        """Return what was asked and answered, for people."""
        known = self._words.get((message, reply))
        if known is None:
            admission, question = self.messages[message]
            who = "" if admission is None else f" as of session {admission.session}"
            known = self._words[message, reply] = f"answers {self.replies[reply]} to {question}{who}"
        return known

    def changed(self, world: World, number: int, place: int) -> World:
        """Return the state with a member that is something else; messages that can't change it any more are forgotten."""
        if world.places[number] == place:
            return world
        world = world._replace(places=(*world.places[:number], place, *world.places[number + 1 :]))
        return self.left_late(world, ())

    # --- late messages --------------------------------------------------------------------------------------------------

    def left_late(self, world: World, more: tuple[tuple[int, int], ...]) -> World:
        """Return the state in which these messages may arrive at any time, too."""
        late = {each for each in (*world.late, *more) if not self._is_dead(world, *each)}
        return world._replace(late=tuple(sorted(late)))

    def _is_dead(self, world: World, number: int, message: int) -> bool:
        """Whether a message can't change a member any more, whatever else happens."""
        admission, question = self.messages[message]
        place = self.places[world.places[number]]
        may_go_back = number == EXCHANGED and bool(world.left[SWAPS] or world.left[COPIES] or world.copy >= 0)
        match question:
            case Admit(session, stood):
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

    def arrive(self, world: World) -> Iterator[Step]:
        """Let messages arrive late: no process waits for the answer."""
        for each in world.late:
            number, message = each
            if number != world.away:
                without = world._replace(late=tuple(other for other in world.late if other != each))
                after, reply = self.deliver(without, number, message)
                yield f"late, member {number} {self.words(message, reply)}", after

    # --- faults ---------------------------------------------------------------------------------------------------------

    def faults(self, world: World, awaited: frozenset[int]) -> Iterator[Step]:
        """Let member 0 be copied, and exchanged by the copy; a member that a process waits for go away, and come back."""
        yield from self._exchanged(world)
        if world.away >= 0:
            yield f"member {world.away} is back", world._replace(away=-1)
            return
        if not world.left[AWAY]:
            return
        for number in sorted(awaited):
            after = spent(world, AWAY)._replace(away=number)
            if self.is_witnessed(after):
                yield f"member {number} goes away", after

    def _exchanged(self, world: World) -> Iterator[Step]:
        now, copy = world.places[EXCHANGED], world.copy
        if world.left[COPIES] and copy < 0:
            yield "member 0 is copied", spent(world, COPIES)._replace(copy=now)
        if not world.left[SWAPS] or copy in (-1, now):
            return
        session = self.places[copy].standing.session
        if self.model.copies and session >= world.ended:
            return  # the copy knows all openings that have ended: no process could tell it from the member
        if not self.model.is_limit and self._is_being_admitted(world, session):
            return
        after = spent(world, SWAPS)._replace(places=(copy, *world.places[1:]))
        # A copy that holds the same has forgotten nothing that counts.
        if self.places[copy].held != self.places[now].held:
            after = after._replace(forgot=(EXCHANGED,))
        if all(self.is_witnessed(after, *answered) for answered in ((), *self._answered(after, session))):
            yield "a copy takes the place of member 0", self.left_late(after, ())

    def _answered(self, world: World, session: int) -> Iterator[tuple[int, ...]]:
        """Yield for each who asks how all stand, and has not heard member 0 yet, who has answered, and did not know better."""
        for position in world.seats:
            for columns in (position.columns, () if position.looking is None else position.looking.columns):
                if not columns or not self._is_standing_asked(columns[EXCHANGED]):
                    continue
                heard = {number: self.replies[each[1]] for number, each in enumerate(columns) if each[0] == HEARD}
                if not any(isinstance(each, Standing) and each.seen[EXCHANGED] > session for each in heard.values()):
                    yield tuple(heard)

    def _is_standing_asked(self, column: tuple[int, ...]) -> bool:
        return column[0] == SENT and isinstance(self.messages[column[1]][1], AskStanding)

    def _is_being_admitted(self, world: World, session: int) -> bool:
        """Whether member 0, as it stood at this session or before, is being admitted by a process that may know less.

        An opening that takes so long that another one begins and ends meanwhile can't tell a copy from the member that stood.
        """
        on_their_way = [message for number, message in world.late if number == EXCHANGED]
        for position in world.seats:
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

    def is_witnessed(self, world: World, *silent: int) -> bool:
        """Whether a member that is not silent just now can say that member 0 has forgotten an opening, if it has.

        Two failures at once are more than the group promises to survive.
        """
        if self.model.is_limit:
            return True
        session = self.standing(world, EXCHANGED).session
        others = [number for number in range(len(INCARNATIONS)) if number != EXCHANGED]
        seen = {
            number: max(self.standing(world, number).seen[EXCHANGED : EXCHANGED + 1], default=0) for number in others
        }
        witnesses = [number for number in others if seen[number] > session]
        return not witnesses or any(number not in (world.away, *silent) for number in witnesses)

    def may_lose(self, world: World, number: int, message: int) -> bool:
        """Whether the answer to a message may be lost."""
        is_standing = isinstance(self.messages[message][1], AskStanding)
        return bool(world.left[LOST]) and (not is_standing or self.is_witnessed(world, number))


def spent(world: World, place: int) -> World:
    """Return the state with one fault less of a kind."""
    left = list(world.left)
    left[place] -= 1
    return world._replace(left=tuple(left))  # type: ignore[arg-type]  # as many as before
