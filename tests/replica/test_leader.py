"""How often the leader looks for merges."""

from __future__ import annotations

from replitree.replica.table.leader import (
    AGE_S,
    CHOOSING_SHARE,
    CROWDED_S,
    IDLE_S_MAX,
    IDLE_S_MIN,
    PARTS_MEANT,
    SelectorPace,
)


def look(
    pace: SelectorPace, state: object, now_s: float = 0.0, *, took_s: float = 0.0, found: bool = False, parts: int = 1
) -> float | None:
    """Ask the selector if that is not pointless; return the pause after it."""
    if pace.may_rest(state, now_s):
        return None
    pace.looked(state, now_s, now_s + took_s, found=found, parts=parts)
    return pace.pause_s


def test_it_looks_less_and_less_often_while_nothing_changes() -> None:
    pace = SelectorPace()
    assert look(pace, "a") == IDLE_S_MIN
    pauses = []
    for _ in range(4):
        assert look(pace, "a", AGE_S / 2) is None
        pauses.append(pace.pause_s)
    assert pauses == [2 * IDLE_S_MIN, IDLE_S_MAX, IDLE_S_MAX, IDLE_S_MAX]


def test_parts_that_have_grown_older_are_looked_at_again() -> None:
    pace = SelectorPace()
    look(pace, "a")
    assert look(pace, "a", AGE_S) == IDLE_S_MIN


def test_it_looks_soon_again_while_parts_come_in() -> None:
    """A selector that has just found nothing finds something a moment later, at a hundred inserts a second."""
    pace = SelectorPace()
    assert [look(pace, state) for state in range(5)] == [IDLE_S_MIN] * 5


def test_it_asks_again_as_long_as_there_is_something_to_merge() -> None:
    pace = SelectorPace()
    assert [look(pace, "a", found=True) for _ in range(3)] == [IDLE_S_MIN] * 3


def test_a_large_table_is_not_looked_at_all_the_time() -> None:
    assert look(SelectorPace(), "a", took_s=0.04) == 0.04 / CHOOSING_SHARE
    assert look(SelectorPace(), "a", took_s=10) == IDLE_S_MAX


def test_it_looks_the_earlier_the_more_parts_come_in() -> None:
    """Where parts come in at a steady rate, it soon finds about as many as are meant to be there."""
    pace, rate_per_s, kept = SelectorPace(), 200, 10
    parts, found = kept + rate_per_s * IDLE_S_MIN, []
    for _ in range(20):
        found.append(parts)
        pause = look(pace, object(), found=True, parts=round(parts))
        assert pause is not None
        parts = kept + rate_per_s * pause
    assert found[0] > 2 * PARTS_MEANT
    assert abs(found[-1] - PARTS_MEANT) < 2


def test_it_waits_as_long_as_ever_when_it_is_calm_again() -> None:
    pace = SelectorPace()
    assert look(pace, "many", found=True, parts=100 * PARTS_MEANT) == CROWDED_S
    assert [look(pace, each, parts=PARTS_MEANT // 5) for each in range(2)] == [IDLE_S_MIN] * 2
