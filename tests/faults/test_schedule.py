"""A schedule is a pure function of its seed, and reaches everything that there is."""

from __future__ import annotations

import itertools

import pytest

from replitree.replica.kit.config import ServerConfig
from tests.faults.harness import SETTINGS, Plan
from tests.faults.nemesis import Nemesis, moments
from tests.faults.schedule import BOTH, DOWN, KINDS, QUIET_S_MAX, UP, Round, Scene, Strike, rounds

SCENE = Scene(("r1", "r2", "r3"), ("zk1", "zk2", "zk3"), 4.0)


def first(count: int, seed: int, kinds: tuple[str, ...] = tuple(KINDS)) -> list[Round]:
    return list(itertools.islice(rounds(seed, SCENE, kinds), count))


def test_equal_seeds_give_equal_rounds_and_others_others() -> None:
    assert first(100, 7) == first(100, 7)
    assert first(100, 7) != first(100, 8)


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    assert first(100, 7)[:30] == first(30, 7)


def test_every_kind_is_drawn_and_combined() -> None:
    drawn = first(400, 1)
    assert {strike.kind for one in drawn for strike in one.strikes} == set(KINDS)
    assert {len(one.strikes) for one in drawn} == {1, 2, 3}
    assert {one.calm for one in drawn} == {True, False}
    assert {strike.way for one in drawn for strike in one.strikes} == {UP, DOWN, BOTH}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_draws_what_it_needs(kind: str) -> None:
    strikes = [strike for one in first(50, 3, (kind,)) for strike in one.strikes]
    for strike in strikes:
        assert 0 <= strike.after_s <= QUIET_S_MAX
        assert 0 <= strike.hold_s <= 8.0
        assert set(strike.targets) <= {*SCENE.replicas, *SCENE.servers}
        assert len(set(strike.targets)) == len(strike.targets)
        assert strike.targets or kind.endswith("leader")
        assert kind in str(strike)
        if kind.startswith("long-"):
            assert strike.hold_s > SCENE.session_timeout_s


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_can_be_carried_out(kind: str) -> None:
    name = kind.removeprefix("long-").replace("-", "_")
    assert callable(getattr(Nemesis, f"_{name}"))


def test_strikes_of_a_round_overlap_in_the_order_of_their_times() -> None:
    strikes = (Strike("kill", 0.3, 0.1), Strike("pause", 0.1, 1.0), Strike("expire", 0.2, 0.0))
    assert [number for _, number in moments(strikes)] == [1, 2, 2, 0, 0, 1]


def test_settings_are_drawn_from_the_seed() -> None:
    drawn = [Plan(seed, 1, 1.0).settings() for seed in range(60)]
    assert drawn[5] == Plan(5, 9, 9.0).settings()
    for group in SETTINGS:
        for alternative in group:
            assert any(alternative.items() <= settings.items() for settings in drawn)
        names = {name for alternative in group for name in alternative}
        assert any(not names & settings.keys() for settings in drawn) or {} not in group


def test_settings_are_those_of_a_server() -> None:
    for group in SETTINGS:
        for alternative in group:
            assert alternative.keys() <= set(ServerConfig.__struct_fields__)
