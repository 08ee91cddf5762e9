"""How a group is opened and looked at again, as conversations: what is asked, what is answered, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from replitree.errors import StoreError
from replitree.tablet.group.admission import Admission, Admit, AskStanding, Remember, Reopened, Standing, serve, told
from replitree.tablet.group.admission import MemberState as Member
from replitree.tablet.group.effects import Procedure
from replitree.tablet.group.ids import GroupId
from replitree.tablet.group.member import Done, Failed, Holdings
from replitree.tablet.group.openings import (
    ATTEMPTS,
    OPENINGS_MAX,
    AskAdmitted,
    AskEach,
    LookAgain,
    Opening,
    ask_admitted,
    look_again,
    open_group,
    readmit,
)
from replitree.tablet.group.quorum import Quorum

QUORUM = Quorum(GroupId("g"), 3, 2)
NAMES = ("a", "b", "c")
AWAY = Failed("it is away")


def standing(name: str, session: int, *seen: int) -> Standing:
    return Standing(name, session, seen)


def ended(procedure: Procedure[Any], *rounds: tuple[object, ...]) -> Any:
    """Run a procedure that is answered so, round by round; return what it returns."""
    procedure.send(None)
    for number, answers in enumerate(rounds, 1):
        try:
            procedure.send(answers)
        except StopIteration as stop:
            assert number == len(rounds), "it is over before all is said"
            return stop.value
    raise AssertionError("it goes on")


ALL_WELL = (standing("a", 2, 2, 2, 2), standing("b", 2, 2, 2, 2), standing("c", 2, 2, 2, 2))


LATER = (standing("a", 3, 3, 3, 3), standing("b", 3, 3, 3, 3), standing("c", 3, 3, 3, 3))


def opened(*, away: int = -1) -> Opening:
    """Return a group that was opened as session 2."""
    obstacles = tuple(AWAY.reason if number == away else None for number in range(3))
    return Opening(2, obstacles, tuple(Admission(name, 2) for name in NAMES))


def test_members_are_asked_three_times() -> None:
    opening = open_group(QUORUM, NAMES)
    assert opening.send(None) == AskEach((AskStanding(),) * 3, 2)
    admit = opening.send((standing("a", 1, 1, 1, 1), AWAY, standing("c", 1, 1, 1, 1)))
    assert admit == AskEach((Admit(3, Admission("a", 1)), None, Admit(3, Admission("c", 1))), 2)
    assert opening.send((Done(), None, Done())) == AskEach((Remember((3, 1, 3)), None, Remember((3, 1, 3))), 2)
    with pytest.raises(StopIteration) as stop:
        opening.send((Done(), None, Done()))
    assert stop.value.value == Opening(3, (None, AWAY.reason, None), tuple(Admission(name, 3) for name in NAMES))


def test_whoever_was_not_told_who_takes_part_does_not() -> None:
    with pytest.raises(StoreError, match=r"2 of 3 members are needed: member 1: it is away; member 2: it is away"):
        ended(open_group(QUORUM, NAMES), (*ALL_WELL[:2], AWAY), (Done(), Done(), None), (Done(), AWAY, None))


def test_whoever_was_overtaken_begins_again() -> None:
    overtaken = (Failed("the group was opened again"),) * 3
    done = (Done(),) * 3
    found = ended(open_group(QUORUM, NAMES), ALL_WELL, overtaken, (None,) * 3, LATER, done, done)
    assert (found.session, found.obstacles) == (5, (None,) * 3)
    with pytest.raises(StoreError, match="opened again"):
        ended(open_group(QUORUM, NAMES), *(ALL_WELL, overtaken, (None,) * 3) * ATTEMPTS)


def test_member_is_not_admitted_when_it_has_learnt_more_since_it_stood() -> None:
    member = Member(LATER[0], Holdings())
    after, reply = serve(member, Admit(5, Admission("a", 2)))
    assert (after, type(reply)) == (member, Reopened)
    assert serve(member, Admit(3, Admission("a", 2))) == (member, Done())  # the same request came before


def test_word_of_another_directory_does_not_count() -> None:
    other = standing("another", 9, 9, 9, 9)
    found = ended(open_group(QUORUM, NAMES), (other, *ALL_WELL[1:]), (None, Done(), Done()), (None, Done(), Done()))
    assert [each is None for each in found.obstacles] == [False, True, True]


def test_what_a_member_was_told_before_and_is_later_stays() -> None:
    assert told(standing("a", 4, 4, 3), (2, 4, 1)) == standing("a", 4, 4, 4, 1)
    place, reply = serve(Member(standing("a", 4, 4), Holdings()), Remember((2, 2)))
    assert (place.standing.seen, reply) == ((4, 2), Done())


def test_request_is_sent_again_as_long_as_nobody_has_forgotten_anything() -> None:
    asking, again = ask_admitted(), Reopened("again", 3)
    assert asking.send(None) == AskAdmitted()
    for _ in range(OPENINGS_MAX):
        assert asking.send(again) == LookAgain()
        assert asking.send(True) == AskAdmitted()
    with pytest.raises(StopIteration) as stop:
        asking.send(again)
    assert stop.value.value == again


def test_whoever_may_not_go_on_says_that_the_group_was_opened_again() -> None:
    asking = ask_admitted()
    asking.send(None)
    asking.send(Reopened("again", 3))
    with pytest.raises(StopIteration) as stop:
        asking.send(False)
    assert isinstance(stop.value.value, Reopened)


FORGOT = (standing("a", 1, 1, 1, 1), standing("b", 3, 3, 3, 3), standing("c", 3, 3, 3, 3))


def test_member_that_was_not_told_yet_is_looked_at_twice() -> None:
    telling = (standing("a", 2, 2, 2, 2), standing("b", 3, 3, 3, 3), standing("c", 3, 2, 2, 2))
    after = (standing("a", 3, 3, 3, 3), *telling[1:])
    found = ended(look_again(opened(), NAMES), telling, after)
    assert (found.forgot, found.session, found.terms(0)) == (None, 3, Admission("a", 3))
    assert ended(look_again(opened(), NAMES), FORGOT, FORGOT).terms(1) == (
        "member 0 took part and may have forgotten something"
        " (it has forgotten session 3: an old copy was put in its place; make it anew from the others with"
        " `replitree tablet replace`): open the group again"
    )


def test_member_that_is_asked_as_of_an_earlier_session_is_suspected_although_the_later_one_is_known() -> None:
    half_told = (standing("a", 2, 2, 2, 2), standing("b", 3, 2, 2, 2), standing("c", 2, 2, 2, 2))
    known = ended(look_again(opened(), NAMES), half_told)
    assert (known.session, known.terms(0), known.terms(1)) == (3, Admission("a", 2), Admission("b", 3))
    out = (standing("a", 2, 2, 2, 2), standing("b", 3, 3, 3, 3), standing("c", 3, 3, 3, 3))
    assert ended(look_again(known, NAMES), out, out).forgot is not None


def test_member_that_knows_less_than_when_it_was_admitted_has_forgotten_something_whoever_else_says_so() -> None:
    alone = Opening(3, (None,), (Admission("a", 3),))
    sunk = (standing("a", 1, 1),)
    assert ended(look_again(alone, ("a",)), sunk, sunk).terms(0) == (
        "member 0 took part and may have forgotten something"
        " (it has forgotten session 3: an old copy was put in its place; make it anew from the others with"
        " `replitree tablet replace`): open the group again"
    )
    assert ended(look_again(alone, ("a",)), (standing("a", 5, 5),)).terms(0) == Admission("a", 5)


def test_member_that_falls_silent_is_not_suspected_while_nobody_opens_the_group() -> None:
    silent = (AWAY, *ALL_WELL[1:])
    assert ended(look_again(opened(), NAMES), silent).forgot is None


def test_nobody_is_let_in_who_has_forgotten_something() -> None:
    group = opened(away=2)
    back_too_old = (*ALL_WELL[:2], standing("c", 1, 1, 1, 1))
    assert ended(readmit(QUORUM, group, NAMES), back_too_old) == group


def test_member_that_is_back_is_let_in() -> None:
    done = (Done(),) * 3
    found = ended(readmit(QUORUM, opened(away=2), NAMES), ALL_WELL, ALL_WELL, done, done)
    assert (found.obstacles, found.session) == ((None,) * 3, 3)


def test_those_that_take_part_go_on_when_the_group_can_not_be_opened_again() -> None:
    group = opened(away=2)
    assert ended(readmit(QUORUM, group, NAMES), ALL_WELL, (AWAY,) * 3, (None,) * 3, (None,) * 3) == group


def test_member_that_is_back_is_not_let_in_by_a_look() -> None:
    found = ended(look_again(opened(away=2), NAMES), LATER)
    assert [found.terms(number) for number in range(3)] == [Admission("a", 3), Admission("b", 3), AWAY.reason]


def test_member_that_is_gone_when_others_are_let_in_is_suspected_if_somebody_else_opened_the_group() -> None:
    opened_by_others = (FORGOT[0], *FORGOT[1:])
    rest = (None, Done(), Done())
    found = ended(readmit(QUORUM, opened(away=2), NAMES), ALL_WELL, opened_by_others, rest, rest)
    assert "member 0 took part" in (found.forgot or "")
    only_away = (AWAY, *ALL_WELL[1:])
    found = ended(readmit(QUORUM, opened(away=2), NAMES), ALL_WELL, only_away, rest, rest)
    assert (found.forgot, found.obstacles) == (None, (AWAY.reason, None, None))
