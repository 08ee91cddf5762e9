"""Who stands when: nobody while one leads, one after the other when nobody does."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replitree.machines.standing_by import AWAY_S, ENOUGH_MAX, SILENCE_MAX, STEP_S, PeerCandidate, ask, delay_s

OWN = PeerCandidate("m", "standby", seed=5)


@pytest.mark.parametrize(
    ("peers", "wait"),
    [
        ([], 0.0),
        ([PeerCandidate("a", "leader")], None),
        ([PeerCandidate("a", "candidate")], None),
        ([PeerCandidate("a", "leader", SILENCE_MAX - 1)], None),
        ([PeerCandidate("a", "leader", SILENCE_MAX)], AWAY_S),
        ([PeerCandidate("a")], 0.0),
        ([PeerCandidate("a", "standby", seed=4)], STEP_S),
        ([PeerCandidate("a", "standby", seed=5)], STEP_S),
        ([PeerCandidate("a", "standby", seed=6)], 0.0),
        ([PeerCandidate("z", "standby", seed=5)], 0.0),
        ([PeerCandidate("a", "deposed", seed=1), PeerCandidate("b", "standby", seed=2)], 2 * STEP_S),
        ([PeerCandidate("a"), PeerCandidate("b", "standby", SILENCE_MAX)], AWAY_S),
        ([PeerCandidate("a", "standby", seed=9), PeerCandidate("b", "standby", SILENCE_MAX)], 0.0),
        (
            [PeerCandidate(str(each), "standby", seed=9) for each in range(2)]
            + [PeerCandidate(str(each), "standby", 9) for each in range(9)],
            0.0,
        ),
    ],
)
def test_candidates_stand_one_after_the_other(peers: list[PeerCandidate], wait: float | None) -> None:
    assert delay_s(OWN, peers, 0, 0.5) == wait


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_of_those_that_hear_each_other_one_stands_at_once_and_no_two_together(seeds: list[int]) -> None:
    candidates = [PeerCandidate(f"http://{number}", "standby", seed=seed) for number, seed in enumerate(seeds)]
    delays = [delay_s(own, [peer for peer in candidates if peer is not own], 0, 0.5) for own in candidates]
    assert sorted(delay for delay in delays if delay is not None) == [number * STEP_S for number in range(len(seeds))]


@given(st.lists(st.booleans(), min_size=2, max_size=7))
def test_on_each_side_of_a_torn_network_somebody_stands(sides: list[bool]) -> None:
    candidates = [PeerCandidate(f"http://{number}", "standby", seed=number) for number in range(len(sides))]
    for side in set(sides):
        here = [peer for peer, place in zip(candidates, sides, strict=True) if place is side]
        away = [replace(peer, silent=SILENCE_MAX) for peer in candidates if peer not in here]
        first = delay_s(here[0], [*here[1:], *away], 0, 0.5)
        assert first == (0.0 if len(here) >= min(len(sides) // 2 + 1, ENOUGH_MAX) else AWAY_S)


def test_who_was_not_elected_waits_by_chance() -> None:
    assert delay_s(OWN, [], 1, 0.5) == STEP_S / 2
    assert delay_s(OWN, [], 50, 1.0) == delay_s(OWN, [], 5, 1.0)


def test_closed_port_is_known_at_once_and_silence_is_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert ask(PeerCandidate(url, "leader"), patience_s=0.05) == PeerCandidate(url, "leader", 1)
    assert ask(PeerCandidate(url, "leader", 1)) == PeerCandidate(url)
