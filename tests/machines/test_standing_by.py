"""Who stands when: nobody while one leads, one after the other when nobody does."""

from __future__ import annotations

import socket

import pytest

from replitree.machines.standing_by import SILENCE_MAX, STEP_S, Peer, ask, delay_s


@pytest.mark.parametrize(
    ("peers", "wait"),
    [
        ([], 0.0),
        ([Peer("a", "leader")], None),
        ([Peer("a", "candidate")], None),
        ([Peer("a", "leader", SILENCE_MAX - 1)], None),
        ([Peer("a", "leader", SILENCE_MAX)], 0.0),
        ([Peer("a")], 0.0),
        ([Peer("a", "standby")], STEP_S),
        ([Peer("a", "deposed"), Peer("b", "standby")], 2 * STEP_S),
        ([Peer("z", "standby")], 0.0),
    ],
)
def test_candidates_stand_one_after_the_other(peers: list[Peer], wait: float | None) -> None:
    assert delay_s("m", peers, 0, 0.5) == wait


def test_who_was_not_elected_waits_by_chance() -> None:
    assert delay_s("m", [], 1, 0.5) == STEP_S / 2
    assert delay_s("m", [], 50, 1.0) == delay_s("m", [], 5, 1.0)


def test_closed_port_is_known_at_once_and_silence_is_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert ask(Peer(url, "leader"), patience_s=0.05) == Peer(url, "leader", 1)
    assert ask(Peer(url, "leader", 1)) == Peer(url)
