"""How often the leader looks for merges."""

from __future__ import annotations

from replitree.replica.leader import AGE_S, CHOOSING_SHARE, IDLE_S_MAX, IDLE_S_MIN, Pace


def look(pace: Pace, state: object, now_s: float = 0.0, *, took_s: float = 0.0, found: bool = False) -> float | None:
    """Ask the selector if that is not pointless; return the pause after it."""
    if pace.may_rest(state, now_s):
        return None
    pace.looked(state, now_s, now_s + took_s, found=found)
    return pace.pause_s


def test_it_looks_less_and_less_often_while_nothing_changes() -> None:
    pace = Pace()
    assert look(pace, "a") == IDLE_S_MIN
    pauses = []
    for _ in range(4):
        assert look(pace, "a", AGE_S / 2) is None
        pauses.append(pace.pause_s)
    assert pauses == [2 * IDLE_S_MIN, IDLE_S_MAX, IDLE_S_MAX, IDLE_S_MAX]


def test_parts_that_have_grown_older_are_looked_at_again() -> None:
    pace = Pace()
    look(pace, "a")
    assert look(pace, "a", AGE_S) == IDLE_S_MIN


def test_it_looks_soon_again_while_parts_come_in() -> None:
    """A selector that has just found nothing finds something a moment later, at a hundred inserts a second."""
    pace = Pace()
    assert [look(pace, state) for state in range(5)] == [IDLE_S_MIN] * 5


def test_it_asks_again_as_long_as_there_is_something_to_merge() -> None:
    pace = Pace()
    assert [look(pace, "a", found=True) for _ in range(3)] == [IDLE_S_MIN] * 3


def test_a_large_table_is_not_looked_at_all_the_time() -> None:
    assert look(Pace(), "a", took_s=0.04) == 0.04 / CHOOSING_SHARE
    assert look(Pace(), "a", took_s=10) == IDLE_S_MAX
