"""What the search leaves out changes nothing: compared with searches that leave nothing out, on small models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from replitree.tablet.core.commit import Ledger
from replitree_verify.engine.small_search import Rules, search_all
from replitree_verify.tablets import members as module
from replitree_verify.tablets.forgetting import is_dead
from replitree_verify.tablets.models.catalog import MODELS
from replitree_verify.tablets.space import Space
from replitree_verify.tablets.state import LEADING, TabletState

Canonical = Callable[[Space, TabletState], TabletState]

SYMMETRIC = ("same_generation_of_two", "failing", "window", "loss_thin", "two_groups_deposed")
FORGETFUL = ("same_generation", "any_order", "store_references", "loss", "two_groups_deposed", "data_tail")
"""Models without absences: a member comes back for a message that could be forgotten, too, and nobody notices."""


def as_it_is(_: Space, state: TabletState) -> TabletState:
    """Leave every state as it is."""
    return state


def reachable(space: Space, canonical: Canonical) -> set[TabletState]:
    """Visit every state."""
    visited = set[TabletState]()

    def visit(state: TabletState) -> tuple[str, ...]:
        visited.add(state)
        return ()

    search_all(space, Rules(visit), canonical=partial(canonical, space))
    return visited


def forgetting(space: Space, state: TabletState) -> TabletState:
    """Leave out the messages that can't change anything any more."""
    late = tuple(
        (number, request)
        for number, request in state.late
        if not is_dead(space.holdings[state.held[number]], space.members.requests[request])
    )
    return state._replace(late=late)


@pytest.mark.slow
@pytest.mark.parametrize("name", SYMMETRIC)
def test_states_that_differ_in_the_numbers_of_members_are_one(name: str) -> None:
    space = Space(MODELS[name])
    plain, reduced = reachable(space, as_it_is), reachable(space, Space.canonical)
    assert len(reduced) < len(plain)
    assert {space.canonical(state) for state in plain} == reduced


@pytest.mark.slow
def test_procedure_that_asks_again_is_reordered_with_what_it_was_told() -> None:
    space = Space(MODELS["take_over"])
    reachable(space, Space.canonical)
    assert space.members.moves
    for (carry, order), moved in list(space.members.moves.items()):
        there = tuple(order.index(number) for number in range(len(order)))
        assert space.members.moved(moved, there) == carry


@pytest.mark.slow
def test_reordering_that_loses_something_is_noticed() -> None:
    def forgetful(space: Space, state: TabletState) -> TabletState:
        return space.canonical(state)._replace(late=())

    space = Space(MODELS["failing"])
    plain, reduced = reachable(space, as_it_is), reachable(space, forgetful)
    assert {space.canonical(state) for state in plain} != reduced


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGETFUL)
def test_messages_that_are_forgotten_would_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reduced = Space(MODELS[name])
    states = reachable(reduced, as_it_is)
    monkeypatch.setattr(module, "is_dead", lambda *_: False)
    plain = Space(MODELS[name])
    found = reachable(plain, as_it_is)
    assert len(found) > len(states)
    assert {told(plain, forgetting(plain, state)) for state in found} == {told(reduced, state) for state in states}


@pytest.mark.slow
def test_message_that_is_forgotten_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Space(MODELS["any_order"])
    states = {told(whole, state) for state in reachable(whole, as_it_is)}
    monkeypatch.setattr(module, "is_dead", lambda *_: True)
    hasty = Space(MODELS["any_order"])
    assert {told(hasty, state) for state in reachable(hasty, as_it_is)} != states


@pytest.mark.slow
def test_leader_whose_entries_can_not_be_acknowledged_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "failing"
    reduced = Space(MODELS[name])
    states = {seen(reduced, state) for state in reachable(reduced, as_it_is)}
    whole = Space(MODELS[name])
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "is_over", property(lambda _: False))
        found = reachable(whole, as_it_is)
    assert any(position[0] == LEADING and whole.ledger_of(position).is_over for w in found for position in w.seats)
    assert {seen(whole, settled(whole, state)) for state in found} == states


def settled(space: Space, state: TabletState) -> TabletState:
    """Let leaders that failed be over."""
    for seat, position in enumerate(state.seats):
        if position[0] == LEADING and space.ledger_of(position).is_over:
            leader = space.leading.leaders[position[1]]
            state = space.leading.settled(state, seat, leader, position[2], position[3])
    return state


def seen(space: Space, state: TabletState) -> tuple[object, ...]:
    """Return what can be seen of a state: not how many faults are left, for one may meet what nobody waits for."""
    holdings, _, late, acked, elected, _, *seats = told(space, state)
    return holdings, late, acked, elected, *seats


def told(space: Space, state: TabletState) -> tuple[object, ...]:
    """Return a state without the numbers that a space gives to what it has met."""
    return (
        tuple(space.holdings[number] for number in state.held),
        state.absent,
        tuple((member, space.members.requests[request]) for member, request in sorted(state.late, key=str)),
        *(state.acked, state.elected, state.left),
        tuple(position[0] for position in state.seats),
    )
